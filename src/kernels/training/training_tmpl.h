/* Training at one ISA level: products in tiles, Adam and the logistic function. The including file defines
 * LEVEL, TILE_ROWS and TILE_VECTORS (rows of a tile, and columns in vectors: their sums fit the registers) and
 *   floats                  some floats in a register; FLOATS: how many
 *   no_floats()             zeros
 *   load_floats(p), store_floats(p, x), all_of(x)
 *   add_product(s, a, b)    fused multiply-adds; `+` and `*` are those of their numbers */
#include "kernels/vector/vector_math.h"

#include <stdbool.h>

#define HTH_PASTE_(a, b) a##b
#define HTH_PASTE(a, b) HTH_PASTE_(a, b)

/* ---- products ------------------------------------------------------------------------------- */

/* DEPTH: rows of b per pass; that many rows of a tile's columns stay in the L1 cache. ROW_VECTORS: columns of a tile of one
 * row, in vectors. Wide tiles read b in the order in which it lies; the state of a recurrent head comes from memory. */
enum { DEPTH = 256, ROW_VECTORS = 8 };
_Static_assert(TILE_VECTORS <= (int)ROW_VECTORS, "a tile has room for both widths");

HTH_INLINE void product_tile(const hth_gemm *g, bool fused, size_t i, size_t j, size_t first, size_t n_in,
                             size_t n_row, size_t n_vector)
{
    floats sum[TILE_ROWS][ROW_VECTORS];
    const float *a = g->a + i * g->a_row + first * g->a_col, *b = g->b + first * g->b_row + j;
    float *y = g->y + i * g->y_row + j;
    bool more = g->more || first > 0;
    HTH_UNROLL for (size_t r = 0; r < n_row; r++) HTH_UNROLL for (size_t c = 0; c < n_vector; c++) sum[r][c] =
        more ? load_floats(y + r * g->y_row + c * FLOATS) : no_floats();
    for (size_t k = 0; k < n_in; k++, a += g->a_col, b += g->b_row) {
        floats column[ROW_VECTORS];
        HTH_UNROLL for (size_t c = 0; c < n_vector; c++) column[c] = load_floats(b + c * FLOATS);
        HTH_UNROLL for (size_t r = 0; r < n_row; r++)
        {
            floats factor = all_of(a[r * g->a_row]);
            HTH_UNROLL for (size_t c = 0; c < n_vector; c++) sum[r][c] =
                fused ? add_product(sum[r][c], factor, column[c]) : (floats)(sum[r][c] + factor * column[c]);
        }
    }
    HTH_UNROLL for (size_t r = 0; r < n_row; r++) HTH_UNROLL for (size_t c = 0; c < n_vector; c++)
        store_floats(y + r * g->y_row + c * FLOATS, sum[r][c]);
}

/* All rows of some columns. */
HTH_INLINE void product_columns(const hth_gemm *g, bool fused, size_t j, size_t first, size_t n_in, size_t n_vector)
{
    size_t i = 0;
    for (; i + TILE_ROWS <= g->n_row; i += TILE_ROWS) product_tile(g, fused, i, j, first, n_in, TILE_ROWS, n_vector);
    for (; i < g->n_row; i++) product_tile(g, fused, i, j, first, n_in, 1, n_vector);
}

HTH_INLINE void gemm_by(const hth_gemm *g, bool fused)
{
    /* A product over no terms gives zeros. */
    for (size_t first = 0; first == 0 || first < g->n_in; first += DEPTH) {
        size_t left = g->n_in - first, n_in = left < DEPTH ? left : DEPTH, j = 0;
        for (; g->n_row == 1 && j + ROW_VECTORS * FLOATS <= g->n_col; j += ROW_VECTORS * FLOATS)
            product_tile(g, fused, 0, j, first, n_in, 1, ROW_VECTORS);
        for (; j + TILE_VECTORS * FLOATS <= g->n_col; j += TILE_VECTORS * FLOATS)
            product_columns(g, fused, j, first, n_in, TILE_VECTORS);
        for (; j < g->n_col; j += FLOATS) product_columns(g, fused, j, first, n_in, 1);
    }
}

static void gemm(const hth_gemm *g)
{
    if (g->fused) gemm_by(g, true);
    else gemm_by(g, false);
}

/* ---- vectors --------------------------------------------------------------------------------- */

static void adam(const hth_adam *s, const float *gradient, size_t n, float *p, float *m, float *v)
{
    const hth_v8 keep_m = v8_set(s->keep_m), take_m = v8_set(1.0f - s->keep_m);
    const hth_v8 keep_v = v8_set(s->keep_v), take_v = v8_set(1.0f - s->keep_v);
    const hth_v8 correct_m = v8_set(s->correct_m), correct_v = v8_set(s->correct_v), rate = v8_set(s->rate);
    for (size_t i = 0; i < n; i += 8) {
        hth_v8 g = v8_load(gradient + i);
        hth_v8 mean = keep_m * v8_load(m + i) + take_m * g;
        hth_v8 square = keep_v * v8_load(v + i) + take_v * (g * g);
        hth_v8 size = v8_rsqrt(square * correct_v + v8_set(1e-16f));
        v8_store(m + i, mean);
        v8_store(v + i, square);
        v8_store(p + i, v8_load(p + i) - rate * (mean * correct_m) * size);
    }
}

static void logistic(const float *x, float bias, size_t n, float *y)
{
    const hth_v8 zero = v8_set(0.0f), one = v8_set(1.0f), least = v8_set(-80.0f); /* the bound of v8_rcp */
    for (size_t i = 0; i < n; i += 8) {
        hth_v8 score = v8_max(least, v8_load(x + i) + v8_set(bias));
        v8_store(y + i, v8_rcp(one + v8_exp(zero - score)));
    }
}

void HTH_PASTE(hth_kernels_training_, LEVEL)(hth_kernels *k)
{
    k->gemm = gemm;
    k->adam = adam;
    k->logistic = logistic;
}
