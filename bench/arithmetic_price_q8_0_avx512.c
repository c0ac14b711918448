/* Free forms of Q8_0 with AVX-512, as arithmetic_price_q4_0_avx512.c. */
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
#define hth_kernels_q8_0_avx512 price_unused_q8_0_avx512
void price_unused_q8_0_avx512(hth_kernels *k);
#include "kernels/q8_0_avx512.c"

#include "arithmetic_price_rows_avx512.h"

HTH_INLINE void floats_of(const uint8_t *p, __m512 *low, __m512 *high)
{
    *low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_128(p + 2)));
    *high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_128(p + 18)));
}

#include "arithmetic_price_down_avx512.h"

void price_q8_0_avx512(price_level *l)
{
    l->decode[HTH_TYPE_Q8_0][0] = (price_free){"fma", rows};
    l->decode[HTH_TYPE_Q8_0][1] = (price_free){"16 lanes, fma", rows_by_lanes};
    l->tile[HTH_TYPE_Q8_0][0] = (price_free){"8 sums, fma", panels};
    l->tile[HTH_TYPE_Q8_0][1] = (price_free){"1 sum, fma", panels_of_one_sum};
    l->down_integer[HTH_TYPE_Q8_0] = down_integer;
    l->down_free[HTH_TYPE_Q8_0][0] = down_free;
    l->down_groups[HTH_TYPE_Q8_0] = down_groups;
}
