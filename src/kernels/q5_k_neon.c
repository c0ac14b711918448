/* Rows and neuron-major down of Q5_K, AArch64 level neon. */
#include "kernels/q5_k_arm.h"

#include "kernels/axpy_256_neon.h"

void hth_kernels_q5_k_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q5_K] = rows;
    k->axpy[HTH_TYPE_Q5_K] = down;
}
