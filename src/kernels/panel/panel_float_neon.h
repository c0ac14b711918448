/* Panels of floats on AArch64 (rule R9): a lane is a row. Each pass computes one of the sixteen partial sums,
 * which are reduced as they are finished. One token reads two panels at once as they stream in, eight chains of
 * additions. Several tokens use half a panel, whose weights of a partial sum are widened once for all tokens.
 * The including file defines floats (four vectors), zeros(), load_f32, load_f16 and load_bf16 (float_tmpl.h).
 * This file defines panels_f32, panels_f16 and panels_bf16. */
#include "kernels/quant/rows_loop.h"

enum {
    PANEL_TOK = 128,   /* tokens that share widened weights; a multiple of a tile */
    PANEL_CHUNK = 256, /* weights of a row in a chunk, which takes 16 KiB */
    N_PASS = 16,
    N_LEVEL = 4, /* levels of the reduction of sixteen partial sums */
};

HTH_INLINE floats add_floats(floats a, floats b)
{
    HTH_UNROLL
    for (int i = 0; i < 4; i++) a.v[i] = vaddq_f32(a.v[i], b.v[i]);
    return a;
}

HTH_INLINE floats add_times(floats p, floats w, float x)
{
    HTH_UNROLL
    for (int i = 0; i < 4; i++) p.v[i] = vfmaq_n_f32(p.v[i], w.v[i], x);
    return p;
}

HTH_INLINE void store_floats(float *y, floats p)
{
    HTH_UNROLL
    for (int i = 0; i < 4; i++) vst1q_f32(y + 4 * i, p.v[i]);
}

/* Weights of row group `first`, from position p on in its panel. */
HTH_INLINE const uint8_t *panel_at(const hth_rows *job, size_t first, size_t p, size_t size)
{
    return job->w + first * job->row_size + p * HTH_PANEL_ROW * size;
}

HTH_INLINE size_t pass_length(const hth_rows *job, size_t j)
{
    return (job->n_col + N_PASS - 1 - hth_panel_sum_order(false, j)) / N_PASS;
}

/* ---- one token --------------------------------------------------------------------------- */

/* The n panels, 1 or 2, from row i on. */
HTH_INLINE void panels_of_one(const hth_rows *job, size_t i, size_t n, size_t size, load_fn *load)
{
    const float *x = job->act.tiles.x;
    const uint8_t *w[2];
    floats half[N_LEVEL + 1][2]; /* partial reductions; each waits for its other half */
    for (size_t r = 0; r < n; r++) w[r] = panel_at(job, i + r * HTH_PANEL_ROW, 0, size);
    for (size_t j = 0; j < N_PASS; j++) {
        floats p[2] = {zeros(), zeros()};
        int level = 0;
        for (size_t left = pass_length(job, j); left > 0; left--, x++) {
            HTH_UNROLL
            for (size_t r = 0; r < n; r++) {
                hth_prefetch_panel(w[r], HTH_PREFETCH_FAR, HTH_PREFETCH_L2_L1);
                p[r] = add_times(p[r], load(w[r]), *x), w[r] += HTH_PANEL_ROW * size;
            }
        }
        for (; j >> level & 1; level++)
            for (size_t r = 0; r < n; r++) p[r] = add_floats(half[level][r], p[r]);
        for (size_t r = 0; r < n; r++) half[level][r] = p[r];
    }
    for (size_t r = 0; r < n; r++) store_floats(job->y + i + r * HTH_PANEL_ROW, half[N_LEVEL][r]);
}

HTH_INLINE void one_token(const hth_rows *job, size_t size, load_fn *load)
{
    size_t i = job->first;
    for (; i + HTH_PANEL_ROW < job->end; i += 2 * HTH_PANEL_ROW) panels_of_one(job, i, 2, size, load);
    if (i < job->end) panels_of_one(job, i, 1, size, load);
}

/* ---- several tokens ------------------------------------------------------------------------ */

typedef struct panel_work {
    floats w[PANEL_CHUNK];
    uint8_t raw[PANEL_CHUNK * HTH_PANEL_ROW * sizeof(float)]; /* for rows that are not stored in panels */
    /* Partial reductions, each of which waits for its other half. The last level holds the partial sum whose
     * chunk is finished, and the result at the end. */
    floats half[N_LEVEL + 1][PANEL_TOK];
} panel_work;
_Static_assert(sizeof(panel_work) <= HTH_PANEL_WORK, "a panel's work needs more room");

/* Widens n weights of each row of the panel that begins at row i, for inputs first, first + 16, ..., which are
 * stored from position p on. */
HTH_INLINE void fill_chunk(panel_work *work, const hth_rows *job, size_t i, size_t first, size_t p, size_t n,
                           size_t size, hth_type type, load_fn *load)
{
    const uint8_t *at = hth_panel_blocks(job, type, size, i, p, first, n, work->raw);
    for (size_t k = 0; k < n; k++, at += HTH_PANEL_ROW * size) {
        hth_prefetch_panel(at, HTH_PREFETCH_FAR, HTH_PREFETCH_L2_L1);
        work->w[k] = load(at);
    }
}

/* Part of a partial sum: n weights from position p on. */
typedef struct piece {
    size_t j, p, n;
    bool first, last;
} piece;

/* p + w * x[lane], with one rounding; lane is a constant. */
HTH_INLINE float32x4_t add_times_lane(float32x4_t p, float32x4_t w, float32x4_t x, size_t lane)
{
    switch (lane) {
    case 0: return vfmaq_laneq_f32(p, w, x, 0);
    case 1: return vfmaq_laneq_f32(p, w, x, 1);
    case 2: return vfmaq_laneq_f32(p, w, x, 2);
    default: return vfmaq_laneq_f32(p, w, x, 3);
    }
}

/* Vectors v and v + 1 of the sums of n_tok tokens: sixteen registers for a whole tile. */
HTH_INLINE void multiply_half(const floats *w, size_t n, const float *x, int v, size_t n_tok, floats *s)
{
    float32x4_t a[HTH_TILE_FLOAT_TOK], b[HTH_TILE_FLOAT_TOK];
    HTH_UNROLL
    for (size_t k = 0; k < n_tok; k++) a[k] = s[k].v[v], b[k] = s[k].v[v + 1];
    for (size_t i = 0; i < n; i++, x += HTH_TILE_FLOAT_TOK) {
        const float32x4_t in[2] = {vld1q_f32(x), vld1q_f32(x + 4)};
        HTH_UNROLL
        for (size_t k = 0; k < n_tok; k++) {
            a[k] = add_times_lane(a[k], w[i].v[v], in[k / 4], k % 4);
            b[k] = add_times_lane(b[k], w[i].v[v + 1], in[k / 4], k % 4);
        }
    }
    HTH_UNROLL
    for (size_t k = 0; k < n_tok; k++) s[k].v[v] = a[k], s[k].v[v + 1] = b[k];
}

/* Reduces partial sum j of a token, in the panel's order, with the earlier ones. */
HTH_INLINE void join(panel_work *work, size_t j, size_t i_tok, floats s)
{
    int level = 0;
    for (; j >> level & 1; level++) s = add_floats(work->half[level][i_tok], s);
    work->half[level][i_tok] = s;
}

HTH_INLINE void multiply_tile(panel_work *work, const hth_rows *job, const piece *c, size_t t, size_t i_tok,
                              size_t n_tok)
{
    const float *x = job->act.tiles.x + t * job->n_col + c->p * HTH_TILE_FLOAT_TOK;
    floats s[HTH_TILE_FLOAT_TOK], *open = &work->half[N_LEVEL][i_tok];
    for (size_t k = 0; k < n_tok; k++) s[k] = c->first ? zeros() : open[k];
    multiply_half(work->w, c->n, x, 0, n_tok, s);
    multiply_half(work->w, c->n, x, 2, n_tok, s);
    for (size_t k = 0; k < n_tok; k++) {
        if (c->last) join(work, c->j, i_tok + k, s[k]);
        else open[k] = s[k];
    }
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

/* The panel that begins at row i. */
HTH_INLINE void multiply_panel(panel_work *work, const hth_rows *job, size_t i, size_t t, size_t n_tok,
                               size_t size, hth_type type, load_fn *load)
{
    piece c = {0};
    for (c.j = 0; c.j < N_PASS; c.j++) {
        size_t left = pass_length(job, c.j), k = hth_panel_sum_order(false, c.j);
        c.first = true, c.last = left == 0, c.n = 0;
        if (left == 0) multiply_piece(work, job, &c, t, n_tok);
        for (; left > 0; k += c.n * N_PASS) {
            c.n = left < PANEL_CHUNK ? left : PANEL_CHUNK;
            left -= c.n, c.last = left == 0;
            fill_chunk(work, job, i, k, c.p, c.n, size, type, load);
            multiply_piece(work, job, &c, t, n_tok);
            c.p += c.n, c.first = false;
        }
    }
    for (size_t k = 0; k < n_tok; k++)
        store_floats(job->y + (t + k) * job->y_stride + i, work->half[N_LEVEL][k]);
}

HTH_INLINE void panels(const hth_rows *job, size_t size, hth_type type, load_fn *load)
{
    if (job->n_tok == 1) {
        one_token(job, size, load);
        return;
    }
    panel_work *work = job->work;
    for (size_t t = 0; t < job->n_tok; t += PANEL_TOK) {
        size_t n_tok = job->n_tok - t < PANEL_TOK ? job->n_tok - t : PANEL_TOK;
        for (size_t i = job->first; i < job->end; i += HTH_PANEL_ROW)
            multiply_panel(work, job, i, t, n_tok, size, type, load);
    }
}

static void panels_f32(const hth_rows *job) { panels(job, 4, HTH_TYPE_F32, load_f32); }
static void panels_f16(const hth_rows *job) { panels(job, 2, HTH_TYPE_F16, load_f16); }
static void panels_bf16(const hth_rows *job) { panels(job, 2, HTH_TYPE_BF16, load_bf16); }
