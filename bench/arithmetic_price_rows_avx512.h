/* Free forms of the quantised rows with AVX-512, on the unpacking of the kernel that
 * the including file has included. That file gives OFFSET_SHIFT (weights are made
 * unsigned by adding 2^OFFSET_SHIFT), as the kernel wants it. */

/* The integer lanes never meet: sixteen of them become floats at once. */
HTH_INLINE void lanes(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y,
                      size_t y_stride, size_t n_tok)
{
    __m512 acc[HTH_TILE][2];
    __m256 offset[HTH_TILE];
    size_t row_size = tile->n_block * BLOCK_SIZE;
    for (size_t t = 0; t < n_tok; t++)
        acc[t][0] = acc[t][1] = _mm512_setzero_ps(), offset[t] = _mm256_setzero_ps();
    for (size_t b = 0; b < tile->n_whole; b += HTH_GROUP) {
        const uint8_t *ahead = hth_prefetch_addr(row, next, b * BLOCK_SIZE, row_size);
        for (int i = 0; i < GROUP_SIZE; i += 64) __builtin_prefetch(ahead + i, 0, 3);
        group g = unpack(row + b * BLOCK_SIZE);
        for (size_t t = 0; t < n_tok; t++) {
            const int8_t *q = tile->act.q + t * tile->n_col + b * HTH_ACT_BLOCK;
            __m256 scale = _mm256_mul_ps(g.d, _mm256_loadu_ps(tile->act.d + t * tile->n_block + b));
            __m512 wide = _mm512_castps256_ps512(scale);
            for (int i = 0; i < 4; i++) {
                __m512i to = _mm512_setr_epi32(2 * i, 2 * i, 2 * i, 2 * i, 2 * i, 2 * i, 2 * i, 2 * i,
                                               2 * i + 1, 2 * i + 1, 2 * i + 1, 2 * i + 1, 2 * i + 1,
                                               2 * i + 1, 2 * i + 1, 2 * i + 1);
                __m512 term = _mm512_cvtepi32_ps(products(g.w[i], q + 64 * i));
                acc[t][i & 1] = _mm512_fmadd_ps(_mm512_permutexvar_ps(to, wide), term, acc[t][i & 1]);
            }
            __m256 sum = _mm256_cvtepi32_ps(load_256(tile->act.sum + t * tile->n_block + b));
            offset[t] = _mm256_fmadd_ps(scale, sum, offset[t]);
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        y[t * y_stride] = _mm512_reduce_add_ps(_mm512_add_ps(acc[t][0], acc[t][1])) -
                          (float)(1 << OFFSET_SHIFT) * tree(offset[t]);
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

/* Panels with one fused sum for each output, in place of eight and their tree. */
static void panels_of_one_sum(const hth_rows *job)
{
    static panel_work work;
    size_t n_block = job->n_col / HTH_ACT_BLOCK, row[N_PANEL];
    for (size_t i = job->first; i < job->end; i += N_PANEL * HTH_PANEL_ROW) {
        piece c = {.first = true};
        hth_panels_at(i, job->end, N_PANEL, row);
        for (; c.place < n_block; c.place += c.n, c.first = false) {
            c.n = n_block - c.place < PANEL_CHUNK ? n_block - c.place : PANEL_CHUNK;
            for (int r = 0; r < N_PANEL; r++) fill_chunk(&work, job, row[r], r, 0, c.place, c.n);
            multiply_piece(&work, job, &c, 0, job->n_tok);
        }
        for (size_t t = 0; t < job->n_tok; t++)
            for (int r = 0; r < N_PANEL; r++)
                _mm512_storeu_ps(job->y + t * job->y_stride + row[r], work.half[N_LEVEL][t][r].p);
    }
}
