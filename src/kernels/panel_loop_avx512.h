/* The passes over panels of sixteen rows (panel_avx512.h, panel_wide_avx512.h). The including
 * file gives
 *   PANEL_COL, PANEL_BLOCK  weights of a block, and blocks of one pass that a panel holds
 *   row_panel               the panel, with tree_sums sums
 *   fill_block(panel, i, row, b)            block b of sixteen rows to place i
 *   pass(panel, job, j, t, n_tok, y)        the partial sum j of n_tok tokens
 *   whole(p, m)             the output from its two trees, where HAS_MINIMUM
 *   rows(job)               what takes the rest
 * and gets rows_by_panel(job). */

HTH_INLINE void join_output(row_panel *panel, size_t j, size_t k, output sums, float *y)
{
    __m512 total = join(panel->sums.p, j, k, sums.p);
#if HAS_MINIMUM
    total = whole(total, join(panel->sums.m, j, k, sums.m));
#endif
    if (j == 7) _mm512_storeu_ps(y, total);
}

/* Sixteen rows from row i on, n_tok tokens from token t on. */
static void multiply_panel(row_panel *panel, const hth_rows *job, size_t i, size_t t, size_t n_tok)
{
    const uint8_t *row[PANEL_ROW];
    size_t n_block = job->n_col / PANEL_COL;
    for (size_t r = 0; r < PANEL_ROW; r++) row[r] = hth_row_at(job, i + r);
    for (size_t j = 0; j < HTH_GROUP; j++) {
        for (size_t b = j; b < n_block; b += HTH_GROUP) fill_block(panel, b / HTH_GROUP, row, b);
        size_t k = 0;
        output sums[HTH_TILE];
        for (; k + HTH_TILE <= n_tok; k += HTH_TILE) {
            pass(panel, job, j, t + k, HTH_TILE, sums);
            for (size_t m = 0; m < HTH_TILE; m++)
                join_output(panel, j, k + m, sums[m], job->y + (t + k + m) * job->y_stride + i);
        }
        for (; k < n_tok; k++) {
            pass(panel, job, j, t + k, 1, sums);
            join_output(panel, j, k, sums[0], job->y + (t + k) * job->y_stride + i);
        }
    }
}

static void rows_by_panel(const hth_rows *job)
{
    hth_rows rest = *job;
    size_t n_block = job->n_col / PANEL_COL;
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
