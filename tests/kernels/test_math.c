/* How far our own functions are from the true values: dense sweeps against libm in
 * double precision, with a bound for each. The figures are those of docs/arithmetic.md:
 * a change of a polynomial must not pass unseen, so the bounds are tight. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "kernels/vector/math.h"
#include "support/kernels/proof.h"

/* Distance in units in the last place of the float nearest to `right`. */
static double ulp_error(float got, double right)
{
    float near = (float)fabs(right);
    if (near < 0x1p-126f) near = 0x1p-126f;
    double unit = (double)hth_float_of(hth_bits_of(near) & 0x7f800000u) * 0x1p-23;
    return fabs((double)got - right) / unit;
}

static double ulp_error_d(double got, double right)
{
    double near = fabs(right) < 0x1p-1022 ? 0x1p-1022 : fabs(right);
    double unit = ldexp(1.0, ilogb(near) - 52);
    return fabs(got - right) / unit;
}

/* ---- float functions ------------------------------------------------------------------------ */

enum { N_STEP = 1 << 12 };

/* The largest error over all floats of [low, high] in steps of `stride` bit patterns;
 * low and high have the same sign. */
static double sweep(hth_map_fn *f, double (*right)(double), float low, float high, uint32_t stride)
{
    float x[N_STEP], y[N_STEP];
    double worst = 0;
    uint32_t first = hth_bits_of(low), last = hth_bits_of(high);
    if (first > last) {
        uint32_t swap = first;
        first = last, last = swap;
    }
    for (uint64_t u = first; u <= last;) {
        size_t n = 0;
        for (; n < N_STEP && u <= last; n++, u += stride) x[n] = hth_float_of((uint32_t)u);
        f(x, n, y);
        for (size_t i = 0; i < n; i++) {
            double error = ulp_error(y[i], right((double)x[i]));
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

static void check_bound(const char *name, double worst, double bound)
{
    printf("%-28s %.3f ulp (bound %.2f)\n", name, worst, bound);
    if (!(worst <= bound)) test_fail(__FILE__, __LINE__, "%s: %.3f ulp, bound %.2f", name, worst, bound);
}

static double reciprocal(double x) { return 1 / x; }
static double reciprocal_root(double x) { return 1 / sqrt(x); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double silu(double x) { return x / (1 + exp(-x)); }

/* x/2 (1 + tanh u), written without the difference that loses digits below 0. */
static double gelu(double x) { return x / (1 + exp(-2 * sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x))); }

static hth_kernels table;

static void map_silu(const float *x, size_t n, float *y) { table.activate[HTH_ACTIVATION_SILU](NULL, x, n, y); }
static void map_gelu(const float *x, size_t n, float *y) { table.activate[HTH_ACTIVATION_GELU](NULL, x, n, y); }

/* All levels give the same bits (test_vectors.c), so one is enough. */
static void use_table(void) { hth_kernels_init(&table, hth_cpu_detect()); }

TEST(exp_is_within_its_bound)
{
    use_table();
    double below = sweep(table.exp, exp, -87.0f, -0x1p-40f, 997), above = sweep(table.exp, exp, 0x1p-40f, 88.0f, 997);
    check_bound("exp", fmax(below, above), 1.5);
}

/* Held at both ends: softmax and silu rely on it. */
TEST(exp_beyond_its_range_is_zero_or_large)
{
    use_table();
    const float x[8] = {-87.5f, -1000.0f, -INFINITY, 88.5f, 1000.0f, INFINITY, 0.0f, NAN};
    float y[8];
    table.exp(x, 8, y);
    CHECK(y[0] == 0.0f && y[1] == 0.0f && y[2] == 0.0f && y[6] == 1.0f && y[7] != y[7]);
    CHECK(y[3] > 1e38f && y[3] == y[4] && y[4] == y[5] && y[5] < INFINITY);
}

TEST(rcp_is_within_its_bound)
{
    use_table();
    check_bound("rcp", sweep(table.rcp, reciprocal, 0x1p-125f, 0x1p125f, 997), 2.0);
    check_bound("rcp of negatives", sweep(table.rcp, reciprocal, -0x1p125f, -0x1p-125f, 997), 2.0);
}

TEST(rsqrt_is_within_its_bound)
{
    use_table();
    check_bound("rsqrt", sweep(table.rsqrt, reciprocal_root, 0x1p-126f, 0x1.fffffep126f, 997), 3.0);
}

TEST(tanh_is_within_its_bound)
{
    use_table();
    double below = sweep(table.tanh, tanh, -100.0f, -0x1p-60f, 997);
    check_bound("tanh", fmax(below, sweep(table.tanh, tanh, 0x1p-60f, 100.0f, 997)), 2.0);
}

TEST(sigmoid_is_within_its_bound)
{
    use_table();
    check_bound("sigmoid above 0", sweep(table.sigmoid, sigmoid, 0x1p-60f, 1e4f, 997), 3.0);
    check_bound("sigmoid, -80..0", sweep(table.sigmoid, sigmoid, -80.0f, -0x1p-60f, 997), 3.5);
}

/* Above 0 it ends at rcp(1), the float below 1; below 0 the exponential is limited, so the result is normal. */
TEST(sigmoid_beyond_its_range_is_constant)
{
    use_table();
    const float x[7] = {17.5f, 1e30f, INFINITY, -86.0f, -1e30f, -INFINITY, NAN};
    float y[7];
    table.sigmoid(x, 7, y);
    CHECK(y[0] == 0x1.fffffep-1f && y[1] == y[0] && y[2] == y[0] && y[6] != y[6]);
    CHECK(y[3] == y[4] && y[4] == y[5] && y[3] > 0x1p-126f && y[3] < 1e-37f);
}

TEST(softplus_is_within_its_bound)
{
    use_table();
    check_bound("softplus above 0", sweep(table.softplus, softplus, 0x1p-60f, 1e4f, 997), 3.5);
    check_bound("softplus, -80..0", sweep(table.softplus, softplus, -80.0f, -0x1p-60f, 997), 4.0);
}

TEST(softplus_of_large_values_is_the_value_or_zero)
{
    use_table();
    const float x[7] = {20.0f, 1e30f, INFINITY, -88.0f, -1e30f, -INFINITY, NAN};
    float y[7];
    table.softplus(x, 7, y);
    CHECK(y[0] == 20.0f && y[1] == 1e30f && y[2] == INFINITY && y[6] != y[6]);
    CHECK(y[3] == 0.0f && y[4] == 0.0f && y[5] == 0.0f);
}

TEST(activations_are_within_their_bounds)
{
    use_table();
    check_bound("silu above 0", sweep(map_silu, silu, 0x1p-60f, 1e4f, 997), 4.0);
    check_bound("silu, -80..0", sweep(map_silu, silu, -80.0f, -0x1p-60f, 997), 4.0);
    check_bound("gelu above 0", sweep(map_gelu, gelu, 0x1p-60f, 1e4f, 997), 4.0);
    check_bound("gelu, -1..0", sweep(map_gelu, gelu, -1.0f, -0x1p-60f, 997), 4.0);
}

/* Further down exp multiplies the rounding of its argument, but the values are small. */
TEST(gelu_far_below_zero_is_right_in_absolute_terms)
{
    use_table();
    for (float x = -1.0f; x > -40.0f; x -= 0x1p-10f) {
        float y;
        map_gelu(&x, 1, &y);
        if (!(fabs((double)y - gelu((double)x)) < 1e-7))
            test_fail(__FILE__, __LINE__, "gelu(%a) is %a", (double)x, (double)y);
    }
}

/* INFINITY and NAN of math.h are floats. */
static double infinity(void) { return (double)INFINITY; }
static double not_a_number(void) { return (double)NAN; }

/* ---- double functions ----------------------------------------------------------------------- */

static double uniform(test_random *r, double low, double high)
{
    return low + (high - low) * ((double)(test_random_next(r) >> 11) * 0x1p-53);
}

enum { N_DOUBLE = 400000 };

TEST(exp_in_double_is_within_its_bound)
{
    test_random r = proof_random();
    double worst = 0;
    for (int i = 0; i < N_DOUBLE; i++) {
        double x = i % 2 ? uniform(&r, -708, 709) : uniform(&r, -1, 1);
        worst = fmax(worst, ulp_error_d(hth_exp_d(x), exp(x)));
    }
    check_bound("exp_d", worst, 1.5);
    CHECK(hth_exp_d(0) == 1 && hth_exp_d(-800) == 0 && hth_exp_d(800) == infinity());
    CHECK(hth_exp_d(-infinity()) == 0 && hth_exp_d(infinity()) == infinity());
    CHECK(isnan(hth_exp_d(not_a_number())));
    CHECK(fabs(hth_exp_d(-740) / exp(-740) - 1) < 1e-1); /* subnormal: few bits are left */
}

TEST(log_in_double_is_within_its_bound)
{
    test_random r = proof_random();
    double worst = 0;
    for (int i = 0; i < N_DOUBLE; i++) {
        double x = i % 2 ? uniform(&r, 0.5, 2) : hth_double_of(test_random_next(&r) >> 1);
        if (isfinite(x) && x > 0) worst = fmax(worst, ulp_error_d(hth_log_d(x), log(x)));
    }
    check_bound("log_d", worst, 1.5);
    CHECK(hth_log_d(1) == 0 && hth_log_d(0) == -infinity() && hth_log_d(infinity()) == infinity());
    CHECK(isnan(hth_log_d(-1)) && isnan(hth_log_d(not_a_number())));
}

/* exp(y log base): the rounding of the product counts |y log base| times. */
TEST(pow_in_double_errs_with_the_size_of_its_exponent)
{
    test_random r = proof_random();
    double worst = 0;
    for (int i = 0; i < N_DOUBLE; i++) {
        double base = exp(uniform(&r, -14, 14)), y = uniform(&r, -3, 3);
        double size = 1 + fabs(y * log(base));
        worst = fmax(worst, ulp_error_d(hth_pow_d(base, y), pow(base, y)) / size);
    }
    check_bound("pow_d / (1 + |y log base|)", worst, 2.5);
}

TEST(sine_and_cosine_stay_within_1e_15)
{
    test_random r = proof_random();
    double worst = 0;
    for (int i = 0; i < N_DOUBLE; i++) {
        double range = i % 3 == 0 ? 1e6 : i % 3 == 1 ? 100 : 1, x = uniform(&r, -range, range), s, c;
        if (i % 5 == 0) x = floor(x) * 1.5707963267948966; /* next to a zero */
        if (fabs(x) > 1e6) continue;
        hth_sincos_d(x, &s, &c);
        worst = fmax(worst, fmax(fabs(s - sin(x)), fabs(c - cos(x))));
    }
    printf("%-28s %.3g absolute (bound 1e-15)\n", "sincos_d to 1e6", worst);
    CHECK(worst <= 1e-15);
}

/* A file with a tiny rope factor asks for such angles; they must end as NaN, not undefined. */
TEST(sine_and_cosine_of_huge_angles_are_nan)
{
    const double x[] = {0x1p60, -0x1p60, 1e300, infinity(), -infinity(), not_a_number()};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        double s = 0, c = 0;
        hth_sincos_d(x[i], &s, &c);
        CHECK(isnan(s) && isnan(c));
    }
}

TEST(roots_are_within_their_bound)
{
    test_random r = proof_random();
    double worst = 0;
    for (int i = 0; i < N_DOUBLE; i++) {
        double x = exp(uniform(&r, -600, 600));
        worst = fmax(worst, ulp_error_d(hth_sqrt_d(x), sqrt(x)));
    }
    check_bound("sqrt_d", worst, 1.5);
    CHECK(hth_sqrt_d(0) == 0 && hth_sqrt_d(4) == 2 && isnan(hth_sqrt_d(-1)));
}
