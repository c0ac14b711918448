/* Preset model shapes, activation distributions and GPUs, as stated figures: for tests, for docs/plan.md and for
 * estimates of GPUs that are not present. Nothing here was measured. */
#include "support/planner/plan_reference.h"

#include "base/alloc.h"
#include "kernels/vector/math.h"

const hth_plan_shape hth_plan_shapes[] = {
    {"7B", 32, 4096, 11008, 32, 32, 32000},
    {"13B", 40, 5120, 13824, 40, 40, 32000},
    {"32B", 64, 5120, 27648, 40, 8, 32000},
    {"70B", 80, 8192, 28672, 64, 8, 32000},
};
const size_t hth_plan_n_shape = sizeof hth_plan_shapes / sizeof *hth_plan_shapes;

/* 26 % of a block's neurons account for 80 % of the activations (OPT-30B), 43 % (LLaMA2-70B with ReGLU): exponent
 * = ln 0.8 / ln x. In the first a tenth is active; the second leaves out 82 %. Song et al., PowerInfer, sections 2
 * and 3. Predictors of these models take about 5 to 9 % of all their weights, most of which are the FFN's. */
const hth_plan_firing hth_plan_dense = {"dense", 1.0, 1.0, 0.0};
const hth_plan_firing hth_plan_sharp = {"sharp", 0.10, 0.166, 0.06};
const hth_plan_firing hth_plan_flat = {"flat", 0.18, 0.264, 0.06};

/* Fraction of all activations that belong to the hottest x. */
static double coverage(const hth_plan_firing *f, double x)
{
    double power = x > 0 ? hth_pow_d(x, f->exponent) : 0, max = x / f->mean;
    return power < max ? power : max;
}

void hth_plan_shares(const hth_plan_firing *firing, uint32_t n, double *share)
{
    double before = 0;
    for (uint32_t i = 0; i < n; i++) {
        double upto = coverage(firing, (i + 1.0) / n), p = firing->mean * (upto - before) * n;
        share[i] = p < 1 ? p : 1;
        before = upto;
    }
}

/* ---- models ---------------------------------------------------------------------------------- */

/* Q4_0: 18 bytes for 32 weights. */
static uint64_t q4_bytes(uint64_t rows, uint64_t columns) { return rows * columns / 32 * 18; }

/* Dispatches of a layer on the device: norm with 8-bit quantisation, QKV, rotation and store, attention, output,
 * norm with quantisation; then gate and up, activation, down. Predictors add two. */
enum { N_DISPATCH = 6, N_DISPATCH_PREDICTOR = 2, N_DISPATCH_HOT = 4 };

static hth_plan_layer shape_layer(const hth_plan_shape *s, const hth_plan_firing *firing)
{
    uint64_t d = s->d_model, d_kv = d / s->n_head * s->n_head_kv, network = 3 * q4_bytes(s->d_ff, d);
    hth_plan_layer l = {.kv_bytes = 2 * d_kv * 2, .n_cluster = s->d_ff / HTH_CLUSTER_NEURONS};
    l.attention_bytes = 2 * q4_bytes(d, d) + 2 * q4_bytes(d_kv, d) + 2 * d * sizeof(float) +
                        (uint64_t)((double)network * firing->predictor);
    for (int i = 0; i < HTH_PLAN_N_KIND; i++) l.cluster_bytes[i] = 3 * q4_bytes(HTH_CLUSTER_NEURONS, d);
    l.n_dispatch = N_DISPATCH + (firing->predictor > 0 ? N_DISPATCH_PREDICTOR : 0);
    l.n_dispatch_hot = N_DISPATCH_HOT;
    return l;
}

hearth_status hth_plan_shape_model(const hth_plan_shape *s, const hth_plan_firing *firing,
                                   hth_plan_model *out, hearth_error *err)
{
    hth_plan_layer layer = shape_layer(s, firing), *layers;
    size_t size = s->n_layer * sizeof layer + layer.n_cluster * sizeof(double);
    *out = (hth_plan_model){0};
    layers = hth_alloc(size, 1);
    if (!layers) return hth_fail_memory(err, size, "the shape of a model");
    double *share = (double *)(layers + s->n_layer);
    hth_plan_shares(firing, layer.n_cluster, share);
    layer.share = share;
    for (uint32_t i = 0; i < s->n_layer; i++) layers[i] = layer;
    out->n_layer = s->n_layer;
    out->layers = layers;
    out->head_bytes = q4_bytes(s->n_vocab, s->d_model);
    /* Device to host: 8-bit values with a scale per 32, a bit per neuron, a line for the count. Host to device:
     * 64-bit sums, and a line. */
    out->d2h_bytes = s->d_model + s->d_model / 32 * 4 + s->d_ff / 8 + 64;
    out->h2d_bytes = (uint64_t)s->d_model * 8 + 64;
    return HEARTH_OK;
}

void hth_plan_shape_free(hth_plan_model *model)
{
    hth_free(model->layers);
    *model = (hth_plan_model){0};
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* Fractions of a GPU's rate at 5, 20, 50 and 100 % of active rows, and of two channels of DDR5-5600: guesses. */
#define DEVICE(BYTES, RATE)                                                                                  \
    {                                                                                                        \
        .name = "the device", .kind = HTH_PLAN_DEVICE, .capacity = (BYTES), .min_active_share = 0.005,       \
        .dispatch = 8e-6, .merge = 16e-6,                                                                    \
        .rates = {{0.60 * (RATE), 0.65 * (RATE), 0.70 * (RATE), 0.85 * (RATE)}},                             \
    }
#define HOST(RATE)                                                                                           \
    {                                                                                                        \
        .name = "the CPU", .kind = HTH_PLAN_HOST, .capacity = UINT64_MAX,                                    \
        .rates = {{0.70 * (RATE), 0.70 * (RATE), 0.75 * (RATE), 0.80 * (RATE)}},                             \
    }
#define MACHINE(BYTES, RATE)                                                                                 \
    {                                                                                                        \
        .n_home = 2, .homes = { DEVICE(BYTES, RATE), HOST(89.6e9) }                                          \
    }
/* 20 and 10 microseconds are guesses; 12.5 and 25 GB/s are 8 and 16 lanes of PCIe 4. */
#define LINK(RATE)                                                                                           \
    {                                                                                                        \
        .submit = 20e-6, .wake = 10e-6, .latency = 1e-6, .d2h_rate = (RATE), .h2d_rate = (RATE),             \
        .jitter = 5e-6                                                                                       \
    }

const hth_plan_card hth_plan_cards[] = {
    {"8 GB", MACHINE((uint64_t)8 << 30, 272e9), LINK(12.5e9)},
    {"12 GB", MACHINE((uint64_t)12 << 30, 504e9), LINK(25e9)},
    {"24 GB", MACHINE((uint64_t)24 << 30, 1008e9), LINK(25e9)},
};
const size_t hth_plan_n_card = sizeof hth_plan_cards / sizeof *hth_plan_cards;
