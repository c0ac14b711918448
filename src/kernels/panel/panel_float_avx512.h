/* Panels of floats with AVX-512 (rule R9): a lane is a row. Each pass computes one of the sixteen partial sums,
 * which are reduced as they are finished. One token reads N_PANEL panels at once as they stream in, so that
 * chains of additions do not stall. Several tokens use N_PANEL panels, whose weights of a partial sum are
 * widened once for all tokens. The including file defines load_f32, load_f16 and load_bf16 (float_tmpl.h). This
 * file defines panels_f32, panels_f16 and hth_panels_bf16_avx512. */
#include "kernels/quant/rows_loop.h"

enum {
    N_PANEL = 3,
    PANEL_TOK = 128,   /* tokens that share widened weights; a multiple of a tile */
    PANEL_CHUNK = 128, /* weights of a row in a chunk, which takes 24 KiB */
    PER_SHARE = 8,     /* weights that are multiplied per share of the prefetch */
    N_PASS = 16,
    N_LEVEL = 4, /* levels of the reduction of sixteen partial sums */
};

/* Weights of row group `first`, from position p on in its panel. */
HTH_INLINE const uint8_t *panel_at(const hth_rows *job, size_t first, size_t p, size_t size)
{
    return job->w + first * job->row_size + p * HTH_PANEL_ROW * size;
}

HTH_INLINE size_t pass_length(const hth_rows *job, size_t j)
{
    return (job->n_col + N_PASS - 1 - hth_panel_sum_order(false, j)) / N_PASS;
}

/* Panels that are read side by side. The other panels follow the end of one, so prefetch addresses must skip
 * them. */
typedef struct float_stream {
    const uint8_t *w[N_PANEL];
    const float *x;
} float_stream;

/* Multiplies n more weights of each row and prefetches `ahead` bytes further on. */
HTH_INLINE void add_products_of(float_stream *s, size_t n, size_t size, load_fn *load, size_t ahead,
                                hth_prefetch_mode prefetch, __m512 p[N_PANEL])
{
    for (; n > 0; n--, s->x++)
        for (int r = 0; r < N_PANEL; s->w[r++] += HTH_PANEL_ROW * size) {
            hth_prefetch_panel(s->w[r], ahead, prefetch);
            p[r] = _mm512_fmadd_ps(load(s->w[r]), _mm512_set1_ps(*s->x), p[r]);
        }
}

HTH_INLINE void one_token(const hth_rows *job, size_t size, load_fn *load, hth_prefetch_mode prefetch)
{
    size_t ahead = prefetch == HTH_PREFETCH_L1 ? HTH_PREFETCH_FAR_OF_THREE : HTH_PREFETCH_FAR;
    size_t jump = ahead + (N_PANEL - 1) * HTH_PANEL_ROW * job->row_size;
    for (size_t i = job->first; i < job->end; i += N_PANEL * HTH_PANEL_ROW) {
        float_stream s = {.x = job->act.tiles.x};
        size_t n_near = ahead / (HTH_PANEL_ROW * size),
               n_left = job->n_col > n_near ? job->n_col - n_near : 0;
        size_t row[N_PANEL];
        __m512 half[N_LEVEL + 1][N_PANEL]; /* partial reductions; each waits for its other half */
        hth_panels_at(i, job->end, N_PANEL, row);
        for (int r = 0; r < N_PANEL; r++) s.w[r] = panel_at(job, row[r], 0, size);
        for (size_t j = 0; j < N_PASS; j++) {
            size_t n = pass_length(job, j), n_on = n < n_left ? n : n_left;
            __m512 p[N_PANEL];
            int level = 0;
            for (int r = 0; r < N_PANEL; r++) p[r] = _mm512_setzero_ps();
            add_products_of(&s, n_on, size, load, ahead, prefetch, p);
            add_products_of(&s, n - n_on, size, load, jump, prefetch, p);
            n_left -= n_on;
            for (; j >> level & 1; level++)
                for (int r = 0; r < N_PANEL; r++) p[r] = _mm512_add_ps(half[level][r], p[r]);
            for (int r = 0; r < N_PANEL; r++) half[level][r] = p[r];
        }
        for (int r = 0; r < N_PANEL; r++) _mm512_storeu_ps(job->y + row[r], half[N_LEVEL][r]);
    }
}

typedef struct panel_work {
    __m512 w[PANEL_CHUNK][N_PANEL];
    uint8_t raw[PANEL_CHUNK * HTH_PANEL_ROW * sizeof(float)]; /* for rows that are not stored in panels */
    __m512 half[N_LEVEL + 1][PANEL_TOK][N_PANEL];             /* as in panel_loop.h */
    hth_prefetch_cursor next;
} panel_work;
_Static_assert(sizeof(panel_work) <= HTH_PANEL_WORK, "a panel's work needs more room");

/* Widens n weights of each row of the r-th current panel, for inputs first, first + 16, ..., which are stored
 * from position p on. */
HTH_INLINE void fill_chunk(panel_work *work, const hth_rows *job, size_t i, int r, size_t first, size_t p,
                           size_t n, size_t size, hth_type type, load_fn *load)
{
    const uint8_t *at = hth_panel_blocks(job, type, size, i, p, first, n, work->raw);
    for (size_t k = 0; k < n; k++, at += HTH_PANEL_ROW * size) work->w[k][r] = load(at);
}

/* Part of a partial sum: n weights from position p on. */
typedef struct piece {
    size_t j, p, n;
    bool first, last;
} piece;

/* Reduces partial sum j of a tile, in the panel's order, with the earlier ones. */
HTH_INLINE void join_tile(panel_work *work, size_t j, size_t i_tok, size_t n_tok, __m512 (*s)[N_PANEL])
{
    int level = 0;
    for (; j >> level & 1; level++)
        for (size_t k = 0; k < n_tok; k++)
            for (int r = 0; r < N_PANEL; r++)
                s[k][r] = _mm512_add_ps(work->half[level][i_tok + k][r], s[k][r]);
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++) work->half[level][i_tok + k][r] = s[k][r];
}

HTH_INLINE void multiply_tile(panel_work *work, const hth_rows *job, const piece *c, size_t t, size_t i_tok,
                              size_t n_tok)
{
    const float *x = job->act.tiles.x + t * job->n_col + c->p * HTH_TILE_FLOAT_TOK;
    __m512 s[HTH_TILE_FLOAT_TOK][N_PANEL], (*open)[N_PANEL] = &work->half[N_LEVEL][i_tok];
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++) s[k][r] = c->first ? _mm512_setzero_ps() : open[k][r];
    for (size_t i = 0; i < c->n; i++, x += HTH_TILE_FLOAT_TOK) {
        if (i % PER_SHARE == 0) hth_prefetch_share(&work->next, N_PANEL);
        for (size_t k = 0; k < n_tok; k++) {
            __m512 in = _mm512_set1_ps(x[k]);
            for (int r = 0; r < N_PANEL; r++) s[k][r] = _mm512_fmadd_ps(work->w[i][r], in, s[k][r]);
        }
    }
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
            work->next = hth_prefetch_cursor_of(job, row, N_PANEL, (c.p + PANEL_CHUNK) * weight, c.n * weight,
                                       (c.n + PER_SHARE - 1) / PER_SHARE * n_tile);
            for (int r = 0; r < N_PANEL; r++) fill_chunk(work, job, row[r], r, k, c.p, c.n, size, type, load);
            multiply_piece(work, job, &c, t, n_tok);
            c.p += c.n, c.first = false;
        }
    }
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++)
            _mm512_storeu_ps(job->y + (t + k) * job->y_stride + row[r], work->half[N_LEVEL][k][r]);
}

HTH_INLINE void panels(const hth_rows *job, size_t size, hth_type type, load_fn *load)
{
    if (job->n_tok == 1) {
        switch (job->prefetch) {
        case HTH_PREFETCH_L1: one_token(job, size, load, HTH_PREFETCH_L1); break;
        case HTH_PREFETCH_SPARSE: one_token(job, size, load, HTH_PREFETCH_SPARSE); break;
        default: one_token(job, size, load, HTH_PREFETCH_L2_L1);
        }
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

static void panels_f32(const hth_rows *job) { panels(job, 4, HTH_TYPE_F32, load_f32); }
static void panels_f16(const hth_rows *job) { panels(job, 2, HTH_TYPE_F16, load_f16); }
void hth_panels_bf16_avx512(const hth_rows *job) { panels(job, 2, HTH_TYPE_BF16, load_bf16); }
