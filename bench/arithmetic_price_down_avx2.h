/* Neuron-major down with AVX2 for one type. The including file gives scales(p,
 * BLOCK_SIZE) of eight blocks and
 *   floats_of(p, w)    a block as floats, exact
 *   raw_floats_of(p, w), RAW_OFFSET  the same, too large by RAW_OFFSET
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

HTH_INLINE __m256 accumulate(__m256 y, __m256 c, __m256 q, int fused)
{
    return fused ? _mm256_fmadd_ps(c, q, y) : _mm256_add_ps(y, _mm256_mul_ps(c, q));
}

/* Neurons [from, end) of the list into y; fused: raw weights, whose offset stays in c_sum. */
HTH_INLINE void down_float(const price_down *job, size_t from, size_t end, float *y, float *c_sum, int fused)
{
    _Alignas(32) static float c[LIVE][PRICE_MAX_OUT / 32];
    size_t n_block = job->n_out / 32;
    hth_axpy_job rows_to_end = down_of(job, end);
    for (size_t i = from; i < end; i += LIVE) {
        down_rows r = take_rows(&rows_to_end, i);
        for (size_t k = 0; k < LIVE; k++)
            for (size_t b = 0; b < n_block; b += 8) {
                __m256 d =
                    _mm256_mul_ps(_mm256_set1_ps(r.h[k]), scales(r.row[k] + b * BLOCK_SIZE, BLOCK_SIZE));
                _mm256_storeu_ps(c[k] + b, d);
                if (fused && RAW_OFFSET != 0)
                    _mm256_storeu_ps(c_sum + b, _mm256_add_ps(_mm256_loadu_ps(c_sum + b), d));
            }
        for (size_t b = 0; b < n_block; b++) {
            __m256 s[4], w[4];
            fetch_next(&r, LIVE, b * BLOCK_SIZE, (b + 1) * BLOCK_SIZE);
            for (int k = 0; k < 4; k++) s[k] = _mm256_loadu_ps(y + 32 * b + 8 * k);
            for (size_t k = 0; k < LIVE; k++) {
                __m256 d = _mm256_broadcast_ss(c[k] + b);
                if (fused) raw_floats_of(r.row[k] + b * BLOCK_SIZE, w);
                else floats_of(r.row[k] + b * BLOCK_SIZE, w);
                for (int j = 0; j < 4; j++) s[j] = accumulate(s[j], d, w[j], fused);
            }
            for (int k = 0; k < 4; k++) _mm256_storeu_ps(y + 32 * b + 8 * k, s[k]);
        }
    }
}

static void down_free(const price_down *job)
{
    static float c_sum[PRICE_MAX_OUT / 32];
    memset(c_sum, 0, sizeof c_sum);
    memset(job->y, 0, job->n_out * sizeof *job->y);
    down_float(job, 0, job->n_list, job->y, c_sum, 1);
    for (size_t i = 0; RAW_OFFSET != 0 && i < job->n_out; i++) job->y[i] -= (float)RAW_OFFSET * c_sum[i / 32];
}

/* trunc(a 2^32) for |a| < 2^31 by shifts: counts of 64 and more, which negative ones
 * are, give 0. */
HTH_INLINE __m256i to_fixed(__m128 a)
{
    __m256i bits = _mm256_cvtepu32_epi64(_mm_castps_si128(a));
    __m256i e = _mm256_and_si256(_mm256_srli_epi64(bits, 23), _mm256_set1_epi64x(255));
    __m256i m =
        _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi64x(0x7fffff)), _mm256_set1_epi64x(0x800000));
    __m256i left = _mm256_sub_epi64(e, _mm256_set1_epi64x(150 - 32));
    __m256i right = _mm256_sub_epi64(_mm256_setzero_si256(), left);
    __m256i size = _mm256_or_si256(_mm256_sllv_epi64(m, left), _mm256_srlv_epi64(m, right));
    __m256i sign = _mm256_sub_epi64(_mm256_setzero_si256(), _mm256_srli_epi64(bits, 31));
    return _mm256_sub_epi64(_mm256_xor_si256(size, sign), sign);
}

static void down_groups(const price_down *job)
{
    static float y[PRICE_MAX_OUT];
    memset(job->sums, 0, job->n_out * sizeof *job->sums);
    for (size_t i = 0; i < job->n_list;) {
        size_t end = i;
        while (end < job->n_list && job->list[end] / 256 == job->list[i] / 256) end++;
        memset(y, 0, job->n_out * sizeof *y);
        down_float(job, i, end, y, NULL, 0);
        for (size_t k = 0; k < job->n_out; k += 4)
            store_256(job->sums + k,
                      _mm256_add_epi64(load_256(job->sums + k), to_fixed(_mm_loadu_ps(y + k))));
        i = end;
    }
    for (size_t k = 0; k < job->n_out; k++) job->y[k] = (float)job->sums[k] * 0x1p-32f;
}
