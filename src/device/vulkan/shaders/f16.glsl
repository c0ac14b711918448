/* Halves by integer operations: subnormals are kept, whatever the driver does with its own conversions. */

/* Exact. */
float widened(uint h)
{
    uint sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | magnitude << 13);
    if (magnitude >= 0x0400u) return uintBitsToFloat(sign | ((magnitude << 13) + 0x38000000u));
    if (magnitude == 0) return uintBitsToFloat(sign);
    uint top = uint(findMSB(magnitude)); /* of 2^-24: 0 to 9 */
    return uintBitsToFloat(sign | (top + 103u) << 23 | (magnitude << (23u - top) & 0x7fffffu));
}

/* The halves of a word, low one first. */
vec2 widened_pair(uint word) { return vec2(widened(word & 0xffffu), widened(word >> 16)); }

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
