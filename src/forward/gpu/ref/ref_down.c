/* Shaders of the transposed down as C functions (shader_params.h), by the definitions of docs/arithmetic.md 6.
 * They run on the reference device, from any thread. */
#include "forward/gpu/ref/ref_int.h"

#include "base/bits.h"
#include "kernels/quant/blocks.h"
#include "kernels/axpy/axpy.h"
#include "forward/gpu/weight_layout.h"

#include <string.h>

/* ---- neurons ---------------------------------------------------------------------------------------- */

/* The neurons of a grid: all of the weights, or (n_used > 0) those of the slices that were chosen for each token. */
typedef struct neurons {
    uint32_t n, stride;
    const float *h;        /* [token][stride] */
    const uint32_t *pairs; /* [token][2][n_used] */
    uint32_t n_used;
} neurons;

/* The neurons of a cluster, or of a split: rows [first, end) of the weights. */
typedef struct run {
    uint32_t first, end;
    float h[HTH_CLUSTER_NEURONS];
} run;

/* Number i of the runs of `span` neurons of token t. */
static run run_of(const neurons *a, uint32_t t, uint32_t i, uint32_t span)
{
    const float *h = a->h + (size_t)t * a->stride;
    uint32_t slice = 0;
    float weight = 1.0f;
    if (a->n_used > 0) {
        uint32_t n_of_pair = hth_down_clusters(a->n) * (HTH_CLUSTER_NEURONS / span), pair = i / n_of_pair;
        const uint32_t *of_token = a->pairs + (size_t)t * 2 * a->n_used;
        slice = of_token[pair] * a->n, weight = hth_float_of(of_token[a->n_used + pair]);
        h += (size_t)pair * a->n;
        i = slice / HTH_CLUSTER_NEURONS * (HTH_CLUSTER_NEURONS / span) + i % n_of_pair;
    }
    run r = {.first = i * span > slice ? i * span : slice, .end = hth_min_u32((i + 1) * span, slice + a->n)};
    if (r.end < r.first) r.end = r.first;
    for (uint32_t n = r.first; n < r.end; n++) r.h[n - r.first] = h[n - slice] * weight;
    return r;
}

/* ---- scales ------------------------------------------------------------------------------------------ */

static void down_scale(const hth_dispatch_args *c, const hth_push_down_scale *push, const neurons *of)
{
    const float *d_max = c->bind[2];
    for (uint32_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[1]); t++)
        for (uint32_t i = 0; i < c->grid[0]; i++) {
            const run r = run_of(of, t, i, HTH_CLUSTER_NEURONS);
            float bound = r.first < r.end ? d_max[r.first / HTH_CLUSTER_NEURONS] : 0.0f;
            ((float *)c->bind[3])[(size_t)t * c->grid[0] + i] =
                hth_axpy_scale(r.h, r.end - r.first, bound, push->safe_exponent);
        }
}

void hth_ref_down_scale(const hth_dispatch_args *c)
{
    hth_push_down_scale push;
    memcpy(&push, c->push, sizeof push);
    const neurons of = {.n = push.n, .stride = push.stride, .h = c->bind[1]};
    down_scale(c, &push, &of);
}

void hth_ref_down_scale_sliced(const hth_dispatch_args *c)
{
    hth_push_down_scale_sliced push;
    memcpy(&push, c->push, sizeof push);
    const neurons of = {push.neurons.n, push.neurons.stride, c->bind[1], c->bind[4], push.n_used};
    down_scale(c, &push.neurons, &of);
}

/* The sum of a split as Q31.32; undefined without a scale. */
static uint64_t to_fixed(int32_t sum, float scale)
{
    return (uint64_t)(int64_t)sum << (hth_axpy_shift(scale) & 63);
}

/* ---- quantised rows ------------------------------------------------------------------------------- */

typedef struct down {
    hth_quant_desc desc;
    hth_push_down push;
    const uint8_t *planes;
} down;

/* Adds one neuron's block to its outputs. Without a scale the sums are undefined. */
static void add_block(const hth_quant_desc *f, const hth_soa_block *k, float h, int32_t *sums)
{
    for (uint32_t i = 0; i < f->block / 16; i++) {
        float m = f->block == 32 ? -k->m : k->m * (float)k->sub_min[i];
        int32_t c = hth_round_even(h * (f->part ? k->d * (float)k->sub_scale[i] : k->d));
        int32_t cm = f->minima ? hth_round_even(h * m) : 0;
        for (uint32_t o = 16 * i; o < 16 * i + 16; o++)
            sums[o] =
                hth_wrapping_sum(sums[o], hth_wrapping_sum((int32_t)((uint32_t)c * (uint32_t)k->w[o]), -cm));
    }
}

static void add_run(const down *d, const run *r, float scale, int32_t *sums)
{
    hth_soa_block k;
    memset(sums, 0, (size_t)d->push.n_block * d->desc.block * sizeof *sums);
    for (uint32_t n = r->first; n < r->end; n++) {
        float h = r->h[n - r->first];
        if (h == 0.0f) continue;
        for (uint32_t b = 0; b < d->push.n_block; b++) {
            hth_soa_layout_unpack(&d->desc, &d->push.at, d->planes, d->push.n_block, n, b, &k);
            add_block(&d->desc, &k, h * scale, sums + (size_t)b * d->desc.block);
        }
    }
}

static void down_q(const hth_dispatch_args *c, const hth_push_down *push, const neurons *of)
{
    down d = {.push = *push, .planes = c->bind[1]};
    memcpy(&d.desc, c->consts + HTH_DOWN_FORMAT, sizeof d.desc);
    size_t n_out = (size_t)push->n_block * d.desc.block;
    int32_t *sums = c->bind[4];
    uint64_t max = (uint64_t)c->grid[2] * c->consts[HTH_DOWN_COLS];
    for (uint32_t i = 0; i < hth_gpu_tokens(c, push->first_tok, max); i++) {
        uint32_t t = push->first_tok + i;
        const float *scales = (const float *)c->bind[3] + (size_t)t * push->n_cluster;
        for (uint32_t s = 0; s < c->grid[1]; s++) {
            const run r = run_of(of, t, s, HTH_DOWN_SPLIT);
            add_run(&d, &r, scales[(push->first + s * HTH_DOWN_SPLIT) / HTH_CLUSTER_NEURONS],
                    sums + ((size_t)i * push->n_split + push->first_split + s) * n_out);
        }
    }
}

void hth_ref_down_q(const hth_dispatch_args *c)
{
    hth_push_down push;
    memcpy(&push, c->push, sizeof push);
    const neurons of = {.n = push.n_neuron, .stride = push.stride, .h = (const float *)c->bind[2] + push.first};
    down_q(c, &push, &of);
}

void hth_ref_down_q_sliced(const hth_dispatch_args *c)
{
    hth_push_down_sliced push;
    memcpy(&push, c->push, sizeof push);
    const neurons of = {push.neurons.n_neuron, push.neurons.stride, c->bind[2], c->bind[5], push.n_used};
    down_q(c, &push.neurons, &of);
}

/* ---- rows of floats -------------------------------------------------------------------------------- */

static void add_floats(hth_type type, const uint8_t *rows, const run *r, size_t n_out, float *chain)
{
    size_t row_size = (size_t)hth_soa_row_words(type, n_out) * 4;
    memset(chain, 0, n_out * sizeof *chain);
    for (uint32_t n = r->first; n < r->end; n++) {
        float h = r->h[n - r->first];
        if (h == 0.0f) continue;
        for (size_t o = 0; o < n_out; o++)
            chain[o] = chain[o] + hth_gpu_float_at(type, rows + n * row_size, n_out, o) * h;
    }
}

static void down_f(const hth_dispatch_args *c, const hth_push_down_f *push, const neurons *of)
{
    float *chains = (float *)c->bind[3] + (size_t)(push->first / HTH_CLUSTER_NEURONS) * push->n_out;
    for (uint32_t i = 0; i < hth_gpu_tokens(c, push->first_tok, c->grid[2]); i++)
        for (uint32_t g = 0; g < c->grid[1]; g++) {
            const run r = run_of(of, push->first_tok + i, g, HTH_CLUSTER_NEURONS);
            add_floats((hth_type)c->consts[HTH_DOWN_F_TYPE], c->bind[1], &r, push->n_out,
                       chains + ((size_t)i * push->n_group + g) * push->n_out);
        }
}

void hth_ref_down_f(const hth_dispatch_args *c)
{
    hth_push_down_f push;
    memcpy(&push, c->push, sizeof push);
    const neurons of = {.n = push.n_neuron, .stride = push.stride, .h = (const float *)c->bind[2] + push.first};
    down_f(c, &push, &of);
}

void hth_ref_down_f_sliced(const hth_dispatch_args *c)
{
    hth_push_down_f_sliced push;
    memcpy(&push, c->push, sizeof push);
    const neurons of = {push.neurons.n_neuron, push.neurons.stride, c->bind[2], c->bind[4], push.n_used};
    down_f(c, &push.neurons, &of);
}

/* ---- sums -------------------------------------------------------------------------------------------- */

/* Adds the parts of one output. false: one is out of bounds. */
static bool add_parts(const hth_dispatch_args *c, const hth_push_down_reduce *push, uint32_t i_tok,
                      const float *scales, uint32_t o, int64_t *total)
{
    bool floats = c->consts[HTH_DOWN_REDUCE_FLOATS] > 0, in_range = true;
    uint64_t sum = 0; /* wraps where a scale is 0 */
    for (uint32_t i = 0; i < push->n_cluster; i++) in_range &= scales[i] != 0.0f;
    for (uint32_t s = 0; s < push->n_split; s++) {
        size_t at = ((size_t)i_tok * push->n_split + s) * push->n_out + o;
        float chain = floats ? ((const float *)c->bind[1])[at] : 0.0f;
        if (floats) in_range &= hth_axpy_flush_chain(1, &chain, total);
        else sum += to_fixed(((const int32_t *)c->bind[1])[at], scales[s * HTH_DOWN_SPLIT / HTH_CLUSTER_NEURONS]);
    }
    *total = (int64_t)((uint64_t)*total + sum);
    return in_range;
}

void hth_ref_down_accumulate(const hth_dispatch_args *c)
{
    hth_push_down_accumulate push;
    const int32_t *sums = c->bind[1];
    uint32_t *acc64 = c->bind[2];
    const uint32_t *host = c->bind[3];
    bool adds_host = c->consts[HTH_DOWN_ACCUMULATE_HOST] > 0;
    memcpy(&push, c->push, sizeof push);
    for (uint32_t i = 0; i < hth_gpu_tokens(c, push.first_tok, c->grid[1]); i++) {
        const float *scales = (const float *)c->bind[4] + (size_t)(push.first_tok + i) * push.n_cluster;
        for (uint32_t o = 0; o < push.n_out; o++) {
            uint32_t *to = acc64 + HTH_HOST_SUMS + 2 * ((size_t)(push.first_tok + i) * push.n_out + o);
            uint64_t total = 0, given = 0;
            if (!push.start) memcpy(&total, to, sizeof total);
            if (adds_host && host[0] == HTH_HOST_SUMS_VALID) memcpy(&given, host + (to - acc64), sizeof given);
            total += given;
            for (uint32_t s = 0; s < push.n_split; s++)
                total += to_fixed(sums[((size_t)i * push.n_split + s) * push.n_out + o],
                                            scales[(push.first + s * HTH_DOWN_SPLIT) / HTH_CLUSTER_NEURONS]);
            memcpy(to, &total, sizeof total);
        }
        if (push.start) *acc64 = HTH_HOST_SUMS_VALID;
        if (adds_host && host[0] == HTH_HOST_SUMS_OVERFLOW) *acc64 = HTH_HOST_SUMS_OVERFLOW;
    }
}

static void join(const hth_dispatch_args *c, bool accumulate)
{
    hth_push_down_reduce push;
    const uint32_t *host = c->bind[3];
    bool has_host = c->consts[HTH_DOWN_REDUCE_HOST] > 0;
    const float *bias = c->bind[4];
    memcpy(&push, c->push, sizeof push);
    for (uint32_t i = 0; i < hth_gpu_tokens(c, push.first_tok, c->grid[1]); i++) {
        uint32_t t = push.first_tok + i;
        const float *scales = (const float *)c->bind[2] + (size_t)t * push.n_cluster;
        for (uint32_t o = 0; o < push.n_out; o++) {
            int64_t total = 0;
            if (has_host && host[0] == HTH_HOST_SUMS_VALID)
                memcpy(&total, host + HTH_HOST_SUMS + 2 * ((size_t)t * push.n_out + o), sizeof total);
            bool in_range = add_parts(c, &push, i, scales, o, &total);
            float *y = (float *)c->bind[5] + (size_t)t * push.n_out + o, value;
            hth_axpy_finish(&total, 1, &value);
            if (!in_range || (has_host && host[0] == HTH_HOST_SUMS_OVERFLOW)) value = hth_float_of(0x7fc00000u);
            if (push.has_bias) value = value + bias[o];
            *y = accumulate ? *y + value : value;
        }
    }
}

void hth_ref_down_reduce(const hth_dispatch_args *c) { join(c, false); }
void hth_ref_down_reduce_acc(const hth_dispatch_args *c) { join(c, true); }
