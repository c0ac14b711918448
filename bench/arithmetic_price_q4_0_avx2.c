/* Free forms of Q4_0 with AVX2, as arithmetic_price_q4_0_avx512.c. */
#include "arithmetic_price.h"
#include "kernels/x86.h"

HTH_INLINE partials add_fused(partials p, __m256 weight_d, const float *d, __m256i isum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(weight_d, _mm256_loadu_ps(d)), _mm256_cvtepi32_ps(isum), p);
}
#define add_scaled add_fused
#define hth_kernels_q4_0_avx2 price_unused_q4_0_avx2
void price_unused_q4_0_avx2(hth_kernels *k);
#include "kernels/q4_0_avx2.c"

enum { OFFSET = 8, RAW_OFFSET = 8 };

HTH_INLINE __m256i block_lanes(const group *g, int i, const int8_t *q)
{
    return pairs(_mm256_maddubs_epi16(g->w[i], load_256(q + 32 * i)));
}

#include "arithmetic_price_rows_avx2.h"

HTH_INLINE void integers_of(const uint8_t *p, __m256i w[4])
{
    __m128i v = load_128(p + 2);
    __m256i first = _mm256_cvtepu8_epi32(v), second = _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8));
    w[0] = _mm256_and_si256(first, _mm256_set1_epi32(15)),
    w[1] = _mm256_and_si256(second, _mm256_set1_epi32(15));
    w[2] = _mm256_srli_epi32(first, 4), w[3] = _mm256_srli_epi32(second, 4);
}

HTH_INLINE void raw_floats_of(const uint8_t *p, __m256 w[4])
{
    __m256i q[4];
    integers_of(p, q);
    for (int k = 0; k < 4; k++) w[k] = _mm256_cvtepi32_ps(q[k]);
}

HTH_INLINE void floats_of(const uint8_t *p, __m256 w[4])
{
    __m256i q[4];
    integers_of(p, q);
    for (int k = 0; k < 4; k++) w[k] = _mm256_cvtepi32_ps(_mm256_sub_epi32(q[k], _mm256_set1_epi32(8)));
}

#include "arithmetic_price_down_avx2.h"

void price_q4_0_avx2(price_level *l)
{
    l->decode[HTH_TYPE_Q4_0][0] = (price_free){"fma", rows};
    l->decode[HTH_TYPE_Q4_0][1] = (price_free){"8 lanes, fma", rows_by_lanes};
    l->tile[HTH_TYPE_Q4_0][0] = (price_free){"fma", rows};
    l->tile[HTH_TYPE_Q4_0][1] = (price_free){"8 lanes, fma", rows_by_lanes};
    l->down_integer[HTH_TYPE_Q4_0] = down_integer;
    l->down_free[HTH_TYPE_Q4_0][0] = down_free;
    l->down_groups[HTH_TYPE_Q4_0] = down_groups;
}
