/* The dispatches of a token that plans count from the program, and those that a device records. */
#include "device/device_int.h"
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"
#include "support/models/golden.h"
#include "support/test.h"

static uint64_t n_recorded(const hth_gpu *g)
{
    const hth_gpu_segments *one = &g->segments[HTH_GPU_ONE];
    uint64_t n = 0;
    for (uint32_t i = 0; i < one->n; i++)
        for (size_t k = 0; k < one->segments[i].cmdlist->n_cmd; k++) {
            hth_cmd_kind kind = one->segments[i].cmdlist->cmds[k].kind;
            n += kind == HTH_CMD_DISPATCH || kind == HTH_CMD_DISPATCH_INDIRECT;
        }
    return n;
}

static uint64_t n_counted(const hth_gpu *g)
{
    const hth_program *p = g->model->program;
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->first_of_layer[g->model->hparams.n_layer]; i++)
        if (g->ops[i].is_on_device) n += hth_gpu_op_dispatches(g->model, &g->params, i);
    return n;
}

/* A value that only the host's operations read takes a dispatch that belongs to no operation of the device. */
static void check_home(const char *path, hearth_selector selector, const char *placement, bool host_kv)
{
    hearth_model_options o = hearth_model_defaults();
    o.n_thread = 2, o.selector = selector;
    o.gpu = (hearth_gpu_options){.device = "null", .n_ctx = 64, .n_batch = 8, .placement = placement, .host_kv = host_kv};
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open, hearth_model, path, &o);
    if (!model || !CHECK(model->gpu != NULL)) return;
    const hth_gpu *g = model->gpu;
    uint64_t recorded = n_recorded(g), counted = n_counted(g), n_crossing = g->crossings.n_run - 2;
    if (counted > recorded || recorded > counted + n_crossing)
        test_fail(__FILE__, __LINE__, "%s: %llu are recorded, %llu counted", path,
                  (unsigned long long)recorded, (unsigned long long)counted);
}

static void check(const char *path, hearth_selector selector, const char *placement)
{
    for (int i = 0; i < 2; i++) check_home(path, selector, placement, i);
}

TEST(float_models_take_as_many_as_are_counted)
{
    for (size_t i = 0; golden_arch(i); i++) {
        CLEANUP(golden_close) golden g;
        if (golden_open_arch(&g, golden_arch(i))) check(g.model, g.selector, "all");
    }
}

/* ---- keys and values on the host -------------------------------------------------------------------------- */

static uint64_t bytes_of(const hth_gpu *g, const uint32_t *values, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) bytes += hth_gpu_value_row(&g->model->program->values[values[i]]);
    return bytes;
}

/* What plans count of the layers, and what crosses before and behind the host's operations. Returns the trips. */
static uint32_t check_trips(const char *path, hearth_selector selector)
{
    hearth_model_options o = hearth_model_defaults();
    o.n_thread = 2, o.selector = selector;
    o.gpu = (hearth_gpu_options){.device = "null", .n_ctx = 64, .n_batch = 8, .host_kv = true};
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open, hearth_model, path, &o);
    const hth_gpu *g = model ? model->gpu : NULL;
    hth_gpu_kv_trips counted = {0}, made = {0};
    if (!g || g->params.end_layer < model->model->hparams.n_layer) return 0;
    for (uint32_t i = 0; i < g->params.end_layer; i++) {
        hth_gpu_kv_trips one = hth_gpu_kv_trips_of(g->model, &g->params, i);
        counted.n += one.n, counted.bytes += one.bytes;
    }
    for (uint32_t i = 0; i < g->crossings.n_run; i++) {
        const hth_gpu_host_run *run = &g->crossings.runs[i];
        if (run->first == run->end) continue;
        made.n++;
        made.bytes += bytes_of(g, run->to_host, run->n_to_host) + bytes_of(g, run->to_device, run->n_to_device);
    }
    if (made.n != counted.n || made.bytes != counted.bytes)
        test_fail(__FILE__, __LINE__, "%s: %u trips of %llu bytes, counted are %u of %llu", path, made.n,
                  (unsigned long long)made.bytes, counted.n, (unsigned long long)counted.bytes);
    return made.n;
}

TEST(trips_to_keys_and_values_are_as_many_as_are_counted)
{
    uint32_t n_model = 0;
    for (size_t i = 0; golden_arch(i); i++) {
        CLEANUP(golden_close) golden g;
        if (golden_open_arch(&g, golden_arch(i))) n_model += check_trips(g.model, g.selector) > 0;
    }
    CHECK(n_model > 60);
}

/* ---- types and selectors ---------------------------------------------------------------------------------- */

/* Inputs of products take one form, or two. */
TEST(quantised_models_take_as_many_as_are_counted)
{
    static const char *const names[] = {"llama-Q8_0", "llama-Q4_K", "gpt-oss-MXFP4", "mixture-Q4_K_M",
                                        "smallthinker-downt-Q4_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CLEANUP(golden_close) golden g;
        if (golden_open_quant_file(&g, names[i])) check(g.model, HEARTH_SELECTOR_DENSE, "all");
    }
}

/* Predictors score the neurons; masks divide gate from up. */
TEST(sparse_models_take_as_many_as_are_counted)
{
    static const char *const names[] = {"bamboo.f16", "bamboo.q4_0", "opt.q4_0", "falcon.q4_0"};
    static const hearth_selector selectors[] = {HEARTH_SELECTOR_DENSE, HEARTH_SELECTOR_GATE,
                                                HEARTH_SELECTOR_PREDICTOR};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[100];
        snprintf(name, sizeof name, "golden/powerinfer/%s.powerinfer.gguf", names[i]);
        const char *path = test_data(name);
        bool is_gated = i < 2;
        for (int k = 0; path && k < 3; k++)
            if (is_gated || selectors[k] != HEARTH_SELECTOR_GATE) check(path, selectors[k], NULL);
    }
}
