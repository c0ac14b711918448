/* The partial sums of sixteen outputs, AVX-512, for panel_32_avx512.h and panel_256_avx512.h, which define
 * HAS_MINIMUM and JOIN_MINIMA(p, m), the output from its two reductions. */
typedef struct sums {
    __m512 p;
#if HAS_MINIMUM
    __m512 m;
#endif
} sums;

HTH_INLINE sums add_sums(sums a, sums b)
{
    a.p = _mm512_add_ps(a.p, b.p);
#if HAS_MINIMUM
    a.m = _mm512_add_ps(a.m, b.m);
#endif
    return a;
}

HTH_INLINE void store_sums(float *y, sums s)
{
#if HAS_MINIMUM
    s.p = JOIN_MINIMA(s.p, s.m);
#endif
    _mm512_storeu_ps(y, s.p);
}

/* Four bytes (inputs, or two sums of them) in every lane. */
HTH_INLINE __m512i four_bytes(const void *p) { return _mm512_set1_epi32((int)hth_load_u32(p)); }
