/* Removes float controls from SPIR-V where the device does not promise them: it may behave that way all the same,
 * which the shader tests check. Adds DenormPreserve for 16 bits if the device supports it. Numbers: SPIR-V 1.5, 2.3
 * and 3. */
#include "device/vulkan/spirv.h"

#include <string.h>

enum { N_HEADER = 5, MAGIC_NUMBER = 0x07230203 };
enum { OP_EXTENSION = 10, OP_EXECUTION_MODE = 16, OP_CAPABILITY = 17 };
/* Execution modes, by SPIR-V's names. */
enum { DENORM_PRESERVE = 4459, SIGNED_ZERO_INF_NAN_PRESERVE = 4461, ROUNDING_MODE_RTE = 4462 };

static const struct {
    uint32_t bit, mode, capability, needed_by;
} controls[] = {
    {HTH_VK_DENORM_PRESERVE, DENORM_PRESERVE, 4464, HTH_VK_DENORM_PRESERVE | HTH_VK_DENORM_PRESERVE_16},
    {HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE, SIGNED_ZERO_INF_NAN_PRESERVE, 4466,
     HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE},
    {HTH_VK_ROUNDING_RTE, ROUNDING_MODE_RTE, 4467, HTH_VK_ROUNDING_RTE},
};
static const char EXTENSION[] = "SPV_KHR_float_controls";

static bool is_extension(const uint32_t *op, uint32_t length)
{
    return length == 1 + (sizeof EXTENSION + 3) / 4 && memcmp(op + 1, EXTENSION, sizeof EXTENSION) == 0;
}

static bool is_stripped(const uint32_t *op, uint32_t length, uint32_t floats)
{
    uint32_t code = op[0] & 0xffffu;
    if (code == OP_EXTENSION) return floats == 0 && is_extension(op, length);
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++) {
        if (code == OP_CAPABILITY && length == 2 && op[1] == controls[i].capability)
            return !(floats & controls[i].needed_by);
        if (code == OP_EXECUTION_MODE && length == 4 && op[2] == controls[i].mode) return !(floats & controls[i].bit);
    }
    return false;
}

static bool is_denorm_preserve(const uint32_t *op)
{
    return op[0] == (4u << 16 | OP_EXECUTION_MODE) && op[2] == DENORM_PRESERVE;
}

/* An instruction's length is in the upper half of its first word. */
static bool is_module(const uint32_t *words, size_t n)
{
    if (n < N_HEADER || words[0] != MAGIC_NUMBER) return false;
    size_t i = N_HEADER;
    while (i < n && words[i] >> 16 > 0 && words[i] >> 16 <= n - i) i += words[i] >> 16;
    return i == n;
}

size_t hth_vk_spirv_set_float_controls(const uint32_t *words, size_t n, uint32_t floats, uint32_t *to)
{
    memcpy(to, words, n * sizeof *to);
    if (!is_module(words, n)) return n;
    size_t kept = N_HEADER;
    for (size_t i = N_HEADER, length; i < n; i += length) {
        const uint32_t *op = words + i;
        length = op[0] >> 16;
        if (!is_stripped(op, (uint32_t)length, floats)) {
            memcpy(to + kept, op, length * sizeof *to);
            kept += length;
        }
        if (floats & HTH_VK_DENORM_PRESERVE_16 && is_denorm_preserve(op)) {
            memcpy(to + kept, (uint32_t[]){op[0], op[1], op[2], 16}, 4 * sizeof *to);
            kept += 4;
        }
    }
    return kept;
}
