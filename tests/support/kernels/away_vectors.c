/* ref_vectors.c of a device that rounds ties away from zero (away.h). */
#include "support/kernels/away.h"

#define hth_kernels_init away_kernels
#include "forward/gpu/ref/ref_vectors.c"
