/* The part of neuron-major down for types in blocks of 32 that AVX2 and AVX-512 share (axpy_32_LEVEL.h). */

/* c[p][i]: the coefficients of rows 2p and 2p + 1 for block i. Offsets and minima are subtracted from `offsets`. */
HTH_INLINE void take_coefficients(const down_rows *r, size_t at, int32_t c[AXPY_ROWS / 2][8], int32_t *offsets)
{
    __m256i c_sum = _mm256_setzero_si256(), m_sum = _mm256_setzero_si256();
    HTH_UNROLL
    for (int p = 0; p < AXPY_ROWS / 2; p++) {
        const uint8_t *a = r->row[2 * p] + at, *b = r->row[2 * p + 1] + at;
        __m256 ha = _mm256_set1_ps(r->h[2 * p]), hb = _mm256_set1_ps(r->h[2 * p + 1]);
        __m256i ca = coefficients(ha, block_scales(a)), cb = coefficients(hb, block_scales(b));
        store_256(c[p], in_pairs(ca, cb));
        c_sum = _mm256_add_epi32(c_sum, _mm256_add_epi32(ca, cb));
#if HAS_MINIMUM
        m_sum = _mm256_add_epi32(m_sum, coefficients(ha, block_minima(a)));
        m_sum = _mm256_add_epi32(m_sum, coefficients(hb, block_minima(b)));
#endif
    }
    if (PAIR_SHIFT >= 0) m_sum = _mm256_sub_epi32(m_sum, _mm256_slli_epi32(c_sum, PAIR_SHIFT));
    if (PAIR_SHIFT >= 0 || HAS_MINIMUM) store_256(offsets, _mm256_sub_epi32(load_256(offsets), m_sum));
}
