/* Rows and neuron-major down of Q2_K, AArch64 level neon. */
#include "kernels/q2_k_arm.h"

#include "kernels/axpy_256_neon.h"

void hth_kernels_q2_k_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q2_K] = rows;
    k->axpy[HTH_TYPE_Q2_K] = down;
}
