/* What hearth_model_get_info says of weights: those that are in use, in the file or beside it, and those that
 * a token reads with the selector that runs. */
#define _POSIX_C_SOURCE 200809L /* setenv */

#include "engine/engine.h"

#include "support/test.h"
#include "support/models/tiny_model.h"

enum { RANK = 8, OTHER_RANK = 24, N_FLOAT = 4 };

/* Bytes of predictors of that rank, all floats; a bias where the model's own have one. */
static uint64_t predictor_bytes(uint64_t rank, bool biased)
{
    return TINY_LAYERS * N_FLOAT * (rank * TINY_D_MODEL + TINY_D_FF * rank + (biased ? TINY_D_FF : 0));
}

static void layer_name(char name[40], int i, const char *rest) { snprintf(name, 40, "blk.%d.%s", i, rest); }

static void add_own(tiny_model *m)
{
    char name[40];
    for (int i = 0; i < TINY_LAYERS; i++) {
        layer_name(name, i, "fc1.weight");
        tiny_add_tensor(m, name, HTH_TYPE_F32, 2, TINY_D_MODEL, RANK);
        layer_name(name, i, "fc2.weight");
        tiny_add_tensor(m, name, HTH_TYPE_F32, 2, RANK, TINY_D_FF);
        layer_name(name, i, "fc2.bias");
        tiny_add_tensor(m, name, HTH_TYPE_F32, 1, TINY_D_FF, 1);
    }
}

static void write_model(const char *path, bool with_predictors)
{
    tiny_model m = tiny_new();
    tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    if (with_predictors) add_own(&m);
    tiny_save(&m, path);
}

/* Predictors of another rank, without a bias, or thresholds, of that model; all weights are 0. */
static void write_beside(const char *path, const char *model, bool predictors)
{
    static const float zeros[OTHER_RANK * TINY_D_FF];
    const float thresholds[TINY_LAYERS] = {0};
    const uint64_t in[] = {TINY_D_MODEL, OTHER_RANK}, out[] = {OTHER_RANK, TINY_D_FF}, floors[] = {TINY_D_FF};
    uint64_t hash = 0;
    char name[40];
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, model);
    CLOSED(hth_gguf_writer) *w = OPENED(hth_gguf_writer, path);
    CHECK_OK(hth_model_hash(file, &hash, err));
    hth_sidecar_write_head(w, predictors ? "predictors" : "thresholds", hash);
    if (predictors) {
        hth_gguf_writer_array(w, "hearth.predictor.threshold", HTH_GGUF_F32, thresholds, TINY_LAYERS);
        hth_gguf_writer_text(w, "hearth.predictor.input", "normed", 6);
    }
    for (int i = 0; i < TINY_LAYERS; i++) {
        layer_name(name, i, predictors ? "fc1.weight" : "ffn_floor.weight");
        hth_gguf_writer_tensor(w, name, HTH_TYPE_F32, predictors ? 2 : 1, predictors ? in : floors);
        layer_name(name, i, "fc2.weight");
        if (predictors) hth_gguf_writer_tensor(w, name, HTH_TYPE_F32, 2, out);
    }
    CHECK_OK(hth_gguf_writer_begin(w, err));
    for (int i = 0; i < TINY_LAYERS; i++) {
        size_t n = predictors ? OTHER_RANK * TINY_D_MODEL : TINY_D_FF;
        CHECK_OK(hth_gguf_writer_data(w, zeros, n * sizeof *zeros, err));
        if (predictors) CHECK_OK(hth_gguf_writer_data(w, zeros, sizeof zeros, err));
    }
    CHECK_OK(hth_gguf_writer_finish(w, err));
}

static hearth_model_info info_of(const char *path, const char *predictors, const char *thresholds,
                                 hearth_selector selector)
{
    hearth_model_info info = {0};
    hearth_model_options o = {.predictors = predictors, .thresholds = thresholds, .selector = selector};
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    if (model) hearth_model_get_info(model, &info);
    return info;
}

TEST(sessions_refuse_a_hearth_pin_that_means_nothing)
{
    hearth_session *session = NULL;
    hearth_error why = {0};
    const char *path = test_scratch("pin.gguf");
    write_model(path, false);
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, NULL);
    setenv("HEARTH_PIN", "x", 1);
    if (model) CHECK_INT(hearth_session_open(model, NULL, &session, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(session == NULL && strstr(why.message, "HEARTH_PIN=x: no such value") != NULL);
    unsetenv("HEARTH_PIN");
}

TEST(the_predictor_that_runs_is_counted)
{
    const char *bare = test_scratch("bare.gguf"), *own = test_scratch("own.gguf");
    const char *of_bare = test_scratch("of_bare.gguf"), *of_own = test_scratch("of_own.gguf");
    write_model(bare, false);
    write_model(own, true);
    write_beside(of_bare, bare, true);
    write_beside(of_own, own, true);

    hearth_model_info none = info_of(bare, NULL, NULL, HEARTH_SELECTOR_DENSE);
    hearth_model_info inside = info_of(own, NULL, NULL, HEARTH_SELECTOR_PREDICTOR);
    uint64_t own_bytes = predictor_bytes(RANK, true), beside_bytes = predictor_bytes(OTHER_RANK, false);
    CHECK_INT(inside.weight_bytes, none.weight_bytes + own_bytes);
    CHECK_INT(inside.bytes_per_token, none.bytes_per_token + own_bytes);
    CHECK_INT(inside.n_parameter, none.n_parameter + own_bytes / N_FLOAT);
    CHECK_INT(info_of(own, NULL, NULL, HEARTH_SELECTOR_DENSE).bytes_per_token, none.bytes_per_token);
    CHECK_INT(info_of(own, NULL, NULL, HEARTH_SELECTOR_GATE).bytes_per_token, none.bytes_per_token);

    /* Beside a file without, and instead of its own. */
    hearth_model_info beside[] = {info_of(bare, of_bare, NULL, HEARTH_SELECTOR_AUTO),
                                  info_of(own, of_own, NULL, HEARTH_SELECTOR_AUTO)};
    for (int i = 0; i < 2; i++) {
        CHECK_INT(beside[i].selector, HEARTH_SELECTOR_PREDICTOR);
        CHECK_INT(beside[i].weight_bytes, none.weight_bytes + beside_bytes);
        CHECK_INT(beside[i].bytes_per_token, none.bytes_per_token + beside_bytes);
        CHECK_INT(beside[i].n_parameter, none.n_parameter + beside_bytes / N_FLOAT);
    }

    write_beside(of_bare, bare, false);
    hearth_model_info floors = info_of(bare, NULL, of_bare, HEARTH_SELECTOR_AUTO);
    CHECK_INT(floors.selector, HEARTH_SELECTOR_THRESHOLD);
    CHECK_INT(floors.weight_bytes, none.weight_bytes + TINY_LAYERS * TINY_D_FF * N_FLOAT);
    CHECK_INT(floors.bytes_per_token, none.bytes_per_token + TINY_LAYERS * TINY_D_FF * N_FLOAT);
}
