/* Eight blocks of 32 signed weights with AVX2. maddubs multiplies unsigned by signed bytes, so the sign of the
 * weight is moved to the activation, which is never -128. Only then do two products fit 16 bits: 2 * 128 * 127
 * = 32512. The including file defines group and
 *   block_weights(g, i)   the weights of block i */

/* Sums of four neighbours, in 32 bits. */
HTH_INLINE __m256i products(const group *g, int i, const int8_t *q)
{
    __m256i w = block_weights(g, i);
    __m256i signed_q = _mm256_sign_epi8(load_256(q + 32 * i), w);
    __m256i sums = _mm256_maddubs_epi16(_mm256_abs_epi8(w), signed_q);
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

HTH_INLINE __m256i four_blocks(const group *g, int i, const int8_t *q)
{
    __m256i a = _mm256_hadd_epi32(products(g, i, q), products(g, i + 1, q));
    __m256i b = _mm256_hadd_epi32(products(g, i + 2, q), products(g, i + 3, q));
    return _mm256_hadd_epi32(a, b);
}

HTH_INLINE partials add_terms(partials p, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
    (void)sum;
    return add_scaled(p, g->d, d, sums_in_order(four_blocks(g, 0, q), four_blocks(g, 4, q)));
}
