/* Models whose layers have states, whole on a device: texts that are cut into steps of any size, copied, and shortened to
 * earlier tokens have the logits of the CPU, nearly, as their weights are floats. No operation in between is the
 * host's. */
#include "base/checked_math.h"
#include "engine/session_int.h"
#include "forward/gpu/gpu_int.h"
#include "support/device/shaders.h"
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

static const char *const devices[] = {"null", "vulkan:0"};
static const char *const models[] = {"qwen35", "qwen3next", "lfm2", "falcon-h1"};
enum { N_DEVICE = 2, N_MODEL = 4, N_BATCH = 16 };
static const double NEAR = 1e-4; /* of the largest logit */

typedef struct fixture {
    golden g;
    const char *name, *device;
    hearth_model *model;
    float *logits; /* [n][n_vocab] the CPU's */
    uint32_t n_vocab;
} fixture;

static void close_fixture(fixture *f)
{
    free(f->logits);
    hearth_model_close(f->model);
    golden_close(&f->g);
}

static hearth_model *open_on(const char *path, const char *device)
{
    hearth_model *model = NULL;
    hearth_error why = {0};
    hearth_model_options o = {
        .n_thread = 2, .gpu = {.device = device, .placement = "all", .n_ctx = 4096, .n_batch = N_BATCH, .kv = HEARTH_KV_F32}};
    hearth_status st = hearth_model_open(path, &o, &model, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED && strncmp(device, "vulkan", 6) == 0) test_skip("%s", why.message);
    else if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s on %s: %s", path, device, why.message);
    return model;
}

static bool open_fixture(fixture *f, const char *name, const char *device)
{
    *f = (fixture){.name = name, .device = device};
    if (golden_open_arch(&f->g, name)) f->model = open_on(f->g.model, device);
    if (!f->model) return false;
    f->logits = golden_logits(&f->g, HEARTH_KV_F32);
    f->n_vocab = test_model_info(f->model).n_vocab;
    return f->logits != NULL;
}

static hearth_session *open_session(const fixture *f)
{
    const hearth_session_options o = {.n_ctx = (uint32_t)f->g.n, .n_thread = 2, .kv = HEARTH_KV_F32};
    return OPENED(hearth_session, f->model, &o);
}

/* Feeds the tokens up to `end`, `step` at a time. */
static void feed(const fixture *f, hearth_session *s, size_t end, size_t step)
{
    for (size_t at = hearth_session_position(s), n; at < end; at += n) {
        n = end - at < step ? end - at : step;
        CHECK_OK(hearth_session_eval(s, f->g.ids + at, n, err));
    }
}

static void expect(const fixture *f, const hearth_session *s, const char *what)
{
    size_t at = hearth_session_position(s);
    const float *got = hearth_session_logits(s), *want = f->logits + (at - 1) * f->n_vocab;
    double error = got ? engine_max_error(got, want, f->n_vocab) : 1.0;
    if (!(error < NEAR))
        test_fail(__FILE__, __LINE__, "%s on %s: logits at position %zu %s differ by %g", f->g.model,
                  f->device, at, what, error);
    CHECK(!test_model_info(f->model).gpu_note[0]);
}

static void for_all(void (*fn)(const fixture *f))
{
    for (int d = 0; d < N_DEVICE; d++)
        for (int i = 0; i < N_MODEL; i++) {
            fixture f;
            if (shaders_are_few(devices[d]) && i > 0) break; /* a driver on the CPU compiles for seconds */
            if (open_fixture(&f, models[i], devices[d])) fn(&f);
            close_fixture(&f);
        }
}

static void lies_whole(const fixture *f)
{
    const hth_gpu_crossings *c = &f->model->gpu->crossings;
    if (strcmp(f->name, "qwen3next") == 0) return; /* the host routes */
    CHECK_INT(c->n_run, 2);
    for (uint32_t i = 0; i < c->n_run; i++) CHECK_INT(c->runs[i].first, c->runs[i].end);
    CHECK(!test_model_info(f->model).gpu_bit_exact);
}
TEST(no_operation_between_the_embedding_and_the_logits_is_the_hosts) { for_all(lies_whole); }

static void cut_anywhere(const fixture *f)
{
    static const size_t steps[] = {1, 3, 40, 63, 100};
    size_t end = strcmp(f->device, "null") == 0 || test_is_long() ? f->g.n : 70;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        CLOSED(hearth_session) *s = open_session(f);
        if (!s) return;
        for (size_t at = 1; at <= end; at += 23) {
            feed(f, s, at, steps[i]);
            expect(f, s, "of steps");
        }
    }
}
TEST(steps_of_any_size_give_the_logits_of_the_cpu) { for_all(cut_anywhere); }

/* Copies go on each with its own states, also where the step of one ends a chunk. */
static void copy_anywhere(const fixture *f)
{
    static const size_t cuts[] = {5, 63, 64, 65};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        hearth_session *copy = NULL;
        CLOSED(hearth_session) *s = open_session(f);
        if (!s) return;
        feed(f, s, cuts[i], 40);
        CHECK_OK(hearth_session_fork(s, &copy, err));
        feed(f, copy, cuts[i] + 3, 1);
        expect(f, copy, "of a copy");
        feed(f, s, cuts[i] + 1, 1);
        expect(f, s, "of what was copied");
        feed(f, copy, 90, 30);
        expect(f, copy, "of a copy that went on");
        feed(f, s, 95, 30);
        expect(f, s, "of what was copied and went on");
        hearth_session_close(copy);
    }
}
TEST(copies_have_states_of_their_own) { for_all(copy_anywhere); }

static void go_back(const fixture *f)
{
    CLOSED(hearth_session) *s = open_session(f);
    if (!s) return;
    feed(f, s, 70, 70);
    CHECK_OK(hearth_session_truncate(s, 30, err));
    feed(f, s, 71, 100);
    expect(f, s, "after a return to 30");
    hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_EXPLICIT);
    feed(f, s, 80, 1);
    CHECK_INT(hth_sequence_reachable(&s->seq, 71), 71);
    CHECK_OK(hearth_session_truncate(s, 71, err));
    feed(f, s, 72, 1);
    expect(f, s, "after a return to a checkpoint");
    CHECK_OK(hearth_session_truncate(s, 0, err));
    feed(f, s, 2, 1);
    expect(f, s, "after a return to the beginning");
}
TEST(a_session_returns_to_earlier_tokens) { for_all(go_back); }

/* States of a device that is lost are computed again. */
TEST(a_session_goes_on_when_its_device_is_lost)
{
    static const char *const names[] = {"qwen35", "mamba2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fixture f;
        CLOSED(hearth_session) *s = open_fixture(&f, names[i], "null") ? open_session(&f) : NULL;
        if (s) {
            feed(&f, s, 40, 40);
            expect(&f, s, "before the loss");
            test_log_start();
            hth_device_inject_fault(f.model->devices[0].device, 3, HEARTH_ERROR_DEVICE);
            feed(&f, s, 45, 1);
            test_log_stop();
            CHECK(test_model_info(f.model).gpu_note[0]);
            CHECK_BYTES(hearth_session_logits(s), f.logits + 44 * f.n_vocab, f.n_vocab * sizeof(float));
        }
        hearth_session_close(s), s = NULL;
        close_fixture(&f);
    }
}

/* Pages of blocks are the host's, so that no copies of them wait for the device. */
TEST(copies_of_a_session_with_blocks_leave_no_copies_behind)
{
    fixture f;
    if (open_fixture(&f, "deepseek4", "null")) {
        CLOSED(hearth_session) *s = open_session(&f);
        if (s) feed(&f, s, 40, 40);
        for (int i = 0; s && i < 300; i++) {
            hearth_session *copy = NULL;
            CHECK_OK(hearth_session_fork(s, &copy, err));
            feed(&f, copy, 41, 1);
            hearth_session_close(copy);
        }
        if (s) feed(&f, s, 41, 1), expect(&f, s, "after copies");
    }
    close_fixture(&f);
}

/* Sessions in one step have a run of tokens each. */
static void step_together(const fixture *f)
{
    hearth_batch *b = NULL;
    CLOSED(hearth_session) *s = open_session(f), *t = open_session(f);
    if (!s || !t) return;
    feed(f, s, 60, 60);
    feed(f, t, 20, 20);
    uint32_t n = hth_min_u32(64, hth_gpu_max_tokens(f->model->gpu)); /* of qwen3next those of one pass */
    CHECK_OK(hearth_batch_open(f->model, n, 2, &b, err));
    CHECK_OK(hearth_batch_add(b, s, f->g.ids + 60, 7, err));
    CHECK_OK(hearth_batch_add(b, t, f->g.ids + 20, n > 32 ? 25 : 9, err));
    CHECK_OK(hearth_batch_run(b, err));
    expect(f, s, "of the first of a batch");
    expect(f, t, "of the second of a batch");
    hearth_batch_close(b);
}
TEST(sessions_of_a_batch_keep_their_states_apart) { for_all(step_together); }

/* Opens as many sessions as there can be, of a model for n_session of them (0: of any number). */
static void fill_device(const char *path, uint32_t n_session, size_t n_expected, uint64_t *bytes)
{
    hearth_session *all[9] = {NULL};
    const hearth_session_options o = {.n_ctx = 32, .n_thread = 1, .kv = HEARTH_KV_F32};
    const hearth_model_options of_model = {
        .n_thread = 1, .gpu = {.device = "null", .n_ctx = 2048, .n_session = n_session, .kv = HEARTH_KV_F32}};
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &of_model);
    hearth_error why = {0};
    size_t n = 0;
    while (model && n < 9 && hearth_session_open(model, &o, &all[n], &why) == HEARTH_OK) n++;
    CHECK_INT(n, n_expected);
    CHECK(strstr(why.message, "no room for the states of one more session") != NULL);
    hearth_session_close(all[0]);
    CHECK_OK(hearth_session_open(model, &o, &all[0], err));
    for (size_t i = 0; i < n; i++) hearth_session_close(all[i]);
    *bytes = model ? test_model_info(model).gpu_bytes : 0;
}

TEST(more_sessions_than_the_device_has_states_for_are_refused)
{
    CLEANUP(golden_close) golden g;
    uint64_t few, many;
    if (!golden_open_arch(&g, "qwen35")) return;
    fill_device(g.model, 0, 2, &few);
    fill_device(g.model, 7, 7, &many);
    CHECK(many > few);
}
