/* Shares out neuron-major products. One token (or a few, one after another): threads take
 * stretches of the firing list, whole rows at a time, into sums of their own, which are then put
 * together output by output. Several tokens: a unit owns some outputs of a block of tokens and
 * walks through the clusters, so that rows that fire for several tokens are read once. */
#include "kernels/sparse_down.h"

#include "base/bits.h"

#include <assert.h>
#include <string.h>

/* Neurons of a unit of one token; outputs of a unit that puts sums together. */
enum { UNIT_NEURONS = 64, UNIT_OUTPUTS = 1024 };

/* From so many tokens on, a unit holds TILE_TOKENS by TILE_OUTPUTS sums; rows of a cluster that it
 * reads, 256 stretches of TILE_OUTPUTS weights, stay in a core's second cache. */
enum { MIN_TILE_TOKENS = 4, TILE_TOKENS = 32, TILE_OUTPUTS = 512 };

/* Rows whose chains are put together at once (docs/arithmetic.md 6: sums of parts). */
enum { CLUSTER = 256 };

size_t hth_axpy_width(size_t n_out)
{
    size_t whole = (n_out + 255) / 256 * 256, tile = (size_t)TILE_TOKENS * TILE_OUTPUTS;
    return whole > tile ? whole : tile;
}

/* Copied into the queue. */
typedef struct down_job {
    const hth_kernels *k;
    const hth_axpy_scratch *room;
    const hth_active_set *firing;
    hth_axpy_output out;
    size_t n_tok, i_tok; /* i_tok: of a job of one token */
    size_t n_unit;
    uint32_t n_thread;
} down_job;
_Static_assert(sizeof(down_job) <= HTH_POOL_ARG_SIZE, "a product does not fit into the queue");

static hth_type type_of(const down_job *job) { return job->out.down_t->rows.type; }
static size_t n_out_of(const down_job *job) { return job->out.down_t->rows.n_col; }
static bool is_float(const down_job *job) { return hth_type_act_block(type_of(job)) == 0; }

/* The sums of one thread. */
typedef struct own_sums {
    int64_t *wide;
    int32_t *sums, *offsets;
    float *chain;
} own_sums;

static own_sums sums_of(const down_job *job, uint32_t i_thread)
{
    const hth_axpy_scratch *r = job->room;
    size_t at = i_thread * hth_axpy_width(n_out_of(job));
    return (own_sums){r->acc64 + at, r->sums + at, r->offsets + at / 16, r->chain + at};
}

/* ---- the scale of a token -------------------------------------------------------------------- */

/* 2^k and its inverse, by H of the layer or, where a token goes beyond it, its own largest |h|. */
static void choose_scale(void *arg, size_t t, uint32_t i_thread)
{
    const down_job *job = arg;
    const hth_down_t *n = job->out.down_t;
    float top = hth_axpy_absmax_h(job->firing[t].h, job->firing[t].n);
    (void)i_thread;
    if (t == 0) memset(job->room->state, 0, job->n_thread * sizeof *job->room->state);
    if (is_float(job)) {
        job->room->scale[t] = 0x1p32f;
        return;
    }
    job->room->scale[t] = hth_axpy_scale(top <= n->hidden_absmax ? n->hidden_absmax : top, n->scale_max);
}

/* What integers of this token are multiplied with at the end: NaN where they mean nothing. */
static float factor_of(const down_job *job, size_t t)
{
    float scale = job->room->scale[t];
    uint32_t exponent = hth_bits_of(scale) >> 23;
    return scale == 0.0f ? hth_float_of(0x7fc00000u) : hth_float_of((254u - exponent) << 23);
}

/* ---- one token --------------------------------------------------------------------------------- */

/* Entries [first, end) of the list whose neurons lie in cluster i. */
static void entries_of_cluster(const hth_active_set *f, size_t i, size_t *first, size_t *end)
{
    for (int side = 0; side < 2; side++) {
        size_t low = 0, high = f->n;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if ((size_t)f->list[middle] < (i + (size_t)side) * CLUSTER) low = middle + 1;
            else high = middle;
        }
        *(side ? end : first) = low;
    }
}

static hth_axpy_job part_of_list(const down_job *job, size_t t, size_t first, size_t end)
{
    const hth_matrix *m = &job->out.down_t->rows;
    const hth_active_set *f = &job->firing[t];
    return (hth_axpy_job){.w = m->data,
                      .row_size = m->row_size,
                      .n_out = m->n_col,
                      .list = f->list + first,
                      .h = f->h + first,
                      .n = end - first,
                      .n_prefetch = f->n - end,
                      .scale = job->room->scale[t]};
}

/* Neurons of the list into the thread's own sums. */
static void add_neurons(void *arg, size_t i_claim, uint32_t i_thread)
{
    const down_job *job = arg;
    own_sums own = sums_of(job, i_thread);
    hth_axpy_state *state = &job->room->state[i_thread];
    size_t i = hth_pool_block_index(i_claim, job->n_unit, job->n_thread);
    size_t first = i * UNIT_NEURONS, end = first + UNIT_NEURONS, n = job->firing[job->i_tok].n;
    if (is_float(job)) entries_of_cluster(&job->firing[job->i_tok], i, &first, &end);
    hth_axpy_job d = part_of_list(job, job->i_tok, first, end < n ? end : n);
    if (d.n == 0 || d.scale == 0.0f) return;
    state->used = true;
    d.sums = own.sums, d.offsets = own.offsets, d.chain = own.chain;
    if (!is_float(job) && state->n_unflushed + d.n > hth_axpy_limit(type_of(job))) {
        hth_axpy_flush(type_of(job), d.n_out, own.sums, own.offsets, own.wide);
        state->n_unflushed = 0;
    }
    job->k->axpy[type_of(job)](&d);
    state->n_unflushed += (uint32_t)d.n;
    if (is_float(job) && !job->k->axpy_flush_chain(d.n_out, own.chain, own.wide)) state->overflow = true;
}

/* Outputs [first, end) of token t, from their integers, which are zeros then. */
static void finish_outputs(const down_job *job, size_t t, size_t first, size_t end, float factor,
                           int64_t *acc64)
{
    const hth_axpy_output *out = &job->out;
    size_t n = end - first;
    if (out->acc64) {
        int64_t *to = out->acc64 + t * n_out_of(job) + first;
        for (size_t o = 0; o < n; o++) to[o] = out->adds ? to[o] + acc64[o] : acc64[o];
        memset(acc64, 0, n * sizeof *acc64);
        if (factor != factor) __atomic_store_n(out->overflow, true, __ATOMIC_RELAXED);
        return;
    }
    float *y = out->y + t * n_out_of(job) + first;
    hth_axpy_finish(acc64, n, factor, y);
    memset(acc64, 0, n * sizeof *acc64);
    if (out->bias) job->k->add(y, out->bias + first, n, y);
    if (!out->add_to) return;
    float *add_to = out->add_to + t * n_out_of(job) + first;
    job->k->add(add_to, y, n, add_to);
}

/* Some outputs, from what all threads have summed. */
static void join_threads(void *arg, size_t i_unit, uint32_t i_thread)
{
    const down_job *job = arg;
    (void)i_thread;
    size_t first = i_unit * UNIT_OUTPUTS, left = n_out_of(job) - first,
           n = left < UNIT_OUTPUTS ? left : UNIT_OUTPUTS;
    size_t part = is_float(job) ? 1 : hth_axpy_sub_block(type_of(job));
    float factor = factor_of(job, job->i_tok);
    int64_t *total = sums_of(job, 0).wide + first;
    for (uint32_t i = 0; i < job->n_thread; i++) {
        own_sums own = sums_of(job, i);
        int64_t *acc64 = own.wide + first;
        if (!job->room->state[i].used) continue;
        if (job->room->state[i].overflow) factor = hth_float_of(0x7fc00000u);
        if (!is_float(job))
            hth_axpy_flush(type_of(job), n, own.sums + first, own.offsets + first / part, acc64);
        if (i == 0) continue;
        for (size_t o = 0; o < n; o++) total[o] += acc64[o];
        memset(acc64, 0, n * sizeof *acc64);
    }
    finish_outputs(job, job->i_tok, first, first + n, factor, total);
}

static void add_one_token(hth_pool *pool, down_job *job)
{
    size_t n = job->firing[job->i_tok].n;
    const hth_matrix *m = &job->out.down_t->rows;
    job->n_unit = is_float(job) ? (m->n_row + CLUSTER - 1) / CLUSTER : (n + UNIT_NEURONS - 1) / UNIT_NEURONS;
    hth_pool_add(pool, add_neurons, job, sizeof *job, n > 0 ? job->n_unit : 0);
    hth_pool_add(pool, join_threads, job, sizeof *job, (m->n_col + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS);
}

/* ---- several tokens ------------------------------------------------------------------------------ */

/* The neurons of cluster i_cluster that fire for token t, from entry *at of its list on. */
static void add_cluster(const down_job *job, size_t t, size_t i_cluster, size_t *at, hth_axpy_job *d)
{
    const hth_active_set *f = &job->firing[t];
    size_t first = *at, limit = (i_cluster + 1) * CLUSTER;
    while (*at < f->n && (size_t)f->list[*at] < limit) (*at)++;
    d->list = f->list + first, d->h = f->h + first;
    d->n = *at - first, d->n_prefetch = f->n - *at;
    d->scale = job->room->scale[t];
    if (d->scale == 0.0f) d->n = 0;
    if (d->n > 0) job->k->axpy[type_of(job)](d);
}

/* Some outputs of a block of tokens. */
static void compute_tile(void *arg, size_t i_unit, uint32_t i_thread)
{
    const down_job *job = arg;
    const hth_matrix *m = &job->out.down_t->rows;
    const hth_type_info *info = hth_type_find((uint32_t)m->type);
    size_t n_stretch = (m->n_col + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
    size_t first_tok = i_unit / n_stretch * TILE_TOKENS, first = i_unit % n_stretch * TILE_OUTPUTS;
    size_t n_tok = job->n_tok - first_tok < TILE_TOKENS ? job->n_tok - first_tok : TILE_TOKENS;
    size_t n = m->n_col - first < TILE_OUTPUTS ? m->n_col - first : TILE_OUTPUTS;
    size_t at[TILE_TOKENS] = {0}, held[TILE_TOKENS] = {0}, limit = hth_axpy_limit(m->type);
    bool floats = is_float(job), lost[TILE_TOKENS] = {false};
    size_t part = floats ? 1 : hth_axpy_sub_block(m->type);
    own_sums own = sums_of(job, i_thread);
    hth_axpy_job d = {.w = m->data + first / info->n_weight * info->size, .row_size = m->row_size, .n_out = n};
    for (size_t c = 0; c * CLUSTER < m->n_row; c++)
        for (size_t t = 0; t < n_tok; t++) {
            size_t place = t * TILE_OUTPUTS;
            int32_t *sums = own.sums + place, *offsets = own.offsets + place / part;
            int64_t *acc64 = own.wide + place;
            d.sums = sums, d.offsets = offsets, d.chain = own.chain;
            if (held[t] + CLUSTER > limit) {
                hth_axpy_flush(m->type, n, sums, offsets, acc64);
                held[t] = 0;
            }
            add_cluster(job, first_tok + t, c, &at[t], &d);
            held[t] += d.n;
            if (floats && d.n > 0) lost[t] |= !job->k->axpy_flush_chain(n, own.chain, acc64);
        }
    for (size_t t = 0; t < n_tok; t++) {
        size_t place = t * TILE_OUTPUTS;
        float factor = lost[t] ? hth_float_of(0x7fc00000u) : factor_of(job, first_tok + t);
        if (!floats)
            hth_axpy_flush(m->type, n, own.sums + place, own.offsets + place / part, own.wide + place);
        finish_outputs(job, first_tok + t, first, first + n, factor, own.wide + place);
    }
}

/* ---- the queue ------------------------------------------------------------------------------------ */

void hth_axpy_add(const hth_kernels *k, hth_pool *pool, const hth_axpy_scratch *scratch, const hth_active_set *active,
                  size_t n_tok, const hth_axpy_output *out)
{
    down_job job = {.k = k,
                    .room = scratch,
                    .firing = active,
                    .out = *out,
                    .n_tok = n_tok,
                    .n_thread = hth_pool_n_thread(pool)};
    const hth_matrix *m = &out->down_t->rows;
    assert(m->layout == HTH_LAYOUT_ROWS);
    if (n_tok >= MIN_TILE_TOKENS) {
        size_t n_block = (n_tok + TILE_TOKENS - 1) / TILE_TOKENS,
               n_stretch = (m->n_col + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
        hth_pool_add(pool, choose_scale, &job, sizeof job, n_tok);
        hth_pool_add(pool, compute_tile, &job, sizeof job, n_block * n_stretch);
        return;
    }
    for (job.i_tok = 0; job.i_tok < n_tok; job.i_tok++) {
        hth_pool_add(pool, choose_scale, &job, sizeof job, n_tok);
        add_one_token(pool, &job);
    }
}
