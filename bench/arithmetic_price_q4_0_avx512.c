/* Free forms of Q4_0 with AVX-512. The kernel's own file is included for its
 * unpacking, its float work replaced by one fused operation. */
#include "arithmetic_price.h"
#include "kernels/x86_512.h"

HTH_INLINE partials add_fused(partials p, __m256 weight_d, const float *d, __m256i isum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(weight_d, _mm256_loadu_ps(d)), _mm256_cvtepi32_ps(isum), p);
}
HTH_INLINE __m512 add_fused_term(__m512 p, __m512 d, __m512 dx, __m512 isum)
{
    return _mm512_fmadd_ps(_mm512_mul_ps(d, dx), isum, p);
}
#define add_scaled add_fused
#define add_term add_fused_term
#define hth_kernels_q4_0_avx512 price_unused_q4_0_avx512
void price_unused_q4_0_avx512(hth_kernels *k);
#include "kernels/q4_0_avx512.c"

#include "arithmetic_price_rows_avx512.h"

HTH_INLINE void floats_of(const uint8_t *p, __m512 *low, __m512 *high)
{
    const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    __m512i bytes = _mm512_cvtepu8_epi32(load_128(p + 2));
    *low = _mm512_permutexvar_ps(bytes, values);
    *high = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), values);
}

#include "arithmetic_price_down_avx512.h"

/* The free form that converts instead of looking up: q is 0..15 and the eighth part
 * too much comes off at the end. */
static void down_converted(const price_down *job)
{
    _Alignas(64) static float c[LIVE][PRICE_MAX_OUT / 32], c_sum[PRICE_MAX_OUT / 32];
    size_t n_block = job->n_out / 32;
    memset(job->y, 0, job->n_out * sizeof *job->y);
    memset(c_sum, 0, sizeof c_sum);
    hth_axpy_job all = down_of(job, job->n_list);
    for (size_t i = 0; i < job->n_list; i += LIVE) {
        down_rows r = take_rows(&all, i);
        for (size_t k = 0; k < LIVE; k++)
            for (size_t b = 0; b < n_block; b += 8) {
                __m256 d = _mm256_mul_ps(_mm256_set1_ps(r.h[k]), scales(r.row[k] + b * BLOCK_SIZE));
                _mm256_storeu_ps(c[k] + b, d);
                _mm256_storeu_ps(c_sum + b, _mm256_add_ps(_mm256_loadu_ps(c_sum + b), d));
            }
        for (size_t b = 0; b < n_block; b++) {
            __m512 s0 = _mm512_loadu_ps(job->y + 32 * b), s1 = _mm512_loadu_ps(job->y + 32 * b + 16);
            fetch_next(&r, LIVE, b * BLOCK_SIZE, (b + 1) * BLOCK_SIZE);
            for (size_t k = 0; k < LIVE; k++) {
                __m512 d = _mm512_set1_ps(c[k][b]);
                __m512i bytes = _mm512_cvtepu8_epi32(load_128(r.row[k] + b * BLOCK_SIZE + 2));
                s0 = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(_mm512_and_si512(bytes, _mm512_set1_epi32(15))),
                                     s0);
                s1 = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(_mm512_srli_epi32(bytes, 4)), s1);
            }
            _mm512_storeu_ps(job->y + 32 * b, s0);
            _mm512_storeu_ps(job->y + 32 * b + 16, s1);
        }
    }
    for (size_t i = 0; i < job->n_out; i++) job->y[i] -= 8.0f * c_sum[i / 32];
}

void price_q4_0_avx512(price_level *l)
{
    l->decode[HTH_TYPE_Q4_0][0] = (price_free){"fma", rows};
    l->decode[HTH_TYPE_Q4_0][1] = (price_free){"16 lanes, fma", rows_by_lanes};
    l->tile[HTH_TYPE_Q4_0][0] = (price_free){"8 sums, fma", panels};
    l->tile[HTH_TYPE_Q4_0][1] = (price_free){"1 sum, fma", panels_of_one_sum};
    l->down_integer[HTH_TYPE_Q4_0] = down_integer;
    l->down_free[HTH_TYPE_Q4_0][0] = down_free;
    l->down_free[HTH_TYPE_Q4_0][1] = down_converted;
    l->down_groups[HTH_TYPE_Q4_0] = down_groups;
}
