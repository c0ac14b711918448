/* GPUs that have less than they say, or do not answer: memory that is refused is asked for again with less,
 * three times at most, and a GPU that is late is lost. The text is that of the CPU, and a few lines say
 * what happened. */
#include "base/alloc.h"
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"
#include "support/test.h"

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

enum { N_ID = 12, N_CTX = 32, MAX_VOCAB = 4096 };

/* A virtual GPU of that rate with these lines more. */
static void write_sim_gpu(char device[600], const char *rate, const char *more)
{
    const char *path = test_scratch("short.sim");
    FILE *f = fopen(path, "w");
    if (!f) abort();
    fprintf(f,
            "name = short\nvram_bytes = 1G\nbandwidth = %s\npcie_up = 1e12\npcie_down = 1e12\n"
            "pcie_latency_us = 0\ndispatch_us = 0\nsubmit_us = 0\nwake_us = 0\nflops = 1e12\njitter = 0\n"
            "seed = 1\nclock = virtual\n%s",
            rate, more);
    fclose(f);
    snprintf(device, 600, "sim:%s", path);
}

/* The logits behind some tokens. device NULL: the CPU's. timeout_ns 0: as it is. Returns bytes on the device. */
static uint64_t run(const char *device, uint64_t timeout_ns, float logits[MAX_VOCAB])
{
    uint64_t used = 0;
    const hearth_model_options mo = {
        .n_thread = 1, .gpu = {.device = device, .n_ctx = N_CTX, .n_batch = 4, .kv = HEARTH_KV_F16}};
    const hearth_session_options so = {.n_ctx = N_CTX, .n_batch = 4, .n_thread = 1, .kv = HEARTH_KV_F16};
    test_log_start();
    CLOSED(hearth_model) *model = OPENED(hearth_model, STORYTELLER, &mo);
    CLOSED(hearth_session) *s = NULL; /* closed before its model */
    if (model) CHECK_OK(hearth_session_open(model, &so, &s, err));
    if (s && timeout_ns > 0) model->gpu->timeout_ns = timeout_ns;
    for (int32_t i = 0; s && i < N_ID; i++) CHECK_OK(hearth_session_eval(s, (const int32_t[]){1 + 13 * i}, 1, err));
    if (s && CHECK(hearth_session_logits(s) != NULL))
        memcpy(logits, hearth_session_logits(s), model->model->hparams.n_vocab * sizeof *logits);
    if (s && model->devices[0].device && hth_engine_has_gpu(model))
        used = hth_device_state(model->devices[0].device).used;
    test_log_stop();
    return used;
}

#define LESS "; less is placed there, evenly"
static float expected[MAX_VOCAB], got[MAX_VOCAB];

/* Calls [first, first + n) are refused memory. */
static uint64_t run_refused(int first, int n)
{
    char device[600], faults[64 * 32] = "";
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(faults + at, sizeof faults - at, "fault = %d:memory\n", first + i);
    write_sim_gpu(device, "1e12", faults);
    uint64_t used = run(device, 0, got);
    CHECK_BYTES(got, expected, sizeof got);
    return used;
}

TEST(refused_memory_is_requested_again_with_less_three_times_before_the_cpu_takes_over)
{
    run(NULL, 0, expected);
    uint64_t whole = run_refused(1, 0);
    CHECK(whole > 0 && test_n_warning("") == 0);
    /* Deep in the weights, once: what is placed then is nine tenths of what was there. */
    uint64_t less = run_refused(30, 1);
    CHECK(less > 0 && less < whole);
    CHECK(test_n_warning("") == 1 && test_n_warning(LESS) == 1);
    /* Whatever is asked for. */
    CHECK_INT(run_refused(1, 64), 0);
    CHECK(test_n_warning(LESS) == 3 && test_n_warning("; all of it runs on the CPU") == 1 && test_n_warning("") == 4);
}

TEST(a_gpu_that_does_not_answer_in_time_is_evicted_with_one_warning)
{
    char device[600];
    run(NULL, 0, expected);
    write_sim_gpu(device, "1e6", ""); /* a token takes it seconds of its clock */
    CHECK(run(device, 0, got) > 0 && test_n_warning("") == 0);
    CHECK_BYTES(got, expected, sizeof got);
    CHECK_INT(run(device, 1000000000, got), 0);
    CHECK(test_n_warning("") == 1 && test_n_warning("; continuing on the CPU") == 1);
    CHECK_BYTES(got, expected, sizeof got);
}
