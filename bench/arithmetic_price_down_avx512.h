/* Neuron-major down with AVX-512 for one type. The including file gives scales(p) of
 * eight blocks, BLOCK_SIZE, and
 *   floats_of(p, low, high)    a block as floats, exact
 *   down(job), take_rows, panel_type  the kernel itself, its walk and its type */

/* Neurons [0, end) of the list; those behind are prefetched. */
HTH_INLINE hth_axpy_job down_of(const price_down *job, size_t end)
{
    return (hth_axpy_job){.w = job->w,
                      .row_size = job->row_size,
                      .n_out = job->n_out,
                      .list = job->list,
                      .h = job->h,
                      .n = end,
                      .n_prefetch = job->n_list - end,
                      .scale = job->scale};
}

static void down_integer(const price_down *job)
{
    static int32_t narrow[PRICE_MAX_OUT], offsets[PRICE_MAX_OUT / 32];
    for (size_t from = 0; from < job->n_list; from += hth_axpy_limit(panel_type)) {
        size_t left = job->n_list - from,
               n = left < hth_axpy_limit(panel_type) ? left : hth_axpy_limit(panel_type);
        hth_axpy_job part = down_of(job, job->n_list);
        part.list += from, part.h += from, part.n = n, part.n_prefetch = left - n;
        part.sums = narrow, part.offsets = offsets;
        down(&part);
        hth_axpy_flush(panel_type, job->n_out, narrow, offsets, job->sums);
    }
}

HTH_INLINE __m512 accumulate(__m512 y, __m512 c, __m512 q, int fused)
{
    return fused ? _mm512_fmadd_ps(c, q, y) : _mm512_add_ps(y, _mm512_mul_ps(c, q));
}

/* Neurons [from, end) of the list into y. */
HTH_INLINE void down_float(const price_down *job, size_t from, size_t end, float *y, int fused)
{
    _Alignas(64) static float c[LIVE][PRICE_MAX_OUT / 32];
    size_t n_block = job->n_out / 32;
    hth_axpy_job rows_to_end = down_of(job, end);
    for (size_t i = from; i < end; i += LIVE) {
        down_rows r = take_rows(&rows_to_end, i);
        for (size_t k = 0; k < LIVE; k++)
            for (size_t b = 0; b < n_block; b += 8)
                _mm256_storeu_ps(c[k] + b,
                                 _mm256_mul_ps(_mm256_set1_ps(r.h[k]), scales(r.row[k] + b * BLOCK_SIZE)));
        for (size_t b = 0; b < n_block; b++) {
            __m512 s0 = _mm512_loadu_ps(y + 32 * b), s1 = _mm512_loadu_ps(y + 32 * b + 16), low, high;
            fetch_next(&r, LIVE, b * BLOCK_SIZE, (b + 1) * BLOCK_SIZE);
            for (size_t k = 0; k < LIVE; k++) {
                __m512 d = _mm512_set1_ps(c[k][b]);
                floats_of(r.row[k] + b * BLOCK_SIZE, &low, &high);
                s0 = accumulate(s0, d, low, fused);
                s1 = accumulate(s1, d, high, fused);
            }
            _mm512_storeu_ps(y + 32 * b, s0);
            _mm512_storeu_ps(y + 32 * b + 16, s1);
        }
    }
}

static void down_free(const price_down *job)
{
    memset(job->y, 0, job->n_out * sizeof *job->y);
    down_float(job, 0, job->n_list, job->y, 1);
}

static void down_groups(const price_down *job)
{
    static float y[PRICE_MAX_OUT];
    memset(job->sums, 0, job->n_out * sizeof *job->sums);
    for (size_t i = 0; i < job->n_list;) {
        size_t end = i;
        while (end < job->n_list && job->list[end] / 256 == job->list[i] / 256) end++;
        memset(y, 0, job->n_out * sizeof *y);
        down_float(job, i, end, y, 0);
        for (size_t k = 0; k < job->n_out; k += 8) {
            __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(y + k), _mm256_set1_ps(0x1p32f));
            __m512i sum = _mm512_add_epi64(load_512(job->sums + k), _mm512_cvttps_epi64(scaled));
            _mm512_storeu_si512(job->sums + k, sum);
        }
        i = end;
    }
    for (size_t k = 0; k < job->n_out; k++) job->y[k] = (float)job->sums[k] * 0x1p-32f;
}
