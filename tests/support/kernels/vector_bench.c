/* Vectors of a usual model's width, so that all data stay in the first caches. */
#include "support/kernels/bench.h"

#include "base/clock.h"
#include "kernels/kernels.h"
#include "support/kernels/proof.h"

enum { N = 4096, N_ROUND = 5 };

static float a[N], b[N], c[N], y[N];
static uint16_t halves[N];
static int8_t q[N];
static int32_t sum[N / 32];
static int16_t sum_16[N / 16];

static void run_quant(const hth_kernels *k) { k->quant_act(a, N, q, y, sum); }
static void run_quant_256(const hth_kernels *k) { k->quant_act_256(a, N, q, y, sum_16); }
static void run_rms(const hth_kernels *k) { k->rms_norm(a, b, N, 1.0f / N, 1e-5f, y); }
static void run_layer(const hth_kernels *k) { k->layer_norm(a, b, c, N, 1.0f / N, 1e-5f, y); }
static void run_neighbours(const hth_kernels *k) { k->rope_interleaved(y, b, c, N / 2); }
static void run_halves(const hth_kernels *k) { k->rope_neox(y, b, c, N / 2); }
static void run_softmax(const hth_kernels *k) { k->softmax(y, N); }
static void run_add(const hth_kernels *k) { k->add(a, b, N, y); }
static void run_to_f16(const hth_kernels *k) { k->to_f16(a, N, halves); }
static void run_silu(const hth_kernels *k) { k->activate[HTH_ACTIVATION_SILU](a, b, N, y); }
static void run_gelu(const hth_kernels *k) { k->activate[HTH_ACTIVATION_GELU](a, b, N, y); }
static void run_relu(const hth_kernels *k) { k->activate[HTH_ACTIVATION_RELU](a, b, N, y); }
static void run_drelu(const hth_kernels *k) { k->activate[HTH_ACTIVATION_DRELU](a, b, N, y); }

static const struct {
    const char *name;
    void (*run)(const hth_kernels *k);
    double n;
} benches[] = {
    {"quant_act", run_quant, N},
    {"quant_act_256", run_quant_256, N},
    {"rms_norm", run_rms, N},
    {"layer_norm", run_layer, N},
    {"rope_interleaved", run_neighbours, N},
    {"rope_neox", run_halves, N},
    {"softmax", run_softmax, N},
    {"add", run_add, N},
    {"to_f16", run_to_f16, N},
    {"silu", run_silu, N},
    {"gelu", run_gelu, N},
    {"relu", run_relu, N},
    {"drelu", run_drelu, N},
};

/* A rotation that keeps the length, or in-place turns would end in subnormals. */
static void fill_rotation(void)
{
    for (int i = 0; i < N; i++) b[i] = i % 2 ? 0.6f : 0.8f, c[i] = i % 2 ? 0.8f : 0.6f;
}

/* Inputs are filled again before each round, as some kernels work in place. */
static void refill(void)
{
    test_random r = {7};
    float *all[] = {a, b, c, y};
    for (int i = 0; i < 4; i++) proof_fill_f32(&r, PROOF_PLAIN, all[i], N);
}

static double rate(size_t i, hth_cpu level)
{
    hth_kernels table = proof_kernels(level);
    int n_call = (int)(4e6 / benches[i].n) + 1;
    refill();
    if (strstr(benches[i].name, "rope")) fill_rotation();
    uint64_t start = hth_clock_ns();
    for (int call = 0; call < n_call; call++) benches[i].run(&table);
    return benches[i].n * n_call / (double)(hth_clock_ns() - start);
}

int vector_bench(const char *filter)
{
    hth_cpu levels[1 + PROOF_MAX_LEVEL] = {HTH_CPU_GENERIC};
    int n_level = 1 + proof_levels(levels + 1);
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        double rates[1 + PROOF_MAX_LEVEL][N_ROUND];
        if (!strstr(benches[i].name, filter)) continue;
        for (int round = 0; round < N_ROUND; round++)
            for (int l = 0; l < n_level; l++) rates[l][round] = rate(i, levels[l]);
        for (int l = 0; l < n_level; l++) {
            qsort(rates[l], N_ROUND, sizeof(double), bench_by_size);
            printf("%-16s %-8s %7.3f (%.3f-%.3f) G/s\n", benches[i].name, hth_cpu_name(levels[l]),
                   rates[l][N_ROUND / 2], rates[l][0], rates[l][N_ROUND - 1]);
        }
    }
    return 0;
}
