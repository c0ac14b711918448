/* Rows and neuron-major down of IQ4_NL, AArch64 level neon. */
#include "kernels/iq4_nl_arm.h"

HTH_INLINE float32x4_t block_scales(const uint8_t *p) { return four_scales(p, BLOCK_SIZE); }

#include "kernels/axpy_32_neon.h"

void hth_kernels_iq4_nl_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_IQ4_NL] = rows;
    k->axpy[HTH_TYPE_IQ4_NL] = down;
}
