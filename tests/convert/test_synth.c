/* Synthetic models: they run, their keys say what they are, and the same options give the same bytes. */
#include "convert/synth.h"
#include "support/test.h"

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
    hearth_model_info info;
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
