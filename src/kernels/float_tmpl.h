/* Rows of floats at one level, for up to four tokens (rule R9). The including file
 * gives the instructions:
 *   floats                  sixteen floats in registers; zeros()
 *   load_f32, load_f16, load_bf16(p)  sixteen weights, widened exactly
 *   add_products(p, w, x)   sixteen fused multiply-adds
 *   tree(p)                 the sum of sixteen, as hth_tree16
 * and gets rows_f32, rows_f16 and rows_bf16. */
#include "base/bits.h"
#include "kernels/rows_walk.h"

typedef floats load_fn(const uint8_t *p);

/* The last weights of a row behind which -0 stands. */
HTH_INLINE floats load_tail(const uint8_t *p, size_t n, size_t size, load_fn *load)
{
    uint8_t padded[64] = {0};
    for (size_t i = n; i < 16; i++) padded[i * size + size - 1] = 0x80;
    memcpy(padded, p, n * size);
    return load(padded);
}

HTH_INLINE void dot(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y,
                    size_t y_stride, size_t n_tok, size_t size, load_fn *load)
{
    floats p[HTH_TILE];
    size_t row_size = tile->n_col * size;
    for (size_t t = 0; t < n_tok; t++) p[t] = zeros();
    for (size_t i = 0; i < tile->n_whole; i += 16) {
        __builtin_prefetch(hth_ahead(row, next, i * size, row_size), 0, 3);
        floats w = load(row + i * size);
        for (size_t t = 0; t < n_tok; t++)
            p[t] = add_products(p[t], w, load_f32((const uint8_t *)(tile->act.x + t * tile->n_col + i)));
    }
    if (tile->n_tail > 0) {
        floats w = load_tail(row + tile->n_whole * size, tile->n_tail, size, load);
        for (size_t t = 0; t < n_tok; t++)
            p[t] = add_products(p[t], w, load_f32((const uint8_t *)tile->tail_x[t]));
    }
    for (size_t t = 0; t < n_tok; t++) y[t * y_stride] = tree(p[t]);
}

#define DEFINE_ROWS(TYPE, SIZE)                                                                     \
    HTH_INLINE void one_##TYPE(const hth_tile *tile, const uint8_t *row, const uint8_t *next,       \
                               float *y, size_t y_stride)                                           \
    {                                                                                               \
        dot(tile, row, next, y, y_stride, 1, SIZE, load_##TYPE);                                    \
    }                                                                                               \
    HTH_INLINE void four_##TYPE(const hth_tile *tile, const uint8_t *row, const uint8_t *next,      \
                                float *y, size_t y_stride)                                          \
    {                                                                                               \
        dot(tile, row, next, y, y_stride, HTH_TILE, SIZE, load_##TYPE);                             \
    }                                                                                               \
    static void rows_##TYPE(const hth_rows *job)                                                    \
    {                                                                                               \
        hth_walk(job, hth_tile_of_floats, one_##TYPE, four_##TYPE);                                 \
    }
DEFINE_ROWS(f32, 4)
DEFINE_ROWS(f16, 2)
DEFINE_ROWS(bf16, 2)
