/* The partial sums of sixteen outputs, for panel_32_LEVEL.h and panel_256_LEVEL.h. These define HAS_MINIMUM and
 * SUBTRACTS_MINIMA (1: an output is the reduction of products minus that of minima, else plus); panel_ops_LEVEL.h defines
 * vfloats, HTH_PANEL_ROW / N_VEC rows each. */
enum { N_VEC = HTH_PANEL_ROW * sizeof(float) / sizeof(vfloats) };

typedef struct sums {
    vfloats p[N_VEC];
#if HAS_MINIMUM
    vfloats m[N_VEC];
#endif
} sums;

HTH_INLINE sums add_sums(sums a, sums b)
{
    HTH_UNROLL
    for (int h = 0; h < N_VEC; h++) {
        a.p[h] = a.p[h] + b.p[h];
#if HAS_MINIMUM
        a.m[h] = a.m[h] + b.m[h];
#endif
    }
    return a;
}

HTH_INLINE void store_sums(float *y, sums s)
{
    HTH_UNROLL
    for (int h = 0; h < N_VEC; h++) {
#if HAS_MINIMUM
        s.p[h] = SUBTRACTS_MINIMA ? s.p[h] - s.m[h] : s.p[h] + s.m[h];
#endif
        memcpy(y + HTH_PANEL_ROW / N_VEC * h, &s.p[h], sizeof s.p[h]);
    }
}

/* Rules R3 and R4: p + (d * dx) * isum, each operation rounded. */
HTH_INLINE vfloats add_term(vfloats p, vfloats d, vfloats dx, vfloats isum) { return p + d * dx * isum; }
