/* Whole models on a device, null and the first that Vulkan knows. Quantised weights give the bits of the CPU
 * however a text is cut and however many layers lie there; floats come near, and are the same on both;
 * trained models tell their texts. What cannot be is refused with what would be possible. */
#include "convert/quantize.h"
#include "convert/synth.h"
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"
#include "support/models/golden.h"
#include "support/device/submissions.h"
#include "support/test.h"

#include <math.h>

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2 };

/* $HEARTH_GPU_BRIEF: one of many devices of the driver (test_gpu_devices.py). Only Vulkan's, and few single tokens. */
static bool is_brief(void) { return getenv("HEARTH_GPU_BRIEF") != NULL; }
static int first_device(void) { return is_brief() ? 1 : 0; }

static const char *const quants[] = {"Q8_0", "Q4_0", "Q4_1", "Q5_0",   "Q5_1",   "Q2_K", "Q3_K",
                                     "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
                                     "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M",
                                     "TQ1_0", "TQ2_0", "NVFP4"};
enum { N_QUANT = sizeof quants / sizeof *quants };

static const char *kv_name(hearth_kv_type kv)
{
    return kv == HEARTH_KV_F16 ? "f16" : kv == HEARTH_KV_F32 ? "f32" : "q8_0";
}

/* ---- matrix units of the null device ------------------------------------------------------------ */

static hth_coopmat_level null_units; /* NONE: it has none */

hearth_status __real_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err);
hearth_status __wrap_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err);

hearth_status __wrap_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err)
{
    hth_device_spec other = *spec;
    if (null_units > HTH_COOPMAT_NONE) other.coopmat = (hth_coopmat_shape){16, 16, 16};
    other.coopmat2 = null_units == HTH_COOPMAT_CM2;
    return __real_hth_device_open(&other, out, err);
}

/* ---- models on devices -------------------------------------------------------------------------- */

/* NULL after a failed check, or where there is no such device: the case is skipped then. */
static hearth_model *open_on(const char *path, const hearth_gpu_options *gpu, hearth_selector selector)
{
    hearth_model *model = NULL;
    hearth_error why = {0};
    hearth_model_options o = {.n_thread = 2, .selector = selector, .gpu = *gpu};
    hearth_status st = hearth_model_open(path, &o, &model, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED && strncmp(gpu->device, "vulkan", 6) == 0)
        test_skip("%s", why.message);
    else if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s on %s: %s", path, gpu->device, why.message);
    return model;
}

/* All of it lies there: what is compared then is the device's. */
static bool is_whole(const hearth_model *model)
{
    hearth_model_info info = test_model_info(model);
    return CHECK(info.gpu != NULL) && CHECK_INT(info.gpu_n_layer, info.n_layer) && CHECK(info.gpu_head);
}

static float *logits_of(const hearth_model *model, const golden *g, hearth_kv_type kv, uint32_t n_batch,
                        size_t n)
{
    const engine_setting s = {.n_thread = 2, .n_batch = n_batch, .kv = kv, .selector = g->selector};
    return engine_model_logits(model, &s, g->ids, n);
}

static float *logits_by(const hearth_model *model, const golden *g, hearth_kv_type kv, uint32_t n_batch)
{
    return logits_of(model, g, kv, n_batch, g->n);
}

/* Tokens of a golden text that are computed one by one: beyond the smallest window, which is 20. A driver on the CPU
 * takes as long for one as for many, so all of them are left to the null device and to $HEARTH_LONG. */
static size_t n_single(const golden *g, const char *device)
{
    enum { SOME = 24, FEW = 4 };
    if (is_brief()) return FEW;
    return strcmp(device, "null") == 0 || test_is_long() || g->n < SOME ? g->n : SOME;
}

/* Without the device the CPU goes on, which has the bits that are expected of quantised weights, and others than the
 * device of floats: a slow one is lost after hth_device_submit_timeout_ns. */
static void expect_device(const hearth_model *model, const char *path, const char *what)
{
    hearth_model_info info = test_model_info(model);
    if (!info.gpu || info.gpu_note[0])
        test_fail(__FILE__, __LINE__, "%s on %s: the device was lost, or less is on it: %s", path, what,
                  info.gpu_note);
}

static void expect_bits(const hearth_model *model, const golden *g, hearth_kv_type kv, uint32_t n_batch,
                        const float *expected, const char *what)
{
    size_t n = n_batch == 1 ? n_single(g, what) : g->n;
    FREED float *logits = logits_of(model, g, kv, n_batch, n);
    if (logits && memcmp(logits, expected, n * (g->n_truth / g->n) * sizeof *logits) != 0)
        test_fail(__FILE__, __LINE__, "%s on %s: other bits with batch %u, kv %s", g->model, what, n_batch,
                  kv_name(kv));
    expect_device(model, g->model, what);
}

static hearth_gpu_options options_of(const char *device, const golden *g, hearth_kv_type kv)
{
    return (hearth_gpu_options){.device = device, .n_ctx = (uint32_t)g->n, .kv = kv};
}

/* ---- quantised weights -------------------------------------------------------------------------- */

/* As one prompt, token by token, in pieces of 3; the device in pieces of its own. */
static void check_bits(const golden *g, const char *device, hearth_kv_type kv, const float *expected)
{
    hearth_gpu_options gpu = options_of(device, g, kv);
    CLOSED(hearth_model) *model = open_on(g->model, &gpu, g->selector);
    if (!model) return;
    if (is_whole(model)) engine_check_bit_exact(model);
    expect_bits(model, g, kv, 256, expected, device);
    expect_bits(model, g, kv, 1, expected, device);
    if (!is_brief()) expect_bits(model, g, kv, 3, expected, device);
}

static bool has_blocks(const golden *g, hearth_kv_type kv)
{
    hearth_model_info info = {0};
    hearth_model *model = OPENED(hearth_model, g->model, NULL);
    if (model) hearth_model_get_info(model, &info);
    hearth_model_close(model);
    return kv != HEARTH_KV_Q8_0 || info.d_head % 32 == 0;
}

/* A driver on the CPU compiles for seconds a type. forward/gpu_rows proves the shaders of all types there. */
static bool is_type_for_vulkan(const char *quant)
{
    static const char *const names[] = {"Q4_0", "Q5_1", "Q3_K", "Q4_K", "IQ4_XS", "IQ2_S"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], quant) == 0) return true;
    return test_is_long() || is_brief();
}

/* Types of cache turn from file to file where a device takes long. */
static void check_quants(const char *device, bool every)
{
    int n_rounded = 0;
    for (int i = 0; i < N_QUANT; i++) {
        if (!every && !is_type_for_vulkan(quants[i])) continue;
        golden g;
        if (!golden_open_quant(&g, quants[i])) {
            golden_close(&g);
            continue;
        }
        for (int k = 0; k < 3; k++) {
            hearth_kv_type kv = (hearth_kv_type)k;
            if (!has_blocks(&g, kv) || !(every || (i + 2) % 3 == k)) continue;
            FREED float *expected = golden_logits(&g, kv);
            if (expected) check_bits(&g, device, kv, expected);
            n_rounded += kv == HEARTH_KV_Q8_0;
        }
        golden_close(&g);
    }
    printf("     %s: %d of them with a cache of q8_0\n", device, n_rounded);
}

TEST(quantised_models_have_the_bits_of_the_cpu_on_the_null_device) { check_quants("null", true); }
TEST(quantised_models_have_the_bits_of_the_cpu_on_vulkan) { check_quants("vulkan:0", test_is_long()); }

/* ---- floats ------------------------------------------------------------------------------------- */

static const double NEAR = 2e-4;

/* On null near the CPU, the same token by token, and the same on the first n_device devices. */
static void check_near(const golden *g, int n_device)
{
    const hearth_kv_type kv = HEARTH_KV_F32;
    float *cpu = golden_logits(g, kv), *null = NULL;
    for (int i = 0; cpu && i < n_device; i++) {
        hearth_gpu_options gpu = options_of(devices[i], g, kv);
        CLOSED(hearth_model) *model = open_on(g->model, &gpu, g->selector);
        if (!model) continue;
        is_whole(model);
        if (!null) {
            null = logits_by(model, g, kv, 256);
            double error = null ? engine_max_error(null, cpu, g->n_truth) : 1.0;
            if (!(error <= NEAR))
                test_fail(__FILE__, __LINE__, "%s: error %g on %s, allowed %g", g->model, error, devices[i],
                          NEAR);
        } else {
            expect_bits(model, g, kv, 256, null, devices[i]);
        }
        if (null) expect_bits(model, g, kv, 1, null, devices[i]);
    }
    free(cpu);
    free(null);
}

/* Vulkan's driver on the CPU compiles for seconds a model: the short suite has those there that differ most in the
 * shaders they run, $HEARTH_LONG all. */
static bool is_for_vulkan(const char *name)
{
    static const char *const names[] = {"llama-bias", "gemma2", "falcon-two-norms", "opt", "olmo2", "talkie",
                                        "bailingmoe2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return test_is_long();
}

TEST(float_models_are_near_the_cpu_and_the_same_on_all_devices)
{
    for (size_t i = 0; golden_arch(i); i++) {
        CLEANUP(golden_close) golden g = {0};
        if (golden_is_on_device(golden_arch(i)) && golden_open_arch(&g, golden_arch(i)))
            check_near(&g, is_for_vulkan(golden_arch(i)) ? N_DEVICE : 1);
    }
}

/* Devices lack something that each of these needs. Where they compute some of the layers, the logits are right. */
TEST(what_devices_lack_stays_on_the_cpu_with_a_reason)
{
    for (size_t i = 0; golden_arch(i); i++) {
        CLEANUP(golden_close) golden g = {0};
        if (golden_is_on_device(golden_arch(i)) || !golden_open_arch(&g, golden_arch(i))) continue;
        hearth_gpu_options gpu = options_of("null", &g, HEARTH_KV_F32);
        CLOSED(hearth_model) *model = open_on(g.model, &gpu, g.selector);
        FREED float *logits = model ? logits_by(model, &g, HEARTH_KV_F32, 256) : NULL;
        if (!logits) continue;
        hearth_model_info info = test_model_info(model);
        double error = engine_max_error(logits, g.truth, g.n_truth);
        bool some = info.gpu_n_layer > 0, whole = info.gpu_n_layer == info.n_layer && info.gpu_head;
        if (whole || !(some || strstr(info.gpu_note, "no shader")) || !(error <= NEAR))
            test_fail(__FILE__, __LINE__, "%s: %u layers, '%s', error %g", g.model, info.gpu_n_layer,
                      info.gpu_note, error);
    }
}

/* ---- operations on both sides ------------------------------------------------------------------------ */

/* Those that the null device has lie there, whatever a plan would find; the host computes the others in between. */
static void check_crossing(const golden *g, const char *device, uint32_t n_batch)
{
    hearth_gpu_options gpu = options_of(device, g, HEARTH_KV_F32);
    gpu.placement = "all";
    CLOSED(hearth_model) *model = open_on(g->model, &gpu, g->selector);
    size_t n = n_batch == 1 ? n_single(g, device) : g->n;
    FREED float *logits = model ? logits_of(model, g, HEARTH_KV_F32, n_batch, n) : NULL;
    if (!logits) return;
    double error = engine_max_error(logits, g->truth, n * (g->n_truth / g->n));
    hearth_model_info info = test_model_info(model);
    if (info.gpu_n_layer != info.n_layer || !info.gpu_head || info.gpu_product_share < 0.9 ||
        !(error <= NEAR))
        test_fail(__FILE__, __LINE__, "%s on %s, batch %u: %u layers, share %g, error %g", g->model, device,
                  n_batch, info.gpu_n_layer, info.gpu_product_share, error);
    expect_device(model, g->model, device);
}

TEST(operations_that_devices_lack_are_the_hosts_in_between)
{
    for (size_t i = 0; golden_arch(i) && !is_brief(); i++) {
        CLEANUP(golden_close) golden g;
        if (!golden_open_arch(&g, golden_arch(i))) continue;
        check_crossing(&g, "null", 256);
        check_crossing(&g, "null", 1);
        check_crossing(&g, "null", 7);
    }
}

/* Those of hybrids and of mixtures. */
TEST(all_products_lie_on_a_device)
{
    static const char *const names[] = {
        "qwen35",  "gemma4", "falcon-h1", "lfm2",       "mamba2",   "command-r", "qwen35moe", "qwen3moe",
        "gpt-oss", "llama4", "phimoe",    "gemma4-moe", "smallthinker-4b-downt"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !is_brief(); i++) {
        CLEANUP(golden_close) golden g;
        if (!golden_open_arch(&g, names[i])) continue;
        hearth_gpu_options gpu = options_of("null", &g, HEARTH_KV_F32);
        gpu.placement = "all";
        CLOSED(hearth_model) *model = open_on(g.model, &gpu, g.selector);
        if (model) CHECK(test_model_info(model).gpu_product_share >= 0.999);
        check_crossing(&g, "vulkan:0", 256);
    }
}

/* Of the first n_device devices. */
static void check_experts(const golden *g, int n_device)
{
    CLOSED(hearth_model) *cpu = OPENED(hearth_model, g->model, NULL);
    FREED float *expected = cpu ? logits_by(cpu, g, HEARTH_KV_F16, 256) : NULL;
    for (int d = first_device(); expected && d < n_device; d++) {
        hearth_gpu_options gpu = options_of(devices[d], g, HEARTH_KV_F16);
        gpu.placement = "all";
        CLOSED(hearth_model) *model = open_on(g->model, &gpu, g->selector);
        if (!model || !is_whole(model)) continue;
        CHECK(test_model_info(model).gpu_product_share >= 0.999);
        engine_check_bit_exact(model);
        expect_bits(model, g, HEARTH_KV_F16, 256, expected, devices[d]);
        expect_bits(model, g, HEARTH_KV_F16, 1, expected, devices[d]);
    }
}

TEST(quantised_experts_have_the_bits_of_the_cpu)
{
    CLEANUP(golden_close) golden g;
    if (golden_open_quant_file(&g, "mixture-Q4_K_M")) check_experts(&g, N_DEVICE);
}

static bool has_pipeline(const hearth_model *model, hth_shader_id id)
{
    const hth_device *d = model->gpu->device;
    for (const hth_pipeline *p = hth_pipeline_next(d, NULL); p; p = hth_pipeline_next(d, p))
        if (hth_pipeline_get_info(p, &(const uint32_t *){NULL}) == id) return true;
    return false;
}

/* In steps in which an expert has more than eight pairs, on average. */
static void check_tiles_of_experts(const golden *g)
{
    static const hth_shader_id ids[HTH_N_COOPMAT_LEVEL] = {
        HTH_SHADER_mul_mat_vec_q_sliced, HTH_SHADER_mul_mat_q_sliced, HTH_SHADER_mul_mat_q_cm2_sliced};
    CLOSED(hearth_model) *cpu = OPENED(hearth_model, g->model, NULL);
    FREED float *expected = cpu ? logits_by(cpu, g, HEARTH_KV_F16, 256) : NULL;
    for (int i = 0; expected && i < HTH_N_COOPMAT_LEVEL; i++) {
        hearth_gpu_options gpu = options_of("null", g, HEARTH_KV_F16);
        gpu.placement = "all";
        null_units = (hth_coopmat_level)i;
        CLOSED(hearth_model) *model = open_on(g->model, &gpu, g->selector);
        null_units = HTH_COOPMAT_NONE;
        if (!model || !is_whole(model)) continue;
        engine_check_bit_exact(model);
        for (int k = HTH_COOPMAT_KHR; k < HTH_N_COOPMAT_LEVEL; k++) CHECK_INT(has_pipeline(model, ids[k]), k == i);
        expect_bits(model, g, HEARTH_KV_F16, 256, expected, "null");
        expect_bits(model, g, HEARTH_KV_F16, 23, expected, "null");
    }
}

/* Experts whose down has a row for each neuron: of that file with all of its matrices in a type. */
static bool open_neurons_of_experts(golden *g, const char *type)
{
    const hth_quantize_options o = {.ftype = hth_ftype_find(type), .pure = true, .n_thread = 2};
    const char *to = test_scratch("experts.gguf");
    hth_quantize_result result;
    if (!golden_open_quant_file(g, "smallthinker-downt-Q4_0")) return false;
    CHECK_OK(hth_quantize(g->model, to, &o, &result, err));
    g->model = to;
    return true;
}

TEST(neurons_of_quantised_experts_have_the_bits_of_the_cpu)
{
    static const char *const types[] = {"q5_1", "q4_0", "q8_0", "iq4_nl", "mxfp4"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        CLEANUP(golden_close) golden g;
        bool is_there = open_neurons_of_experts(&g, types[i]);
        if (is_there) check_experts(&g, i == 0 || test_is_long() ? N_DEVICE : 1);
        if (is_there) remove(g.model);
    }
}

/* A model whose rows are whole blocks, with all of its matrices in Q8_0. remove(g->model) afterwards. */
static bool open_in_blocks(golden *g, bool is_there)
{
    const hth_quantize_options o = {.ftype = hth_ftype_find("q8_0"), .pure = true, .n_thread = 2};
    const char *to = test_scratch("blocks.gguf");
    hth_quantize_result result;
    if (!is_there) return false;
    CHECK_OK(hth_quantize(g->model, to, &o, &result, err));
    g->model = to;
    return true;
}

/* placement NULL: that of the device's kind, so that it lies there without being asked for. */
static void check_all_bits(const golden *g, const char *device, hearth_kv_type kv, const char *placement,
                           bool host_kv, const float *expected)
{
    hearth_gpu_options gpu = options_of(device, g, kv);
    gpu.placement = placement, gpu.host_kv = host_kv;
    CLOSED(hearth_model) *model = open_on(g->model, &gpu, g->selector);
    if (!model || !is_whole(model)) return;
    CHECK(test_model_info(model).gpu_product_share >= 0.999 && test_model_info(model).gpu_host_kv == host_kv);
    engine_check_bit_exact(model);
    expect_bits(model, g, kv, 256, expected, device);
    expect_bits(model, g, kv, 7, expected, device);
    expect_bits(model, g, kv, 1, expected, device);
}

/* Types of cache turn with the devices. on_vulkan: a driver on the CPU compiles for seconds a model; without it only
 * $HEARTH_LONG has Vulkan, too. */
static void check_home(golden *g, bool is_there, bool all_caches, const char *placement, bool host_kv, bool on_vulkan)
{
    if (!open_in_blocks(g, is_there)) return;
    CLOSED(hearth_model) *cpu = OPENED(hearth_model, g->model, NULL);
    for (int kv = 0; cpu && kv < (all_caches ? 3 : 1); kv++) {
        FREED float *expected = logits_by(cpu, g, (hearth_kv_type)kv, 256);
        for (int d = first_device(); expected && d < N_DEVICE; d++)
            if (d == 0 || (kv == 0 && on_vulkan) || test_is_long())
                check_all_bits(g, devices[d], (hearth_kv_type)kv, placement, host_kv, expected);
    }
    remove(g->model);
}

static void check_in_blocks(golden *g, bool is_there, bool all_caches, const char *placement, bool on_vulkan)
{
    check_home(g, is_there, all_caches, placement, false, on_vulkan);
}

TEST(quantised_mixtures_have_the_bits_of_the_cpu)
{
    static const char *const names[] = {"qwen2moe",   "qwen3moe",       "olmoe",  "smallthinker-4b", "granitemoe", "glm4moe",
                                        "minimax-m2", "deepseek2-lite", "llama4", "gemma4-moe",      "bailingmoe2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CLEANUP(golden_close) golden g;
        check_in_blocks(&g, golden_open_arch(&g, names[i]), false, NULL, i % 4 == 2);
    }
}

TEST(quantised_hybrids_have_the_bits_of_the_cpu)
{
    static const char *const names[] = {"qwen35",    "lfm2",        "mamba",     "mamba2",
                                        "falcon-h1", "kimi-linear", "qwen35moe", "qwen3next", "lfm2moe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CLEANUP(golden_close) golden g;
        check_in_blocks(&g, golden_open_arch(&g, names[i]), false, NULL, i < 6);
    }
}

/* Of two types; with an expert that all tokens use; with biases. */
TEST(matrix_units_multiply_experts_with_the_bits_of_the_cpu)
{
    for (int i = 0; i < 3 && !is_brief(); i++) {
        CLEANUP(golden_close) golden g;
        bool is_there = i == 0   ? golden_open_quant_file(&g, "mixture-Q4_K_M")
                        : i == 1 ? open_in_blocks(&g, golden_open_arch(&g, "qwen2moe"))
                                 : open_in_blocks(&g, golden_open_quant_file(&g, "gpt-oss-MXFP4"));
        if (is_there) check_tiles_of_experts(&g);
        if (is_there && i > 0) remove(g.model);
    }
}

/* Sinks, in layers with a window and without one. */
TEST(quantised_heads_with_sinks_have_the_bits_of_the_cpu)
{
    CLEANUP(golden_close) golden g;
    check_in_blocks(&g, golden_open_quant_file(&g, "gpt-oss-MXFP4"), true, NULL, true);
}

/* Latent attention, with queries scaled by position, beside experts. */
TEST(quantised_latent_vectors_have_the_bits_of_the_cpu)
{
    CLEANUP(golden_close) golden g;
    check_in_blocks(&g, golden_open_arch(&g, "mistral4"), true, NULL, true);
}

/* Heads and rotations that differ by layer, values that are keys, and caches that layers share. */
TEST(quantised_layers_that_differ_have_the_bits_of_the_cpu)
{
    CLEANUP(golden_close) golden g;
    check_in_blocks(&g, golden_open_arch(&g, "gemma4"), true, NULL, true);
}

/* Norms and gates of heads, latent vectors on both sides of products by head, windows, sinks, shared caches, states that
 * stay on the device, and attention beside them. */
TEST(keys_and_values_in_host_memory_keep_the_bits)
{
    static const char *const names[] = {"qwen3moe", "qwen35", "mistral4",   "falcon-h1",   "gemma4",    "deepseek2-lite",
                                        "glm4moe",  "lfm2",   "minimax-m2", "kimi-linear", "qwen3next", "llama4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CLEANUP(golden_close) golden g;
        check_home(&g, golden_open_arch(&g, names[i]), i == 2 || i == 4, NULL, true, i < 3);
    }
    CLEANUP(golden_close) golden g;
    check_home(&g, golden_open_quant_file(&g, "gpt-oss-MXFP4"), true, NULL, true, true);
}

/* A step is no longer than what the device computes at once: the host has all of its tokens in between. */
TEST(steps_across_devices_are_as_long_as_the_model_was_opened_for)
{
    CLEANUP(golden_close) golden g;
    hearth_batch *batch = NULL;
    if (!golden_open_arch(&g, "minicpm3")) return; /* the host has some products by head */
    hearth_gpu_options gpu = options_of("null", &g, HEARTH_KV_F32);
    gpu.placement = "all", gpu.n_batch = 5;
    CLOSED(hearth_model) *model = open_on(g.model, &gpu, g.selector);
    FREED float *logits = model ? logits_by(model, &g, HEARTH_KV_F32, 256) : NULL;
    if (!logits) return;
    CHECK(engine_max_error(logits, g.truth, g.n_truth) <= NEAR);
    CHECK_FAILS(hearth_batch_open(model, 6, 1, &batch, err), HEARTH_ERROR_ARGUMENT, "gpu.n_batch for 5");
    CHECK_OK(hearth_batch_open(model, 5, 1, &batch, err));
    hearth_batch_close(batch);
}

TEST(half_float_models_are_near_the_cpu_and_the_same_on_all_devices)
{
    static const char *const types[] = {"F16", "BF16"};
    for (int i = 0; i < 2; i++) {
        CLEANUP(golden_close) golden g;
        if (golden_open_quant(&g, types[i])) check_near(&g, i == 0 || test_is_long() ? N_DEVICE : 1);
    }
}

/* ---- files of PowerInfer: neurons in rows of down ----------------------------------------------- */

/* Their logits are doubles, of which the number counts here. */
static bool open_powerinfer(golden *g, const char *name)
{
    char model[100], ids[100], truth[100];
    snprintf(model, sizeof model, "golden/powerinfer/%s.powerinfer.gguf", name);
    snprintf(ids, sizeof ids, "golden/powerinfer/%.*s.ids", (int)strcspn(name, "."), name);
    snprintf(truth, sizeof truth, "golden/powerinfer/%s.dense.f32", name);
    bool there = golden_open(g, model, ids, truth);
    g->selector = HEARTH_SELECTOR_DENSE;
    return there;
}

TEST(quantised_neurons_in_rows_have_the_bits_of_the_cpu)
{
    static const char *const files[] = {"llama-relu.q4_0", "bamboo.q4_0", "opt.q4_0", "falcon.q4_0"};
    for (int i = 0; i < 4; i++) {
        CLEANUP(golden_close) golden g;
        FREED float *expected = open_powerinfer(&g, files[i]) ? golden_logits(&g, HEARTH_KV_F16) : NULL;
        const int n_device = i < 2 || test_is_long() ? N_DEVICE : 1; /* the others on null alone */
        for (int d = first_device(); expected && d < n_device; d++)
            check_bits(&g, devices[d], HEARTH_KV_F16, expected);
    }
}

TEST(float_neurons_in_rows_are_near_the_cpu_and_the_same_on_all_devices)
{
    static const char *const files[] = {"llama-relu.f16", "bamboo.f16", "opt.f16"};
    for (int i = 0; i < 3; i++) {
        CLEANUP(golden_close) golden g;
        if (open_powerinfer(&g, files[i])) check_near(&g, i > 1 || test_is_long() ? N_DEVICE : 1);
    }
}

/* ---- synthetic weights ---- */

/* What golden files do not have: several types beside each other in one layer, a head that is read in several
 * pieces; packed, a bound of hidden values. */
static void check_synthetic(bool packed)
{
    static int32_t ids[] = {1, 31999, 77, 20000, 5, 12345, 9, 400};
    golden g = {.model = test_scratch("synthetic.gguf"), .ids = ids, .n = sizeof ids / sizeof *ids};
    const hth_synth_options o = {.shape = "stories-15m",
                                 .ftype = hth_ftype_find("q4_k_m"),
                                 .packed = packed,
                                 .activation = packed ? "relu" : NULL,
                                 .seed = 1,
                                 .n_thread = 2};
    uint64_t size;
    hearth_model_info info = {0};
    CHECK_OK(hth_synth(g.model, &o, &size, err));
    g.selector = HEARTH_SELECTOR_DENSE;
    hearth_model *cpu = OPENED(hearth_model, g.model, &(hearth_model_options){.selector = g.selector});
    float *expected = cpu ? logits_by(cpu, &g, HEARTH_KV_F16, 256) : NULL;
    if (cpu) hearth_model_get_info(cpu, &info);
    CHECK(info.synthetic && info.down_transposed == packed);
    g.n_truth = g.n * info.n_vocab;
    for (int d = first_device(); expected && d < N_DEVICE; d++) {
        hearth_gpu_options gpu = options_of(devices[d], &g, HEARTH_KV_F16);
        CLOSED(hearth_model) *model = open_on(g.model, &gpu, g.selector);
        if (model && is_whole(model)) expect_bits(model, &g, HEARTH_KV_F16, 256, expected, devices[d]);
    }
    free(expected);
    hearth_model_close(cpu);
    remove(g.model);
}

/* Rows of a norm that several workgroups read, in front of a head of floats. */
TEST(float_heads_of_many_columns_are_near_the_cpu_on_all_devices)
{
    static int32_t ids[] = {1, 31999, 77, 20000, 5};
    golden g = {.model = test_scratch("floats.gguf"), .ids = ids, .n = sizeof ids / sizeof *ids};
    const hth_synth_options o = {.shape = "stories-15m", .ftype = hth_ftype_find("f16"), .seed = 1, .n_thread = 2};
    uint64_t size;
    CHECK_OK(hth_synth(g.model, &o, &size, err));
    CLOSED(hearth_model) *cpu = OPENED(hearth_model, g.model, NULL);
    FREED float *expected = cpu ? logits_by(cpu, &g, HEARTH_KV_F16, 256) : NULL;
    if (!expected) return;
    CHECK(test_model_info(cpu).d_model > 256);
    g.n_truth = g.n * test_model_info(cpu).n_vocab;
    for (int d = first_device(); d < N_DEVICE; d++) {
        hearth_gpu_options gpu = options_of(devices[d], &g, HEARTH_KV_F16);
        CLOSED(hearth_model) *model = open_on(g.model, &gpu, HEARTH_SELECTOR_DENSE);
        FREED float *logits = model && is_whole(model) ? logits_by(model, &g, HEARTH_KV_F16, 256) : NULL;
        double largest = 0.0, error = 0.0;
        for (size_t i = 0; logits && i < g.n_truth; i++) {
            double difference = fabs((double)logits[i] - (double)expected[i]), size_of = fabs((double)expected[i]);
            if (!(difference <= error)) error = difference;
            if (size_of > largest) largest = size_of;
        }
        if (!(error <= 1e-3 * largest)) test_fail(__FILE__, __LINE__, "%s: error %g of %g", devices[d], error, largest);
    }
}

TEST(mixed_types_have_the_bits_of_the_cpu) { check_synthetic(false); }
TEST(packed_mixed_types_have_the_bits_of_the_cpu) { check_synthetic(true); }

/* ---- a part of a model -------------------------------------------------------------------------- */

/* Bytes of what lies on a device. */
enum { MAX_LAYERS = 16 };
typedef struct counted {
    uint64_t capacity, head, layers[MAX_LAYERS];
} counted;

/* The first n_layer layers fit; one byte less, and one fewer does. */
static uint64_t budget_for(const counted *bytes, uint32_t n_layer)
{
    uint64_t all = bytes->capacity;
    for (uint32_t i = 0; i < n_layer; i++) all += bytes->layers[i];
    return all;
}

static bool count_bytes(const golden *g, const hearth_gpu_options *gpu, counted *bytes, uint32_t *n_layer)
{
    CLOSED(hearth_model) *m = open_on(g->model, gpu, g->selector);
    if (!m) return false;
    hth_offload_params params = *hth_gpu_get_params(m->gpu);
    uint64_t max = hth_device_get_info(m->devices[0].device)->max_binding_size, weights, cache;
    hearth_model_info info = test_model_info(m);
    *n_layer = info.n_layer;
    bool fits = CHECK(info.n_layer <= MAX_LAYERS) &&
                hth_gpu_workspace_bytes(m->model, max, &params, &bytes->capacity) &&
                hth_gpu_head_bytes(m->model, max, &params, &bytes->head);
    for (uint32_t i = 0; fits && i < info.n_layer; i++) {
        fits = hth_gpu_layer_bytes(m->model, max, &params, i, m->model->layers[i].ffn.d_ff, &weights) &&
               hth_gpu_cache_bytes(m->model, max, &params, i, &cache);
        bytes->layers[i] = weights + cache;
    }
    if (CHECK(fits)) CHECK(info.gpu_bytes <= budget_for(bytes, info.n_layer) + bytes->head);
    return fits;
}

static void check_part(const golden *g, hearth_gpu_options gpu, uint64_t vram, uint32_t n_layer, bool head,
                       const float *expected)
{
    gpu.vram = vram;
    CLOSED(hearth_model) *model = open_on(g->model, &gpu, g->selector);
    if (!model) return;
    hearth_model_info info = test_model_info(model);
    CHECK_INT(info.gpu_n_layer, n_layer);
    CHECK_INT(info.gpu_head, head);
    CHECK(info.gpu_bytes <= vram);
    expect_bits(model, g, gpu.kv, 256, expected, gpu.device);
    if (n_layer == 1) expect_bits(model, g, gpu.kv, 1, expected, gpu.device);
}

static void check_parts(const golden *g, const char *device, hearth_kv_type kv)
{
    hearth_gpu_options gpu = options_of(device, g, kv);
    counted bytes = {0};
    uint32_t n_layer = 0;
    FREED float *expected = golden_logits(g, kv);
    gpu.n_batch = 5; /* the CPU goes on with several pieces at once */
    if (expected && count_bytes(g, &gpu, &bytes, &n_layer)) {
        for (uint32_t n = 1; n <= n_layer; n++) {
            check_part(g, gpu, budget_for(&bytes, n), n, false, expected);
            if (n > 1) check_part(g, gpu, budget_for(&bytes, n) - 1, n - 1, false, expected);
        }
        check_part(g, gpu, budget_for(&bytes, n_layer) + bytes.head, n_layer, true, expected);
    }
}

TEST(any_number_of_layers_on_a_device_gives_the_bits_of_the_cpu)
{
    golden g;
    for (int d = 0; d < N_DEVICE; d++) {
        for (int i = 0; i < N_QUANT; i++) {
            bool some = d == 0 ? i % 4 == 0 : i == 8; /* Q8_0, Q5_1, Q5_K, MXFP4, IQ3_XXS, TQ1_0; Q5_K */
            if (!some && !test_is_long()) continue;
            if (golden_open_quant(&g, quants[i])) check_parts(&g, devices[d], (hearth_kv_type)(i % 2));
            golden_close(&g);
        }
    }
}

/* The host has the attention of all layers that share a cache, unless all of them are on the device. */
TEST(caches_that_layers_share_are_where_all_of_them_are)
{
    CLEANUP(golden_close) golden g;
    counted bytes = {0};
    uint32_t n_layer = 0;
    if (!open_in_blocks(&g, golden_open_arch(&g, "gemma4"))) return;
    CLOSED(hearth_model) *cpu = OPENED(hearth_model, g.model, NULL);
    FREED float *expected = cpu ? logits_by(cpu, &g, HEARTH_KV_F16, 256) : NULL;
    hearth_gpu_options gpu = options_of("null", &g, HEARTH_KV_F16);
    gpu.placement = "all";
    if (expected && count_bytes(&g, &gpu, &bytes, &n_layer) && CHECK_INT(n_layer, 5)) /* 3 and 4 share with 1 and 2 */
        for (uint32_t n = 2; n <= n_layer; n++) check_part(&g, gpu, budget_for(&bytes, n), n, false, expected);
    gpu.device = "null,null", gpu.vrams[0] = budget_for(&bytes, 3), gpu.vrams[1] = UINT64_MAX;
    CLOSED(hearth_model) *divided = expected ? open_on(g.model, &gpu, g.selector) : NULL;
    if (divided && CHECK_INT(hth_gpu_get_params(divided->gpu)->end_layer, 3))
        expect_bits(divided, &g, HEARTH_KV_F16, 7, expected, "two of null");
    remove(g.model);
}

/* The second of three devices holds the last layer but not the head. It leaves the layer to the third, which holds
 * neither, and has it in the end. */
TEST(a_layer_that_no_later_device_holds_stays_where_it_fits)
{
    CLEANUP(golden_close) golden g;
    FREED float *expected = golden_open_quant(&g, "Q4_0") ? golden_logits(&g, HEARTH_KV_F16) : NULL;
    hearth_gpu_options gpu = options_of("null", &g, HEARTH_KV_F16);
    counted bytes = {0};
    uint32_t n_layer;
    if (!expected || !count_bytes(&g, &gpu, &bytes, &n_layer) || !CHECK(n_layer > 1)) return;
    gpu.device = "null,null,null";
    gpu.vrams[0] = budget_for(&bytes, n_layer - 1), gpu.vrams[1] = bytes.capacity + bytes.layers[n_layer - 1];
    gpu.vrams[2] = bytes.capacity;
    CLOSED(hearth_model) *model = open_on(g.model, &gpu, g.selector);
    hearth_model_info info = test_model_info(model);
    const hth_gpu *second = model ? hth_gpu_next(model->gpu) : NULL;
    CHECK(info.gpu_n_layer == n_layer && !info.gpu_head);
    if (CHECK(second != NULL)) CHECK_INT(hth_gpu_get_params(second)->first_layer, n_layer - 1);
    for (int i = 0; model && i < 3; i++)
        CHECK(hth_device_state(model->devices[i].device).used <= gpu.vrams[i]);
    expect_bits(model, &g, HEARTH_KV_F16, 256, expected, "three of null");
}

/* A mapped file serves the layers of the CPU, or all of them. */
TEST(a_mapped_file_with_layers_on_a_device_gives_the_bits_of_the_cpu)
{
    CLEANUP(golden_close) golden g;
    FREED float *expected = golden_open_quant(&g, "Q4_0") ? golden_logits(&g, HEARTH_KV_F16) : NULL;
    hearth_gpu_options gpu = options_of("null", &g, HEARTH_KV_F16);
    counted bytes = {0};
    uint32_t n_layer;
    if (expected && count_bytes(&g, &gpu, &bytes, &n_layer)) {
        gpu.vram = budget_for(&bytes, 1);
        hearth_model_options o = {.mmap = true, .gpu = gpu};
        CLOSED(hearth_model) *model = OPENED(hearth_model, g.model, &o);
        if (model) expect_bits(model, &g, HEARTH_KV_F16, 256, expected, "null, mapped");
    }
}

/* A device that takes fewer tokens at once than the session gives it. */
TEST(pieces_of_the_device_do_not_show)
{
    CLEANUP(golden_close) golden g;
    FREED float *expected = golden_open_quant(&g, "Q5_0") ? golden_logits(&g, HEARTH_KV_F16) : NULL;
    for (int d = first_device(); expected && d < N_DEVICE; d++) {
        hearth_gpu_options gpu = options_of(devices[d], &g, HEARTH_KV_F16);
        gpu.n_batch = 5;
        CLOSED(hearth_model) *model = open_on(g.model, &gpu, HEARTH_SELECTOR_AUTO);
        if (model) expect_bits(model, &g, HEARTH_KV_F16, 256, expected, devices[d]);
    }
}

/* ---- submissions ------------------------------------------------------------------------------------ */

/* What a device makes of it with submissions of so much work (0: as large as they are) has the
 * bits of *expected, or becomes them. Returns the number of command lists. */
static uint64_t check_submissions(const golden *g, const hearth_gpu_options *gpu, uint64_t n_work, float **expected,
                                  uint64_t *work)
{
    const char *device = gpu->device;
    uint64_t n = 0;
    if (n_work > 0 && !submissions_begin(device, 2, n_work)) return 0;
    hearth_model *model = open_on(g->model, gpu, g->selector);
    if (model && is_whole(model)) {
        CHECK(n_work == 0 || hth_gpu_get_params(model->gpu)->max_work == n_work);
        n = submissions_check(model->gpu, work);
        if (!*expected) *expected = logits_by(model, g, HEARTH_KV_F16, 256);
        for (uint32_t batch = 1; *expected && n_work > 0 && batch <= 256; batch *= 16)
            expect_bits(model, g, HEARTH_KV_F16, batch, *expected, device);
    }
    hearth_model_close(model);
    if (n_work > 0) submissions_end();
    return n;
}

/* As they are, in some, and each run in as many as it can be divided into. */
static void divide(const golden *g, const char *device, const char *placement)
{
    FREED float *expected = NULL;
    hearth_gpu_options gpu = options_of(device, g, HEARTH_KV_F16);
    uint64_t work[3] = {0}, n[3];
    gpu.placement = placement;
    n[0] = check_submissions(g, &gpu, 0, &expected, &work[0]);
    if (expected) {
        n[1] = check_submissions(g, &gpu, work[0] / 40, &expected, &work[1]);
        n[2] = check_submissions(g, &gpu, 1, &expected, &work[2]);
        CHECK(n[0] < n[1] && n[1] < n[2]);
        CHECK_INT(work[1], work[0]);
        CHECK_INT(work[2], work[0]);
        printf("     %s, %s: %llu, %llu and %llu command lists\n", g->model, device, (unsigned long long)n[0],
               (unsigned long long)n[1], (unsigned long long)n[2]);
    }
}

TEST(work_that_is_divided_among_submissions_has_the_bits_of_the_whole)
{
    static const char *const types[] = {"Q4_0", "Q6_K", "F16"}, *const transposed[] = {"bamboo.q4_0",
                                                                                       "opt.f16"};
    golden g;
    for (int d = 0; d < N_DEVICE; d++) {
        for (int i = 0; i < 3; i++) {
            if (d > 0 && i > 0 && !test_is_long()) continue;
            if (golden_open_quant(&g, types[i])) divide(&g, devices[d], NULL);
            golden_close(&g);
        }
        for (int i = 0; i < 2; i++) {
            if (d > 0 && i == 0 && !test_is_long()) continue;
            if (open_powerinfer(&g, transposed[i])) divide(&g, devices[d], NULL);
            golden_close(&g);
        }
        if (d > 0 && !test_is_long()) continue;
        if (open_neurons_of_experts(&g, "q4_0")) divide(&g, devices[d], "all");
        golden_close(&g);
    }
}

/* ---- two sequences ------------------------------------------------------------------------------ */

enum { SIDE = 2, PIECE = 3 };

/* Pieces of different lengths of two texts in each step; after each, either has the logits that it has alone.
 * texts[i]: n ids, of which expected[i] are the logits. */
static void interleave(hearth_model *model, const golden *g, const int32_t *const texts[SIDE],
                       float *const expected[SIDE], size_t n)
{
    const size_t n_vocab = g->n_truth / g->n;
    hearth_session *s[SIDE] = {0};
    const hearth_session_options o = {
        .n_ctx = (uint32_t)g->n, .n_batch = HEARTH_BATCH_NONE, .kv = HEARTH_KV_F16};
    CLOSED(hearth_batch) *batch = OPENED(hearth_batch, model, SIDE * PIECE, 2);
    for (int i = 0; i < SIDE; i++) CHECK_OK(hearth_session_open(model, &o, &s[i], err));
    size_t at[SIDE] = {0};
    while (batch && s[0] && s[1] && (at[0] < n || at[1] < n)) {
        for (size_t i = 0; i < SIDE; i++) {
            size_t k = n - at[i] < PIECE - i ? n - at[i] : PIECE - i;
            if (k == 0) continue;
            CHECK_OK(hearth_batch_add(batch, s[i], texts[i] + at[i], k, err));
            at[i] += k;
        }
        CHECK_OK(hearth_batch_run(batch, err));
        for (int i = 0; i < SIDE; i++) {
            const float *logits = hearth_session_logits(s[i]);
            if (!CHECK(logits != NULL)) continue;
            CHECK_BYTES(logits, expected[i] + (at[i] - 1) * n_vocab, n_vocab * sizeof *logits);
        }
    }
    for (int i = 0; i < SIDE; i++) hearth_session_close(s[i]);
}

/* The first half of the ids, and the second. */
static void check_sequences(const golden *g, const hearth_model *cpu)
{
    const size_t n = g->n / 2;
    const engine_setting s = {.n_thread = 2, .n_batch = 64, .kv = HEARTH_KV_F16};
    const int32_t *const texts[SIDE] = {g->ids, g->ids + n};
    float *expected[SIDE];
    for (int i = 0; i < SIDE; i++) expected[i] = engine_model_logits(cpu, &s, texts[i], n);
    for (int d = first_device(); expected[0] && expected[1] && d < N_DEVICE; d++) {
        hearth_gpu_options gpu = options_of(devices[d], g, HEARTH_KV_F16);
        gpu.n_ctx = (uint32_t)(2 * (g->n + HTH_KV_PAGE)); /* each has whole pages */
        CLOSED(hearth_model) *model = open_on(g->model, &gpu, HEARTH_SELECTOR_AUTO);
        if (!model) continue;
        interleave(model, g, texts, expected, n);
        expect_device(model, g->model, devices[d]);
    }
    for (int i = 0; i < SIDE; i++) free(expected[i]);
}

TEST(sequences_in_one_batch_have_their_own_bits)
{
    CLEANUP(golden_close) golden g;
    CLOSED(hearth_model) *cpu = NULL;
    if (golden_open_quant(&g, "Q4_1")) CHECK_OK(hearth_model_open(g.model, NULL, &cpu, err));
    if (cpu) check_sequences(&g, cpu);
}

/* ---- texts -------------------------------------------------------------------------------------- */

/* The likeliest n tokens, as the CPU picks them. */
static void check_greedy(const char *file, const char *device, size_t n)
{
    enum { N_MAX = 200 };
    static const int32_t prompt[] = {1, 300, 345, 261, 310}; /* the smallest vocabulary has 361 */
    const engine_setting s = {.n_thread = 2, .n_batch = 64, .kv = HEARTH_KV_F32};
    const char *path = test_data(file);
    const size_t n_prompt = sizeof prompt / sizeof *prompt;
    int32_t expected[N_MAX], ours[N_MAX];
    if (!path) return;
    CLOSED(hearth_model) *cpu = OPENED(hearth_model, path, NULL);
    const hearth_gpu_options gpu = {.device = device, .n_ctx = (uint32_t)(n + n_prompt), .kv = HEARTH_KV_F32};
    CLOSED(hearth_model) *model = cpu ? open_on(path, &gpu, HEARTH_SELECTOR_AUTO) : NULL;
    if (model && is_whole(model) && engine_greedy(cpu, &s, prompt, n_prompt, expected, n) &&
        engine_greedy(model, &s, prompt, n_prompt, ours, n))
        CHECK_BYTES(ours, expected, n * sizeof *ours);
    if (model) expect_device(model, file, device);
}

TEST(trained_models_tell_the_same_texts_on_the_null_device)
{
    check_greedy("models/stories260K/stories260K-f32.gguf", "null", 200);
    check_greedy("models/babyllama-tok361/babyllama-tok361-f32.gguf", "null", 100);
    check_greedy("models/storyteller-drelu/storyteller-drelu-f32.gguf", "null", test_is_long() ? 200 : 20);
}

TEST(a_trained_model_tells_the_same_text_on_vulkan)
{
    check_greedy("models/stories260K/stories260K-f32.gguf", "vulkan:0", test_is_long() ? 60 : 20);
}

/* ---- refusals ----------------------------------------------------------------------------------- */

static void check_refused(const char *path, const hearth_gpu_options *gpu, hearth_status status,
                          const char *says, hearth_error *why)
{
    CLOSED(hearth_model) *model = NULL;
    *why = (hearth_error){0};
    CHECK_INT(hearth_model_open(path, &(hearth_model_options){.n_thread = 1, .gpu = *gpu}, &model, why),
              status);
    CHECK(model == NULL);
    if (!strstr(why->message, says))
        test_fail(__FILE__, __LINE__, "device '%s': the message lacks '%s': %s", gpu->device, says,
                  why->message);
}

TEST(too_little_memory_is_refused_with_the_least_that_works)
{
    CLEANUP(golden_close) golden g;
    hearth_error why;
    if (golden_open_quant(&g, "Q4_0")) {
        hearth_gpu_options gpu = options_of("null", &g, HEARTH_KV_F16);
        gpu.vram = 1;
        check_refused(g.model, &gpu, HEARTH_ERROR_MEMORY, "the least is gpu.vram ", &why);
        uint64_t too_few, ignored, fewest = engine_bytes_behind(why.message, "gpu.vram ", &too_few),
                                   max = engine_bytes_behind(why.message, "takes ", &ignored);
        gpu.vram = too_few;
        check_refused(g.model, &gpu, HEARTH_ERROR_MEMORY, "the least is gpu.vram ", &why);
        for (int i = 0; i < 3; i++) {
            hearth_model_info info = {0};
            gpu.vram = i == 0 ? fewest : i == 1 ? max : UINT64_MAX;
            CLOSED(hearth_model) *model = open_on(g.model, &gpu, HEARTH_SELECTOR_AUTO);
            if (model) hearth_model_get_info(model, &info);
            CHECK_INT(info.gpu_n_layer, i == 0 ? 1 : info.n_layer);
            CHECK_INT(info.gpu_head, i > 0);
        }
    }
}

TEST(devices_that_do_not_exist_are_refused)
{
    enum { N_OTHER = 4 };
    static const char *const unknown[] = {
        "",
        "cuda:0",
        "Null",
        "vulkan",
        "vulkan:",
        "vulkan:-1",
        "vulkan:0x",
        "vulkan:99",
        "vulkan:4294967296",
        "00000000000000000000000000000000",
    };
    const char *path = test_data("golden/quant/llama-Q4_0.gguf");
    hearth_error why;
    for (size_t i = 0; path && i < sizeof unknown / sizeof *unknown; i++) {
        const hearth_gpu_options gpu = {.device = unknown[i]};
        /* Without a driver there is another reason against all that Vulkan could know. */
        check_refused(path, &gpu, HEARTH_ERROR_UNSUPPORTED, i < N_OTHER ? unknown[i] : "", &why);
        CHECK(why.message[0] != '\0');
    }
}

TEST(absurd_numbers_are_refused)
{
    const char *path = test_data("golden/quant/llama-Q4_0.gguf");
    hearth_error why;
    if (!path) return;
    hearth_gpu_options gpu = {.device = "null", .n_ctx = UINT32_MAX - 1};
    check_refused(path, &gpu, HEARTH_ERROR_ARGUMENT, "keys of 4294967264 positions", &why);
    gpu.n_ctx = UINT32_MAX - 100;
    check_refused(path, &gpu, HEARTH_ERROR_ARGUMENT, "keys of 4294967200 positions", &why);
    gpu.n_ctx = 1 << 20, gpu.n_batch = UINT32_MAX - 1;
    check_refused(path, &gpu, HEARTH_ERROR_ARGUMENT, "n_batch", &why);
    gpu = (hearth_gpu_options){.device = "null", .kv = (hearth_kv_type)3};
    check_refused(path, &gpu, HEARTH_ERROR_ARGUMENT, "gpu.kv is 3", &why);
    gpu.kv = (hearth_kv_type)-1;
    check_refused(path, &gpu, HEARTH_ERROR_ARGUMENT, "gpu.kv is -1", &why);
}

/* Options that are not given have a value that works: the context of the file, pieces of 256, all of the memory. */
TEST(naming_a_device_alone_is_enough)
{
    CLEANUP(golden_close) golden g;
    const hearth_gpu_options gpu = {.device = "null"};
    FREED float *expected = golden_open_quant(&g, "Q8_0") ? golden_logits(&g, HEARTH_KV_F16) : NULL;
    CLOSED(hearth_model) *model = expected ? open_on(g.model, &gpu, HEARTH_SELECTOR_AUTO) : NULL;
    if (model && is_whole(model)) expect_bits(model, &g, HEARTH_KV_F16, 256, expected, "null");
}

static void check_none(const char *path, const hearth_gpu_options *gpu, const char *note)
{
    hearth_model_info info = {.gpu_note = ""};
    CLOSED(hearth_model) *model = open_on(path, gpu, HEARTH_SELECTOR_AUTO);
    const engine_setting s = {.n_thread = 1, .n_batch = 4, .kv = HEARTH_KV_F32};
    int32_t ids[3];
    if (!model) return;
    hearth_model_get_info(model, &info);
    CHECK(info.gpu == NULL && info.gpu_n_layer == 0 && !info.gpu_head && info.gpu_bytes == 0);
    if (!strstr(info.gpu_note, note))
        test_fail(__FILE__, __LINE__, "the note lacks '%s': %s", note, info.gpu_note);
    engine_greedy(model, &s, (const int32_t[]){1, 2}, 2, ids, 3);
}

/* Where nothing can lie there it is no error: the CPU does without, and says why. */
TEST(a_model_without_shaders_stays_on_the_cpu)
{
    const char *path = test_data("models/stories260K/stories260K-f32.gguf"); /* heads of 8 values */
    if (!path) return;
    check_none(path, &(hearth_gpu_options){.device = "null", .kv = HEARTH_KV_Q8_0},
               "heads are no multiple of 32 values");
    check_none(path, &(hearth_gpu_options){.device = "none"}, "");
    check_none(path, &(hearth_gpu_options){0}, "");
}

static hearth_session *open_session(hearth_model *model, uint32_t n_ctx, hearth_kv_type kv,
                                    hearth_status status, const char *says)
{
    hearth_session *s = NULL;
    hearth_error why = {0};
    const hearth_session_options o = {.n_ctx = n_ctx, .n_batch = 4, .n_thread = 1, .kv = kv};
    CHECK_INT(hearth_session_open(model, &o, &s, &why), status);
    if (status != HEARTH_OK && !strstr(why.message, says))
        test_fail(__FILE__, __LINE__, "the message lacks '%s': %s", says, why.message);
    return s;
}

TEST(sessions_fit_the_model_on_a_device_or_are_refused)
{
    const char *path = test_data("golden/quant/llama-Q4_0.gguf");
    const hearth_gpu_options gpu = {.device = "null", .n_ctx = 70, .kv = HEARTH_KV_F16}; /* three pages */
    CLOSED(hearth_model) *model = path ? open_on(path, &gpu, HEARTH_SELECTOR_AUTO) : NULL;
    if (!model) return;
    open_session(model, 8, HEARTH_KV_F32, HEARTH_ERROR_ARGUMENT, "opened with type 0");
    open_session(model, 97, HEARTH_KV_F16, HEARTH_ERROR_MEMORY, "opened for 96 in all");
    hearth_session *a = open_session(model, 33, HEARTH_KV_F16, HEARTH_OK, "");
    open_session(model, 33, HEARTH_KV_F16, HEARTH_ERROR_MEMORY, "no room for 33 positions");
    hearth_session *b = open_session(model, 32, HEARTH_KV_F16, HEARTH_OK, ""), *copy = NULL;
    hearth_error why;
    open_session(model, 1, HEARTH_KV_F16, HEARTH_ERROR_MEMORY, "no room for 1 positions");
    CHECK_INT(hearth_session_fork(b, &copy, &why), HEARTH_ERROR_MEMORY);
    CHECK(strstr(why.message, "no room for 32 positions") != NULL);
    hearth_session_close(a);
    open_session(model, 65, HEARTH_KV_F16, HEARTH_ERROR_MEMORY,
                 "no room for 65 positions"); /* b has its own */
    a = open_session(model, 64, HEARTH_KV_F16, HEARTH_OK, "");
    hearth_session_close(b);
    hearth_session_close(a);
    hearth_session_close(open_session(model, 96, HEARTH_KV_F16, HEARTH_OK, ""));
}
