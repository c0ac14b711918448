/* Models on devices that owe the CPU's bits: what hearth.h says where a device passes its self-test, where
 * a shader of it is off by one unit, and where weights are floats. Opening a device is wrapped
 * (-Wl,--wrap), so that the null device gets functions with an error. */
#include "support/engine.h"
#include "support/device/shaders.h"
#include "support/test.h"
#include "support/models/made_up.h"
#include "support/models/tiny_model.h"

#include "engine/engine.h"
#include "file/types.h"
#include "forward/gpu/gpu_int.h"
#include "placement/calibrate.h"

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

static hth_shader_id off = HTH_N_SHADER; /* none */
static hth_coopmat_shape matrix;         /* of null's units; m 0: it has none */
static bool matrix_2;                    /* with functions of elements */
static uint32_t withheld;                /* HTH_FEATURE_* */
static uint64_t refused, n_refused;      /* calls that are UNSUPPORTED, from this one on; 0: none */

hearth_status __real_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err);
hearth_status __wrap_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err);

hearth_status __wrap_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err)
{
    hth_device_spec other = *spec;
    other.shader_refs = shaders_off_by_one(off);
    other.coopmat = matrix, other.coopmat2 = matrix_2, other.disabled_features = withheld;
    hearth_status st = __real_hth_device_open(&other, out, err);
    if (st == HEARTH_OK) hth_device_inject_faults(*out, refused, n_refused, HEARTH_ERROR_UNSUPPORTED);
    return st;
}

/* ---- models ------------------------------------------------------------------------------------------- */

#define BITS "the CPU's bits" /* of warnings */

static int n_units(void) { return test_n_warning("the matrix units of") + test_n_warning("NV_cooperative_matrix2 of"); }

static hearth_status open_on(const char *path, const char *device, bool strict, uint64_t vram,
                             hearth_model **model, hearth_error *err)
{
    hearth_model_options o = hearth_model_defaults();
    o.selector = HEARTH_SELECTOR_DENSE;
    o.gpu = (hearth_gpu_options){.device = device, .bit_exact = strict, .vram = vram, .n_ctx = 64};
    *model = NULL;
    test_log_start();
    hearth_status st = hearth_model_open(path, &o, model, err);
    test_log_stop();
    return st;
}

static void check_refused(const char *path, uint64_t vram, const char *device, const char *why)
{
    CLOSED(hearth_model) *model = NULL;
    hearth_error err = {0};
    CHECK_INT(open_on(path, device, true, vram, &model, &err), HEARTH_ERROR_UNSUPPORTED);
    if (!strstr(err.message, why) || !strstr(err.message, "null would not give the CPU's bits"))
        test_fail(__FILE__, __LINE__, "%s, not '%s'", err.message, why);
}

/* Goes on, and says why the bits may be others. */
static void check_taken(const char *path, uint64_t vram, const char *why, int n_warn)
{
    static const int32_t ids[] = {1, 2, 3, 4};
    engine_setting setting = {.n_batch = 4, .kv = HEARTH_KV_F16};
    CLOSED(hearth_model) *model = OPENED_BY(open_on, hearth_model, path, "null", false, vram);
    if (!model) return;
    hearth_model_info info = test_model_info(model);
    CHECK(!info.gpu_bit_exact && info.gpu_n_layer > 0);
    CHECK(strstr(info.gpu_bit_exact_reason, why) != NULL);
    CHECK_INT(test_n_warning(BITS), n_warn);
    CHECK(n_warn == 0 || strstr(test_warning(BITS), why) != NULL);
    FREED float *logits = engine_last_logits(model, &setting, ids, 4);
    CHECK(logits != NULL);
}

/* ---- promises ----------------------------------------------------------------------------------------- */

TEST(models_of_quantised_weights_pass_on_devices_that_are_right)
{
    static const char *const types[] = {"Q4_0", "Q5_1", "Q4_K", "Q6_K", "IQ4_XS"};
    static const char *const devices[] = {"null", "vulkan:0"};
    for (size_t i = 0; i < 5; i++) {
        char name[60];
        snprintf(name, sizeof name, "golden/quant/llama-%s.gguf", types[i]);
        const char *path = test_data(name);
        for (size_t d = 0; path && d < 2; d++) {
            CLOSED(hearth_model) *model = NULL;
            hearth_model_info info = {0};
            hearth_error err = {0};
            if (open_on(path, devices[d], true, 0, &model, &err) == HEARTH_OK) {
                hearth_model_get_info(model, &info);
                CHECK(info.gpu_bit_exact && info.gpu_n_layer == info.n_layer);
                CHECK_TEXT(info.gpu_bit_exact_reason, "");
                CHECK_INT(test_n_warning(BITS), 0);
            } else if (d > 0 && strstr(err.message, "float_rules differs") &&
                       open_on(path, devices[d], false, 0, &model, &err) == HEARTH_OK && engine_flushes(model)) {
                test_skip("the driver loses subnormals");
            } else if (d == 0 || !strstr(err.message, "Vulkan")) {
                test_fail(__FILE__, __LINE__, "%s", err.message);
            } else {
                test_skip("%s", err.message);
            }
        }
    }
}

TEST(a_device_with_wrong_results_is_refused_by_name_or_taken_with_one_warning)
{
    static const struct {
        hth_shader_id id;
        const char *why;
    } cases[] = {
        {HTH_SHADER_norm_quantize, "norm_quantize differs from the CPU"},
        {HTH_SHADER_mul_mat_vec_q, "mul_mat_vec_q of Q8_0 differs from the CPU"},
        {HTH_SHADER_mul_mat_vec_q_acc, "mul_mat_vec_q_acc of Q8_0 differs from the CPU"},
        {HTH_SHADER_rope_store, "rope_store differs from the CPU"},
        {HTH_SHADER_attn, "attn differs from the CPU"},
        {HTH_SHADER_attn_reduce, "attn_reduce differs from the CPU"},
        {HTH_SHADER_act_quantize, "act_quantize differs from the CPU"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        off = cases[i].id;
        check_refused(STORYTELLER, 0, "null", cases[i].why);
        check_taken(STORYTELLER, 0, cases[i].why, 1);
    }
    off = HTH_N_SHADER;
}

/* ---- matrix units ------------------------------------------------------------------------------------- */

static const hth_coopmat_shape some_shape = {16, 16, 16};
enum { N_ID = 29, N_VOCAB = 2048 /* of the storyteller */ };

/* Of a prompt of more than a few tokens, on a device that owes the CPU's bits. */
static float *logits_on(const char *device)
{
    int32_t ids[N_ID];
    CLOSED(hearth_model) *model = NULL;
    engine_setting setting = {.n_batch = 64, .kv = HEARTH_KV_F16};
    for (int32_t i = 0; i < N_ID; i++) ids[i] = 1 + 7 * i;
    hearth_error why = {0};
    if (open_on(STORYTELLER, device, true, 0, &model, &why) != HEARTH_OK) {
        if (strcmp(device, "vulkan:0") == 0) test_skip("%s", why.message);
        else test_fail(__FILE__, __LINE__, "%s", why.message);
        return NULL;
    }
    float *logits = engine_model_logits(model, &setting, ids, N_ID);
    return logits;
}

/* Logits of the whole prompt are those that the CPU gives. */
static void check_logits(const char *device, const float *expected)
{
    FREED float *logits = logits_on(device);
    if (logits && expected) CHECK(memcmp(logits, expected, (size_t)N_ID * N_VOCAB * sizeof *logits) == 0);
}

TEST(matrix_units_that_are_off_are_not_used_and_bits_stay)
{
    static const hth_shader_id ids[] = {HTH_SHADER_mul_mat_q, HTH_SHADER_mul_mat_q_acc};
    FREED float *cpu = logits_on("none");
    matrix = some_shape;
    check_logits("null", cpu);
    CHECK_INT(n_units(), 0);
    for (size_t i = 0; i < 2; i++) {
        char why[100];
        snprintf(why, sizeof why, "null are not used: %s of Q8_0 differs", hth_shader_infos[ids[i]].name);
        off = ids[i];
        check_logits("null", cpu);
        CHECK_INT(n_units(), 1);
        CHECK_INT(test_n_warning(why), 1);
        CHECK_INT(test_n_warning(BITS), 0);
    }
    off = HTH_SHADER_mul_mat_q, withheld = HTH_FEATURE_COOPMAT;
    check_logits("null", cpu);
    CHECK_INT(n_units(), 0);
    off = HTH_N_SHADER, withheld = 0, matrix = (hth_coopmat_shape){0};
}

/* What is off alone is left; what is left to others that are off is left with them. */
TEST(functions_of_elements_that_are_off_are_not_used_and_bits_stay)
{
    FREED float *cpu = logits_on("none");
    matrix = some_shape, matrix_2 = true;
    check_logits("null", cpu);
    CHECK_INT(n_units(), 0);
    off = HTH_SHADER_mul_mat_q_cm2_acc;
    check_logits("null", cpu);
    CHECK_INT(n_units(), 1);
    CHECK_INT(test_n_warning("NV_cooperative_matrix2 of null is not used: mul_mat_q_cm2_acc of Q8_0 differs"), 1);
    CHECK_INT(test_n_warning(BITS), 0);
    off = HTH_SHADER_mul_mat_q; /* nothing asks for it */
    check_logits("null", cpu);
    CHECK_INT(n_units(), 0);
    withheld = HTH_FEATURE_COOPMAT2;
    check_logits("null", cpu);
    CHECK_INT(n_units(), 1);
    CHECK_INT(test_n_warning("the matrix units of null are not used: mul_mat_q of Q8_0 differs"), 1);
    off = HTH_SHADER_mul_mat_q_cm2; /* nor for that */
    check_logits("null", cpu);
    CHECK_INT(n_units(), 0);
    off = HTH_N_SHADER, withheld = 0, matrix = (hth_coopmat_shape){0}, matrix_2 = false;
}

/* From one kind to the next, as the driver refuses it: the first n of those that there are. */
static void refuse_kinds(hth_coopmat_level most, uint64_t n)
{
    const hth_coopmat_level left = most - (hth_coopmat_level)n;
    const char *why = left == HTH_COOPMAT_NONE ? "the matrix units of null are not used: "
                                               : "NV_cooperative_matrix2 of null is not used: ";
    size_t n_without = 0;
    FREED float *cpu = logits_on("none");
    matrix = some_shape, matrix_2 = most == HTH_COOPMAT_CM2, n_refused = n;
    for (refused = 1; refused < 400 && n_without < 2; refused++) {
        hearth_model *model;
        hearth_error err;
        if (open_on(STORYTELLER, "null", true, 0, &model, &err) == HEARTH_OK && n_units() > 0) {
            CHECK_INT(test_n_warning(why), 1);
            CHECK_INT(n_units(), n);
            CHECK_INT(model->gpu->coopmat, left);
            n_without++;
        }
        hearth_model_close(model);
        if (n_units() > 0) check_logits("null", cpu);
    }
    CHECK(n_without > 0);
    refused = n_refused = 0, matrix = (hth_coopmat_shape){0}, matrix_2 = false;
}

TEST(matrix_units_for_which_nothing_can_be_compiled_are_not_used)
{
    refuse_kinds(HTH_COOPMAT_KHR, 1);
    refuse_kinds(HTH_COOPMAT_CM2, 1);
    refuse_kinds(HTH_COOPMAT_CM2, 2);
}

TEST(a_gpu_gives_the_same_with_and_without_cooperative_matrices)
{
    FREED float *cpu = logits_on("none");
    check_logits("vulkan:0", cpu);
    CHECK_INT(n_units(), 0);
    withheld = HTH_FEATURE_COOPMAT2;
    check_logits("vulkan:0", cpu);
    CHECK_INT(n_units(), 0);
    withheld = HTH_FEATURE_COOPMAT;
    check_logits("vulkan:0", cpu);
    withheld = HTH_FEATURE_COOPMAT | HTH_FEATURE_INT_DOT;
    check_logits("vulkan:0", cpu);
    withheld = 0;
}

/* As if the null device had been measured so, with dot products and each kind of matrix units: which are used? */
static hth_coopmat_level level_if_measured(double dot, double khr, double cm2)
{
    hth_coopmat_level level = HTH_COOPMAT_NONE;
    const hth_device_spec spec = {.name = "null"};
    hth_device *d = OPENED(hth_device, &spec);
    hearth_model *model = NULL;
    char folder[512];
    made_up_cache_open(folder);
    if (d) hth_calibration_cache_store_prompts(hth_device_get_info(d), HTH_TYPE_Q8_0, (double[]){dot, khr, cm2});
    hth_device_close(d);
    model = OPENED_BY(open_on, hearth_model, STORYTELLER, "null", true, 0);
    if (model && CHECK(model->gpu != NULL)) level = model->gpu->coopmat;
    hearth_model_close(model);
    made_up_cache_close(folder);
    return level;
}

TEST(the_fastest_way_to_compute_many_tokens_is_used)
{
    FREED float *cpu = logits_on("none");
    matrix = some_shape, matrix_2 = true;
    CHECK_INT(level_if_measured(1e12, 2e12, 3e12), HTH_COOPMAT_CM2);
    CHECK_INT(level_if_measured(1e12, 3e12, 2e12), HTH_COOPMAT_KHR);
    CHECK_INT(level_if_measured(3e12, 1e12, 2e12), HTH_COOPMAT_NONE);
    CHECK_INT(level_if_measured(2e12, 1e12, 3e12), HTH_COOPMAT_CM2);
    CHECK_INT(level_if_measured(2e12, 0.0, 0.0), HTH_COOPMAT_CM2); /* not measured: as by features */
    CHECK_INT(level_if_measured(0.0, 1e12, 0.0), HTH_COOPMAT_CM2); /* no measurement at all */
    off = HTH_SHADER_mul_mat_q_cm2; /* what is left after the fastest fails is not the slow one */
    CHECK_INT(level_if_measured(2e12, 1e12, 3e12), HTH_COOPMAT_NONE);
    CHECK_INT(test_n_warning("the matrix units of null are not used: mul_mat_q_cm2 of Q8_0 differs"), 1);
    CHECK_INT(level_if_measured(1e12, 2e12, 3e12), HTH_COOPMAT_KHR);
    off = HTH_N_SHADER;
    check_logits("null", cpu);
    matrix = (hth_coopmat_shape){0}, matrix_2 = false;
}

TEST(each_way_that_a_device_has_is_measured)
{
    static const char *const devices[] = {"null", "vulkan:0"};
    for (size_t i = 0; i < 2; i++) {
        const hth_device_spec spec = {.name = devices[i]};
        double rates[HTH_N_COOPMAT_LEVEL];
        hth_device *d = NULL;
        hearth_error why = {0};
        matrix = some_shape, matrix_2 = true;
        hearth_status st = hth_device_open(&spec, &d, &why);
        matrix = (hth_coopmat_shape){0}, matrix_2 = false;
        if (st != HEARTH_OK) {
            test_skip("%s", why.message);
            continue;
        }
        uint64_t used = hth_device_state(d).used;
        CHECK_OK(hth_gpu_measure_prompts(d, HTH_TYPE_Q4_K, rates, err));
        const hth_device_info *info = hth_device_get_info(d);
        CHECK(rates[HTH_COOPMAT_NONE] > 0.0);
        CHECK_INT(rates[HTH_COOPMAT_KHR] > 0.0, info->n_shape > 0);
        CHECK_INT(rates[HTH_COOPMAT_CM2] > 0.0, (info->features & HTH_FEATURE_COOPMAT2) != 0);
        CHECK_INT(hth_device_state(d).used, used);
        hth_device_close(d);
    }
}

TEST(a_wrong_shader_that_the_model_does_not_use_does_not_matter)
{
    off = HTH_SHADER_soft_cap;
    hearth_model *model = OPENED_BY(open_on, hearth_model, STORYTELLER, "null", true, 0);
    hearth_model_close(model);
    off = HTH_N_SHADER;
}

/* A packed llama of 1024 neurons in Q8_0. */
static bool write_packed(const char *path)
{
    enum { D_FF = 1024 };
    tiny_model m = tiny_new();
    tiny_pack(&m);
    tiny_set_u32(&m, "llama.feed_forward_length", D_FF);
    for (uint32_t i = 0; i < m.n_tensor; i++) {
        tiny_tensor *t = &m.tensors[i];
        for (uint32_t k = 0; k < t->n_dim; k++)
            if (t->dim[k] == TINY_D_FF && strncmp(t->name, "blk.", 4) == 0) t->dim[k] = D_FF;
        if (t->n_dim == 2 && t->dim[0] % 32 == 0) t->type = HTH_TYPE_Q8_0;
    }
    CLEANUP(gguf_free) gguf_bytes file = tiny_take(&m);
    bool ok = test_write_file(path, file.data, file.n);
    return ok;
}

TEST(shaders_of_down_are_tested_where_neurons_are_divided)
{
    const char *path = test_scratch("packed.gguf");
    hearth_model_info info = {0};
    if (!CHECK(write_packed(path))) return;
    hearth_model *model = OPENED_BY(open_on, hearth_model, path, "null", true, 0);
    if (!model) return;
    hearth_model_get_info(model, &info);
    hearth_model_close(model);
    uint64_t divided = info.gpu_bytes - 100000; /* less than a layer's neurons */
    static const hth_shader_id ids[] = {HTH_SHADER_down_scale, HTH_SHADER_down_q, HTH_SHADER_down_reduce_acc};
    for (size_t i = 0; i < 3; i++) {
        off = ids[i];
        check_refused(path, 0, "null", hth_shader_infos[off].name);
        check_refused(path, divided, "null", hth_shader_infos[off].name);
        check_taken(path, divided, hth_shader_infos[off].name, 1);
    }
    off = HTH_N_SHADER;
    CHECK_OK(open_on(path, "null", true, divided, &model, err));
    hearth_model_get_info(model, &info);
    CHECK(info.gpu_bit_exact && info.gpu_head && info.gpu_bytes <= divided);
    hearth_model_close(model);
}

TEST(weights_of_floats_are_refused_by_name_or_taken_with_a_note)
{
    const char *path = test_scratch("floats.gguf");
    tiny_model m = tiny_new();
    for (uint32_t i = 0; i < m.n_tensor; i++)
        if (m.tensors[i].n_dim == 2) m.tensors[i].type = HTH_TYPE_Q4_0;
    tiny_find(&m, "blk.1.ffn_up.weight")->type = HTH_TYPE_F16;
    gguf_bytes file = tiny_take(&m);
    CHECK(test_write_file(path, file.data, file.n));
    gguf_free(&file);
    check_refused(path, 0, "null", "blk.1.ffn_up.weight is F16");
    check_taken(path, 0, "blk.1.ffn_up.weight is F16", 0);
}
