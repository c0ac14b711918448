/* Threads of the library beside those of a program: they take none of its signals, have names, are pinned to cores of
 * their own. Two threads on one object, or a function within another one of it, are refused at once. */
#include "base/system/cpu_topology.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static gguf_bytes file;
static hearth_model *model;

/* Threads of the process before the library has any: the first one, and ThreadSanitizer's own. */
static int earlier[8];
static size_t n_earlier;

static bool is_earlier(int thread)
{
    for (size_t i = 0; i < n_earlier; i++)
        if (earlier[i] == thread) return true;
    return false;
}

static void *end_at_once(void *value) { return value; }

static void note_earlier_threads(void)
{
    pthread_t first; /* with the first thread of a program ThreadSanitizer starts its own */
    if (CHECK_INT(pthread_create(&first, NULL, end_at_once, NULL), 0)) pthread_join(first, NULL);
    DIR *tasks = opendir("/proc/self/task");
    n_earlier = 0;
    for (struct dirent *e; tasks && (e = readdir(tasks));)
        if (e->d_name[0] != '.' && n_earlier < sizeof earlier / sizeof *earlier) earlier[n_earlier++] = atoi(e->d_name);
    if (tasks) closedir(tasks);
}

static bool open_model(void)
{
    note_earlier_threads();
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    file = tiny_write(&m);
    hearth_error why;
    return CHECK_INT(hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, &model, &why), HEARTH_OK);
}

static void close_model(void)
{
    hearth_model_close(model);
    gguf_free(&file);
}

static __attribute__((constructor)) void share_model(void)
{
    test_before_each = open_model;
    test_after_each = close_model;
}

static hearth_session *open_session(uint32_t n_thread)
{
    hearth_session *s = NULL;
    const hearth_session_options o = {.n_ctx = 64, .n_thread = n_thread};
    CHECK_OK(hearth_session_open(model, &o, &s, err));
    return s;
}

/* ---- what the system says of threads ----------------------------------------------------------------------- */

/* Calls look with each thread that the process did not have before the test, and the value of a line of its status. */
static int for_each_thread(const char *line, void (*look)(const char *value, void *user), void *user)
{
    const size_t n_line = strlen(line);
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; tasks && (e = readdir(tasks));) {
        char path[300], text[300];
        if (e->d_name[0] == '.' || is_earlier(atoi(e->d_name))) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(text, sizeof text, f))
            if (strncmp(text, line, n_line) == 0) {
                text[strcspn(text, "\n")] = '\0';
                look(text + n_line + strspn(text + n_line, "\t "), user);
                n++;
            }
        if (f) fclose(f);
    }
    if (tasks) closedir(tasks);
    return n;
}

/* Counts threads that block signals 1 to 31, but those that cannot be blocked and those of the thread's own faults. */
static void count_blocked(const char *mask, void *user)
{
    static const int others[] = {SIGKILL, SIGSTOP, SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    uint32_t expected = 0x7fffffffu;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) expected &= ~(1u << (others[i] - 1));
    *(int *)user += ((uint32_t)strtoull(mask, NULL, 16) & 0x7fffffffu) == expected;
}

/* glibc blocks all signals while a thread begins. */
static int wait_for_blocked(int n_expected)
{
    int n = 0;
    for (int i = 0; i < 2000 && n != n_expected; i++) {
        if (i > 0) usleep(1000);
        n = 0;
        for_each_thread("SigBlk:", count_blocked, &n);
    }
    return n;
}

static void note_name(const char *name, void *user)
{
    unsigned i = 0;
    if (CHECK_INT(sscanf(name, "hearth-work-%u", &i), 1) && i < 8) *(uint32_t *)user |= 1u << i;
}

TEST(worker_threads_block_signals_of_others_and_have_names)
{
    uint32_t names = 0;
    CLOSED(hearth_session) *s = open_session(4);
    CHECK(s != NULL);
    CLOSED(hearth_batch) *b = NULL;
    CHECK_OK(hearth_batch_open(model, 8, 2, &b, err));
    CHECK_INT(wait_for_blocked(4), 4);
    CHECK_INT(for_each_thread("Name:", note_name, &names), 4);
    CHECK_INT(names, 1 << 1 | 1 << 2 | 1 << 3);
}

static volatile sig_atomic_t n_other, n_own;
static pthread_t program_thread;
static void count_signal(int number)
{
    (void)number;
    if (pthread_equal(pthread_self(), program_thread)) n_own++;
    else n_other++;
}

TEST(signals_of_the_process_come_to_its_own_threads)
{
    sigset_t set, before;
    const struct timespec limit = {.tv_sec = 5};
    CLOSED(hearth_session) *s = open_session(4);
    CHECK(s != NULL);
    program_thread = pthread_self();
    struct sigaction count = {.sa_handler = count_signal}, old;
    sigaction(SIGTERM, &count, &old);
    for (int i = 0; i < 20; i++) kill(getpid(), SIGTERM), usleep(1000);
    CHECK_INT(n_other, 0);
    CHECK(n_own > 0);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    n_own = 0;
    kill(getpid(), SIGTERM);
    usleep(20000);
    CHECK_INT(sigtimedwait(&set, NULL, &limit), SIGTERM);
    CHECK_INT(n_own + n_other, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGTERM, &old, NULL);
}

/* ---- pinning ----------------------------------------------------------------------------------------------- */

typedef struct pins {
    uint64_t taken[16]; /* CPUs to which one thread is pinned */
    uint32_t n, n_twice, n_free;
} pins;

static void note_pin(const char *list, void *user)
{
    pins *p = user;
    char *end;
    const unsigned long cpu = strtoul(list, &end, 10);
    if (*end != '\0') {
        p->n_free++;
        return;
    }
    p->n++;
    if (cpu >= 1024) return;
    if (p->taken[cpu / 64] >> cpu % 64 & 1) p->n_twice++;
    p->taken[cpu / 64] |= 1ull << cpu % 64;
}

static pins get_pins(void)
{
    pins p = {0};
    for_each_thread("Cpus_allowed_list:", note_pin, &p);
    return p;
}

TEST(no_two_workers_are_pinned_to_one_core)
{
    hth_cpu_topology cores;
    hth_cpu_topology_read(NULL, &cores);
    if (cores.n_core < 2) {
        test_skip("one core");
        return;
    }
    const uint32_t n_core = cores.n_core;
    for (int round = 0; round < 2; round++) { /* the second one finds the cores again */
        hearth_session *s[4];
        CLOSED(hearth_batch) *b = NULL;
        for (int i = 0; i < 4; i++) s[i] = open_session(2);
        CHECK_OK(hearth_batch_open(model, 8, n_core < 8 ? n_core : 8, &b, err));
        pins p = get_pins();
        const uint32_t n_worker = 4 + (n_core < 8 ? n_core : 8) - 1;
        CHECK_INT(p.n_twice, 0);
        CHECK_INT(p.n + p.n_free, n_worker);
        /* the thread that opens them may move to another core meanwhile, which is then left out too */
        CHECK(p.n >= 1 && p.n <= n_core && (p.n + 2 >= n_core || p.n == n_worker));
        for (int i = 0; i < 4; i++) hearth_session_close(s[i]);
        hearth_batch_unpin(b);
        p = get_pins();
        CHECK_INT(p.n, 0);
    }
}

TEST(no_pin_leaves_the_cores_to_others)
{
    hth_cpu_topology cores;
    hth_cpu_topology_read(NULL, &cores);
    if (cores.n_core < 2) {
        test_skip("one core");
        return;
    }
    const hearth_session_options so = {.n_ctx = 64, .n_thread = 2, .no_pin = true};
    const hearth_scheduler_options o = {.n_ctx = 64, .n_thread = 2, .no_pin = true};
    hearth_scheduler *scheduler = NULL;
    hearth_session *s = NULL;
    CHECK_OK(hearth_session_open(model, &so, &s, err));
    CHECK_OK(hearth_scheduler_open(model, &o, &scheduler, err));
    pins p = get_pins();
    CHECK_INT(p.n, 0);
    CHECK(p.n_free >= 2);
    hearth_session *pinned = open_session(2);
    p = get_pins();
    CHECK_INT(p.n, 1);
    hearth_session_close(pinned);
    hearth_scheduler_close(scheduler);
    hearth_session_close(s);
}

TEST(other_threads_take_the_cores_of_those_before)
{
    hth_cpu_topology cores;
    hth_cpu_topology_read(NULL, &cores);
    if (cores.n_core < 2) {
        test_skip("one core");
        return;
    }
    CLOSED(hearth_session) *s = open_session(2);
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, 8, 1);
    for (uint32_t n = 1; n <= 2; n++) {
        CHECK_OK(hearth_session_set_threads(s, n, err));
        CHECK_INT(get_pins().n, n - 1);
    }
    hearth_batch_unpin(b);
    CHECK_OK(hearth_batch_set_threads(b, 2, err)); /* no_pin stays */
    CHECK_INT(get_pins().n, 1);
    CHECK_INT(get_pins().n_free, 1);
}

/* ---- one thread at a time ---------------------------------------------------------------------------------- */

static const int32_t prompt[] = {1, 60, 70, 80, 90, 100};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

typedef struct shared_use {
    hearth_session *s;
    uint32_t n_ok, n_refused, n_other;
} shared_use;

static void count_status(shared_use *u, hearth_status st, const hearth_error *err)
{
    if (st == HEARTH_OK) u->n_ok++;
    else if (st == HEARTH_ERROR_ARGUMENT && strstr(err->message, "session is in use")) u->n_refused++;
    else if (st != HEARTH_ERROR_CONTEXT) u->n_other++;
}

static void *use_session(void *user)
{
    shared_use *u = user;
    hearth_error err;
    for (int i = 0; i < 300; i++) {
        count_status(u, hearth_session_truncate(u->s, 0, &err), &err);
        count_status(u, hearth_session_eval(u->s, prompt, N_PROMPT, &err), &err);
    }
    return NULL;
}

TEST(two_threads_on_a_session_are_refused_at_once)
{
    hearth_session *s = open_session(2);
    shared_use uses[2] = {{.s = s}, {.s = s}};
    pthread_t threads[2];
    alarm(60);
    for (int i = 0; i < 2; i++) CHECK_INT(pthread_create(&threads[i], NULL, use_session, &uses[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    alarm(0);
    CHECK(uses[0].n_ok + uses[1].n_ok > 0);
    CHECK_INT(uses[0].n_other + uses[1].n_other, 0);
    CHECK_OK(hearth_session_truncate(s, 0, err));
    CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err));
    hearth_session_close(s);
}

typedef struct inner_use {
    hearth_session *s, *other, *copy;
    hearth_batch *batch;
    hearth_answer *answer;
    uint32_t n;
} inner_use;

static hearth_status use_within(void *user, size_t i, const float *logits, hearth_error *outer)
{
    inner_use *u = user;
    (void)i, (void)logits, (void)outer;
    CHECK_FAILS(hearth_session_eval(u->s, prompt, 1, err), HEARTH_ERROR_ARGUMENT, "session is in use");
    CHECK_FAILS(hearth_session_eval_each(u->s, prompt, 1, NULL, NULL, err), HEARTH_ERROR_ARGUMENT,
                "session is in use");
    CHECK_FAILS(hearth_session_eval_hidden(u->s, prompt, 1, use_within, u, err), HEARTH_ERROR_ARGUMENT,
                "in use");
    CHECK_FAILS(hearth_session_truncate(u->s, 0, err), HEARTH_ERROR_ARGUMENT, "session is in use");
    CHECK_FAILS(hearth_session_fork(u->s, &u->copy, err), HEARTH_ERROR_ARGUMENT, "session is in use");
    CHECK_FAILS(hearth_session_save(u->s, "/nowhere", err), HEARTH_ERROR_ARGUMENT, "session is in use");
    CHECK_FAILS(hearth_session_restore(u->s, "/nowhere", err), HEARTH_ERROR_ARGUMENT, "session is in use");
    CHECK_FAILS(hearth_session_use_drafts(u->s, NULL, NULL, err), HEARTH_ERROR_ARGUMENT, "session is in use");
    CHECK_FAILS(hearth_batch_add(u->batch, u->s, prompt, 1, err), HEARTH_ERROR_ARGUMENT, "session is in use");
    u->n++;
    return HEARTH_OK;
}

TEST(functions_of_a_session_within_its_callback_are_refused)
{
    inner_use u = {.s = open_session(2)};
    CHECK_OK(hearth_batch_open(model, 8, 1, &u.batch, err));
    CHECK_OK(hearth_session_eval_each(u.s, prompt, N_PROMPT, use_within, &u, err));
    CHECK_INT(u.n, N_PROMPT);
    CHECK_INT(hearth_session_position(u.s), N_PROMPT);
    CHECK_OK(hearth_session_eval_hidden(u.s, prompt, 1, use_within, &u, err));
    CHECK_INT(u.n, N_PROMPT + 1);
    CHECK_OK(hearth_batch_add(u.batch, u.s, prompt, 2, err));
    CHECK_OK(hearth_batch_run(u.batch, err));
    hearth_batch_close(u.batch);
    hearth_session_close(u.s);
}

static void answer_within(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    inner_use *u = user;
    (void)kind, (void)text, (void)n;
    CHECK_FAILS(hearth_answer_push(u->answer, 3 + 'a', err), HEARTH_ERROR_ARGUMENT, "answer is in use");
    CHECK_FAILS(hearth_answer_finish(u->answer, err), HEARTH_ERROR_ARGUMENT, "answer is in use");
    u->n++;
}

TEST(functions_of_an_answer_within_its_callback_are_refused)
{
    inner_use u = {0};
    const hearth_answer_options o = {.fn = answer_within, .user = &u};
    CHECK_OK(hearth_answer_open(model, &o, &u.answer, err));
    CHECK_OK(hearth_answer_push(u.answer, 3 + 'a', err));
    CHECK_OK(hearth_answer_finish(u.answer, err));
    CHECK_INT(u.n, 1);
    hearth_answer_close(u.answer);
}

/* ---- cancelling -------------------------------------------------------------------------------------------- */

static hearth_session *to_cancel;
static void cancel_on_signal(int number)
{
    (void)number;
    hearth_session_cancel(to_cancel);
}

static hearth_status raise_signal(void *user, size_t i, const float *logits, hearth_error *err)
{
    (void)logits, (void)err;
    ++*(uint32_t *)user;
    if (i == 0) raise(SIGUSR1);
    return HEARTH_OK;
}

TEST(a_signal_handler_cancels_one_session)
{
    uint32_t n = 0;
    const hearth_session_options o = {.n_ctx = 64, .n_batch = 2, .n_thread = 2};
    hearth_session *s = NULL, *other = open_session(2);
    struct sigaction cancel = {.sa_handler = cancel_on_signal}, old;
    CHECK_OK(hearth_session_open(model, &o, &s, err));
    to_cancel = s;
    sigaction(SIGUSR1, &cancel, &old);
    CHECK_FAILS(hearth_session_eval_each(s, prompt, N_PROMPT, raise_signal, &n, err), HEARTH_ERROR_CANCELLED,
                "cancel");
    CHECK(n >= 1 && n < N_PROMPT);
    CHECK_INT(hearth_session_position(s), 0);
    CHECK_OK(hearth_session_eval(other, prompt, N_PROMPT, err));
    CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err)); /* it was cancelled once */
    CHECK_BYTES(hearth_session_logits(s), hearth_session_logits(other), TINY_VOCAB * sizeof(float));
    hearth_session_cancel(s); /* the next one */
    CHECK_FAILS(hearth_session_eval(s, prompt, 1, err), HEARTH_ERROR_CANCELLED, "cancel");
    CHECK_OK(hearth_session_eval(s, prompt, 1, err));
    sigaction(SIGUSR1, &old, NULL);
    hearth_session_close(s);
    hearth_session_close(other);
}

TEST(a_batch_is_cancelled_and_keeps_its_tokens)
{
    CLOSED(hearth_batch) *b = NULL;
    CLOSED(hearth_session) *s = open_session(1);
    CHECK_OK(hearth_batch_open(model, 8, 2, &b, err));
    CHECK_OK(hearth_batch_add(b, s, prompt, N_PROMPT, err));
    hearth_batch_cancel(b);
    CHECK_FAILS(hearth_batch_run(b, err), HEARTH_ERROR_CANCELLED, "cancel");
    CHECK_OK(hearth_batch_run(b, err));
    CHECK_INT(hearth_session_position(s), N_PROMPT);
}

typedef struct events {
    hearth_scheduler *scheduler;
    uint64_t ids[2];
    uint32_t n_token[2], n_cancelled[2];
} events;

/* The first request cancels the second one, whose function does not call the scheduler. */
static bool cancel_other(void *user, const hearth_request_event *event)
{
    events *e = user;
    if (event->state == HEARTH_REQUEST_CANCELLED) e->n_cancelled[0]++;
    if (event->state == HEARTH_REQUEST_TOKEN && e->n_token[0]++ == 1) {
        CHECK_FAILS(hearth_scheduler_step(e->scheduler, NULL, err), HEARTH_ERROR_ARGUMENT,
                    "scheduler is in use");
        CHECK(hearth_request_cancel(e->scheduler, e->ids[1]));
    }
    return true;
}

static bool count_second(void *user, const hearth_request_event *event)
{
    events *e = user;
    if (event->state == HEARTH_REQUEST_CANCELLED) e->n_cancelled[1]++;
    if (event->state == HEARTH_REQUEST_TOKEN) e->n_token[1]++;
    return true;
}

TEST(a_request_is_cancelled_within_a_step)
{
    events e = {0};
    bool more = true;
    const hearth_scheduler_options o = {.n_ctx = 64, .n_thread = 2, .draft.n_draft = HEARTH_DRAFT_NONE};
    hearth_request_fn *const fns[] = {cancel_other, count_second};
    CHECK_OK(hearth_scheduler_open(model, &o, &e.scheduler, err));
    for (int i = 0; i < 2; i++) {
        const hearth_request r = {.tokens = prompt,
                                  .n_token = N_PROMPT,
                                  .max_token = 8,
                                  .ignore_end = true,
                                  .fn = fns[i],
                                  .user = &e};
        CHECK_OK(hearth_scheduler_add(e.scheduler, &r, &e.ids[i], err));
    }
    for (int i = 0; i < 100 && more; i++) CHECK_OK(hearth_scheduler_step(e.scheduler, &more, err));
    CHECK(!more);
    CHECK_INT(e.n_token[0], 8);
    CHECK_INT(e.n_cancelled[0], 0);
    CHECK_INT(e.n_cancelled[1], 1);
    CHECK(e.n_token[1] <= 2);
    hearth_scheduler_close(e.scheduler);
}

TEST(a_step_ends_with_a_status_while_the_model_is_cancelled)
{
    static volatile int flag;
    events e = {0};
    bool more = false;
    hearth_model *cancelled = NULL;
    const hearth_model_options mo = {.cancel = &flag};
    const hearth_request r = {.tokens = prompt,
                              .n_token = N_PROMPT,
                              .max_token = 2,
                              .ignore_end = true,
                              .fn = count_second,
                              .user = &e};
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", &mo, &cancelled, err));
    CHECK_OK(hearth_scheduler_open(cancelled, NULL, &e.scheduler, err));
    CHECK_OK(hearth_scheduler_add(e.scheduler, &r, &e.ids[1], err));
    flag = 1;
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(hearth_scheduler_step(e.scheduler, &more, err), HEARTH_ERROR_CANCELLED, "cancel");
    CHECK(more);
    flag = 0;
    for (int i = 0; i < 20 && more; i++) CHECK_OK(hearth_scheduler_step(e.scheduler, &more, err));
    CHECK_INT(e.n_token[1], 2);
    hearth_scheduler_close(e.scheduler);
    hearth_model_close(cancelled);
}

/* ---- fork, jumps, small stacks ----------------------------------------------------------------------------- */

/* Opens a model of its own, and evaluates and constrains with it. */
static bool use_own_model(float *logits)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":"
                                 "{\"enum\":[1,\"b\",null]}}},\"required\":[\"a\"]}";
    hearth_error err;
    hearth_model *m = NULL;
    hearth_session *s = NULL;
    hearth_constraint *c = NULL;
    const hearth_session_options so = {.n_ctx = 64, .n_thread = 2};
    const hearth_constraint_options co = {
        .kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = schema, .n = sizeof schema - 1};
    bool ok = hearth_model_open_memory(file.data, file.n, "own.gguf", NULL, &m, &err) == HEARTH_OK &&
              hearth_session_open(m, &so, &s, &err) == HEARTH_OK &&
              hearth_session_eval(s, prompt, N_PROMPT, &err) == HEARTH_OK;
    if (ok) memcpy(logits, hearth_session_logits(s), TINY_VOCAB * sizeof *logits);
    hearth_status st = ok ? hearth_constraint_open(m, &co, &c, &err) : HEARTH_ERROR_ARGUMENT;
    float masked[TINY_VOCAB] = {0};
    if (st == HEARTH_OK) st = hearth_constraint_mask(c, masked, &err);
    hearth_constraint_close(c);
    hearth_session_close(s);
    hearth_model_close(m);
    return st == HEARTH_OK;
}

/* Not with a sanitizer, whose allocator a thread of the parent that is just beginning may have locked at the fork. */
TEST_IF(!test_is_sanitized(), a_child_process_may_open_a_model_of_its_own)
{
    float logits[TINY_VOCAB], own[TINY_VOCAB];
    hearth_session *s = open_session(3);
    CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err));
    memcpy(logits, hearth_session_logits(s), sizeof logits);
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        _exit(use_own_model(own) && memcmp(own, logits, sizeof own) == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_OK(hearth_session_eval(s, prompt, 1, err)); /* the parent goes on */
    hearth_session_close(s);
}

static jmp_buf outside;
static hearth_status jump(void *user, size_t i, const float *logits, hearth_error *err)
{
    (void)user, (void)logits, (void)err;
    if (i == 1) longjmp(outside, 1);
    return HEARTH_OK;
}

TEST(after_a_jump_out_of_a_callback_the_object_can_only_be_closed)
{
    hearth_session *volatile s = open_session(2);
    hearth_session *volatile other = open_session(2);
    hearth_error why;
    if (setjmp(outside) == 0) {
        (void)hearth_session_eval_each(s, prompt, N_PROMPT, jump, NULL, &why);
        test_fail(__FILE__, __LINE__, "no jump");
    }
    CHECK_FAILS(hearth_session_eval(s, prompt, 1, err), HEARTH_ERROR_ARGUMENT, "session is in use");
    hearth_session_close(s);
    CHECK_OK(hearth_session_eval(other, prompt, N_PROMPT, err));
    hearth_session_close(other);
}

static void *use_small_stack(void *logits) { return use_own_model(logits) ? logits : NULL; }

TEST(a_stack_of_256_kib_is_enough)
{
    enum { STACK = 256 << 10 };
    float logits[TINY_VOCAB];
    pthread_attr_t small;
    pthread_t thread;
    void *result = NULL;
    pthread_attr_init(&small);
    CHECK_INT(pthread_attr_setstacksize(&small, STACK), 0);
    if (CHECK_INT(pthread_create(&thread, &small, use_small_stack, logits), 0)) pthread_join(thread, &result);
    CHECK(result == logits);
    pthread_attr_destroy(&small);
}
