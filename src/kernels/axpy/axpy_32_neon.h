/* Neuron-major down for types in blocks of 32 on AArch64. The including file defines
 *   BLOCK_SIZE, HAS_MINIMUM
 *   block_scales(p, d)   the scales of four blocks; block_minima(p) if there are minima
 *   block_half(p, i)     weights 16i to 16i + 15 of the block at p as signed bytes
 * This file defines down(job). docs/arithmetic.md 6. */
#define HAS_AXPY
#define BLOCK_COL 32
#include "kernels/axpy/axpy_neon.h"
#include "kernels/axpy/axpy_loop.h"

HTH_INLINE void add_outputs(const down_rows *r, size_t at, int32_t *sums, int32_t *offsets)
{
    int16_t c[AXPY_ROWS][8];
    for (int k = 0; k < AXPY_ROWS; k++)
        for (int i = 0; i < 2; i++) {
            const uint8_t *p = r->row[k] + at + 4 * i * BLOCK_SIZE;
            vst1_s16(c[k] + 4 * i, vmovn_s32(coefficients(r->h[k], block_scales(p))));
#if HAS_MINIMUM
            int32_t *offset = offsets + 4 * i;
            vst1q_s32(offset, vsubq_s32(vld1q_s32(offset), coefficients(r->h[k], block_minima(p))));
#endif
        }
    (void)offsets;
    for (size_t i = 0; i < 8; i++) {
        size_t from = at + i * BLOCK_SIZE;
        fetch_next(r, AXPY_ROWS, from, from + BLOCK_SIZE);
        HTH_UNROLL
        for (int half = 0; half < 2; half++) {
            int32_t *sum = sums + 32 * i + 16 * (size_t)half;
            sixteen_sums s = load_sums(sum);
            HTH_UNROLL
            for (int k = 0; k < AXPY_ROWS; k++) s = add_weights(s, block_half(r->row[k] + from, half), c[k][i]);
            store_sums(sum, s);
        }
    }
}
