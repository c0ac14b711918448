/* Panels of floats with AVX-512 (panel_float_loop.h). One token reads N_PANEL panels at once as they stream in, so that
 * chains of additions do not stall. This file defines panels_f32, panels_f16 and hth_panels_bf16_avx512. */
#include "kernels/panel/panel_float_passes.h"

enum { N_PANEL = 3, PANEL_CHUNK = 128 /* 24 KiB */, PER_SHARE = 8 };

HTH_INLINE floats add_floats(floats a, floats b) { return _mm512_add_ps(a, b); }

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
    size_t ahead = HTH_PREFETCH_FAR, jump = ahead + (N_PANEL - 1) * HTH_PANEL_ROW * job->row_size;
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

HTH_INLINE void panels_of_one_token(const hth_rows *job, size_t size, load_fn *load)
{
    switch (job->prefetch) {
    case HTH_PREFETCH_L1: one_token(job, size, load, HTH_PREFETCH_L1); break;
    case HTH_PREFETCH_SPARSE: one_token(job, size, load, HTH_PREFETCH_SPARSE); break;
    default: one_token(job, size, load, HTH_PREFETCH_L2_L1);
    }
}

HTH_INLINE void multiply_chunk(floats (*w)[N_PANEL], size_t n, const float *x, size_t n_tok, floats (*s)[N_PANEL],
                               hth_prefetch_cursor *next)
{
    for (size_t i = 0; i < n; i++, x += HTH_TILE_FLOAT_TOK) {
        if (i % PER_SHARE == 0) hth_prefetch_share(next, N_PANEL);
        for (size_t k = 0; k < n_tok; k++) {
            __m512 in = _mm512_set1_ps(x[k]);
            for (int r = 0; r < N_PANEL; r++) s[k][r] = _mm512_fmadd_ps(w[i][r], in, s[k][r]);
        }
    }
}

#include "kernels/panel/panel_float_loop.h"

static void panels_f32(const hth_rows *job) { panels(job, 4, HTH_TYPE_F32, load_f32); }
static void panels_f16(const hth_rows *job) { panels(job, 2, HTH_TYPE_F16, load_f16); }
void hth_panels_bf16_avx512(const hth_rows *job) { panels(job, 2, HTH_TYPE_BF16, load_bf16); }
