/* Shaders of the transposed down as C functions (shader_params.h), by the definitions of docs/arithmetic.md 6.
 * They run on the reference device, from any thread. */
#include "forward/gpu/ref_int.h"

#include "base/bits.h"
#include "kernels/quant/blocks.h"
#include "kernels/axpy/axpy.h"
#include "forward/gpu/weight_layout.h"

#include <string.h>

void hth_ref_down_scale(const hth_dispatch_args *c)
{
    const float *d_max = c->bind[2];
    hth_push_down_scale push;
    memcpy(&push, c->push, sizeof push);
    for (uint32_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[1]); t++)
        for (uint32_t i = 0; i < c->grid[0]; i++) {
            uint32_t first = i * HTH_CLUSTER_NEURONS, n = hth_min_u32(push.n - first, HTH_CLUSTER_NEURONS);
            const float *h = (const float *)c->bind[1] + (size_t)t * push.stride + first;
            ((float *)c->bind[3])[(size_t)t * c->grid[0] + i] = hth_axpy_scale(h, n, d_max[i], push.safe_exponent);
        }
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
    const float *h;      /* of the token */
    const float *scales; /* of the token, by cluster */
} down;

static down down_of(const hth_dispatch_args *c)
{
    down d = {.planes = c->bind[1]};
    memcpy(&d.desc, c->consts + HTH_DOWN_FORMAT, sizeof d.desc);
    memcpy(&d.push, c->push, sizeof d.push);
    return d;
}

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

static void split_of_token(const down *d, uint32_t split, int32_t *sums)
{
    uint32_t first = split * HTH_DOWN_SPLIT,
             end = (uint32_t)hth_min_u64(d->push.n_neuron, (uint64_t)first + HTH_DOWN_SPLIT);
    float scale = d->scales[(d->push.first + first) / HTH_CLUSTER_NEURONS];
    hth_soa_block k;
    memset(sums, 0, (size_t)d->push.n_block * d->desc.block * sizeof *sums);
    for (uint32_t n = first; n < end; n++) {
        if (d->h[n] == 0.0f) continue;
        for (uint32_t b = 0; b < d->push.n_block; b++) {
            hth_soa_layout_unpack(&d->desc, &d->push.at, d->planes, d->push.n_block, n, b, &k);
            add_block(&d->desc, &k, d->h[n] * scale, sums + (size_t)b * d->desc.block);
        }
    }
}

void hth_ref_down_q(const hth_dispatch_args *c)
{
    down d = down_of(c);
    size_t n_out = (size_t)d.push.n_block * d.desc.block;
    int32_t *sums = c->bind[4];
    uint64_t max = (uint64_t)c->grid[2] * c->consts[HTH_DOWN_COLS];
    for (uint32_t i = 0; i < hth_gpu_tokens(c, d.push.first_tok, max); i++) {
        uint32_t t = d.push.first_tok + i;
        d.h = (const float *)c->bind[2] + (size_t)t * d.push.stride + d.push.first;
        d.scales = (const float *)c->bind[3] + (size_t)t * d.push.n_cluster;
        for (uint32_t s = 0; s < c->grid[1]; s++)
            split_of_token(&d, s,
                           sums + ((size_t)i * d.push.n_split + d.push.first_split + s) * n_out);
    }
}

/* ---- rows of floats -------------------------------------------------------------------------------- */

void hth_ref_down_f(const hth_dispatch_args *c)
{
    hth_push_down_f push;
    memcpy(&push, c->push, sizeof push);
    hth_type type = (hth_type)c->consts[HTH_DOWN_F_TYPE];
    size_t row_size = (size_t)hth_soa_row_words(type, push.n_out) * 4;
    for (uint32_t i = 0; i < hth_gpu_tokens(c, push.first_tok, c->grid[2]); i++) {
        const float *h = (const float *)c->bind[2] + (size_t)(push.first_tok + i) * push.stride + push.first;
        float *chains =
            (float *)c->bind[3] + ((size_t)i * push.n_group + push.first / HTH_CLUSTER_NEURONS) * push.n_out;
        memset(chains, 0, (size_t)c->grid[1] * push.n_out * sizeof *chains);
        for (uint32_t n = 0; n < push.n_neuron; n++) {
            float *chain = chains + (size_t)(n / HTH_CLUSTER_NEURONS) * push.n_out;
            const uint8_t *row = (const uint8_t *)c->bind[1] + n * row_size;
            if (h[n] == 0.0f) continue;
            for (uint32_t o = 0; o < push.n_out; o++)
                chain[o] = chain[o] + hth_gpu_float_at(type, row, push.n_out, o) * h[n];
        }
    }
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
