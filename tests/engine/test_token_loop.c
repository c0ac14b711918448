/* The resident token loop allocates nothing, takes no lock and calls no system, the parking of idle threads
 * aside; with a device it allocates nothing. Counted in three ways: the library's own counter of allocations,
 * the functions of libc that this program's link diverts to itself (tests/CMakeLists.txt: --wrap), and the
 * system calls that strace sees between two marks. */
#include "base/alloc.h"
#include "convert/pack.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MODEL HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"
enum { N_TOKEN = 64, N_CTX = 128 };

/* ---- diverted functions ------------------------------------------------------------- */

static atomic_ulong n_lock, n_memory;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    atomic_fetch_add(&n_lock, 1);
    return __real_pthread_mutex_lock(mutex);
}

void *__wrap_malloc(size_t size)
{
    atomic_fetch_add(&n_memory, 1);
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    atomic_fetch_add(&n_memory, 1);
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    atomic_fetch_add(&n_memory, 1);
    return __real_realloc(p, size);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    atomic_fetch_add(&n_memory, 1);
    return __real_mmap(at, size, protection, flags, file, offset);
}

/* ---- the loop ------------------------------------------------------------------------ */

typedef struct speaker {
    const char *path, *device; /* NULL: MODEL, the CPU */
    uint64_t vram;
    hearth_model *model;
    hearth_session *session;
    hearth_sampler *sampler;
    hearth_detokenizer *decoder;
} speaker;

static bool speaker_open(speaker *s, uint32_t n_thread)
{
    hearth_error err = {0};
    hearth_session_options options = hearth_session_defaults();
    options.n_thread = n_thread;
    options.n_ctx = N_CTX;
    hearth_model_options opening = hearth_model_defaults();
    opening.gpu.device = s->device, opening.gpu.vram = s->vram;
    opening.gpu.n_ctx = N_CTX, opening.gpu.n_batch = 8;
    hearth_sampler_options sampling = test_sampler_options();
    sampling.repeat_penalty = 1.1f; /* so that the penalties' window is looked at too */
    int32_t *prompt = NULL;
    size_t n_prompt = 0;
    bool ok = hearth_model_open(s->path ? s->path : MODEL, &opening, &s->model, &err) == HEARTH_OK &&
              hearth_session_open(s->model, &options, &s->session, &err) == HEARTH_OK &&
              hearth_sampler_open(s->model, &sampling, &s->sampler, &err) == HEARTH_OK &&
              hearth_detokenizer_open(s->model, true, false, &s->decoder, &err) == HEARTH_OK &&
              hearth_tokenize(s->model, "Once upon a time", 16, HEARTH_ADD_SPECIAL, &prompt, &n_prompt,
                              &err) == HEARTH_OK &&
              hearth_session_eval(s->session, prompt, n_prompt, &err) == HEARTH_OK;
    for (size_t i = 0; ok && i < n_prompt; i++) hearth_sampler_accept(s->sampler, prompt[i]);
    hearth_free(prompt);
    if (!ok) test_fail(__FILE__, __LINE__, "%s", err.message);
    return ok;
}

static void speaker_close(speaker *s)
{
    hearth_detokenizer_close(s->decoder);
    hearth_sampler_close(s->sampler);
    hearth_session_close(s->session);
    hearth_model_close(s->model);
}

/* N_TOKEN tokens, each chosen, accepted, decoded and computed. */
static bool speak(speaker *s)
{
    hearth_error err = {0};
    for (int i = 0; i < N_TOKEN; i++) {
        int32_t id = 0;
        const char *text;
        size_t n;
        if (hearth_sampler_sample(s->sampler, hearth_session_logits(s->session), &id, &err) != HEARTH_OK)
            return false;
        hearth_sampler_accept(s->sampler, id);
        if (hearth_detokenizer_push(s->decoder, id, &text, &n, &err) != HEARTH_OK) return false;
        if (hearth_session_eval(s->session, &id, 1, &err) != HEARTH_OK) return false;
    }
    return true;
}

/* Checks that the loop allocates nothing; how many locks it takes. */
static unsigned long check_loop_of(speaker s, uint32_t n_thread)
{
    unsigned long locks = 0;
    if (speaker_open(&s, n_thread)) {
        uint64_t allocations = hth_alloc_count();
        unsigned long memory = atomic_load(&n_memory);
        locks = atomic_load(&n_lock);
        CHECK(speak(&s));
        locks = atomic_load(&n_lock) - locks;
        CHECK_INT(hth_alloc_count(), allocations);
        CHECK_INT(atomic_load(&n_memory), memory);
    }
    speaker_close(&s);
    return locks;
}

static unsigned long check_loop(uint32_t n_thread) { return check_loop_of((speaker){0}, n_thread); }

TEST(counters_see_allocations_and_locks)
{
    unsigned long memory = atomic_load(&n_memory), locks = atomic_load(&n_lock);
    uint64_t allocations = hth_alloc_count();
    speaker s = {0};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    speaker_open(&s, 2);
    speaker_close(&s);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    CHECK(hth_alloc_count() > allocations);
    CHECK(atomic_load(&n_memory) > memory);
    CHECK(atomic_load(&n_lock) > locks);
}

TEST(token_loop_allocates_and_locks_nothing) { CHECK_INT(check_loop(1), 0); }

TEST(token_loop_of_three_threads_allocates_and_locks_nothing) { CHECK_INT(check_loop(3), 0); }

/* ---- with a device ------------------------------------------------------------------- */

/* All of a model there, some layers of it, and some neurons of each layer; 0: all. */
static void check_device_loop(const char *device)
{
    static const uint64_t vram[] = {0, 3000000, 6000000};
    const hth_pack_options o = {.n_thread = 1};
    hth_pack_result r;
    hearth_model_info info = {0};
    const char *packed = test_scratch("loop.gguf");
    CHECK_OK(hth_pack(MODEL, packed, &o, &r, err));
    for (int i = 0; i < 3; i++) {
        CLEANUP(speaker_close) speaker s = {.path = i == 2 ? packed : NULL, .device = device, .vram = vram[i]};
        check_loop_of(s, (uint32_t)i + 1);
        if (speaker_open(&s, 1)) {
            hearth_model_get_info(s.model, &info);
            CHECK(info.gpu && (i == 1) == (info.gpu_n_layer < info.n_layer));
            CHECK((i == 2) == (info.gpu_neuron_share < 1.0));
        }
    }
}

TEST(token_loop_of_the_null_device_allocates_nothing) { check_device_loop("null"); }

TEST(token_loop_of_a_simulated_gpu_allocates_nothing)
{
    check_device_loop("sim:" HEARTH_SOURCE_DIR "/bench/devices/8gb.sim");
}

/* ---- traced ---------------------------------------------------------------------------- */

/* The child under strace: getppid marks the beginning and the end of the loop. "bad"
 * makes a call that must be found. */
static int run_traced(const char *how)
{
    speaker s = {0};
    bool ok = speaker_open(&s, how[0] == '3' ? 3 : 1);
    usleep(200000); /* the threads have begun, and sleep */
    syscall(SYS_getppid);
    ok = ok && speak(&s);
    if (strcmp(how, "bad") == 0) syscall(SYS_getuid);
    syscall(SYS_getppid);
    speaker_close(&s);
    return ok ? 0 : 1;
}

/* Name of the call in a line of strace -f ("123 futex(0x..."), or NULL for other
 * lines: signals, exits, and the ends of calls that began before. */
static char *call_of(char *line)
{
    char *name = line + strspn(line, "0123456789 ");
    size_t n = strcspn(name, "(");
    if (n == 0 || name[n] != '(' || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != n) return NULL;
    name[n] = '\0';
    return name;
}

/* What a pool may do to put idle threads to sleep and to wake them. */
static const char *const parking[] = {"futex", NULL};
static const char *const nothing[] = {NULL};

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

/* Calls between the marks other than those allowed, as a text; -1 without both marks. */
static int count_calls(char *trace, const char *const *allowed, char *found, size_t capacity)
{
    int n_mark = 0, n_call = 0;
    found[0] = '\0';
    for (char *save, *line = strtok_r(trace, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *name = call_of(line);
        if (!name) continue;
        if (strcmp(name, "getppid") == 0) n_mark++;
        else if (n_mark == 1 && !is_among(name, allowed)) {
            n_call++;
            snprintf(found + strlen(found), capacity - strlen(found), "%s ", name);
        }
    }
    return n_mark == 2 ? n_call : -1;
}

/* Runs this program under strace; its exit status (127: no strace), or -1. */
static int trace_self(const char *how, const char *out)
{
    char self[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return -1;
    self[n] = '\0';
    pid_t child = fork();
    if (child == 0) {
        setenv("HEARTH_TRACED_LOOP", how, 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* its leak check cannot run while traced */
        execlp("strace", "strace", "-f", "-o", out, "-e", "trace=all", self, (char *)NULL);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

/* Calls that are not allowed in the loop of a child; -1 when the case ended. */
static int traced_calls(const char *how, const char *const *allowed, char *found, size_t capacity)
{
#if defined(__SANITIZE_THREAD__)
    test_skip("the thread sanitizer makes system calls of its own");
    return -1;
#endif
    const char *out = test_scratch(how);
    int status = trace_self(how, out);
    FREED char *trace = test_read_file(out, NULL);
    unlink(out);
    int n = -1;
    if (status == 127) test_skip("no strace here");
    else if (trace && strstr(trace, "ENOEXEC")) test_skip("an emulated program cannot be traced");
    else if (!trace || !strstr(trace, "execve(")) test_skip("strace may not trace here");
    else if (status != 0) test_fail(__FILE__, __LINE__, "the traced program ended with %d", status);
    else if ((n = count_calls(trace, allowed, found, capacity)) < 0)
        test_fail(__FILE__, __LINE__, "marks are missing");
    return n;
}

TEST(trace_sees_a_system_call)
{
    char found[400];
    int n = traced_calls("bad", nothing, found, sizeof found);
    if (n >= 0) CHECK_TEXT(found, "getuid ");
}

TEST(token_loop_makes_no_system_call)
{
    char found[400];
    int n = traced_calls("1", nothing, found, sizeof found);
    if (n >= 0) CHECK_TEXT(found, "");
}

TEST(token_loop_of_three_threads_parks_and_nothing_else)
{
    char found[400];
    int n = traced_calls("3", parking, found, sizeof found);
    if (n >= 0) CHECK_TEXT(found, "");
}

int main(int argc, char **argv)
{
    const char *how = getenv("HEARTH_TRACED_LOOP");
    return how ? run_traced(how) : test_run_all(argc, argv);
}
