/* Every allocation, read and write that can fail does so, of what the commands predictors, thresholds, pack and study
 * ask of the library, and of a model that is opened, run and compared with files beside it. Their own temporary
 * file: tests/convert/test_spill.c; the other commands: test_faults.c, test_fault_commands.c. */
#include "convert/pack.h"
#include "convert/predictors.h"
#include "measure/compare.h"
#include "measure/profile.h"
#include "measure/thresholds.h"
#include "study/study.h"
#include "support/faults.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

/* Some tokens of the tiny vocabulary. */
static const char text[] = "abc a b ca ab bc abc abc a b c abc ca b abc bc a abc ab c";
enum { N_TEXT = sizeof text - 1 };

/* The model of these tasks has zeros: what the tasks are given makes no other difference. */
static const hearth_model_options dense = {.n_thread = 1, .activation = "reglu", .selector = HEARTH_SELECTOR_DENSE};

/* ---- files beside the model, made once ------------------------------------------------------------- */

typedef struct beside {
    char model[1024], packed[1024], profile[1024], predictors[1024], thresholds[1024];
} beside;

static beside files;

/* The same model with the activation in the file: predictors and pack are given paths alone. */
static void make_model(const char *path)
{
    tiny_model m = tiny_new();
    tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    tiny_save(&m, path);
}

static hearth_status make_predictors(const char *model, const char *out, uint64_t memory, hearth_error *err)
{
    hth_predictor_options o = hth_predictor_defaults();
    hth_predictor_result *layers = NULL;
    uint32_t n_layer = 0;
    o.n_token = 40, o.n_step = 2, o.n_thread = 1, o.memory = memory;
    hearth_status st = hth_predictors_make(model, text, N_TEXT, out, 8, &o, &layers, &n_layer, err);
    hearth_free(layers);
    return st;
}

static hearth_status make_thresholds(const char *path, const char *out, hearth_error *err)
{
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hearth_session_options so = {.n_ctx = 8, .n_batch = 8, .n_thread = 1, .selector = HEARTH_SELECTOR_DENSE};
    hth_threshold_options o = {.sparsity = 0.6, .n_sample = 12};
    CLEANUP(hth_thresholds_close) hth_thresholds t = {0};
    hearth_status st = hearth_model_open(path, &dense, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = hth_thresholds_find(model, session, text, N_TEXT, &o, &t, err);
    if (st == HEARTH_OK) st = hth_thresholds_write(&t, model, out, err);
    return st;
}

static hearth_status make_profile(const char *path, const char *out, hearth_error *err)
{
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    CLOSED(hth_profile) *profile = NULL;
    hearth_session_options so = {.n_ctx = 8, .n_batch = 8, .n_thread = 1, .selector = HEARTH_SELECTOR_DENSE};
    hth_profile_options o = {.out = out, .n_sample = 20, .settings = "kv f16", .save_ns = UINT64_MAX};
    hearth_status st = hearth_model_open(path, &dense, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = hth_measure_profile(model, session, text, N_TEXT, &o, &profile, err);
    return st;
}

static void keep_path(char path[1024], const char *name) { snprintf(path, 1024, "%s", test_scratch(name)); }

static void make_files(void)
{
    keep_path(files.model, "sparse.gguf");
    keep_path(files.packed, "packed.gguf");
    keep_path(files.profile, "profile.gguf");
    keep_path(files.predictors, "predictors.gguf");
    keep_path(files.thresholds, "thresholds.gguf");
    make_model(files.model);
    CHECK_OK(make_profile(files.model, files.profile, err));
    CHECK_OK(make_predictors(files.model, files.predictors, UINT64_MAX, err));
    CHECK_OK(make_thresholds(files.model, files.thresholds, err));
}

/* ---- the tasks --------------------------------------------------------------------------------------- */

/* What is trained on lies in a file: memory that is refused would be given up for one. */
static hearth_status predictors(const fault_paths *p, hearth_error *err)
{
    return make_predictors(files.model, p->out, 0, err);
}

static hearth_status thresholds(const fault_paths *p, hearth_error *err)
{
    return make_thresholds(files.model, p->out, err);
}

static hearth_status pack(const fault_paths *p, hearth_error *err)
{
    hth_pack_result r;
    hth_pack_options o = {.ftype = hth_ftype_find("q8_0"), .profile = files.profile, .predictors = files.predictors,
                          .thresholds = files.thresholds, .n_thread = 2};
    return hth_pack(files.model, p->out, &o, &r, err);
}

/* A packed file is packed again: its order is read, and another one written. */
static hearth_status pack_again(const fault_paths *p, hearth_error *err)
{
    hth_pack_result r;
    hth_pack_options o = {.n_thread = 1};
    return hth_pack(files.packed, p->out, &o, &r, err);
}

static hearth_status run_model(const char *path, const hearth_model_options *o, hearth_error *err)
{
    static const int32_t ids[] = {1, 60, 70, 80};
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hearth_session_options so = {.n_ctx = 8, .n_batch = 4, .n_thread = 1};
    hearth_status st = hearth_model_open(path, o, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    for (size_t i = 0; st == HEARTH_OK && i < 4; i++) st = hearth_session_eval(session, ids + i, 1, err);
    return st;
}

static hearth_status with_sidecars(const fault_paths *p, hearth_error *err)
{
    hearth_model_options o = {.n_thread = 1, .predictors = files.predictors, .thresholds = files.thresholds};
    return run_model(files.model, &o, err);
}

static hearth_status with_sidecars_mapped(const fault_paths *p, hearth_error *err)
{
    hearth_model_options o = {
        .n_thread = 1, .mmap = true, .predictors = files.predictors, .thresholds = files.thresholds};
    return run_model(files.model, &o, err);
}

static hearth_status packed(const fault_paths *p, hearth_error *err)
{
    return run_model(files.packed, &(hearth_model_options){.n_thread = 1}, err);
}

/* Predictors beside the model against all neurons, chunks of a text. */
static hearth_status compare(const fault_paths *p, hearth_error *err)
{
    CLOSED(hearth_model) *model = NULL;
    hth_compare_side reference = {0}, mode = {0};
    hth_compare *c = NULL;
    hth_comparison result;
    hearth_model_options o = {.n_thread = 1, .predictors = files.predictors};
    hearth_session_options so = {.n_ctx = 16, .n_batch = 8, .n_thread = 2};
    hearth_status st = hearth_model_open(files.model, &o, &model, err);
    reference.model = mode.model = model;
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &mode.session, err);
    so.selector = HEARTH_SELECTOR_DENSE;
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &reference.session, err);
    if (st == HEARTH_OK) st = hth_compare_open(&reference, &mode, &c, err);
    if (st == HEARTH_OK) st = hth_measure_compare(c, text, N_TEXT, 2, NULL, NULL, &result, err);
    hth_compare_close(c);
    hearth_session_close(reference.session);
    hearth_session_close(mode.session);
    return st;
}

/* ---- every n ------------------------------------------------------------------------------------------- */

TEST(predictors_survive_everything_that_fails)
{
    make_files();
    fault_survive("predictors", predictors, 60, 20, 3);
}

TEST(thresholds_survive_everything_that_fails)
{
    make_files();
    fault_survive("thresholds", thresholds, 60, 20, 3);
}

TEST(pack_survives_everything_that_fails)
{
    make_files();
    fault_paths p = {NULL, files.packed};
    fault_survive("pack", pack, 100, 60, 3);
    CHECK_OK(pack(&p, err));
    fault_survive("pack, of a packed file", pack_again, 60, 30, 0);
}

TEST(a_model_with_sidecars_survives_everything_that_fails)
{
    make_files();
    fault_survive("with sidecars", with_sidecars, 60, 40, 0);
    fault_survive("with sidecars, mapped", with_sidecars_mapped, 60, 20, 0);
}

TEST(a_packed_model_survives_everything_that_fails)
{
    make_files();
    fault_paths p = {NULL, files.packed};
    CHECK_OK(pack(&p, err));
    fault_survive("packed", packed, 50, 20, 0);
}

/* With as many tokens as leave some to judge predictors by; what it keeps of them goes to files. */
static hearth_status study(const fault_paths *p, hearth_error *err)
{
    char long_text[3000];
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hearth_session_options so = {.n_ctx = 8, .n_batch = 8, .n_thread = 2, .selector = HEARTH_SELECTOR_DENSE};
    hth_study_options o = hth_study_defaults();
    CLEANUP(hth_study_close) hth_study s = {0};
    for (size_t i = 0; i < sizeof long_text; i++) long_text[i] = text[i % N_TEXT];
    o.n_chunk = 66, o.n_sample = 10, o.n_scored = 1, o.n_step = 2, o.n_trained = 1, o.memory = 0;
    o.beside = p->out;
    hearth_status st = hearth_model_open(p->in, &dense, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = hth_study_run(model, session, long_text, sizeof long_text, &o, &s, err);
    CHECK(st != HEARTH_OK || s.layers[0].n_predictor > 0);
    return st;
}

TEST(a_study_survives_everything_that_fails) { fault_survive("study", study, 80, 20, 0); }

TEST(compare_with_predictors_survives_everything_that_fails)
{
    make_files();
    fault_survive("compare, predictors", compare, 60, 30, 0);
}
