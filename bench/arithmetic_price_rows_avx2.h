/* Free form of the quantised rows with AVX2, on the unpacking of the kernel that the
 * including file has included. That file gives block_lanes(g, i, q), the products of
 * block i as eight sum, and OFFSET, what the sum of activations take off. */

/* The integer lanes never meet: eight of them become floats at once. */
HTH_INLINE void lanes(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y,
                      size_t y_stride, size_t n_tok)
{
    __m256 acc[HTH_TILE][2], offset[HTH_TILE];
    size_t row_size = tile->n_block * BLOCK_SIZE;
    for (size_t t = 0; t < n_tok; t++) acc[t][0] = acc[t][1] = offset[t] = _mm256_setzero_ps();
    for (size_t b = 0; b < tile->n_whole; b += HTH_GROUP) {
        const uint8_t *ahead = hth_prefetch_addr(row, next, b * BLOCK_SIZE, row_size);
        for (int i = 0; i < GROUP_SIZE; i += 64) __builtin_prefetch(ahead + i, 0, 3);
        group g = unpack(row + b * BLOCK_SIZE);
        for (size_t t = 0; t < n_tok; t++) {
            _Alignas(32) float scale[8];
            const int8_t *q = tile->act.q + t * tile->n_col + b * HTH_ACT_BLOCK;
            __m256 all = _mm256_mul_ps(g.d, _mm256_loadu_ps(tile->act.d + t * tile->n_block + b));
            _mm256_store_ps(scale, all);
            for (int i = 0; i < 8; i++) {
                __m256 term = _mm256_cvtepi32_ps(block_lanes(&g, i, q));
                acc[t][i & 1] = _mm256_fmadd_ps(_mm256_broadcast_ss(scale + i), term, acc[t][i & 1]);
            }
            if (OFFSET == 0) continue;
            __m256 sum = _mm256_cvtepi32_ps(load_256(tile->act.sum + t * tile->n_block + b));
            offset[t] = _mm256_fmadd_ps(all, sum, offset[t]);
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        y[t * y_stride] = tree(_mm256_add_ps(acc[t][0], acc[t][1])) - (float)OFFSET * tree(offset[t]);
}

HTH_INLINE void lanes_one(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y,
                          size_t y_stride)
{
    lanes(tile, row, next, y, y_stride, 1);
}

HTH_INLINE void lanes_four(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y,
                           size_t y_stride)
{
    lanes(tile, row, next, y, y_stride, HTH_TILE);
}

HTH_INLINE void lanes_run_one(const hth_rows *job, size_t first, size_t end, const hth_tile *tile, float *y)
{
    hth_rows_loop(job, first, end, tile, lanes_one, y);
}

HTH_INLINE void lanes_run_four(const hth_rows *job, size_t first, size_t end, const hth_tile *tile, float *y)
{
    hth_rows_loop(job, first, end, tile, lanes_four, y);
}

static void rows_by_lanes(const hth_rows *job)
{
    hth_text_sampler(job, hth_tile_of_blocks, lanes_run_one, lanes_run_four);
}
