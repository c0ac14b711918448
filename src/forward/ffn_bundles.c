/* A dense network whose down is transposed and whose rows come from a store, in bundles of neurons. The rows that decide
 * whether a neuron is active are read first (gate; up where there is no gate), those of the other half only for bundles
 * with an active neuron, those of down only where a hidden value is not zero. What has arrived is computed together,
 * whichever bundles it belongs to and whatever comes next: bundles are independent of one another, except that the
 * scale of a cluster needs the hidden values of all its bundles. No sum depends on the order of arrival
 * (docs/arithmetic.md 6).
 *
 * Neurons of a token that are active so far lie in the segment of their bundle: indices in s->active_idx, the values of
 * the first half, later hidden values, in s->active_vals, from the bundle's first neuron on. */
#include "forward/forward_int.h"

#include "base/checked_math.h"

#include <assert.h>
#include <string.h>

/* From this many tokens on, whose neurons differ, all of a bundle are computed for all of them, as in ffn.c. */
enum { DENSE_MIN_TOKENS = 17 };

/* The smallest magnitude above zero. */
static const float MIN_MAGNITUDE = 0x1p-149f;

/* The rows that an item contains: of the first half (or of both), of the second half, or of down. */
typedef enum item_kind { ITEM_FIRST, ITEM_SECOND, ITEM_DOWN, N_ITEM_KIND } item_kind;

struct hth_bundle_buffers {
    uint32_t *asked;                   /* [n_item] not taken yet */
    uint32_t *guesses;                 /* [n_item] */
    float *guess_x;                    /* [d_model] the input of the next layer's predictor */
    const uint8_t **rows[N_ITEM_KIND]; /* [n_bundle] rows of gate, up and down in this round */
    uint32_t *position;                /* [n_bundle] entries before its own in the list of a round */
    uint16_t *n_active;                /* [n_bundle][n_tok] */
    uint32_t *n_pending;               /* [n_cluster] bundles whose hidden values are not known */
    uint8_t *marked;                   /* [n_tok][d_ff] neurons that a predictor, or the caller, names */
    int32_t *list;                     /* [d_ff] */
    int64_t *sums;                     /* [n_tok][d_model] */
    uint32_t held_items[HTH_MAX_HELD_BUNDLES];
};

/* Items of a kind that are in memory, ascending. */
typedef struct arrived {
    uint32_t bundles[HTH_MAX_HELD_BUNDLES], n;
} arrived;

/* A layer that is computed, from its neuron `first` on: bundles, clusters and neurons are counted from there. */
typedef struct network {
    hth_step *s;
    const hth_op *op;
    hth_ffn_values v;
    hth_bundle_buffers *b;
    const hth_ffn_bundles *from;
    uint32_t first_bundle, n_bundle;
    hth_ffn f; /* its rows: those of the bundles that are in memory */
    hth_cold_sums *out;
    size_t n_asked;
    uint32_t n_held;
    arrived arrived[N_ITEM_KIND];
    bool by_lists, names; /* each token has its own neurons; neurons are marked */
    bool candidates;      /* only marked neurons are computed at all */
    bool guesses;         /* the next layer is to be guessed */
} network;

static uint32_t bundle_size(const network *n) { return 1u << n->from->shift; }
static bool is_gated(const network *n) { return n->f.gate.n_row > 0; }
static uint32_t cluster_of(const network *n, uint32_t i) { return i << n->from->shift >> HTH_CLUSTER_SHIFT; }

/* Neurons of a bundle. */
static uint32_t n_neuron_of(const network *n, uint32_t i_bundle)
{
    uint32_t left = n->f.d_ff - (i_bundle << n->from->shift);
    return left < bundle_size(n) ? left : bundle_size(n);
}

static uint16_t *n_active_of(const network *n, uint32_t i_bundle, size_t t)
{
    return n->b->n_active + (size_t)i_bundle * n->s->n_tok + t;
}

/* The segment of a bundle for a token: index of its first entry. */
static size_t segment_of(const network *n, uint32_t i_bundle, size_t t)
{
    return t * n->f.d_ff + ((size_t)i_bundle << n->from->shift);
}

/* ---- workspace ------------------------------------------------------------------------------------------- */

static bool lay(uint8_t **at, size_t *used, size_t n, size_t size, void *pointer)
{
    size_t bytes, end;
    if (!hth_mul_size(n, size, &bytes) || !hth_add_size(*used, bytes, &end) || end > SIZE_MAX - 64)
        return false;
    void *p = *at ? *at + *used : NULL;
    memcpy(pointer, &p, sizeof p);
    *used = (end + 63) & ~(size_t)63;
    return true;
}

/* Twice: with memory NULL for the size, then for addresses. */
static bool lay_out(const hth_model *model, uint32_t n_row, uint8_t *memory, hth_bundle_buffers *b,
                    size_t *size)
{
    size_t d_ff = model->hparams.d_ff, n_bundle = (d_ff + HTH_MIN_BUNDLE - 1) / HTH_MIN_BUNDLE,
           n_item = n_bundle * N_ITEM_KIND;
    bool ok = true;
    *size = (sizeof *b + 63) & ~(size_t)63;
    ok = ok && lay(&memory, size, n_item, sizeof *b->asked, &b->asked);
    ok = ok && lay(&memory, size, n_item, sizeof *b->guesses, &b->guesses);
    ok = ok && lay(&memory, size, model->hparams.d_model, sizeof *b->guess_x, &b->guess_x);
    for (int i = 0; i < N_ITEM_KIND; i++)
        ok = ok && lay(&memory, size, n_bundle, sizeof **b->rows, &b->rows[i]);
    ok = ok && lay(&memory, size, n_bundle, sizeof *b->position, &b->position);
    ok = ok && lay(&memory, size, n_bundle, n_row * sizeof *b->n_active, &b->n_active);
    ok = ok && lay(&memory, size, hth_n_cluster(d_ff), sizeof *b->n_pending, &b->n_pending);
    ok = ok && lay(&memory, size, n_row, d_ff, &b->marked);
    ok = ok && lay(&memory, size, d_ff, sizeof *b->list, &b->list);
    return ok && lay(&memory, size, n_row, model->hparams.d_model * sizeof *b->sums, &b->sums);
}

bool hth_fwd_bundles_size(const hth_model *model, uint32_t n_row, size_t *size)
{
    hth_bundle_buffers b;
    return lay_out(model, n_row, NULL, &b, size);
}

hearth_status hth_fwd_open_bundles(hth_step *s, hearth_error *err)
{
    size_t size = SIZE_MAX;
    bool ok = hth_fwd_bundles_size(s->model, s->n_tok_max, &size);
    uint8_t *memory = ok ? hth_alloc(1, size) : NULL;
    if (!memory) return hth_fail_memory(err, size, "neurons that are read");
    s->bundles = (hth_bundle_buffers *)(void *)memory;
    lay_out(s->model, s->n_tok_max, memory, s->bundles, &size);
    return HEARTH_OK;
}

/* ---- what is asked for ------------------------------------------------------------------------------------- */

static uint32_t item_of(const network *n, item_kind kind, uint32_t i_bundle)
{
    uint32_t k = kind == ITEM_DOWN && !n->from->has_second ? ITEM_SECOND : kind;
    return n->from->first_item + k * n->from->n + n->first_bundle + i_bundle;
}

static item_kind kind_of(const network *n, uint32_t i_item, uint32_t *i_bundle)
{
    uint32_t at = i_item - n->from->first_item, k = at / n->from->n;
    *i_bundle = at % n->from->n - n->first_bundle;
    return k == ITEM_SECOND && !n->from->has_second ? ITEM_DOWN : (item_kind)k;
}

/* Whether a token has active neurons in a bundle. */
static bool is_active(const network *n, uint32_t i_bundle)
{
    const uint16_t *counts = n_active_of(n, i_bundle, 0);
    for (size_t t = 0; t < n->s->n_tok; t++)
        if (counts[t] > 0) return true;
    return false;
}

/* Marks the neurons that the predictor finds, or that the caller names. */
static void mark_neurons(network *n, const float *scores)
{
    hth_step *s = n->s;
    size_t d_ff = n->f.d_ff;
    for (size_t t = 0; t < s->n_tok && n->names; t++) {
        uint8_t *marked = n->b->marked + t * d_ff;
        if (!s->select) {
            const float *x = scores + t * d_ff, threshold = n->f.predictor.threshold;
            for (size_t j = 0; j < d_ff; j++) marked[j] = !(x[j] < threshold);
            continue;
        }
        hth_neuron_list named = hth_fwd_call_selector(s, n->op, t);
        uint32_t first = n->first_bundle << n->from->shift;
        memset(marked, named.list == NULL, d_ff);
        for (uint32_t i = 0; named.list && i < named.n; i++)
            if ((uint32_t)named.list[i] >= first) marked[(uint32_t)named.list[i] - first] = 1;
    }
}

/* Whether a neuron of a bundle may be active for any token. */
static bool is_wanted(const network *n, uint32_t i_bundle)
{
    size_t first = (size_t)i_bundle << n->from->shift, size = n_neuron_of(n, i_bundle);
    for (size_t t = 0; t < n->s->n_tok && n->candidates; t++)
        if (memchr(n->b->marked + t * n->f.d_ff + first, 1, size)) return true;
    return !n->candidates;
}

static void ask(network *n, size_t n_new)
{
    hth_store_request(n->s->streamed->store, n->b->asked + n->n_asked, n_new);
    n->n_asked += n_new;
}

/* Asks for the first half of the bundles that may be active. */
static void ask_first(network *n)
{
    hth_bundle_buffers *b = n->b;
    size_t n_new = 0;
    memset(b->n_active, 0, (size_t)n->n_bundle * n->s->n_tok * sizeof *b->n_active);
    memset(b->n_pending, 0, hth_n_cluster(n->f.d_ff) * sizeof *b->n_pending);
    for (uint32_t i = 0; i < n->n_bundle; i++) {
        if (!is_wanted(n, i)) continue;
        b->asked[n_new++] = item_of(n, ITEM_FIRST, i);
        b->n_pending[cluster_of(n, i)]++;
    }
    ask(n, n_new);
}

/* ---- lists of a round ---------------------------------------------------------------------------------------- */

/* All neurons of bundles. */
static size_t list_all(const network *n, const arrived *a)
{
    size_t k = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t first = a->bundles[i] << n->from->shift, size = n_neuron_of(n, a->bundles[i]);
        n->b->position[a->bundles[i]] = (uint32_t)k;
        for (uint32_t j = 0; j < size; j++) n->b->list[k++] = (int32_t)(first + j);
    }
    return k;
}

/* Lists the neurons that are marked for a token; returns their number. */
static size_t list_marked(const network *n, const arrived *a, size_t t)
{
    const uint8_t *marked = n->b->marked + t * n->f.d_ff;
    size_t k = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t first = a->bundles[i] << n->from->shift, size = n_neuron_of(n, a->bundles[i]);
        for (uint32_t j = first; j < first + size; j++)
            if (marked[j]) n->b->list[k++] = (int32_t)j;
    }
    return k;
}

/* The segments of bundles, side by side; returns their entries. list or values may be NULL. */
static size_t join_segments(const network *n, const arrived *a, size_t t, int32_t *list, float *values)
{
    size_t k = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        size_t at = segment_of(n, a->bundles[i], t), size = *n_active_of(n, a->bundles[i], t);
        if (list) memcpy(list + k, n->s->active_idx + at, size * sizeof *list);
        if (values) memcpy(values + k, n->s->active_vals + at, size * sizeof *values);
        k += size;
    }
    return k;
}

/* Queues rows of the list times n_tok tokens from t on, to y[][d_ff]. */
static void queue_rows(const network *n, bool gate, size_t t, size_t n_tok, size_t n_list, float *y)
{
    hth_step *s = n->s;
    hth_output rows = {.matrix = gate ? &n->f.gate : &n->f.up,
                       .bias = gate ? n->f.gate_bias : n->f.up_bias,
                       .list = n->b->list,
                       .n_list = n_list,
                       .y = y + t * n->f.d_ff,
                       .n_y = n->f.d_ff};
    if (n_list > 0)
        hth_product_add(s->k, s->pool, &s->act_q8, n->v.input + t * s->model->hparams.d_model, n_tok, &rows, 1,
                        NULL);
}

/* ---- the first half -------------------------------------------------------------------------------------------- */

typedef struct token_job {
    const network *n;
    const arrived *a;
    size_t n_list;
} token_job;

/* The entries of the list that may be active for a token, to the segments of their bundles. */
static void keep_entries(const network *n, size_t n_list, size_t t)
{
    const hth_step *s = n->s;
    size_t at = t * n->f.d_ff;
    hth_activation f = s->model->hparams.activation;
    const float *half = (is_gated(n) ? n->v.gate : n->v.up) + at, *thresholds = NULL;
    const uint8_t *marked = n->names ? n->b->marked + at : NULL;
    bool decides = !s->select && s->selector != HEARTH_SELECTOR_DENSE && hth_activation_is_sparse(f);
    if (s->selector == HEARTH_SELECTOR_THRESHOLD && !s->select) {
        thresholds = n->f.thresholds, decides = false;
        s->k->activate[f](NULL, half, n_list, s->scores + at);
    }
    for (size_t i = 0; i < n_list; i++) {
        uint32_t j = (uint32_t)n->b->list[i];
        if (marked && !marked[j]) continue;
        if (decides && half[i] < MIN_MAGNITUDE) continue;
        if (thresholds && __builtin_fabsf(s->scores[at + i]) < thresholds[j]) continue;
        uint32_t i_bundle = j >> n->from->shift;
        size_t to = segment_of(n, i_bundle, t) + (*n_active_of(n, i_bundle, t))++;
        s->active_idx[to] = (int32_t)j;
        s->active_vals[to] = half[i];
    }
}

static void keep_unit(void *arg, size_t t, uint32_t i_thread)
{
    const token_job *job = arg;
    (void)i_thread;
    keep_entries(job->n, job->n_list, t);
}

static void compute_first(network *n)
{
    hth_step *s = n->s;
    const arrived *a = &n->arrived[ITEM_FIRST];
    float *y = is_gated(n) ? n->v.gate : n->v.up;
    bool own_lists = n->by_lists && n->candidates;
    for (size_t t = 0; t < s->n_tok && own_lists; t++) {
        size_t n_list = list_marked(n, a, t);
        queue_rows(n, is_gated(n), t, 1, n_list, y);
        hth_pool_finish(s->pool);
        keep_entries(n, n_list, t);
    }
    if (own_lists) return;
    token_job job = {n, a, list_all(n, a)};
    queue_rows(n, is_gated(n), 0, s->n_tok, job.n_list, y);
    hth_pool_add(s->pool, keep_unit, &job, sizeof job, s->n_tok);
    hth_pool_finish(s->pool);
}

/* ---- the second half --------------------------------------------------------------------------------------------- */

/* The hidden values of a token's entries in these bundles, to their segments; zeros are left out. up: of these entries;
 * NULL: there is no gate. */
static void keep_hidden(const network *n, const arrived *a, size_t t, const float *up)
{
    const hth_step *s = n->s;
    float *half = n->v.gate + t * n->f.d_ff, *h = n->v.hidden + t * n->f.d_ff;
    size_t n_entry = join_segments(n, a, t, NULL, half), k = 0;
    s->k->activate[s->model->hparams.activation](up ? half : NULL, up ? up : half, n_entry, h);
    for (uint32_t i = 0; i < a->n; i++) {
        uint16_t *n_active = n_active_of(n, a->bundles[i], t);
        size_t first = segment_of(n, a->bundles[i], t), end = first + *n_active, to = first;
        for (size_t from = first; from < end; from++, k++) {
            if (__builtin_fabsf(h[k]) < (s->select ? 0.0f : MIN_MAGNITUDE)) continue;
            s->active_idx[to] = s->active_idx[from];
            s->active_vals[to++] = h[k];
        }
        *n_active = (uint16_t)(to - first);
    }
}

/* Up was computed of all neurons of these bundles. */
static void hidden_unit(void *arg, size_t t, uint32_t i_thread)
{
    const token_job *job = arg;
    const network *n = job->n;
    const arrived *a = job->a;
    const float *all = n->v.up + t * n->f.d_ff;
    float *up = n->v.hidden + t * n->f.d_ff;
    size_t k = 0;
    (void)i_thread;
    for (uint32_t i = 0; i < a->n && is_gated(n); i++) {
        size_t at = segment_of(n, a->bundles[i], t), size = *n_active_of(n, a->bundles[i], t);
        const float *rows = all + n->b->position[a->bundles[i]];
        for (size_t e = at; e < at + size; e++)
            up[k++] = rows[n->s->active_idx[e] & (int32_t)(bundle_size(n) - 1)];
    }
    keep_hidden(n, a, t, is_gated(n) ? up : NULL);
}

/* a: bundles whose first half is computed. */
static void compute_second(network *n, const arrived *a)
{
    hth_step *s = n->s;
    bool own_lists = n->by_lists && is_gated(n);
    for (size_t t = 0; t < s->n_tok && own_lists; t++) {
        queue_rows(n, false, t, 1, join_segments(n, a, t, n->b->list, NULL), n->v.up);
        hth_pool_finish(s->pool);
        keep_hidden(n, a, t, n->v.up + t * n->f.d_ff);
    }
    if (own_lists) return;
    token_job job = {n, a, 0};
    if (is_gated(n)) queue_rows(n, false, 0, s->n_tok, list_all(n, a), n->v.up);
    hth_pool_add(s->pool, hidden_unit, &job, sizeof job, s->n_tok);
    hth_pool_finish(s->pool);
}

/* ---- clusters ------------------------------------------------------------------------------------------------------ */

/* Hidden values of a cluster are known: chooses its scale for each token, and asks for the rows of down. */
static void finish_cluster(network *n, uint32_t i_cluster)
{
    const hth_axpy_scratch *scratch = &n->s->axpy_scratch;
    uint32_t first = i_cluster << HTH_CLUSTER_SHIFT >> n->from->shift,
             size = (uint32_t)HTH_CLUSTER_NEURONS >> n->from->shift, n_new = 0;
    arrived of_cluster = {.n = n->n_bundle - first < size ? n->n_bundle - first : size};
    float h[HTH_CLUSTER_NEURONS];
    for (uint32_t i = 0; i < of_cluster.n; i++) of_cluster.bundles[i] = first + i;
    for (size_t t = 0; t < n->s->n_tok; t++) {
        size_t n_entry = join_segments(n, &of_cluster, t, NULL, h);
        if (n_entry == 0) continue;
        scratch->scale[t * scratch->n_cluster + i_cluster] =
            hth_axpy_cluster_scale(&n->f.down_t, i_cluster, h, n_entry);
    }
    for (uint32_t i = first; i < first + of_cluster.n; i++)
        if (is_active(n, i)) n->b->asked[n->n_asked + n_new++] = item_of(n, ITEM_DOWN, i);
    ask(n, n_new);
}

static void finish_bundle(network *n, uint32_t i_bundle)
{
    uint32_t i_cluster = cluster_of(n, i_bundle);
    assert(n->b->n_pending[i_cluster] > 0);
    if (--n->b->n_pending[i_cluster] == 0) finish_cluster(n, i_cluster);
}

/* Asks for the second half of active bundles whose first half was computed, and finishes the inactive ones. */
static void follow_first(network *n, const arrived *a)
{
    size_t n_new = 0;
    for (uint32_t i = 0; i < a->n; i++)
        if (is_active(n, a->bundles[i]))
            n->b->asked[n->n_asked + n_new++] = item_of(n, ITEM_SECOND, a->bundles[i]);
    ask(n, n_new);
    for (uint32_t i = 0; i < a->n; i++)
        if (!is_active(n, a->bundles[i])) finish_bundle(n, a->bundles[i]);
}

/* ---- guesses --------------------------------------------------------------------------------------------------------- */

/* The first halves that the next layer's predictor would name if this layer added nothing to the residual stream. */
static uint32_t guess_first(network *n, uint32_t n_guess)
{
    hth_step *s = n->s;
    uint32_t next = n->op->layer + 1;
    if (s->select || s->n_tok > 1 || next == s->model->hparams.n_layer || s->streamed->bundles[next].n == 0)
        return n_guess;
    const hth_layer *l = &s->model->layers[next];
    const hth_ffn_bundles *to = &s->streamed->bundles[next];
    const float *input = hth_fwd_guess_input(s, hth_fwd_ffn_op(s, next), n->b->guess_x);
    hth_fwd_predict(s, &l->ffn, hth_fwd_x(s), input, 1, s->scores);
    hth_pool_finish(s->pool);
    for (uint32_t i = 0; i < to->n; i++)
        for (uint32_t j = i << to->shift; j < (i + 1) << to->shift && j < l->ffn.d_ff; j++) {
            if (s->scores[j] < l->ffn.predictor.threshold) continue;
            n->b->guesses[n_guess++] = to->first_item + i;
            break;
        }
    return n_guess;
}

/* Once in a layer, before it waits: the other rows of the bundles that are named, and what the next layer needs. Without
 * names all is read in its order; behind the last layer comes the first of the next token. */
static void prefetch_bundles(network *n)
{
    hth_store *store = n->s->streamed->store;
    uint32_t n_guess = 0;
    if (!n->guesses) return;
    n->guesses = false;
    if (!n->candidates) {
        hth_store_prefetch_next(store, hth_bundles_ahead(n->from), HTH_MAX_AHEAD);
        return;
    }
    for (item_kind k = ITEM_SECOND; k < N_ITEM_KIND; k++)
        for (uint32_t i = 0; i < n->n_bundle && (k == ITEM_DOWN || n->from->has_second); i++)
            if (is_wanted(n, i)) n->b->guesses[n_guess++] = item_of(n, k, i);
    hth_store_prefetch(store, n->b->guesses, guess_first(n, n_guess));
}

/* ---- down ------------------------------------------------------------------------------------------------------------ */

/* The indices of down's lists lie where up is computed, which no round needs any more. */
static int32_t *down_list(const network *n, size_t t)
{
    return (int32_t *)(void *)(n->v.up + t * n->f.d_ff);
}

static void join_unit(void *arg, size_t t, uint32_t i_thread)
{
    const token_job *job = arg;
    const network *n = job->n;
    float *h = n->v.hidden + t * n->f.d_ff;
    (void)i_thread;
    n->s->active_sets[t] =
        (hth_active_set){down_list(n, t), h, join_segments(n, job->a, t, down_list(n, t), h)};
}

static void compute_down(network *n)
{
    hth_step *s = n->s;
    token_job job = {n, &n->arrived[ITEM_DOWN], 0};
    hth_axpy_output down = {.down_t = &n->f.down_t,
                            .acc64 = n->out->sums,
                            .adds = n->out->more,
                            .overflow = s->overflow,
                            .scaled = true};
    hth_pool_add(s->pool, join_unit, &job, sizeof job, s->n_tok);
    hth_pool_finish(s->pool);
    if (hth_pool_is_cancelled(s->pool)) return;
    hth_axpy_add(s->k, s->pool, &s->axpy_scratch, s->active_sets, s->n_tok, &down);
    hth_pool_finish(s->pool);
    for (size_t t = 0; t < s->n_tok; t++) n->out->n_active += s->active_sets[t].n;
    n->out->more = true;
    n->out->overflow = n->out->overflow || hth_fwd_has_overflow(s);
}

/* ---- rounds ----------------------------------------------------------------------------------------------------------- */

static void sort_bundles(arrived *a)
{
    for (uint32_t i = 1; i < a->n; i++)
        for (uint32_t k = i; k > 0 && a->bundles[k - 1] > a->bundles[k]; k--) {
            uint32_t other = a->bundles[k];
            a->bundles[k] = a->bundles[k - 1], a->bundles[k - 1] = other;
        }
}

static void give_back(network *n)
{
    while (n->n_held > 0) hth_store_release(n->s->streamed->store, n->b->held_items[--n->n_held]);
}

/* Adds an item to the round. */
static void hold(network *n, const hth_store_view *view)
{
    uint32_t i_bundle, k = 0;
    item_kind kind = kind_of(n, view->i_item, &i_bundle);
    arrived *a = &n->arrived[kind];
    n->b->held_items[n->n_held++] = view->i_item;
    a->bundles[a->n++] = i_bundle;
    if (kind == ITEM_FIRST && is_gated(n)) n->b->rows[0][i_bundle] = view->data[k++];
    if (kind == ITEM_SECOND || (kind == ITEM_FIRST && !n->from->has_second))
        n->b->rows[1][i_bundle] = view->data[k];
    if (kind == ITEM_DOWN) n->b->rows[2][i_bundle] = view->data[0];
}

/* Computes what is held, and gives it back; then asks for what follows. */
static void run_round(network *n)
{
    hth_step *s = n->s;
    bool has_second = n->from->has_second;
    for (int i = 0; i < N_ITEM_KIND; i++) sort_bundles(&n->arrived[i]);
    const arrived first = n->arrived[ITEM_FIRST], second = has_second ? n->arrived[ITEM_SECOND] : first;
    if (first.n > 0) compute_first(n);
    if (second.n > 0) compute_second(n, &second);
    if (n->arrived[ITEM_DOWN].n > 0) compute_down(n);
    hth_pool_quiesce(s->pool);
    give_back(n);
    for (int i = 0; i < N_ITEM_KIND; i++) n->arrived[i].n = 0;
    if (has_second) follow_first(n, &first);
    for (uint32_t i = 0; i < second.n; i++) finish_bundle(n, second.bundles[i]);
}

/* Takes what has arrived. Waits if nothing has, and nothing is held; in turn, as long as something is being read. */
static hearth_status acquire_items(network *n, hearth_error *err)
{
    hth_store *store = n->s->streamed->store;
    hearth_status st = HEARTH_OK;
    while (n->n_asked > 0 && n->n_held < HTH_MAX_HELD_BUNDLES && st == HEARTH_OK) {
        hth_store_view view;
        size_t before = n->n_asked;
        bool wait = n->s->streamed->in_turn && hth_store_is_reading(store, n->b->asked, n->n_asked);
        st = hth_store_acquire(store, n->b->asked, &n->n_asked, wait, &view, err);
        if (st == HEARTH_OK && n->n_asked == before) {
            if (n->n_held > 0) break;
            prefetch_bundles(n);
            st = hth_store_acquire(store, n->b->asked, &n->n_asked, true, &view, err);
        }
        if (st == HEARTH_OK) hold(n, &view);
    }
    return st;
}

static hearth_status run_bundles(network *n, hearth_error *err)
{
    hth_step *s = n->s;
    hearth_status st = HEARTH_OK;
    while (n->n_asked > 0 && st == HEARTH_OK) {
        if (hth_pool_is_cancelled(s->pool)) st = hth_fail_cancelled(err);
        else if ((st = acquire_items(n, err)) == HEARTH_OK) run_round(n);
    }
    give_back(n);
    hth_store_cancel(s->streamed->store, n->b->asked, n->n_asked);
    return st;
}

/* ---- a layer ------------------------------------------------------------------------------------------------------------ */

static hearth_status run_layer(hth_step *s, const hth_op *op, uint32_t first, const float *scores,
                               bool guesses, hth_cold_sums *out, hearth_error *err)
{
    const hth_ffn *f = &s->model->layers[op->layer].ffn;
    const hth_ffn_bundles *from = &s->streamed->bundles[op->layer];
    assert(first % HTH_CLUSTER_NEURONS == 0 && first < f->d_ff);
    network n = {.s = s,
                 .op = op,
                 .v = hth_fwd_ffn_values(s, op),
                 .b = s->bundles,
                 .from = from,
                 .first_bundle = first >> from->shift,
                 .n_bundle = from->n - (first >> from->shift),
                 .f = hth_ffn_slice(f, first, f->d_ff - first, 0),
                 .out = out,
                 .by_lists =
                     s->select || (s->selector != HEARTH_SELECTOR_DENSE && s->n_tok < DENSE_MIN_TOKENS),
                 .names = s->select || s->selector == HEARTH_SELECTOR_PREDICTOR,
                 .guesses = guesses && !s->streamed->in_turn};
    n.candidates = n.names && !hth_fwd_selects_by_half(s);
    hth_matrix *const rows[N_ITEM_KIND] = {&n.f.gate, &n.f.up, &n.f.down_t.rows};
    for (int i = 0; i < N_ITEM_KIND; i++) rows[i]->runs = (hth_row_runs){s->bundles->rows[i], from->shift};
    out->n_active = 0;
    memset(s->overflow, false, s->n_tok);
    mark_neurons(&n, scores);
    ask_first(&n);
    return run_bundles(&n, err);
}

hearth_status hth_fwd_cold_bundles(hth_step *s, uint32_t i_layer, uint32_t first, uint32_t n_row,
                                   const float *scores, hth_cold_sums *out, hearth_error *err)
{
    uint32_t n_row_of_step = s->n_tok;
    s->n_tok = n_row;
    /* The next layer's predictor cannot be asked: the residual stream is elsewhere. */
    bool guesses = !s->select && s->selector != HEARTH_SELECTOR_PREDICTOR;
    hearth_status st = run_layer(s, hth_fwd_ffn_op(s, i_layer), first, scores, guesses, out, err);
    s->n_tok = n_row_of_step;
    return st;
}

hearth_status hth_fwd_ffn_bundles(hth_step *s, const hth_op *op, hearth_error *err)
{
    const hth_ffn *f = &s->model->layers[op->layer].ffn;
    const hth_ffn_values v = hth_fwd_ffn_values(s, op);
    size_t d = s->model->hparams.d_model;
    hth_cold_sums sums = {.sums = s->bundles->sums};
    hth_fwd_flush(s);
    if (s->selector == HEARTH_SELECTOR_PREDICTOR) hth_fwd_predict(s, f, v.residual, v.input, s->n_tok, s->scores);
    hth_pool_finish(s->pool);
    if (hth_pool_is_cancelled(s->pool)) return hth_fail_cancelled(err);
    hearth_status st = run_layer(s, op, 0, s->scores, true, &sums, err);
    if (st != HEARTH_OK) return st;
    if (!sums.more) memset(sums.sums, 0, s->n_tok * d * sizeof *sums.sums);
    for (size_t t = 0; t < s->n_tok; t++)
        hth_axpy_write(s->k, sums.sums + t * d, d, s->overflow[t], f->down_bias, v.out + t * d,
                       v.add_to ? v.add_to + t * d : NULL);
    return HEARTH_OK;
}
