/* Pipelines of a Vulkan device: a shader module of the build, its bindings from the shader table, one pipeline per
 * set of specialisation constants. */
#include "base/alloc.h"
#include "device/vulkan/vulkan_int.h"

#include <string.h>

static hearth_status make_layouts(hth_device *d, hth_vk_pipeline *own, const hth_shader_info *shader,
                                  hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkDescriptorSetLayoutBinding bindings[HTH_SHADER_MAX_BIND];
    uint32_t n = (uint32_t)strlen(shader->bindings);
    for (uint32_t i = 0; i < n; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i,
                                                     .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                                     .descriptorCount = 1,
                                                     .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    VkDescriptorSetLayoutCreateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                           .bindingCount = n,
                                           .pBindings = bindings};
    VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, shader->push_size};
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .setLayoutCount = 1,
                                         .pSetLayouts = &own->set,
                                         .pushConstantRangeCount = shader->push_size > 0,
                                         .pPushConstantRanges = &push};
    VkResult r = vk->call.vkCreateDescriptorSetLayout(vk->handle, &set, NULL, &own->set);
    if (r != VK_SUCCESS) return hth_vk_fail(err, d, "vkCreateDescriptorSetLayout", r);
    r = vk->call.vkCreatePipelineLayout(vk->handle, &layout, NULL, &own->layout);
    return r == VK_SUCCESS ? HEARTH_OK : hth_vk_fail(err, d, "vkCreatePipelineLayout", r);
}

/* The build's SPIR-V, with the float controls that the device supports. */
static hearth_status make_module(hth_device *d, hth_vk_pipeline *own, hth_shader_id id, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    size_t size;
    const uint32_t *words = hth_vk_spirv(id, d->info.features & HTH_FEATURE_INT_DOT, &size);
    if (!words)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: this build has no shader %s", d->info.name,
                        hth_shader_infos[id].name);
    uint32_t *adapted = hth_alloc(size / sizeof *adapted + HTH_VK_SPIRV_MORE, sizeof *adapted);
    if (!adapted) return hth_fail_memory(err, size, "the SPIR-V of a shader");
    size_t n = hth_vk_spirv_set_float_controls(words, size / sizeof *adapted, vk->physical.float_controls, adapted);
    VkShaderModuleCreateInfo module = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = n * sizeof *adapted, .pCode = adapted};
    VkResult r = vk->call.vkCreateShaderModule(vk->handle, &module, NULL, &own->module);
    hth_free(adapted);
    return r == VK_SUCCESS ? HEARTH_OK : hth_vk_fail(err, d, "vkCreateShaderModule", r);
}

static hearth_status make_pipeline(hth_device *d, hth_vk_pipeline *own, const hth_pipeline *p,
                                   hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkSpecializationMapEntry entries[HTH_SHADER_MAX_CONST + 1];
    uint32_t values[HTH_SHADER_MAX_CONST + 1], n = hth_shader_infos[p->id].n_const;
    for (uint32_t i = 0; i < n; i++) entries[i] = (VkSpecializationMapEntry){i, 4 * i, 4};
    entries[n] = (VkSpecializationMapEntry){HTH_SHADER_CONVERTS_HALVES, 4 * n, 4};
    memcpy(values, p->consts, n * sizeof *values);
    values[n++] = d->info.converts_halves;
    VkSpecializationInfo consts = {n, entries, n * sizeof *values, values};
    VkPipelineShaderStageCreateFlags full =
        hth_shader_coopmat_level(p->id) ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0;
    /* Tiles are divided among subgroups of this size (forward/gpu/coopmat_shapes.c); drivers may choose another one. */
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = d->info.subgroup_size};
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = full && vk->physical.has_subgroup_size ? &size : NULL,
                  .flags = full,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = own->module,
                  .pName = "main",
                  .pSpecializationInfo = &consts},
        .layout = own->layout};
    VkResult r = vk->call.vkCreateComputePipelines(vk->handle, vk->pipeline_cache, 1, &info, NULL, &own->pipeline);
    vk->compiled = true;
    if (r == VK_SUCCESS) return HEARTH_OK;
    hearth_status st = hth_vk_fail(err, d, "vkCreateComputePipelines", r);
    /* What a driver cannot compile for its matrix units can run without them. */
    return full && r != VK_ERROR_DEVICE_LOST && st == HEARTH_ERROR_DEVICE
               ? hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: its driver does not compile %s (%d)",
                          d->info.name, hth_shader_infos[p->id].name, (int)r)
               : st;
}

hearth_status hth_vk_pipeline_new(hth_device *d, hth_pipeline *p, hearth_error *err)
{
    hth_vk_pipeline *own = hth_alloc(1, sizeof *own);
    if (!own) return hth_fail_memory(err, sizeof *own, "a pipeline");
    p->priv = own;
    hearth_status st = make_layouts(d, own, &hth_shader_infos[p->id], err);
    if (st == HEARTH_OK) st = make_module(d, own, p->id, err);
    if (st == HEARTH_OK) st = make_pipeline(d, own, p, err);
    if (st != HEARTH_OK) hth_vk_pipeline_free(d, p);
    return st;
}

void hth_vk_pipeline_free(hth_device *d, hth_pipeline *p)
{
    hth_vk_device *vk = d->priv;
    hth_vk_pipeline *own = p->priv;
    if (vk->hangs) goto done;
    if (own->pipeline) vk->call.vkDestroyPipeline(vk->handle, own->pipeline, NULL);
    if (own->layout) vk->call.vkDestroyPipelineLayout(vk->handle, own->layout, NULL);
    if (own->set) vk->call.vkDestroyDescriptorSetLayout(vk->handle, own->set, NULL);
    if (own->module) vk->call.vkDestroyShaderModule(vk->handle, own->module, NULL);
done:
    hth_free(own);
}
