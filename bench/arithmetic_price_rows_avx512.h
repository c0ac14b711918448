/* Free forms of the quantised rows with AVX-512, on the unpacking of the kernel that
 * the including file has included. That file gives OFFSET_SHIFT (weights are made
 * unsigned by adding 2^OFFSET_SHIFT), as panel_avx512.h wants it. */

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
        const uint8_t *ahead = hth_ahead(row, next, b * BLOCK_SIZE, row_size);
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
            __m256 sums = _mm256_cvtepi32_ps(load_256(tile->act.sum + t * tile->n_block + b));
            offset[t] = _mm256_fmadd_ps(scale, sums, offset[t]);
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
    hth_walk_run(job, first, end, tile, lanes_one, y);
}

HTH_INLINE void lanes_run_four(const hth_rows *job, size_t first, size_t end, const hth_tile *tile, float *y)
{
    hth_walk_run(job, first, end, tile, lanes_four, y);
}

static void rows_by_lanes(const hth_rows *job)
{
    hth_walk(job, hth_tile_of_blocks, lanes_run_one, lanes_run_four);
}

/* A lane is a row, one accumulator for each output, n_part blocks at a time. */
HTH_INLINE void free_pass(const row_panel *panel, const hth_rows *job, size_t first, size_t n_part, size_t t,
                          __m512 *acc, size_t n_tok)
{
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    __m512 p[8];
    for (size_t k = 0; k < n_tok; k++) p[k] = acc[k];
    for (size_t i = 0; i < n_part; i++) {
        for (size_t k = 0; k < n_tok; k++) {
            size_t block = (t + k) * n_block + first + i;
            const int8_t *q = job->act.q + block * HTH_ACT_BLOCK;
            __m512i isum = _mm512_set1_epi32(-(job->act.sum[block] << OFFSET_SHIFT));
            for (int g = 0; g < 8; g++)
                isum = _mm512_dpbusd_epi32(isum, panel->w[i][g],
                                           _mm512_set1_epi32((int)hth_load_u32(q + 4 * g)));
            __m512 scale = _mm512_mul_ps(panel->d[i], _mm512_set1_ps(job->act.d[block]));
            p[k] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(isum), p[k]);
        }
    }
    for (size_t k = 0; k < n_tok; k++) acc[k] = p[k];
}

HTH_INLINE void free_panels(const hth_rows *job, size_t part)
{
    static row_panel panel;
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    __m512 acc[PANEL_TOK];
    for (size_t i = job->first; i < job->end; i += PANEL_ROW) {
        const uint8_t *row[PANEL_ROW];
        for (size_t r = 0; r < PANEL_ROW; r++) row[r] = hth_row_at(job, i + r);
        for (size_t t = 0; t < job->n_tok; t++) acc[t] = _mm512_setzero_ps();
        for (size_t first = 0; first < n_block; first += part) {
            for (size_t b = 0; b < part; b++) fill_block(&panel, b, row, first + b);
            for (size_t t = 0; t < job->n_tok; t += 4) free_pass(&panel, job, first, part, t, acc + t, 4);
        }
        for (size_t t = 0; t < job->n_tok; t++) _mm512_storeu_ps(job->y + t * job->y_stride + i, acc[t]);
    }
}

static void panels_of_16(const hth_rows *job) { free_panels(job, 16); }
static void panels_of_64(const hth_rows *job) { free_panels(job, 64); }

/* The settled bits with other loops: n_live partial sums of each output at a time, so
 * that whole cache lines of activations are used and fewer passes are made; fused: the
 * same partial sums with one rounding less. */
HTH_INLINE void settled_pass(const row_panel *panel, const hth_rows *job, size_t j, size_t n_live, size_t t,
                             size_t n_tok, int fused, __m512 *y)
{
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    __m512 p[4][4];
    for (size_t k = 0; k < n_tok; k++)
        for (size_t m = 0; m < n_live; m++) p[k][m] = _mm512_setzero_ps();
    for (size_t b = j, i = 0; b < n_block; b += HTH_GROUP) {
        for (size_t m = 0; m < n_live; m++, i++)
            for (size_t k = 0; k < n_tok; k++) {
                size_t block = (t + k) * n_block + b + m;
                const int8_t *q = job->act.q + block * HTH_ACT_BLOCK;
                __m512i isum = _mm512_set1_epi32(-(job->act.sum[block] << OFFSET_SHIFT));
                for (int g = 0; g < 8; g++)
                    isum = _mm512_dpbusd_epi32(isum, panel->w[i][g],
                                               _mm512_set1_epi32((int)hth_load_u32(q + 4 * g)));
                __m512 scale = _mm512_mul_ps(panel->d[i], _mm512_set1_ps(job->act.d[block]));
                __m512 sum = _mm512_cvtepi32_ps(isum);
                p[k][m] = fused ? _mm512_fmadd_ps(scale, sum, p[k][m])
                                : _mm512_add_ps(p[k][m], _mm512_mul_ps(scale, sum));
            }
    }
    for (size_t k = 0; k < n_tok; k++) {
        for (size_t m = 1; m < n_live; m *= 2)
            for (size_t i = 0; i < n_live; i += 2 * m) p[k][i] = _mm512_add_ps(p[k][i], p[k][i + m]);
        y[k] = p[k][0];
    }
}

HTH_INLINE void settled_panels(const hth_rows *job, size_t n_live, size_t n_tok, int fused)
{
    static row_panel panel;
    static __m512 half[HTH_GROUP][PANEL_TOK];
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    for (size_t i = job->first; i < job->end; i += PANEL_ROW) {
        const uint8_t *row[PANEL_ROW];
        for (size_t r = 0; r < PANEL_ROW; r++) row[r] = hth_row_at(job, i + r);
        for (size_t j = 0; j < HTH_GROUP; j += n_live) {
            for (size_t b = j, at = 0; b < n_block; b += HTH_GROUP)
                for (size_t m = 0; m < n_live; m++, at++) fill_block(&panel, at, row, b + m);
            for (size_t t = 0; t < job->n_tok; t += n_tok)
                settled_pass(&panel, job, j, n_live, t, n_tok, fused, &half[j / n_live][t]);
        }
        for (size_t t = 0; t < job->n_tok; t++) {
            size_t n = HTH_GROUP / n_live;
            __m512 p[HTH_GROUP];
            for (size_t k = 0; k < n; k++) p[k] = half[k][t];
            for (size_t m = 1; m < n; m *= 2)
                for (size_t k = 0; k < n; k += 2 * m) p[k] = _mm512_add_ps(p[k], p[k + m]);
            _mm512_storeu_ps(job->y + t * job->y_stride + i, p[0]);
        }
    }
}

static void settled_by_twos(const hth_rows *job) { settled_panels(job, 2, 4, 0); }
static void settled_by_fours(const hth_rows *job) { settled_panels(job, 4, 4, 0); }
static void fused_by_fours(const hth_rows *job) { settled_panels(job, 4, 4, 1); }
