/* SPIR-V of the shaders; needs no Vulkan headers. */
#ifndef HTH_DEVICE_VULKAN_SPIRV_H
#define HTH_DEVICE_VULKAN_SPIRV_H

#include "device/shaders.h"

#include <stdbool.h>

/* SPIR-V of a shader, from the build (cmake/vulkan.cmake); NULL: none. dot: the variant with integer dot products,
 * where the shader has one. size: bytes. */
const uint32_t *hth_vk_spirv(hth_shader_id id, bool dot, size_t *size);

/* Float controls that every shader requires (shaders/floats.glsl). */
enum {
    HTH_VK_DENORM_PRESERVE = 1, /* denormals are preserved */
    HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE = 2,   /* infinities, NaNs and signed zeros are preserved */
    HTH_VK_ROUNDING_RTE = 4,   /* rounding is to nearest, ties to even */
    HTH_VK_FLOAT_CONTROLS_ALL = 7,
};

/* Copies words[n] without the float controls that are not in `floats`. Returns the number of words written. to may
 * alias words; input that is not a SPIR-V module is copied unchanged. */
size_t hth_vk_spirv_strip_float_controls(const uint32_t *words, size_t n, uint32_t floats, uint32_t *to);

#endif
