/* Fused multiply-add for CPUs without the instruction: the exact a*b + c, rounded once. Bit-identical to the
 * hardware instruction (except NaN payloads). */
#ifndef HTH_BASE_FMA_H
#define HTH_BASE_FMA_H

#include "base/bits.h"

/* The product of two floats is exact in double. The sum is rounded to odd, with
 * 53 bits, so that the final rounding to 24 (or fewer, for subnormals) sees on
 * which side of a tie the exact value lies (Boldo and Melquiond, "Emulation of
 * FMA and correctly rounded sums", IEEE Trans. Computers 57, 2008). */
static inline float hth_fma(float a, float b, float c)
{
    double p = (double)a * (double)b, s = p + (double)c;
    uint64_t bits = hth_bits_of_d(s);
    if ((bits & 0x7ff0000000000000u) == 0x7ff0000000000000u) return (float)s;
    /* Two-sum: e is the rounding error of s. */
    double back = s - p;
    double e = (p - (s - back)) + ((double)c - back);
    if (e != 0.0 && (bits & 1u) == 0) /* round to odd: one ulp away from or towards zero */
        bits += ((e > 0.0) == (s > 0.0)) ? 1u : (uint64_t)-1;
    return (float)hth_double_of(bits);
}

#endif
