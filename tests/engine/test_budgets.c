/* What a device may hold is bounded by --vram: for ten budgets from nothing to everything, drawn from a seed,
 * a plain model and a packed one on every kind of device give the text of the CPU with no byte above it; what
 * is too little is refused with the least that would do, and that least does. */
#include "base/alloc.h"
#include "convert/pack.h"
#include "engine/engine.h"
#include "support/engine.h"
#include "support/test.h"

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

enum { N_BUDGET = 10, N_ID = 7, N_CTX = 32, SEED = 20 };
static const int32_t ids[N_ID] = {1, 60, 70, 80, 90, 100, 61};
static const engine_setting setting = {.n_thread = 1, .n_batch = 4, .kv = HEARTH_KV_F16};

typedef struct subject {
    const char *path, *device;
    float *expected; /* [N_ID][n_vocab] the CPU's */
    size_t n_vocab;
    uint64_t all; /* bytes of the whole model there */
} subject;

static hearth_status open_model(const char *path, const char *device, uint64_t vram, hearth_model **model,
                                hearth_error *err)
{
    const hearth_model_options o = {
        .n_thread = 1,
        .selector = HEARTH_SELECTOR_DENSE,
        .gpu = {.device = device, .vram = vram, .n_ctx = N_CTX, .n_batch = 4, .kv = HEARTH_KV_F16}};
    return hearth_model_open(path, &o, model, err);
}

/* It lies there, has never had more than the budget, and gives the CPU's bits. Returns the most that it had.
 */
static uint64_t check_budget(const subject *s, uint64_t vram, hearth_model *model)
{
    if (!CHECK(model->gpu != NULL)) return 0;
    FREED float *logits = engine_model_logits(model, &setting, ids, N_ID);
    hth_device_usage usage = hth_device_state(model->devices[0].device);
    if (logits && memcmp(logits, s->expected, N_ID * s->n_vocab * sizeof *logits) != 0)
        test_fail(__FILE__, __LINE__, "%s: other bits with --vram %llu", s->device, (unsigned long long)vram);
    if (vram > 0 && (usage.peak > vram || usage.limit != vram))
        test_fail(__FILE__, __LINE__, "%s: %llu bytes of the %llu that are allowed", s->device,
                  (unsigned long long)usage.peak, (unsigned long long)vram);
    CHECK(usage.used > 0 && usage.used <= usage.peak);
    return usage.peak;
}

/* Refused: by the least that would do, rounded up, which is what it says. Returns what is too few. */
static uint64_t check_refusal(const subject *s, uint64_t vram, const hearth_error *why)
{
    hearth_model *model = NULL;
    hearth_error again = {0};
    uint64_t too_few, ignored, min = engine_bytes_behind(why->message, "the least is gpu.vram ", &too_few);
    uint64_t all = engine_bytes_behind(why->message, "all of it takes ", &ignored);
    CHECK_INT(why->status, HEARTH_ERROR_MEMORY);
    if (!(min > vram && min <= all))
        test_fail(__FILE__, __LINE__, "--vram %llu: %s", (unsigned long long)vram, why->message);
    CHECK(strstr(why->message, s->path) == why->message);
    CHECK_INT(open_model(s->path, s->device, too_few, &model, &again), HEARTH_ERROR_MEMORY);
    CHECK_INT(engine_bytes_behind(again.message, "the least is gpu.vram ", &ignored), min);
    CHECK_OK(open_model(s->path, s->device, min, &model, err));
    if (model) check_budget(s, min, model);
    hearth_model_close(model);
    CHECK_OK(open_model(s->path, s->device, all, &model, err));
    if (model && check_budget(s, all, model) > 0) {
        CHECK_INT(hth_gpu_get_params(model->gpu)->end_layer, model->model->hparams.n_layer);
        CHECK(hth_gpu_get_params(model->gpu)->head);
    }
    hearth_model_close(model);
    return too_few;
}

/* Everything there is, then ten budgets. */
static void check_budgets(subject *s, int n_budget)
{
    test_random r = {SEED};
    hearth_model *model = NULL;
    hearth_error why = {0};
    uint64_t held = hth_alloc_in_use(), too_few = 0;
    int n_open = 0;
    hearth_status st = open_model(s->path, s->device, 0, &model, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED) {
        test_skip("%s", why.message);
        return;
    }
    if (!CHECK_INT(st, HEARTH_OK)) return;
    s->all = check_budget(s, 0, model);
    hearth_model_close(model);
    for (int i = 0; i < n_budget; i++) {
        uint64_t vram = i == 0 ? 1 : i == 1 ? s->all : 1 + test_random_next(&r) % s->all;
        st = open_model(s->path, s->device, vram, &model, &why);
        n_open += st == HEARTH_OK;
        if (st == HEARTH_OK) check_budget(s, vram, model);
        hearth_model_close(model);
        if (st != HEARTH_OK) too_few = check_refusal(s, vram, &why);
        CHECK(st == HEARTH_OK ? vram > too_few : vram < s->all);
    }
    CHECK_INT(hth_alloc_in_use(), held);
    CHECK(n_open > 0 && n_open < n_budget);
    printf("     %s: %d of %d budgets of up to %llu bytes hold some, none of up to %llu\n", s->device, n_open,
           n_budget, (unsigned long long)s->all, (unsigned long long)too_few);
}

static void check_device(const char *device, bool packed, int n_budget)
{
    subject s = {.path = STORYTELLER, .device = device};
    if (packed) {
        const hth_pack_options o = {.n_thread = 2};
        hth_pack_result r;
        s.path = test_scratch("budgets.gguf");
        CHECK_OK(hth_pack(STORYTELLER, s.path, &o, &r, err));
    }
    hearth_model *model = OPENED_BY(open_model, hearth_model, s.path, NULL, 0);
    if (model) {
        s.n_vocab = (size_t)model->model->hparams.n_vocab;
        s.expected = engine_model_logits(model, &setting, ids, N_ID);
    }
    hearth_model_close(model);
    if (s.expected) check_budgets(&s, n_budget);
    free(s.expected);
    if (packed) remove(s.path);
}

#define SIM_GPU "sim:" HEARTH_SOURCE_DIR "/bench/devices/8gb.sim"

TEST(a_plain_model_keeps_every_budget_on_the_null_device) { check_device("null", false, N_BUDGET); }
TEST(a_packed_model_keeps_every_budget_on_the_null_device) { check_device("null", true, N_BUDGET); }
TEST(a_plain_model_keeps_every_budget_on_a_simulated_gpu) { check_device(SIM_GPU, false, N_BUDGET); }
TEST(a_packed_model_keeps_every_budget_on_a_simulated_gpu) { check_device(SIM_GPU, true, N_BUDGET); }
TEST(a_plain_model_keeps_budgets_on_vulkan) { check_device("vulkan:0", false, test_is_long() ? N_BUDGET : 4); }
TEST(a_packed_model_keeps_budgets_on_vulkan) { check_device("vulkan:0", true, test_is_long() ? N_BUDGET : 4); }
