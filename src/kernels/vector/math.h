/* Functions in double precision without libm, from + - * / and bit operations: the same bits on every machine.
 * For tables made once (rope), for sampling and for measurements; the float functions of the token loop are in
 * vector_math.h. Errors are below 1.5 units in the last place (tests/kernels/test_math.c). */
#ifndef HTH_KERNELS_VECTOR_MATH_H
#define HTH_KERNELS_VECTOR_MATH_H

double hth_exp_d(double x);
/* x > 0; -infinity at 0, NaN below. */
double hth_log_d(double x);
/* base^y for base > 0, as exp(y log base): a few units times |y log base|. */
double hth_pow_d(double base, double y);
/* |x| up to 2^30; the absolute error stays below 1e-15 up to 10^6. NaN from 2^60 on. */
void hth_sincos_d(double x, double *sine, double *cosine);
double hth_sqrt_d(double x);

#endif
