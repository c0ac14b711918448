/* The output of a neuron (hth_activate_fn), sigmoid and softplus, with the full registers of an ISA level:
 * sixteen lanes with AVX-512, else eight. vector_tmpl.h includes it. Every element is a chain of its own, so
 * the width changes no bit. */
#include "kernels/isa.h"
#include "kernels/vector/vector_math.h"

#if defined(__AVX512F__)
typedef float wide __attribute__((vector_size(64)));
typedef int32_t wide_i __attribute__((vector_size(64)));
typedef uint32_t wide_u __attribute__((vector_size(64)));
HTH_DEFINE_EXP(wide_exp, wide, wide_i, wide_u)
HTH_DEFINE_RCP(wide_rcp, wide, wide_u)
#else
typedef hth_v8 wide;
typedef hth_v8i wide_i;
#define wide_exp v8_exp
#define wide_rcp v8_rcp
#endif
enum { WIDE = sizeof(wide) / sizeof(float) };

/* The difference keeps the sign of a zero, so that it needs no instruction. */
HTH_INLINE wide wide_set(float x) { return x - (wide){0}; }

/* The first n (at most WIDE) values, padded with zeros. */
HTH_INLINE wide wide_load(const float *p, size_t n)
{
    wide v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

HTH_INLINE void wide_store(float *p, wide v, size_t n) { memcpy(p, &v, n * sizeof *p); }

/* 1 / (1 + exp(-x)). exp is limited to less than 2^126, so that the reciprocal is in range. */
HTH_INLINE wide sigmoid(wide x)
{
    const wide most = wide_set(86.0f);
    wide minus = wide_set(0.0f) - x;
    wide_i over = (wide_i)(minus > most);
    minus = (wide)((over & (wide_i)most) | (~over & (wide_i)minus));
    return wide_rcp(wide_set(1.0f) + wide_exp(minus));
}

HTH_INLINE wide silu(wide x) { return x * sigmoid(x); }

/* max(x, 0) + log(1 + e), e = exp(-|x|), with log(1 + e) = 2 artanh(e / (2 + e)) by its Taylor series: the quotient s
 * is at most 1/3, and the first term left out is below 2e-8 of the sum. NaN passes. */
HTH_INLINE wide softplus(wide x)
{
    const wide_i sign_bit = (wide_i){0} + (int32_t)0x80000000u;
    wide positive = (wide)(~(wide_i)(x <= wide_set(0.0f)) & (wide_i)x);
    wide e = wide_exp((wide)((wide_i)x | sign_bit));
    wide s = e * wide_rcp(wide_set(2.0f) + e), q = s * s, twice = s + s;
    wide p = wide_set(1.0f / 13.0f);
    p = p * q + wide_set(1.0f / 11.0f);
    p = p * q + wide_set(1.0f / 9.0f);
    p = p * q + wide_set(1.0f / 7.0f);
    p = p * q + wide_set(1.0f / 5.0f);
    p = p * q + wide_set(1.0f / 3.0f);
    return positive + (twice * (q * p) + twice);
}

/* x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
HTH_INLINE wide gelu(wide x)
{
    wide cubic = (wide_set(0.044715f) * x) * (x * x);
    return x * sigmoid(wide_set(1.59576912f) * (x + cubic));
}

/* NaN stays NaN, so that a broken input is visible in the logits. */
HTH_INLINE wide relu(wide x) { return (wide)(~(wide_i)(x <= wide_set(0.0f)) & (wide_i)x); }

HTH_INLINE wide relu2(wide x) { return relu(x) * relu(x); }

HTH_INLINE wide same(wide x) { return x; }

/* NaN passes. */
HTH_INLINE wide at_most(wide x, float limit)
{
    wide_i over = (wide_i)(x > wide_set(limit));
    return (wide)((over & (wide_i)wide_set(limit)) | (~over & (wide_i)x));
}

HTH_INLINE wide oai_gate(wide x)
{
    wide g = at_most(x, 7.0f);
    return g * sigmoid(wide_set(1.702f) * g);
}

HTH_INLINE wide oai_up(wide x)
{
    wide minus = wide_set(0.0f) - at_most(x, 7.0f);
    return wide_set(1.0f) - at_most(minus, 7.0f);
}

/* The lanes in which gate and up may give a nonzero output. If either half is dead, the neuron gives +0
 * whatever the other one is, so it need not be computed (selector gate). */
HTH_INLINE wide with_any(wide gate, wide up, wide h)
{
    (void)gate, (void)up;
    return h;
}

HTH_INLINE wide with_gate(wide gate, wide up, wide h)
{
    (void)up;
    return (wide)(~(wide_i)(gate <= wide_set(0.0f)) & (wide_i)h);
}

HTH_INLINE wide with_both(wide gate, wide up, wide h) { return with_gate(gate, up, with_gate(up, gate, h)); }

#define DEFINE_ACTIVATE(NAME, FUNCTION, OF_UP, GATED)                                                            \
    HTH_INLINE void NAME##_part(const float *gate, const float *up, size_t n, float *h)                      \
    {                                                                                                        \
        wide u = wide_load(up, n), g = gate ? wide_load(gate, n) : u;                                        \
        wide_store(h, gate ? GATED(g, u, FUNCTION(g) * OF_UP(u)) : FUNCTION(u), n);                           \
    }                                                                                                        \
    static void NAME(const float *gate, const float *up, size_t n, float *h)                                 \
    {                                                                                                        \
        size_t i = 0;                                                                                        \
        for (; i + WIDE <= n; i += WIDE) NAME##_part(gate ? gate + i : NULL, up + i, WIDE, h + i);           \
        if (i < n) NAME##_part(gate ? gate + i : NULL, up + i, n - i, h + i);                                \
    }
DEFINE_ACTIVATE(activate_silu, silu, same, with_any)
DEFINE_ACTIVATE(activate_gelu, gelu, same, with_any)
DEFINE_ACTIVATE(activate_relu, relu, same, with_gate)
DEFINE_ACTIVATE(activate_relu2, relu2, same, with_gate)
DEFINE_ACTIVATE(activate_drelu, relu, relu, with_both)
DEFINE_ACTIVATE(activate_swiglu_oai, oai_gate, oai_up, with_any)
DEFINE_ACTIVATE(activate_sigmoid, sigmoid, same, with_any)

#define DEFINE_WIDE_MAP(NAME, FUNCTION)                                                                          \
    static void NAME(const float *x, size_t n, float *y)                                                     \
    {                                                                                                        \
        size_t i = 0;                                                                                        \
        for (; i + WIDE <= n; i += WIDE) wide_store(y + i, FUNCTION(wide_load(x + i, WIDE)), WIDE);           \
        if (i < n) wide_store(y + i, FUNCTION(wide_load(x + i, n - i)), n - i);                               \
    }
DEFINE_WIDE_MAP(map_sigmoid, sigmoid)
DEFINE_WIDE_MAP(map_softplus, softplus)
