/* Rows and neuron-major down of MXFP4, AArch64 level neon. */
#include "kernels/mxfp4_arm.h"

#include "kernels/axpy_32_neon.h"

void hth_kernels_mxfp4_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_MXFP4] = rows;
    k->axpy[HTH_TYPE_MXFP4] = down;
}
