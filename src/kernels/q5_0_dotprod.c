/* Rows of Q5_0, AArch64 level dotprod. */
#include "kernels/q5_0_arm.h"

void hth_kernels_q5_0_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_Q5_0] = rows; }
