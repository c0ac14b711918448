/* Every call of a device, every allocation and every read of a model that lies there can fail: the text is
 * that of the CPU all the same, or there is an error with a line for a person; nothing is kept, and the
 * CPU goes on as ever. A step that failed is done again with the same bits; one that lost the device goes
 * on with them. On Vulkan a sample of the same. */
#include "base/alloc.h"
#include "convert/quantize.h"
#include "engine/engine.h"
#include "file/gguf.h"
#include "support/engine.h"
#include "support/device/submissions.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

enum { N_PROMPT = 9, N_PREDICT = 20 };
static const int32_t prompt[N_PROMPT] = {1, 60, 70, 80, 90, 100, 61, 71, 81};

/* Floats, blocks, or floats with neurons in rows of down: all paths of weights. */
typedef enum kind { PLAIN, BLOCKS, PACKED, N_KIND } kind;
static const char *const kind_names[] = {"floats", "blocks of 32", "packed"};

static const char *make_model(kind k)
{
    const char *path = test_scratch("model.gguf"), *quantised = test_scratch("quantised.gguf");
    tiny_model m = tiny_new();
    if (k == PACKED) tiny_pack(&m);
    tiny_save(&m, path);
    if (k != BLOCKS) return path;
    hth_quantize_options o = {.ftype = hth_ftype_find("q8_0"), .n_thread = 1};
    hth_quantize_result r;
    CHECK_OK(hth_quantize(path, quantised, &o, &r, err));
    return quantised;
}

/* ---- a task ------------------------------------------------------------------------------------- */

/* device NULL: the CPU's. */
static hearth_status open_both(const char *path, const char *device, hearth_model **model,
                               hearth_session **session, hearth_error *err)
{
    const hearth_model_options o = {
        .n_thread = 1, .gpu = {.device = device, .n_ctx = 32, .n_batch = 4, .kv = HEARTH_KV_F16}};
    const hearth_session_options so = {.n_ctx = 32, .n_batch = 16, .n_thread = 1, .kv = HEARTH_KV_F16};
    hearth_status st = hearth_model_open(path, &o, model, err);
    return st == HEARTH_OK ? hearth_session_open(*model, &so, session, err) : st;
}

/* Opens, reads a prompt, takes the likeliest tokens, closes. */
static hearth_status run(const char *path, const char *device, int32_t ids[N_PREDICT], hearth_error *err)
{
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hearth_status st = open_both(path, device, &model, &session, err);
    if (st == HEARTH_OK) st = hearth_session_eval(session, prompt, N_PROMPT, err);
    for (int i = 0; st == HEARTH_OK && i < N_PREDICT; i++) {
        const float *logits = hearth_session_logits(session);
        ids[i] = 0;
        for (int32_t k = 1; k < TINY_VOCAB; k++)
            if (logits[k] > logits[ids[i]]) ids[i] = k;
        st = hearth_session_eval(session, &ids[i], 1, err);
    }
    return st;
}

static bool has(const char *path, const char *device)
{
    int32_t ids[N_PREDICT];
    hearth_error why = {0};
    hearth_status st = run(path, device, ids, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED) test_skip("%s", why.message);
    else if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", device, why.message);
    return st == HEARTH_OK;
}

/* ---- faults ------------------------------------------------------------------------------------- */

typedef void inject(uint64_t n); /* 0: none */
static void memory_call(uint64_t n) { hth_device_inject_fault_on_open(n, HEARTH_ERROR_MEMORY); }
static void device_call(uint64_t n) { hth_device_inject_fault_on_open(n, HEARTH_ERROR_DEVICE); }
static void unsupported_call(uint64_t n) { hth_device_inject_fault_on_open(n, HEARTH_ERROR_UNSUPPORTED); }
static void one_allocation(uint64_t n) { hth_alloc_fail_at(n, 0); }
static void allocations_from(uint64_t n) { hth_alloc_fail_at(n, n != 0); }
static void one_read(uint64_t n) { hth_gguf_fail_read_at(n, HTH_READ_FAILS); }

/* Whether fault n was met by what came after `before` allocations. */
typedef bool is_met(uint64_t n, uint64_t before);
static bool call_met(uint64_t n, uint64_t before) { return (void)n, (void)before, hth_device_open_fault_was_hit(); }
static bool allocation_met(uint64_t n, uint64_t before) { return hth_alloc_count() - before >= n; }
static bool never(uint64_t n, uint64_t before) { return (void)n, (void)before, false; }

typedef struct fault {
    const char *name;
    inject *inject;
    is_met *met; /* by a run that succeeded */
    hearth_status status;
    uint64_t n_min; /* fewer mean that the task was not put to the test */
} fault;
static const fault faults[] = {
    {"calls without memory", memory_call, call_met, HEARTH_ERROR_MEMORY, 60},
    {"calls that lose the device", device_call, call_met, HEARTH_ERROR_DEVICE, 60},
    {"calls without support", unsupported_call, call_met, HEARTH_ERROR_UNSUPPORTED, 60},
    {"allocations", one_allocation, allocation_met, HEARTH_ERROR_MEMORY, 60},
    {"allocations and all behind", allocations_from, never, HEARTH_ERROR_MEMORY, 60},
    {"reads", one_read, never, HEARTH_ERROR_IO, 20},
};
enum { N_FAULT = sizeof faults / sizeof *faults };

static void check_cpu(const char *path, const int32_t expected[N_PREDICT])
{
    int32_t ids[N_PREDICT];
    CHECK_OK(run(path, NULL, ids, err));
    CHECK_BYTES(ids, expected, sizeof ids);
}

/* Fault n for n = 1, 2, ... until nothing fails; stride: of so many one. Returns how many there were. */
static uint64_t survive(const char *path, const char *device, const fault *f, uint64_t stride, bool floats)
{
    enum { N_MAX = 20000 };
    int32_t expected[N_PREDICT], ids[N_PREDICT];
    CHECK_OK(run(path, NULL, expected, err));
    uint64_t held = hth_alloc_in_use(), n = 1, n_fault = 0;
    for (; n < N_MAX; n += stride, n_fault++) {
        hearth_error why = {0};
        uint64_t before = hth_alloc_count();
        f->inject(n);
        hearth_status st = run(path, device, ids, &why);
        bool met = f->met(n, before);
        f->inject(0);
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
        if (st == HEARTH_OK && !floats) CHECK_BYTES(ids, expected, sizeof ids);
        if (st == HEARTH_OK && !met) break;
        if (st == HEARTH_OK) continue;
        if (st != f->status || why.status != st || !why.message[0])
            test_fail(__FILE__, __LINE__, "%s %llu: status '%s', message '%s'", f->name,
                      (unsigned long long)n, hearth_status_name(st), why.message);
        check_cpu(path, expected);
    }
    if (n <= f->n_min || n >= N_MAX)
        test_fail(__FILE__, __LINE__, "%s: the task ended after %llu", f->name, (unsigned long long)n);
    return n_fault;
}

static void survive_all(kind k, const char *device, uint64_t stride)
{
    const char *path = make_model(k);
    for (size_t i = 0; i < N_FAULT && has(path, device); i++)
        printf("     %s, %s: %llu %s\n", device, kind_names[k],
               (unsigned long long)survive(path, device, &faults[i], stride, k != BLOCKS), faults[i].name);
}

TEST(a_model_on_the_null_device_survives_every_fault) { for (kind k = 0; k < N_KIND; k++) survive_all(k, "null", 1); }

/* Command lists end in the midst of what is recorded, and steps have many of them. */
TEST(a_model_whose_work_is_divided_among_submissions_survives_faults)
{
    if (!submissions_begin("null", 1, 1)) return;
    survive_all(BLOCKS, "null", 5);
    survive_all(PACKED, "null", 11);
    submissions_end();
}

TEST(a_model_on_vulkan_survives_faults) { survive_all(BLOCKS, "vulkan:0", test_is_long() ? 1 : 149); }

/* ---- a step that fails -------------------------------------------------------------------------- */

enum { N_BEFORE = 2 };

static void take(const hearth_session *s, float logits[TINY_VOCAB])
{
    const float *at = hearth_session_logits(s);
    memset(logits, 0, TINY_VOCAB * sizeof *logits);
    if (CHECK(at != NULL)) memcpy(logits, at, TINY_VOCAB * sizeof *logits);
}

/* The n-th call of a step of several pieces fails. False: the step has fewer. */
static bool fail_step(hearth_model *model, hearth_session *s, uint64_t n, hearth_status with,
                      const float expected[TINY_VOCAB])
{
    float logits[TINY_VOCAB];
    CHECK_OK(hearth_session_truncate(s, 0, err));
    CHECK_OK(hearth_session_eval(s, prompt, N_BEFORE, err));
    hth_device_inject_fault(model->devices[0].device, n, with);
    uint64_t before = hth_device_n_call(model->devices[0].device);
    CHECK_OK(hearth_session_eval(s, prompt + N_BEFORE, N_PROMPT - N_BEFORE, err));
    bool failed = hth_device_n_call(model->devices[0].device) - before >= n;
    bool lost = hth_device_state(model->devices[0].device).lost;
    hth_device_inject_fault(model->devices[0].device, 0, HEARTH_OK);
    take(s, logits);
    CHECK_BYTES(logits, expected, sizeof logits);
    CHECK(lost == (failed && with == HEARTH_ERROR_DEVICE)); /* else the device did it again */
    return failed;
}

/* Returns how many calls a step has. */
static uint64_t fail_steps(const char *path, const char *device, hearth_status with)
{
    float expected[TINY_VOCAB];
    hearth_model *model = NULL;
    hearth_session *s = NULL;
    uint64_t n = 1;
    for (bool more = true; more; n += more) {
        if (!model) CHECK_OK(open_both(path, device, &model, &s, err));
        if (!s) break;
        CHECK_OK(hearth_session_truncate(s, 0, err));
        CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err));
        take(s, expected);
        more = fail_step(model, s, n, with, expected);
        if (with != HEARTH_ERROR_DEVICE) continue;
        hearth_session_close(s), s = NULL; /* a lost device does not come back */
        hearth_model_close(model), model = NULL;
    }
    hearth_session_close(s);
    hearth_model_close(model);
    return n - 1;
}

static void steps_fail_on(const char *device)
{
    static const hearth_status with[] = {HEARTH_ERROR_MEMORY, HEARTH_ERROR_UNSUPPORTED, HEARTH_ERROR_DEVICE};
    const char *path = make_model(BLOCKS);
    uint64_t held = hth_alloc_in_use();
    /* Two pieces of at most four tokens: each is submitted, and waited for where its end does not come at once. */
    for (size_t i = 0; i < 3 && has(path, device); i++) {
        uint64_t n = fail_steps(path, device, with[i]);
        CHECK(n >= 2 && n <= 4);
    }
    CHECK_INT(hth_alloc_in_use(), held);
}

/* Refused n times: a step is done again twice; the third time it is the CPU's, as all that come, and the device
 * has nothing of the model any more. */
static void step_refused_on(const char *device, uint64_t n, hearth_status with)
{
    const char *path = make_model(BLOCKS);
    CLOSED(hearth_model) *model = NULL;
    hearth_model_info info = {0};
    float expected[TINY_VOCAB], logits[TINY_VOCAB];
    if (!has(path, device)) return;
    CLOSED(hearth_session) *s = OPENED_BY(open_both, hearth_session, path, device, &model);
    if (s) {
        CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err));
        take(s, expected);
        CHECK_OK(hearth_session_truncate(s, 0, err));
        CHECK_OK(hearth_session_eval(s, prompt, N_BEFORE, err));
        hth_device_inject_faults(model->devices[0].device, 1, n, with);
        CHECK_OK(hearth_session_eval(s, prompt + N_BEFORE, N_PROMPT - N_BEFORE, err));
        take(s, logits);
        CHECK_BYTES(logits, expected, sizeof logits);
        hearth_model_get_info(model, &info);
        CHECK_INT(hth_engine_has_gpu(model), n < 3);
        CHECK_INT(info.gpu != NULL, n < 3);
        if (n >= 3) CHECK(strstr(info.gpu_note, "a test made call") != NULL);
        if (n >= 3) CHECK_INT(hth_device_state(model->devices[0].device).used, 0);
    }
}

TEST(a_device_that_fails_a_step_repeatedly_is_evicted)
{
    for (uint64_t n = 1; n <= 3; n++) {
        step_refused_on("null", n, HEARTH_ERROR_MEMORY);
        step_refused_on("vulkan:0", n, HEARTH_ERROR_UNSUPPORTED);
    }
    step_refused_on("null", 1000, HEARTH_ERROR_MEMORY);
}

static void see_nothing(void *user, const hth_ffn_probe *seen) { (void)user, (void)seen; }

/* It is no failure of the device, which stays in use. */
TEST(a_probe_of_neurons_on_a_device_is_refused)
{
    const char *path = make_model(BLOCKS);
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *s = OPENED_BY(open_both, hearth_session, path, "null", &model);
    if (s) {
        hth_step_set_probe(hth_session_step(s), see_nothing, NULL);
        CHECK_FAILS(hearth_session_eval(s, prompt, N_PROMPT, err), HEARTH_ERROR_UNSUPPORTED, "cannot be probed");
        CHECK(hth_engine_has_gpu(model));
        hth_step_set_probe(hth_session_step(s), NULL, NULL);
        CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err));
    }
}

TEST(a_failed_step_on_the_null_device_is_done_again_with_the_same_bits) { steps_fail_on("null"); }
TEST_LONG_IF_SANITIZED(a_failed_step_on_vulkan_is_done_again_with_the_same_bits) { steps_fail_on("vulkan:0"); }

/* Submissions of one run each, so that command lists are cut wherever they can be, and no head behind the last layer:
 * a command list that cannot begin is no place to copy to. */
TEST(command_lists_of_many_rows_without_a_head_that_cannot_be_recorded_are_errors)
{
    const char *path = make_model(BLOCKS);
    hearth_model_options o = {.n_thread = 1,
                              .gpu = {.device = "null", .n_ctx = 32, .n_batch = 16, .kv = HEARTH_KV_F16}};
    uint64_t held = hth_alloc_in_use(), n = 1, n_failed = 0;
    if (!submissions_begin("null", 1, 1)) return;
    hearth_model *model = OPENED(hearth_model, path, &o);
    if (model) o.gpu.vram = hth_device_state(model->devices[0].device).used - 1;
    hearth_model_close(model);
    CHECK_OK(hearth_model_open(path, &o, &model, err));
    if (model) CHECK(!hth_gpu_get_params(model->gpu)->head && hth_gpu_get_params(model->gpu)->end_layer > 1);
    hearth_model_close(model);
    for (bool failed = true; failed && n < 20000; n++) {
        hearth_error why = {0};
        uint64_t before = hth_alloc_count();
        hth_alloc_fail_at(n, 0);
        hearth_status st = hearth_model_open(path, &o, &model, &why);
        failed = hth_alloc_count() - before >= n;
        hth_alloc_fail_at(0, 0);
        CHECK(st == HEARTH_OK || st == HEARTH_ERROR_MEMORY);
        n_failed += st != HEARTH_OK;
        if (st == HEARTH_OK) hearth_model_close(model);
        CHECK_INT(hth_alloc_in_use(), held);
    }
    CHECK(n_failed > 20);
    submissions_end();
}

/* ---- more submissions than a device holds ------------------------------------------------------- */

/* Attention of each token by itself, in two layers: some 4,200 command lists, of which devices hold 4,096. */
enum { N_LONG = 2080 };

/* Its logits; NULL after a failed check. The n-th call of the step fails so. */
static float *eval_long(const char *path, const char *device, uint64_t n, hearth_status with)
{
    static int32_t ids[N_LONG];
    float *logits = calloc(TINY_VOCAB, sizeof *logits);
    const hearth_model_options o = {
        .n_thread = 1, .gpu = {.device = device, .n_ctx = N_LONG, .n_batch = N_LONG, .kv = HEARTH_KV_F16}};
    const hearth_session_options so = {.n_ctx = N_LONG, .n_batch = N_LONG, .n_thread = 1, .kv = HEARTH_KV_F16};
    for (int i = 0; i < N_LONG; i++) ids[i] = 3 + i * 7 % 256;
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    CLOSED(hearth_session) *s = NULL; /* closed before its model */
    if (model) CHECK_OK(hearth_session_open(model, &so, &s, err));
    if (s) {
        uint64_t work;
        if (device) CHECK(submissions_check(model->gpu, &work) > 2 * N_LONG);
        if (device) hth_device_inject_fault(model->devices[0].device, n, with);
        CHECK_OK(hearth_session_eval(s, ids, N_LONG, err));
        take(s, logits);
        if (device) CHECK_INT(hth_device_state(model->devices[0].device).lost, with == HEARTH_ERROR_DEVICE);
    }
    return logits;
}

static void expect_long(const char *path, const char *device, uint64_t n, hearth_status with,
                        const float *expected)
{
    FREED float *logits = eval_long(path, device, n, with);
    CHECK_BYTES(logits, expected, TINY_VOCAB * sizeof *logits);
}

/* So slow by its description that a token is a submission. */
static void expect_long_on_gpu(const char *path, const char *clock, const float *expected)
{
    char device[600], text[600];
    const char *sim_gpu = test_scratch("slow.sim");
    snprintf(device, sizeof device, "sim:%s", sim_gpu);
    snprintf(text, sizeof text,
             "name = slow\nvram_bytes = 1G\nbandwidth = 1e14\npcie_up = 1e14\npcie_down = 1e14\n"
             "pcie_latency_us = 0\ndispatch_us = 0\nsubmit_us = 1\nwake_us = 1\nflops = 1e6\njitter = 0\n"
             "seed = 1\nclock = %s\n",
             clock);
    CHECK(test_write_file(sim_gpu, text, strlen(text)));
    expect_long(path, device, 0, HEARTH_OK, expected);
}

TEST_LONG_IF_SANITIZED(a_step_of_more_command_lists_than_a_device_holds_is_submitted_in_parts)
{
    const char *path = make_model(BLOCKS);
    FREED float *expected = eval_long(path, NULL, 0, HEARTH_OK);
    expect_long_on_gpu(path, "virtual", expected);
    if (test_is_long()) expect_long_on_gpu(path, "real", expected);
    if (submissions_begin("null", 1, 1)) {
        expect_long(path, "null", 0, HEARTH_OK, expected);
        /* Its three submissions. */
        for (uint64_t n = 1; n <= 3; n++) expect_long(path, "null", n, HEARTH_ERROR_DEVICE, expected);
        for (uint64_t n = 2; n <= 3; n++) expect_long(path, "null", n, HEARTH_ERROR_MEMORY, expected);
        submissions_end();
    }
    if (has(path, "vulkan:0") && submissions_begin("vulkan:0", 1, 1)) {
        expect_long(path, "vulkan:0", 0, HEARTH_OK, expected);
        submissions_end();
    }
}

/* A step whose wait fails, if it has one, and is done again: whether that made more calls than two that are
 * alone. */
static bool next_waits(hearth_model *model, hearth_session *s, uint64_t n_call, const float *expected)
{
    float logits[TINY_VOCAB];
    CHECK_OK(hearth_session_truncate(s, 0, err));
    uint64_t before = hth_device_n_call(model->devices[0].device);
    hth_device_inject_fault(model->devices[0].device, n_call, HEARTH_ERROR_MEMORY); /* the wait is the last */
    CHECK_OK(hearth_session_eval(s, prompt, 4, err));
    hth_device_inject_fault(model->devices[0].device, 0, HEARTH_OK);
    uint64_t n = hth_device_n_call(model->devices[0].device) - before;
    take(s, logits);
    CHECK_BYTES(logits, expected, sizeof logits);
    return n > 2 * n_call; /* else it ended before anybody slept */
}

/* What the device may still be reading is not written before it has ended: the wait for a step is what
 * fails. Whether a step has ended when it is polled depends on timing, so it is tried often. */
TEST(a_step_whose_end_was_not_seen_is_waited_for)
{
    enum { N_CALL = 2, N_TRY = 500 }; /* submit, wait */
    const char *path = make_model(BLOCKS);
    CLOSED(hearth_model) *model = NULL;
    float expected[TINY_VOCAB];
    bool waited = false;
    if (!has(path, "vulkan:0")) return;
    CLOSED(hearth_session) *s = OPENED_BY(open_both, hearth_session, path, "vulkan:0", &model);
    if (s) {
        CHECK_OK(hearth_session_eval(s, prompt, 4, err));
        take(s, expected);
        for (int i = 0; i < N_TRY && !waited; i++) waited = next_waits(model, s, N_CALL, expected);
        CHECK(waited);
    }
}
