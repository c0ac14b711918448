/* Free forms of attention and vectors with AVX2. */
#include "arithmetic_price.h"

#define LEVEL price_avx2
void hth_kernels_vector_price_avx2(hth_kernels *k);
#include "kernels/vector_tmpl.h"

#include <immintrin.h>

typedef __m256 V;
enum { W = 8 };
#define V_ZERO _mm256_setzero_ps()
#define V_SET(x) _mm256_set1_ps(x)
#define V_LOAD(p) _mm256_loadu_ps(p)
#define V_STORE(p, v) _mm256_storeu_ps(p, v)
#define V_HALF(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define V_ADD(a, b) _mm256_add_ps(a, b)
#define V_MUL(a, b) _mm256_mul_ps(a, b)
#define V_DIV(a, b) _mm256_div_ps(a, b)
#define V_MAX(a, b) _mm256_max_ps(a, b)
#define V_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define V_ROUND(v) _mm256_round_ps(v, 8)
#define V_EXP2(r, n)                                                                                         \
    _mm256_castsi256_ps(                                                                                     \
        _mm256_add_epi32(_mm256_castps_si256(r), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)))
#define V_HALVES(v) (v)

#include "arithmetic_price_vector.h"

void price_vector_avx2(price_level *l) { fill_level(l); }
