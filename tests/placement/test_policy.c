/* What of a model lies on a device: by plan, evenly, and what is kept of both between runs. The machine's
 * figures are made up and kept instead of measured ones: the null device is a fast GPU here. */
#include "base/alloc.h"
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"
#include "placement/plan_context.h"
#include "support/device/hybrid.h"
#include "support/models/golden.h"
#include "support/models/made_up.h"
#include "support/test.h"

/* A packed model, a device for it, and a cache directory of its own. */
typedef struct inputs {
    char path[512], cache[512];
    hth_gguf *file;
    hth_model *model;
    hth_kernels kernels;
    hth_device *device;
    hth_offload_params place;
    uint64_t fingerprint;
} inputs;

enum { N_THREAD = 2 };

static bool open_inputs(inputs *in, const char *device)
{
    hth_cpu level;
    *in = (inputs){.place = {.n_row = 8, .n_position = 32, .selector = HEARTH_SELECTOR_GATE}};
    snprintf(in->path, sizeof in->path, "%s", test_scratch("packed.gguf"));
    made_up_cache_open(in->cache);
    if (!hybrid_pack_storyteller("q4_0", in->path)) return false;
    const hth_device_spec spec = {.name = device, .shader_refs = hth_shader_ref_table};
    CHECK_OK(hth_gguf_open(in->path, &in->file, err));
    if (!in->file) return false;
    CHECK_OK(hth_model_open(in->file, &(hth_model_overrides){0}, &in->model, err));
    CHECK_OK(hth_device_open(&spec, &in->device, err));
    CHECK_OK(hth_cpu_choose(NULL, &level, err));
    hth_kernels_init(&in->kernels, level);
    if (!in->model || !in->device) return false;
    in->fingerprint = hth_calibration_fingerprint(hth_device_get_info(in->device), &in->kernels, N_THREAD);
    return true;
}

static void close_inputs(inputs *in)
{
    hth_device_close(in->device);
    hth_model_close(in->model);
    hth_gguf_close(in->file);
    remove(in->path);
    made_up_cache_close(in->cache);
}

static void measure_as(const inputs *in, double faster)
{
    hth_calibration c = made_up_gpu(in->model->layers[0].ffn.up.type, faster);
    hth_calibration_cache_store(in->fingerprint, &c);
}

static hearth_status open_builder(const inputs *in, hth_placement_builder *c, uint64_t budget, hearth_error *err)
{
    const hth_placement_part part = {
        .device = in->device, .info = hth_device_get_info(in->device), .params = in->place, .budget = budget};
    return hth_placement_builder_open(c, in->model, &part, 1, err);
}

/* What is planned in so many bytes; closed by the caller. */
static hth_placement_builder planned(const inputs *in, uint64_t budget)
{
    hth_placement_builder c = {0};
    CHECK_OK(open_builder(in, &c, budget, err));
    if (c.n_hot) CHECK_OK(hth_placement_builder_plan(&c, &in->kernels, N_THREAD, err));
    return c;
}

static uint64_t whole_bytes(const inputs *in)
{
    hth_placement_builder c = planned(in, UINT64_MAX);
    uint64_t bytes = hth_placement_builder_whole_bytes(&c);
    CHECK(c.parts[0].params.head && c.n_hot[0] == in->model->layers[0].ffn.d_ff);
    hth_placement_builder_close(&c);
    return bytes;
}

static bool is_same(const hth_placement_builder *a, const hth_placement_builder *b)
{
    const hth_offload_params *p = &a->parts[0].params, *q = &b->parts[0].params;
    return p->end_layer == q->end_layer && p->head == q->head &&
           memcmp(a->n_hot, b->n_hot, p->end_layer * sizeof *a->n_hot) == 0;
}

TEST(as_many_layers_as_requested_and_fitting_are_placed)
{
    inputs in;
    hth_placement_layers n;
    if (!open_inputs(&in, "null")) return;
    hth_placement_builder c = {0};
    CHECK_OK(open_builder(&in, &c, UINT64_MAX, err));
    uint32_t n_layer = in.model->hparams.n_layer;
    CHECK_OK(hth_placement_builder_layers(&c, &(hth_placement_layers){.n = 2}, err));
    CHECK(c.parts[0].params.end_layer == 2 && !c.parts[0].params.head && c.n_hot[1] == in.model->layers[1].ffn.d_ff);
    c.parts[0].budget = hth_placement_builder_bytes(&c, 0);
    CHECK_OK(hth_placement_builder_layers(&c, &(hth_placement_layers){.n = 3}, err));
    CHECK_INT(c.parts[0].params.end_layer, 2);
    c.parts[0].budget = UINT64_MAX;
    CHECK_OK(hth_placement_builder_layers(&c, &(hth_placement_layers){.n = n_layer}, err));
    CHECK(c.parts[0].params.end_layer == n_layer && !c.parts[0].params.head);
    CHECK_OK(hth_placement_builder_layers(&c, &(hth_placement_layers){.n = n_layer + 1}, err));
    CHECK(c.parts[0].params.end_layer == n_layer && c.parts[0].params.head);
    CHECK_OK(hth_placement_builder_layers(&c, &(hth_placement_layers){.n = 1}, err));
    hth_placement_uniform(&c); /* as after a refusal */
    CHECK(c.parts[0].params.end_layer == 1 && !c.parts[0].params.head);
    CHECK_OK(hth_placement_builder_layers(&c, &(hth_placement_layers){.n = 0}, err));
    CHECK_INT(c.parts[0].params.end_layer, 0);
    hth_placement_builder_close(&c);
    CHECK(hth_placement_arg_layers("layers:12", &n) && n.n == 12 && n.n_cpu_experts == 0);
    CHECK(hth_placement_arg_layers("layers:3,cpu-experts:2", &n) && n.n == 3 && n.n_cpu_experts == 2);
    CHECK(hth_placement_arg_layers("layers:3,cpu:a=CPU,b=CPU", &n) && n.n == 3 && strcmp(n.cpu, "a=CPU,b=CPU") == 0);
    CHECK(hth_placement_arg_layers("layers:99999999999999999999", &n) && n.n == UINT32_MAX);
    static const char *const none[] = {"layers:", "layers:1x", "layer", "layers:1,", "layers:1,cpu-experts:", "layers:1,cpu:", NULL};
    for (int i = 0; i < 7; i++) CHECK(!hth_placement_arg_layers(none[i], &n));
    close_inputs(&in);
}

TEST(a_plan_takes_what_gains_and_keeps_to_its_budget)
{
    inputs in;
    if (!open_inputs(&in, "null")) return;
    uint64_t whole = whole_bytes(&in);
    bool differs = false;
    measure_as(&in, 50.0);
    for (uint64_t share = 4; share < 10; share++) {
        hth_placement_builder c = planned(&in, whole * share / 10), even = {0};
        CHECK(hth_placement_builder_bytes(&c, 0) <= c.parts[0].budget);
        CHECK_OK(open_builder(&in, &even, c.parts[0].budget, err));
        hth_placement_uniform(&even);
        CHECK(hth_placement_builder_bytes(&even, 0) <= even.parts[0].budget);
        if (c.parts[0].params.end_layer > 0) {
            CHECK(c.seconds > 0.0 &&
                  c.parts[0].params.submit_mode == HTH_SUBMIT_ON_DEMAND); /* the quicker one, as made up */
            differs |= !is_same(&c, &even);
        }
        hth_placement_builder_close(&even);
        hth_placement_builder_close(&c);
    }
    CHECK(differs);
    close_inputs(&in);
}

TEST(a_plan_places_nothing_where_nothing_gains)
{
    inputs in;
    if (!open_inputs(&in, "null")) return;
    measure_as(&in, 0.01);
    hth_placement_builder c = planned(&in, whole_bytes(&in) / 2);
    CHECK_INT(c.parts[0].params.end_layer, 0);
    CHECK(c.unsupported_reason && strstr(c.unsupported_reason, "gains"));
    hth_placement_builder_close(&c);
    close_inputs(&in);
}

TEST(the_last_placement_is_taken_again_while_it_fits)
{
    inputs in;
    if (!open_inputs(&in, "null")) return;
    uint64_t budget = whole_bytes(&in) * 7 / 10;
    measure_as(&in, 50.0);
    hth_placement_builder first = planned(&in, budget);
    CHECK(first.parts[0].params.end_layer > 0);
    measure_as(&in, 0.01); /* whatever is measured since */
    hth_placement_builder again = planned(&in, budget + budget / 16),
                          less = planned(&in, hth_placement_builder_bytes(&first, 0) - 1),
                          more = planned(&in, budget + budget / 4);
    CHECK(is_same(&first, &again));
    CHECK_BYTES(&first.seconds, &again.seconds, sizeof first.seconds);
    CHECK_INT(less.parts[0].params.end_layer, 0); /* planned again, by what is measured now */
    CHECK_INT(more.parts[0].params.end_layer, 0);
    in.place.n_position = 64; /* another question */
    hth_placement_builder other = planned(&in, budget);
    CHECK_INT(other.parts[0].params.end_layer, 0);
    hth_placement_builder_close(&first);
    hth_placement_builder_close(&again);
    hth_placement_builder_close(&less);
    hth_placement_builder_close(&more);
    hth_placement_builder_close(&other);
    close_inputs(&in);
}

/* ---- submissions -------------------------------------------------------------------------------------- */

static uint64_t paced(const inputs *in, hth_placement_builder c)
{
    hth_placement_set_rates(&c, &in->kernels, N_THREAD);
    uint64_t max_work = c.parts[0].params.max_work;
    hth_placement_builder_close(&c);
    return max_work;
}

static hth_placement_builder placed_evenly(const inputs *in)
{
    hth_placement_builder c = {0};
    CHECK_OK(open_builder(in, &c, 3000000, err));
    if (c.n_hot) hth_placement_uniform(&c);
    return c;
}

TEST(submissions_are_what_the_device_was_measured_to_do_in_50_ms)
{
    inputs in;
    const uint64_t expected = 888888888; /* 1e10 bytes times tokens a second, of 18 bytes for 32 weights */
    if (!open_inputs(&in, "null")) return;
    CHECK_INT(paced(&in, placed_evenly(&in)), 0);
    measure_as(&in, 1.0);
    CHECK_INT(paced(&in, placed_evenly(&in)), expected);
    CHECK_INT(paced(&in, planned(&in, 3000000)), expected);
    const hth_calibration nothing = {.type = HTH_TYPE_Q4_0};
    hth_calibration_cache_store(in.fingerprint, &nothing);
    CHECK_INT(paced(&in, placed_evenly(&in)), 0);
    close_inputs(&in);
}

static uint64_t default_work(hth_device_kind kind)
{
    const hth_device_info info = {.kind = kind, .flops = 1e12};
    return hth_gpu_default_submit_work(&info);
}

TEST(where_nothing_was_measured_submissions_are_those_of_a_slow_device_of_the_kind)
{
    CHECK_INT(default_work(HTH_DEVICE_DISCRETE), 25000000000u);
    CHECK_INT(default_work(HTH_DEVICE_SIMULATED), 25000000000u); /* a product and a sum are two operations */
    CHECK_INT(default_work(HTH_DEVICE_INTEGRATED), 5000000000u);
    CHECK(default_work(HTH_DEVICE_CPU) < default_work(HTH_DEVICE_INTEGRATED));
    CHECK_INT(default_work(HTH_DEVICE_CPU), default_work(HTH_DEVICE_REF));
    CHECK_INT(hth_gpu_max_submit_work(0.0), 1); /* each run by itself */
}

TEST(auto_takes_an_integrated_gpu_only_if_it_was_measured_to_be_faster)
{
    enum { N = 4 };
    inputs in;
    hth_device_info infos[N] = {{.kind = HTH_DEVICE_CPU, .name = "a"},
                                {.kind = HTH_DEVICE_INTEGRATED, .name = "b"},
                                {.kind = HTH_DEVICE_INTEGRATED, .name = "c"},
                                {.kind = HTH_DEVICE_DISCRETE, .name = "d"}};
    if (!open_inputs(&in, "null")) return;
    const hth_type type = HTH_TYPE_Q4_0;
    hth_calibration slow = made_up_gpu(type, 1.1), fast = made_up_gpu(type, 2.0), slow_prompt = fast;
    slow_prompt.device_prompt = slow_prompt.cpu_prompt;
    uint64_t keys[N];
    for (size_t i = 0; i < N; i++) keys[i] = hth_calibration_fingerprint(&infos[i], &in.kernels, N_THREAD);
#define FOUND() hth_placement_find_integrated(infos, N, &in.kernels, N_THREAD, type)
    CHECK_INT(FOUND(), N); /* nothing was measured */
    hth_calibration_cache_store(keys[0], &fast);
    hth_calibration_cache_store(keys[3], &fast);
    hth_calibration_cache_store(keys[1], &slow);
    CHECK_INT(FOUND(), N);
    hth_calibration_cache_store(keys[1], &slow_prompt);
    CHECK_INT(FOUND(), N);
    hth_calibration_cache_store(keys[2], &fast);
    CHECK_INT(FOUND(), 2);
    hth_calibration_cache_store(keys[1], &fast);
    CHECK_INT(FOUND(), 1);
    snprintf(infos[1].unsupported_reason, sizeof infos[1].unsupported_reason, "its driver lacks something");
    CHECK_INT(FOUND(), 2);
    CHECK_INT(hth_placement_find_integrated(infos, N, &in.kernels, N_THREAD, HTH_TYPE_Q8_0), N);
#undef FOUND
    close_inputs(&in);
}

/* Floats too, whose rows lie in panels at some levels. */
TEST(the_cpu_is_timed_with_every_type_at_every_level)
{
    static const hth_type types[] = {HTH_TYPE_F32,  HTH_TYPE_F16,  HTH_TYPE_BF16, HTH_TYPE_Q8_0,
                                     HTH_TYPE_Q5_1, HTH_TYPE_Q3_K, HTH_TYPE_IQ4_XS, HTH_TYPE_MXFP4};
    hth_cpu highest;
    hth_pool *pool = OPENED(hth_pool, N_THREAD);
    CHECK_OK(hth_cpu_choose(NULL, &highest, err));
    for (int level = HTH_CPU_GENERIC; pool && level <= HTH_CPU_I8MM; level++)
        for (size_t i = 0; i < sizeof types / sizeof *types && hth_cpu_has(highest, (hth_cpu)level); i++) {
            hth_kernels k;
            hth_calibration c = {0};
            hth_kernels_init(&k, (hth_cpu)level);
            CHECK_OK(hth_calibrate_cpu(&k, pool, types[i], 1 << 20, &c, err));
            CHECK(c.cpu_rate.median > 0.0 && c.cpu_packed.median > 0.0 && c.cpu_down[0] > 0.0);
        }
    hth_pool_close(pool);
}

TEST(a_calibration_that_is_refused_a_call_leaves_nothing_on_the_device)
{
    const uint64_t stride = test_is_long() ? 1 : 23;
    inputs in;
    hth_calibration c;
    uint64_t n = 1;
    if (!open_inputs(&in, "sim:" HEARTH_SOURCE_DIR "/bench/devices/story.sim")) return;
    hth_pool *pool = OPENED(hth_pool, N_THREAD);
    for (hearth_status st = HEARTH_ERROR_MEMORY; st == HEARTH_ERROR_MEMORY && n < 5000; n += stride) {
        hearth_error why;
        hth_device_inject_fault(in.device, n, HEARTH_ERROR_MEMORY);
        st = hth_calibrate(in.device, &in.kernels, pool, HTH_TYPE_Q4_0, &c, &why);
        CHECK(st == HEARTH_OK || st == HEARTH_ERROR_MEMORY);
        if (!CHECK_INT(hth_device_state(in.device).used, 0)) break;
    }
    CHECK(n > 400 && n < 5000);
    hth_pool_close(pool);
    close_inputs(&in);
}

TEST(a_calibration_is_measured_once_and_by_type)
{
    inputs in;
    hth_calibration first = {0}, again = {0}, kept;
    if (!open_inputs(&in, "null")) return;
    hth_pool *pool = OPENED(hth_pool, N_THREAD);
    CHECK(!hth_calibration_cache_load(in.fingerprint, HTH_TYPE_Q4_0, 0, &kept));
    CHECK_OK(hth_calibration_cache_get(in.device, &in.kernels, pool, HTH_TYPE_Q4_0, false, &first, err));
    CHECK(first.device_rate.min > 0.0 && first.device_rate.min <= first.device_rate.median &&
          first.device_rate.median <= first.device_rate.max);
    CHECK(first.sync_latency[0] > 0.0 && first.sync_latency[0] <= first.sync_latency_99[0] &&
          first.h2d_rate > 0.0 && first.d2h_rate > 0.0);
    hth_calibration q8 = made_up_gpu(HTH_TYPE_Q8_0, 3.0);
    hth_calibration_cache_store(in.fingerprint, &q8);
    CHECK_OK(hth_calibration_cache_get(in.device, &in.kernels, pool, HTH_TYPE_Q4_0, false, &again, err));
    CHECK_BYTES(&first, &again, sizeof first);
    CHECK(hth_calibration_cache_load(in.fingerprint, HTH_TYPE_Q8_0, 0, &kept) && kept.device_rate.median > 2.9e9);
    CHECK(!hth_calibration_cache_load(in.fingerprint + 1, HTH_TYPE_Q8_0, 0, &kept));
    CHECK_OK(hth_calibration_cache_get(in.device, &in.kernels, pool, HTH_TYPE_Q8_0, true, &again, err));
    CHECK(again.device_rate.median != q8.device_rate.median && again.bytes < q8.bytes);
    CHECK(hth_calibration_cache_load(in.fingerprint, HTH_TYPE_Q8_0, again.bytes, &kept));
    CHECK_BYTES(&kept, &again, sizeof kept);
    hth_calibration_cache_evict_others(in.fingerprint, &again.type, 1);
    CHECK(hth_calibration_cache_load(in.fingerprint, HTH_TYPE_Q8_0, again.bytes, &kept));
    CHECK(!hth_calibration_cache_load(in.fingerprint, HTH_TYPE_Q4_0, 0, &kept));
    q8.dispatch = -1.0;
    hth_calibration_cache_store(in.fingerprint, &q8); /* no plan can be made of it */
    CHECK(!hth_calibration_cache_load(in.fingerprint, HTH_TYPE_Q8_0, 0, &kept));
    hth_pool_close(pool);
    close_inputs(&in);
}

/* What little memory was measured with may all have lain in caches. */
TEST(a_calibration_within_less_memory_is_replaced_by_one_within_more)
{
    inputs in;
    hth_calibration little = {0}, more = {0}, kept = {0};
    if (!open_inputs(&in, "null")) return;
    hth_pool *pool = OPENED(hth_pool, N_THREAD);
    const hth_device_spec spec = {.name = "null", .memory = 4 << 20, .shader_refs = hth_shader_ref_table};
    hth_device *small = OPENED(hth_device, &spec);
    if (small && pool) {
        CHECK_OK(hth_calibration_cache_get(small, &in.kernels, pool, HTH_TYPE_Q4_0, false, &little, err));
        CHECK_OK(hth_calibration_cache_get(in.device, &in.kernels, pool, HTH_TYPE_Q4_0, false, &more, err));
        CHECK(little.bytes <= (4 << 20) / 8 && more.bytes > little.bytes);
        CHECK_OK(hth_calibration_cache_get(small, &in.kernels, pool, HTH_TYPE_Q4_0, false, &kept, err));
        CHECK_BYTES(&kept, &more, sizeof kept);
    }
    hth_device_close(small);
    hth_pool_close(pool);
    close_inputs(&in);
}

/* Logits behind some ids, of a model placed so; NULL placement: on the CPU. They are `right`'s, if that is not
 * NULL; else that becomes them. */
static void check_bits(const inputs *in, const char *device, uint64_t vram, const char *placement,
                       float **right)
{
    static const int32_t ids[] = {1, 5, 9, 300, 7, 20, 33, 2};
    enum { N = sizeof ids / sizeof *ids };
    const hearth_session_options so = {.n_ctx = 32, .n_batch = 8, .n_thread = N_THREAD};
    hearth_model_options o = {.n_thread = N_THREAD, .selector = HEARTH_SELECTOR_GATE};
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    size_t size = in->model->hparams.n_vocab * sizeof **right;
    if (placement) o.gpu = (hearth_gpu_options){
            .device = device, .vram = vram, .n_ctx = 32, .n_batch = 8, .placement = placement};
    CHECK_OK(hearth_model_open(in->path, &o, &model, err));
    if (model) CHECK_OK(hearth_session_open(model, &so, &session, err));
    if (session) CHECK_OK(hearth_session_eval(session, ids, N, err));
    const float *logits = session ? hearth_session_logits(session) : NULL;
    if (!*right && logits) {
        if ((*right = malloc(size))) memcpy(*right, logits, size);
    } else if (*right && logits) {
        bool planned = strcmp(placement, "plan") == 0;
        CHECK_BYTES(logits, *right, size);
        CHECK(model->gpu != NULL && hth_device_state(model->devices[0].device).used <= vram);
        CHECK((model->gpu_seconds > 0.0) == planned);
        hth_gpu_counts c = hth_gpu_count(model->gpu);
        CHECK(c.n_split + c.n_streamed > 0);                                   /* layers are divided */
        if (strcmp(device, "null") == 0) CHECK((c.n_streamed > 0) == planned); /* 2 tokens would do */
    }
}

TEST(models_opened_by_plan_give_the_bits_of_the_cpu)
{
    inputs in;
    float *right = NULL;
    if (!open_inputs(&in, "null")) return;
    uint64_t vram = whole_bytes(&in) * 6 / 10;
    measure_as(&in, 50.0);
    check_bits(&in, NULL, 0, NULL, &right);
    check_bits(&in, "null", vram, "plan", &right);
    check_bits(&in, "null", vram, "even", &right);
    free(right);
    close_inputs(&in);
}

/* Really measured, on a GPU whose costs are nearly zero: what the measuring used of it is free again. */
TEST_LONG_IF_SANITIZED(models_opened_by_plan_are_measured_on_the_device_that_they_run_on)
{
    static const char sim_gpu[] =
        "name = quick\nvram_bytes = 1G\nbandwidth = 1e14\npcie_up = 1e12\npcie_down = 1e12\npcie_latency_us "
        "= 0\n"
        "dispatch_us = 0\nsubmit_us = 0\nwake_us = 0\nflops = 1e15\njitter = 0\nseed = 1\nclock = virtual\n";
    inputs in;
    float *right = NULL;
    char device[600];
    if (!open_inputs(&in, "null")) return;
    uint64_t vram = whole_bytes(&in) * 6 / 10;
    const char *path = test_scratch("quick.sim");
    snprintf(device, sizeof device, "sim:%s", path);
    CHECK(test_write_file(path, sim_gpu, sizeof sim_gpu - 1));
    check_bits(&in, NULL, 0, NULL, &right);
    check_bits(&in, device, vram, "plan", &right);
    free(right);
    close_inputs(&in);
}

/* A plan's handoff is that of a step: behind work, and without the time that a sleeping host takes to wake. */
TEST(a_handoff_is_measured_as_a_step_waits)
{
    static const char sim_gpu[] = "name = waits\nvram_bytes = 1G\nbandwidth = 1e11\npcie_up = 1e10\npcie_down = 1e10\n"
                                  "pcie_latency_us = 2\ndispatch_us = 3\nsubmit_us = 20\nwake_us = %d\nflops = 1e15\n"
                                  "jitter = 0\nseed = 1\nclock = virtual\nhost_bandwidth = 1e10\n";
    hth_calibration c[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        inputs in;
        char device[600], text[600];
        const char *path = test_scratch("waits.sim");
        snprintf(device, sizeof device, "sim:%s", path);
        int n = snprintf(text, sizeof text, sim_gpu, i * 400);
        CHECK(test_write_file(path, text, (size_t)n));
        if (!open_inputs(&in, device)) return;
        hth_pool *pool = OPENED(hth_pool, N_THREAD);
        CHECK_OK(hth_calibrate(in.device, &in.kernels, pool, HTH_TYPE_Q4_0, &c[i], err));
        hth_pool_close(pool);
        close_inputs(&in);
    }
    /* two messages: 2 us each, 16 KiB by 1e10; a submission 20 us */
    const double due[2] = {2 * (2e-6 + 16384 / 1e10), 2 * (2e-6 + 16384 / 1e10) + 20e-6}, exact = 0.5e-6;
    for (int how = 0; how < 2; how++)
        for (int i = 0; i < 2; i++)
            if (!(c[i].sync_latency[how] > due[how] - exact && c[i].sync_latency[how] < due[how] + exact))
                test_fail(__FILE__, __LINE__, "%g s, %g are due", c[i].sync_latency[how], due[how]);
}

/* Whether streams are so many, as said; others are none. */
static bool are(const hth_calibration *c, double hot, double cold, uint32_t max, uint32_t n,
                const hth_placement_stream *expected)
{
    hth_placement_stream all[HTH_PLACEMENT_STREAMS] = {{0}}, found[HTH_PLACEMENT_STREAMS];
    for (uint32_t i = 0; i < n; i++) all[i] = expected[i];
    const hth_stream_work w = {.hot = hot, .cold = cold};
    hth_calibration_stream_thresholds(c, &w, max, found);
    bool same = memcmp(all, found, sizeof all) == 0;
    for (uint32_t i = 0; !same && i < HTH_PLACEMENT_STREAMS; i++)
        printf("     from %u tokens %u parts\n", found[i].n_tok, found[i].cpu_share);
    return same;
}
#define ARE(c, hot, cold, most, ...)                                                                         \
    are(c, hot, cold, most, sizeof((hth_placement_stream[]){__VA_ARGS__}) / sizeof(hth_placement_stream),    \
        (hth_placement_stream[]){__VA_ARGS__})

/* By hand: to stage 1e9 bytes takes as long as their way, s seconds; n tokens n here, n / g there. */
TEST(weights_are_streamed_where_that_is_faster)
{
    hth_calibration c = {.device_prompt = 1e12, .cpu_prompt = 1e9, .pack_rate = 1e9, .h2d_rate = 1e10};
    CHECK(ARE(&c, 0.0, 1e9, 64, {2, 0})); /* 1 s, not 2 */
    c.h2d_rate = c.pack_rate = 1e8;
    CHECK(ARE(&c, 0.0, 1e9, 64, {11, 0})); /* 10 s, not 11 */
    c.device_prompt = 1e10;
    CHECK(ARE(&c, 1e9, 1e9, 64, {12, 0})); /* 1.2 s of what is there come before: 11.2, not 12 */
    CHECK(are(&c, 1e9, 1e9, 11, 0, NULL));
    c.device_prompt = 1e9;
    CHECK(
        ARE(&c, 0.0, 1e9, 64, {12, 18}, {17, 26}, {33, 29})); /* as quick as the CPU, so both do their half */
    c.h2d_rate = c.pack_rate = 1e7;
    CHECK(are(&c, 0.0, 1e9, 64, 0, NULL)); /* 100 s */
    c.device_prompt = 0.0;
    CHECK(are(&c, 0.0, 1e9, 64, 0, NULL)); /* unknown */
    CHECK(are(&c, 1e9, 0.0, 64, 0, NULL));
}

/* The way takes 10 s, to stage 1: of 64 tokens the host has time for 8 of 64 parts (8 s, and 0.9 for the
 * others, while those pass in 8.75), of 32 for 14 (7, 0.8, 7.8), of 16 for 23 (5.75, 0.64, 6.4), and then for 34 of
 * 8 (4.25, 0.5, 4.7) and less: of up to 5 it computes all sooner, or as soon but for a tenth. */
TEST(the_host_computes_its_share_where_the_way_is_slow)
{
    const hth_calibration c = {.device_prompt = 1e12, .cpu_prompt = 1e9, .pack_rate = 1e9, .h2d_rate = 1e8};
    CHECK(ARE(&c, 0.0, 1e9, 64, {6, 34}, {9, 23}, {17, 14}, {33, 8}));
}

/* The CPU reads what is chosen, 1 - 0.9^n of 1e9 bytes at 1e9 a second, or computes 1e8 n of them at 2e9; the link takes
 * 2 s, and the device less. From 40 tokens on the CPU takes longer. */
TEST(experts_are_streamed_where_that_is_faster)
{
    hth_calibration c = {.device_prompt = 1e12, .cpu_prompt = 2e9, .pack_rate = 1e9, .h2d_rate = 1e9, .read_rate = 5e8,
                         .cpu_rate = {.median = 1e9}};
    const hth_stream_work w = {.slots = 1e9, .missing = 1e9, .used = 0.1};
    hth_placement_stream found[HTH_PLACEMENT_STREAMS];
    hth_calibration_stream_thresholds(&c, &w, 512, found);
    CHECK(found[0].n_tok == 41 && found[0].cpu_share == 0 && found[1].n_tok == 0);
    c.cpu_prompt = 1e12; /* it reads all in a second, and needs less to compute */
    hth_calibration_stream_thresholds(&c, &w, 512, found);
    CHECK_INT(found[0].n_tok, 0);
    c.read_rate = 2e9; /* the link takes half a second: from seven tokens on the CPU reads more than that */
    hth_calibration_stream_thresholds(&c, &w, 512, found);
    CHECK_INT(found[0].n_tok, 7);
    c.read_rate = 0.0; /* no device reads it */
    hth_calibration_stream_thresholds(&c, &w, 512, found);
    CHECK_INT(found[0].n_tok, 0);
}

/* Values of a step of 4096 tokens take this much, with what passes through. */
static uint64_t bytes_of_most(const hth_model *m, const hth_placement_part *part)
{
    hth_offload_params p = part->params;
    uint64_t bytes = 0;
    p.n_row = 4096, p.end_layer = m->hparams.n_layer, p.head = true, p.streams[0].n_tok = 1;
    CHECK(hth_gpu_workspace_bytes(m, part->info->max_binding_size, &p, &bytes));
    return bytes;
}

TEST(steps_of_a_mixture_that_does_not_fit_take_a_sixteenth_of_the_device)
{
    CLEANUP(golden_close) golden g = {0};
    const hth_device_info gpu = {.max_binding_size = UINT64_MAX, .features = HTH_FEATURE_IMPORT}, other = {.features = 0};
    hth_placement_part part = {.info = &gpu, .params = {.n_position = 8192}};
    CLOSED(hearth_model) *model = golden_open_quant_file(&g, "mixture-Q4_K_M") ? OPENED(hearth_model, g.model, NULL) : NULL;
    if (!model) return;
    hth_model *m = model->model;
    uint64_t most = bytes_of_most(m, &part), size = m->weight_size;
    CHECK(size < most);
    part.budget = 16 * most;
    CHECK_INT(hth_placement_step_rows(m, &part, HEARTH_BATCH_AUTO, 8192), 256); /* it fits */
    m->weight_size = 16 * most + 1;
    CHECK_INT(hth_placement_step_rows(m, &part, HEARTH_BATCH_AUTO, 8192), 4096);
    CHECK_INT(hth_placement_step_rows(m, &part, HEARTH_BATCH_AUTO, 1000), 1000);
    CHECK_INT(hth_placement_step_rows(m, &part, 300, 8192), 300); /* asked for */
    part.budget--;
    CHECK_INT(hth_placement_step_rows(m, &part, HEARTH_BATCH_AUTO, 8192), 2048);
    part.budget = most;
    CHECK_INT(hth_placement_step_rows(m, &part, HEARTH_BATCH_AUTO, 8192), 256);
    part.budget = 16 * most, part.info = &other; /* cannot read the host's memory */
    CHECK_INT(hth_placement_step_rows(m, &part, HEARTH_BATCH_AUTO, 8192), 256);
    m->weight_size = size;
}

/* What a plan takes beside the best: the slow end of its range is slower, the fast end faster. */
TEST(a_plan_has_a_range_around_what_it_expects)
{
    inputs in;
    hth_plan_context o;
    if (!open_inputs(&in, "null")) return;
    measure_as(&in, 20.0);
    hth_placement_builder c = {0};
    uint64_t budget = whole_bytes(&in) / 2;
    hth_pool *pool = OPENED(hth_pool, N_THREAD);
    CHECK_OK(open_builder(&in, &c, budget, err));
    hearth_error err;
    CHECK_INT(hth_plan_context_build(&o, &c, NULL, &in.kernels, pool, &err), HEARTH_OK);
    CHECK(o.seconds_best < o.best.seconds && o.best.seconds < o.seconds_worst);
    CHECK(o.seconds_worst < 4.0 * o.seconds_best);
    hth_plan_context_close(&o);
    hth_placement_builder_close(&c);
    hth_pool_close(pool);
    close_inputs(&in);
}

/* The clusters of all layers on the device, planned for so many live sessions. */
static uint32_t planned_for(inputs *in, uint32_t n_live, uint64_t budget, hth_plan_context *o)
{
    hth_placement_builder c = {0};
    uint32_t n = 0;
    hth_pool *pool = OPENED(hth_pool, N_THREAD);
    in->place.n_session = n_live > 1 ? n_live + 1 : 0;
    CHECK_OK(open_builder(in, &c, budget, err));
    CHECK_OK(hth_plan_context_build(o, &c, NULL, &in->kernels, pool, err));
    for (uint32_t i = 0; i < o->best.n_device; i++) n += o->best.divisions[i].n_cluster[0];
    hth_placement_builder_close(&c);
    hth_pool_close(pool);
    return n;
}

/* A host that multiplies slowly computes fewer neurons for many sequences than for one. */
TEST(a_plan_is_made_for_live_sessions_and_expects_one)
{
    inputs in;
    hth_plan_context one, many;
    if (!open_inputs(&in, "null")) return;
    hth_calibration c = made_up_gpu(HTH_TYPE_Q4_0, 1.5);
    c.cpu_prompt = 2e9, c.device_prompt = c.device_prompts[0] = 1e11;
    hth_calibration_cache_store(in.fingerprint, &c);
    uint64_t budget = 2 * whole_bytes(&in);
    uint32_t n_one = planned_for(&in, 1, budget, &one), n_many = planned_for(&in, 16, budget, &many);
    CHECK(0 < n_one && n_one < n_many);
    CHECK(one.options.n_seq == 1 && many.options.n_seq == 16);
    CHECK(one.best.seconds < many.best.seconds && one.seconds_planned == one.seconds_by_seq[0]);
    CHECK(many.best.seconds == many.seconds_by_seq[0] && many.seconds_planned == many.seconds_by_seq[2]);
    CHECK(many.seconds_by_seq[2] < one.seconds_by_seq[2]);
    hth_plan_context_close(&one);
    hth_plan_context_close(&many);
    close_inputs(&in);
}

/* Bytes of states that a step of one token moves in a layer: DeltaNet's are read, those of state spaces are written too. */
static uint64_t moved_by(const hth_layer *l)
{
    const hth_ssm *n = &l->ssm;
    const hth_conv *c = l->mixer == HTH_MIXER_DELTA_NET ? &l->delta_net.conv : &n->conv;
    uint64_t taps = (uint64_t)c->d_conv * c->n_channel * sizeof(float);
    if (l->mixer == HTH_MIXER_DELTA_NET) return taps + l->state_sizes[HTH_STATE_CHUNK];
    return n->n_head == 0 ? taps
                          : taps + 2 * (uint64_t)n->n_head * n->d_state * 16 * hth_ssm_quads(n->n_inner / n->n_head);
}

/* A token moves the states of its session, and the device has copies of them for all. */
static void check_states(const char *path)
{
    const uint64_t max = UINT32_MAX;
    uint32_t n_hot[16] = {0};
    const hth_offload_params params = {.n_row = 8, .n_position = 64, .n_session = 3, .n_hot = n_hot};
    hth_gguf *file = OPENED_BY(hth_gguf_open, hth_gguf, test_data(path));
    hth_model *model = file ? OPENED_BY(hth_model_open, hth_model, file, &(hth_model_overrides){0}) : NULL;
    const hth_plan_source from = {.model = model, .params = &params, .max_binding_size = max};
    hth_plan_model plan = {0};
    uint64_t fixed, weights, cache;
    bool uniform;
    if (!model) return;
    CHECK_OK(hth_plan_model_open(&from, &plan, &fixed, &uniform, err));
    for (uint32_t i = 0; i < plan.n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        const hth_plan_layer *to = &plan.layers[i];
        CHECK(hth_gpu_layer_bytes(model, max, &params, i, l->ffn.d_ff, &weights) &&
              hth_gpu_cache_bytes(model, max, &params, i, &cache));
        CHECK_INT(to->attention_bytes, weights + moved_by(l));
        uint64_t all = weights + to->state_bytes + to->kv_bytes * params.n_position;
        CHECK(all <= weights + cache && all > weights + cache - params.n_position);
        CHECK(cache >= 3 * (uint64_t)HTH_N_STATE_COPY_ON_DEVICE * l->state_sizes[HTH_STATE_CHUNK]);
    }
    hth_plan_model_free(&plan);
    hth_model_close(model);
    hth_gguf_close(file);
}

TEST(states_of_recurrent_layers_take_the_memory_of_all_sessions_and_the_time_of_one)
{
    check_states("golden/arch/qwen35.gguf");
    check_states("golden/arch/mamba2.gguf");
}

/* Every token uses the last experts of a layer, which are in no slot at first. */
static void use_last_experts(void *user, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen)
{
    const hth_router *r = &((const hth_model *)user)->layers[i_layer].experts.router;
    for (uint32_t i = 0; i < r->n_used; i++) chosen[i] = r->n_expert - r->n_used + i;
}

/* A device ten times as fast as its host, behind a link of so many bytes per second. */
static hth_plan_machine slow_host(double link)
{
    return (hth_plan_machine){
        .n_home = 2,
        .homes = {{.kind = HTH_PLAN_DEVICE, .rates = {{1e9, 1e9, 1e9, 1e9}}, .read_rate = link},
                  {.kind = HTH_PLAN_HOST, .rates = {{1e8, 1e8, 1e8, 1e8}}}}};
}

/* Experts of a token that slots for half of the first layer's experts find, behind a link of so many bytes per second. */
static double expected_hits(const hth_model *model, double link)
{
    const hth_plan_machine machine = slow_host(link);
    uint32_t n_hot[16] = {0};
    const hth_offload_params params = {.n_row = 8, .n_position = 64, .n_session = 1, .n_hot = n_hot};
    const hth_plan_source from = {.model = model,
                                  .params = &params,
                                  .max_binding_size = UINT32_MAX,
                                  .uses = {use_last_experts, (void *)(uintptr_t)model, 1},
                                  .machine = &machine};
    hth_plan_model plan = {0};
    uint64_t fixed;
    bool uniform;
    double hits = 0.0;
    CHECK_OK(hth_plan_model_open(&from, &plan, &fixed, &uniform, err));
    for (uint32_t i = 0; plan.layers && i < plan.layers[0].n_cluster / 2; i++) hits += plan.layers[0].share[i];
    hth_plan_model_free(&plan);
    return hits;
}

TEST(a_plan_expects_in_slots_what_the_link_carries_in_the_time_of_its_tokens)
{
    CLEANUP(golden_close) golden g = {0};
    CLOSED(hearth_model) *opened = golden_open_quant_file(&g, "mixture-Q4_K_M") ? OPENED(hearth_model, g.model, NULL) : NULL;
    if (!opened) return;
    const hth_model *model = opened->model;
    double n_used = model->layers[0].experts.router.n_used;
    CHECK(expected_hits(model, 1.0) < 0.01 * n_used);
    CHECK(expected_hits(model, 1e9) > 0.99 * n_used);
}

TEST(a_device_has_states_for_no_more_sessions_than_a_binding_holds)
{
    const hth_device_spec spec = {.name = "null", .shader_refs = hth_shader_ref_table};
    CLOSED(hth_device) *device = OPENED(hth_device, &spec);
    hth_gguf *file = OPENED_BY(hth_gguf_open, hth_gguf, test_data("golden/arch/qwen35.gguf"));
    hth_model *model = file ? OPENED_BY(hth_model_open, hth_model, file, &(hth_model_overrides){0}) : NULL;
    const uint32_t wanted[] = {7, HTH_GPU_MAX_SESSION};
    for (int i = 0; model && i < 2; i++) {
        const hth_placement_part part = {.device = device,
                                         .info = hth_device_get_info(device),
                                         .params = {.n_row = 8, .n_position = 64, .n_session = wanted[i]},
                                         .budget = UINT64_MAX},
                                 parts[] = {part, part};
        hth_placement_builder c;
        uint64_t states = model->layers[0].state_sizes[HTH_STATE_CHUNK] * HTH_N_STATE_COPY_ON_DEVICE,
                 most = part.info->max_binding_size / states;
        CHECK_OK(hth_placement_builder_open(&c, model, parts, 2, err));
        for (int k = 0; k < 2; k++) CHECK_INT(c.parts[k].params.n_session, wanted[i] < most ? wanted[i] : most);
        CHECK(i == 0 || most < wanted[i]);
        hth_placement_builder_close(&c);
    }
    hth_model_close(model);
    hth_gguf_close(file);
}

/* The largest binding with which not all experts of a layer have slots; *most: how many have. */
static uint64_t small_binding(const hth_model *m, const hth_offload_params *p, uint32_t *most)
{
    uint64_t max = (uint64_t)1 << 30;
    const uint32_t n = hth_layer_n_unit(&m->layers[0]);
    do
        *most = hth_gpu_max_units(m, max /= 2, p, 0);
    while (*most == n);
    return max;
}

TEST(slots_are_as_many_as_bindings_hold_however_much_memory_there_is)
{
    const hth_device_spec spec = {.name = "null", .shader_refs = hth_shader_ref_table};
    CLOSED(hth_device) *device = OPENED(hth_device, &spec);
    hth_device_info info = *hth_device_get_info(device);
    hth_gguf *file = OPENED_BY(hth_gguf_open, hth_gguf, test_data("golden/arch/gemma4-moe.gguf"));
    hth_model *model = file ? OPENED_BY(hth_model_open, hth_model, file, &(hth_model_overrides){0}) : NULL;
    uint32_t n_hot[16] = {0}, most, n_expert = model ? hth_layer_n_unit(&model->layers[0]) : 0;
    const hth_offload_params params = {.n_row = 1, .n_position = 64, .n_session = 1, .n_hot = n_hot};
    hth_plan_model plan = {0};
    hth_placement_builder c;
    uint64_t fixed, bytes;
    bool uniform;
    if (!model) return;
    info.max_binding_size = small_binding(model, &params, &most);
    CHECK(most > 0 && hth_gpu_layer_bytes(model, info.max_binding_size, &params, 0, most, &bytes) &&
          !hth_gpu_layer_bytes(model, info.max_binding_size, &params, 0, most + 1, &bytes));
    const hth_placement_part part = {.device = device, .info = &info, .params = params, .budget = UINT64_MAX};
    CHECK_OK(hth_placement_builder_open(&c, model, &part, 1, err));
    hth_placement_uniform(&c);
    CHECK(hth_placement_builder_n_layer(&c) == model->hparams.n_layer && !hth_placement_builder_exceeds(&c));
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) CHECK(c.n_hot[i] > 0 && c.n_hot[i] <= most);
    hth_placement_builder_close(&c);
    const hth_plan_machine machine = slow_host(1e9);
    const hth_plan_source from = {
        .model = model, .params = &params, .max_binding_size = info.max_binding_size, .machine = &machine};
    CHECK_OK(hth_plan_model_open(&from, &plan, &fixed, &uniform, err));
    CHECK(plan.layers && plan.layers[0].n_beyond == n_expert - most && plan.layers[0].n_cluster == n_expert);
    hth_plan_model_free(&plan);
    hth_model_close(model);
    hth_gguf_close(file);
}
