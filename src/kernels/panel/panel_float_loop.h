/* Panels of floats at one ISA level (rule R9): a lane is a row. Each pass computes one of the sixteen partial sums, which
 * are reduced as they are finished. Several tokens use N_PANEL panels, whose weights of a partial sum are widened once
 * for all tokens. The including file defines floats, zeros(), load_f32, load_f16 and load_bf16 (float_tmpl.h),
 * store_floats(y, p), and
 *   N_PANEL      panels at a time
 *   PANEL_CHUNK  weights of a row in a chunk
 *   PER_SHARE    weights that are multiplied per share of the prefetch; 0: weights are prefetched when they are widened
 *   add_floats(a, b)
 *   multiply_chunk(w, n, x, n_tok, s, next)  adds n weights times a tile of inputs to the sums of n_tok tokens
 *   panels_of_one_token(job, size, load)     one token, whose weights stream in
 * This file defines panels(job, size, type, load). */
typedef struct panel_work {
    floats w[PANEL_CHUNK][N_PANEL];
    uint8_t raw[PANEL_CHUNK * HTH_PANEL_ROW * sizeof(float)]; /* copy of rows that are not stored in panels */
    floats half[N_LEVEL + 1][PANEL_TOK][N_PANEL];             /* as in panel_loop.h */
    hth_prefetch_cursor next;
} panel_work;
_Static_assert(sizeof(panel_work) <= HTH_PANEL_WORK, "a panel's work needs more room");

/* Widens n weights of each row of the r-th current panel, for inputs first, first + 16, ..., which are stored
 * from position p on. */
HTH_INLINE void fill_chunk(panel_work *work, const hth_rows *job, size_t i, int r, size_t first, size_t p,
                           size_t n, size_t size, hth_type type, load_fn *load)
{
    const uint8_t *at = hth_panel_blocks(job, type, size, i, p, first, n, work->raw);
    for (size_t k = 0; k < n; k++, at += HTH_PANEL_ROW * size) {
        if (PER_SHARE == 0) hth_prefetch_panel(at, HTH_PREFETCH_FAR, HTH_PREFETCH_L2_L1);
        work->w[k][r] = load(at);
    }
}

/* Part of a partial sum: n weights from position p on. */
typedef struct piece {
    size_t j, p, n;
    bool first, last;
} piece;

/* Reduces partial sum j of a tile, in the panel's order, with the earlier ones. */
HTH_INLINE void join_tile(panel_work *work, size_t j, size_t i_tok, size_t n_tok, floats (*s)[N_PANEL])
{
    int level = 0;
    for (; j >> level & 1; level++)
        for (size_t k = 0; k < n_tok; k++)
            for (int r = 0; r < N_PANEL; r++)
                s[k][r] = add_floats(work->half[level][i_tok + k][r], s[k][r]);
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++) work->half[level][i_tok + k][r] = s[k][r];
}

HTH_INLINE void multiply_tile(panel_work *work, const hth_rows *job, const piece *c, size_t t, size_t i_tok,
                              size_t n_tok)
{
    const float *x = job->act.tiles.x + t * job->n_col + c->p * HTH_TILE_FLOAT_TOK;
    floats s[HTH_TILE_FLOAT_TOK][N_PANEL], (*open)[N_PANEL] = &work->half[N_LEVEL][i_tok];
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++) s[k][r] = c->first ? zeros() : open[k][r];
    multiply_chunk(work->w, c->n, x, n_tok, s, &work->next);
    if (c->last) {
        join_tile(work, c->j, i_tok, n_tok, s);
        return;
    }
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++) open[k][r] = s[k][r];
}

static void multiply_piece(panel_work *work, const hth_rows *job, const piece *c, size_t t, size_t n_tok)
{
    for (size_t k = 0; k < n_tok; k += HTH_TILE_FLOAT_TOK) {
        switch ((n_tok - k + 1) / 2) {
        case 1: multiply_tile(work, job, c, t + k, k, 2); break;
        case 2: multiply_tile(work, job, c, t + k, k, 4); break;
        case 3: multiply_tile(work, job, c, t + k, k, 6); break;
        default: multiply_tile(work, job, c, t + k, k, HTH_TILE_FLOAT_TOK);
        }
    }
}

/* Computes the panels that begin at the given rows. The last one may be repeated. */
HTH_INLINE void multiply_panels(panel_work *work, const hth_rows *job, const size_t row[N_PANEL], size_t t,
                                size_t n_tok, size_t size, hth_type type, load_fn *load)
{
    size_t n_tile = (n_tok + HTH_TILE_FLOAT_TOK - 1) / HTH_TILE_FLOAT_TOK, weight = HTH_PANEL_ROW * size;
    piece c = {0};
    for (c.j = 0; c.j < N_PASS; c.j++) {
        size_t left = pass_length(job, c.j), k = hth_panel_sum_order(false, c.j);
        c.first = true, c.last = left == 0, c.n = 0;
        if (left == 0) multiply_piece(work, job, &c, t, n_tok);
        for (; left > 0; k += c.n * N_PASS) {
            c.n = left < PANEL_CHUNK ? left : PANEL_CHUNK;
            left -= c.n, c.last = left == 0;
            if (PER_SHARE > 0)
                work->next = hth_prefetch_cursor_of(job, row, N_PANEL, (c.p + PANEL_CHUNK) * weight, c.n * weight,
                                                    (c.n + PER_SHARE - 1) / (PER_SHARE > 0 ? PER_SHARE : 1) * n_tile);
            for (int r = 0; r < N_PANEL; r++) fill_chunk(work, job, row[r], r, k, c.p, c.n, size, type, load);
            multiply_piece(work, job, &c, t, n_tok);
            c.p += c.n, c.first = false;
        }
    }
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++)
            store_floats(job->y + (t + k) * job->y_stride + row[r], work->half[N_LEVEL][k][r]);
}

HTH_INLINE void panels(const hth_rows *job, size_t size, hth_type type, load_fn *load)
{
    if (job->n_tok == 1) {
        panels_of_one_token(job, size, load);
        return;
    }
    panel_work *work = job->work;
    for (size_t t = 0; t < job->n_tok; t += PANEL_TOK) {
        size_t n_tok = job->n_tok - t < PANEL_TOK ? job->n_tok - t : PANEL_TOK;
        for (size_t i = job->first; i < job->end; i += N_PANEL * HTH_PANEL_ROW) {
            size_t row[N_PANEL];
            hth_panels_at(i, job->end, N_PANEL, row);
            multiply_panels(work, job, row, t, n_tok, size, type, load);
        }
    }
}
