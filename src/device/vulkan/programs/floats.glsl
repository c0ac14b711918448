/* How floats behave, for every program: rounded to nearest, subnormals, infinities, NaN and signs of zeros kept
 * (docs/arithmetic.md 1). A device that cannot promise one gets the words without it (floats.c). */
#extension GL_EXT_spirv_intrinsics : require

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32); /* DenormPreserve */
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32); /* SignedZeroInfNanPreserve */
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32); /* RoundingModeRTE */
