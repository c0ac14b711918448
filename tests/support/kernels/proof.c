/* Seeds, levels, numbers and comparisons for the proofs of kernels. */
#include "support/kernels/proof.h"

#include "base/bits.h"

test_random proof_random(void)
{
    static bool printed;
    const char *value = getenv("HEARTH_SEED");
    uint64_t seed = value ? strtoull(value, NULL, 0) : 1;
    if (!printed) printf("seed %llu (HEARTH_SEED sets it)\n", (unsigned long long)seed);
    printed = true;
    return (test_random){seed * 0x9E3779B97F4A7C15u};
}

hth_kernels proof_kernels(hth_cpu level)
{
    hth_kernels table;
    hth_kernels_init(&table, level);
    return table;
}

int proof_levels(hth_cpu levels[PROOF_MAX_LEVEL])
{
    hth_cpu machine = hth_cpu_detect();
    const char *expected = getenv("HEARTH_EXPECT_CPU");
    int n = 0;
    if (expected && strcmp(expected, hth_cpu_name(machine)) != 0)
        test_fail(__FILE__, __LINE__, "the machine has %s, expected is %s", hth_cpu_name(machine), expected);
    for (int level = HTH_CPU_AVX2; level <= HTH_CPU_I8MM; level++)
        if (hth_cpu_has(machine, (hth_cpu)level)) levels[n++] = (hth_cpu)level;
    if (n == 0) levels[n++] = HTH_CPU_GENERIC;
    return n;
}

const char *proof_kind_name(proof_kind kind)
{
    static const char *const names[] = {"plain",     "zeros",   "wide",    "largest",
                                        "subnormal", "outlier", "special", "bits"};
    return names[kind];
}

static uint32_t bits(test_random *r) { return (uint32_t)(test_random_next(r) >> 32); }

/* A float with the given range of exponents (of two), any sign and mantissa. */
static float with_exponent(test_random *r, int low, int high)
{
    uint32_t exponent = (uint32_t)(low + 127) + test_random_below(r, (uint32_t)(high - low + 1));
    return hth_float_of((bits(r) & 0x807fffffu) | exponent << 23);
}

static float special(test_random *r)
{
    static const uint32_t values[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u};
    return hth_float_of(values[test_random_below(r, 4)]);
}

/* One value of the kind, for a format whose largest exponent is `top`. */
static float value(test_random *r, proof_kind kind, int top)
{
    switch (kind) {
    case PROOF_ZEROS: return hth_float_of(bits(r) & 0x80000000u);
    case PROOF_WIDE: return with_exponent(r, -top / 3, top / 3);
    case PROOF_LARGEST: return with_exponent(r, top, top);
    case PROOF_SUBNORMAL: return top == 15 ? with_exponent(r, -24, -15) : hth_float_of(bits(r) & 0x807fffffu);
    case PROOF_OUTLIER: return test_random_float(r) * 1e-3f;
    case PROOF_SPECIAL: return test_random_below(r, 50) == 0 ? special(r) : test_random_float(r);
    case PROOF_BITS: return hth_float_of(bits(r));
    default: return test_random_float(r);
    }
}

void proof_fill_f32(test_random *r, proof_kind kind, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = value(r, kind, 127);
    if (kind == PROOF_OUTLIER && n > 0) x[test_random_below(r, (uint32_t)n)] = 1000.0f;
}

void proof_fill_f16(test_random *r, proof_kind kind, uint16_t *h, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t any = (uint16_t)bits(r), narrow = hth_f32_to_f16(value(r, kind, 15));
        h[i] = kind == PROOF_BITS ? any : narrow;
    }
}

void proof_fill_bf16(test_random *r, proof_kind kind, uint16_t *h, size_t n)
{
    for (size_t i = 0; i < n; i++) h[i] = (uint16_t)(hth_bits_of(value(r, kind, 127)) >> 16);
}

void proof_fill_bytes(test_random *r, void *p, size_t n)
{
    uint8_t *byte = p;
    for (size_t i = 0; i < n; i++) byte[i] = (uint8_t)bits(r);
}

size_t proof_differ_f32(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t x = hth_bits_of(a[i]), y = hth_bits_of(b[i]);
        bool both_nan = (x & 0x7fffffffu) > 0x7f800000u && (y & 0x7fffffffu) > 0x7f800000u;
        if (x != y && !both_nan) return i;
    }
    return n;
}

size_t proof_differ_f16(const uint16_t *a, const uint16_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool both_nan = (a[i] & 0x7fffu) > 0x7c00u && (b[i] & 0x7fffu) > 0x7c00u;
        if (a[i] != b[i] && !both_nan) return i;
    }
    return n;
}

void proof_one_nan(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != x[i]) x[i] = hth_float_of(0x7fc00000u);
}
