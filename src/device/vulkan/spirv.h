/* The words of programs (SPIR-V), which need nothing of Vulkan. */
#ifndef HTH_DEVICE_VULKAN_WORDS_H
#define HTH_DEVICE_VULKAN_WORDS_H

#include "device/shaders.h"

#include <stdbool.h>

/* Words of a program, from the build (cmake/vulkan.cmake); NULL: there are none. dot: the form with integer
 * dot products, where the program has one. size: bytes. */
const uint32_t *hth_vk_spirv(hth_shader_id id, bool dot, size_t *size);

/* What every program asks of its floats (programs/floats.glsl). */
enum {
    HTH_VK_DENORM_PRESERVE = 1, /* are kept */
    HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE = 2,   /* infinities, NaNs and signs of zeros are kept */
    HTH_VK_ROUNDING_RTE = 4,   /* rounding is to nearest, ties to even */
    HTH_VK_FLOAT_CONTROLS_ALL = 7,
};

/* to[n] = words[n] but for what asks for floats that are not among `floats`. Returns how many there are. to
 * may be words; what is no module stays as it is. */
size_t hth_vk_spirv_strip_float_controls(const uint32_t *words, size_t n, uint32_t floats, uint32_t *to);

#endif
