/* 8-bit quantisation of activations (docs/arithmetic.md, R1 and R2) with AVX-512: the reciprocals of sixteen
 * blocks are one vector. dispatch.c calls it after vector_avx512.c, whose common version it replaces; the bits
 * are the same. */
#include "kernels/quant/x86/x86_512.h"

enum { N_TOGETHER = 16 /* blocks */, N_LANE = 16 };

/* The absmax of n values, as bits. NaN counts as the largest. */
HTH_INLINE int32_t largest_bits(const float *x, size_t n)
{
    __m512i top = _mm512_setzero_si512(), magnitude = _mm512_set1_epi32(0x7fffffff);
    for (size_t i = 0; i < n; i += N_LANE)
        top = _mm512_max_epi32(top, _mm512_and_si512(load_512(x + i), magnitude));
    return _mm512_reduce_max_epi32(top);
}

/* 1/x as v8_rcp of vector_math.h. */
HTH_INLINE __m512 reciprocals(__m512 x)
{
    const __m512 two = _mm512_set1_ps(2.0f);
    __m512 r = _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32(0x7ef311c7), _mm512_castps_si512(x)));
    for (int i = 0; i < 4; i++) r = _mm512_mul_ps(r, _mm512_sub_ps(two, _mm512_mul_ps(x, r)));
    return r;
}

/* Scales and 127 / absmax of n blocks of x, of n_in values each. A bit is set if a block is in range. Other
 * blocks, below 2^-60, above 2^60 or not finite, become zeros with the scale 0 or NaN. */
HTH_INLINE __mmask16 find_scales(const float *x, size_t n, size_t n_in, float *d, float inverse[N_TOGETHER])
{
    int32_t top[N_TOGETHER];
    for (size_t i = 0; i < n; i++) top[i] = largest_bits(x + i * n_in, n_in);
    __mmask16 used = (__mmask16)((1u << n) - 1);
    __m512 amax = _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(used, top));
    __mmask16 small = _mm512_cmp_ps_mask(amax, _mm512_set1_ps(0x1p-60f), _CMP_LT_OQ);
    __mmask16 good = _mm512_cmp_ps_mask(amax, _mm512_set1_ps(0x1p60f), _CMP_LE_OQ) & (__mmask16)~small;
    __m512 scale = _mm512_mul_ps(amax, _mm512_set1_ps(1.0f / 127.0f));
    scale = _mm512_mask_blend_ps(good, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)), scale);
    _mm512_mask_storeu_ps(d, used, _mm512_maskz_mov_ps((__mmask16)~small, scale));
    _mm512_storeu_ps(inverse, _mm512_mul_ps(_mm512_set1_ps(127.0f), reciprocals(amax)));
    return good;
}

HTH_INLINE __m128i rounded_16(const float *x, __m512 inverse)
{
    const __m512 magic = _mm512_set1_ps(0x1.8p23f);
    __m512 v = _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(x), inverse), magic);
    return _mm512_cvtepi32_epi8(_mm512_sub_epi32(_mm512_castps_si512(v), _mm512_castps_si512(magic)));
}

HTH_INLINE __m256i rounded_32(const float *x, float inverse)
{
    __m512 by = _mm512_set1_ps(inverse);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(rounded_16(x, by)), rounded_16(x + N_LANE, by), 1);
}

HTH_INLINE __m512i rounded_64(const float *x, float inverse)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(rounded_32(x, inverse)), rounded_32(x + 32, inverse), 1);
}

HTH_INLINE int32_t sum_of_32(__m256i q)
{
    __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1))));
}

/* The sums of every 16 of 64. */
HTH_INLINE void store_sums_of_16(__m512i q, int16_t sum_16[4])
{
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q);
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_CDAB));
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_BADC));
    __m128i four = _mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, s));
    _mm_storeu_si64(sum_16, _mm_packs_epi32(four, four));
}

static void quant_act(const float *x, size_t n_col, int8_t *q, float *d, int32_t *sum)
{
    size_t n_block = n_col / HTH_ACT_BLOCK;
    for (size_t b = 0; b < n_block; b += N_TOGETHER) {
        size_t n = n_block - b < N_TOGETHER ? n_block - b : N_TOGETHER;
        const float *from = x + b * HTH_ACT_BLOCK;
        int8_t *to = q + b * HTH_ACT_BLOCK;
        float inverse[N_TOGETHER];
        __mmask16 good = find_scales(from, n, HTH_ACT_BLOCK, d + b, inverse);
        for (size_t i = 0; i < n; i++, from += HTH_ACT_BLOCK, to += HTH_ACT_BLOCK) {
            __m256i rounded = good >> i & 1 ? rounded_32(from, inverse[i]) : _mm256_setzero_si256();
            _mm256_storeu_si256((__m256i *)(void *)to, rounded);
            sum[b + i] = sum_of_32(rounded);
        }
    }
}

static void quant_act_256(const float *x, size_t n_col, int8_t *q, float *d, int16_t *sum_16)
{
    size_t n_block = n_col / HTH_ACT_BLOCK_256;
    for (size_t b = 0; b < n_block; b += N_TOGETHER) {
        size_t n = n_block - b < N_TOGETHER ? n_block - b : N_TOGETHER;
        const float *from = x + b * HTH_ACT_BLOCK_256;
        int8_t *to = q + b * HTH_ACT_BLOCK_256;
        float inverse[N_TOGETHER];
        __mmask16 good = find_scales(from, n, HTH_ACT_BLOCK_256, d + b, inverse);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < HTH_ACT_BLOCK_256; k += 64, from += 64, to += 64, sum_16 += 4) {
                __m512i rounded = good >> i & 1 ? rounded_64(from, inverse[i]) : _mm512_setzero_si512();
                _mm512_storeu_si512(to, rounded);
                store_sums_of_16(rounded, sum_16);
            }
    }
}

void hth_kernels_act_q8_avx512(hth_kernels *k)
{
    k->quant_act = quant_act;
    k->quant_act_256 = quant_act_256;
}
