/* base/fma.h: the exact multiply-add in C against the instruction. */
#include "base/fma.h"
#include "support/kernels/proof.h"

/* libm's fmaf is correctly rounded on every machine, by the instruction or by its own exact arithmetic. */
static void check(float a, float b, float c)
{
    float mine = hth_fma(a, b, c), right = fmaf(a, b, c);
    if (hth_bits_of(mine) != hth_bits_of(right) && !(mine != mine && right != right))
        test_fail(__FILE__, __LINE__, "fma(%a, %a, %a): expected %a, got %a", (double)a, (double)b, (double)c,
                  (double)right, (double)mine);
}

static size_t n_case(void) { return test_is_long() ? 100000000u : 2000000u; }

static float any(test_random *r) { return hth_float_of((uint32_t)(test_random_next(r) >> 32)); }

/* A float of moderate size with few mantissa bits, so that ties are common. */
static float coarse(test_random *r)
{
    uint32_t u = (uint32_t)(test_random_next(r) >> 32);
    uint32_t kept = ~0u << test_random_below(r, 23);
    return hth_float_of((u & 0x807fffffu & (kept | 0x80000000u)) | (100u + test_random_below(r, 54)) << 23);
}

TEST(fma_equals_the_instruction_on_any_bits)
{
    test_random r = proof_random();
    for (size_t i = 0; i < n_case(); i++) check(any(&r), any(&r), any(&r));
}

TEST(fma_equals_the_instruction_near_ties)
{
    test_random r = proof_random();
    for (size_t i = 0; i < n_case(); i++) {
        float a = coarse(&r), b = coarse(&r), c = coarse(&r);
        check(a, b, c);
    }
}

/* c close to -ab: what is left are the low bits of the product. */
TEST(fma_equals_the_instruction_where_terms_cancel)
{
    test_random r = proof_random();
    for (size_t i = 0; i < n_case(); i++) {
        float a = coarse(&r), b = any(&r);
        uint32_t c = hth_bits_of(-(a * b)) + test_random_below(&r, 5) - 2;
        check(a, b, hth_float_of(c));
    }
}

/* Products around 2^-149, the smallest subnormal, with c subnormal, tiny or zero. */
TEST(fma_equals_the_instruction_among_subnormals)
{
    test_random r = proof_random();
    for (size_t i = 0; i < n_case(); i++) {
        float a = coarse(&r) * 0x1p-50f, b = coarse(&r) * 0x1p-70f;
        uint32_t c = (uint32_t)(test_random_next(&r) >> 32) & 0x80ffffffu;
        if (test_random_below(&r, 4) == 0) c &= 0x80000007u;
        check(a, b, hth_float_of(c));
    }
}
