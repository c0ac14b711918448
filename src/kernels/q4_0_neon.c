/* Rows and neuron-major down of Q4_0, AArch64 level neon. */
#include "kernels/q4_0_arm.h"

HTH_INLINE float32x4_t block_scales(const uint8_t *p) { return four_scales(p, BLOCK_SIZE); }

#include "kernels/axpy_32_neon.h"

void hth_kernels_q4_0_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q4_0] = rows;
    k->axpy[HTH_TYPE_Q4_0] = down;
}
