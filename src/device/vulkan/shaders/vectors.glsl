/* How the shaders over vectors divide a row: an invocation has four adjacent elements, which it loads at once where
 * rows are of whole fours, a workgroup those of all its invocations (forward/gpu/shader_params.h: hth_vector_groups). */
const uint LANES = gl_WorkGroupSize.x; /* a multiple of 64 */
const uint WG_ELEMENTS = 4 * LANES;

uint lane() { return gl_LocalInvocationID.x; }
/* The first element of this workgroup in a row, and of this invocation. */
uint first_of_group() { return gl_WorkGroupID.x * WG_ELEMENTS; }
uint first_element() { return first_of_group() + 4 * lane(); }
