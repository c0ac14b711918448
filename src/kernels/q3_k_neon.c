/* Rows and neuron-major down of Q3_K, AArch64 level neon. */
#include "kernels/q3_k_arm.h"

#include "kernels/axpy_256_neon.h"

void hth_kernels_q3_k_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q3_K] = rows;
    k->axpy[HTH_TYPE_Q3_K] = down;
}
