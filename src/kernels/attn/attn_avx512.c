/* Attention (attn_tmpl.h) with AVX-512: a group of positions is one register, and a pass computes two of the
 * eight partial sums of four queries. VNNI multiplies the integers of a Q8_0 cache. */
#include "kernels/isa.h"
#include "kernels/vector/vector_math.h"

#include <immintrin.h>

typedef __m512 vec;
typedef __m512i ints;
typedef int32_t vec_i __attribute__((vector_size(64)));
typedef uint32_t vec_u __attribute__((vector_size(64)));
enum { LANES = 16, N_PASS = 2, N_OUT = 4 };

HTH_INLINE vec vec_set(float x) { return _mm512_set1_ps(x); }
HTH_INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
HTH_INLINE void vec_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
HTH_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
HTH_INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }
HTH_INLINE float vec_largest(vec v) { return _mm512_reduce_max_ps(v); }

HTH_INLINE vec vec_of_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
HTH_INLINE vec vec_of_bf16(const uint8_t *p)
{
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
HTH_INLINE vec vec_of_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
HTH_INLINE vec vec_of_ints(ints v) { return _mm512_cvtepi32_ps(v); }

/* The dot product needs one unsigned side: keys + 128. ints_start subtracts 128 times the sum of the query. */
HTH_INLINE ints keys_load(const uint8_t *p)
{
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8((char)0x80));
}
HTH_INLINE ints ints_start(int32_t q_sum) { return _mm512_set1_epi32(-128 * q_sum); }
HTH_INLINE ints dot_4(ints sum, ints keys, const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_dpbusd_epi32(sum, keys, _mm512_set1_epi32(four));
}

#include "kernels/attn/attn_tmpl.h"

void hth_kernels_attn_avx512(hth_kernels *k) { fill_table(k); }
