/* Sessions on a device that are copied, cut and stepped in any order give the bits of fresh sessions on the CPU; a copy
 * has the cache of its source on the device too. Devices that are lost or refuse work lose nothing of them. */
#include "convert/quantize.h"
#include "device/device.h"
#include "engine/session_int.h"
#include "support/engine.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <pthread.h>

enum { N = 160, MORE = 20, WINDOW = 40, N_BATCH = 8, MAX_SESSION = 64, LENGTH = 2 * N };

/* A model on a device and the same on the CPU; all layers see everything, or some have a window. */
typedef struct fixture {
    hearth_model *model, *cpu;
    int32_t ids[N + MORE], other[N + MORE];
} fixture;

/* false: there is no such device. */
/* So much memory that the head and the last layer are on the second device. */
static uint64_t limit_of_first(const char *path, uint32_t n_ctx)
{
    const hearth_model_options o = {.gpu = {.device = "null", .n_ctx = n_ctx}};
    CLOSED(hearth_model) *whole = OPENED(hearth_model, path, &o);
    return whole ? test_model_info(whole).gpu_bytes - 1 : 0;
}

static bool open_models(fixture *f, bool windowed, const char *device, uint32_t n_ctx, bool host_kv)
{
    const char *path = test_scratch("model.gguf"), *quantised = test_scratch("quantised.gguf");
    hth_quantize_options q = {.ftype = hth_ftype_find("q8_0"), .n_thread = 1}; /* devices give the CPU's bits */
    hth_quantize_result result;
    hearth_model_options o = {.gpu = {.device = device, .n_ctx = n_ctx, .host_kv = host_kv}};
    hearth_error why = {0};
    tiny_model m;
    test_random r = {11};
    *f = (fixture){0};
    tiny_begin(&m);
    if (windowed) tiny_become(&m, "gemma2");
    if (windowed) tiny_set_u32(&m, "gemma2.attention.sliding_window", WINDOW);
    gguf_bytes file = tiny_write(&m);
    tiny_free(&m);
    CHECK(test_write_file(path, file.data, file.n));
    gguf_free(&file);
    for (int i = 0; i < N + MORE; i++) f->ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    for (int i = 0; i < N + MORE; i++) f->other[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    CHECK_OK(hth_quantize(path, quantised, &q, &result, err));
    bool two = strchr(device, ',') != NULL;
    if (two) o.gpu.vrams[0] = limit_of_first(quantised, n_ctx);
    hearth_status st = hearth_model_open(quantised, &o, &f->model, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED && strncmp(device, "vulkan", 6) == 0) test_skip("%s", why.message);
    else if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", device, why.message);
    if (st != HEARTH_OK) return false;
    CHECK_OK(hearth_model_open(quantised, NULL, &f->cpu, err));
    hearth_model_info info = test_model_info(f->model);
    engine_check_bit_exact(f->model);
    CHECK(info.gpu_head && (hth_gpu_next(f->model->gpu) != NULL) == two);
    return true;
}

static void close_models(fixture *f)
{
    hearth_model_close(f->model);
    hearth_model_close(f->cpu);
}

static hearth_session *open_on(const hearth_model *model, bool release)
{
    hearth_session *s = NULL;
    const hearth_session_options o = {.n_ctx = LENGTH, .n_batch = N_BATCH, .n_thread = 1, .release_window = release};
    CHECK_OK(hearth_session_open(model, &o, &s, err));
    return s;
}

static void feed(hearth_session *s, const int32_t *ids, size_t n) { CHECK_OK(hearth_session_eval(s, ids, n, err)); }

static hearth_session *fork_of(const hearth_session *s)
{
    hearth_session *copy = NULL;
    CHECK_OK(hearth_session_fork(s, &copy, err));
    return copy;
}

/* The logits after n_a of a, then n_b of b, by a session on the CPU. */
static void expect(const fixture *f, const hearth_session *s, const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    hearth_session *fresh = open_on(f->cpu, false);
    feed(fresh, a, n_a);
    feed(fresh, b, n_b);
    const float *want = hearth_session_logits(fresh), *got = hearth_session_logits(s);
    if (CHECK_INT(hearth_session_position(s), n_a + n_b) && CHECK(want && got))
        CHECK_BYTES(got, want, TINY_VOCAB * sizeof *want);
    hearth_session_close(fresh);
}

static uint64_t n_step(const fixture *f) { return hth_gpu_count(f->model->gpu).n_step; }

static const size_t cuts[] = {1, 31, 32, 33, 63, 64, 65, 100, 128, 150};
enum { N_CUT = sizeof cuts / sizeof *cuts };

/* Calls fn on devices, for models with and without windows, whose pages are released or not, and with keys and values on the
 * host. */
static void for_all(void (*fn)(const fixture *f, bool release))
{
    static const char *const devices[] = {"null", "vulkan:0"};
    for (int i = 0; i < 6; i++) {
        fixture f;
        if (!open_models(&f, i % 2, devices[i / 2 % 2], 4 * LENGTH, i > 3)) continue;
        for (int release = 0; release <= i % 2; release++) fn(&f, release);
        close_models(&f);
    }
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

static void fork_everywhere(const fixture *f, bool release)
{
    for (size_t i = 0; i < N_CUT; i++) {
        hearth_session *a = open_on(f->model, release);
        feed(a, f->ids, cuts[i]);
        hearth_session *b = fork_of(a), *c = fork_of(b);
        CHECK(hth_session_has_cache(b) && hth_session_has_cache(c));
        expect(f, b, f->ids, cuts[i], NULL, 0);
        uint64_t before = n_step(f);
        feed(b, f->other, 20);
        feed(a, f->ids + cuts[i], 20);
        feed(c, f->other, 7);
        CHECK_INT(n_step(f) - before, 3 + 3 + 1); /* of 8 tokens: nothing is evaluated again */
        expect(f, a, f->ids, cuts[i] + 20, NULL, 0);
        hearth_session_close(a); /* the copies go on without it */
        feed(c, f->other + 7, 13);
        feed(b, f->other + 20, 3);
        expect(f, b, f->ids, cuts[i], f->other, 23);
        expect(f, c, f->ids, cuts[i], f->other, 20);
        hearth_session_close(b);
        hearth_session_close(c);
    }
}

TEST(a_copy_on_a_device_goes_on_without_evaluating_its_tokens_again) { for_all(fork_everywhere); }

static void truncate_everywhere(const fixture *f, bool release)
{
    hearth_session *a = open_on(f->model, release);
    feed(a, f->ids, N);
    for (size_t i = 0; i < N_CUT; i++) {
        hearth_session *b = fork_of(a);
        /* The first page that the next token sees must not be before that of the source; else all is computed again. */
        bool kept = !release || (cuts[i] >= WINDOW && (cuts[i] + 1 - WINDOW) / 32 >= (N + 1 - WINDOW) / 32);
        CHECK_OK(hearth_session_truncate(b, (uint32_t)cuts[i], err));
        uint64_t before = n_step(f);
        feed(b, f->other, 9);
        CHECK_INT(n_step(f) - before, 2 + (kept ? 0 : (cuts[i] + N_BATCH - 1) / N_BATCH));
        expect(f, b, f->ids, cuts[i], f->other, 9);
        hearth_session_close(b);
    }
    feed(a, f->other, 5);
    expect(f, a, f->ids, N, f->other, 5);
    hearth_session_close(a);
}

TEST(a_copy_on_a_device_is_cut_inside_shared_pages) { for_all(truncate_everywhere); }

/* The one that writes first is not the one whose tokens are needed longest. */
TEST(the_source_is_cut_and_written_while_its_copy_waits_to_be_copied)
{
    fixture f;
    if (!open_models(&f, false, "null", 4 * LENGTH, false)) return;
    for (int first = 0; first < 2; first++) {
        hearth_session *a = open_on(f.model, false);
        feed(a, f.ids, 50);
        hearth_session *b = fork_of(a);
        hearth_batch *batch = NULL;
        CHECK_OK(hearth_session_truncate(a, 35, err));
        CHECK_OK(hearth_batch_open(f.model, 64, 1, &batch, err));
        for (int i = 0; i < 2; i++) /* both in one step, in either order */
            CHECK_OK(hearth_batch_add(batch, i == first ? a : b, i == first ? f.other : f.ids + 50, 7, err));
        CHECK_OK(hearth_batch_run(batch, err));
        expect(&f, a, f.ids, 35, f.other, 7);
        expect(&f, b, f.ids, 57, NULL, 0);
        hearth_batch_close(batch);
        hearth_session_close(a), hearth_session_close(b);
    }
    close_models(&f);
}

/* ---- many sessions -------------------------------------------------------------------------------------------- */

typedef struct member {
    hearth_session *s; /* NULL: free */
    int32_t ids[LENGTH];
    uint32_t n;
} member;

static void check_member(const fixture *f, const member *m)
{
    if (m->n > 0) expect(f, m->s, m->ids, m->n, NULL, 0);
}

static void random_operation(const fixture *f, test_random *r, member *members, bool release)
{
    member *m = &members[test_random_below(r, MAX_SESSION)], *from = &members[test_random_below(r, MAX_SESSION)];
    uint32_t what = test_random_below(r, 6);
    if (!m->s && from->s && what < 4) {
        m->s = fork_of(from->s);
        memcpy(m->ids, from->ids, sizeof m->ids), m->n = from->n;
    } else if (!m->s) {
        const hearth_session_options o = {
            .n_ctx = LENGTH, .n_batch = HEARTH_BATCH_NONE, .release_window = release}; /* for batches */
        CHECK_OK(hearth_session_open(f->model, &o, &m->s, err));
        m->n = 0;
    } else if (what == 0) {
        hearth_session_close(m->s), m->s = NULL;
    } else if (what == 1) {
        uint32_t n = test_random_below(r, m->n + 1);
        CHECK_OK(hearth_session_truncate(m->s, n, err));
        m->n = n;
    }
}

/* A batch with new tokens of some of the sessions. */
static void random_batch(test_random *r, member *members, hearth_batch *b, bool *in_batch)
{
    for (uint32_t k = 0; k < 6; k++) {
        uint32_t i = test_random_below(r, MAX_SESSION), n = 1 + test_random_below(r, k < 3 ? 3 : 40);
        member *m = &members[i];
        if (!m->s || in_batch[i] || m->n + n > LENGTH) continue;
        for (uint32_t j = 0; j < n; j++) m->ids[m->n + j] = (int32_t)test_random_below(r, TINY_VOCAB);
        CHECK_OK(hearth_batch_add(b, m->s, m->ids + m->n, n, err));
        m->n += n, in_batch[i] = true;
    }
    CHECK_OK(hearth_batch_run(b, err));
}

/* refuses: now and then the device refuses a call, and the step is tried again. */
static void check_schedule(const char *device, bool windowed, int n_round, bool refuses)
{
    static member members[MAX_SESSION];
    fixture f;
    hearth_batch *b = NULL;
    test_random r = {77};
    if (!open_models(&f, windowed, device, MAX_SESSION * LENGTH, false)) return;
    CHECK_OK(hearth_batch_open(f.model, 256, 2, &b, err));
    for (int round = 0; round < n_round && test_n_failed() == 0; round++) {
        bool in_batch[MAX_SESSION] = {false};
        for (int i = 0; i < 8; i++) random_operation(&f, &r, members, windowed);
        if (refuses)
            hth_device_inject_fault(f.model->devices[0].device, 1 + test_random_below(&r, 8), HEARTH_ERROR_MEMORY);
        random_batch(&r, members, b, in_batch);
        if (refuses) hth_device_inject_fault(f.model->devices[0].device, 0, HEARTH_OK);
        for (uint32_t i = 0; i < MAX_SESSION; i++)
            if (in_batch[i] && (round % 8 == 0 || i % 4 == 0)) check_member(&f, &members[i]);
    }
    for (uint32_t i = 0; i < MAX_SESSION; i++)
        if (members[i].s && hearth_session_logits(members[i].s)) check_member(&f, &members[i]);
    CHECK(hth_engine_has_gpu(f.model));
    hearth_batch_close(b);
    for (int i = 0; i < MAX_SESSION; i++) hearth_session_close(members[i].s), members[i].s = NULL;
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        hth_kv_usage u = hth_kv_pool_usage(f.model->kv_pools[HEARTH_KV_F16], (hth_kv_class)c);
        CHECK_INT(u.n_used + u.n_reserved + u.n_page, 0);
    }
    close_models(&f);
}

TEST(random_schedules_of_64_sessions_on_a_device_give_the_bits_of_the_cpu)
{
    check_schedule("null", false, 150, false);
    check_schedule("null", true, 80, false);
    check_schedule("null", false, 80, true);
    check_schedule("vulkan:0", true, 40, false);
}

/* All pages of the device are in use, and their tables in one step. */
TEST(a_step_takes_the_tables_of_all_pages)
{
    enum { N_SESSION = 8 };
    fixture f;
    hearth_session *s[N_SESSION];
    hearth_batch *b = NULL;
    if (!open_models(&f, true, "null", N_SESSION * LENGTH, false)) return;
    s[0] = open_on(f.model, false);
    feed(s[0], f.ids, N);
    feed(s[0], f.other, N - 3);
    for (int i = 1; i < N_SESSION; i++) s[i] = fork_of(s[i - 1]);
    CHECK_OK(hearth_batch_open(f.model, 64, 1, &b, err));
    for (int i = 0; i < N_SESSION; i++) CHECK_OK(hearth_batch_add(b, s[i], f.ids + i, 3, err));
    CHECK_OK(hearth_batch_run(b, err));
    for (int i = 0; i < N_SESSION; i++) {
        int32_t ids[N];
        memcpy(ids, f.other, (N - 3) * sizeof *ids);
        memcpy(ids + N - 3, f.ids + i, 3 * sizeof *ids);
        expect(&f, s[i], f.ids, N, ids, N);
        hearth_session_close(s[i]);
    }
    hearth_batch_close(b);
    close_models(&f);
}

/* ---- threads ------------------------------------------------------------------------------------------------- */

typedef struct worker {
    const fixture *f;
    const hearth_session *source;
    uint64_t seed;
    bool same; /* all logits were as expected */
} worker;

static bool has_logits_of(const hearth_session *s, hearth_session *cpu, const int32_t *ids, size_t n)
{
    return hearth_session_truncate(cpu, 0, NULL) == HEARTH_OK && hearth_session_eval(cpu, ids, n, NULL) == HEARTH_OK &&
           memcmp(hearth_session_logits(s), hearth_session_logits(cpu), TINY_VOCAB * sizeof(float)) == 0;
}

/* Copies the source, cuts and steps the copy, and a copy of that one. */
static void *use_device(void *arg)
{
    worker *w = arg;
    test_random r = {w->seed};
    const hearth_session_options o = {.n_ctx = LENGTH, .n_batch = N_BATCH, .n_thread = 1};
    hearth_session *cpu = NULL;
    w->same = hearth_session_open(w->f->cpu, &o, &cpu, NULL) == HEARTH_OK;
    for (int i = 0; i < 40 && w->same; i++) {
        hearth_session *s[2] = {NULL, NULL};
        int32_t ids[2][N];
        size_t n = 1 + test_random_below(&r, 100);
        w->same = hearth_session_fork(w->source, &s[0], NULL) == HEARTH_OK &&
                  hearth_session_truncate(s[0], (uint32_t)n, NULL) == HEARTH_OK &&
                  hearth_session_fork(s[0], &s[1], NULL) == HEARTH_OK;
        for (int k = 0; k < 2 && w->same; k++) {
            size_t more = 1 + test_random_below(&r, 12);
            memcpy(ids[k], w->f->ids, n * sizeof *ids[k]);
            for (size_t j = 0; j < more; j++) ids[k][n + j] = (int32_t)test_random_below(&r, TINY_VOCAB);
            w->same = hearth_session_eval(s[k], ids[k] + n, more, NULL) == HEARTH_OK &&
                      has_logits_of(s[k], cpu, ids[k], n + more);
        }
        hearth_session_close(s[0]), hearth_session_close(s[1]);
    }
    hearth_session_close(cpu);
    return NULL;
}

static void use_in_threads(const char *device)
{
    enum { N_THREAD = 4 };
    fixture f;
    worker workers[N_THREAD];
    pthread_t threads[N_THREAD];
    if (!open_models(&f, false, device, (2 * N_THREAD + 1) * LENGTH, false)) return;
    hearth_session *source = open_on(f.model, false);
    feed(source, f.ids, 107);
    for (int i = 0; i < N_THREAD; i++) {
        workers[i] = (worker){.f = &f, .source = source, .seed = 5 + (uint64_t)i};
        CHECK_INT(pthread_create(&threads[i], NULL, use_device, &workers[i]), 0);
    }
    for (int i = 0; i < N_THREAD; i++) {
        CHECK_INT(pthread_join(threads[i], NULL), 0);
        CHECK(workers[i].same);
    }
    expect(&f, source, f.ids, 107, NULL, 0);
    hearth_session_close(source);
    close_models(&f);
}

TEST(threads_copy_and_cut_sessions_on_a_device) { use_in_threads("null"); }
TEST(threads_copy_and_cut_sessions_on_two_devices) { use_in_threads("null,null"); }

/* ---- devices that fail ---------------------------------------------------------------------------------------- */

/* Call n after the copy fails: one of its page, or of the step; a refusal is tried again. */
static void check_fault(uint64_t n, hearth_status status, bool other_first)
{
    fixture f;
    if (!open_models(&f, false, "null", 4 * LENGTH, false)) return;
    hearth_session *a = open_on(f.model, false);
    feed(a, f.ids, 50);
    hearth_session *b = fork_of(a);
    hth_device_inject_fault(f.model->devices[0].device, n, status);
    if (other_first) CHECK_OK(hearth_session_truncate(a, 40, err));
    feed(b, f.other, 10);
    feed(a, f.ids + (other_first ? 40 : 50), 20);
    expect(&f, b, f.ids, 50, f.other, 10);
    expect(&f, a, f.ids, other_first ? 60 : 70, NULL, 0);
    hearth_session *c = fork_of(b), *d = open_on(f.model, false);
    feed(c, f.other + 10, 3);
    feed(d, f.ids, 3);
    expect(&f, c, f.ids, 50, f.other, 13);
    expect(&f, d, f.ids, 3, NULL, 0);
    CHECK_INT(hth_engine_has_gpu(f.model), status != HEARTH_ERROR_DEVICE);
    hearth_session_close(a), hearth_session_close(b), hearth_session_close(c), hearth_session_close(d);
    close_models(&f);
}

TEST(copies_survive_a_device_that_fails_or_refuses_after_them)
{
    for (uint64_t n = 1; n <= 6; n++) {
        check_fault(n, HEARTH_ERROR_DEVICE, n % 2);
        check_fault(n, HEARTH_ERROR_MEMORY, n % 2 == 0);
    }
}

/* A lost device limits no session. */
TEST(sessions_of_any_size_open_after_the_loss_of_a_device)
{
    fixture f;
    hearth_session *more = NULL;
    hearth_error why;
    if (!open_models(&f, false, "null", 2 * LENGTH, false)) return;
    hearth_session *a = open_on(f.model, false), *b = open_on(f.model, false);
    CHECK_INT(hearth_session_fork(a, &more, &why), HEARTH_ERROR_MEMORY);
    CHECK(strstr(why.message, "no room for 320 positions beside other sessions") != NULL);
    feed(a, f.ids, 50);
    hth_device_inject_fault(f.model->devices[0].device, 1, HEARTH_ERROR_DEVICE);
    feed(b, f.ids, 9);
    more = fork_of(a);
    feed(more, f.other, 9);
    expect(&f, more, f.ids, 50, f.other, 9);
    expect(&f, b, f.ids, 9, NULL, 0);
    hearth_session_close(a), hearth_session_close(b), hearth_session_close(more);
    close_models(&f);
}

TEST(copies_and_files_survive_the_loss_of_a_device)
{
    const char *path = test_scratch("session");
    for (int i = 0, lost; i < 6; i++) { /* never, before the copy, after it */
        fixture f;
        lost = i % 3;
        if (!open_models(&f, false, "null", 4 * LENGTH, i > 2)) return;
        hearth_session *a = open_on(f.model, false), *c = open_on(f.model, false);
        feed(a, f.ids, 50);
        if (lost == 1) {
            hth_device_inject_fault(f.model->devices[0].device, 1, HEARTH_ERROR_DEVICE);
            feed(a, f.ids + 50, 1);
            CHECK_OK(hearth_session_truncate(a, 50, err));
        }
        hearth_session *b = fork_of(a);
        CHECK_OK(hearth_session_save(a, path, err));
        if (lost == 2) hth_device_inject_fault(f.model->devices[0].device, 1, HEARTH_ERROR_DEVICE);
        CHECK_OK(hearth_session_restore(c, path, err));
        feed(a, f.ids + 50, 10);
        feed(b, f.other, 10);
        feed(c, f.other + 3, 10);
        expect(&f, a, f.ids, 60, NULL, 0);
        expect(&f, b, f.ids, 50, f.other, 10);
        expect(&f, c, f.ids, 50, f.other + 3, 10);
        hearth_session_close(a), hearth_session_close(b), hearth_session_close(c);
        CHECK_INT(hth_device_state(f.model->devices[0].device).lost, lost > 0);
        close_models(&f);
    }
}

/* A copy of it waits for the same evaluation. */
TEST(a_cancelled_evaluation_keeps_the_tokens_of_a_restored_session)
{
    fixture f;
    const char *path = test_scratch("session");
    volatile int cancel = 0;
    if (!open_models(&f, false, "null", 4 * LENGTH, false)) return;
    hearth_session *s = open_on(f.model, false);
    feed(s, f.ids, 50);
    CHECK_OK(hearth_session_save(s, path, err));
    CHECK_OK(hearth_session_restore(s, path, err));
    f.model->cancel = &cancel;
    hearth_session *t = open_on(f.model, false);
    CHECK_OK(hearth_session_restore(t, path, err));
    CHECK(!hth_session_has_cache(t));
    cancel = 1;
    CHECK_INT(hearth_session_eval(t, f.other, 3, NULL), HEARTH_ERROR_CANCELLED);
    cancel = 0;
    CHECK_INT(hearth_session_position(t), 50);
    hearth_session *copy = fork_of(t);
    feed(t, f.other, 3);
    feed(copy, f.other + 1, 3);
    expect(&f, t, f.ids, 50, f.other, 3);
    expect(&f, copy, f.ids, 50, f.other + 1, 3);
    hearth_session_close(s), hearth_session_close(t), hearth_session_close(copy);
    close_models(&f);
}

/* The copy of a page is done although its step was cancelled; the source then overwrites what was copied. */
TEST(a_cancelled_step_leaves_the_copy_of_its_page)
{
    fixture f;
    volatile int cancel = 0;
    if (!open_models(&f, false, "null", 4 * LENGTH, false)) return;
    f.model->cancel = &cancel;
    hearth_session *a = open_on(f.model, false);
    feed(a, f.ids, 50);
    hearth_session *b = fork_of(a);
    cancel = 1;
    CHECK_INT(hearth_session_eval(b, f.other, 3, NULL), HEARTH_ERROR_CANCELLED);
    cancel = 0;
    CHECK_OK(hearth_session_truncate(a, 33, err));
    feed(a, f.other, 9);
    feed(b, f.other, 3);
    expect(&f, a, f.ids, 33, f.other, 9);
    expect(&f, b, f.ids, 50, f.other, 3);
    hearth_session_close(a), hearth_session_close(b);
    close_models(&f);
}
