/* Rows and neuron-major down of Q4_K, AArch64 level neon. */
#include "kernels/q4_k_arm.h"

#include "kernels/axpy_256_neon.h"

void hth_kernels_q4_k_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q4_K] = rows;
    k->axpy[HTH_TYPE_Q4_K] = down;
}
