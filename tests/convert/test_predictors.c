/* Predictors and thresholds: made alike by any number of threads, better than chance, used by a model
 * beside them or packed with them alike. What is refused of them: tests/sparse/test_sidecar.c. */
#include "convert/pack.h"
#include "convert/predictors.h"
#include "measure/thresholds.h"
#include "support/engine.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

static const char *model_path(void) { return HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"; }

static char *story(size_t *n)
{
    const char *path = test_data("text/stories.txt");
    char *text = path ? test_read_file(path, n) : NULL;
    if (text && *n > 12000) *n = 12000;
    return text;
}

static hearth_status make(const char *text, size_t n, const char *out, uint32_t n_thread,
                          hth_predictor_result **layers, uint32_t *n_layer, hearth_error *err)
{
    hth_predictor_options o = hth_predictor_defaults();
    o.n_token = 2048, o.n_step = 150, o.recall = 0.9, o.n_thread = n_thread;
    o.memory = n_thread == 1 ? 0 : o.memory; /* in a file; in memory */
    return hth_predictors_make(model_path(), text, n, out, 128, &o, layers, n_layer, err);
}

static float *logits_with(const char *path, const char *predictors, const char *thresholds, uint32_t n_thread,
                          uint32_t n_batch)
{
    static const int32_t ids[] = {1, 45, 300, 17, 901, 233, 12, 77, 5, 640, 99, 1023};
    hearth_model_options o = {.predictors = predictors, .thresholds = thresholds};
    engine_setting s = {.n_thread = n_thread, .n_batch = n_batch, .kv = HEARTH_KV_F32};
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    float *logits = model ? engine_model_logits(model, &s, ids, 12) : NULL;
    return logits;
}

/* The same bits for any threads and batch, beside the model and (where down keeps its form) no other. */
static void check_use(const char *predictors, const char *thresholds)
{
    static const uint32_t settings[][2] = {{1, 1}, {2, 3}, {3, 64}, {7, 5}};
    FREED float *first = logits_with(model_path(), predictors, thresholds, 1, 64);
    FREED float *dense = logits_with(model_path(), NULL, NULL, 1, 64);
    size_t size = 12 * 4096 * sizeof *first; /* the vocabulary of that model */
    if (CHECK(first && dense)) CHECK(memcmp(first, dense, size / 8) != 0);
    for (size_t i = 0; first && i < sizeof settings / sizeof *settings; i++) {
        FREED float *again = logits_with(model_path(), predictors, thresholds, settings[i][0], settings[i][1]);
        if (again) CHECK_BYTES(again, first, size / 8);
    }
}

TEST(predictors_do_not_depend_on_threads_and_serve_alike)
{
    char path[2][512];
    size_t n, n_bytes[2];
    FREED char *text = story(&n);
    char *bytes[2] = {NULL, NULL};
    uint32_t n_layer = 0;
    if (!text) return;
    for (int i = 0; i < 2; i++) {
        hth_predictor_result *layers = NULL;
        char name[32];
        snprintf(name, sizeof name, "predictors-%d.gguf", i);
        snprintf(path[i], sizeof path[i], "%s", test_scratch(name));
        CHECK_OK(make(text, n, path[i], i ? 3 : 1, &layers, &n_layer, err));
        for (uint32_t l = 0; layers && l < n_layer; l++) {
            CHECK(layers[l].recall >= 0.9 && layers[l].precision > 1.1 * layers[l].live);
            CHECK(layers[l].rank % 32 == 0 && layers[l].rank > 0 && layers[l].marked < 1.0);
        }
        hearth_free(layers);
        bytes[i] = test_read_file(path[i], &n_bytes[i]);
    }
    if (CHECK(bytes[0] && bytes[1]) && CHECK_INT(n_bytes[0], n_bytes[1])) CHECK_BYTES(bytes[0], bytes[1], n_bytes[0]);
    check_use(path[0], NULL);
    for (int i = 0; i < 2; i++) {
        free(bytes[i]);
        remove(path[i]);
    }
}

TEST(thresholds_leave_out_the_share_that_is_asked_for)
{
    size_t n;
    FREED char *text = story(&n);
    hearth_model_options mo = {.selector = HEARTH_SELECTOR_DENSE};
    hearth_session_options so = {.n_ctx = 128, .n_batch = 64, .n_thread = 2, .kv = HEARTH_KV_F16};
    hth_threshold_options o = {.sparsity = 0.95, .n_sample = 64};
    hth_thresholds t = {0};
    const char *path = test_scratch("thresholds.gguf");
    if (!text) return;
    hearth_model *model = OPENED(hearth_model, model_path(), &mo);
    hearth_session *session = OPENED(hearth_session, model, &so);
    CHECK_OK(hth_thresholds_find(model, session, text, n, &o, &t, err));
    double sparsity = 0.0;
    for (uint32_t i = 0; i < t.n_layer; i++) {
        sparsity += t.layers[i].sparsity / t.n_layer;
        CHECK(t.layers[i].cett >= 0.0 && t.layers[i].cett < 1.0);
    }
    CHECK(t.n_layer == 6 && sparsity > 0.93 && sparsity < 0.97);
    CHECK_OK(hth_thresholds_write(&t, model, path, err));
    hth_thresholds_close(&t);
    hearth_session_close(session);
    hearth_model_close(model);
    check_use(NULL, path);
}

/* Norms of weight 0: networks learn from the bias alone, and the file still opens. */
TEST(inputs_that_are_all_zero_give_a_file_that_opens)
{
    hth_predictor_result *layers = NULL;
    uint32_t n_layer = 0;
    hth_predictor_options o = hth_predictor_defaults();
    o.n_token = 64, o.n_step = 20, o.n_thread = 1;
    const char *in = test_scratch("zero.gguf"), *out = test_scratch("zero-predictors.gguf");
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    for (int i = 0; i < TINY_LAYERS; i++) {
        char name[40];
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", i);
        memset(b.data + tiny_data_at(&m, name), 0, TINY_D_MODEL * sizeof(float));
    }
    CHECK(test_write_file(in, b.data, b.n));
    CHECK_OK(hth_predictors_make(in, "abc ca b abc bc a abc ab c abc ", 31, out, 8, &o, &layers, &n_layer, err));
    hearth_model *model = OPENED(hearth_model, in, &(hearth_model_options){.predictors = out});
    for (uint32_t i = 0; layers && i < n_layer; i++) CHECK(layers[i].live <= 0.0 && layers[i].marked <= 0.0);
    hearth_model_close(model);
    hearth_free(layers);
}
