/* Rows and neuron-major down of IQ4_XS, AArch64 level neon. */
#include "kernels/iq4_xs_arm.h"

#include "kernels/axpy_256_neon.h"

void hth_kernels_iq4_xs_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_IQ4_XS] = rows;
    k->axpy[HTH_TYPE_IQ4_XS] = down;
}
