/* The two variants of dot() for hth_rows_loop: one token, and a tile of tokens. Each is inlined with a constant
 * token count, so that the loops over tokens unroll. rows_tmpl.h and rows_256_tmpl.h, which define dot(),
 * include it once, at their end. */

HTH_INLINE void dot_one(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y,
                        size_t y_stride)
{
    dot(tile, row, next, y, y_stride, 1);
}

HTH_INLINE void dot_four(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y,
                         size_t y_stride)
{
    dot(tile, row, next, y, y_stride, HTH_TILE);
}

HTH_INLINE void run_one(const hth_rows *job, size_t first, size_t end, const hth_tile *tile, float *y)
{
    hth_rows_loop(job, first, end, tile, dot_one, y);
}

HTH_INLINE void run_four(const hth_rows *job, size_t first, size_t end, const hth_tile *tile, float *y)
{
    hth_rows_loop(job, first, end, tile, dot_four, y);
}
