/* Neuron-major down for types in blocks of 256 on AArch64. The including file defines
 *   BLOCK_SIZE, SCALE_AT, HAS_MINIMUM, MINIMUM_AT
 *   block, unpack(p)     scale: sixteen 16-bit integers; minimum: the same, if HAS_MINIMUM
 *   weights(k, i)        weights 16i to 16i + 15 as signed bytes; i is a constant
 * This file defines down(job). docs/arithmetic.md 6. */
#define HAS_AXPY
#define BLOCK_COL 256
#include "kernels/axpy/axpy_neon.h"
#include "kernels/axpy/axpy_loop.h"

/* rint(h (x) (d * four integers)). Products of an F16 value and a small integer are exact. */
HTH_INLINE int32x4_t part_coefficients(float h, const uint8_t *half, const int16_t *integers)
{
    float32x4_t d = vdupq_n_f32(hth_f16_to_f32(hth_load_u16(half)));
    return coefficients(h, vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vld1_s16(integers)))));
}

HTH_INLINE void add_outputs(const down_rows *r, size_t at, int32_t *sums, int32_t *offsets)
{
    int16_t c[AXPY_ROWS][16];
    block b[AXPY_ROWS];
    for (int k = 0; k < AXPY_ROWS; k++) {
        const uint8_t *p = r->row[k] + at;
        b[k] = unpack(p);
        for (int i = 0; i < 16; i += 4) {
            vst1_s16(c[k] + i, vmovn_s32(part_coefficients(r->h[k], p + SCALE_AT, b[k].scale + i)));
#if HAS_MINIMUM
            int32x4_t m = part_coefficients(r->h[k], p + MINIMUM_AT, b[k].minimum + i);
            vst1q_s32(offsets + i, vaddq_s32(vld1q_s32(offsets + i), m));
#endif
        }
    }
    (void)offsets;
    HTH_UNROLL
    for (int i = 0; i < 16; i++) {
        fetch_next(r, AXPY_ROWS, at + (size_t)(BLOCK_SIZE * i / 16), at + (size_t)(BLOCK_SIZE * (i + 1) / 16));
        sixteen_sums s = load_sums(sums + 16 * i);
        HTH_UNROLL
        for (int k = 0; k < AXPY_ROWS; k++) s = add_weights(s, weights(&b[k], i), c[k][i]);
        store_sums(sums + 16 * i, s);
    }
}
