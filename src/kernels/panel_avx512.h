/* Many tokens at once with AVX-512: a lane is a row, so that no sum crosses lanes.
 * The bits are those of one row at a time: the blocks of each partial sum of rule R4
 * (b mod 8 = j) are taken in a pass of their own, ascending, with one accumulator for
 * each output, and the eight results meet in the tree. Per pass the blocks of sixteen
 * rows are turned once into a panel that all tokens of the tile use.
 * The including file gives, besides what rows_tmpl.h needs:
 *   block_bytes(p)         the 32 weights of the block at p, made unsigned
 *   block_scales(row, at)  the scales of the blocks at byte `at` of sixteen rows
 *   block_minima(row, at)  their minima, where HAS_MINIMUM
 *   OFFSET_SHIFT           weights are larger by 2^OFFSET_SHIFT than they should be; -1: right
 * and gets rows_by_panel(job). */
#include "kernels/panel_parts_avx512.h"

enum {
    PANEL_COL = HTH_ACT_BLOCK,
    PANEL_BLOCK = 128, /* blocks of one pass: rows of up to 32,768 weights */
};

typedef struct row_panel {
    __m512i w[PANEL_BLOCK][8]; /* four weights of each row */
    __m512 d[PANEL_BLOCK];
#if HAS_MINIMUM
    __m512 m[PANEL_BLOCK];
#endif
    tree_sums sums;
} row_panel;

/* Block b of sixteen rows to place i of the panel. */
HTH_INLINE void fill_block(row_panel *panel, size_t i, const uint8_t *const row[PANEL_ROW], size_t b)
{
    __m512i z[8];
    for (int k = 0; k < 8; k++) {
        int r = k < 4 ? k : k + 4;
        z[k] = _mm512_inserti64x4(_mm512_castsi256_si512(block_bytes(row[r] + b * BLOCK_SIZE)),
                                  block_bytes(row[r + 4] + b * BLOCK_SIZE), 1);
    }
    transpose(z, panel->w[i]);
    panel->d[i] = block_scales(row, b * BLOCK_SIZE);
#if HAS_MINIMUM
    panel->m[i] = block_minima(row, b * BLOCK_SIZE);
#endif
}

/* The partial sum j of n_tok tokens from token t on: blocks j, j + 8, ... of the rows. */
HTH_INLINE void pass(const row_panel *panel, const hth_rows *job, size_t j, size_t t, size_t n_tok, output *y)
{
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    for (size_t k = 0; k < n_tok; k++) y[k] = no_output();
    for (size_t b = j, i = 0; b < n_block; b += HTH_GROUP, i++) {
        for (size_t k = 0; k < n_tok; k++) {
            size_t block = (t + k) * n_block + b;
            const int8_t *q = job->act.q + block * HTH_ACT_BLOCK;
            __m512i isum = _mm512_setzero_si512();
            for (int g = 0; g < 8; g++) {
                __m512i four = _mm512_set1_epi32((int)hth_load_u32(q + 4 * g));
                isum = _mm512_dpbusd_epi32(isum, panel->w[i][g], four);
            }
            __m512i sum = _mm512_set1_epi32(job->act.sum[block]);
            isum = _mm512_sub_epi32(isum, shifted(sum, OFFSET_SHIFT));
            __m512 d = _mm512_set1_ps(job->act.d[block]), scale = _mm512_mul_ps(panel->d[i], d);
            y[k].p = _mm512_add_ps(y[k].p, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(isum)));
#if HAS_MINIMUM
            __m512 low = _mm512_mul_ps(panel->m[i], d);
            y[k].m = _mm512_add_ps(y[k].m, _mm512_mul_ps(low, _mm512_cvtepi32_ps(sum)));
#endif
        }
    }
}

#if HAS_MINIMUM
HTH_INLINE __m512 whole(__m512 p, __m512 m) { return _mm512_add_ps(p, m); }
#endif

#include "kernels/panel_loop_avx512.h"
