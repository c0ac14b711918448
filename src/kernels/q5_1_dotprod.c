/* Rows of Q5_1, AArch64 level dotprod. */
#include "kernels/q5_1_arm.h"

void hth_kernels_q5_1_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_Q5_1] = rows; }
