/* Rows of Q4_0, AArch64 level dotprod. */
#include "kernels/q4_0_arm.h"

void hth_kernels_q4_0_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_Q4_0] = rows; }
