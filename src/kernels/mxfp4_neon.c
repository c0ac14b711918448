/* Rows of MXFP4, AArch64 level neon. */
#include "kernels/mxfp4_arm.h"

void hth_kernels_mxfp4_neon(hth_kernels *k) { k->rows[HTH_TYPE_MXFP4] = rows; }
