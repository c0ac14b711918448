/* Free forms of F16 rows with AVX2. */
#include "arithmetic_price.h"
#include "kernels/isa.h"

#include <immintrin.h>

typedef __m256 V;
enum { W = 8, TILE_ROW = 2 };
#define V_ZERO _mm256_setzero_ps()
#define V_LOAD(p) _mm256_loadu_ps(p)
#define V_HALF(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define V_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define V_ADD(a, b) _mm256_add_ps(a, b)
#define V_SUM(v) sum_of(v)

HTH_INLINE float sum_of(__m256 a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#include "arithmetic_price_float.h"

void price_float_avx2(price_level *l)
{
    l->decode[HTH_TYPE_F16][0] = (price_free){"4 sums of 8", decode_four_sums};
    l->tile[HTH_TYPE_F16][0] = (price_free){"2 rows, 4 tokens", tile_in_registers};
}
