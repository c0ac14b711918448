/* Many tokens at once with AVX-512 for types in blocks of 256: as panel_avx512.h, a lane is a
 * row. The including file gives, besides what x86_512_wide.h needs:
 *   PANEL_PART     scales that a block is computed with: 16, or 8 where pairs are equal
 *   SCALES_IN_16   1: the products of 16 weights fit in 16 bits when summed (PANEL_PART 16)
 * and gets rows_by_panel(job). */
#include "kernels/panel_parts_avx512.h"

enum {
    PANEL_COL = HTH_ACT_BLOCK_256,
    PANEL_BLOCK = 16, /* blocks of one pass: rows of up to 32,768 weights */
    N_SCALE = PANEL_PART,
    N_FOUR = PANEL_COL / 4 / N_SCALE, /* fours of weights that share a scale */
};

typedef struct wide_block {
    __m512i w[PANEL_COL / 4]; /* four weights of each row */
    __m512i scale[N_SCALE];
    __m512i pairs[8]; /* scales (or minima) 2i and 2i + 1 of each 16 weights, in 16 bits */
    __m512 d;
#if HAS_MINIMUM
    __m512 m;
#endif
} wide_block;

typedef struct row_panel {
    wide_block blocks[PANEL_BLOCK];
    tree_sums sums;
} row_panel;

/* The order in which transpose wants its rows. */
HTH_INLINE int row_of_pair(int k) { return k < 4 ? k : k + 4; }

HTH_INLINE void fill_weights(wide_block *to, const block k[PANEL_ROW])
{
    HTH_UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i v[PANEL_ROW], z[8];
        for (int r = 0; r < PANEL_ROW; r++) v[r] = weights(&k[r], i);
        for (int n = 0; n < 8; n++)
            z[n] = _mm512_shuffle_i64x2(v[row_of_pair(n)], v[row_of_pair(n) + 4], 0x44);
        transpose(z, to->w + 16 * i);
        for (int n = 0; n < 8; n++)
            z[n] = _mm512_shuffle_i64x2(v[row_of_pair(n)], v[row_of_pair(n) + 4], 0xee);
        transpose(z, to->w + 16 * i + 8);
    }
}

/* Block b of sixteen rows to place i of the panel. */
HTH_INLINE void fill_block(row_panel *panel, size_t i, const uint8_t *const row[PANEL_ROW], size_t b)
{
    block k[PANEL_ROW];
    wide_block *to = &panel->blocks[i];
    __m512i z[8], pairs[8];
    for (int r = 0; r < PANEL_ROW; r++) k[r] = unpack(row[r] + b * BLOCK_SIZE);
    fill_weights(to, k);
    for (int n = 0; n < 8; n++)
        z[n] = _mm512_inserti64x4(_mm512_castsi256_si512(k[row_of_pair(n)].scale),
                                  k[row_of_pair(n) + 4].scale, 1);
    transpose(z, pairs);
    for (int n = 0; n < N_SCALE; n++) {
        __m512i pair = pairs[n * 8 / N_SCALE];
        __m512i low = _mm512_slli_epi32(pair, 16), high = N_SCALE == 8 || n % 2 == 0 ? low : pair;
        to->scale[n] = SCALES_IN_16 ? _mm512_srli_epi32(high, 16) : _mm512_srai_epi32(high, 16);
    }
    to->d = sixteen_halves(row, b * BLOCK_SIZE + SCALE_AT);
#if HAS_MINIMUM
    for (int n = 0; n < 8; n++)
        z[n] = _mm512_inserti64x4(_mm512_castsi256_si512(k[row_of_pair(n)].minimum),
                                  k[row_of_pair(n) + 4].minimum, 1);
    transpose(z, to->pairs);
    to->m = sixteen_halves(row, b * BLOCK_SIZE + MINIMUM_AT);
#else
    for (int n = 0; n < 8; n++) to->pairs[n] = pairs[n];
#endif
}

HTH_INLINE __m512i four_bytes(const void *p) { return _mm512_set1_epi32((int)hth_load_u32(p)); }

/* Scales or minima times the sums of 16 inputs each. */
HTH_INLINE __m512i pairs_times_sums(const wide_block *w, const int16_t *sum_16)
{
    __m512i all = _mm512_setzero_si512();
    for (int n = 0; n < 8; n++) all = _mm512_dpwssd_epi32(all, w->pairs[n], four_bytes(sum_16 + 2 * n));
    return all;
}

/* The products of the weights that share scale n, summed for each token. */
HTH_INLINE void scale_sums(const wide_block *w, int n, const int8_t *const q[HTH_TILE], size_t n_tok,
                           __m512i *sums)
{
    for (size_t k = 0; k < n_tok; k++) sums[k] = _mm512_setzero_si512();
    HTH_UNROLL
    for (int g = 0; g < N_FOUR; g++) {
        __m512i four = w->w[n * N_FOUR + g];
        for (size_t k = 0; k < n_tok; k++)
            sums[k] = _mm512_dpbusd_epi32(sums[k], four, four_bytes(q[k] + 4 * g));
    }
}

/* The integer sums of one block of sixteen rows for n_tok tokens, n_col apart. */
HTH_INLINE void panel_sums(const wide_block *w, const int8_t *q, size_t n_col, size_t n_tok, __m512i *isum)
{
    const int8_t *at[HTH_TILE];
    for (size_t k = 0; k < n_tok; k++) at[k] = q + k * n_col, isum[k] = _mm512_setzero_si512();
    for (int n = 0; n < N_SCALE; n++) {
        __m512i sums[HTH_TILE];
        scale_sums(w, n, at, n_tok, sums);
        for (size_t k = 0; k < n_tok; k++) {
            at[k] += 4 * N_FOUR;
            if (SCALES_IN_16) isum[k] = _mm512_dpwssd_epi32(isum[k], sums[k], w->scale[n]);
            else isum[k] = _mm512_add_epi32(isum[k], _mm512_mullo_epi32(sums[k], w->scale[n]));
        }
    }
}

/* The partial sum j of n_tok tokens from token t on: blocks j, j + 8, ... of the rows. */
HTH_INLINE void pass(const row_panel *panel, const hth_rows *job, size_t j, size_t t, size_t n_tok, output *y)
{
    size_t n_block = job->n_col / PANEL_COL, n_part = job->n_col / HTH_ACT_PART;
    for (size_t k = 0; k < n_tok; k++) y[k] = no_output();
    for (size_t b = j, i = 0; b < n_block; b += HTH_GROUP, i++) {
        const wide_block *w = &panel->blocks[i];
        __m512i isum[HTH_TILE];
        panel_sums(w, job->act.q + t * job->n_col + b * PANEL_COL, job->n_col, n_tok, isum);
        for (size_t k = 0; k < n_tok; k++) {
            const int16_t *sum_16 = job->act.sum_16 + (t + k) * n_part + b * (PANEL_COL / HTH_ACT_PART);
            __m512 d = _mm512_set1_ps(job->act.d[(t + k) * n_block + b]), scale = _mm512_mul_ps(w->d, d);
            if (OFFSET_SHIFT >= 0)
                isum[k] = _mm512_sub_epi32(isum[k], shifted(pairs_times_sums(w, sum_16), OFFSET_SHIFT));
            y[k].p = _mm512_add_ps(y[k].p, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(isum[k])));
#if HAS_MINIMUM
            __m512 low = _mm512_mul_ps(w->m, d);
            __m512 msum = _mm512_cvtepi32_ps(pairs_times_sums(w, sum_16));
            y[k].m = _mm512_add_ps(y[k].m, _mm512_mul_ps(low, msum));
#endif
        }
    }
}

#if HAS_MINIMUM
HTH_INLINE __m512 whole(__m512 p, __m512 m) { return _mm512_sub_ps(p, m); }
#endif

#include "kernels/panel_loop_avx512.h"
