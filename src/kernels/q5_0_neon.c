/* Rows and neuron-major down of Q5_0, AArch64 level neon. */
#include "kernels/q5_0_arm.h"

HTH_INLINE float32x4_t block_scales(const uint8_t *p) { return four_scales(p, BLOCK_SIZE); }

#include "kernels/axpy_32_neon.h"

void hth_kernels_q5_0_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q5_0] = rows;
    k->axpy[HTH_TYPE_Q5_0] = down;
}
