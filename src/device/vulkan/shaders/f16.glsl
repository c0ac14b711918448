/* Halves. The driver's conversion to floats is an instruction; it may lose subnormals, so it is used only where it was
 * exact for every half when the device was opened (device/vulkan/half_probe.c). */
layout(constant_id = 31) const bool CONVERTS_HALVES = false; /* HTH_SHADER_CONVERTS_HALVES */

/* Exact, by integer operations without branches. 2^-14 times the mantissa as a fraction, less 2^-14, is a subnormal's
 * value: both terms and the difference are normal, or 0. Infinities and NaN have the largest exponent in either
 * format. */
float widened_by_bits(uint h)
{
    uint magnitude = h & 0x7fffu, mantissa = magnitude << 13;
    precise float low = uintBitsToFloat(mantissa + 0x38800000u) - uintBitsToFloat(0x38800000u);
    uint bits = mix(mantissa + 0x38000000u, floatBitsToUint(low), magnitude < 0x400u);
    bits += mix(0u, 0x38000000u, magnitude >= 0x7c00u);
    return uintBitsToFloat(bits | (h & 0x8000u) << 16);
}

float widened(uint h) { return CONVERTS_HALVES ? unpackHalf2x16(h).x : widened_by_bits(h); }

/* The halves of a word, low one first. */
vec2 widened_pair(uint word)
{
    return CONVERTS_HALVES ? unpackHalf2x16(word)
                           : vec2(widened_by_bits(word & 0xffffu), widened_by_bits(word >> 16));
}

/* To nearest even. 65520 and more become infinity, NaN the one of base/bits.h. */
uint narrowed(float x)
{
    uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;
    if (magnitude >= 0x47800000u) return sign | 0x7c00u;
    if (magnitude < 0x33000000u) return sign; /* below 2^-25 */
    if (magnitude >= 0x38800000u)
        return sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
    uint shift = 126u - (magnitude >> 23), mantissa = (magnitude & 0x7fffffu) | 0x800000u; /* 14 to 24 */
    return sign | ((mantissa + (1u << (shift - 1u)) - 1u + (mantissa >> shift & 1u)) >> shift);
}
