/* Panels of types in blocks of 256 with AVX-512 (VNNI). The including file defines BLOCK_SIZE, HAS_MINIMUM,
 * SCALE_AT, MINIMUM_AT and OFFSET_SHIFT as for x86_512_wide.h, KERNEL_TYPE, and from quant/TYPE/panel.h
 *   WEIGHT_MAX     the largest weight in unsigned form
 *   N_SCALE        scales of a row's block, 8 or 16; SCALES_SIGNED 1: they may be negative
 *   panel_weights(a, i, w)  fours of weights 64i to 64i + 63 of a panel's block, as unsigned bytes
 *   panel_scales(a, s, m)   its scales, four of each row in a vector of bytes, and its minima
 * or, if FROM_ROWS is defined, what panel_rows_avx512.h needs: such types are not stored in panels, and rows in file
 * order are multiplied by several tokens only.
 * This file defines panels(job). */
#define HAS_PANELS
#define PREFETCH_IN_BLOCK
#include "kernels/quant/rows_loop.h"

enum {
    PANEL_COL = HTH_ACT_BLOCK_256,
    PANEL_CHUNK = 2,
    N_PANEL = 3,
    ONE_BY_ONE_TOK = 4,                                /* 5 cost as much as unpacking to a chunk */
    SCALES_IN_16 = 16 * WEIGHT_MAX * 127 <= INT16_MAX, /* sums of 16 products fit in 16 bits */
    N_PART = PANEL_COL / HTH_ACT_SUBBLOCK,
    N_SUM = SCALES_IN_16 ? 16 : N_SCALE, /* sums that are multiplied by a scale */
    N_FOUR = PANEL_COL / 4 / N_SUM,      /* fours of weights in such a sum */
};

#define SUBTRACTS_MINIMA 1
#include "kernels/panel/panel_sums_avx512.h"

HTH_INLINE __m512i add_scaled_sum(__m512i isum, __m512i sum, __m512i scale)
{
    if (SCALES_IN_16) return _mm512_dpwssd_epi32(isum, sum, scale);
    return _mm512_add_epi32(isum, _mm512_mullo_epi32(sum, scale));
}

HTH_INLINE __m512i less_offset(__m512i isum, __m512i scaled_inputs)
{
    return OFFSET_SHIFT < 0 ? isum : _mm512_sub_epi32(isum, shifted(scaled_inputs, OFFSET_SHIFT));
}

#ifndef FROM_ROWS
/* ---- scales ---------------------------------------------------------------------------- */

/* Selects bytes a, b, c, d of every four; 0x80: zero. */
HTH_INLINE __m512i pick(__m512i v, unsigned a, unsigned b, unsigned c, unsigned d)
{
    const __m512i fours = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm512_shuffle_epi8(
        v, _mm512_add_epi8(fours, _mm512_set1_epi32((int)(a | b << 8 | c << 16 | d << 24))));
}

/* Scale k of each row in the low half of a lane, whose upper half is zero. */
HTH_INLINE __m512i scale_in_16(const __m512i *s, int k)
{
    unsigned at = (unsigned)k % 4;
    if (!SCALES_SIGNED) return pick(s[k / 4], at, 0x80, 0x80, 0x80);
    return _mm512_srai_epi16(pick(s[k / 4], 0x80, at, 0x80, 0x80), 8);
}

HTH_INLINE __m512i scale_in_32(const __m512i *s, int k)
{
    unsigned at = (unsigned)k % 4;
    if (!SCALES_SIGNED) return pick(s[k / 4], at, 0x80, 0x80, 0x80);
    return _mm512_srai_epi32(pick(s[k / 4], 0x80, 0x80, 0x80, at), 24);
}

HTH_INLINE __m512i scale_of_sum(const __m512i *s, int n)
{
    int k = n * N_SCALE / N_SUM;
    return SCALES_IN_16 ? scale_in_16(s, k) : scale_in_32(s, k);
}

/* The scales (or minima) of inputs 32i to 32i + 15 and of the next 16, as two halves. */
HTH_INLINE __m512i pair_of_scales(const __m512i *s, int i, bool is_signed)
{
    int k = N_SCALE == 16 ? 2 * i : i;
    unsigned a = (unsigned)k % 4, b = N_SCALE == 16 ? a + 1 : a;
    if (!is_signed) return pick(s[k / 4], a, 0x80, b, 0x80);
    return _mm512_srai_epi16(pick(s[k / 4], 0x80, a, 0x80, b), 8);
}

/* ---- one token --------------------------------------------------------------------------- */

HTH_INLINE sums block_of_one(const hth_rows *job, const uint8_t *p, size_t b, sums to, hth_prefetch_mode prefetch)
{
    const int8_t *q = job->act.q + b * PANEL_COL;
    const int16_t *sum_16 = job->act.sum_16 + b * N_PART;
    __m512i s[N_SCALE / 4], m[N_SCALE / 4], isum = _mm512_setzero_si512();
    __m512i scaled_inputs = _mm512_setzero_si512();
    panel_scales((panel_block){p}, s, m);
    HTH_UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i w[16];
        panel_weights((panel_block){p}, i, w);
        HTH_UNROLL
        for (int n = 0; n < N_SUM / 4; n++) {
            __m512i sum = _mm512_setzero_si512();
            hth_prefetch_part(p, HTH_PANEL_ROW * BLOCK_SIZE, (size_t)(i * (N_SUM / 4) + n), N_SUM, prefetch);
            HTH_UNROLL
            for (int g = n * N_FOUR; g < (n + 1) * N_FOUR; g++)
                sum = _mm512_dpbusd_epi32(sum, w[g], four_bytes(q + 64 * i + 4 * g));
            isum = add_scaled_sum(isum, sum, scale_of_sum(s, i * (N_SUM / 4) + n));
        }
    }
    if (HAS_MINIMUM || OFFSET_SHIFT >= 0) {
        HTH_UNROLL
        for (int i = 0; i < 8; i++) {
            __m512i pair = HAS_MINIMUM ? pair_of_scales(m, i, false) : pair_of_scales(s, i, SCALES_SIGNED);
            scaled_inputs = _mm512_dpwssd_epi32(scaled_inputs, pair, four_bytes(sum_16 + 2 * i));
        }
    }
    __m512 dx = _mm512_set1_ps(job->act.d[b]);
    to.p[0] = add_term(to.p[0], unit_half((panel_block){p}, SCALE_AT), dx,
                    _mm512_cvtepi32_ps(less_offset(isum, scaled_inputs)));
#if HAS_MINIMUM
    to.m[0] = add_term(to.m[0], unit_half((panel_block){p}, MINIMUM_AT), dx, _mm512_cvtepi32_ps(scaled_inputs));
#endif
    return to;
}

#endif

/* ---- several tokens ------------------------------------------------------------------------ */

/* Blocks of N_PANEL panels. */
typedef struct chunk {
    struct {
        __m512i w[PANEL_COL / 4][N_PANEL];
        __m512i scale[N_SUM][N_PANEL];
        __m512i pairs[8][N_PANEL];
        __m512 d[N_PANEL];
#if HAS_MINIMUM
        __m512 m[N_PANEL];
#endif
    } block[PANEL_CHUNK];
} chunk;

#ifdef FROM_ROWS
#include "kernels/panel/panel_rows_avx512.h"
#else
HTH_INLINE void fill(chunk *to, size_t i, int r, const uint8_t *p)
{
    __m512i s[N_SCALE / 4], m[N_SCALE / 4];
    panel_scales((panel_block){p}, s, m);
    HTH_UNROLL
    for (int k = 0; k < 4; k++) {
        __m512i w[16];
        panel_weights((panel_block){p}, k, w);
        HTH_UNROLL
        for (int g = 0; g < 16; g++) to->block[i].w[16 * k + g][r] = w[g];
    }
    HTH_UNROLL
    for (int n = 0; n < N_SUM; n++) to->block[i].scale[n][r] = scale_of_sum(s, n);
    HTH_UNROLL
    for (int n = 0; n < 8; n++)
        to->block[i].pairs[n][r] =
            HAS_MINIMUM ? pair_of_scales(m, n, false) : pair_of_scales(s, n, SCALES_SIGNED);
    to->block[i].d[r] = unit_half((panel_block){p}, SCALE_AT);
#if HAS_MINIMUM
    to->block[i].m[r] = unit_half((panel_block){p}, MINIMUM_AT);
#endif
}
#endif

HTH_INLINE void multiply(const chunk *c, size_t n, const hth_tiles *tiles, size_t at, size_t n_tok,
                         sums (*to)[N_PANEL], hth_prefetch_cursor *next)
{
    const int8_t *q = tiles->q + at * PANEL_COL;
    const int16_t *sum_16 = tiles->sum_16 + at * N_PART;
    const float *d = tiles->d + at;
    for (size_t b = 0; b < n; b++) {
        hth_prefetch_share(next, N_PANEL);
        __m512i isum[HTH_TILE_TOK][N_PANEL];
        for (size_t t = 0; t < n_tok; t++)
            for (int r = 0; r < N_PANEL; r++) isum[t][r] = _mm512_setzero_si512();
        for (int k = 0; k < N_SUM; k++) {
            __m512i sum[HTH_TILE_TOK][N_PANEL];
            for (size_t t = 0; t < n_tok; t++)
                for (int r = 0; r < N_PANEL; r++) sum[t][r] = _mm512_setzero_si512();
            HTH_UNROLL
            for (int g = 0; g < N_FOUR; g++) {
                const __m512i *w = c->block[b].w[k * N_FOUR + g];
                for (size_t t = 0; t < n_tok; t++) {
                    __m512i four = four_bytes(q + t * PANEL_COL + 4 * (k * N_FOUR + g));
                    for (int r = 0; r < N_PANEL; r++) sum[t][r] = _mm512_dpbusd_epi32(sum[t][r], w[r], four);
                }
            }
            for (size_t t = 0; t < n_tok; t++)
                for (int r = 0; r < N_PANEL; r++)
                    isum[t][r] = add_scaled_sum(isum[t][r], sum[t][r], c->block[b].scale[k][r]);
        }
        for (size_t t = 0; t < n_tok; t++) {
            __m512 dx = _mm512_set1_ps(d[t]);
            for (int r = 0; r < N_PANEL; r++) {
                __m512i scaled_inputs = _mm512_setzero_si512();
                if (HAS_MINIMUM || OFFSET_SHIFT >= 0) {
                    HTH_UNROLL
                    for (int i = 0; i < 8; i++)
                        scaled_inputs = _mm512_dpwssd_epi32(scaled_inputs, c->block[b].pairs[i][r],
                                                            four_bytes(sum_16 + t * N_PART + 2 * i));
                }
                to[t][r].p[0] = add_term(to[t][r].p[0], c->block[b].d[r], dx,
                                      _mm512_cvtepi32_ps(less_offset(isum[t][r], scaled_inputs)));
#if HAS_MINIMUM
                to[t][r].m[0] = add_term(to[t][r].m[0], c->block[b].m[r], dx, _mm512_cvtepi32_ps(scaled_inputs));
#endif
            }
        }
        q += HTH_TILE_TOK * PANEL_COL, sum_16 += HTH_TILE_TOK * N_PART, d += HTH_TILE_TOK;
    }
}

#include "kernels/panel/panel_loop.h"
