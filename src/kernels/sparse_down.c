/* Distributes neuron-major products over threads. One token (or a few, one after another): each thread adds
 * whole rows of parts of the active list to its own sums, which are then added output by output. Several
 * tokens: a unit computes some outputs of a block of tokens and iterates over the clusters, so that rows that
 * are active for several tokens are read once. */
#include "kernels/sparse_down.h"

#include "base/bits.h"

#include <assert.h>
#include <string.h>

/* Neurons of a unit of one token; outputs of a unit that adds the threads' sums. */
enum { UNIT_NEURONS = 64, UNIT_OUTPUTS = 1024 };

/* From MIN_TILE_TOKENS tokens on, a unit holds TILE_TOKENS by TILE_OUTPUTS sums. The part of a cluster that it
 * reads, 256 rows of TILE_OUTPUTS weights, stays in a core's L2 cache. */
enum { MIN_TILE_TOKENS = 4, TILE_TOKENS = 32, TILE_OUTPUTS = 512 };

/* Rows whose chains are flushed together (docs/arithmetic.md 6: sums of parts). */
enum { CLUSTER = 256 };

size_t hth_axpy_width(size_t n_out)
{
    size_t whole = (n_out + 255) / 256 * 256, tile = (size_t)TILE_TOKENS * TILE_OUTPUTS;
    return whole > tile ? whole : tile;
}

/* Copied into the queue. */
typedef struct down_job {
    const hth_kernels *k;
    const hth_axpy_scratch *workspace;
    const hth_active_set *active_sets;
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
    int64_t *sums64;
    int32_t *sums, *offsets;
    float *chain;
} own_sums;

static own_sums sums_of(const down_job *job, uint32_t i_thread)
{
    const hth_axpy_scratch *r = job->workspace;
    size_t at = i_thread * hth_axpy_width(n_out_of(job));
    return (own_sums){r->acc64 + at, r->sums + at, r->offsets + at / 16, r->chain + at};
}

/* ---- the scale of a token -------------------------------------------------------------------- */

/* 2^k, from H of the layer or, if a token exceeds it, from its own largest |h|. */
static void choose_scale(void *arg, size_t t, uint32_t i_thread)
{
    const down_job *job = arg;
    const hth_transposed_down *n = job->out.down_t;
    float top = hth_axpy_absmax_h(job->active_sets[t].h, job->active_sets[t].n);
    (void)i_thread;
    if (t == 0) memset(job->workspace->state, 0, job->n_thread * sizeof *job->workspace->state);
    if (is_float(job)) {
        job->workspace->scale[t] = 0x1p32f;
        return;
    }
    job->workspace->scale[t] = hth_axpy_scale(top <= n->hidden_absmax ? n->hidden_absmax : top, n->scale_max);
}

/* The factor that converts integer sums of this token at the end: NaN if they are undefined. */
static float factor_of(const down_job *job, size_t t)
{
    float scale = job->workspace->scale[t];
    uint32_t exponent = hth_bits_of(scale) >> 23;
    return scale == 0.0f ? hth_float_of(0x7fc00000u) : hth_float_of((254u - exponent) << 23);
}

/* ---- one token --------------------------------------------------------------------------------- */

/* Entries [first, end) of the list whose neurons are in cluster i. */
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
    const hth_active_set *f = &job->active_sets[t];
    return (hth_axpy_job){.w = m->data,
                      .row_size = m->row_size,
                      .n_out = m->n_col,
                      .list = f->list + first,
                      .h = f->h + first,
                      .n = end - first,
                      .n_prefetch = f->n - end,
                      .scale = job->workspace->scale[t]};
}

/* Adds neurons of the list to the thread's own sums. */
static void add_neurons(void *arg, size_t i_claim, uint32_t i_thread)
{
    const down_job *job = arg;
    own_sums own = sums_of(job, i_thread);
    hth_axpy_state *state = &job->workspace->state[i_thread];
    size_t i = hth_pool_block_index(i_claim, job->n_unit, job->n_thread);
    size_t first = i * UNIT_NEURONS, end = first + UNIT_NEURONS, n = job->active_sets[job->i_tok].n;
    if (is_float(job)) entries_of_cluster(&job->active_sets[job->i_tok], i, &first, &end);
    hth_axpy_job d = part_of_list(job, job->i_tok, first, end < n ? end : n);
    if (d.n == 0 || d.scale == 0.0f) return;
    state->used = true;
    d.sums = own.sums, d.offsets = own.offsets, d.chain = own.chain;
    if (!is_float(job) && state->n_unflushed + d.n > hth_axpy_limit(type_of(job))) {
        hth_axpy_flush(type_of(job), d.n_out, own.sums, own.offsets, own.sums64);
        state->n_unflushed = 0;
    }
    job->k->axpy[type_of(job)](&d);
    state->n_unflushed += (uint32_t)d.n;
    if (is_float(job) && !job->k->axpy_flush_chain(d.n_out, own.chain, own.sums64)) state->overflow = true;
}

/* Converts outputs [first, end) of token t from their integers, and sets the integers to zero. */
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

/* Computes some outputs from the sums of all threads. */
static void join_threads(void *arg, size_t i_unit, uint32_t i_thread)
{
    const down_job *job = arg;
    (void)i_thread;
    size_t first = i_unit * UNIT_OUTPUTS, left = n_out_of(job) - first,
           n = left < UNIT_OUTPUTS ? left : UNIT_OUTPUTS;
    size_t part = is_float(job) ? 1 : hth_axpy_sub_block(type_of(job));
    float factor = factor_of(job, job->i_tok);
    int64_t *total = sums_of(job, 0).sums64 + first;
    for (uint32_t i = 0; i < job->n_thread; i++) {
        own_sums own = sums_of(job, i);
        int64_t *acc64 = own.sums64 + first;
        if (!job->workspace->state[i].used) continue;
        if (job->workspace->state[i].overflow) factor = hth_float_of(0x7fc00000u);
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
    size_t n = job->active_sets[job->i_tok].n;
    const hth_matrix *m = &job->out.down_t->rows;
    job->n_unit = is_float(job) ? (m->n_row + CLUSTER - 1) / CLUSTER : (n + UNIT_NEURONS - 1) / UNIT_NEURONS;
    hth_pool_add(pool, add_neurons, job, sizeof *job, n > 0 ? job->n_unit : 0);
    hth_pool_add(pool, join_threads, job, sizeof *job, (m->n_col + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS);
}

/* ---- several tokens ------------------------------------------------------------------------------ */

/* Adds the neurons of cluster i_cluster that are active for token t, from entry *at of its list on. */
static void add_cluster(const down_job *job, size_t t, size_t i_cluster, size_t *at, hth_axpy_job *d)
{
    const hth_active_set *f = &job->active_sets[t];
    size_t first = *at, limit = (i_cluster + 1) * CLUSTER;
    while (*at < f->n && (size_t)f->list[*at] < limit) (*at)++;
    d->list = f->list + first, d->h = f->h + first;
    d->n = *at - first, d->n_prefetch = f->n - *at;
    d->scale = job->workspace->scale[t];
    if (d->scale == 0.0f) d->n = 0;
    if (d->n > 0) job->k->axpy[type_of(job)](d);
}

/* Computes some outputs of a block of tokens. */
static void compute_tile(void *arg, size_t i_unit, uint32_t i_thread)
{
    const down_job *job = arg;
    const hth_matrix *m = &job->out.down_t->rows;
    const hth_type_info *info = hth_type_find((uint32_t)m->type);
    size_t n_stretch = (m->n_col + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
    size_t first_tok = i_unit / n_stretch * TILE_TOKENS, first = i_unit % n_stretch * TILE_OUTPUTS;
    size_t n_tok = job->n_tok - first_tok < TILE_TOKENS ? job->n_tok - first_tok : TILE_TOKENS;
    size_t n = m->n_col - first < TILE_OUTPUTS ? m->n_col - first : TILE_OUTPUTS;
    size_t at[TILE_TOKENS] = {0}, n_pending[TILE_TOKENS] = {0}, limit = hth_axpy_limit(m->type);
    bool floats = is_float(job), lost[TILE_TOKENS] = {false};
    size_t part = floats ? 1 : hth_axpy_sub_block(m->type);
    own_sums own = sums_of(job, i_thread);
    hth_axpy_job d = {.w = m->data + first / info->n_weight * info->size, .row_size = m->row_size, .n_out = n};
    for (size_t c = 0; c * CLUSTER < m->n_row; c++)
        for (size_t t = 0; t < n_tok; t++) {
            size_t place = t * TILE_OUTPUTS;
            int32_t *sums = own.sums + place, *offsets = own.offsets + place / part;
            int64_t *acc64 = own.sums64 + place;
            d.sums = sums, d.offsets = offsets, d.chain = own.chain;
            if (n_pending[t] + CLUSTER > limit) {
                hth_axpy_flush(m->type, n, sums, offsets, acc64);
                n_pending[t] = 0;
            }
            add_cluster(job, first_tok + t, c, &at[t], &d);
            n_pending[t] += d.n;
            if (floats && d.n > 0) lost[t] |= !job->k->axpy_flush_chain(n, own.chain, acc64);
        }
    for (size_t t = 0; t < n_tok; t++) {
        size_t place = t * TILE_OUTPUTS;
        float factor = lost[t] ? hth_float_of(0x7fc00000u) : factor_of(job, first_tok + t);
        if (!floats)
            hth_axpy_flush(m->type, n, own.sums + place, own.offsets + place / part, own.sums64 + place);
        finish_outputs(job, first_tok + t, first, first + n, factor, own.sums64 + place);
    }
}

/* ---- the queue ------------------------------------------------------------------------------------ */

void hth_axpy_add(const hth_kernels *k, hth_pool *pool, const hth_axpy_scratch *scratch, const hth_active_set *active,
                  size_t n_tok, const hth_axpy_output *out)
{
    down_job job = {.k = k,
                    .workspace = scratch,
                    .active_sets = active,
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
