/* Shaders of recurrent mixers whose states change with every token, as C functions (shader_params.h): those of
 * device/vulkan/shaders/recurrent, which follow forward/kda.c and forward/ssm.c. They run on the reference device, from any
 * thread. */
#include "forward/gpu/ref/ref_int.h"

#include "kernels/kernels.h"

#include <string.h>

static float exp_of(const hth_kernels *k, float x)
{
    k->exp(&x, 1, &x);
    return x;
}

/* Tokens of a run that a dispatch computes: [first, end) of the step. */
typedef struct part_of_run {
    const uint32_t *run;
    uint32_t first, end;
} part_of_run;

static part_of_run part_of(const uint32_t *run, hth_token_range tokens)
{
    uint32_t first = run[HTH_RUN_FIRST], end = first + run[HTH_RUN_N_TOK], last = tokens.first + tokens.n;
    return (part_of_run){run, first > tokens.first ? first : tokens.first, hth_min_u32(end, last)};
}

/* Copies the states before these tokens, of n words in each page, to the page of those after them. Returns these. */
static float *begin_states(float *states, const part_of_run *p, size_t n)
{
    float *to = states + p->run[HTH_RUN_STEP_TO] * n;
    bool is_first = p->first == p->run[HTH_RUN_FIRST];
    if (is_first && p->run[HTH_RUN_POSITION] == 0) memset(to, 0, n * sizeof *to);
    else if (is_first) memmove(to, states + p->run[HTH_RUN_STEP_FROM] * n, n * sizeof *to);
    return to;
}

/* ---- Kimi Delta Attention ------------------------------------------------------------------------------ */

void hth_ref_kda_rates(const hth_dispatch_args *c)
{
    hth_kernels k;
    hth_push_kda_rates push;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    memcpy(&push, c->push, sizeof push);
    const float *a = c->bind[1], *dt = c->bind[2];
    for (size_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[1]); t++) {
        float *beta = hth_ref_row(c->bind[3], push.beta, t), *decay = hth_ref_row(c->bind[4], push.decay, t);
        for (size_t i = 0; i < (size_t)push.n_head * push.d; i++) {
            float g = decay[i] + dt[i];
            k.softplus(&g, 1, &g);
            decay[i] = exp_of(&k, g * a[i / push.d]);
        }
        k.sigmoid(beta, push.n_head, beta);
    }
}

typedef struct kda {
    const hth_dispatch_args *c;
    hth_push_kda push;
    size_t d, head;
} kda;

static const float *input(const kda *n, int bind, hth_rows_at rows, size_t t)
{
    return hth_ref_row(n->c->bind[bind], rows, t) + n->head * n->d;
}

/* Column j of a token. */
static void run_column(const kda *n, size_t t, size_t j, float *state)
{
    size_t d = n->d;
    const float *query = input(n, 1, n->push.query, t), *key = input(n, 2, n->push.key, t),
                *decay = input(n, 5, n->push.decay, t);
    float from_key = 0.0f, sum = 0.0f, beta = hth_ref_row(n->c->bind[4], n->push.beta, t)[n->head];
    for (size_t i = 0; i < d; i++) {
        state[i * d + j] = state[i * d + j] * decay[i];
        from_key = from_key + key[i] * state[i * d + j];
    }
    float u = (input(n, 3, n->push.value, t)[j] - from_key) * beta;
    for (size_t i = 0; i < d; i++) {
        state[i * d + j] = state[i * d + j] + key[i] * u;
        sum = sum + query[i] * state[i * d + j];
    }
    hth_ref_row(n->c->bind[7], n->push.y, t)[n->head * d + j] = sum * n->push.inverse_root;
}

void hth_ref_kda(const hth_dispatch_args *c)
{
    kda n = {.c = c, .d = c->consts[HTH_KDA_D]};
    memcpy(&n.push, c->push, sizeof n.push);
    for (uint32_t i = 0; i < hth_ref_n_run(c); i++) {
        part_of_run p = part_of(hth_ref_run(c, n.push.runs_at, i), n.push.tokens);
        if (p.first >= p.end) continue;
        float *states = begin_states(c->bind[6], &p, n.push.n_head * n.d * n.d);
        for (size_t t = p.first; t < p.end; t++)
            for (n.head = 0; n.head < n.push.n_head; n.head++)
                for (size_t j = 0; j < n.d; j++) run_column(&n, t, j, states + n.head * n.d * n.d);
    }
}

/* ---- selective state spaces ---------------------------------------------------------------------------- */

void hth_ref_ssm_rates(const hth_dispatch_args *c)
{
    hth_kernels k;
    hth_push_ssm_rates push;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    memcpy(&push, c->push, sizeof push);
    for (size_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[1]); t++) {
        float *delta = hth_ref_row(c->bind[1], push.delta, t);
        k.softplus(delta, push.n, delta);
    }
}

typedef struct scan {
    const hth_dispatch_args *c;
    hth_kernels k;
    hth_push_ssm_scan push;
    bool by_channel;
} scan;

/* A token at a channel of a part, whose states begin at h, n_state of them `step` apart. The channels that fill up the
 * last quad have inputs of 0. */
static void run_channel(const scan *n, size_t t, size_t part, size_t channel, float *h, size_t step)
{
    const hth_push_ssm_scan *push = &n->push;
    const float *rates = n->c->bind[3];
    bool is_there = channel < push->size, has_rate = is_there || !n->by_channel;
    size_t i_rate = n->by_channel ? channel : part, group = part / push->n_shared * push->n_state,
           at = part * push->size + channel;
    const float *b = (const float *)hth_ref_row(n->c->bind[4], push->b, t) + group,
                *c = (const float *)hth_ref_row(n->c->bind[5], push->c, t) + group;
    float x = is_there ? hth_ref_row(n->c->bind[1], push->x, t)[at] : 0.0f,
          delta = has_rate ? hth_ref_row(n->c->bind[2], push->delta, t)[i_rate] : 0.0f, u = delta * x,
          sum = 0.0f;
    for (size_t i = 0; i < push->n_state; i++, h += step) {
        float rate = has_rate ? rates[(n->by_channel ? i * push->size : 0) + i_rate] : 0.0f;
        *h = *h * exp_of(&n->k, delta * rate) + b[i] * u;
        sum = sum + *h * c[i];
    }
    if (is_there) hth_ref_row(n->c->bind[7], push->y, t)[at] = sum + rates[push->d_at + i_rate] * x;
}

void hth_ref_ssm_scan(const hth_dispatch_args *c)
{
    scan n = {.c = c, .by_channel = c->consts[HTH_SSM_SCAN_BY_CHANNEL]};
    hth_kernels_init(&n.k, HTH_CPU_GENERIC);
    memcpy(&n.push, c->push, sizeof n.push);
    size_t step = 4 * (size_t)hth_ssm_quads(n.push.size), of_part = n.push.n_state * step;
    for (uint32_t i = 0; i < hth_ref_n_run(c); i++) {
        part_of_run p = part_of(hth_ref_run(c, n.push.runs_at, i), n.push.tokens);
        if (p.first >= p.end) continue;
        float *states = begin_states(c->bind[6], &p, n.push.n_part * of_part);
        for (size_t t = p.first; t < p.end; t++)
            for (size_t part = 0; part < n.push.n_part; part++)
                for (size_t channel = 0; channel < step; channel++)
                    run_channel(&n, t, part, channel, states + part * of_part + channel, step);
    }
}
