/* Whole steps under Vulkan's validation layer, which also looks for reads and writes that nothing orders:
 * divided layers, streamed weights, with a share of the host's, submissions of one run each. A
 * driver that runs everything in turn, as lavapipe does, gives the right numbers without any order. That a
 * missing one is seen: device/test_device. */
#include "engine/engine.h"
#include "support/engine.h"
#include "support/device/hybrid.h"
#include "support/device/submissions.h"
#include "support/test.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { N_ID = 40, N_ROW = 16 };
#define DEVICE "vulkan:0"

typedef struct setting {
    const char *from;
    hth_placement_stream stream;
    hearth_selector selector;
    bool submitted;
    uint64_t n_work; /* of a submission; 0: as the device should do */
} setting;

static const setting settings[] = {
    {"bamboo", {0, 0}, HEARTH_SELECTOR_GATE, false, 0},
    {"opt", {0, 0}, HEARTH_SELECTOR_PREDICTOR, true, 300000},
    {"bamboo", {2, 0}, HEARTH_SELECTOR_DENSE, false, 0},
    {"opt", {2, 24}, HEARTH_SELECTOR_PREDICTOR, false, 0},
    {"bamboo", {2, 40}, HEARTH_SELECTOR_THRESHOLD, true, 1},
    {"bamboo", {0, 0}, HEARTH_SELECTOR_DENSE, false, 1},
};

/* ---- steps, in a process of their own -------------------------------------------------------------------
 */

static hearth_model *open_model(const setting *s, const char *path, const char *placement)
{
    const hearth_model_options o = {.n_thread = 2,
                                    .selector = s->selector,
                                    .gpu = {.device = DEVICE,
                                            .n_ctx = 2 * N_ID,
                                            .n_batch = N_ROW,
                                            .kv = HEARTH_KV_F16,
                                            .placement = placement}};
    if (s->n_work > 0 && !submissions_begin(DEVICE, 2, s->n_work)) return NULL;
    hearth_model *model = OPENED(hearth_model, path, &o);
    if (s->n_work > 0) submissions_end();
    return model;
}

static void run(const setting *s)
{
    int32_t ids[N_ID];
    uint32_t n_hot[2] = {512, 256};
    hth_placement p = {
        .n_layer = 2, .n_hot = n_hot, .head = true, .devices = {{.submit_on_demand = s->submitted, .streams = {s->stream}}}};
    const char *path = test_scratch("ordered.gguf"), *placement = test_scratch("ordered.placement");
    for (int i = 0; i < N_ID; i++) ids[i] = 1 + 7 * i % 280;
    if (!hybrid_pack_powerinfer(s->from, path) || !hybrid_write_placement(path, DEVICE, &p, placement))
        return;
    CLOSED(hearth_model) *model = open_model(s, path, placement);
    if (model) {
        free(engine_model_logits(
            model, &(engine_setting){.n_thread = 2, .n_batch = N_ID, .kv = HEARTH_KV_F16}, ids, N_ID));
        free(engine_model_logits(model, &(engine_setting){.n_thread = 2, .n_batch = 1, .kv = HEARTH_KV_F16}, ids, 3));
        hth_gpu_counts c = hth_gpu_count(model->gpu);
        CHECK((c.n_streamed > 0) == (s->stream.n_tok > 0) && (c.n_streamed_shared > 0) == (s->stream.cpu_share > 0));
    }
    remove(path), remove(placement); /* of a child of the test */
}

/* What the layer and the loader say goes to `log`. */
static void run_watched(const setting *s, const char *log)
{
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    setenv("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation", 1);
    setenv("VK_LAYER_ENABLES", "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT", 1);
    setenv("VK_LOADER_DEBUG", "layer", 1);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
    run(s);
    printf("all was run\n");
    fflush(stdout);
    _exit(0);
}

/* ---- what was said ---------------------------------------------------------------------- */

static void check(const setting *s)
{
    static const char *const wrong[] = {"SYNC-HAZARD", "Validation Error", "VUID-", "test_ordered.c:"};
    size_t n;
    int status;
    const char *log = test_scratch("ordered.log");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) run_watched(s, log);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    FREED char *said = test_read_file(log, &n);
    bool watched = said && strstr(said, "Insert instance layer \"VK_LAYER_KHRONOS_validation\"");
    if (!watched) test_skip("no validation layer, or no driver");
    for (size_t i = 0; watched && i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = strstr(said, wrong[i]);
        if (at)
            test_fail(__FILE__, __LINE__, "%s, from %u/%u: %.600s", s->from, s->stream.n_tok, s->stream.cpu_share,
                      at);
    }
    if (watched) CHECK(strstr(said, "all was run") != NULL);
}

TEST(shaders_of_a_step_are_separated_by_barriers)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) check(&settings[i]);
}
