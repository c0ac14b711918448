/* Rows and neuron-major down of Q4_1, AArch64 level neon. */
#include "kernels/q4_1_arm.h"

HTH_INLINE float32x4_t block_scales(const uint8_t *p) { return four_scales(p, BLOCK_SIZE); }
HTH_INLINE float32x4_t block_minima(const uint8_t *p) { return four_scales(p + 2, BLOCK_SIZE); }

#include "kernels/axpy_32_neon.h"

void hth_kernels_q4_1_neon(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q4_1] = rows;
    k->axpy[HTH_TYPE_Q4_1] = down;
}
