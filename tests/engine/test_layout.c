/* How matrices lie after loading: in the layout of the level's kernels, unless a caller needs the
 * file's order. That either gives the same bits is proved elsewhere; here that it happens. */
#include "engine/engine.h"
#include "support/engine.h"
#include "support/kernels/proof.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

static const uint32_t types[] = {HTH_TYPE_F32, HTH_TYPE_F16, HTH_TYPE_Q4_0, HTH_TYPE_Q8_0};

static gguf_bytes make_file(uint32_t type)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    for (uint32_t i = 0; i < m.n_tensor; i++)
        if (m.tensors[i].n_dim == 2) m.tensors[i].type = type;
    gguf_bytes file = tiny_write(&m);
    return file;
}

/* The layouts of a layer's matrices are `expected`; single rows of the table of tokens are read. */
static void check_layouts(const hearth_model *m, hth_layout expected, const char *what)
{
    const hth_model *model = m->model;
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        const hth_matrix *all[] = {&l->attn.q, &l->attn.k, &l->attn.v, &l->attn.o, &l->ffn.gate, &l->ffn.up, &l->ffn.down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (all[k]->layout != expected)
                test_fail(__FILE__, __LINE__, "%s, type %d at %s: matrix %zu of layer %u lies %d, not %d",
                          what, (int)all[k]->type, hth_cpu_name(m->kernels.level), k, i, (int)all[k]->layout,
                          (int)expected);
    }
    if (!model->tied) CHECK_INT(model->token_embd.layout, HTH_LAYOUT_ROWS);
}

static void check_options(const char *path, const hearth_model_options *o, bool file_order, const char *what)
{
    CLOSED(hearth_model) *m = OPENED(hearth_model, path, o);
    if (!m) return;
    check_layouts(m, file_order ? HTH_LAYOUT_ROWS : m->kernels.layout[m->model->layers[0].attn.q.type], what);
}

TEST(matrices_have_the_layout_of_the_cpu_level)
{
    const char *levels[ENGINE_MAX_LEVELS];
    size_t n_level = engine_levels(levels);
    hearth_model_options plain = hearth_model_defaults(), keep = plain, map = plain;
    keep.no_repack = true, map.mmap = true;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        char path[] = "/tmp/hearth-layout-XXXXXX";
        CLEANUP(gguf_free) gguf_bytes file = make_file(types[t]);
        int fd = mkstemp(path);
        CHECK(fd >= 0 && write(fd, file.data, file.n) == (ssize_t)file.n);
        for (size_t l = 0; l < n_level; l++) {
            engine_set_cpu(levels[l]);
            check_options(path, &plain, false, "read");
            check_options(path, &keep, true, "read in file order");
            check_options(path, &map, true, "mapped");
        }
        engine_set_cpu(NULL);
        close(fd);
        unlink(path);
    }
}

/* Without this the test above would not notice a table that likes nothing. */
TEST(the_best_levels_like_panels)
{
    hth_kernels k = proof_kernels(hth_cpu_detect());
    bool likes = k.level == HTH_CPU_AVX2 || k.level == HTH_CPU_AVX512;
    if (likes || k.level == HTH_CPU_GENERIC) { /* others: kernels/panels */
        CHECK_INT(k.layout[HTH_TYPE_Q4_0] == HTH_LAYOUT_PANELS, likes);
        CHECK_INT(k.layout[HTH_TYPE_Q8_0] == HTH_LAYOUT_PANELS, likes);
    }
}
