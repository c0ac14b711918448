/* Panels of types in blocks of 32 with AVX2: eight rows at a time. The including file defines BLOCK_SIZE and
 * HAS_MINIMUM as for rows_tmpl.h, KERNEL_TYPE, and from quant/TYPE/panel.h
 *   WEIGHT_MAX     the largest weight; 128: weights have a sign
 *   WEIGHT_OFFSET  weights are too large by this; 0: no offset
 *   panel_weights(a, w)  the eight fours of weights of half a panel's block
 *   panel_scales(a)      its eight scales; panel_minima(a) if HAS_MINIMUM
 * This file defines panels(job). */
#define HAS_PANELS
#define ONE_TOKEN_UNROLL HTH_UNROLL
#include "kernels/quant/rows_loop.h"

enum {
    PANEL_COL = HTH_ACT_BLOCK,
    PANEL_CHUNK = 32,
    N_PANEL = 1,
    ONE_BY_ONE_TOK = 1,
    HAS_SIGN = WEIGHT_MAX == 128,
    /* Products of fours that are summed in 16 bits before widening. */
    N_FIT = 2 * 127 * WEIGHT_MAX * 8 <= INT16_MAX   ? 8
            : 2 * 127 * WEIGHT_MAX * 4 <= INT16_MAX ? 4
            : 2 * 127 * WEIGHT_MAX * 2 <= INT16_MAX ? 2
                                                    : 1,
    /* Halves of a panel that are multiplied together, for as many sums as there are registers. */
    N_HALF = N_FIT >= 4 ? 2 : 1,
};

#define SUBTRACTS_MINIMA 0
#include "kernels/panel/panel_sums_avx2.h"

HTH_INLINE __m256i widened(__m256i pairs_16) { return _mm256_madd_epi16(pairs_16, _mm256_set1_epi16(1)); }

HTH_INLINE sums block_of_one(const hth_rows *job, const uint8_t *p, size_t b, sums s, hth_prefetch_mode prefetch)
{
    (void)prefetch;
    const int8_t *q = job->act.q + b * HTH_ACT_BLOCK;
    __m256i sum = _mm256_set1_epi32(job->act.sum[b]);
    __m256 dx = _mm256_set1_ps(job->act.d[b]);
    HTH_UNROLL
    for (int h = 0; h < 2; h += N_HALF) {
        __m256i w[N_HALF][8], isum[N_HALF];
        for (int j = 0; j < N_HALF; j++) {
            isum[j] = _mm256_setzero_si256();
            panel_weights((panel_block){p, h + j}, w[j]);
        }
        HTH_UNROLL
        for (int g = 0; g < 8; g += N_FIT) {
            __m256i part[N_HALF] = {0}; /* zeroed for compilers: the first fours overwrite it */
            HTH_UNROLL
            for (int i = g; i < g + N_FIT; i++) {
                __m256i four = four_bytes(q + 4 * i);
                HTH_UNROLL
                for (int j = 0; j < N_HALF; j++) {
                    __m256i pair = pair_products(w[j][i], _mm256_abs_epi8(w[j][i]), four);
                    part[j] = i == g ? pair : in_order(_mm256_add_epi16(part[j], pair));
                }
            }
            for (int j = 0; j < N_HALF; j++) isum[j] = in_order(_mm256_add_epi32(isum[j], widened(part[j])));
        }
        for (int j = 0; j < N_HALF; j++) {
            panel_block a = {p, h + j};
            if (WEIGHT_OFFSET > 0) {
                int shift = __builtin_ctz(WEIGHT_OFFSET | 256);
                isum[j] = _mm256_sub_epi32(isum[j], _mm256_slli_epi32(sum, shift));
            }
            s.p[h + j] = add_term(s.p[h + j], panel_scales(a), dx, _mm256_cvtepi32_ps(isum[j]));
#if HAS_MINIMUM
            s.m[h + j] = add_term(s.m[h + j], panel_minima(a), dx, _mm256_cvtepi32_ps(sum));
#endif
        }
    }
    return s;
}

/* Blocks of a panel, in halves: fours of weights, and their absolute values if they have a sign. */
typedef struct chunk {
    __m256i w[2][PANEL_CHUNK][8];
    __m256i size[HAS_SIGN ? 2 : 1][HAS_SIGN ? PANEL_CHUNK : 1][8];
    __m256 d[2][PANEL_CHUNK];
#if HAS_MINIMUM
    __m256 m[2][PANEL_CHUNK];
#endif
} chunk;

HTH_INLINE void fill(chunk *to, size_t i, int r, const uint8_t *p)
{
    (void)r;
    for (int h = 0; h < 2; h++) {
        panel_block a = {p, h};
        __m256i w[8];
        panel_weights(a, w);
        HTH_UNROLL
        for (int g = 0; g < 8; g++) {
            to->w[h][i][g] = w[g];
            if (HAS_SIGN) to->size[h][i][g] = _mm256_abs_epi8(w[g]);
        }
        to->d[h][i] = panel_scales(a);
#if HAS_MINIMUM
        to->m[h][i] = panel_minima(a);
#endif
    }
}

/* The integer sums of block b of N_HALF times eight rows for n_tok tokens. */
HTH_INLINE void tile_sums(const chunk *c, int h, size_t b, const int8_t *q, size_t n_tok,
                          __m256i (*isum)[HTH_TILE_TOK])
{
    __m256i part[N_HALF][HTH_TILE_TOK] = {0}; /* zeroed for compilers: the first fours overwrite it */
    HTH_UNROLL
    for (int g = 0; g < 8; g++)
        for (size_t t = 0; t < n_tok; t++) {
            __m256i four = four_bytes(q + t * HTH_ACT_BLOCK + 4 * g);
            HTH_UNROLL
            for (int k = 0; k < N_HALF; k++) {
                __m256i w = c->w[h + k][b][g], size = HAS_SIGN ? c->size[h + k][b][g] : w;
                __m256i pair = pair_products(w, size, four);
                part[k][t] = g % N_FIT == 0 ? pair : in_order(_mm256_add_epi16(part[k][t], pair));
                if (g % N_FIT < N_FIT - 1) continue;
                __m256i wide = widened(part[k][t]);
                isum[k][t] = g < N_FIT ? wide : in_order(_mm256_add_epi32(isum[k][t], wide));
            }
        }
}

HTH_INLINE void multiply(const chunk *c, size_t n, const hth_tiles *tiles, size_t at, size_t n_tok,
                         sums (*s)[N_PANEL], hth_prefetch_cursor *next)
{
    for (int h = 0; h < 2; h += N_HALF) {
        const int8_t *q = tiles->q + at * HTH_ACT_BLOCK;
        const float *d = tiles->d + at;
        const int32_t *offset = tiles->offset + at;
        for (size_t b = 0; b < n; b++) {
            if (h == 0) hth_prefetch_share(next, N_PANEL);
            __m256i isum[N_HALF][HTH_TILE_TOK];
            tile_sums(c, h, b, q, n_tok, isum);
            for (size_t t = 0; t < n_tok; t++) {
                __m256i less_128 = _mm256_set1_epi32(offset[t]); /* -128 times the sum of the inputs */
                __m256 dx = _mm256_set1_ps(d[t]);
                HTH_UNROLL
                for (int k = 0; k < N_HALF; k++) {
                    if (WEIGHT_OFFSET > 0) {
                        int shift = 7 - __builtin_ctz(WEIGHT_OFFSET | 128);
                        isum[k][t] = _mm256_add_epi32(isum[k][t], _mm256_srai_epi32(less_128, shift));
                    }
                    __m256 *p = &s[t][0].p[h + k];
                    *p = add_term(*p, c->d[h + k][b], dx, _mm256_cvtepi32_ps(isum[k][t]));
#if HAS_MINIMUM
                    __m256 *m = &s[t][0].m[h + k];
                    __m256 sum = _mm256_mul_ps(_mm256_cvtepi32_ps(less_128), _mm256_set1_ps(-0x1p-7f));
                    *m = add_term(*m, c->m[h + k][b], dx, sum);
#endif
                }
            }
            q += HTH_TILE_TOK * HTH_ACT_BLOCK, d += HTH_TILE_TOK, offset += HTH_TILE_TOK;
        }
    }
}

#include "kernels/panel/panel_loop.h"
