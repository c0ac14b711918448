/* Rows of Q5_K, AArch64 level dotprod. */
#include "kernels/q5_k_arm.h"

void hth_kernels_q5_k_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_Q5_K] = rows; }
