/* Rows of Q5_0, AArch64 level neon. */
#include "kernels/q5_0_arm.h"

void hth_kernels_q5_0_neon(hth_kernels *k) { k->rows[HTH_TYPE_Q5_0] = rows; }
