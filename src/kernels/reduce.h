/* The fixed reductions that end every row (docs/arithmetic.md 1). */
#ifndef HTH_KERNELS_REDUCE_H
#define HTH_KERNELS_REDUCE_H

/* Eight partial sums: neighbours first. */
static inline float hth_reduce8(const float p[8])
{
    return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
}

/* Sixteen partial sums of float rows: halves first (i with i + 8, then 4, 2, 1). */
static inline float hth_reduce16(const float p[16])
{
    float a[8];
    for (int i = 0; i < 8; i++) a[i] = p[i] + p[i + 8];
    for (int i = 0; i < 4; i++) a[i] = a[i] + a[i + 4];
    return (a[0] + a[2]) + (a[1] + a[3]);
}

#endif
