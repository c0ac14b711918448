/* Rows of Q8_0, AArch64 level neon. */
#include "kernels/q8_0_arm.h"

void hth_kernels_q8_0_neon(hth_kernels *k) { k->rows[HTH_TYPE_Q8_0] = rows; }
