/* Compiles the pipelines of real runs (radv_models.c) by the first Vulkan device, and writes what its compiler
 * says of them, for test_compiler.py. Meant for Mesa's RADV with RADV_FORCE_FAMILY, which compiles for GPUs that
 * are not there; such a device has no timeline semaphores, so the library itself does not open it, and nothing can
 * run on it.
 *
 *     radv_stats FOLDER
 *     radv_stats FOLDER SHADER CONSTANTS ...     these pipelines: mul_mat_vec_q 64,8,2,0,8,32,4,0,8,0,0,0,0
 *
 * Lines of fields with tabs between them: "device", its name, driver, subgroup size, and 1 with integer dot
 * products; "use", model, step, number of the pipeline, dispatches of a step; "pipeline", number, shader,
 * constants with commas between them, then a field for each statistic, name=value. FOLDER/NUMBER.s has the
 * instructions of a pipeline. */
#include "device/radv_stats.h"

#include "device/vulkan/vulkan_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PIPELINE = 1024, MAX_STATISTIC = 64, MAX_TEXT = 8 };

#define FOR_EACH_CALL(CALL)                                                                                  \
    CALL(vkCreateDevice)                                                                                     \
    CALL(vkCreateDescriptorSetLayout)                                                                        \
    CALL(vkCreatePipelineLayout)                                                                             \
    CALL(vkCreateShaderModule)                                                                               \
    CALL(vkCreateComputePipelines)                                                                           \
    CALL(vkGetPipelineExecutableStatisticsKHR)                                                               \
    CALL(vkGetPipelineExecutableInternalRepresentationsKHR)
static struct {
#define CALL(name) PFN_##name name;
    FOR_EACH_CALL(CALL)
#undef CALL
} vk;

static VkDevice device;
static uint32_t float_controls; /* HTH_VK_* */
static bool has_dot, has_matrices;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "radv_stats: %s\n", what);
    fflush(NULL);
    _exit(1);
}

static void check(VkResult r, const char *what)
{
    if (r != VK_SUCCESS) die(what);
}

/* ---- the device ------------------------------------------------------------------------------------------ */

static VkPhysicalDevice first_device(void)
{
    static hth_vk_instance instance;
    hth_vk_physical_device physical[HTH_MAX_DEVICE];
    hearth_error err = {0};
    size_t n = 0;
    hearth_status st = hth_vk_instance_open(&instance, false, &err);
    if (st == HEARTH_OK) st = hth_vk_find(&instance, 0, physical, &n, &err);
    if (st != HEARTH_OK) die(err.message);
    if (n == 0) die("no device");
#define CALL(name)                                                                                           \
    vk.name = (PFN_##name)instance.vkGetInstanceProcAddr(instance.handle, #name);                            \
    if (!vk.name) die("no " #name);
    FOR_EACH_CALL(CALL)
#undef CALL
    float_controls = physical[0].float_controls;
    return physical[0].handle;
}

static void open_device(VkPhysicalDevice physical)
{
    static const char *const extensions[] = {VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME,
                                             VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME};
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pipelineExecutableInfo = VK_TRUE};
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
        .pNext = &statistics,
        .shaderIntegerDotProduct = has_dot};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .pNext = &dot,
        .cooperativeMatrix = VK_TRUE};
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroups = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
        .pNext = &matrix,
        .computeFullSubgroups = VK_TRUE};
    VkPhysicalDeviceVulkan12Features more = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                             .pNext = &subgroups,
                                             .shaderInt8 = VK_TRUE,
                                             .vulkanMemoryModel = VK_TRUE,
                                             .vulkanMemoryModelDeviceScope = VK_TRUE};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = has_matrices ? (void *)&more : (void *)&dot,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = has_matrices ? 2 : 1,
                               .ppEnabledExtensionNames = extensions};
    check(vk.vkCreateDevice(physical, &info, NULL, &device), "vkCreateDevice");
}

/* ---- a pipeline ------------------------------------------------------------------------------------------ */

static VkPipelineLayout layout_of(const hth_shader_info *shader)
{
    VkDescriptorSetLayoutBinding bindings[HTH_SHADER_MAX_BIND];
    VkDescriptorSetLayout set;
    VkPipelineLayout layout;
    uint32_t n = (uint32_t)strlen(shader->bindings);
    for (uint32_t i = 0; i < n; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1,
                                                     VK_SHADER_STAGE_COMPUTE_BIT, NULL};
    VkDescriptorSetLayoutCreateInfo set_info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                                .bindingCount = n,
                                                .pBindings = bindings};
    check(vk.vkCreateDescriptorSetLayout(device, &set_info, NULL, &set), "vkCreateDescriptorSetLayout");
    VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, shader->push_size};
    VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .setLayoutCount = 1,
                                       .pSetLayouts = &set,
                                       .pushConstantRangeCount = shader->push_size > 0,
                                       .pPushConstantRanges = &push};
    check(vk.vkCreatePipelineLayout(device, &info, NULL, &layout), "vkCreatePipelineLayout");
    return layout;
}

static VkShaderModule module_of(hth_shader_id id)
{
    VkShaderModule module;
    size_t size;
    const uint32_t *words = hth_vk_spirv(id, has_dot, &size);
    uint32_t *adapted = words ? malloc(size + HTH_VK_SPIRV_MORE * sizeof *words) : NULL;
    if (!adapted) die("no SPIR-V");
    size_t n = hth_vk_spirv_set_float_controls(words, size / sizeof *words, float_controls, adapted);
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                     .codeSize = n * sizeof *adapted,
                                     .pCode = adapted};
    check(vk.vkCreateShaderModule(device, &info, NULL, &module), "vkCreateShaderModule");
    free(adapted);
    return module;
}

static VkPipeline compile(hth_shader_id id, const uint32_t *consts)
{
    VkSpecializationMapEntry entries[HTH_SHADER_MAX_CONST + 1];
    VkPipeline pipeline;
    const VkPipelineShaderStageCreateFlags full = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    uint32_t words[HTH_SHADER_MAX_CONST + 1], n = hth_shader_infos[id].n_const;
    for (uint32_t i = 0; i < n; i++) entries[i] = (VkSpecializationMapEntry){i, 4 * i, 4};
    entries[n] = (VkSpecializationMapEntry){HTH_SHADER_CONVERTS_HALVES, 4 * n, 4};
    if (n > 0) memcpy(words, consts, n * sizeof *words);
    words[n++] = VK_TRUE; /* RADV keeps subnormal halves, of GCN 3 and later; nothing can be tried here */
    VkSpecializationInfo values = {n, entries, n * sizeof *words, words};
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                 VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .flags = hth_shader_coopmat_level(id) ? full : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module_of(id),
                  .pName = "main",
                  .pSpecializationInfo = &values},
        .layout = layout_of(&hth_shader_infos[id])};
    check(vk.vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline),
          hth_shader_infos[id].name);
    return pipeline;
}

static void print_statistics(const VkPipelineExecutableInfoKHR *of)
{
    static VkPipelineExecutableStatisticKHR all[MAX_STATISTIC];
    uint32_t n = MAX_STATISTIC;
    memset(all, 0, sizeof all);
    for (uint32_t i = 0; i < n; i++) all[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    check(vk.vkGetPipelineExecutableStatisticsKHR(device, of, &n, all), "statistics");
    for (uint32_t i = 0; i < n; i++)
        if (all[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR)
            printf("\t%s=%llu", all[i].name, (unsigned long long)all[i].value.u64);
}

/* The text named Assembly, to the file; false: the driver has none. */
static bool write_instructions(const VkPipelineExecutableInfoKHR *of, const char *path)
{
    VkPipelineExecutableInternalRepresentationKHR all[MAX_TEXT];
    uint32_t n = 0;
    bool found = false;
    check(vk.vkGetPipelineExecutableInternalRepresentationsKHR(device, of, &n, NULL), "representations");
    if (n > MAX_TEXT) die("more representations than expected");
    memset(all, 0, sizeof all);
    for (uint32_t i = 0; i < n; i++)
        all[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    check(vk.vkGetPipelineExecutableInternalRepresentationsKHR(device, of, &n, all), "representations");
    for (uint32_t i = 0; i < n; i++) all[i].pData = all[i].isText ? malloc(all[i].dataSize) : NULL;
    check(vk.vkGetPipelineExecutableInternalRepresentationsKHR(device, of, &n, all), "representations");
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].pData && strcmp(all[i].name, "Assembly") == 0) {
            FILE *out = fopen(path, "w");
            if (!out || fputs(all[i].pData, out) < 0 || fclose(out) != 0) die(path);
            found = true;
        }
        free(all[i].pData);
    }
    return found;
}

static void report(uint32_t number, hth_shader_id id, const uint32_t *consts, const char *folder)
{
    char path[1024];
    VkPipelineExecutableInfoKHR of = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                      .pipeline = compile(id, consts)};
    printf("pipeline\t%u\t%s\t", number, hth_shader_infos[id].name);
    for (uint32_t i = 0; i < hth_shader_infos[id].n_const; i++) printf("%s%u", i ? "," : "", consts[i]);
    print_statistics(&of);
    printf("\n");
    snprintf(path, sizeof path, "%s/%u.s", folder, number);
    if (!write_instructions(&of, path)) die("the driver shows no instructions");
}

/* ---- all of them ------------------------------------------------------------------------------------------ */

typedef struct known {
    hth_shader_id id;
    uint32_t consts[HTH_SHADER_MAX_CONST];
} known;

typedef struct list {
    known pipelines[MAX_PIPELINE];
    uint32_t n;
} list;

static void add(void *user, const char *model, const char *step, hth_shader_id id, const uint32_t *consts,
                uint32_t n)
{
    list *l = user;
    known now = {.id = id};
    uint32_t i = 0;
    for (uint32_t k = 0; k < hth_shader_infos[id].n_const; k++) now.consts[k] = consts[k];
    while (i < l->n && memcmp(&l->pipelines[i], &now, sizeof now) != 0) i++;
    if (i == MAX_PIPELINE) die("more pipelines than expected");
    if (i == l->n) l->pipelines[l->n++] = now;
    printf("use\t%s\t%s\t%u\t%u\n", model, step, i, n);
}

static void add_named(list *l, const char *name, const char *consts)
{
    known now = {0};
    while (now.id < HTH_N_SHADER && strcmp(hth_shader_infos[now.id].name, name) != 0) now.id++;
    if (now.id == HTH_N_SHADER) die("no such shader");
    for (uint32_t k = 0; k < hth_shader_infos[now.id].n_const; k++) {
        char *end;
        now.consts[k] = (uint32_t)strtoul(consts, &end, 10);
        if (end == consts) die("fewer constants than the shader has");
        consts = *end == ',' ? end + 1 : end;
    }
    l->pipelines[l->n++] = now;
}

int main(int argc, char **argv)
{
    static list all;
    static hth_device_info infos[HTH_MAX_DEVICE];
    char note[200];
    size_t n = 0;
    if (argc < 2 || argc % 2 != 0 || argc > 2 * MAX_PIPELINE) die("radv_stats FOLDER [SHADER CONSTANTS ...]");
    hth_device_list(infos, HTH_MAX_DEVICE, &n, note);
    if (n == 0) die(note);
    const hth_device_info *info = &infos[0];
    has_dot = info->features & HTH_FEATURE_INT_DOT;
    has_matrices = info->features & HTH_FEATURE_COOPMAT;
    printf("device\t%s\t%s\t%u\t%d\n", info->name, info->driver, info->subgroup_size, has_dot);
    for (int i = 2; i < argc; i += 2) add_named(&all, argv[i], argv[i + 1]);
    if (argc == 2 && !radv_models_record(info, add, &all)) return 1;
    open_device(first_device());
    for (uint32_t i = 0; i < all.n; i++) report(i, all.pipelines[i].id, all.pipelines[i].consts, argv[1]);
    fflush(NULL);
    _exit(0); /* a device of the null hardware does not close */
}
