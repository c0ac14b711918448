/* How floats behave, for every program: subnormals, then infinities, NaN and signs of zeros are kept, and
 * rounding is to nearest (docs/arithmetic.md 1): DenormPreserve, SignedZeroInfNanPreserve, RoundingModeRTE. A
 * device that cannot promise one gets the words without it (spirv_float_controls.c). Sums and products are `precise`; loops
 * around them are never marked [[unroll]], as the copies that the compiler makes lose that mark. */
#extension GL_EXT_spirv_intrinsics : require

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);
