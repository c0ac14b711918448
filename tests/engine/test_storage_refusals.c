/* Systems that refuse what reads weights fastest: io_uring, direct reads, locked memory, descriptors, threads. A line
 * says why, and the bits are those of the model in memory. */
#include "engine/engine.h"
#include "store/direct_io.h"
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- what the system refuses -------------------------------------------------------------------------- */

static bool refuses_direct_reads;
static _Atomic int n_thread_left = INT32_MAX; /* threads that can still be created */

int __real_hth_direct_open(int fd, uint32_t *align);
int __wrap_hth_direct_open(int fd, uint32_t *align);
int __wrap_hth_direct_open(int fd, uint32_t *align)
{
    if (!refuses_direct_reads) return __real_hth_direct_open(fd, align);
    errno = EINVAL;
    return -1;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
    return n_thread_left-- > 0 ? __real_pthread_create(thread, a, run, arg) : EAGAIN;
}

/* From now on, for this process, a system call fails. False: there are no filters here. */
static bool refuse(uint32_t call, uint32_t error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* ---- a model -------------------------------------------------------------------------------------------- */

static bool open_golden(golden *g, float **expected)
{
    *expected = golden_open_arch(g, "mixtral") ? golden_logits(g, HEARTH_KV_F32) : NULL;
    return *expected != NULL;
}

/* Whether a streamed model gives the bits of the one in memory; else a failed check. */
static bool has_bits(const golden *g, const hearth_model *model, const float *expected)
{
    const engine_setting setting = {.n_thread = 2, .n_batch = 7, .kv = HEARTH_KV_F32};
    FREED float *logits = model ? engine_model_logits(model, &setting, g->ids, g->n) : NULL;
    return CHECK(logits && memcmp(logits, expected, g->n_truth * sizeof *logits) == 0);
}

static void check_bits(const golden *g, const float *expected)
{
    CLOSED(hearth_model) *model = engine_open_streamed(g->model, "auto", 0, HEARTH_SELECTOR_AUTO);
    has_bits(g, model, expected);
}

/* ---- in a process of its own ------------------------------------------------------------------------------ */

typedef struct task {
    const golden *g;
    const float *expected;
    uint32_t call, error; /* what fails; 0: RLIMIT_MEMLOCK is 0 */
} task;

static char said[4000];
static void hear(void *user, hearth_log_level level, const char *line)
{
    (void)user, (void)level;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

static int n_said(const char *text)
{
    int n = 0;
    for (const char *at = said; (at = strstr(at, text)) != NULL; at++) n++;
    return n;
}

/* Without io_uring threads read, and one line says why; who wants io_uring alone is refused. */
static void run_without_uring(const task *t)
{
    hearth_model_options o = {.ram = 1, .io = "uring", .gpu = {.n_ctx = 64}};
    hearth_model *none = NULL;
    char why[200];
    if (!refuse(t->call, t->error)) _exit(77);
    hearth_log_set(hear, NULL);
    CLOSED(hearth_model) *model = engine_open_streamed(t->g->model, "auto", 0, HEARTH_SELECTOR_AUTO);
    if (!model) return;
    if (n_said("built without liburing") == 0) {
        snprintf(why, sizeof why, "io_uring is refused: %s", strerror((int)t->error));
        CHECK_INT(n_said(why), 1);
        CHECK_INT(n_said("reads are made by threads"), 1);
    }
    CHECK_TEXT(test_model_info(model).reader, "pread");
    has_bits(t->g, model, t->expected);
    hth_engine_set_store_memory(0);
    CHECK_FAILS(hearth_model_open(t->g->model, &o, &none, err), HEARTH_ERROR_UNSUPPORTED, "io_uring");
}

static void run_without_locked_memory(const task *t)
{
    setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0, 0});
    check_bits(t->g, t->expected);
}

/* Its exit status. */
static int run_apart(const task *t)
{
    int status = -1;
    fflush(NULL);
    pid_t id = fork();
    if (id == 0) {
        if (t->call > 0) run_without_uring(t);
        else run_without_locked_memory(t);
        fflush(NULL);
        _exit(test_n_failed() > 0);
    }
    waitpid(id, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(without_io_uring_threads_read_and_a_line_says_why)
{
    static const uint32_t calls[] = {SYS_io_uring_setup, SYS_io_uring_setup, SYS_io_uring_enter, 0},
                          errors[] = {EPERM, ENOSYS, EPERM, 0};
    CLEANUP(golden_close) golden g;
    FREED float *expected = NULL;
    if (!open_golden(&g, &expected)) return;
    for (int i = 0; i < 4; i++) {
        int status = run_apart(&(task){&g, expected, calls[i], errors[i]});
        if (status == 77) test_note("no seccomp filters here");
        else CHECK_INT(status, 0);
    }
}

/* ---- here ----------------------------------------------------------------------------------------------- */

TEST(without_direct_reads_the_page_cache_serves_and_a_line_says_so)
{
    CLEANUP(golden_close) golden g;
    FREED float *expected = NULL;
    if (!open_golden(&g, &expected)) return;
    test_log_start();
    refuses_direct_reads = true;
    check_bits(&g, expected);
    refuses_direct_reads = false;
    CHECK_INT(test_n_warning("mixtral.gguf: direct reads are refused (Invalid argument); they go through the page"), 1);
    test_log_stop();
}

/* With each number of descriptors a model opens with its bits, or a line tells what is missing. */
TEST(few_descriptors_are_enough_or_named)
{
    const hearth_model_options o = {.ram = 1, .n_thread = 2, .gpu = {.n_ctx = 64, .kv = HEARTH_KV_F32}};
    CLEANUP(golden_close) golden g;
    FREED float *expected = NULL;
    struct rlimit before;
    int n_open = 0, n_refused = 0;
    if (!open_golden(&g, &expected)) return;
    getrlimit(RLIMIT_NOFILE, &before);
    hth_engine_set_store_memory(0);
    for (rlim_t n = 3; n < 40; n++) {
        CLOSED(hearth_model) *model = NULL;
        hearth_error why = {0};
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){n, before.rlim_max});
        hearth_status st = hearth_model_open(g.model, &o, &model, &why);
        if (st == HEARTH_OK) n_open += has_bits(&g, model, expected);
        else n_refused++;
        setrlimit(RLIMIT_NOFILE, &before);
        if (st != HEARTH_OK) CHECK(strstr(why.message, "open files") && n_open == 0);
    }
    hth_engine_set_store_memory(UINT64_MAX);
    CHECK(n_open > 20 && n_refused > 0);
}

typedef struct session_thread {
    const golden *g;
    const hearth_model *model;
    const float *expected;
} session_thread;

static void *run_session(void *arg)
{
    const session_thread *t = arg;
    has_bits(t->g, t->model, t->expected);
    return NULL;
}

/* Of the threads of the disk, the reader and the sessions only some can be created, or none: sessions read then. */
TEST(with_few_threads_or_none_the_bits_are_the_same)
{
    static const char *const readers[] = {"auto", "pread"};
    CLEANUP(golden_close) golden g;
    FREED float *expected = NULL;
    if (!open_golden(&g, &expected)) return;
    for (int n = 0; n < 24; n++) {
        pthread_t threads[3];
        test_log_start();
        n_thread_left = n / 2;
        CLOSED(hearth_model) *model = engine_open_streamed(g.model, readers[n % 2], 0, HEARTH_SELECTOR_AUTO);
        session_thread t = {&g, model, expected};
        if (!model) continue;
        for (int i = 0; i < 3; i++) __real_pthread_create(&threads[i], NULL, run_session, &t);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
        if (n < 2) CHECK_INT(test_n_warning("the system created no thread that reads"), 1);
        test_log_stop();
    }
    n_thread_left = INT32_MAX;
}
