/* Processes with a model on a device, as the system treats them: stopped and continued in mid-token, where
 * no clock that ran meanwhile may lose the device; two on one device at once; one that is killed beside
 * another. The text stays that of the CPU. Each is this program again, which tells its parent every token. */
#include "convert/pack.h"
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"
#include "support/test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

enum { N_PROMPT = 12, MAX_TOKENS = 100, N_ARG = 6 };

/* What a process does. */
typedef struct task {
    const char *model, *device; /* NULL: the CPU */
    uint64_t vram, timeout_ns; /* 0: as it is */
    int n_token;
} task;

/* ---- in the process ----------------------------------------------------------------------------- */

static int32_t likeliest(const hearth_session *s, uint32_t n_vocab)
{
    const float *at = hearth_session_logits(s);
    int32_t best = 0;
    for (int32_t i = 1; at && (uint32_t)i < n_vocab; i++)
        if (at[i] > at[best]) best = i;
    return best;
}

/* Each token goes to out as it comes; false: something went wrong, and stderr says what. */
static bool tell(const task *t, FILE *out)
{
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *s = NULL;
    hearth_error err = {0};
    int32_t prompt[N_PROMPT];
    const hearth_model_options mo = {
        .n_thread = 1,
        .gpu = {.device = t->device, .vram = t->vram, .n_ctx = 128, .n_batch = 8, .kv = HEARTH_KV_F16}};
    const hearth_session_options so = {.n_ctx = 128, .n_batch = 8, .n_thread = 1, .kv = HEARTH_KV_F16};
    for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = 1 + 17 * i;
    hearth_status st = hearth_model_open(t->model, &mo, &model, &err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &s, &err);
    if (st == HEARTH_OK && t->device && t->timeout_ns > 0) model->gpu->timeout_ns = t->timeout_ns;
    if (st == HEARTH_OK) st = hearth_session_eval(s, prompt, N_PROMPT, &err);
    for (int i = 0; st == HEARTH_OK && i < t->n_token; i++) {
        int32_t id = likeliest(s, model->model->hparams.n_vocab);
        fprintf(out, "%d\n", id);
        fflush(out);
        st = hearth_session_eval(s, &id, 1, &err);
    }
    bool well = st == HEARTH_OK && (!t->device || hth_engine_has_gpu(model));
    if (!well) fprintf(stderr, "%s: %s\n", t->device, st == HEARTH_OK ? hth_engine_gpu_status(model) : err.message);
    return well;
}

/* ---- beside it ---------------------------------------------------------------------------------- */

typedef struct process {
    pid_t id;
    FILE *out; /* its tokens */
    int32_t said[MAX_TOKENS];
    int n_said;
} process;

static void start(process *p, const task *t)
{
    int ends[2];
    char vram[32], timeout[32], n_token[32];
    snprintf(vram, sizeof vram, "%llu", (unsigned long long)t->vram);
    snprintf(timeout, sizeof timeout, "%llu", (unsigned long long)t->timeout_ns);
    snprintf(n_token, sizeof n_token, "%d", t->n_token);
    if (pipe(ends) != 0) abort();
    *p = (process){.id = fork()};
    if (p->id == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "child", t->model, t->device, vram, timeout, n_token, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    p->out = fdopen(ends[0], "r");
    if (p->id < 0 || !p->out) abort();
}

/* Up to n tokens in all; fewer where it ended. */
static void hear(process *p, int n)
{
    while (p->n_said < n && fscanf(p->out, "%d", &p->said[p->n_said]) == 1) p->n_said++;
}

static int end(process *p)
{
    int status = -1;
    hear(p, MAX_TOKENS);
    fclose(p->out);
    waitpid(p->id, &status, 0);
    return status;
}

static void check_said(const process *p, const int32_t *expected, int n)
{
    if (CHECK_INT(p->n_said, n)) CHECK_BYTES(p->said, expected, (size_t)n * sizeof *expected);
}

/* What the CPU says. */
static void tell_on_cpu(const task *t, int32_t *expected)
{
    task on_cpu = *t;
    FREED char *text = NULL;
    size_t size = 0;
    on_cpu.device = NULL;
    FILE *out = open_memstream(&text, &size);
    if (!out) abort();
    CHECK(tell(&on_cpu, out));
    fclose(out);
    char *at = text;
    for (int i = 0; i < t->n_token; i++) expected[i] = (int32_t)strtol(at, &at, 10);
}

static void sleep_ms(uint32_t ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0) {
    }
}

static bool has_vulkan(void)
{
    hth_device *d = NULL;
    hearth_error why = {0};
    hearth_status st = hth_device_open(&(hth_device_spec){.name = "vulkan:0"}, &d, &why);
    hth_device_close(d);
    if (st != HEARTH_OK) test_skip("%s", why.message);
    return st == HEARTH_OK;
}

/* A packed storyteller; the caller removes it. */
static void pack_storyteller(char path[512])
{
    const hth_pack_options o = {.n_thread = 2};
    hth_pack_result r;
    snprintf(path, 512, "%s", test_scratch("processes.gguf"));
    CHECK_OK(hth_pack(STORYTELLER, path, &o, &r, err));
}

/* ---- stopped ------------------------------------------------------------------------------------ */

enum { N_STOP = 4, STOPPED_MS = 1200, PATIENCE_MS = 500 };

/* Stopped again and again, each time for longer than a device is waited for. */
static void stop_and_go(const char *device, uint64_t timeout_ns, int n_token)
{
    char path[512];
    int32_t expected[MAX_TOKENS];
    process p;
    test_random r = {3};
    pack_storyteller(path);
    const task t = {path, device, 6000000, timeout_ns, n_token};
    tell_on_cpu(&t, expected);
    start(&p, &t);
    for (int i = 0; i < N_STOP; i++) {
        hear(&p, (i + 1) * n_token / (N_STOP + 2));
        usleep(test_random_below(&r, 20000)); /* in the midst of some token */
        kill(p.id, SIGSTOP);
        sleep_ms(STOPPED_MS);
        kill(p.id, SIGCONT);
    }
    CHECK_INT(end(&p), 0);
    check_said(&p, expected, n_token);
    remove(path);
}

TEST(a_stopped_process_continues_its_text_on_the_null_device) { stop_and_go("null", 0, 96); }

/* A token takes a GPU of this rate some 70 ms. */
TEST(a_stopped_process_continues_its_text_on_a_simulated_gpu_with_a_real_clock)
{
    static const char slow[] =
        "name = slow\nvram_bytes = 1G\nbandwidth = 1e8\npcie_up = 1e9\npcie_down = 1e9\n"
        "pcie_latency_us = 2\ndispatch_us = 3\nsubmit_us = 20\nwake_us = 10\n"
        "flops = 1e12\njitter = 0\nseed = 1\nclock = real\n";
    char device[600];
    const char *sim_gpu = test_scratch("slow.sim");
    snprintf(device, sizeof device, "sim:%s", sim_gpu);
    CHECK(test_write_file(sim_gpu, slow, sizeof slow - 1));
    stop_and_go(device, (uint64_t)PATIENCE_MS * 1000000, 24);
}

TEST(a_stopped_process_continues_its_text_on_vulkan)
{
    if (has_vulkan()) stop_and_go("vulkan:0", (uint64_t)PATIENCE_MS * 1000000, 96);
}

/* ---- two on one device -------------------------------------------------------------------------- */

enum { N_TOKEN = 40 };

/* Two at once; where kill_at is not 0, the second is killed at that token. */
static void run_two(const task tasks[2], int32_t expected[2][MAX_TOKENS], int kill_at)
{
    process p[2];
    for (int i = 0; i < 2; i++) start(&p[i], &tasks[i]);
    if (kill_at > 0) {
        hear(&p[1], kill_at);
        CHECK_INT(p[1].n_said, kill_at);
        kill(p[1].id, SIGKILL);
        int status = end(&p[1]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(p[1].n_said < tasks[1].n_token);
    }
    CHECK_INT(end(&p[0]), 0);
    check_said(&p[0], expected[0], tasks[0].n_token);
    if (kill_at == 0) CHECK_INT(end(&p[1]), 0);
    if (kill_at == 0) check_said(&p[1], expected[1], tasks[1].n_token);
}

TEST(two_processes_on_one_device_have_their_texts_and_one_survives_the_other)
{
    static int32_t expected[2][MAX_TOKENS];
    char path[512];
    if (!has_vulkan()) return;
    pack_storyteller(path);
    const task tasks[2] = {{STORYTELLER, "vulkan:0", 0, 0, N_TOKEN}, {path, "vulkan:0", 6000000, 0, N_TOKEN}};
    for (int i = 0; i < 2; i++) tell_on_cpu(&tasks[i], expected[i]);
    const int n_times = test_is_long() ? 3 : 1;
    for (int i = 0; i < n_times; i++) run_two(tasks, expected, 0);
    for (int i = 0; i < n_times; i++) run_two(tasks, expected, 12 + 11 * i);
    /* The device is as usable as before. */
    run_two(tasks, expected, 0);
    remove(path);
}

int main(int argc, char **argv)
{
    if (argc != N_ARG || strcmp(argv[0], "child") != 0) return test_run_all(argc, argv);
    const task t = {argv[1], argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), atoi(argv[5])};
    return tell(&t, stdout) ? 0 : 1;
}
