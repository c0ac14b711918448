/* A device that is lost in the midst of a divided model, or refuses again and again: the host reads what lay
 * there, computes the caches again, and goes on with the bits of the CPU, whatever call it was, with one session or
 * several, read or mapped weights. Where memory is wanting then, there is an error, and the same step can be
 * done again. Rows of floats go on with other bits, and say so. */
#include "base/alloc.h"
#include "engine/engine.h"
#include "file/gguf.h"
#include "support/engine.h"
#include "support/device/hybrid.h"
#include "support/device/submissions.h"
#include "support/test.h"

#include <pthread.h>

enum { N_VOCAB = 288, N_PROMPT = 12, N_PREDICT = 20, N_CTX = 48, N_ROW = 5, MAX_LOGITS = 64, MAX_CALLS = 2000 };
static const int32_t prompt[N_PROMPT] = {1, 60, 70, 80, 90, 100, 61, 71, 81, 5, 17, 200};

/* ---- models ------------------------------------------------------------------------------------- */

typedef struct config {
    const char *name;
    uint32_t n_hot[2], n_layer;
    bool head, submitted, mapped, floats;
    hearth_selector selector;
    hth_placement_stream stream; /* of steps whose weights are streamed */
    bool host_kv;
} config;

static const config configs[] = {
    {"queued, all layers, head, streamed",
     {512, 256},
     2,
     true,
     false,
     false,
     false,
     HEARTH_SELECTOR_PREDICTOR,
     {2, 0},
     false},
    {"submitted, all layers, mapped, streamed and shared",
     {256, 1024},
     2,
     false,
     true,
     true,
     false,
     HEARTH_SELECTOR_GATE,
     {2, 24},
     false},
    {"queued, one layer, mapped",
     {768, 0},
     1,
     false,
     false,
     true,
     false,
     HEARTH_SELECTOR_THRESHOLD,
     {0},
     false},
    {"all layers, head", {0, 512}, 2, true, false, false, false, HEARTH_SELECTOR_DENSE, {0}, false},
    {"all layers, head, streamed and shared, host KV", {512, 256}, 2, true, false, false, false, HEARTH_SELECTOR_GATE,
     {2, 24}, true},
};
enum { N_CONFIG = sizeof configs / sizeof *configs };
static const config of_floats = {"floats", {256, 768},           2,  true, false,
                                 false,    true, HEARTH_SELECTOR_GATE, {0}, false};

typedef struct files {
    const config *is;
    char model[512], placement[512];
} files;

/* False: no test data (skipped), or a check failed. */
static bool make_files(const config *c, const char *device, files *f)
{
    uint32_t n_hot[2] = {c->n_hot[0], c->n_hot[1]};
    hth_placement p = {.n_layer = c->n_layer, .n_hot = n_hot, .head = c->head, .host_kv = c->host_kv};
    p.devices[0].submit_on_demand = c->submitted;
    p.devices[0].streams[0] = c->stream;
    f->is = c;
    snprintf(f->model, sizeof f->model, "%s", test_scratch("divided.gguf"));
    snprintf(f->placement, sizeof f->placement, "%s", test_scratch("divided-placement.gguf"));
    bool made = c->floats ? hybrid_pack_floats("bamboo", f->model)
                          : hybrid_pack_powerinfer("bamboo", f->model);
    return made && hybrid_write_placement(f->model, device, &p, f->placement);
}

static hearth_status try_to_open(const files *f, const char *device, hearth_progress_fn *progress, void *user,
                                 hearth_model **model, hearth_error *err)
{
    const hearth_model_options o = {.n_thread = 1,
                                    .progress = progress,
                                    .progress_user = user,
                                    .mmap = f->is->mapped,
                                    .selector = f->is->selector,
                                    .gpu = {.device = device,
                                            .n_ctx = 4 * N_CTX,
                                            .n_batch = N_ROW,
                                            .kv = HEARTH_KV_F16,
                                            .placement = device ? f->placement : NULL}};
    *model = NULL;
    return hearth_model_open(f->model, &o, model, err);
}

static hearth_model *open_model(const files *f, const char *device)
{
    hearth_model *model = OPENED_BY(try_to_open, hearth_model, f, device, NULL, NULL);
    if (model && device) CHECK(model->gpu && hth_gpu_get_params(model->gpu)->n_hot[0] == f->is->n_hot[0]);
    return model;
}

static hearth_session *open_session(const hearth_model *model)
{
    return OPENED(hearth_session, model,
        &(hearth_session_options){.n_ctx = N_CTX, .n_batch = N_PROMPT, .n_thread = 1, .kv = HEARTH_KV_F16});
}

/* ---- what was said ------------------------------------------------------------------------------ */

typedef struct logits {
    size_t n;
    float values[MAX_LOGITS][N_VOCAB];
} logits;

static void keep(logits *to, const hearth_session *s)
{
    const float *at = hearth_session_logits(s);
    if (CHECK(at != NULL) && CHECK(to->n < MAX_LOGITS)) memcpy(to->values[to->n++], at, sizeof to->values[0]);
}

static int32_t likeliest(const hearth_session *s)
{
    const float *at = hearth_session_logits(s);
    int32_t best = 0;
    for (int32_t i = 1; at && i < N_VOCAB; i++)
        if (at[i] > at[best]) best = i;
    return best;
}

static void eval(hearth_session *s, const int32_t *ids, size_t n, logits *to)
{
    CHECK_OK(hearth_session_eval(s, ids, n, err));
    keep(to, s);
}

static hearth_status keep_each(void *user, size_t i_token, const float *given, hearth_error *err)
{
    logits *to = user;
    if (CHECK_INT(i_token, to->n))
        memcpy(to->values[to->n++], given, sizeof to->values[0]); /* once each, in order */
    return HEARTH_OK;
}

/* A text: a prompt, which the device takes in three pieces, and what is likeliest behind it. */
static void tell(hearth_session *s, logits *to)
{
    to->n = 0;
    CHECK_OK(hearth_session_eval_each(s, prompt, N_PROMPT, keep_each, to, err));
    for (int i = 0; i < N_PREDICT && hearth_session_logits(s); i++) {
        int32_t id = likeliest(s);
        eval(s, &id, 1, to);
    }
}

static void both(hearth_batch *b, hearth_session *const s[2], int32_t id, logits *to)
{
    for (int i = 0; i < 2; i++) {
        int32_t each = id + i;
        CHECK_OK(hearth_batch_add(b, s[i], &each, 1, err));
    }
    CHECK_OK(hearth_batch_run(b, err));
    for (int i = 0; i < 2; i++) keep(to, s[i]);
}

/* Two sessions, alone and in a batch of both, and one that is opened behind them. */
static void tell_by_three(const hearth_model *model, hearth_session *const s[2], logits *to)
{
    static const int32_t one[] = {7}, two[] = {9, 11};
    to->n = 0;
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, 4, 1);
    if (!b) return;
    eval(s[0], prompt, N_PROMPT, to);
    eval(s[1], prompt + 3, 6, to);
    both(b, s, 20, to);
    both(b, s, 30, to);
    eval(s[0], one, 1, to);
    both(b, s, 40, to); /* one may have left a lost device, and the other not */
    eval(s[1], two, 2, to);
    both(b, s, 50, to);
    CLOSED(hearth_session) *late = open_session(model);
    if (late) eval(late, prompt, N_PROMPT, to);
    if (late) eval(late, one, 1, to);
}

typedef void script(const hearth_model *model, hearth_session *const s[2], logits *to);
static void tell_alone(const hearth_model *model, hearth_session *const s[2], logits *to) { tell(s[0], to); }

/* ---- a device that fails ------------------------------------------------------------------------ */

/* So many calls, from the n-th on, end so. n 0: none. */
typedef struct fault {
    uint64_t n, n_call;
    hearth_status with;
} fault;
static const fault none;
static fault loss_at(uint64_t n) { return (fault){n, 1, HEARTH_ERROR_DEVICE}; }

static void inject(hearth_model *model, const fault *is)
{
    hth_device_inject_faults(model->devices[0].device, is->n, is->n_call, is->with);
}

/* device NULL: the CPU's. Returns whether it was left. */
static bool run(const files *f, const char *device, script *play, fault is, logits *to)
{
    enum { MAX_REFUSED_AND_SETTLED = 5 }; /* three times a step, and twice its end */
    CLOSED(hearth_model) *model = open_model(f, device);
    hearth_session *s[2] = {model ? open_session(model) : NULL, model ? open_session(model) : NULL};
    bool left = false, bit_exact = false;
    test_log_start();
    if (device && model) inject(model, &is);
    if (s[0] && s[1]) play(model, s, to);
    if (device && model) {
        hearth_model_info info = test_model_info(model);
        bit_exact = !f->is->floats && !engine_flushes(model);
        CHECK(info.gpu_bit_exact == bit_exact && bit_exact == !info.gpu_bit_exact_reason[0]);
        hth_device_usage use = hth_device_state(model->devices[0].device);
        left = !hth_engine_has_gpu(model);
        CHECK_INT(use.lost, left && is.with == HEARTH_ERROR_DEVICE);
        if (left && !use.lost && is.n_call <= MAX_REFUSED_AND_SETTLED) CHECK_INT(use.used, 0);
    }
    test_log_stop();
    CHECK_INT(test_n_warning("continuing on the CPU"), left);
    CHECK_INT(test_n_warning(""), left);
    CHECK_INT(test_n_warning("texts may differ"), left && !bit_exact);
    hearth_session_close(s[0]);
    hearth_session_close(s[1]);
    return left;
}

/* Every call of it. Returns how many there are. */
static uint64_t lose_at_every_call(const files *f, const char *device, script *play, uint64_t stride)
{
    static logits expected, got;
    uint64_t n = 1, held = hth_alloc_in_use();
    run(f, NULL, play, none, &expected);
    CHECK(expected.n > 12);
    for (; n < MAX_CALLS && run(f, device, play, loss_at(n), &got); n += stride) {
        if (CHECK_INT(got.n, expected.n) && memcmp(&got, &expected, sizeof got) != 0) {
            test_fail(__FILE__, __LINE__, "%s: lost at call %llu: other bits", f->is->name, (unsigned long long)n);
            break;
        }
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
    }
    CHECK_BYTES(&got, &expected, sizeof got); /* and without a loss */
    CHECK(n > 25 && n < MAX_CALLS);
    return n;
}

static void check_losses_of(const char *device, script *play, uint64_t stride, int n_config)
{
    for (int i = 0; i < n_config; i++) {
        files f;
        if (make_files(&configs[i], device, &f))
            printf("     %s, %s: up to call %llu\n", device, configs[i].name,
                   (unsigned long long)lose_at_every_call(&f, device, play, stride) - 1);
    }
}

static void check_losses(const char *device, script *play, uint64_t stride)
{
    check_losses_of(device, play, stride, N_CONFIG);
}

TEST(a_divided_model_keeps_its_text_wherever_its_device_is_lost) { check_losses("null", tell_alone, 1); }
TEST_LONG_IF_SANITIZED(a_divided_model_keeps_its_text_where_vulkan_is_lost)
{
    check_losses("vulkan:0", tell_alone, test_is_long() ? 1 : 149);
}
/* Submissions of one run each, queued and submitted, streamed. */
TEST(a_divided_model_keeps_its_text_wherever_it_is_lost_among_many_submissions)
{
    if (!submissions_begin("null", 1, 1)) return;
    check_losses_of("null", tell_alone, test_is_long() ? 1 : 3, 2);
    submissions_end();
}
TEST(sessions_and_batches_of_a_divided_model_survive_the_loss) { check_losses("null", tell_by_three, 1); }

/* What is refused three times in a row is the CPU's, and what the device has is given back, if it does not
 * refuse that too. */
static void refuse_at(const files *f, script *play, uint64_t n, const logits *expected)
{
    static const uint64_t n_calls[] = {1, 2, 3, 5, 1000};
    static logits got;
    for (size_t i = 0; i < sizeof n_calls / sizeof *n_calls; i++) {
        hearth_status with = (n + i) % 2 == 0 ? HEARTH_ERROR_MEMORY : HEARTH_ERROR_UNSUPPORTED;
        CHECK_INT(run(f, "null", play, (fault){n, n_calls[i], with}, &got), n_calls[i] >= 3);
        CHECK_BYTES(&got, expected, sizeof got);
    }
}

TEST(a_divided_model_whose_device_fails_repeatedly_runs_on_the_cpu)
{
    static script *const plays[] = {tell_alone, tell_by_three};
    static logits expected;
    for (int i = 0; i < N_CONFIG; i++) {
        files f;
        for (int k = 0; k < 2 && make_files(&configs[i], "null", &f); k++) {
            run(&f, NULL, plays[k], none, &expected);
            for (uint64_t n = 1; n < 24; n += 11) refuse_at(&f, plays[k], n, &expected);
        }
    }
}

/* ---- memory that is wanting then, a file that cannot be read --------------------------------------- */

typedef void inject_fn(uint64_t n); /* 0: none */
static void one_allocation(uint64_t n) { hth_alloc_fail_at(n, 0); }
static void one_read(uint64_t n) { hth_gguf_fail_read_at(n, HTH_READ_FAILS); }

/* The device is lost at the next call, and then the n-th allocation or read fails. False: there was none left to
 * fail. */
static bool lose_with(const files *f, inject_fn *one, hearth_status status, uint64_t n,
                      const logits *expected)
{
    static logits got;
    hearth_model *model = open_model(f, "null");
    hearth_session *s = model ? open_session(model) : NULL;
    hearth_error why = {0};
    hearth_status st = HEARTH_OK;
    if (s) {
        got.n = 0;
        eval(s, prompt, N_PROMPT - 1, &got);
        hth_device_inject_fault(model->devices[0].device, 1, HEARTH_ERROR_DEVICE);
        one(n);
        st = hearth_session_eval(s, prompt + N_PROMPT - 1, 1, &why);
        one(0);
        if (st != HEARTH_OK) {
            CHECK_INT(st, status);
            CHECK_INT(why.status, status);
            CHECK(why.message[0] != '\0');
            CHECK_INT(hearth_session_position(s), N_PROMPT - 1);
            CHECK(hearth_session_logits(s) != NULL); /* those before */
            CHECK_OK(hearth_session_eval(s, prompt + N_PROMPT - 1, 1, err));
        }
        CHECK(hth_device_state(model->devices[0].device).lost);
        got.n = 0;
        keep(&got, s);
        CHECK_BYTES(got.values[0], expected->values[N_PROMPT - 1], sizeof got.values[0]);
    }
    hearth_session_close(s);
    hearth_model_close(model);
    return st != HEARTH_OK;
}

/* Returns how many there are. */
static uint64_t lose_with_every(const files *f, inject_fn *one, hearth_status status, const logits *expected)
{
    uint64_t held = hth_alloc_in_use(), n = 1;
    while (n < MAX_CALLS && lose_with(f, one, status, n, expected)) n++;
    CHECK(n < MAX_CALLS);
    CHECK_INT(hth_alloc_in_use(), held);
    return n - 1;
}

TEST(memory_and_reads_that_fail_while_weights_are_fetched_are_errors_and_no_more)
{
    static logits expected;
    for (int i = 0; i < N_CONFIG; i++) {
        files f;
        if (make_files(&configs[i], "null", &f)) {
            run(&f, NULL, tell_alone, none, &expected);
            uint64_t n = lose_with_every(&f, one_allocation, HEARTH_ERROR_MEMORY, &expected),
                     n_read = lose_with_every(&f, one_read, HEARTH_ERROR_IO, &expected);
            CHECK(n > 0 && (n_read > 0) == !f.is->mapped);
            printf("     %s: %llu allocations, %llu reads\n", f.is->name, (unsigned long long)n,
                   (unsigned long long)n_read);
        }
    }
}

/* ---- memory that is not there when a model is opened -------------------------------------------- */

/* The n-th call of the device finds none; the first is the device's own opening. False: there are fewer. */
static bool open_without(const files *f, uint64_t n, const logits *expected)
{
    static logits got;
    hearth_model *model;
    hearth_error why;
    uint64_t held = hth_alloc_in_use();
    hth_device_inject_fault_on_open(n, HEARTH_ERROR_MEMORY);
    hearth_status st = try_to_open(f, "null", NULL, NULL, &model, &why);
    bool failed = hth_device_open_fault_was_hit();
    hth_device_inject_fault_on_open(0, HEARTH_OK);
    if (!CHECK_INT(st, n == 1 ? HEARTH_ERROR_MEMORY : HEARTH_OK)) printf("     call %llu\n", (unsigned long long)n);
    hearth_session *s = model ? open_session(model) : NULL;
    got.n = 0;
    if (s) {
        eval(s, prompt, N_PROMPT, &got);
        CHECK_BYTES(got.values[0], expected->values[N_PROMPT - 1], sizeof got.values[0]);
        if (!model->gpu) CHECK_INT(model->devices[0].device ? hth_device_state(model->devices[0].device).used : 0, 0);
        CHECK(model->n_evicted == 0 && model->n_reloaded == 0); /* what was there first is gone */
    }
    hearth_session_close(s);
    hearth_model_close(model);
    CHECK_INT(hth_alloc_in_use(), held);
    return failed;
}

TEST(a_divided_model_for_which_memory_is_missing_has_less_there)
{
    static logits expected;
    const uint64_t stride = test_is_long() ? 1 : 5;
    for (int i = 0; i < 3; i++) {
        files f;
        uint64_t n = 1;
        if (make_files(&configs[i], "null", &f)) {
            run(&f, NULL, tell_alone, none, &expected);
            while (n < MAX_CALLS && open_without(&f, n, &expected)) n += n == 1 ? 1 : stride;
            CHECK(n > 40 && n < MAX_CALLS);
            printf("     %s: %llu calls\n", f.is->name, (unsigned long long)n);
        }
    }
}

/* Says no when something begins for the n-th time. */
typedef struct reading {
    int n_begun, n_ended, n;
} reading;

static bool read_until(void *user, uint64_t done, uint64_t total)
{
    reading *r = user;
    r->n_begun += done == 0;
    r->n_ended += done == total;
    return r->n_begun != r->n;
}

/* The n-th call finds no memory; what begins is cancelled when it does so for the last time, if `cancel`. */
static hearth_status read_without(const files *f, uint64_t n, int cancel, reading *r)
{
    CLOSED(hearth_model) *model = NULL;
    hearth_error why;
    *r = (reading){.n = cancel};
    hth_device_inject_fault_on_open(n, HEARTH_ERROR_MEMORY);
    hearth_status st = try_to_open(f, "null", read_until, r, &model, &why);
    hth_device_inject_fault_on_open(0, HEARTH_OK);
    return st;
}

/* A choice begins, what goes to the device, what is read here. The latter is done twice where memory is missing
 * behind it, and what goes there may be, too. */
TEST(reloading_weights_after_a_lack_of_memory_reports_progress_and_can_be_cancelled)
{
    uint64_t held = hth_alloc_in_use();
    int n_again = 0;
    files f;
    if (make_files(&configs[0], "null", &f)) {
        for (uint64_t n = 0; n < 200; n += n == 0 ? 2 : 3) {
            reading all, some;
            CHECK_INT(read_without(&f, n, 0, &all), HEARTH_OK);
            CHECK(n == 0 ? all.n_begun == 3 && all.n_ended == 2 : all.n_begun >= 3 && all.n_begun <= 5);
            n_again += all.n_ended == 3;
            CHECK_INT(read_without(&f, n, all.n_begun, &some), HEARTH_ERROR_CANCELLED);
            CHECK_INT(some.n_begun, all.n_begun);
            CHECK_INT(read_without(&f, n, 2, &some), HEARTH_ERROR_CANCELLED); /* on its way to the device */
            if (!CHECK_INT(hth_alloc_in_use(), held)) break;
        }
        CHECK(n_again > 0);
        printf("     read again: %d times\n", n_again);
    }
}

TEST(float_rows_go_on_with_a_warning_that_texts_may_differ)
{
    static logits expected, got;
    files f;
    if (make_files(&of_floats, "null", &f)) {
        run(&f, NULL, tell_alone, none, &expected);
        for (uint64_t n = 1; n < 60; n += 7) {
            CHECK(run(&f, "null", tell_alone, loss_at(n), &got));
            /* As far as the texts are the same, they are near. */
            double error = engine_max_error(got.values[0], expected.values[0], N_VOCAB);
            if (!(error <= 2e-4))
                test_fail(__FILE__, __LINE__, "lost at call %llu: %g", (unsigned long long)n, error);
        }
    }
}

/* ---- threads ------------------------------------------------------------------------------------ */

typedef struct teller {
    pthread_t thread;
    hearth_session *session;
    logits said;
} teller;

static void *tell_in_thread(void *arg)
{
    teller *t = arg;
    tell(t->session, &t->said);
    return NULL;
}

/* Each a session of its own, on one device. Returns whether it was left. */
static bool tell_in_two(const files *f, fault is, const logits *expected)
{
    static teller tellers[2];
    CLOSED(hearth_model) *model = open_model(f, "null");
    hearth_model_info seen = {0};
    bool left = false;
    test_log_start();
    memset(tellers, 0, sizeof tellers);
    for (int i = 0; model && i < 2; i++) tellers[i].session = open_session(model);
    if (tellers[0].session && tellers[1].session) {
        inject(model, &is);
        for (int i = 0; i < 2; i++) CHECK(pthread_create(&tellers[i].thread, NULL, tell_in_thread, &tellers[i]) == 0);
        for (int i = 0; i < 1000; i++) hearth_model_get_info(model, &seen); /* at any time */
        for (int i = 0; i < 2; i++) pthread_join(tellers[i].thread, NULL);
        left = !hth_engine_has_gpu(model);
        CHECK_INT(test_n_warning(""), left);
        CHECK_INT(test_n_warning("continuing on the CPU"), left);
        for (int i = 0; i < 2; i++) CHECK_BYTES(&tellers[i].said, expected, sizeof *expected);
    }
    test_log_stop();
    for (int i = 0; i < 2; i++) hearth_session_close(tellers[i].session);
    return left;
}

TEST(threads_with_a_session_each_share_a_device_and_its_loss)
{
    static logits expected;
    for (int i = 0; i < N_CONFIG; i++) {
        files f;
        if (make_files(&configs[i], "null", &f)) {
            run(&f, NULL, tell_alone, none, &expected);
            CHECK(!tell_in_two(&f, none, &expected));
            for (uint64_t n = 1; n < 80; n += 13) {
                CHECK(tell_in_two(&f, loss_at(n), &expected));
                /* Six refusals are three of one of both, or of each. */
                CHECK(tell_in_two(&f, (fault){n, 6, HEARTH_ERROR_MEMORY}, &expected));
            }
        }
    }
}
