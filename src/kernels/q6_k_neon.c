/* Rows and neuron-major down of Q6_K, AArch64 level neon. */
#include "kernels/q6_k_arm.h"

#include "kernels/axpy_256_neon.h"

void hth_kernels_q6_k_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q6_K] = rows;
    k->axpy[HTH_TYPE_Q6_K] = down;
}
