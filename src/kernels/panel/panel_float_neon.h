/* Panels of floats on AArch64 (panel_float_loop.h). One token reads two panels at once as they stream in, eight chains
 * of additions. This file defines panels_f32, panels_f16 and panels_bf16. */
#include "kernels/panel/panel_float_passes.h"

enum { N_PANEL = 1, PANEL_CHUNK = 256 /* 16 KiB */, PER_SHARE = 0 };

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

HTH_INLINE void panels_of_one_token(const hth_rows *job, size_t size, load_fn *load)
{
    size_t i = job->first;
    for (; i + HTH_PANEL_ROW < job->end; i += 2 * HTH_PANEL_ROW) panels_of_one(job, i, 2, size, load);
    if (i < job->end) panels_of_one(job, i, 1, size, load);
}

/* ---- several tokens ------------------------------------------------------------------------ */

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
HTH_INLINE void multiply_half(floats (*w)[N_PANEL], size_t n, const float *x, int v, size_t n_tok,
                              floats (*s)[N_PANEL])
{
    float32x4_t a[HTH_TILE_FLOAT_TOK], b[HTH_TILE_FLOAT_TOK];
    HTH_UNROLL
    for (size_t k = 0; k < n_tok; k++) a[k] = s[k][0].v[v], b[k] = s[k][0].v[v + 1];
    for (size_t i = 0; i < n; i++, x += HTH_TILE_FLOAT_TOK) {
        const float32x4_t in[2] = {vld1q_f32(x), vld1q_f32(x + 4)};
        HTH_UNROLL
        for (size_t k = 0; k < n_tok; k++) {
            a[k] = add_times_lane(a[k], w[i][0].v[v], in[k / 4], k % 4);
            b[k] = add_times_lane(b[k], w[i][0].v[v + 1], in[k / 4], k % 4);
        }
    }
    HTH_UNROLL
    for (size_t k = 0; k < n_tok; k++) s[k][0].v[v] = a[k], s[k][0].v[v + 1] = b[k];
}

HTH_INLINE void multiply_chunk(floats (*w)[N_PANEL], size_t n, const float *x, size_t n_tok, floats (*s)[N_PANEL],
                               hth_prefetch_cursor *next)
{
    (void)next;
    multiply_half(w, n, x, 0, n_tok, s);
    multiply_half(w, n, x, 2, n_tok, s);
}

#include "kernels/panel/panel_float_loop.h"

static void panels_f32(const hth_rows *job) { panels(job, 4, HTH_TYPE_F32, load_f32); }
static void panels_f16(const hth_rows *job) { panels(job, 2, HTH_TYPE_F16, load_f16); }
static void panels_bf16(const hth_rows *job) { panels(job, 2, HTH_TYPE_BF16, load_bf16); }
