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

size_t hth_axpy_width(size_t n_out)
{
    size_t whole = (n_out + 255) / 256 * 256, tile = (size_t)TILE_TOKENS * TILE_OUTPUTS;
    return whole > tile ? whole : tile;
}

void hth_axpy_scratch_clear(const hth_axpy_scratch *scratch, size_t n_thread, size_t n_out)
{
    size_t n = n_thread * hth_axpy_width(n_out);
    memset(scratch->acc64, 0, n * sizeof *scratch->acc64);
    memset(scratch->sums, 0, n * sizeof *scratch->sums);
    memset(scratch->offsets, 0, n / 16 * sizeof *scratch->offsets);
    memset(scratch->chain, 0, n * sizeof *scratch->chain);
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

/* ---- scales of clusters ---------------------------------------------------------------------- */

/* The number of entries of the list from `first` on that are in the same cluster. */
static size_t n_in_cluster(const hth_active_set *a, size_t first)
{
    size_t n = 1, cluster = (size_t)a->list[first] / HTH_CLUSTER_NEURONS;
    while (first + n < a->n && (size_t)a->list[first + n] / HTH_CLUSTER_NEURONS == cluster) n++;
    return n;
}

float hth_axpy_cluster_scale(const hth_transposed_down *down, size_t i_cluster, const float *h, size_t n)
{
    hth_type type = down->rows.type;
    if (hth_type_act_block(type) == 0) return 0x1p32f;
    return hth_axpy_scale(h, n, down->scale_max[i_cluster], hth_axpy_safe_exponent(type, down->n_summed));
}

/* Sets the scales of the clusters in which neurons of token i_tok + t are active. */
static void choose_scales(void *arg, size_t t, uint32_t i_thread)
{
    const down_job *job = arg;
    const hth_transposed_down *down = job->out.down_t;
    const hth_active_set *a = &job->active_sets[job->i_tok + t];
    float *scale = job->workspace->scale + (job->i_tok + t) * job->workspace->n_cluster;
    (void)i_thread;
    if (t == 0) memset(job->workspace->state, 0, job->n_thread * sizeof *job->workspace->state);
    for (size_t at = 0, n; at < a->n && !job->out.scaled; at += n) {
        size_t cluster = (size_t)a->list[at] / HTH_CLUSTER_NEURONS;
        n = n_in_cluster(a, at);
        scale[cluster] = hth_axpy_cluster_scale(down, cluster, a->h + at, n);
    }
}

static float scale_of(const down_job *job, size_t t, size_t i)
{
    size_t cluster = (size_t)job->active_sets[t].list[i] / HTH_CLUSTER_NEURONS;
    return job->workspace->scale[t * job->workspace->n_cluster + cluster];
}

/* ---- sums of one token ------------------------------------------------------------------------- */

void hth_axpy_flush_pending(const hth_kernels *k, hth_type type, const hth_axpy_job *d, int64_t *acc64,
                            hth_axpy_state *state)
{
    if (state->n_pending == 0) return;
    if (hth_type_act_block(type) == 0) state->overflow |= !k->axpy_flush_chain(d->n_out, d->chain, acc64);
    else k->axpy_flush(type, d->n_out, state->scale, d->sums, d->offsets, acc64);
    state->n_pending = 0;
}

void hth_axpy_add_rows(const hth_kernels *k, hth_type type, const hth_axpy_job *d, int64_t *acc64, hth_axpy_state *state)
{
    state->used = true;
    if (d->scale == 0.0f) {
        state->overflow = true;
        return;
    }
    if (state->scale != d->scale || state->n_pending + d->n > hth_axpy_limit(type))
        hth_axpy_flush_pending(k, type, d, acc64, state);
    k->axpy[type](d);
    state->scale = d->scale, state->n_pending += (uint32_t)d->n;
    if (hth_type_act_block(type) == 0) hth_axpy_flush_pending(k, type, d, acc64, state);
}

/* The sums of n_out outputs as those of a job. */
static hth_axpy_job job_of(own_sums own, size_t n_out)
{
    return (hth_axpy_job){.n_out = n_out, .sums = own.sums, .offsets = own.offsets, .chain = own.chain};
}

/* Adds n entries of the list of token t from `first` on, whose scales are equal, to the outputs of d. */
static void add_entries(const down_job *job, size_t t, size_t first, size_t n, own_sums own, hth_axpy_state *state,
                        hth_axpy_job d)
{
    const hth_active_set *a = &job->active_sets[t];
    d.scale = scale_of(job, t, first);
    d.list = a->list + first, d.h = a->h + first, d.n = n, d.n_prefetch = a->n - first - n;
    d.sums = own.sums, d.offsets = own.offsets, d.chain = own.chain;
    hth_axpy_add_rows(job->k, type_of(job), &d, own.sums64, state);
}

/* ---- one token --------------------------------------------------------------------------------- */

/* Entries [first, end) of the list whose neurons are in cluster i. */
static void entries_of_cluster(const hth_active_set *f, size_t i, size_t *first, size_t *end)
{
    for (int side = 0; side < 2; side++) {
        size_t low = 0, high = f->n;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if ((size_t)f->list[middle] < (i + (size_t)side) * HTH_CLUSTER_NEURONS) low = middle + 1;
            else high = middle;
        }
        *(side ? end : first) = low;
    }
}

/* Adds neurons of the list to the thread's own sums. */
static void add_neurons(void *arg, size_t i_claim, uint32_t i_thread)
{
    const down_job *job = arg;
    const hth_matrix *m = &job->out.down_t->rows;
    const hth_active_set *a = &job->active_sets[job->i_tok];
    size_t i = hth_pool_block_index(i_claim, job->n_unit, job->n_thread);
    size_t first = i * UNIT_NEURONS, end = first + UNIT_NEURONS;
    if (is_float(job)) entries_of_cluster(a, i, &first, &end);
    if (end > a->n) end = a->n;
    for (size_t n; first < end; first += n) {
        float scale = scale_of(job, job->i_tok, first);
        for (n = 1; first + n < end && scale_of(job, job->i_tok, first + n) == scale;) n++;
        add_entries(job, job->i_tok, first, n, sums_of(job, i_thread), &job->workspace->state[i_thread],
                    (hth_axpy_job){.w = m->data, .runs = m->runs, .row_size = m->row_size, .n_out = m->n_col});
    }
}

void hth_axpy_write(const hth_kernels *k, const int64_t *acc64, size_t n, bool overflow, const float *bias, float *y,
                    float *add_to)
{
    hth_axpy_finish(acc64, n, y);
    for (size_t o = 0; overflow && o < n; o++) y[o] = hth_float_of(0x7fc00000u);
    if (bias) k->add(y, bias, n, y);
    if (add_to) k->add(add_to, y, n, add_to);
}

/* Converts n outputs of token t from their integers, and sets the integers to zero. */
static void finish_outputs(const down_job *job, size_t t, size_t first, size_t n, bool overflow, int64_t *acc64)
{
    const hth_axpy_output *out = &job->out;
    if (out->acc64) {
        int64_t *to = out->acc64 + t * n_out_of(job) + first;
        for (size_t o = 0; o < n; o++) to[o] = out->adds ? to[o] + acc64[o] : acc64[o];
        memset(acc64, 0, n * sizeof *acc64);
        if (overflow) __atomic_store_n(&out->overflow[t], true, __ATOMIC_RELAXED);
        return;
    }
    size_t at = t * n_out_of(job) + first;
    hth_axpy_write(job->k, acc64, n, overflow, out->bias ? out->bias + first : NULL, out->y + at,
                   out->add_to ? out->add_to + at : NULL);
    memset(acc64, 0, n * sizeof *acc64);
}

/* The sums from output `first` on. */
static own_sums sums_from(const down_job *job, own_sums own, size_t first)
{
    size_t part = is_float(job) ? 1 : hth_axpy_sub_block(type_of(job));
    return (own_sums){own.sums64 + first, own.sums + first, own.offsets + first / part, own.chain + first};
}

/* Computes some outputs from the sums of all threads. */
static void join_threads(void *arg, size_t i_unit, uint32_t i_thread)
{
    const down_job *job = arg;
    (void)i_thread;
    size_t first = i_unit * UNIT_OUTPUTS, left = n_out_of(job) - first,
           n = left < UNIT_OUTPUTS ? left : UNIT_OUTPUTS;
    int64_t *total = sums_of(job, 0).sums64 + first;
    bool overflow = false;
    for (uint32_t i = 0; i < job->n_thread; i++) {
        own_sums own = sums_from(job, sums_of(job, i), first);
        hth_axpy_state state = job->workspace->state[i];
        if (!state.used) continue;
        hth_axpy_job sums = job_of(own, n);
        hth_axpy_flush_pending(job->k, type_of(job), &sums, own.sums64, &state);
        overflow |= state.overflow;
        if (i == 0) continue;
        for (size_t o = 0; o < n; o++) total[o] += own.sums64[o];
        memset(own.sums64, 0, n * sizeof *own.sums64);
    }
    finish_outputs(job, job->i_tok, first, n, overflow, total);
}

static void add_one_token(hth_pool *pool, down_job *job)
{
    size_t n = job->active_sets[job->i_tok].n;
    const hth_matrix *m = &job->out.down_t->rows;
    job->n_unit = is_float(job) ? hth_n_cluster(m->n_row) : (n + UNIT_NEURONS - 1) / UNIT_NEURONS;
    hth_pool_add(pool, add_neurons, job, sizeof *job, n > 0 ? job->n_unit : 0);
    hth_pool_add(pool, join_threads, job, sizeof *job, (m->n_col + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS);
}

/* ---- several tokens ------------------------------------------------------------------------------ */

/* The sums of token t of a tile. Chains are flushed at once, so one place suffices for them. */
static own_sums tile_sums(const down_job *job, own_sums own, size_t t)
{
    own_sums some = sums_from(job, own, t * TILE_OUTPUTS);
    some.chain = own.chain;
    return some;
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
    size_t at[TILE_TOKENS] = {0};
    hth_axpy_state states[TILE_TOKENS] = {{0}};
    own_sums own = sums_of(job, i_thread);
    const hth_axpy_job d = {.w = m->data,
                            .runs = m->runs,
                            .skip = first / info->n_weight * info->size,
                            .row_size = m->row_size,
                            .n_out = n};
    for (size_t end = HTH_CLUSTER_NEURONS; end < m->n_row + HTH_CLUSTER_NEURONS; end += HTH_CLUSTER_NEURONS)
        for (size_t t = 0; t < n_tok; t++) {
            const hth_active_set *a = &job->active_sets[first_tok + t];
            if (at[t] == a->n || (size_t)a->list[at[t]] >= end) continue;
            size_t n_entry = n_in_cluster(a, at[t]);
            add_entries(job, first_tok + t, at[t], n_entry, tile_sums(job, own, t), &states[t], d);
            at[t] += n_entry;
        }
    for (size_t t = 0; t < n_tok; t++) {
        own_sums from = tile_sums(job, own, t);
        hth_axpy_job sums = job_of(from, n);
        hth_axpy_flush_pending(job->k, type_of(job), &sums, from.sums64, &states[t]);
        finish_outputs(job, first_tok + t, first, n, states[t].overflow, from.sums64);
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
        hth_pool_add(pool, choose_scales, &job, sizeof job, n_tok);
        hth_pool_add(pool, compute_tile, &job, sizeof job, n_block * n_stretch);
        return;
    }
    for (job.i_tok = 0; job.i_tok < n_tok; job.i_tok++) {
        hth_pool_add(pool, choose_scales, &job, sizeof job, 1);
        add_one_token(pool, &job);
    }
}
