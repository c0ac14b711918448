/* What studies single neurons refuses mixtures of experts, before it writes anything or a weight is read. */
#include "convert/pack.h"
#include "convert/predictors.h"
#include "engine/engine.h"
#include "measure/act_trace.h"
#include "measure/profile.h"
#include "measure/thresholds.h"
#include "study/study.h"

#include "support/models/tiny_model.h"
#include "support/test.h"

static const char text[] = "abc abc abc abc abc abc abc abc abc abc abc abc";

TEST(functions_of_single_neurons_refuse_mixtures)
{
    const char *path = test_scratch("mixture.gguf"), *out = test_scratch("out");
    tiny_model m = tiny_new();
    tiny_become(&m, "qwen3moe");
    tiny_save(&m, path);
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, NULL);
    if (!model) return;
    CLOSED(hearth_session) *session = OPENED(hearth_session, model, NULL);
    CLOSED(hth_profile) *profile = NULL;
    CLOSED(hth_act_trace) *trace = NULL;
    hth_profile_options po = {.out = out};
    hth_threshold_options to = {.sparsity = 0.5, .n_sample = 8};
    hth_study_options so = hth_study_defaults();
    hth_pack_options pack = {0};
    hth_pack_result packed;
    hth_thresholds thresholds;
    hth_study study;
    hth_act_trace_spec spec = {.share = 0.5, .block = 1};
    size_t n = sizeof text - 1;
    so.beside = out;
    CHECK_FAILS(hth_measure_profile(model, session, text, n, &po, &profile, err), HEARTH_ERROR_UNSUPPORTED,
                "mixture.gguf: |mixtures of 4 experts|hearth profile");
    CHECK_FAILS(hth_thresholds_find(model, session, text, n, &to, &thresholds, err), HEARTH_ERROR_UNSUPPORTED,
                "mixtures of 4 experts|hearth thresholds");
    CHECK_FAILS(hth_study_run(model, session, text, n, &so, &study, err), HEARTH_ERROR_UNSUPPORTED,
                "mixtures of 4 experts|hearth study");
    CHECK_FAILS(hth_act_trace_open(model->model, &spec, 4, &trace, err), HEARTH_ERROR_UNSUPPORTED,
                "mixtures of 4 experts|forced activity");
    CHECK_FAILS(hth_pack(path, out, &pack, &packed, err), HEARTH_ERROR_UNSUPPORTED,
                "mixtures of 4 experts|hearth pack");
    size_t n_byte;
    FREED char *bytes = test_read_file(out, &n_byte);
    CHECK(bytes == NULL);
}

/* The first read behind those of the directory, which is one of weights. */
static uint64_t first_read_of_weights(const char *path)
{
    for (uint64_t n = 1;; n++) {
        hth_gguf *file = NULL;
        hearth_error ignored;
        hth_gguf_fail_read_at(n, HTH_READ_FAILS);
        bool opened = hth_gguf_open(path, &file, &ignored) == HEARTH_OK;
        hth_gguf_fail_read_at(0, HTH_READ_FAILS);
        if (opened) hth_gguf_close(file);
        if (opened) return n;
    }
}

TEST(predictors_of_mixtures_are_refused_before_weights_are_read)
{
    const char *path = test_scratch("mixture.gguf"), *out = test_scratch("predictors");
    hth_predictor_options o = hth_predictor_defaults();
    hth_predictor_result *layers = NULL;
    uint32_t n_layer = 0;
    static const char *const activations[] = {"swiglu", "reglu"};
    for (int i = 0; i < 2; i++) {
        tiny_model m = tiny_new();
        tiny_become(&m, "qwen3moe");
        tiny_set_text(&m, "hearth.ffn.activation", activations[i]);
        tiny_save(&m, path);
        CHECK_FAILS(hth_predictors_make(path, text, sizeof text - 1, out, 8, &o, &layers, &n_layer, err),
                    HEARTH_ERROR_UNSUPPORTED, "mixtures of 4 experts|hearth predictors");
        CHECK(layers == NULL && n_layer == 0);
        hearth_model *model = NULL;
        uint64_t first = first_read_of_weights(path);
        hth_gguf_fail_read_at(first, HTH_READ_FAILS);
        CHECK_FAILS(hth_engine_open_dense(path, NULL, "a test", &model, err), HEARTH_ERROR_UNSUPPORTED,
                    "mixtures of 4 experts|a test");
        hth_gguf_fail_read_at(first, HTH_READ_FAILS);
        CHECK_FAILS(hearth_model_open(path, NULL, &model, err), HEARTH_ERROR_IO, "mixture.gguf");
        hth_gguf_fail_read_at(0, HTH_READ_FAILS);
        CHECK(model == NULL);
    }
}

TEST(dense_models_are_opened_for_the_study_of_neurons)
{
    const char *path = test_scratch("dense.gguf");
    tiny_model m = tiny_new();
    tiny_save(&m, path);
    CLOSED(hearth_model) *model = OPENED_BY(hth_engine_open_dense, hearth_model, path, NULL, "a test");
    CHECK(model != NULL);
}
