/* Packed files: they run with the selectors of their activation, gate has the bits of dense at every
 * setting, and they say nearly what their source says; what is not what it claims is refused. */
#include "convert/pack.h"
#include "file/gguf.h"
#include "model/model.h"
#include "sparse/profile.h"
#include "sparse/sidecar.h"
#include "support/models/golden.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

#define STORYTELLER "models/storyteller-drelu/storyteller-drelu-f32.gguf"

static const int32_t story_ids[] = {1, 45, 300, 17, 901, 233, 12, 77, 5, 640, 99, 1023, 8, 8, 41, 500};
enum { N_ID = sizeof story_ids / sizeof *story_ids };

static hearth_status pack(const char *in, const char *out, const char *type, hth_pack_result *r,
                          hearth_error *err)
{
    hth_pack_options o = {.ftype = type ? hth_ftype_find(type) : NULL, .pure = true, .n_thread = 2};
    return hth_pack(in, out, &o, r, err);
}

static hearth_status pack_with_unused(const char *in, const char *out, const char *type, hth_pack_result *r,
                                      hearth_error *err)
{
    hth_pack_options o = {
        .ftype = type ? hth_ftype_find(type) : NULL, .pure = true, .allow_unused = true, .n_thread = 2};
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
        golden_same_on_levels(&g, HEARTH_KV_F32, dense);
        g.selector = HEARTH_SELECTOR_GATE;
        golden_same_sampled(&g, HEARTH_KV_F32, dense);
    }
    free(dense);
    free(expected);
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
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i += test_is_long() ? 1 : 2)
        check_packed(source, rows[i].type, rows[i].bound);
}

TEST(files_of_powerinfer_pack_without_a_change_of_bits)
{
    static const char *const names[] = {"llama-relu.f16", "llama-relu.q4_0", "bamboo.q4_0", "opt.f16", "falcon.q4_0"};
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
    }
}

TEST(neurons_of_every_architecture_can_be_transposed)
{
    static const char *const names[] = {"llama-gqa", "llama-bias", "llama-relu2-plain", "qwen2", "qwen3",
                                        "gemma2",    "falcon",     "falcon-two-norms",  "opt",   "bamboo"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char model[80], ids[80], truth[80];
        hth_pack_result r;
        CLEANUP(golden_close) golden g;
        snprintf(model, sizeof model, "golden/arch/%s.gguf", names[i]);
        snprintf(ids, sizeof ids, "golden/arch/%s.ids", names[i]);
        snprintf(truth, sizeof truth, "golden/arch/%s.f32", names[i]);
        if (golden_open(&g, model, ids, truth)) {
            const char *path = test_scratch("packed.gguf");
            CHECK_OK(pack(g.model, path, NULL, &r, err));
            g.model = path;
            FREED float *logits = golden_logits(&g, HEARTH_KV_F32);
            double error = logits ? engine_max_error(logits, g.truth, g.n_truth) : 1.0;
            if (!(error <= 2e-5)) test_fail(__FILE__, __LINE__, "%s: error %g", names[i], error);
        }
    }
}

/* Names that look like those of layers, shapes and types that nothing checked: they are not the model's. */
TEST(tensors_that_the_model_does_not_use_are_copied_unchanged)
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
    hth_pack_result r;
    hth_gguf *file = NULL;
    const char *in = test_scratch("odd.gguf"), *out = test_scratch("odd-packed.gguf");
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    for (size_t i = 0; i < N_ROW; i++)
        tiny_add_tensor(&m, rows[i].name, rows[i].type, rows[i].n_dim, rows[i].dim[0], rows[i].dim[1]);
    tiny_add_tensor(&m, "blk.0.ffn_down_t.weight", 0, 2, 32, 16); /* gives way to what is written */
    CLEANUP(gguf_free) gguf_bytes bytes = tiny_write(&m);
    FILE *f = fopen(in, "wb");
    if (!f || fwrite(bytes.data, 1, bytes.n, f) != bytes.n || fclose(f) != 0) abort();
    hearth_error why;
    CHECK_INT(pack(in, out, NULL, &r, &why), HEARTH_ERROR_UNSUPPORTED);
    for (int type = 0; type < 2; type++) {
        CHECK_OK(pack_with_unused(in, out, type ? "Q8_0" : NULL, &r, err));
        CHECK_OK(hth_gguf_open(out, &file, err));
        for (size_t i = 0; file && i < N_ROW; i++) {
            const hth_gguf_tensor *t = hth_gguf_find_tensor(file, rows[i].name);
            CHECK(t && t->type == rows[i].type && t->n_dim == rows[i].n_dim && t->dim[0] == rows[i].dim[0]);
        }
        if (file) hth_gguf_close(file);
        file = NULL;
    }
}

static bool refuse_progress(void *user, uint64_t done, uint64_t total) { return done == 0; }

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

/* ---- what does not belong to the model, or is not whole -------------------------------------------- */

typedef struct inputs {
    char model[1024], beside[1024], out[1024];
    uint64_t hash;
    hth_gguf *file;
    hth_model *m;
    gguf_bytes bytes;
} inputs;

static void open_inputs(inputs *in, bool packed)
{
    snprintf(in->model, sizeof in->model, "%s", test_scratch("in.gguf"));
    snprintf(in->beside, sizeof in->beside, "%s", test_scratch("beside.gguf"));
    snprintf(in->out, sizeof in->out, "%s", test_scratch("out.gguf"));
    tiny_model m = tiny_new();
    if (packed) tiny_pack(&m);
    else tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    in->bytes = tiny_write(&m);
    if (packed) gguf_patch(&in->bytes, tiny_data_at(&m, "blk.1.ffn_order") + 4 * 7, 64, 4);
    tiny_free(&m);
    CHECK(test_write_file(in->model, in->bytes.data, in->bytes.n));
    CHECK_OK(hth_gguf_open_memory(in->bytes.data, in->bytes.n, "in.gguf", &in->file, err));
    CHECK_OK(hth_model_open(in->file, &(hth_model_overrides){0}, &in->m, err));
    CHECK_OK(hth_model_hash(in->file, &in->hash, err));
}

static void close_inputs(inputs *in)
{
    hth_model_close(in->m);
    hth_gguf_close(in->file);
    gguf_free(&in->bytes);
    remove(in->model);
    remove(in->beside);
}

/* Refused with a line that begins with the path of what is wrong, and nothing is written. */
static void expect_refused(const inputs *in, const hth_pack_options *o, const char *path,
                           hearth_status status, const char *words, int line)
{
    hth_pack_result r;
    hearth_error why = {0};
    char part[1100];
    snprintf(part, sizeof part, "%s.hearth-part", in->out);
    hearth_status st = hth_pack(in->model, in->out, o, &r, &why);
    if (st != status || strstr(why.message, path) != why.message || !strstr(why.message, words) ||
        remove(in->out) == 0 || remove(part) == 0)
        test_fail(__FILE__, line, "status '%s', '%s'; expected '%s'", hearth_status_name(st), why.message, words);
}

/* A profile of the model in which every neuron fired once in 8 tokens, with one change. */
#define EXPECT_PROFILE(CHANGE, STATUS, WORDS)                                                                \
    do {                                                                                                     \
        const char *words_ = WORDS;                                                                          \
        hth_profile *p = NULL;                                                                               \
        CHECK_OK(hth_profile_new(in.m, 0, true, &p, err));                                                   \
        p->model_hash = in.hash, p->n_tok = p->n_done = p->n_ctx = 8;                                        \
        snprintf(p->activation, sizeof p->activation, "relu");                                               \
        for (uint32_t i = 0; i < p->n_layer; i++) {                                                          \
            hth_profile_layer *l = &p->layers[i];                                                            \
            l->largest = 1.0f, l->bins[0] = 7 * TINY_D_FF, l->bins[9] = TINY_D_FF;                         \
            for (int j = 0; j < TINY_D_FF; j++) l->n_fired[j] = 1, l->mean[j] = 0.1f, l->sum[j] = 0.8;       \
        }                                                                                                    \
        CHANGE;                                                                                              \
        CHECK_OK(hth_profile_write(p, in.beside, err));                                                      \
        if (words_) expect_refused(&in, &o, in.beside, STATUS, words_, __LINE__);                            \
        else CHECK_OK(hth_pack(in.model, in.out, &o, &r, err));                                              \
        remove(in.out);                                                                                      \
        hth_profile_close(p);                                                                                \
    } while (0)

TEST(profiles_that_do_not_fit_are_not_packed)
{
    CLEANUP(close_inputs) inputs in;
    hth_pack_result r;
    open_inputs(&in, false);
    hth_pack_options o = {.profile = in.beside, .n_thread = 1};
    EXPECT_PROFILE((void)0, HEARTH_OK, NULL);
    EXPECT_PROFILE(p->model_hash++, HEARTH_ERROR_ARGUMENT, "the profile of another model: hearth.model.hash at ");
    EXPECT_PROFILE((p->n_tok = 16, p->layers[0].sum[0] = 0.8), HEARTH_ERROR_ARGUMENT, "not finished: 8 of 16");
    EXPECT_PROFILE(p->layers[1].n_fired[5] = 9, HEARTH_ERROR_FORMAT, "'blk.1.fired' at ");
    EXPECT_PROFILE(p->layers[1].n_fired[5] = 9, HEARTH_ERROR_FORMAT,
                   "neuron 5: it fired more often than there are tokens");
    EXPECT_PROFILE(p->layers[1].n_fired[5] = 2, HEARTH_ERROR_FORMAT, "hearth.profile.size_counts at ");
    EXPECT_PROFILE(p->layers[0].mean[5] = __builtin_nanf(""), HEARTH_ERROR_FORMAT, "'blk.0.size' at ");
    EXPECT_PROFILE(p->layers[0].largest = __builtin_nanf(""), HEARTH_ERROR_FORMAT, "largest_hidden at ");
    EXPECT_PROFILE(snprintf(p->activation, sizeof p->activation, "silu"), HEARTH_ERROR_ARGUMENT,
                   "hearth.profile.activation at ");
}

TEST(sidecars_that_do_not_fit_are_not_packed)
{
    CLEANUP(close_inputs) inputs in;
    open_inputs(&in, false);
    hth_pack_options predictors = {.predictors = in.beside, .n_thread = 1},
                     thresholds = {.thresholds = in.beside, .n_thread = 1}, profile = {.profile = in.beside};
    const char *kinds[] = {"predictors", "thresholds"};
    for (int i = 0; i < 2; i++) {
        hth_gguf_writer *w = OPENED(hth_gguf_writer, in.beside);
        hth_sidecar_write_head(w, kinds[i], in.hash ^ 1);
        CHECK_OK(hth_gguf_writer_begin(w, err));
        CHECK_OK(hth_gguf_writer_finish(w, err));
        hth_gguf_writer_close(w);
        expect_refused(&in, i ? &thresholds : &predictors, in.beside, HEARTH_ERROR_ARGUMENT,
                       "of another model", __LINE__);
        expect_refused(&in, i ? &predictors : &thresholds, in.beside, HEARTH_ERROR_UNSUPPORTED,
                       "general.architecture at ", __LINE__);
        expect_refused(&in, &profile, in.beside, HEARTH_ERROR_UNSUPPORTED, "not 'hearth.profile'", __LINE__);
    }
    CHECK(test_write_file(in.beside, in.bytes.data, in.bytes.n / 2));
    expect_refused(&in, &predictors, in.beside, HEARTH_ERROR_FORMAT, "past the end", __LINE__);
}

TEST(a_packed_file_whose_order_is_none_is_not_packed_again)
{
    CLEANUP(close_inputs) inputs in;
    open_inputs(&in, true);
    hth_pack_options o = {.n_thread = 1};
    expect_refused(&in, &o, in.model, HEARTH_ERROR_FORMAT, "'blk.1.ffn_order' at ", __LINE__);
    expect_refused(&in, &o, in.model, HEARTH_ERROR_FORMAT, "entry 7 is 64; expected each of 64 neurons", __LINE__);
}
