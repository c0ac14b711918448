/* Free forms of Q8_0 with AVX2, as arithmetic_price_q4_0_avx512.c. */
#include "arithmetic_price.h"
#include "kernels/x86.h"

HTH_INLINE partials add_fused(partials p, __m256 weight_d, const float *d, __m256i isum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(weight_d, _mm256_loadu_ps(d)), _mm256_cvtepi32_ps(isum), p);
}
#define add_scaled add_fused
#define hth_kernels_q8_0_avx2 price_unused_q8_0_avx2
void price_unused_q8_0_avx2(hth_kernels *k);
#include "kernels/q8_0_avx2.c"

enum { OFFSET = 0, RAW_OFFSET = 0 };

HTH_INLINE __m256i block_lanes(const group *g, int i, const int8_t *q) { return products(g, i, q); }

#include "arithmetic_price_rows_avx2.h"

HTH_INLINE void floats_of(const uint8_t *p, __m256 w[4])
{
    for (int k = 0; k < 4; k++)
        w[k] = _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p + 2 + 8 * k))));
}

HTH_INLINE void raw_floats_of(const uint8_t *p, __m256 w[4]) { floats_of(p, w); }

#include "arithmetic_price_down_avx2.h"

void price_q8_0_avx2(price_level *l)
{
    l->decode[HTH_TYPE_Q8_0][0] = (price_free){"fma", rows};
    l->decode[HTH_TYPE_Q8_0][1] = (price_free){"8 lanes, fma", rows_by_lanes};
    l->tile[HTH_TYPE_Q8_0][0] = (price_free){"fma", rows};
    l->tile[HTH_TYPE_Q8_0][1] = (price_free){"8 lanes, fma", rows_by_lanes};
    l->down_integer[HTH_TYPE_Q8_0] = down_integer;
    l->down_free[HTH_TYPE_Q8_0][0] = down_free;
    l->down_groups[HTH_TYPE_Q8_0] = down_groups;
}
