/* What the shaders of the transposed down share (forward/gpu/shader_params.h). */
const uint SPLIT = 128, CLUSTER = 256; /* HTH_DOWN_SPLIT, HTH_CLUSTER_NEURONS */
const uint HOST_SUMS = 4, HOST_SUMS_VALID = 1, HOST_SUMS_OVERFLOW = 2; /* HTH_HOST_* */
