/* Halves to floats by integers, subnormals included: what a driver's own conversion does with those is
 * its affair. */

/* Bits 0 to 15 of h. */
float f16_to_f32(uint h)
{
    const uint rebias = 112u << 23; /* of exponents: 127 - 15 */
    uint magnitude = h & 0x7fffu, bits = (magnitude << 13) + rebias;
    precise float subnormal = float(magnitude) * 5.9604644775390625e-8; /* 2^-24, exact */
    if (magnitude < 0x400u) bits = floatBitsToUint(subnormal);
    if (magnitude >= 0x7c00u) bits += rebias;
    return uintBitsToFloat((h & 0x8000u) << 16 | bits);
}
