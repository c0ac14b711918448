/* Free forms of attention and vectors with AVX-512. */
#include "arithmetic_price.h"

#define LEVEL price_avx512
void hth_kernels_vector_price_avx512(hth_kernels *k);
#include "kernels/vector_tmpl.h"

#include <immintrin.h>

typedef __m512 V;
enum { W = 16 };
#define V_ZERO _mm512_setzero_ps()
#define V_SET(x) _mm512_set1_ps(x)
#define V_LOAD(p) _mm512_loadu_ps(p)
#define V_STORE(p, v) _mm512_storeu_ps(p, v)
#define V_HALF(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define V_ADD(a, b) _mm512_add_ps(a, b)
#define V_MUL(a, b) _mm512_mul_ps(a, b)
#define V_DIV(a, b) _mm512_div_ps(a, b)
#define V_MAX(a, b) _mm512_max_ps(a, b)
#define V_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define V_ROUND(v) _mm512_roundscale_ps(v, 8)
#define V_EXP2(r, n) _mm512_scalef_ps(r, n)
#define V_HALVES(v) _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1))

#include "arithmetic_price_vector.h"

void price_vector_avx512(price_level *l) { fill_level(l); }
