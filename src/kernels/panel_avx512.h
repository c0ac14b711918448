/* Many tokens at once with AVX-512: a lane is a row, so that no sum crosses lanes.
 * The bits are those of one row at a time: the blocks of each partial sum of rule R4
 * (b mod 8 = j) are taken in a pass of their own, ascending, with one accumulator for
 * each output, and the eight results meet in the tree. Per pass the blocks of sixteen
 * rows are turned once into a panel that all tokens of the tile use.
 * The including file gives, besides what rows_tmpl.h needs:
 *   block_bytes(p)  the 32 weights of the block at p, made unsigned
 *   OFFSET_SHIFT    weights are larger by 2^OFFSET_SHIFT than they should be
 * and gets rows_by_panel(job). */
#include "kernels/rows_walk.h"

enum {
    PANEL_ROW = 16,
    PANEL_TOK = 64,       /* tokens of a tile: their activations stay in the second cache */
    PANEL_BLOCK = 128,    /* blocks of one pass: rows of up to 32,768 weights */
    PANEL_LEAST_TOK = 12, /* with 8 a panel costs what it saves (Q8_0) or more (Q4_0) */
};

typedef struct row_panel {
    __m512i w[PANEL_BLOCK][8]; /* four weights of each row */
    __m512 d[PANEL_BLOCK];
    __m512 sums[3][PANEL_TOK]; /* halves of the tree that wait for their other half */
} row_panel;

/* Sixteen rows of eight times four bytes to eight vectors of sixteen rows. */
HTH_INLINE void transpose(const __m512i z[8], __m512i w[8])
{
    __m512i lanes[2][4]; /* dwords i and i + 4 of rows 0 to 7, and of rows 8 to 15 */
    for (int h = 0; h < 2; h++) {
        __m512i a = _mm512_unpacklo_epi32(z[4 * h], z[4 * h + 1]);
        __m512i b = _mm512_unpackhi_epi32(z[4 * h], z[4 * h + 1]);
        __m512i c = _mm512_unpacklo_epi32(z[4 * h + 2], z[4 * h + 3]);
        __m512i d = _mm512_unpackhi_epi32(z[4 * h + 2], z[4 * h + 3]);
        lanes[h][0] = _mm512_unpacklo_epi64(a, c), lanes[h][1] = _mm512_unpackhi_epi64(a, c);
        lanes[h][2] = _mm512_unpacklo_epi64(b, d), lanes[h][3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_shuffle_i32x4(lanes[0][i], lanes[1][i], 0x88);
        w[i + 4] = _mm512_shuffle_i32x4(lanes[0][i], lanes[1][i], 0xdd);
    }
}

/* Block b of sixteen rows to place i of the panel. */
HTH_INLINE void fill_block(row_panel *panel, size_t i, const uint8_t *const row[PANEL_ROW], size_t b)
{
    _Alignas(32) uint16_t d[PANEL_ROW];
    __m512i z[8];
    for (int r = 0; r < PANEL_ROW; r++) d[r] = hth_load_u16(row[r] + b * BLOCK_SIZE);
    for (int k = 0; k < 8; k++) {
        int r = k < 4 ? k : k + 4;
        z[k] = _mm512_inserti64x4(_mm512_castsi256_si512(block_bytes(row[r] + b * BLOCK_SIZE)),
                                  block_bytes(row[r + 4] + b * BLOCK_SIZE), 1);
    }
    transpose(z, panel->w[i]);
    panel->d[i] = _mm512_cvtph_ps(load_256(d));
}

/* The partial sum j of n_tok tokens from token t on: blocks j, j + 8, ... of the rows. */
HTH_INLINE void pass(const row_panel *panel, const hth_rows *job, size_t j, size_t t, size_t n_tok,
                     __m512 *p)
{
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    for (size_t k = 0; k < n_tok; k++) p[k] = _mm512_setzero_ps();
    for (size_t b = j, i = 0; b < n_block; b += HTH_GROUP, i++) {
        for (size_t k = 0; k < n_tok; k++) {
            size_t block = (t + k) * n_block + b;
            const int8_t *q = job->act.q + block * HTH_ACT_BLOCK;
            __m512i isum = _mm512_setzero_si512();
            for (int g = 0; g < 8; g++) {
                __m512i four = _mm512_set1_epi32((int)hth_load_u32(q + 4 * g));
                isum = _mm512_dpbusd_epi32(isum, panel->w[i][g], four);
            }
            __m512i offset = _mm512_slli_epi32(_mm512_set1_epi32(job->act.sum[block]), OFFSET_SHIFT);
            __m512 scale = _mm512_mul_ps(panel->d[i], _mm512_set1_ps(job->act.d[block]));
            __m512 term = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_sub_epi32(isum, offset)));
            p[k] = _mm512_add_ps(p[k], term);
        }
    }
}

/* Partial sum j meets those before it: two halves of every finished pair are added. */
HTH_INLINE void join(row_panel *panel, size_t j, size_t k, __m512 p, float *y)
{
    if (j & 1) p = _mm512_add_ps(panel->sums[0][k], p);
    if ((j & 3) == 3) p = _mm512_add_ps(panel->sums[1][k], p);
    if (j == 7) _mm512_storeu_ps(y, _mm512_add_ps(panel->sums[2][k], p));
    else panel->sums[j & 1 ? (j & 3) == 3 ? 2 : 1 : 0][k] = p;
}

/* Sixteen rows from row i on, n_tok tokens from token t on. */
static void multiply_panel(row_panel *panel, const hth_rows *job, size_t i, size_t t, size_t n_tok)
{
    const uint8_t *row[PANEL_ROW];
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    for (size_t r = 0; r < PANEL_ROW; r++) row[r] = hth_row_at(job, i + r);
    for (size_t j = 0; j < HTH_GROUP; j++) {
        for (size_t b = j; b < n_block; b += HTH_GROUP) fill_block(panel, b / HTH_GROUP, row, b);
        size_t k = 0;
        __m512 p[HTH_TILE];
        for (; k + HTH_TILE <= n_tok; k += HTH_TILE) {
            pass(panel, job, j, t + k, HTH_TILE, p);
            for (size_t m = 0; m < HTH_TILE; m++)
                join(panel, j, k + m, p[m], job->y + (t + k + m) * job->y_stride + i);
        }
        for (; k < n_tok; k++) {
            pass(panel, job, j, t + k, 1, p);
            join(panel, j, k, p[0], job->y + (t + k) * job->y_stride + i);
        }
    }
}

static void rows_by_panel(const hth_rows *job)
{
    hth_rows rest = *job;
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    if (job->n_tok >= PANEL_LEAST_TOK && n_block <= PANEL_BLOCK * HTH_GROUP) {
        row_panel panel;
        rest.first = job->end - (job->end - job->first) % PANEL_ROW;
        for (size_t t = 0; t < job->n_tok; t += PANEL_TOK) {
            size_t n_tok = job->n_tok - t < PANEL_TOK ? job->n_tok - t : PANEL_TOK;
            for (size_t i = job->first; i < rest.first; i += PANEL_ROW)
                multiply_panel(&panel, job, i, t, n_tok);
        }
    }
    rows(&rest);
}
