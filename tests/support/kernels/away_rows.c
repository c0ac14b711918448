/* ref_rows.c of a device that rounds ties away from zero (away.h). */
#include "support/kernels/away.h"

#define hth_gpu_to_float away_to_float
#include "forward/gpu/ref/ref_rows.c"
