/* Every byte of a block takes all 256 values, and every weight is what the format says
 * (E3 of docs/reliability.md). The decoders here are written from the format's description,
 * a weight at a time and in double, and share nothing with src/kernels. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "support/kernels/proof.h"
#include "support/test.h"

typedef struct weight {
    double value, size; /* size: of what was added up, for the tolerance */
} weight;

static double half(const uint8_t *b)
{
    unsigned h = b[0] | (unsigned)b[1] << 8, e = h >> 10 & 31, f = h & 1023;
    double x = e == 0 ? ldexp(f, -24) : e < 31 ? ldexp(1024 + f, (int)e - 25) : (double)(f ? NAN : INFINITY);
    return h >> 15 ? -x : x;
}

static weight product(double d, double q) { return (weight){d * q, fabs(d * q)}; }
static weight affine(double d, double q, double m) { return (weight){d * q + m, fabs(d * q) + fabs(m)}; }

static unsigned nibble(const uint8_t *qs, unsigned i) { return i < 16 ? qs[i] & 15u : (unsigned)qs[i - 16] >> 4; }
static unsigned bit(const uint8_t *bits, unsigned i) { return (unsigned)bits[i / 8] >> i % 8 & 1u; }

static const int curve[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* twice the value */

static weight q4_0(const uint8_t *b, unsigned i) { return product(half(b), (int)nibble(b + 2, i) - 8); }
static weight q4_1(const uint8_t *b, unsigned i) { return affine(half(b), nibble(b + 4, i), half(b + 2)); }
static weight q5_0(const uint8_t *b, unsigned i)
{
    return product(half(b), (int)(nibble(b + 6, i) | bit(b + 2, i) << 4) - 16);
}
static weight q5_1(const uint8_t *b, unsigned i)
{
    return affine(half(b), nibble(b + 8, i) | bit(b + 4, i) << 4, half(b + 2));
}
static weight q8_0(const uint8_t *b, unsigned i) { return product(half(b), (int8_t)b[2 + i]); }
static weight iq4_nl(const uint8_t *b, unsigned i) { return product(half(b), curve[nibble(b + 2, i)]); }
static weight mxfp4(const uint8_t *b, unsigned i)
{
    return product(b[0] == 255 ? (double)NAN : ldexp(1, b[0] - 128), fp4[nibble(b + 1, i)]);
}

/* ---- blocks of 256 ------------------------------------------------------------------------------- */

static weight iq4_xs(const uint8_t *b, unsigned i)
{
    unsigned k = i / 32, high = b[2] | (unsigned)b[3] << 8;
    int scale = (int)(((unsigned)b[4 + k / 2] >> 4 * (k % 2) & 15u) | (high >> 2 * k & 3u) << 4) - 32;
    return product(half(b) * scale, curve[nibble(b + 8 + 16 * k, i % 32)]);
}

/* Two bits of weight i: planes of 32 bytes, two of 128 weights each. */
static unsigned crumb(const uint8_t *qs, unsigned i)
{
    return (unsigned)qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3u;
}

static weight q2_k(const uint8_t *b, unsigned i)
{
    unsigned scale = b[i / 16];
    return affine(half(b + 80) * (scale & 15), crumb(b + 16, i), -half(b + 82) * (scale >> 4));
}

static weight q3_k(const uint8_t *b, unsigned i)
{
    const uint8_t *scales = b + 96;
    unsigned k = i / 16, low = k < 8 ? scales[k] & 15u : (unsigned)scales[k - 8] >> 4;
    int scale = (int)(low | ((unsigned)scales[8 + k % 4] >> k / 4 * 2 & 3u) << 4) - 32;
    int q = (int)crumb(b + 32, i) - (b[i % 32] >> i / 32 & 1 ? 0 : 4);
    return product(half(b + 108) * scale, q);
}

/* The 6-bit scale and minimum of 32 weights, as Q4_K and Q5_K pack them in 12 bytes. */
static void scale_min(const uint8_t *s, unsigned k, unsigned *scale, unsigned *min)
{
    *scale = k < 4 ? s[k] & 63u : (s[k + 4] & 15u) | (unsigned)(s[k - 4] >> 6) << 4;
    *min = k < 4 ? s[k + 4] & 63u : (unsigned)s[k + 4] >> 4 | (unsigned)(s[k] >> 6) << 4;
}

static weight q4_or_q5(const uint8_t *b, unsigned i, const uint8_t *qs, unsigned high)
{
    unsigned scale, min, byte = qs[i / 64 * 32 + i % 32];
    scale_min(b + 4, i / 32, &scale, &min);
    unsigned q = (i / 32 % 2 ? byte >> 4 : byte & 15u) | high << 4;
    return affine(half(b) * scale, q, -half(b + 2) * min);
}
static weight q4_k(const uint8_t *b, unsigned i) { return q4_or_q5(b, i, b + 16, 0); }
static weight q5_k(const uint8_t *b, unsigned i)
{
    return q4_or_q5(b, i, b + 48, (unsigned)b[16 + i % 32] >> i / 32 & 1u);
}

static weight q6_k(const uint8_t *b, unsigned i)
{
    unsigned part = i / 128, k = i % 128 / 32, j = i % 32;
    unsigned low = b[part * 64 + k % 2 * 32 + j], high = b[128 + part * 32 + j] >> 2 * k & 3u;
    int q = (int)((k < 2 ? low & 15u : low >> 4) | high << 4) - 32;
    return product(half(b + 208) * (int8_t)b[192 + i / 16], q);
}

/* ---- all of them ------------------------------------------------------------------------------------ */

static const struct {
    hth_type type;
    weight (*decode)(const uint8_t *block, unsigned i);
} types[] = {{HTH_TYPE_Q4_0, q4_0},  {HTH_TYPE_Q4_1, q4_1},     {HTH_TYPE_Q5_0, q5_0},
             {HTH_TYPE_Q5_1, q5_1},  {HTH_TYPE_Q8_0, q8_0},     {HTH_TYPE_Q2_K, q2_k},
             {HTH_TYPE_Q3_K, q3_k},  {HTH_TYPE_Q4_K, q4_k},     {HTH_TYPE_Q5_K, q5_k},
             {HTH_TYPE_Q6_K, q6_k},  {HTH_TYPE_IQ4_NL, iq4_nl}, {HTH_TYPE_IQ4_XS, iq4_xs},
             {HTH_TYPE_MXFP4, mxfp4}};

/* Two roundings of floats at most; subnormal weights (MXFP4) have fewer bits, and the largest
 * exponents have none. */
static bool is_near(float x, weight w)
{
    if (!isfinite(w.value) || fabs(w.value) >= 0x1.ffffffp127) return !isfinite(x);
    return fabs((double)x - w.value) <= 4e-7 * w.size + 0x1p-149;
}

static void check_block(const hth_kernels *k, size_t t, const uint8_t *block, size_t at)
{
    const hth_type_info *info = hth_type_find(types[t].type);
    float x[256];
    k->unpack[types[t].type](block, info->n_weight, x);
    for (unsigned i = 0; i < info->n_weight; i++) {
        weight w = types[t].decode(block, i);
        if (is_near(x[i], w)) continue;
        test_fail(__FILE__, __LINE__, "%s, byte %zu = %u: weight %u is %g, expected %g", info->name, at,
                  block[at], i, (double)x[i], w.value);
        return;
    }
}

TEST(every_value_of_every_byte_of_a_block_is_decoded)
{
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    test_random r = {31};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const hth_type_info *info = hth_type_find(types[t].type);
        uint8_t block[256];
        if (!CHECK(k.unpack[types[t].type] != NULL && info->size <= sizeof block)) continue;
        for (size_t at = 0; at < info->size; at++) {
            for (size_t i = 0; i < info->size; i++) block[i] = (uint8_t)test_random_next(&r);
            for (unsigned value = 0; value < 256; value++) {
                block[at] = (uint8_t)value;
                check_block(&k, t, block, at);
            }
        }
    }
}
