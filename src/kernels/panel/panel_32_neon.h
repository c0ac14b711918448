/* Panels of types in blocks of 32 on AArch64, levels dotprod and i8mm: four rows at a time. The including file
 * defines BLOCK_SIZE and HAS_MINIMUM as for rows_tmpl.h, KERNEL_TYPE, and from quant/TYPE/panel.h
 *   WEIGHT_OFFSET  weights are too large by this; 0: no offset
 *   panel_weights(a, w)  the eight fours of weights of a quarter of a panel's block
 *   panel_scales(a)      its four scales; panel_minima(a) if HAS_MINIMUM
 * This file defines panels(job). */
#define HAS_PANELS
#include "kernels/quant/rows_loop.h"

enum {
    PANEL_COL = HTH_ACT_BLOCK,
    PANEL_CHUNK = 32,
    N_PANEL = 1,
    ONE_BY_ONE_TOK = 1,
    N_FOUR = PANEL_COL / 4,
    TOGETHER = 2, /* quarters that share their inputs; more would exceed the registers */
};

#define SUBTRACTS_MINIMA 0
#include "kernels/panel/panel_sums_neon.h"

/* ---- one token --------------------------------------------------------------------------- */

HTH_INLINE sums block_of_one(const hth_rows *job, const uint8_t *p, size_t b, sums s, hth_prefetch_mode prefetch)
{
    (void)prefetch;
    const int8_t *q = job->act.q + b * PANEL_COL;
    const int8x16_t x[2] = {vld1q_s8(q), vld1q_s8(q + 16)};
    int32_t sum = job->act.sum[b];
    HTH_UNROLL
    for (int h = 0; h < 4; h++) {
        panel_block a = {p, h};
        vints w[N_FOUR];
        int32x4_t isum = vdupq_n_s32(-WEIGHT_OFFSET * sum);
        panel_weights(a, w);
        HTH_UNROLL
        for (int g = 0; g < N_FOUR; g++) isum = dot_lane(isum, w[g], x[g / 4], g % 4);
        float32x4_t dx = vdupq_n_f32(job->act.d[b]);
        s.p[h] = add_term(s.p[h], panel_scales(a), dx, vcvtq_f32_s32(isum));
#if HAS_MINIMUM
        s.m[h] = add_term(s.m[h], panel_minima(a), dx, vcvtq_f32_s32(vdupq_n_s32(sum)));
#endif
    }
    return s;
}

/* ---- several tokens ------------------------------------------------------------------------ */

/* Blocks of a panel, in quarters: weights without offset in the order of put_weights. */
typedef struct chunk {
    int8x16_t w[PANEL_CHUNK][4][N_FOUR];
    float32x4_t d[PANEL_CHUNK][4];
#if HAS_MINIMUM
    float32x4_t m[PANEL_CHUNK][4];
#endif
} chunk;

HTH_INLINE void fill(chunk *to, size_t i, int r, const uint8_t *p)
{
    (void)r;
    HTH_UNROLL
    for (int h = 0; h < 4; h++) {
        panel_block a = {p, h};
        vints w[N_FOUR];
        panel_weights(a, w);
        HTH_UNROLL
        for (int g = 0; g < N_FOUR && WEIGHT_OFFSET > 0; g++) w[g] = less(w[g], WEIGHT_OFFSET);
        put_weights(to->w[i][h], w, N_FOUR);
        to->d[i][h] = panel_scales(a);
#if HAS_MINIMUM
        to->m[i][h] = panel_minima(a);
#endif
    }
}

/* Quarters from `first` on. */
HTH_INLINE void multiply_quarters(const chunk *c, int first, size_t n, const hth_tiles *tiles, size_t at,
                                  size_t n_tok, sums (*s)[N_PANEL], hth_prefetch_cursor *next)
{
    const int8_t *q = tiles->q + at * PANEL_COL;
    const float *d = tiles->d + at;
    float32x4_t p[TOGETHER][HTH_TILE_TOK];
    for (int h = 0; h < TOGETHER; h++)
        for (size_t t = 0; t < n_tok; t++) p[h][t] = s[t][0].p[first + h];
#if HAS_MINIMUM
    const int32_t *offset = tiles->offset + at;
    float32x4_t m[TOGETHER][HTH_TILE_TOK];
    for (int h = 0; h < TOGETHER; h++)
        for (size_t t = 0; t < n_tok; t++) m[h][t] = s[t][0].m[first + h];
#endif
    for (size_t b = 0; b < n; b++, q += HTH_TILE_TOK * PANEL_COL, d += HTH_TILE_TOK) {
        inputs in = take_inputs(q, PANEL_COL, n_tok);
        float32x4_t dx = vld1q_f32(d);
        if (first == 0) hth_prefetch_share(next, N_PANEL);
#if HAS_MINIMUM
        /* The sums of the inputs: minus the offset, divided by 128. */
        float32x4_t sum = vcvtq_n_f32_s32(vnegq_s32(vld1q_s32(offset)), 7);
        offset += HTH_TILE_TOK;
#endif
        HTH_UNROLL
        for (int h = 0; h < TOGETHER; h++) {
            int32x4_t isum[HTH_TILE_TOK];
            for (size_t t = 0; t < n_tok; t++) isum[t] = vdupq_n_s32(0);
            add_products(isum, c->w[b][first + h], &in, 0, N_FOUR, n_tok);
            by_token(isum, n_tok);
            for (size_t t = 0; t < n_tok; t++) {
                p[h][t] = p[h][t] + times_lane(c->d[b][first + h], dx, t) * vcvtq_f32_s32(isum[t]);
#if HAS_MINIMUM
                float32x4_t m_dx = times_lane(c->m[b][first + h], dx, t);
                m[h][t] = vaddq_f32(m[h][t], times_lane(m_dx, sum, t));
#endif
            }
        }
    }
    for (int h = 0; h < TOGETHER; h++)
        for (size_t t = 0; t < n_tok; t++) {
            s[t][0].p[first + h] = p[h][t];
#if HAS_MINIMUM
            s[t][0].m[first + h] = m[h][t];
#endif
        }
}

HTH_INLINE void multiply(const chunk *c, size_t n, const hth_tiles *tiles, size_t at, size_t n_tok,
                         sums (*s)[N_PANEL], hth_prefetch_cursor *next)
{
    for (int h = 0; h < 4; h += TOGETHER) multiply_quarters(c, h, n, tiles, at, n_tok, s, next);
}

#include "kernels/panel/panel_loop.h"
