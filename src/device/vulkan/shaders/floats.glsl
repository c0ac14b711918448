/* How floats behave, for every program: subnormals, then infinities, NaN and signs of zeros are kept, and
 * rounding is to nearest (docs/arithmetic.md 1): DenormPreserve, SignedZeroInfNanPreserve, RoundingModeRTE. A
 * device that cannot promise one gets the words without it; one that can keep subnormal halves is asked to do that too
 * (spirv_float_controls.c), as GLSL has no second width of a mode. Sums and products are `precise`; loops
 * around them are never marked [[unroll]], as the copies that the compiler makes lose that mark. */
#extension GL_EXT_spirv_intrinsics : require

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);

/* Comparisons are of integers: some GPUs, NVIDIA's among them, compare subnormals as zeros although their sums and
 * products keep them. */

/* x < limit, false for NaN. */
bool is_below(float x, float limit)
{
    int a = floatBitsToInt(x), b = floatBitsToInt(limit);
    bool is_nan = (a & 0x7fffffff) > 0x7f800000 || (b & 0x7fffffff) > 0x7f800000;
    /* Maps magnitudes with a sign to ascending numbers; both zeros are equal. */
    int p = a < 0 ? -(a & 0x7fffffff) : a, r = b < 0 ? -(b & 0x7fffffff) : b;
    return !is_nan && p < r;
}

/* The larger one; a where either is NaN. */
float larger_of(float a, float b) { return is_below(a, b) ? b : a; }

bool is_zero(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0; }
