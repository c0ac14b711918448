/* Synthetic models: they run, their keys say what they are, and the same options give the same bytes. */
#include "convert/synth.h"
#include "model/model.h"
#include "support/test.h"

#include <math.h>
#include <unistd.h>

static hearth_status make(const char *path, const char *type, const char *activation, uint64_t seed,
                          uint32_t n_thread, hearth_error *err)
{
    uint64_t size;
    hth_synth_options o = {.shape = "stories-15m", .ftype = hth_ftype_find(type), .activation = activation,
                           .seed = seed, .n_thread = n_thread};
    return hth_synth(path, &o, &size, err);
}

static hearth_status take_logits(hearth_model *model, hearth_error *err)
{
    static const int32_t ids[] = {1, 500, 600, 31999, 7};
    CLOSED(hearth_session) *session = NULL;
    hearth_session_options o = {.n_ctx = 8, .n_batch = 8, .n_thread = 1, .kv = HEARTH_KV_F16};
    hearth_status st = hearth_session_open(model, &o, &session, err);
    if (st == HEARTH_OK) st = hearth_session_eval(session, ids, 5, err);
    return st;
}

TEST(every_type_makes_a_model_that_runs_and_is_labelled)
{
    static const char *const types[] = {"Q8_0", "Q6_K", "Q5_K_M", "Q5_1",   "Q5_0", "Q4_K_M", "IQ4_NL",
                                        "Q4_1", "Q4_0", "Q3_K_M", "IQ4_XS", "Q2_K", "MXFP4",  "BF16",
                                        "IQ3_S", "IQ2_XXS", "IQ1_M", "TQ1_0", "NVFP4"};
    const char *path = test_scratch("synthetic.gguf");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        CHECK_OK(make(path, types[i], NULL, i, 2, err));
        CLOSED(hearth_model) *model = OPENED(hearth_model, path, NULL);
        if (!model) continue;
        CHECK_OK(take_logits(model, err));
        hearth_model_info info = test_model_info(model);
        CHECK(info.synthetic && info.n_layer == 6 && info.d_model == 288 && info.n_vocab == 32000);
    }
}

TEST(bytes_depend_on_the_seed_and_not_on_the_threads)
{
    char path[3][512], *bytes[3];
    size_t n[3];
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "synthetic-%d.gguf", i);
        snprintf(path[i], sizeof path[i], "%s", test_scratch(name));
        CHECK_OK(make(path[i], "Q4_K_M", "drelu", i == 2 ? 6 : 5, i == 1 ? 3 : 1, err));
        bytes[i] = test_read_file(path[i], &n[i]);
    }
    if (CHECK(bytes[0] && bytes[1] && bytes[2] && n[0] == n[1] && n[0] == n[2])) {
        CHECK(memcmp(bytes[0], bytes[1], n[0]) == 0);
        CHECK(memcmp(bytes[0], bytes[2], n[0]) != 0);
    }
    for (int i = 0; i < 3; i++) remove(path[i]), free(bytes[i]);
}

TEST(the_activation_is_what_was_asked_for)
{
    const char *path = test_scratch("synthetic.gguf");
    hearth_model_info info = {0};
    CHECK_OK(make(path, "Q4_0", "relu2", 1, 1, err));
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, NULL);
    if (model) hearth_model_get_info(model, &info), CHECK(strcmp(info.activation, "relu2") == 0);
}

TEST(a_shape_that_is_not_known_is_refused_with_those_that_are)
{
    uint64_t size;
    hth_synth_options o = {.shape = "llama-2b", .ftype = hth_ftype_find("Q4_0")};
    CHECK_FAILS(hth_synth(test_scratch("synthetic.gguf"), &o, &size, err), HEARTH_ERROR_ARGUMENT,
                "'llama-2b'|stories-15m");
}

TEST(options_that_do_not_fit_a_shape_are_refused_before_anything_is_written)
{
    static const struct {
        hth_synth_options options;
        const char *words;
    } cases[] = {{{.shape = "mixtral-8x7b", .packed = true}, "mixtral-8x7b has experts|not packed"},
                 {{.shape = "smallthinker-4b", .rank = 32}, "smallthinker-4b has experts|no predictors"},
                 {{.shape = "stories-15m", .rank = 33}, "rank 33|multiple of 32"},
                 {{.shape = "stories-15m", .n_layer = 7}, "stories-15m has 6 layers, not 7"},
                 {{.shape = ""}, "''|qwen3-30b-a3b"}};
    const char *path = test_scratch("refused.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hth_synth_options o = cases[i].options;
        uint64_t size = 1;
        size_t n;
        o.ftype = hth_ftype_find("Q4_0");
        CHECK_FAILS(hth_synth(path, &o, &size, err), HEARTH_ERROR_ARGUMENT, cases[i].words);
        CHECK_INT(size, 0);
        FREED char *bytes = test_read_file(path, &n);
        CHECK(bytes == NULL);
    }
}

/* The first bytes of a file that is written, before the rest: a sparse file of the whole size has its directory. */
typedef struct beginning {
    const char *part, *copy;
} beginning;

static bool keep_beginning(void *user, uint64_t done, uint64_t total)
{
    const beginning *b = user;
    size_t n = 0;
    FREED char *bytes = test_read_file(b->part, &n);
    CHECK(bytes && n > 0 && test_write_file(b->copy, bytes, n) && truncate(b->copy, (off_t)(n + total)) == 0);
    return false;
}

/* The directory of a model, whose weights are zeros. NULL: a check failed. */
static hth_gguf *make_beginning(hth_synth_options o)
{
    char path[512], part[600], copy[512];
    uint64_t size;
    snprintf(path, sizeof path, "%s", test_scratch("mixture.gguf"));
    snprintf(copy, sizeof copy, "%s", test_scratch("beginning.gguf"));
    snprintf(part, sizeof part, "%s.hearth-part", path);
    beginning b = {part, copy};
    o.n_thread = 1, o.progress = keep_beginning, o.progress_user = &b;
    CHECK_FAILS(hth_synth(path, &o, &size, err), HEARTH_ERROR_CANCELLED, "interrupted");
    hth_gguf *file = OPENED(hth_gguf, copy);
    remove(copy);
    return file;
}

static bool is_near(uint64_t n, double known) { return fabs((double)n * 1e-9 / known - 1.0) < 0.02; }

TEST(shapes_have_the_parameters_of_published_models)
{
    static const struct {
        const char *name;
        uint32_t n_expert, n_used, n_dense; /* n_dense: layers without experts */
        double parameters, active; /* in thousands of millions, with embeddings */
    } shapes[] = {{"mixtral-8x7b", 8, 2, 0, 46.7, 12.9},     {"qwen3-30b-a3b", 128, 8, 0, 30.5, 3.35},
                  {"smallthinker-4b", 32, 4, 0, 4.04, 0.86},  {"smallthinker-21b", 64, 6, 0, 21.5, 3.72},
                  {"gpt-oss-20b", 32, 4, 0, 20.9, 4.19},      {"deepseek-v2-lite", 64, 6, 1, 15.7, 2.66},
                  {"qwen35-35b-a3b", 256, 8, 0, 34.7, 3.45},  {"qwen35-9b", 0, 0, 32, 9.0, 9.0},
                  {"gemma4-12b", 0, 0, 48, 11.9, 11.9},        {"gemma4-26b-a4b", 128, 8, 0, 25.2, 3.82}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        hth_synth_options o = {.shape = shapes[i].name, .ftype = hth_ftype_find("Q4_0")};
        CLOSED(hth_gguf) *file = make_beginning(o);
        CLOSED(hth_model) *model = file ? OPENED(hth_model, file, &(hth_model_overrides){0}) : NULL;
        if (!CHECK(model != NULL)) continue;
        hth_active_weights a = hth_model_count_active(model);
        CHECK_INT(model->hparams.experts.n_expert, shapes[i].n_expert);
        CHECK_INT(model->hparams.experts.n_used, shapes[i].n_used);
        CHECK_INT(a.n_layer + shapes[i].n_dense, model->hparams.n_layer);
        if (!CHECK(is_near(a.n_weight, shapes[i].parameters) && is_near(a.n_active, shapes[i].active)))
            test_fail(__FILE__, __LINE__, "%s: %.2f, %.2f", shapes[i].name, (double)a.n_weight * 1e-9,
                      (double)a.n_active * 1e-9);
    }
}

/* Layers of both models are of the same kind. */
static bool are_alike(const hth_layer *a, const hth_layer *b)
{
    const hth_attention *x = &a->attn, *y = &b->attn;
    bool have_same_heads = x->n_head == y->n_head && x->n_head_kv == y->n_head_kv &&
                           (x->n_head == 0 || x->d_head == y->d_head);
    return a->mixer == b->mixer && a->network == b->network && x->window == y->window && have_same_heads;
}

TEST(the_first_layers_of_a_shape_keep_their_kinds)
{
    static const struct {
        const char *name, *title;
        uint32_t n_layer;
    } cases[] = {{"gemma4-26b-a4b", "synthetic gemma4-26b-a4b, 7 of 30 layers, random weights, seed 9", 7},
                 {"gemma4-12b", "synthetic gemma4-12b, 5 of 48 layers, random weights, seed 9", 5},
                 {"qwen35-35b-a3b", "synthetic qwen35-35b-a3b, 6 of 40 layers, random weights, seed 9", 6},
                 {"qwen35-9b", "synthetic qwen35-9b, 1 of 32 layers, random weights, seed 9", 1},
                 {"deepseek-v2-lite", "synthetic deepseek-v2-lite, 2 of 27 layers, random weights, seed 9", 2},
                 {"gpt-oss-20b", "synthetic gpt-oss-20b, random weights, seed 9", 24}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hth_synth_options o = {.shape = cases[i].name, .ftype = hth_ftype_find("Q4_K_M"), .seed = 9};
        hth_str title = {0};
        CLOSED(hth_gguf) *all = make_beginning(o);
        o.n_layer = cases[i].n_layer;
        CLOSED(hth_gguf) *file = make_beginning(o);
        CLOSED(hth_model) *whole = all ? OPENED(hth_model, all, &(hth_model_overrides){0}) : NULL;
        CLOSED(hth_model) *model = file ? OPENED(hth_model, file, &(hth_model_overrides){0}) : NULL;
        if (!CHECK(whole && model)) continue;
        CHECK_OK(hth_gguf_get_text(file, "general.name", &title, NULL, err));
        CHECK(hth_str_eq(title, cases[i].title));
        CHECK_INT(model->hparams.n_layer, cases[i].n_layer);
        for (uint32_t k = 0; k < cases[i].n_layer; k++)
            if (!are_alike(&model->layers[k], &whole->layers[k]))
                test_fail(__FILE__, __LINE__, "%s: layer %u", cases[i].name, k);
    }
}

TEST(the_first_layers_of_a_shape_run)
{
    uint64_t size[2];
    const char *path = test_scratch("synthetic.gguf");
    hth_synth_options o = {.shape = "stories-15m", .ftype = hth_ftype_find("Q4_0"), .n_thread = 1};
    CHECK_OK(hth_synth(path, &o, &size[0], err));
    o.n_layer = 2;
    CHECK_OK(hth_synth(path, &o, &size[1], err));
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, NULL);
    if (!model) return;
    CHECK_OK(take_logits(model, err));
    hearth_model_info info = test_model_info(model);
    CHECK(info.synthetic && info.n_layer == 2 && info.d_model == 288 && size[1] < size[0]);
}

static bool stop(void *user, uint64_t done, uint64_t total) { return ++*(int *)user < 3; }

TEST(an_interrupted_synthesis_leaves_nothing)
{
    int n = 0;
    uint64_t size;
    hearth_error why = {0};
    const char *path = test_scratch("synthetic.gguf");
    hth_synth_options o = {
        .shape = "stories-15m", .ftype = hth_ftype_find("Q4_0"), .progress = stop, .progress_user = &n};
    remove(path);
    CHECK_INT(hth_synth(path, &o, &size, &why), HEARTH_ERROR_CANCELLED);
    FILE *f = fopen(path, "rb");
    CHECK(f == NULL);
    if (f) fclose(f);
}

TEST(blocks_that_predict_further_belong_to_some_architectures)
{
    uint64_t size;
    const hth_synth_options o = {.shape = "stories-15m", .ftype = hth_ftype_find("Q4_0"), .mtp = true};
    CHECK_FAILS(hth_synth(test_scratch("mtp.gguf"), &o, &size, err), HEARTH_ERROR_ARGUMENT,
                "no block of llama predicts");
}
