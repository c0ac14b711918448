/* Panels of types in blocks of 32 with AVX-512 (VNNI). The including file defines BLOCK_SIZE and HAS_MINIMUM as
 * for rows_tmpl.h, KERNEL_TYPE, and from quant/TYPE/panel.h
 *   WEIGHT_OFFSET  weights are too large by this, a power of two; 0: no offset
 *   panel_weights(a, w)  the eight fours of weights of a panel's block, unsigned
 *   panel_scales(a)      its sixteen scales; panel_minima(a) if HAS_MINIMUM
 * This file defines panels(job). */
#define HAS_PANELS
#define ONE_TOKEN_UNROLL HTH_UNROLL
#include "kernels/quant/rows_loop.h"

enum { PANEL_COL = HTH_ACT_BLOCK, PANEL_CHUNK = 16, N_PANEL = 3, ONE_BY_ONE_TOK = 1 };

#define SUBTRACTS_MINIMA 0
#include "kernels/panel/panel_sums_avx512.h"

HTH_INLINE sums block_of_one(const hth_rows *job, const uint8_t *p, size_t b, sums s, hth_prefetch_mode prefetch)
{
    (void)prefetch;
    const int8_t *q = job->act.q + b * HTH_ACT_BLOCK;
    __m512i w[8], sum = _mm512_set1_epi32(job->act.sum[b]), isum = _mm512_setzero_si512();
    __m512 dx = _mm512_set1_ps(job->act.d[b]);
    panel_weights((panel_block){p}, w);
    HTH_UNROLL
    for (int g = 0; g < 8; g++) isum = _mm512_dpbusd_epi32(isum, w[g], four_bytes(q + 4 * g));
    if (WEIGHT_OFFSET > 0) {
        int shift = __builtin_ctz(WEIGHT_OFFSET | 256);
        isum = _mm512_sub_epi32(isum, _mm512_slli_epi32(sum, (unsigned)shift));
    }
    s.p[0] = add_term(s.p[0], panel_scales((panel_block){p}), dx, _mm512_cvtepi32_ps(isum));
#if HAS_MINIMUM
    s.m[0] = add_term(s.m[0], panel_minima((panel_block){p}), dx, _mm512_cvtepi32_ps(sum));
#endif
    return s;
}

/* Blocks of N_PANEL panels: fours of weights, too large by 128 (types with minima: no offset). */
typedef struct chunk {
    __m512i w[PANEL_CHUNK][8][N_PANEL];
    __m512 d[PANEL_CHUNK][N_PANEL];
#if HAS_MINIMUM
    __m512 m[PANEL_CHUNK][N_PANEL];
#endif
} chunk;

HTH_INLINE void fill(chunk *to, size_t i, int r, const uint8_t *p)
{
    __m512i w[8];
    panel_weights((panel_block){p}, w);
    HTH_UNROLL
    for (int g = 0; g < 8; g++) {
        bool shifts = WEIGHT_OFFSET != 0 && WEIGHT_OFFSET != 128;
        to->w[i][g][r] = shifts ? _mm512_add_epi8(w[g], _mm512_set1_epi8((char)(128 - WEIGHT_OFFSET))) : w[g];
    }
    to->d[i][r] = panel_scales((panel_block){p});
#if HAS_MINIMUM
    to->m[i][r] = panel_minima((panel_block){p});
#endif
}

HTH_INLINE void multiply(const chunk *c, size_t n, const hth_tiles *tiles, size_t at, size_t n_tok,
                         sums (*s)[N_PANEL], hth_prefetch_cursor *next)
{
    const int8_t *q = tiles->q + at * HTH_ACT_BLOCK;
    const float *d = tiles->d + at;
    const int32_t *offset = tiles->offset + at;
    for (size_t b = 0; b < n; b++) {
        hth_prefetch_share(next, N_PANEL);
        __m512i isum[HTH_TILE_TOK][N_PANEL];
        for (size_t t = 0; t < n_tok; t++)
            for (int r = 0; r < N_PANEL; r++)
                isum[t][r] = HAS_MINIMUM ? _mm512_setzero_si512() : _mm512_set1_epi32(offset[t]);
        HTH_UNROLL
        for (int g = 0; g < 8; g++) {
            const __m512i *w = c->w[b][g];
            for (size_t t = 0; t < n_tok; t++) {
                __m512i four = four_bytes(q + t * HTH_ACT_BLOCK + 4 * g);
                for (int r = 0; r < N_PANEL; r++) isum[t][r] = _mm512_dpbusd_epi32(isum[t][r], w[r], four);
            }
        }
        for (size_t t = 0; t < n_tok; t++) {
            __m512 dx = _mm512_set1_ps(d[t]);
            for (int r = 0; r < N_PANEL; r++)
                s[t][r].p[0] = add_term(s[t][r].p[0], c->d[b][r], dx, _mm512_cvtepi32_ps(isum[t][r]));
#if HAS_MINIMUM
            __m512 sum =
                _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_set1_epi32(offset[t])), _mm512_set1_ps(-0x1p-7f));
            for (int r = 0; r < N_PANEL; r++) s[t][r].m[0] = add_term(s[t][r].m[0], c->m[b][r], dx, sum);
#endif
        }
        q += HTH_TILE_TOK * HTH_ACT_BLOCK, d += HTH_TILE_TOK, offset += HTH_TILE_TOK;
    }
}

#include "kernels/panel/panel_loop.h"
