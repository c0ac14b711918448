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
static void run_silu(const call *c) { c->table->activate[HTH_ACTIVATION_SILU](c->a, c->b, c->n, c->y); }
static void run_gelu(const call *c) { c->table->activate[HTH_ACTIVATION_GELU](c->a, c->b, c->n, c->y); }
static void run_relu(const call *c) { c->table->activate[HTH_ACTIVATION_RELU](c->a, c->b, c->n, c->y); }
static void run_relu2(const call *c) { c->table->activate[HTH_ACTIVATION_RELU2](c->a, c->b, c->n, c->y); }
static void run_drelu(const call *c) { c->table->activate[HTH_ACTIVATION_DRELU](c->a, c->b, c->n, c->y); }
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
    {"silu", run_silu, 1, .sizes = {4}},
    {"gelu", run_gelu, 1, .sizes = {4}},
    {"relu", run_relu, 1, .sizes = {4}},
    {"relu2", run_relu2, 1, .sizes = {4}},
    {"drelu", run_drelu, 1, .sizes = {4}},
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

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return vector_bench(argc > 2 ? argv[2] : "");
    return test_run_all(argc, argv);
}
