/* Neuron-major down with AVX-512 for one type. The including file gives scales(p) of
 * eight blocks, BLOCK_SIZE, and
 *   two_rows(a, b, low, high)  a block of two rows as pairs of 16 bits, outputs 0..15 and 16..31
 *   floats_of(p, low, high)    a block as floats, exact
 *   DOWN_OFFSET, DOWN_FLUSH    what pairs are too large by; neurons that 32 bits hold */

enum { LIVE = 8 }; /* rows of one pass over the outputs */

typedef struct down_rows {
    const uint8_t *row[LIVE], *next[LIVE];
    float h[LIVE];
} down_rows;

/* The rows of list[i ...]; places behind the end repeat a row of the list with h = 0. */
HTH_INLINE down_rows take_rows(const price_down *job, size_t i, size_t end)
{
    down_rows r;
    for (size_t k = 0; k < LIVE; k++) {
        size_t at = i + k < end ? i + k : end - 1, ahead = at + LIVE < end ? at + LIVE : at;
        r.row[k] = job->w + (size_t)job->list[at] * job->row_size;
        r.next[k] = job->w + (size_t)job->list[ahead] * job->row_size;
        r.h[k] = i + k < end ? job->h[at] : 0.0f;
    }
    return r;
}

HTH_INLINE void fetch(const down_rows *r, size_t b)
{
    if (b * BLOCK_SIZE / 64 == (b + 1) * BLOCK_SIZE / 64) return;
    for (size_t k = 0; k < LIVE; k++) __builtin_prefetch(r->next[k] + b * BLOCK_SIZE, 0, 3);
}

static void down_integer(const price_down *job)
{
    _Alignas(64) static int32_t y[PRICE_MAX_OUT], c_sum[PRICE_MAX_OUT / 32], c[LIVE / 2][PRICE_MAX_OUT / 32];
    size_t n_block = job->n_out / 32;
    for (size_t from = 0; from < job->n_list; from += DOWN_FLUSH) {
        size_t end = from + DOWN_FLUSH < job->n_list ? from + DOWN_FLUSH : job->n_list;
        memset(y, 0, job->n_out * sizeof *y);
        memset(c_sum, 0, n_block * sizeof *c_sum);
        for (size_t i = from; i < end; i += LIVE) {
            down_rows r = take_rows(job, i, end);
            for (size_t p = 0; p < LIVE / 2; p++) {
                __m256 ha = _mm256_set1_ps(r.h[2 * p] * job->scale),
                       hb = _mm256_set1_ps(r.h[2 * p + 1] * job->scale);
                for (size_t b = 0; b < n_block; b += 8) {
                    __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(ha, scales(r.row[2 * p] + b * BLOCK_SIZE)));
                    __m256i d =
                        _mm256_cvtps_epi32(_mm256_mul_ps(hb, scales(r.row[2 * p + 1] + b * BLOCK_SIZE)));
                    _mm256_storeu_si256((__m256i *)(void *)(c[p] + b),
                                        _mm256_blend_epi16(a, _mm256_slli_epi32(d, 16), 0xaa));
                    __m256i sum = _mm256_add_epi32(load_256(c_sum + b), _mm256_add_epi32(a, d));
                    _mm256_storeu_si256((__m256i *)(void *)(c_sum + b), sum);
                }
            }
            for (size_t b = 0; b < n_block; b++) {
                __m512i s0 = load_512(y + 32 * b), s1 = load_512(y + 32 * b + 16), low, high;
                fetch(&r, b);
                for (size_t p = 0; p < LIVE / 2; p++) {
                    __m512i pair = _mm512_set1_epi32(c[p][b]);
                    two_rows(r.row[2 * p] + b * BLOCK_SIZE, r.row[2 * p + 1] + b * BLOCK_SIZE, &low, &high);
                    s0 = _mm512_dpwssd_epi32(s0, low, pair);
                    s1 = _mm512_dpwssd_epi32(s1, high, pair);
                }
                _mm512_storeu_si512(y + 32 * b, s0);
                _mm512_storeu_si512(y + 32 * b + 16, s1);
            }
        }
        for (size_t i = 0; i < job->n_out; i += 8) {
            __m256i offset = _mm256_set1_epi32(DOWN_OFFSET * c_sum[i / 32]);
            __m512i sum = _mm512_cvtepi32_epi64(_mm256_sub_epi32(load_256(y + i), offset));
            _mm512_storeu_si512(job->sums + i, _mm512_add_epi64(load_512(job->sums + i), sum));
        }
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
    for (size_t i = from; i < end; i += LIVE) {
        down_rows r = take_rows(job, i, end);
        for (size_t k = 0; k < LIVE; k++)
            for (size_t b = 0; b < n_block; b += 8)
                _mm256_storeu_ps(c[k] + b,
                                 _mm256_mul_ps(_mm256_set1_ps(r.h[k]), scales(r.row[k] + b * BLOCK_SIZE)));
        for (size_t b = 0; b < n_block; b++) {
            __m512 s0 = _mm512_loadu_ps(y + 32 * b), s1 = _mm512_loadu_ps(y + 32 * b + 16), low, high;
            fetch(&r, b);
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
