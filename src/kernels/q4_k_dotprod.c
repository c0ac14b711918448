/* Rows of Q4_K, AArch64 level dotprod. */
#include "kernels/q4_k_arm.h"

void hth_kernels_q4_k_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_Q4_K] = rows; }
