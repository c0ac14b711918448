/* Removes float controls from SPIR-V where the device does not promise them: it may behave that way all the same,
 * which the shader tests check. Numbers: SPIR-V 1.5, 2.3 and 3. */
#include "device/vulkan/spirv.h"

#include <string.h>

enum { N_HEADER = 5, MAGIC_NUMBER = 0x07230203 };
enum { OP_EXTENSION = 10, OP_EXECUTION_MODE = 16, OP_CAPABILITY = 17 };

static const struct {
    uint32_t bit, mode, capability;
} controls[] = {
    {HTH_VK_DENORM_PRESERVE, 4459, 4464}, /* DenormPreserve */
    {HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE, 4461, 4466},   /* SignedZeroInfNanPreserve */
    {HTH_VK_ROUNDING_RTE, 4462, 4467},   /* RoundingModeRTE */
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
        if (floats & controls[i].bit) continue;
        if (code == OP_CAPABILITY && length == 2 && op[1] == controls[i].capability) return true;
        if (code == OP_EXECUTION_MODE && length == 4 && op[2] == controls[i].mode) return true;
    }
    return false;
}

/* An instruction's length is in the upper half of its first word. */
static bool is_module(const uint32_t *words, size_t n)
{
    if (n < N_HEADER || words[0] != MAGIC_NUMBER) return false;
    size_t i = N_HEADER;
    while (i < n && words[i] >> 16 > 0 && words[i] >> 16 <= n - i) i += words[i] >> 16;
    return i == n;
}

size_t hth_vk_spirv_strip_float_controls(const uint32_t *words, size_t n, uint32_t floats, uint32_t *to)
{
    memmove(to, words, n * sizeof *to);
    if (floats == HTH_VK_FLOAT_CONTROLS_ALL || !is_module(words, n)) return n;
    size_t kept = N_HEADER;
    for (size_t i = N_HEADER; i < n;) {
        uint32_t length = to[i] >> 16;
        if (!is_stripped(to + i, length, floats)) {
            memmove(to + kept, to + i, length * sizeof *to);
            kept += length;
        }
        i += length;
    }
    return kept;
}
