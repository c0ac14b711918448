/* Exponential, logarithm, sine and cosine in double precision. Range reductions after Cody and Waite: the
 * constants are parts of ln 2 and pi/2 with trailing zeros, so that their products with the integer multiple
 * are exact. */
#include "kernels/vector/math.h"

#include "base/bits.h"

#include <stdint.h>

/* To the nearest integer, ties to even, for |x| below 2^51. */
static double round_even(double x)
{
    const double magic = 0x1.8p52;
    return (x + magic) - magic;
}

/* 2^n for any n; in two factors outside the normal exponents. */
static double scale_by_power(double x, int64_t n)
{
    int64_t half = n / 2, rest = n - half;
    return x * hth_double_of((uint64_t)(half + 1023) << 52) * hth_double_of((uint64_t)(rest + 1023) << 52);
}

/* ln 2 in two parts; the first has 32 significant bits. */
static const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;

double hth_exp_d(double x)
{
    if (x != x) return x;
    if (x > 709.79) return hth_double_of(0x7ff0000000000000u);
    if (x < -745.2) return 0.0;
    double n = round_even(x * 1.4426950408889634074);
    double r = (x - n * ln2_high) - n * ln2_low;
    /* Taylor: |r| <= 0.347, the first term left out is below 2e-18. */
    double sum = 1.0 / 6227020800.0;
    static const double inverse_factorial[] = {
        1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0,
        1.0 / 720.0,       1.0 / 120.0,      1.0 / 24.0,      1.0 / 6.0,      1.0 / 2.0,
    };
    for (int i = 0; i < 11; i++) sum = sum * r + inverse_factorial[i];
    return scale_by_power(1.0 + (r + r * r * sum), (int64_t)n);
}

double hth_log_d(double x)
{
    uint64_t bits = hth_bits_of_d(x);
    if (x == 0.0) return -hth_double_of(0x7ff0000000000000u);
    if (!(x > 0.0)) return x - x + hth_double_of(0x7ff8000000000000u);
    if (bits == 0x7ff0000000000000u) return x;
    int64_t n = 0;
    if (bits < 0x0010000000000000u) { /* subnormal */
        bits = hth_bits_of_d(x * 0x1p54);
        n = -54;
    }
    n += (int64_t)(bits >> 52) - 1023;
    double m = hth_double_of((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        n++;
    }
    /* log m = 2 artanh(s), s = (m - 1)/(m + 1), |s| <= 0.1716. With f = m - 1,
     * 2s = f - s f, and only the small part is rounded twice. */
    double f = m - 1.0, s = f / (m + 1.0), s2 = s * s, sum = 0.0;
    for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * s2;
    double low = f * s - 2.0 * s * sum; /* log m = f - low */
    return (double)n * ln2_high + (f - (low - (double)n * ln2_low));
}

double hth_pow_d(double base, double y) { return hth_exp_d(y * hth_log_d(base)); }

/* pi/2 in three parts of 33, 33 and 53 bits. */
static const double half_pi_1 = 1.57079632673412561417e+00, half_pi_2 = 6.07710050630396597660e-11,
                    half_pi_3 = 2.02226624879595063154e-21;

static double sine_near_zero(double r)
{
    double r2 = r * r, sum = 0.0;
    static const double c[] = {1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0,
                               -1.0 / 39916800.0,       1.0 / 362880.0,         -1.0 / 5040.0,
                               1.0 / 120.0,             -1.0 / 6.0};
    for (int i = 0; i < 8; i++) sum = sum * r2 + c[i];
    return r + r * r2 * sum;
}

static double cosine_near_zero(double r)
{
    double r2 = r * r, sum = 0.0;
    static const double c[] = {1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0,
                               -1.0 / 3628800.0,       1.0 / 40320.0,        -1.0 / 720.0,
                               1.0 / 24.0};
    for (int i = 0; i < 7; i++) sum = sum * r2 + c[i];
    return 1.0 - (0.5 * r2 - r2 * r2 * sum);
}

void hth_sincos_d(double x, double *sine, double *cosine)
{
    if (!(x > -0x1p60 && x < 0x1p60)) { /* the quadrant does not fit 64 bits */
        *sine = *cosine = hth_double_of(0x7ff8000000000000u);
        return;
    }
    double n = round_even(x * 0.63661977236758134308);
    double r = ((x - n * half_pi_1) - n * half_pi_2) - n * half_pi_3;
    double s = sine_near_zero(r), c = cosine_near_zero(r);
    switch ((int64_t)n & 3) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
}

double hth_sqrt_d(double x)
{
    if (!(x > 0.0)) return x == 0.0 ? x : hth_double_of(0x7ff8000000000000u);
    double r = hth_double_of(0x5fe6eb50c7b537a9u - (hth_bits_of_d(x) >> 1));
    for (int i = 0; i < 4; i++) r = r * (1.5 - 0.5 * x * r * r);
    double root = x * r;
    return root + 0.5 * r * (x - root * root);
}
