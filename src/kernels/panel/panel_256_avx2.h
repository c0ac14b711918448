/* Panels of types in blocks of 256 with AVX2: eight rows at a time. 16-bit sums are multiplied by their scale
 * when they are widened. The including file defines BLOCK_SIZE, HAS_MINIMUM, SCALE_AT, MINIMUM_AT and
 * OFFSET_SHIFT as for x86_256_wide.h, KERNEL_TYPE, and from quant/TYPE/panel.h
 *   WEIGHT_MAX     the largest weight; 128: weights have a sign (then OFFSET_SHIFT is -1)
 *   N_SCALE        scales of a row's block, 8 or 16; SCALES_SIGNED 1: they may be negative
 *   panel_weights(a, i, w)  fours of weights 64i to 64i + 63 of half a panel's block
 *   panel_scales(a, s, m)   its scales, four of each row in a vector of bytes, and its minima
 * This file defines panels(job). */
#define HAS_PANELS
#include "kernels/quant/rows_loop.h"

enum {
    PANEL_COL = HTH_ACT_BLOCK_256,
    PANEL_CHUNK = 4,
    N_PANEL = 1,
    ONE_BY_ONE_TOK = 1,
    N_PART = PANEL_COL / HTH_ACT_SUBBLOCK,
    HAS_SIGN = WEIGHT_MAX == 128,
    /* Products of fours that are summed in 16 bits, of the four or eight fours that share a scale. */
    N_FIT = N_SCALE == 8 && 2 * 127 * WEIGHT_MAX * 8 <= INT16_MAX ? 8
            : 2 * 127 * WEIGHT_MAX * 4 <= INT16_MAX               ? 4
            : 2 * 127 * WEIGHT_MAX * 2 <= INT16_MAX               ? 2
                                                                  : 1,
    /* Halves of a panel that are multiplied together, for as many sums as there are registers. */
    N_HALF = N_FIT >= 4 ? 2 : 1,
    N_UNPACK = N_FIT == 8 ? 2 : 1, /* the same for one token, which needs registers to unpack them */
};

#define SUBTRACTS_MINIMA 1
#include "kernels/panel/panel_sums_avx2.h"

/* Scales 2k and 2k + 1 (or k twice) as two halves of each lane. */
HTH_INLINE __m256i scale_pair(const __m256i *s, int first, int second, bool is_signed)
{
    const __m256i fours = _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    int a = first % 4, b = second % 4;
    int at = is_signed ? 0x80 | a << 8 | 0x80 << 16 | b << 24 : a | 0x80 << 8 | b << 16 | (int)0x80000000u;
    __m256i halves = _mm256_shuffle_epi8(s[first / 4], _mm256_add_epi8(fours, _mm256_set1_epi32(at)));
    return is_signed ? _mm256_srai_epi16(halves, 8) : halves;
}

/* The scale of inputs 16n to 16n + 15, twice. */
HTH_INLINE __m256i scale_of_part(const __m256i *s, int n)
{
    int k = n * N_SCALE / N_PART;
    return scale_pair(s, k, k, SCALES_SIGNED);
}

/* The scales (or minima) of inputs 32i to 32i + 15 and of the next 16. */
HTH_INLINE __m256i pair_of_scales(const __m256i *s, int i, bool is_signed)
{
    return N_SCALE == 16 ? scale_pair(s, 2 * i, 2 * i + 1, is_signed) : scale_pair(s, i, i, is_signed);
}

HTH_INLINE __m256i less_offset(__m256i isum, __m256i scaled_inputs)
{
    bool shifts = !HAS_SIGN && OFFSET_SHIFT >= 0;
    return shifts
               ? _mm256_sub_epi32(isum, _mm256_slli_epi32(scaled_inputs, OFFSET_SHIFT < 0 ? 0 : OFFSET_SHIFT))
               : isum;
}

/* ---- one token --------------------------------------------------------------------------- */

HTH_INLINE sums block_of_one(const hth_rows *job, const uint8_t *p, size_t b, sums to, hth_prefetch_mode prefetch)
{
    (void)prefetch;
    const int8_t *q = job->act.q + b * PANEL_COL;
    const int16_t *sum_16 = job->act.sum_16 + b * N_PART;
    __m256 dx = _mm256_set1_ps(job->act.d[b]);
    for (int h = 0; h < 2; h += N_UNPACK) {
        __m256i s[N_UNPACK][N_SCALE / 4], m[N_UNPACK][N_SCALE / 4];
        __m256i isum[N_UNPACK], scaled_inputs[N_UNPACK];
        for (int j = 0; j < N_UNPACK; j++) {
            isum[j] = scaled_inputs[j] = _mm256_setzero_si256();
            panel_scales((panel_block){p, h + j}, s[j], m[j]);
        }
        HTH_UNROLL
        for (int i = 0; i < 4; i++) {
            __m256i w[N_UNPACK][16];
            for (int j = 0; j < N_UNPACK; j++) panel_weights((panel_block){p, h + j}, i, w[j]);
            HTH_UNROLL
            for (int g = 0; g < 16; g += N_FIT) {
                __m256i part[N_UNPACK] = {0}; /* zeroed for compilers: the first fours overwrite it */
                HTH_UNROLL
                for (int k = g; k < g + N_FIT; k++) {
                    __m256i four = four_bytes(q + 64 * i + 4 * k);
                    HTH_UNROLL
                    for (int j = 0; j < N_UNPACK; j++) {
                        __m256i pair = pair_products(w[j][k], _mm256_abs_epi8(w[j][k]), four);
                        part[j] = k == g ? pair : in_order(_mm256_add_epi16(part[j], pair));
                    }
                }
                for (int j = 0; j < N_UNPACK; j++)
                    isum[j] = in_order(_mm256_add_epi32(
                        isum[j], _mm256_madd_epi16(part[j], scale_of_part(s[j], 4 * i + g / 4))));
            }
        }
        HTH_UNROLL
        for (int i = 0; i < 8 && (HAS_MINIMUM || (!HAS_SIGN && OFFSET_SHIFT >= 0)); i++) {
            __m256i inputs = four_bytes(sum_16 + 2 * i);
            for (int j = 0; j < N_UNPACK; j++) {
                __m256i pair = HAS_MINIMUM ? pair_of_scales(m[j], i, false) : pair_of_scales(s[j], i, SCALES_SIGNED);
                scaled_inputs[j] = _mm256_add_epi32(scaled_inputs[j], _mm256_madd_epi16(pair, inputs));
            }
        }
        for (int j = 0; j < N_UNPACK; j++) {
            panel_block a = {p, h + j};
            to.p[h + j] = add_term(to.p[h + j], unit_half(a, SCALE_AT), dx,
                                   _mm256_cvtepi32_ps(less_offset(isum[j], scaled_inputs[j])));
#if HAS_MINIMUM
            to.m[h + j] = add_term(to.m[h + j], unit_half(a, MINIMUM_AT), dx, _mm256_cvtepi32_ps(scaled_inputs[j]));
#endif
        }
    }
    return to;
}

/* ---- several tokens ------------------------------------------------------------------------ */

/* Half of a block of a panel, unpacked. */
typedef struct half_block {
    __m256i w[PANEL_COL / 4];
    __m256i size[HAS_SIGN ? PANEL_COL / 4 : 1];
    __m256i scale[N_PART];
    __m256i pairs[8];
    __m256 d;
#if HAS_MINIMUM
    __m256 m;
#endif
} half_block;

typedef struct chunk {
    half_block block[PANEL_CHUNK][2];
} chunk;

HTH_INLINE void fill(chunk *to, size_t i, int r, const uint8_t *p)
{
    (void)r;
    for (int h = 0; h < 2; h++) {
        panel_block a = {p, h};
        __m256i s[N_SCALE / 4], m[N_SCALE / 4];
        panel_scales(a, s, m);
        HTH_UNROLL
        for (int k = 0; k < 4; k++) {
            __m256i w[16];
            panel_weights(a, k, w);
            HTH_UNROLL
            for (int g = 0; g < 16; g++) {
                to->block[i][h].w[16 * k + g] = w[g];
                if (HAS_SIGN) to->block[i][h].size[16 * k + g] = _mm256_abs_epi8(w[g]);
            }
        }
        HTH_UNROLL
        for (int n = 0; n < N_PART; n++) to->block[i][h].scale[n] = scale_of_part(s, n);
        HTH_UNROLL
        for (int n = 0; n < 8; n++)
            to->block[i][h].pairs[n] =
                HAS_MINIMUM ? pair_of_scales(m, n, false) : pair_of_scales(s, n, SCALES_SIGNED);
        to->block[i][h].d = unit_half(a, SCALE_AT);
#if HAS_MINIMUM
        to->block[i][h].m = unit_half(a, MINIMUM_AT);
#endif
    }
}

/* The integer sums of N_HALF times eight rows of a block for n_tok tokens. */
HTH_INLINE void tile_sums(const half_block *from, const int8_t *q, size_t n_tok, __m256i (*isum)[HTH_TILE_TOK])
{
    for (int i = 0; i < N_HALF; i++)
        for (size_t t = 0; t < n_tok; t++) isum[i][t] = _mm256_setzero_si256();
    for (int k = 0; k < PANEL_COL / 4; k += N_FIT) {
        __m256i part[N_HALF][HTH_TILE_TOK] = {0};
        HTH_UNROLL
        for (int g = 0; g < N_FIT; g++)
            for (size_t t = 0; t < n_tok; t++) {
                __m256i four = four_bytes(q + t * PANEL_COL + 4 * (k + g));
                HTH_UNROLL
                for (int i = 0; i < N_HALF; i++) {
                    __m256i w = from[i].w[k + g], pair = pair_products(w, HAS_SIGN ? from[i].size[k + g] : w, four);
                    part[i][t] = g == 0 ? pair : in_order(_mm256_add_epi16(part[i][t], pair));
                }
            }
        HTH_UNROLL
        for (int i = 0; i < N_HALF; i++)
            for (size_t t = 0; t < n_tok; t++)
                isum[i][t] =
                    in_order(_mm256_add_epi32(isum[i][t], _mm256_madd_epi16(part[i][t], from[i].scale[k / 4])));
    }
}

/* Adds the terms of half h of a block for one token. */
HTH_INLINE void add_block(const half_block *from, int h, __m256i isum, const int16_t *sum_16, float d, sums *to)
{
    __m256i scaled_inputs = _mm256_setzero_si256();
    __m256 dx = _mm256_set1_ps(d);
    HTH_UNROLL
    for (int i = 0; i < 8 && (HAS_MINIMUM || (!HAS_SIGN && OFFSET_SHIFT >= 0)); i++)
        scaled_inputs =
            _mm256_add_epi32(scaled_inputs, _mm256_madd_epi16(from->pairs[i], four_bytes(sum_16 + 2 * i)));
    to->p[h] = add_term(to->p[h], from->d, dx, _mm256_cvtepi32_ps(less_offset(isum, scaled_inputs)));
#if HAS_MINIMUM
    to->m[h] = add_term(to->m[h], from->m, dx, _mm256_cvtepi32_ps(scaled_inputs));
#endif
}

HTH_INLINE void multiply(const chunk *c, size_t n, const hth_tiles *tiles, size_t at, size_t n_tok,
                         sums (*to)[N_PANEL], hth_prefetch_cursor *next)
{
    const int8_t *q = tiles->q + at * PANEL_COL;
    const int16_t *sum_16 = tiles->sum_16 + at * N_PART;
    const float *d = tiles->d + at;
    for (size_t b = 0; b < n; b++) {
        hth_prefetch_share(next, N_PANEL);
        for (int h = 0; h < 2; h += N_HALF) {
            __m256i isum[N_HALF][HTH_TILE_TOK];
            tile_sums(c->block[b] + h, q, n_tok, isum);
            for (size_t t = 0; t < n_tok; t++)
                HTH_UNROLL
                for (int i = 0; i < N_HALF; i++)
                    add_block(&c->block[b][h + i], h + i, isum[i][t], sum_16 + t * N_PART, d[t], to[t]);
        }
        q += HTH_TILE_TOK * PANEL_COL, sum_16 += HTH_TILE_TOK * N_PART, d += HTH_TILE_TOK;
    }
}

#include "kernels/panel/panel_loop.h"
