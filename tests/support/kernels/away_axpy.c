/* ref_down.c of a device that rounds ties away from zero (away.h). */
#include "support/kernels/away.h"

#define hth_round_even away_round
#define hth_axpy_finish away_finish
#include "forward/gpu/ref/ref_down.c"
