/* Rows of Q6_K, AArch64 level dotprod. */
#include "kernels/q6_k_arm.h"

void hth_kernels_q6_k_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_Q6_K] = rows; }
