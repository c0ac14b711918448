/* SPIR-V of the shaders; needs no Vulkan headers. */
#ifndef HTH_DEVICE_VULKAN_SPIRV_H
#define HTH_DEVICE_VULKAN_SPIRV_H

#include "device/shaders.h"

#include <stdbool.h>

/* SPIR-V of a shader, from the build (cmake/vulkan.cmake); NULL: none. dot: the variant with integer dot products,
 * where the shader has one. size: bytes. */
const uint32_t *hth_vk_spirv(hth_shader_id id, bool dot, size_t *size);

/* Float controls. Every shader requires the first three (shaders/floats.glsl). */
enum {
    HTH_VK_DENORM_PRESERVE = 1, /* denormals are preserved */
    HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE = 2,   /* infinities, NaNs and signed zeros are preserved */
    HTH_VK_ROUNDING_RTE = 4,   /* rounding is to nearest, ties to even */
    HTH_VK_DENORM_PRESERVE_16 = 8, /* denormal halves are preserved */
    HTH_VK_FLOAT_CONTROLS_ALL = 15,
};

/* Copies words[n] to to[n + HTH_VK_SPIRV_MORE] with the float controls in `floats`: those of the first three that are
 * not in it are left out, the last is added if it is. Returns the number of words written. Input that is not a SPIR-V
 * module is copied unchanged. */
enum { HTH_VK_SPIRV_MORE = 4 };
size_t hth_vk_spirv_set_float_controls(const uint32_t *words, size_t n, uint32_t floats, uint32_t *to);

#endif
