/* Rows of Q4_0, AArch64 level neon. */
#include "kernels/q4_0_arm.h"

void hth_kernels_q4_0_neon(hth_kernels *k) { k->rows[HTH_TYPE_Q4_0] = rows; }
