/* The partial sums of sixteen outputs, AVX2, for panel_32_avx2.h and panel_256_avx2.h, which define HAS_MINIMUM
 * and JOIN_MINIMA(p, m), the output from its two reductions. */
typedef struct sums {
    __m256 p[2]; /* eight rows each */
#if HAS_MINIMUM
    __m256 m[2];
#endif
} sums;

HTH_INLINE sums add_sums(sums a, sums b)
{
    for (int h = 0; h < 2; h++) {
        a.p[h] = _mm256_add_ps(a.p[h], b.p[h]);
#if HAS_MINIMUM
        a.m[h] = _mm256_add_ps(a.m[h], b.m[h]);
#endif
    }
    return a;
}

HTH_INLINE void store_sums(float *y, sums s)
{
    for (int h = 0; h < 2; h++) {
#if HAS_MINIMUM
        s.p[h] = JOIN_MINIMA(s.p[h], s.m[h]);
#endif
        _mm256_storeu_ps(y + 8 * h, s.p[h]);
    }
}

/* Rules R3 and R4: p + (d * dx) * isum, each operation rounded. */
HTH_INLINE __m256 add_term(__m256 p, __m256 d, __m256 dx, __m256 isum)
{
    return _mm256_add_ps(p, _mm256_mul_ps(_mm256_mul_ps(d, dx), isum));
}

/* Four bytes (inputs, or two sums of them) in every lane. */
HTH_INLINE __m256i four_bytes(const void *p) { return _mm256_set1_epi32((int)hth_load_u32(p)); }

/* Products of a four of weights; pairs of them are summed in 16 bits. Signed weights are multiplied by their
 * absolute value |w|. */
HTH_INLINE __m256i pair_products(__m256i w, __m256i size, __m256i four)
{
    return HAS_SIGN ? _mm256_maddubs_epi16(size, _mm256_sign_epi8(four, w)) : _mm256_maddubs_epi16(w, four);
}
