/* Packed files: they run with the selectors of their activation, gate has the bits of dense at every
 * setting, and they say nearly what their source says; what is not what it claims is refused. */
#include "convert/pack.h"
#include "file/gguf.h"
#include "support/golden.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORYTELLER "models/storyteller-drelu/storyteller-drelu-f32.gguf"

static const int32_t story_ids[] = {1, 45, 300, 17, 901, 233, 12, 77, 5, 640, 99, 1023, 8, 8, 41, 500};
enum { N_ID = sizeof story_ids / sizeof *story_ids };

static hearth_status pack(const char *in, const char *out, const char *type, hth_pack_result *r,
                          hearth_error *err)
{
    hth_pack_options o = {.mix = type ? hth_mix_find(type) : NULL, .pure = true, .n_thread = 2};
    return hth_pack(in, out, &o, r, err);
}

static float *logits_of(const char *path, hearth_selector selector, size_t *n)
{
    engine_setting s = {.n_thread = 1, .n_batch = 256, .kv = HEARTH_KV_F32, .selector = selector};
    size_t n_vocab = 0;
    float *logits = engine_logits(path, &s, story_ids, N_ID, &n_vocab);
    *n = N_ID * n_vocab;
    return logits;
}

/* The bound is the type's own: what it does to down, which the source has as floats. */
static void check_packed(const char *source, const char *type, double bound)
{
    const char *path = test_scratch("packed.gguf");
    size_t n = 0, n_source;
    hth_pack_result r;
    CHECK_OK(pack(source, path, type, &r, err));
    golden g = {.model = path, .n = N_ID, .selector = HEARTH_SELECTOR_DENSE};
    int32_t ids[N_ID];
    memcpy(ids, story_ids, sizeof ids);
    g.ids = ids;
    float *dense = logits_of(path, HEARTH_SELECTOR_DENSE, &n),
          *expected = logits_of(source, HEARTH_SELECTOR_DENSE, &n_source);
    g.n_truth = n;
    if (CHECK(dense && expected && n == n_source)) {
        double error = engine_rms_error(dense, expected, n);
        printf("     %-6s %.2e\n", type, error);
        if (!(error <= bound)) test_fail(__FILE__, __LINE__, "%s: logits are off by %g", type, error);
        golden_same_sampled(&g, HEARTH_KV_F32, dense);
        g.selector = HEARTH_SELECTOR_GATE;
        golden_same_sampled(&g, HEARTH_KV_F32, dense);
    }
    free(dense);
    free(expected);
    remove(path);
}

TEST(gate_has_the_bits_of_dense_on_packed_files_of_every_type)
{
    static const struct {
        const char *type;
        double bound;
    } rows[] = {{"F32", 1e-5},  {"F16", 1e-3},    {"BF16", 1e-2},   {"Q8_0", 2e-2},
                {"Q6_K", 5e-2}, {"Q5_0", 1e-1},   {"Q4_K_M", 2e-1}, {"Q4_0", 2e-1},
                {"Q4_1", 2e-1}, {"IQ4_NL", 2e-1}, {"Q3_K_M", 4e-1}, {"Q2_K", 9e-1}};
    const char *source = test_data(STORYTELLER);
    if (!source) return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_packed(source, rows[i].type, rows[i].bound);
}

TEST(files_of_powerinfer_pack_without_a_change_of_bits)
{
    static const char *const names[] = {"llama-relu.f16", "llama-relu.q4_0", "bamboo.q4_0", "opt.f16",
                                        "falcon.q4_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char model[100];
        snprintf(model, sizeof model, "golden/powerinfer/%s.powerinfer.gguf", names[i]);
        const char *source = test_data(model);
        const char *path = test_scratch("packed.gguf");
        hth_pack_result r;
        size_t n = 0, n_source = 0;
        if (!source) return;
        CHECK_OK(pack(source, path, NULL, &r, err));
        CHECK(strcmp(r.selector, "predictor") == 0 && !r.requantised);
        for (int s = HEARTH_SELECTOR_AUTO; s <= HEARTH_SELECTOR_PREDICTOR; s++) {
            static const int32_t ids[] = {3, 9, 100, 3, 287, 40};
            engine_setting setting = {
                .n_thread = 2, .n_batch = 7, .kv = HEARTH_KV_F32, .selector = (hearth_selector)s};
            float *a = engine_logits(source, &setting, ids, 6, &n_source),
                  *b = engine_logits(path, &setting, ids, 6, &n);
            if (CHECK(a && b && n == n_source)) CHECK_BYTES(a, b, 6 * n * sizeof *a);
            free(a);
            free(b);
        }
        remove(path);
    }
}

TEST(neurons_of_every_family_can_be_turned)
{
    static const char *const names[] = {"llama-gqa", "llama-bias", "llama-relu2-plain", "qwen2", "qwen3",
                                        "gemma2",    "falcon",     "falcon-two-norms",  "opt",   "bamboo"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char model[80], ids[80], truth[80];
        hth_pack_result r;
        golden g;
        snprintf(model, sizeof model, "golden/arch/%s.gguf", names[i]);
        snprintf(ids, sizeof ids, "golden/arch/%s.ids", names[i]);
        snprintf(truth, sizeof truth, "golden/arch/%s.f32", names[i]);
        if (golden_open(&g, model, ids, truth)) {
            const char *path = test_scratch("packed.gguf");
            CHECK_OK(pack(g.model, path, NULL, &r, err));
            g.model = path;
            float *logits = golden_logits(&g, HEARTH_KV_F32);
            double error = logits ? engine_max_error(logits, g.truth, g.n_truth) : 1.0;
            if (!(error <= 2e-5)) test_fail(__FILE__, __LINE__, "%s: error %g", names[i], error);
            free(logits);
            remove(path);
        }
        golden_close(&g);
    }
}

/* Names that look like those of layers, shapes and types that nobody checked: they are not the model's. */
TEST(tensors_that_the_model_does_not_use_pass_through_as_they_are)
{
    static const struct {
        const char *name;
        uint32_t type, n_dim;
        uint64_t dim[2];
    } rows[] = {{"blk.00.ffn_down.weight", 0, 2, {32, 64}},
                {"blk.+1.ffn_down.weight", 0, 2, {128, 8}},
                {"blk.01.ffn_up.weight", 0, 2, {32, 128}},
                {"blk.001.ffn_up.weight", 0, 2, {32, 128}},
                {"blk.000.ffn_down.weight", 26, 2, {16, 8}},
                {"blk.1.ffn_floor.weight", 0, 1, {8, 1}},
                {"blk.0.ffn_down_x.weight", 0, 2, {32, 16}},
                {"blk.7.ffn_down.weight", 26, 2, {8, 8}},
                {"unused", 2, 1, {64, 1}},
                {"blk.4294967296.ffn_gate.bias", 0, 1, {4, 1}}};
    enum { N_ROW = sizeof rows / sizeof *rows };
    char in[512];
    tiny_model m;
    hth_pack_result r;
    hth_gguf *file = NULL;
    snprintf(in, sizeof in, "%s", test_scratch("odd.gguf"));
    const char *out = test_scratch("odd-packed.gguf");
    tiny_begin(&m);
    for (size_t i = 0; i < N_ROW; i++)
        tiny_add_tensor(&m, rows[i].name, rows[i].type, rows[i].n_dim, rows[i].dim[0], rows[i].dim[1]);
    tiny_add_tensor(&m, "blk.0.ffn_down_t.weight", 0, 2, 32, 16); /* gives way to what is written */
    gguf_bytes bytes = tiny_write(&m);
    FILE *f = fopen(in, "wb");
    if (!f || fwrite(bytes.data, 1, bytes.n, f) != bytes.n || fclose(f) != 0) abort();
    for (int type = 0; type < 2; type++) {
        CHECK_OK(pack(in, out, type ? "Q8_0" : NULL, &r, err));
        CHECK_OK(hth_gguf_open(out, &file, err));
        for (size_t i = 0; file && i < N_ROW; i++) {
            const hth_gguf_tensor *t = hth_gguf_find_tensor(file, rows[i].name);
            CHECK(t && t->type == rows[i].type && t->n_dim == rows[i].n_dim && t->dim[0] == rows[i].dim[0]);
        }
        if (file) hth_gguf_close(file);
        file = NULL;
    }
    remove(in);
    remove(out);
    gguf_free(&bytes);
    tiny_free(&m);
}

static bool refuse_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user, (void)total;
    return done == 0;
}

TEST(an_interrupted_packing_leaves_nothing)
{
    const char *source = test_data(STORYTELLER), *path = test_scratch("packed.gguf");
    hth_pack_options o = {.progress = refuse_progress, .n_thread = 1};
    hth_pack_result r;
    hearth_error err;
    if (!source) return;
    CHECK_INT(hth_pack(source, path, &o, &r, &err), HEARTH_ERROR_CANCELLED);
    FILE *f = fopen(path, "rb");
    CHECK(f == NULL);
    if (f) fclose(f);
}

TEST_MAIN
