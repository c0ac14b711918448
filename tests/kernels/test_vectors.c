/* The proof of the vector kernels (norms, rotation, softmax, activations, rounding, halves; attention:
 * test_attn.c): every level of this machine against the C reference, bit for bit, between guard pages, at ragged
 * lengths and for all kinds of numbers. `--bench` measures instead (support/kernels/bench.h). */
#include "kernels/kernels.h"
#include "support/guard.h"
#include "support/kernels/proof.h"
#include "support/kernels/bench.h"

enum { MAX_N = 1100 };

/* One call: inputs a, b, c, output y (which may also be an input), between guards. */
typedef struct call {
    const hth_kernels *table;
    size_t n;
    const float *a, *b, *c;
    void *y, *y2, *y3;
} call;

typedef struct vector_kernel {
    const char *name;
    void (*run)(const call *c);
    size_t step;     /* n is a multiple of this */
    bool in_place;   /* y begins as a copy of a */
    size_t sizes[3]; /* bytes per element of y; per `step` elements of y2 and y3 */
    bool halves;     /* y holds halves */
    bool some;       /* needs n > 0 */
} vector_kernel;

static void run_quant(const call *c) { c->table->quant_act(c->a, c->n, c->y, c->y2, c->y3); }
static void run_quant_256(const call *c) { c->table->quant_act_256(c->a, c->n, c->y, c->y2, c->y3); }
static void run_rms(const call *c) { c->table->rms_norm(c->a, c->b, c->n, 1.0f / (float)c->n, 1e-5f, c->y); }
static void run_layer(const call *c)
{
    c->table->layer_norm(c->a, c->b, c->c, c->n, 1.0f / (float)c->n, 1e-5f, c->y);
}
static void run_layer_plain(const call *c)
{
    c->table->layer_norm(c->a, c->b, NULL, c->n, 1.0f / (float)c->n, 1e-5f, c->y);
}
static void run_neighbours(const call *c) { c->table->rope_interleaved(c->y, c->b, c->c, c->n / 2); }
static void run_halves(const call *c) { c->table->rope_neox(c->y, c->b, c->c, c->n / 2); }
static void run_softmax(const call *c) { c->table->softmax(c->y, c->n); }
static void run_add(const call *c) { c->table->add(c->a, c->b, c->n, c->y); }
static void run_add_onto(const call *c) { c->table->add(c->y, c->b, c->n, c->y); }
static void run_scale(const call *c) { c->table->scale(c->a, 3.3f, c->n, c->y); }
static void run_soft_cap(const call *c) { c->table->soft_cap(c->a, 30.0f, 1.0f / 30.0f, c->n, c->y); }
static void run_to_f16(const call *c) { c->table->to_f16(c->a, c->n, c->y); }
static void run_exp(const call *c) { c->table->exp(c->a, c->n, c->y); }
static void run_tanh(const call *c) { c->table->tanh(c->a, c->n, c->y); }
static void run_rcp(const call *c) { c->table->rcp(c->a, c->n, c->y); }
static void run_rsqrt(const call *c) { c->table->rsqrt(c->a, c->n, c->y); }
static void run_sigmoid(const call *c) { c->table->sigmoid(c->a, c->n, c->y); }
static void run_sigmoid_in_place(const call *c) { c->table->sigmoid(c->y, c->n, c->y); }
static void run_softplus(const call *c) { c->table->softplus(c->a, c->n, c->y); }
static void run_gate(const call *c) { c->table->gate_sigmoid(c->a, c->b, c->n, c->y); }
static void run_silu(const call *c) { c->table->activate[HTH_ACTIVATION_SILU](c->a, c->b, c->n, c->y); }
static void run_gelu(const call *c) { c->table->activate[HTH_ACTIVATION_GELU](c->a, c->b, c->n, c->y); }
static void run_relu(const call *c) { c->table->activate[HTH_ACTIVATION_RELU](c->a, c->b, c->n, c->y); }
static void run_relu2(const call *c) { c->table->activate[HTH_ACTIVATION_RELU2](c->a, c->b, c->n, c->y); }
static void run_drelu(const call *c) { c->table->activate[HTH_ACTIVATION_DRELU](c->a, c->b, c->n, c->y); }
static void run_oai(const call *c) { c->table->activate[HTH_ACTIVATION_SWIGLU_OAI](c->a, c->b, c->n, c->y); }
static void run_silu_alone(const call *c) { c->table->activate[HTH_ACTIVATION_SILU](NULL, c->b, c->n, c->y); }
static void run_gelu_alone(const call *c) { c->table->activate[HTH_ACTIVATION_GELU](NULL, c->b, c->n, c->y); }
static void run_relu_alone(const call *c) { c->table->activate[HTH_ACTIVATION_RELU](NULL, c->b, c->n, c->y); }
static void run_relu2_alone(const call *c) { c->table->activate[HTH_ACTIVATION_RELU2](NULL, c->b, c->n, c->y); }

static const vector_kernel kernels[] = {
    {"quant_act", run_quant, .step = 32, .sizes = {1, 4, 4}},
    {"quant_act_256", run_quant_256, .step = 256, .sizes = {1, 4, 32}},
    {"rms_norm", run_rms, 1, .sizes = {4}, .some = true},
    {"layer_norm", run_layer, 1, .sizes = {4}, .some = true},
    {"layer_norm without b", run_layer_plain, 1, .sizes = {4}, .some = true},
    {"rope_interleaved", run_neighbours, 2, .in_place = true, .sizes = {4}},
    {"rope_neox", run_halves, 2, .in_place = true, .sizes = {4}},
    {"softmax", run_softmax, 1, .in_place = true, .sizes = {4}, .some = true},
    {"add", run_add, 1, .sizes = {4}},
    {"add in place", run_add_onto, 1, .in_place = true, .sizes = {4}},
    {"scale", run_scale, 1, .sizes = {4}},
    {"soft_cap", run_soft_cap, 1, .sizes = {4}},
    {"to_f16", run_to_f16, 1, .sizes = {2}, .halves = true},
    {"exp", run_exp, 1, .sizes = {4}},
    {"tanh", run_tanh, 1, .sizes = {4}},
    {"rcp", run_rcp, 1, .sizes = {4}},
    {"rsqrt", run_rsqrt, 1, .sizes = {4}},
    {"sigmoid", run_sigmoid, 1, .sizes = {4}},
    {"sigmoid in place", run_sigmoid_in_place, 1, .in_place = true, .sizes = {4}},
    {"softplus", run_softplus, 1, .sizes = {4}},
    {"gate_sigmoid", run_gate, 1, .sizes = {4}},
    {"silu", run_silu, 1, .sizes = {4}},
    {"gelu", run_gelu, 1, .sizes = {4}},
    {"relu", run_relu, 1, .sizes = {4}},
    {"relu2", run_relu2, 1, .sizes = {4}},
    {"drelu", run_drelu, 1, .sizes = {4}},
    {"swiglu_oai", run_oai, 1, .sizes = {4}},
    {"silu without gate", run_silu_alone, 1, .sizes = {4}},
    {"gelu without gate", run_gelu_alone, 1, .sizes = {4}},
    {"relu without gate", run_relu_alone, 1, .sizes = {4}},
    {"relu2 without gate", run_relu2_alone, 1, .sizes = {4}},
};
enum { N_KERNEL = sizeof kernels / sizeof *kernels };

/* ---- one call at one level --------------------------------------------------------- */

static guard rooms[6]; /* a, b, c, y, y2, y3 */
static uint8_t expected[3][4 * MAX_N], got[3][4 * MAX_N];

typedef struct invocation {
    const vector_kernel *kernel;
    call call;
} invocation;

static void invoke(void *p)
{
    invocation *i = p;
    i->kernel->run(&i->call);
}

static size_t output_size(const vector_kernel *k, size_t n, int output)
{
    return output == 0 ? n * k->sizes[0] : n / k->step * k->sizes[output];
}

/* Runs the kernel of a table on the inputs in guarded buffers 0 to 2, which do not change. */
static bool compute(const vector_kernel *k, const hth_kernels *table, size_t n, guard_side side, size_t shift,
                    uint8_t out[3][4 * MAX_N])
{
    void *y[3];
    for (int i = 0; i < 3; i++) y[i] = guard_place(&rooms[3 + i], output_size(k, n, i), side, shift);
    invocation i_call = {.kernel = k};
    i_call.call = (call){.table = table, .n = n, .y = y[0], .y2 = y[1], .y3 = y[2]};
    i_call.call.a = (const float *)(void *)rooms[0].p;
    i_call.call.b = (const float *)(void *)rooms[1].p;
    i_call.call.c = (const float *)(void *)rooms[2].p;
    if (k->in_place) memcpy(y[0], rooms[0].p, n * sizeof(float));
    bool ok = guard_call(invoke, &i_call);
    for (int i = 0; i < 3; i++) {
        memcpy(out[i], y[i], output_size(k, n, i));
        ok = ok && guard_is_whole(&rooms[3 + i]);
    }
    return ok;
}

static bool equal(const vector_kernel *k, size_t n)
{
    const void *e = expected[0], *g = got[0], *e2 = expected[1], *g2 = got[1];
    if (k->sizes[0] == 1)
        return memcmp(e, g, n) == 0 && proof_differ_f32(e2, g2, n / k->step) == n / k->step &&
               memcmp(expected[2], got[2], output_size(k, n, 2)) == 0;
    return k->halves ? proof_differ_f16(e, g, n) == n : proof_differ_f32(e, g, n) == n;
}

static void place_inputs(test_random *r, size_t n, proof_kind kind, guard_side side, size_t shift)
{
    for (int i = 0; i < 3; i++) {
        float *x = guard_place(&rooms[i], n * sizeof *x, side, shift);
        proof_fill_f32(r, kind, x, n);
    }
}

static void check_kernel(test_random *r, const vector_kernel *k, hth_cpu level, size_t n, proof_kind kind)
{
    hth_kernels reference = proof_kernels(HTH_CPU_GENERIC);
    hth_kernels table = proof_kernels(level);
    guard_side side = test_random_below(r, 2) ? GUARD_BEHIND : GUARD_BEFORE;
    size_t shift = 4 * (size_t)test_random_below(r, 3) * test_random_below(r, 5);
    place_inputs(r, n, kind, side, shift);
    bool ok = compute(k, &reference, n, side, shift, expected) && compute(k, &table, n, side, shift, got);
    if (!ok)
        test_fail(__FILE__, __LINE__, "%s at %s: fault, or wrote outside; n %zu, side %d, shift %zu, %s",
                  k->name, hth_cpu_name(level), n, (int)side, shift, proof_kind_name(kind));
    else if (!equal(k, n))
        test_fail(__FILE__, __LINE__, "%s at %s: not the reference's bits; n %zu, shift %zu, %s", k->name,
                  hth_cpu_name(level), n, shift, proof_kind_name(kind));
}

TEST(vectors_equal_the_reference_between_guard_pages)
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    for (int i = 0; i < 6; i++) guard_open(&rooms[i], 4 * MAX_N + 64);
    test_random r = proof_random();
    for (int l = 0; l < n_level; l++)
        for (int k = 0; k < N_KERNEL; k++)
            for (int kind = 0; kind < PROOF_N_KIND; kind++)
                for (size_t i = 0; i <= 36; i++) {
                    size_t n = i <= 34 ? i : 500 + test_random_below(&r, 500);
                    size_t step = kernels[k].step;
                    n = step >= 32 ? n % (MAX_N / step + 1) * step : n / step * step;
                    if (n > 0 || !kernels[k].some) check_kernel(&r, &kernels[k], levels[l], n, (proof_kind)kind);
                }
    for (int i = 0; i < 6; i++) guard_close(&rooms[i]);
}

/* ---- single promises --------------------------------------------------------------------- */

TEST(a_soft_cap_bounds_and_keeps_small_values)
{
    float x[5] = {-1e30f, -0.01f, 0.0f, 0.5f, 1e30f}, y[5];
    hth_kernels table = proof_kernels(HTH_CPU_GENERIC);
    table.soft_cap(x, 30.0f, 1.0f / 30.0f, 5, y);
    CHECK(y[0] == -30.0f && y[4] == 30.0f && y[2] == 0.0f);
    CHECK(y[1] > -0.0100001f && y[1] < -0.0099f && y[3] > 0.4999f && y[3] < 0.5f);
}

/* ---- against definitions of their own (docs/arithmetic.md 2 and 3) ------------------------------------ */

static int all_levels(hth_cpu levels[1 + PROOF_MAX_LEVEL])
{
    levels[0] = HTH_CPU_GENERIC;
    return 1 + proof_levels(levels + 1);
}

/* R10: eight partial sums of rounded products, by index mod 8, from +0; neighbours are added first. */
static float dot_of(const float *w, const float *x, size_t n)
{
    float p[8] = {0};
    for (size_t i = 0; i < n; i++) {
        volatile float product = w[i] * x[i];
        p[i % 8] += product;
    }
    return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
}

typedef struct dot_call {
    const hth_kernels *table;
    const float *w, *x;
    size_t n_row, n_col;
    float *y;
} dot_call;

static void invoke_dot(void *p)
{
    dot_call *c = p;
    c->table->dot_rows(c->w, c->n_row, c->n_col, c->x, c->y);
}

static void check_dot(test_random *r, const hth_kernels *k, size_t n_row, size_t n_col, proof_kind kind)
{
    guard_side side = test_random_below(r, 2) ? GUARD_BEHIND : GUARD_BEFORE;
    float *w = guard_place(&rooms[0], n_row * n_col * sizeof *w, side, 0);
    float *x = guard_place(&rooms[1], n_col * sizeof *x, side, 0);
    dot_call c = {k, w, x, n_row, n_col, guard_place(&rooms[2], n_row * sizeof *c.y, side, 0)};
    proof_fill_f32(r, kind, w, n_row * n_col);
    proof_fill_f32(r, kind, x, n_col);
    bool ok = guard_call(invoke_dot, &c) && guard_is_whole(&rooms[2]);
    for (size_t i = 0; i < n_row && ok; i++) {
        float e = dot_of(w + i * n_col, x, n_col);
        if (proof_differ_f32(&e, &c.y[i], 1) == 1) continue;
        test_fail(__FILE__, __LINE__, "dot_rows at %s: row %zu of %zu of %zu columns is %a, not %a; side %d, %s",
                  hth_cpu_name(k->level), i, n_row, n_col, (double)c.y[i], (double)e, (int)side, proof_kind_name(kind));
    }
    if (!ok)
        test_fail(__FILE__, __LINE__, "dot_rows at %s: fault, or wrote outside; %zu rows, %zu columns, side %d",
                  hth_cpu_name(k->level), n_row, n_col, (int)side);
}

TEST(dots_of_rows_are_eight_partial_sums_of_rounded_products)
{
    hth_cpu levels[1 + PROOF_MAX_LEVEL];
    int n_level = all_levels(levels);
    test_random r = proof_random();
    for (int i = 0; i < 3; i++) guard_open(&rooms[i], 20 * MAX_N * sizeof(float));
    for (int l = 0; l < n_level; l++) {
        hth_kernels k = proof_kernels(levels[l]);
        for (int kind = 0; kind < PROOF_N_KIND; kind++)
            for (size_t i = 0; i <= 36; i++) {
                size_t n_col = i <= 34 ? i : 500 + test_random_below(&r, 500);
                check_dot(&r, &k, i % 11, n_col, (proof_kind)kind);
                check_dot(&r, &k, 1 + test_random_below(&r, 19), n_col, (proof_kind)kind);
            }
    }
    for (int i = 0; i < 3; i++) guard_close(&rooms[i]);
}

/* A fused product would keep 2^-24, which the rounding of the product drops. */
TEST(dots_of_rows_round_each_product)
{
    const float x[9] = {1.0f + 0x1p-12f, 0, 0, 0, 0, 0, 0, 0, 1.0f};
    const float w[9] = {1.0f + 0x1p-12f, 0, 0, 0, 0, 0, 0, 0, -1.0f};
    hth_cpu levels[1 + PROOF_MAX_LEVEL];
    int n_level = all_levels(levels);
    for (int l = 0; l < n_level; l++) {
        float y = 0;
        proof_kernels(levels[l]).dot_rows(w, 1, 9, x, &y);
        CHECK(y == 0x1p-11f);
    }
}

/* The sum of rounded products, from the first on. */
static float conv_of(const float *const *rows, const float *taps, size_t d_conv, size_t n, size_t i)
{
    volatile float sum = taps[i] * rows[0][i];
    for (size_t j = 1; j < d_conv; j++) {
        volatile float product = taps[j * n + i] * rows[j][i];
        sum = sum + product;
    }
    return sum;
}

TEST(convolutions_add_rounded_products_in_order)
{
    enum { MAX_TAP = 5, MAX_CHANNEL = 41 };
    hth_cpu levels[1 + PROOF_MAX_LEVEL];
    int n_level = all_levels(levels);
    test_random r = proof_random();
    float x[MAX_TAP][MAX_CHANNEL], taps[MAX_TAP * MAX_CHANNEL], y[MAX_CHANNEL + 1], products[MAX_CHANNEL];
    for (int l = 0; l < n_level; l++) {
        hth_kernels k = proof_kernels(levels[l]);
        for (int kind = 0; kind < PROOF_N_KIND; kind++)
            for (size_t n = 1; n <= MAX_CHANNEL; n++)
                for (size_t d_conv = 1; d_conv <= MAX_TAP; d_conv++) {
                    const float *rows[MAX_TAP];
                    for (size_t j = 0; j < d_conv; j++) proof_fill_f32(&r, (proof_kind)kind, x[j], n), rows[j] = x[j];
                    proof_fill_f32(&r, (proof_kind)kind, taps, d_conv * n);
                    y[n] = 77.0f;
                    k.conv(rows, taps, d_conv, n, y);
                    k.mul(taps, x[0], n, products);
                    for (size_t i = 0; i < n; i++) {
                        volatile float product = taps[i] * x[0][i];
                        float want = conv_of(rows, taps, d_conv, n, i), one = product;
                        if (proof_differ_f32(&want, &y[i], 1) != 1 || proof_differ_f32(&one, &products[i], 1) != 1)
                            test_fail(__FILE__, __LINE__, "at %s: channel %zu of %zu, %zu taps: %a, not %a",
                                      hth_cpu_name(levels[l]), i, n, d_conv, (double)y[i], (double)want);
                    }
                    CHECK(y[n] == 77.0f);
                }
    }
}

/* rcp(1 + exp(min(0 - x, 86))), NaN passing. */
static float sigmoid_of(const hth_kernels *k, float x)
{
    float m = 0.0f - x, y;
    if (m > 86.0f) m = 86.0f;
    k->exp(&m, 1, &y);
    y = 1.0f + y;
    k->rcp(&y, 1, &y);
    return y;
}

static float oai_of(const hth_kernels *k, float gate, float up)
{
    float g = gate > 7.0f ? 7.0f : gate, u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    float half = g * sigmoid_of(k, 1.702f * g);
    return half * (u + 1.0f);
}

TEST(functions_with_sigmoid_are_their_definitions)
{
    static float gate[MAX_N], up[MAX_N], s[MAX_N], gated[MAX_N], y[MAX_N];
    hth_cpu levels[1 + PROOF_MAX_LEVEL];
    int n_level = all_levels(levels);
    test_random r = proof_random();
    for (int l = 0; l < n_level; l++) {
        hth_kernels k = proof_kernels(levels[l]);
        for (int kind = 0; kind < PROOF_N_KIND; kind++) {
            proof_fill_f32(&r, (proof_kind)kind, gate, MAX_N);
            proof_fill_f32(&r, (proof_kind)kind, up, MAX_N);
            for (int i = 0; i < MAX_N / 2; i++) gate[i] *= 12.0f, up[i] *= 12.0f; /* on both sides of the limits */
            k.sigmoid(gate, MAX_N, s);
            k.gate_sigmoid(gate, up, MAX_N, gated);
            k.activate[HTH_ACTIVATION_SWIGLU_OAI](gate, up, MAX_N, y);
            for (int i = 0; i < MAX_N; i++) {
                float e = sigmoid_of(&k, gate[i]), right[3] = {e, oai_of(&k, gate[i], up[i]), e * up[i]};
                float results[3] = {s[i], y[i], gated[i]};
                size_t at = proof_differ_f32(right, results, 3);
                if (at == 3) continue;
                test_fail(__FILE__, __LINE__, "%s, gate %a, up %a: %s is %a, not %a", hth_cpu_name(levels[l]),
                          (double)gate[i], (double)up[i], (const char *[]){"sigmoid", "swiglu_oai", "gate_sigmoid"}[at],
                          (double)results[at], (double)right[at]);
            }
        }
    }
}

TEST(swiglu_oai_limits_its_halves_and_keeps_nan)
{
    const float gate[] = {7.0f, 8.0f, INFINITY, 7.0f, 7.0f, 7.0f, -1e9f, NAN, 1.0f, 0.0f};
    const float up[] = {7.0f, 9.0f, INFINITY, -7.0f, -1e9f, -1.0f, 3.0f, 1.0f, NAN, 5.0f};
    float y[10];
    proof_kernels(HTH_CPU_GENERIC).activate[HTH_ACTIVATION_SWIGLU_OAI](gate, up, 10, y);
    CHECK(y[0] > 55.9f && y[0] < 56.0f && y[1] == y[0] && y[2] == y[0]);
    CHECK(y[3] < -41.9f && y[3] > -42.0f && y[4] == y[3] && y[5] == 0.0f);
    CHECK(y[6] <= 0.0f && y[6] > -1e-25f);
    CHECK(y[7] != y[7] && y[8] != y[8] && y[9] == 0.0f);
}

/* Of sixteen blocks, since a vector may hold that many. */
TEST(rounding_of_activations_at_its_bounds)
{
    enum { N = 16 * 32 };
    static const float largest[] = {0x1.fffffep-61f, 0x1p-60f, 0x1.000002p-60f,
                                    0x1.fffffep59f,  0x1p60f,  0x1.000002p60f};
    hth_cpu levels[1 + PROOF_MAX_LEVEL];
    int n_level = all_levels(levels);
    for (int l = 0; l < n_level; l++) {
        hth_kernels k = proof_kernels(levels[l]);
        for (int i = 0; i < 6; i++) {
            float x[N] = {0}, d[N / 32];
            int8_t q[N];
            int32_t sum[N / 32];
            int16_t sum_16[N / 16];
            bool is_small = i == 0, is_large = i == 5;
            for (int b = 0; b < N / 32; b++) x[32 * b + b] = -largest[i];
            k.quant_act(x, N, q, d, sum);
            CHECK_INT(q[0], is_small || is_large ? 0 : -127);
            CHECK(is_large ? d[15] != d[15] : is_small ? d[15] == 0.0f : d[15] > 0.0f);
            k.quant_act_256(x, N, q, d, sum_16);
            CHECK_INT(q[256 + 32 + 9], is_small || is_large ? 0 : -127);
            CHECK(is_large ? d[1] != d[1] : is_small ? d[1] == 0.0f : d[1] > 0.0f);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return vector_bench(argc > 2 ? argv[2] : "");
    return test_run_all(argc, argv);
}
