/* Rows of Q8_0, AArch64 level dotprod. */
#include "kernels/q8_0_arm.h"

void hth_kernels_q8_0_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_Q8_0] = rows; }
