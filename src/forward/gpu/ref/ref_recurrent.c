/* Shaders of recurrent mixers as C functions (shader_params.h): those of device/vulkan/shaders/recurrent, which follow
 * forward/conv.c and forward/delta_net.c. They run on the reference device, from any thread. */
#include "forward/gpu/ref/ref_int.h"

#include "kernels/kernels.h"
#include "model/model.h"

#include <string.h>

/* ---- convolution --------------------------------------------------------------------------------------- */

static float *slot_of(const hth_dispatch_args *c, const hth_push_conv *push, size_t page, uint32_t position)
{
    return (float *)c->bind[4] + (page * HTH_CONV_RING + position % HTH_CONV_RING) * push->n_channel;
}

static void convolve(const hth_dispatch_args *c, const hth_kernels *k, const hth_push_conv *push,
                     const uint32_t *run)
{
    uint32_t n_before = push->d_conv - 1, position = run[HTH_RUN_POSITION], n_tok = run[HTH_RUN_N_TOK];
    for (uint32_t i = 0; i < push->n_channel; i++) {
        float before[HTH_CONV_MAX_TAP] = {0};
        for (uint32_t j = 0; j < n_before; j++)
            if (position + j >= n_before)
                before[j] = slot_of(c, push, run[HTH_RUN_STEP_FROM], position + j - n_before)[i];
        for (uint32_t t = 0; t < n_tok; t++) {
            float inputs[HTH_CONV_MAX_TAP], taps[HTH_CONV_MAX_TAP],
                *y = hth_ref_row(c->bind[5], push->y, run[HTH_RUN_FIRST] + t);
            const float *rows[HTH_CONV_MAX_TAP];
            for (uint32_t j = 0; j < push->d_conv; j++) {
                uint32_t at = t + j;
                inputs[j] = at < n_before
                                ? before[at]
                                : hth_ref_row(c->bind[1], push->x, run[HTH_RUN_FIRST] + at - n_before)[i];
                taps[j] = ((const float *)c->bind[2])[(size_t)j * push->n_channel + i], rows[j] = &inputs[j];
            }
            k->conv(rows, taps, push->d_conv, 1, &y[i]);
            if (push->has_bias) y[i] = y[i] + ((const float *)c->bind[3])[i];
            if (push->silu) k->activate[HTH_ACTIVATION_SILU](NULL, &y[i], 1, &y[i]);
        }
        for (uint32_t j = 0; j < n_before; j++)
            if (position + j >= n_before)
                slot_of(c, push, run[HTH_RUN_STEP_TO], position + j - n_before)[i] = before[j];
        for (uint32_t t = n_tok > HTH_CONV_RING ? n_tok - HTH_CONV_RING : 0; t < n_tok; t++)
            slot_of(c, push, run[HTH_RUN_STEP_TO], position + t)[i] =
                hth_ref_row(c->bind[1], push->x, run[HTH_RUN_FIRST] + t)[i];
    }
}

void hth_ref_conv(const hth_dispatch_args *c)
{
    hth_kernels k;
    hth_push_conv push;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    memcpy(&push, c->push, sizeof push);
    for (uint32_t i = 0; i < hth_ref_n_run(c); i++) convolve(c, &k, &push, hth_ref_run(c, push.runs_at, i));
}

/* ---- gated DeltaNet ------------------------------------------------------------------------------------ */

void hth_ref_delta_rates(const hth_dispatch_args *c)
{
    hth_kernels k;
    hth_push_delta_rates push;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    memcpy(&push, c->push, sizeof push);
    const float *a = c->bind[3], *dt = c->bind[4];
    for (size_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[1]); t++)
        for (size_t i = 0; i < push.n_head; i++) {
            size_t at = push.joined ? i / push.n_shared * 2 * push.n_shared + i % push.n_shared : i;
            const float *beta = hth_ref_row(c->bind[1], push.beta, t) + at;
            float raw = push.joined ? beta[push.n_shared] : hth_ref_row(c->bind[2], push.decay, t)[at],
                  shifted = raw + dt[i];
            k.softplus(&shifted, 1, &shifted);
            k.sigmoid(beta, 1, hth_ref_row(c->bind[5], push.to_beta, t) + i);
            hth_ref_row(c->bind[6], push.to_decay, t)[i] = a[i] * shifted;
        }
}

typedef struct delta {
    const hth_dispatch_args *c;
    hth_kernels k;
    hth_push_delta_net push;
    uint32_t d, i_key;
} delta;

static float exp_of(const delta *n, float x)
{
    n->k.exp(&x, 1, &x);
    return x;
}

static float sum_of(const float *a, size_t a_step, const float *b, size_t b_step, size_t n, float sum)
{
    for (size_t i = 0; i < n; i++) sum = sum + a[i * a_step] * b[i * b_step];
    return sum;
}

/* Token `at` of its chunk at a head, whose state, u and decays begin at `part`. */
static void run_token(const delta *n, size_t t, size_t head, uint32_t at, bool has_state,
                      const float *products[2], float *part)
{
    size_t d = n->d;
    const float *query = hth_ref_row(n->c->bind[1], n->push.x, t) + n->i_key * d,
                *key = query + n->push.n_head_key * d,
                *value = hth_ref_row(n->c->bind[1], n->push.x, t) + (2 * n->push.n_head_key + head) * d;
    float *u = part + d * d, *decays = u + d * HTH_CHUNK, of_key[HTH_CHUNK], of_query[HTH_CHUNK];
    float g = hth_ref_row(n->c->bind[3], n->push.decay, t)[head],
          beta = hth_ref_row(n->c->bind[2], n->push.beta, t)[head];
    if (at > 0) g = decays[at - 1] + g;
    decays[at] = g;
    for (uint32_t i = 0; i <= at; i++) {
        float e = exp_of(n, g - decays[i]);
        of_key[i] = -(e * products[0][i]), of_query[i] = e * products[1][i];
    }
    for (size_t j = 0; j < d; j++) {
        float e = exp_of(n, g), *y = hth_ref_row(n->c->bind[5], n->push.y, t) + head * d + j;
        float from_key = has_state ? sum_of(key, 1, part + j, d, d, 0.0f) : 0.0f,
              from_query = has_state ? sum_of(query, 1, part + j, d, d, 0.0f) : 0.0f;
        u[at * d + j] = sum_of(of_key, 1, u + j, d, at, value[j] - e * from_key) * beta;
        *y = sum_of(of_query, 1, u + j, d, at + 1, e * from_query) * n->push.inverse_root;
    }
}

static void end_chunk(const delta *n, const float *keys, const float *part, bool has_state, float *to)
{
    size_t d = n->d;
    const float *u = part + d * d, *decays = u + d * HTH_CHUNK;
    float last = decays[HTH_CHUNK - 1], e = exp_of(n, last), weighted[HTH_CHUNK], factors[HTH_CHUNK];
    for (size_t c = 0; c < HTH_CHUNK; c++) factors[c] = exp_of(n, last - decays[c]);
    for (size_t i = 0; i < d; i++) {
        for (size_t c = 0; c < HTH_CHUNK; c++) weighted[c] = keys[i * HTH_CHUNK + c] * factors[c];
        for (size_t j = 0; j < d; j++)
            to[i * d + j] = sum_of(weighted, 1, u + j, d, HTH_CHUNK, has_state ? part[i * d + j] * e : 0.0f);
    }
}

static void run_head(const delta *n, const uint32_t *run)
{
    size_t d = n->d, part_words = d * d + d * HTH_CHUNK + HTH_CHUNK,
           size = d * HTH_CHUNK + n->push.n_shared * part_words, page_words = n->push.n_head_key * size;
    uint32_t position = run[HTH_RUN_POSITION];
    float *states = (float *)n->c->bind[4] + n->i_key * size,
          *next = states + run[HTH_RUN_CHUNK_TO] * page_words;
    for (uint32_t i = 0; i < run[HTH_RUN_N_TOK]; i++) {
        uint32_t p = position + i, at = p % HTH_CHUNK;
        bool is_first = p / HTH_CHUNK == position / HTH_CHUNK, has_state = p >= HTH_CHUNK;
        size_t t = run[HTH_RUN_FIRST] + i;
        if (t < n->push.tokens.first || t >= n->push.tokens.first + n->push.tokens.n) continue;
        float *keys = is_first ? states + run[HTH_RUN_CHUNK_FROM] * page_words : next;
        const float *query = hth_ref_row(n->c->bind[1], n->push.x, t) + n->i_key * d,
                    *key = query + n->push.n_head_key * d;
        float by_key[HTH_CHUNK], by_query[HTH_CHUNK];
        for (size_t k = 0; k < d; k++) keys[k * HTH_CHUNK + at] = key[k];
        for (uint32_t c = 0; c <= at; c++) {
            by_key[c] = sum_of(key, 1, keys + c, HTH_CHUNK, d, 0.0f);
            by_query[c] = sum_of(query, 1, keys + c, HTH_CHUNK, d, 0.0f);
        }
        for (size_t s = 0; s < n->push.n_shared; s++) {
            size_t head = n->push.interleaved ? s * n->push.n_head_key + n->i_key
                                              : n->i_key * n->push.n_shared + s,
                   in_head = d * HTH_CHUNK + s * part_words;
            run_token(n, t, head, at, has_state, (const float *[]){by_key, by_query}, keys + in_head);
            if (at + 1 == HTH_CHUNK) end_chunk(n, keys, keys + in_head, has_state, next + in_head);
        }
    }
}

void hth_ref_delta_net(const hth_dispatch_args *c)
{
    delta n = {.c = c, .d = c->consts[HTH_DELTA_NET_D]};
    hth_kernels_init(&n.k, HTH_CPU_GENERIC);
    memcpy(&n.push, c->push, sizeof n.push);
    for (uint32_t i = 0; i < hth_ref_n_run(c); i++)
        for (n.i_key = 0; n.i_key < c->grid[0]; n.i_key++) run_head(&n, hth_ref_run(c, n.push.runs_at, i));
}
