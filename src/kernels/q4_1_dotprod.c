/* Rows of Q4_1, AArch64 level dotprod. */
#include "kernels/q4_1_arm.h"

void hth_kernels_q4_1_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_Q4_1] = rows; }
