/* Attention (attn_tmpl.h) with AVX2: a group of positions is two registers, and a pass computes one of the
 * eight partial sums of four queries. */
#include "kernels/isa.h"
#include "kernels/vector/vector_math.h"

#include <immintrin.h>

typedef __m256 vec;
typedef __m256i ints;
typedef hth_v8i vec_i;
typedef hth_v8u vec_u;
enum { LANES = 8, N_PASS = 1, N_OUT = 2 };

HTH_INLINE vec vec_set(float x) { return _mm256_set1_ps(x); }
HTH_INLINE vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
HTH_INLINE void vec_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
HTH_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
HTH_INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
HTH_INLINE float vec_largest(vec v)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

HTH_INLINE vec vec_of_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
HTH_INLINE vec vec_of_bf16(const uint8_t *p)
{
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
HTH_INLINE vec vec_of_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
HTH_INLINE vec vec_of_ints(ints v) { return _mm256_cvtepi32_ps(v); }

/* Multiplies |key| by the query with the key's sign. Sums of pairs reach 2 * 127 * 127, which 16 bits hold. */
HTH_INLINE ints keys_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
HTH_INLINE ints ints_start(int32_t q_sum)
{
    (void)q_sum;
    return _mm256_setzero_si256();
}
HTH_INLINE ints dot_4(ints sum, ints keys, const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    __m256i signs = _mm256_sign_epi8(_mm256_set1_epi32(four), keys);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(keys), signs);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#include "kernels/attn/attn_tmpl.h"

void hth_kernels_attn_avx2(hth_kernels *k) { fill_table(k); }
