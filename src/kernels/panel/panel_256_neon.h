/* Panels of types in blocks of 256 on AArch64, levels dotprod and i8mm: four rows at a time. The including file
 * defines BLOCK_SIZE, HAS_MINIMUM, SCALE_AT, MINIMUM_AT, OFFSET_SHIFT (weights are too large by 2^OFFSET_SHIFT;
 * -1: no offset), KERNEL_TYPE, and from quant/TYPE/panel.h
 *   N_SCALE        scales of a row's block, 8 or 16; SCALES_SIGNED 1: they may be negative
 *   panel_weights(a, i, w)  fours of weights 64i to 64i + 63 of a quarter of a panel's block
 *   panel_scales(a, s, m)   its scales, four of each row in a vector of bytes, and its minima
 * This file defines panels(job). sdot also multiplies scales and minima by the sums of their inputs: a sum, of
 * at most 32 inputs, is split into a signed byte times 64 and six bits. */
#define HAS_PANELS
#include "kernels/quant/rows_loop.h"

enum {
    PANEL_COL = HTH_ACT_BLOCK_256,
    PANEL_CHUNK = 4,
    N_PANEL = 1,
    ONE_BY_ONE_TOK = 1,
    N_PART = PANEL_COL / HTH_ACT_SUBBLOCK,
    N_FOUR = PANEL_COL / 4 / N_SCALE, /* fours of weights that share a scale: 4 or 8 */
    HAS_OFFSET = OFFSET_SHIFT >= 0,
    TOGETHER = 2, /* quarters that share their inputs; more would exceed the registers */
};

#define SUBTRACTS_MINIMA 1
#include "kernels/panel/panel_sums_neon.h"

/* ---- scales ---------------------------------------------------------------------------- */

/* Scale k of each row. */
HTH_INLINE int32x4_t scale_of(const vints *s, int k)
{
    uint32_t at = (uint32_t)k % 4;
    if (!SCALES_SIGNED) return vreinterpretq_s32_u8(pick(s[k / 4], at | 0x80808000));
    int32x4_t top = vreinterpretq_s32_u8(s[k / 4]) << vdupq_n_s32(24 - 8 * (int)at);
    return vshrq_n_s32(top, 24);
}

/* The sums of the inputs that share a scale, in order, the first in byte 0. */
typedef struct input_sums {
    int8x16_t sixty_fours, ones;
} input_sums;

HTH_INLINE input_sums take_sums(const int16_t sum_16[N_PART])
{
    int16x8_t a = vld1q_s16(sum_16), b = vld1q_s16(sum_16 + 8);
    if (N_SCALE == 8) a = b = vpaddq_s16(a, b);
    int8x16_t low = vuzp1q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b));
    a = vshrq_n_s16(a, 6), b = vshrq_n_s16(b, 6);
    return (input_sums){vuzp1q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b)),
                        vandq_s8(low, vdupq_n_s8(63))};
}

/* Scales (or minima) times sums of inputs. */
HTH_INLINE int32x4_t times_sums_of_inputs(const vints *s, input_sums x)
{
    int32x4_t sum = vdupq_n_s32(0);
    HTH_UNROLL
    for (int k = 0; k < N_SCALE / 4; k++) sum = dot_lane(sum, s[k], x.sixty_fours, k);
    sum = vshlq_n_s32(sum, 6);
    HTH_UNROLL
    for (int k = 0; k < N_SCALE / 4; k++) sum = dot_lane(sum, s[k], x.ones, k);
    return sum;
}

/* ---- one token --------------------------------------------------------------------------- */

/* Adds the products of a quarter's block with 64 inputs from 64i on. */
HTH_INLINE int32x4_t add_64(int32x4_t isum, panel_block a, const vints *s, int i, const int8_t *q)
{
    const int8x16_t x[4] = {vld1q_s8(q), vld1q_s8(q + 16), vld1q_s8(q + 32), vld1q_s8(q + 48)};
    vints w[16];
    panel_weights(a, i, w);
    HTH_UNROLL
    for (int n = 0; n < N_SCALE / 4; n++) {
        int32x4_t sum = vdupq_n_s32(0);
        HTH_UNROLL
        for (int g = n * N_FOUR; g < (n + 1) * N_FOUR; g++) sum = dot_lane(sum, w[g], x[g / 4], g % 4);
        isum = vmlaq_s32(isum, sum, scale_of(s, i * (N_SCALE / 4) + n));
    }
    return isum;
}

/* The integer sums of a block. Not inlined: it needs all registers, and the passes of one_token hold unfinished
 * sums. */
static __attribute__((noinline)) void sums_of_one(const uint8_t *p, const int8_t *q, const int16_t *sum_16,
                                                  int32x4_t isum[4], int32x4_t msum[4])
{
    input_sums x = take_sums(sum_16);
    for (int h = 0; h < 4; h++) {
        panel_block a = {p, h};
        vints s[N_SCALE / 4], m[N_SCALE / 4];
        int32x4_t sum = vdupq_n_s32(0);
        panel_scales(a, s, m);
        HTH_UNROLL
        for (int i = 0; i < 4; i++) sum = add_64(sum, a, s, i, q + 64 * i);
        if (HAS_OFFSET)
            sum = vsubq_s32(sum, times_sums_of_inputs(s, x) << vdupq_n_s32(HAS_OFFSET ? OFFSET_SHIFT : 0));
        isum[h] = sum;
        if (HAS_MINIMUM) msum[h] = times_sums_of_inputs(m, x);
    }
}

HTH_INLINE sums block_of_one(const hth_rows *job, const uint8_t *p, size_t b, sums to, hth_prefetch_mode prefetch)
{
    (void)prefetch;
    float32x4_t dx = vdupq_n_f32(job->act.d[b]);
    int32x4_t isum[4], msum[4];
    sums_of_one(p, job->act.q + b * PANEL_COL, job->act.sum_16 + b * N_PART, isum, msum);
    HTH_UNROLL
    for (int h = 0; h < 4; h++) {
        panel_block a = {p, h};
        to.p[h] = add_term(to.p[h], unit_half(a, SCALE_AT), dx, vcvtq_f32_s32(isum[h]));
#if HAS_MINIMUM
        to.m[h] = add_term(to.m[h], unit_half(a, MINIMUM_AT), dx, vcvtq_f32_s32(msum[h]));
#endif
    }
    return to;
}

/* ---- several tokens ------------------------------------------------------------------------ */

/* A quarter of a block: weights without offset in the order of put_weights, scales in that of put_scale. */
typedef struct quarter {
    int8x16_t w[PANEL_COL / 4];
    int32x4_t scale[N_SCALE][N_SIDE];
    float32x4_t d;
#if HAS_MINIMUM
    float32x4_t m;
    vints minimum[N_SCALE / 4];
#endif
} quarter;

typedef struct chunk {
    quarter block[PANEL_CHUNK][4];
} chunk;

HTH_INLINE void fill_quarter(quarter *to, panel_block a)
{
    vints s[N_SCALE / 4], m[N_SCALE / 4];
    panel_scales(a, s, m);
    HTH_UNROLL
    for (int i = 0; i < 4; i++) {
        vints w[16];
        panel_weights(a, i, w);
        HTH_UNROLL
        for (int g = 0; g < 16 && HAS_OFFSET; g++) w[g] = less(w[g], HAS_OFFSET ? 1 << OFFSET_SHIFT : 0);
        put_weights(to->w + 16 * i, w, 16);
    }
    HTH_UNROLL
    for (int k = 0; k < N_SCALE; k++) put_scale(to->scale[k], scale_of(s, k));
    to->d = unit_half(a, SCALE_AT);
#if HAS_MINIMUM
    to->m = unit_half(a, MINIMUM_AT);
    for (int k = 0; k < N_SCALE / 4; k++) to->minimum[k] = m[k];
#endif
}

HTH_INLINE void fill(chunk *to, size_t i, int r, const uint8_t *p)
{
    (void)r;
    for (int h = 0; h < 4; h++) fill_quarter(&to->block[i][h], (panel_block){p, h});
}

/* The integer sums of TOGETHER quarters of a block, from k on. */
HTH_INLINE void quarter_sums(const quarter *k, const int8_t *q, size_t n_tok,
                             int32x4_t isum[TOGETHER][HTH_TILE_TOK])
{
    for (int h = 0; h < TOGETHER; h++)
        for (size_t t = 0; t < n_tok; t++) isum[h][t] = vdupq_n_s32(0);
    for (size_t i = 0; i < PANEL_COL / 32; i++) {
        inputs in = take_inputs(q + 32 * i, PANEL_COL, n_tok);
        HTH_UNROLL
        for (int h = 0; h < TOGETHER; h++) {
            HTH_UNROLL
            for (int g = 0; g < 8; g += N_FOUR) {
                const int32x4_t *scale = k[h].scale[8 * i / N_FOUR + (size_t)g / N_FOUR];
                int32x4_t sum[HTH_TILE_TOK];
                for (size_t t = 0; t < n_tok; t++) sum[t] = vdupq_n_s32(0);
                add_products(sum, k[h].w + 8 * i, &in, g, N_FOUR, n_tok);
                for (size_t t = 0; t < n_tok; t++)
                    isum[h][t] = vmlaq_s32(isum[h][t], sum[t], scale[t % N_SIDE]);
            }
        }
    }
    for (int h = 0; h < TOGETHER; h++) by_token(isum[h], n_tok);
}

HTH_INLINE void multiply(const chunk *c, size_t n, const hth_tiles *tiles, size_t at, size_t n_tok,
                         sums (*to)[N_PANEL], hth_prefetch_cursor *next)
{
    const int8_t *q = tiles->q + at * PANEL_COL;
    const float *d = tiles->d + at;
#if HAS_MINIMUM
    const int16_t *sum_16 = tiles->sum_16 + at * N_PART;
#endif
    for (size_t b = 0; b < n; b++) {
        hth_prefetch_share(next, N_PANEL);
        float32x4_t dx = vld1q_f32(d);
#if HAS_MINIMUM
        input_sums x[HTH_TILE_TOK];
        for (size_t t = 0; t < n_tok; t++) x[t] = take_sums(sum_16 + t * N_PART);
        sum_16 += HTH_TILE_TOK * N_PART;
#endif
        for (int first = 0; first < 4; first += TOGETHER) {
            int32x4_t isum[TOGETHER][HTH_TILE_TOK];
            quarter_sums(&c->block[b][first], q, n_tok, isum);
            HTH_UNROLL
            for (int h = 0; h < TOGETHER; h++) {
                const quarter *k = &c->block[b][first + h];
                for (size_t t = 0; t < n_tok; t++) {
                    float32x4_t *p = &to[t][0].p[first + h];
                    *p = *p + times_lane(k->d, dx, t) * vcvtq_f32_s32(isum[h][t]);
#if HAS_MINIMUM
                    float32x4_t *m = &to[t][0].m[first + h], m_dx = times_lane(k->m, dx, t);
                    *m = *m + m_dx * vcvtq_f32_s32(times_sums_of_inputs(k->minimum, x[t]));
#endif
                }
            }
        }
        q += HTH_TILE_TOK * PANEL_COL, d += HTH_TILE_TOK;
    }
}

#include "kernels/panel/panel_loop.h"
