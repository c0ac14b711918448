/* FFN: the feed-forward network of one layer: selects the active neurons, computes them, and computes the down
 * projection. Exact selectors must give the bits of
 * `dense` on the same file: keep every sum in the order of docs/arithmetic.md. Work is queued; the queue is
 * finished before a list is made and before a probe reads values.
 *
 * With few tokens, each has its own lists: the candidates (of the predictor, which is computed for all tokens at
 * once), those whose first half (the gate; up where there is none) does not rule them out, and those with a
 * nonzero hidden value. With many tokens, all neurons of each are computed, and what the selector leaves out is
 * set to zero: the same bits. */
#include "forward/forward_int.h"

#include "base/bits.h"
#include "sparse/selector.h"

#include <assert.h>
#include <string.h>

/* From this many tokens on, all neurons are computed for all tokens: some token needs nearly every neuron. In
 * packed files neurons are rows, which batches of few tokens read more slowly than panels, so lists pay off for
 * longer (docs/performance-tables.md, Skipping neurons). */
enum { DENSE_MIN_TOKENS = 4, DENSE_MIN_TOKENS_PACKED = 17 };

/* The smallest magnitude above zero. */
static const float MIN_MAGNITUDE = 0x1p-149f;

static size_t d_model_of(const hth_step *s) { return s->model->hparams.d_model; }
static bool is_gated(const hth_ffn *f) { return f->gate.n_row > 0; }

hth_ffn_values hth_fwd_ffn_values(const hth_step *s, const hth_op *op)
{
    float *gate = hth_fwd_row(s, op->temp[1], 0);
    return (hth_ffn_values){.residual = hth_fwd_row(s, op->in[1], 0),
                            .input = hth_fwd_row(s, op->in[0], 0),
                            .gate = gate,
                            .up = gate + s->n_tok_max * (size_t)hth_fwd_width(s, op->temp[2]),
                            .hidden = hth_fwd_row(s, op->temp[2], 0),
                            .out = hth_fwd_row(s, op->adds ? op->temp[0] : op->out[0], 0),
                            .add_to = op->adds ? hth_fwd_row(s, op->out[0], 0) : NULL};
}

const hth_op *hth_fwd_ffn_op(const hth_step *s, uint32_t i_layer)
{
    return &s->program->ops[s->program->ffn_of_layer[i_layer]];
}

/* A network that is computed: all of a layer's neurons, or some. */
typedef struct network {
    hth_step *s;
    const hth_op *op;
    const hth_ffn *f;
    hth_ffn_values v;
} network;

static network network_of(hth_step *s, const hth_op *op, const hth_ffn *f)
{
    return (network){s, op, f, hth_fwd_ffn_values(s, op)};
}

/* ---- neurons ---------------------------------------------------------------------------------- */

/* One half of the FFN (gate or up) as a product: matrix, active list, and destination. */
static hth_output half_of(const network *n, bool gate, size_t i_row, hth_neuron_list active)
{
    const hth_ffn *f = n->f;
    return (hth_output){.matrix = gate ? &f->gate : &f->up,
                        .bias = gate ? f->gate_bias : f->up_bias,
                        .list = active.list,
                        .n_list = active.n,
                        .y = (gate ? n->v.gate : n->v.up) + i_row * f->d_ff};
}

/* Gate and up, or only the first or second of them, of the active neurons of n_tok tokens from token `first` on.
 * Results are compact: entry i belongs to list[i]. */
enum { FIRST_HALF = 1, SECOND_HALF = 2, BOTH = FIRST_HALF | SECOND_HALF };

static void compute_neurons(const network *n, int halves, size_t first, size_t n_tok, hth_neuron_list active)
{
    hth_step *s = n->s;
    hth_output outputs[2];
    size_t k = 0;
    if (halves & FIRST_HALF) outputs[k++] = half_of(n, is_gated(n->f), first, active);
    if (halves & SECOND_HALF && is_gated(n->f)) outputs[k++] = half_of(n, false, first, active);
    if (k == 0) return;
    const float *x = n->v.input + first * d_model_of(s);
    hth_product_add(s->k, s->pool, &s->act_q8, x, n_tok, outputs, k, NULL);
}

/* All neurons of all tokens in one fused pass, what makes their input and the activation included; no
 * probe may read values in between. false: a unit has no scratch memory for this many tokens. */
static bool compute_hidden(const network *net)
{
    hth_step *s = net->s;
    const hth_ffn *f = net->f;
    hth_output both[] = {{.matrix = &f->gate, .bias = f->gate_bias}, {.matrix = &f->up, .bias = f->up_bias}};
    const hth_output *outputs = is_gated(f) ? both : both + 1;
    size_t n = is_gated(f) ? 2 : 1;
    hth_fwd_run run;
    hth_fusion fusion = {.activate = s->k->activate[s->model->hparams.activation], .hidden = net->v.hidden};
    if (!hth_product_fits_scratch(s->n_tok, outputs, n)) return false;
    hth_fwd_take_run(s, &run, &fusion);
    hth_product_add(s->k, s->pool, &s->act_q8, net->v.input, s->n_tok, outputs, n, &fusion);
    return true;
}

/* y = f(gate) up, or f(up) without a gate, elementwise. */
typedef struct activate_job {
    hth_activate_fn *activate;
    const float *gate, *up;
    float *y;
    size_t n;
} activate_job;

/* Values per unit: the work is cheap, so only large inputs are split. */
enum { ACTIVATE_UNIT = 4096 };

static void activate_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    const activate_job *job = arg;
    size_t first = i_unit * ACTIVATE_UNIT, left = job->n - first;
    job->activate(job->gate ? job->gate + first : NULL, job->up + first,
                  left < ACTIVATE_UNIT ? left : ACTIVATE_UNIT, job->y + first);
}

static void queue_activation(hth_step *s, hth_activation f, const float *gate, const float *up, size_t n,
                             float *y)
{
    activate_job job = {s->k->activate[f], gate, up, y, n};
    hth_pool_add(s->pool, activate_unit, &job, sizeof job, (n + ACTIVATE_UNIT - 1) / ACTIVATE_UNIT);
}

/* hidden of n values from offset `at` on. */
static void activate(const network *net, size_t at, size_t n)
{
    const hth_ffn_values *v = &net->v;
    queue_activation(net->s, net->s->model->hparams.activation, is_gated(net->f) ? v->gate + at : NULL,
                     v->up + at, n, v->hidden + at);
}

/* ---- selection of active neurons --------------------------------------------------------------- */

void hth_fwd_predict(hth_step *s, const hth_ffn *f, const float *residual, const float *input, size_t n_tok,
                     float *scores)
{
    const hth_predictor *p = &f->predictor;
    const float *x = s->model->predicts_from_residual ? residual : input;
    hth_output in = {.matrix = &p->in, .y = s->rank_out},
               out = {.matrix = &p->out, .bias = p->bias, .y = scores};
    hth_product_add(s->k, s->pool, &s->act_q8, x, n_tok, &in, 1, NULL);
    queue_activation(s, HTH_ACTIVATION_RELU, NULL, s->rank_out, n_tok * p->in.n_row, s->rank_out);
    hth_product_add(s->k, s->pool, &s->act_q8, s->rank_out, n_tok, &out, 1, NULL);
}

/* scores[n]: the values that thresholds compare, f of n values of the first half. */
static void score_halves(hth_step *s, const float *half, size_t n, float *scores)
{
    queue_activation(s, s->model->hparams.activation, NULL, half, n, scores);
}

bool hth_fwd_selects_by_half(const hth_step *s)
{
    return s->selector == HEARTH_SELECTOR_GATE || s->selector == HEARTH_SELECTOR_THRESHOLD;
}

hth_neuron_list hth_fwd_call_selector(hth_step *s, const hth_op *op, size_t i_row)
{
    hth_pool_finish(s->pool);
    hth_alloc_assert_none(-1);
    hth_neuron_list named = s->select(s->select_user, op->layer, hth_fwd_row(s, op->in[0], i_row));
    hth_alloc_assert_none(1);
    return named;
}

/* Whether the first half of every neuron is computed, for all tokens at once. */
static bool all_are_candidates(const hth_step *s)
{
    return s->selector != HEARTH_SELECTOR_PREDICTOR && (!s->select || hth_fwd_selects_by_half(s));
}

/* The neurons of a token whose first half is computed: all; or those that the caller's selector names; or those of
 * the predictor, which is ignored if the caller has a selector. */
static hth_neuron_list find_candidates(const network *n, size_t i_row)
{
    hth_step *s = n->s;
    const hth_ffn *f = n->f;
    if (all_are_candidates(s)) return (hth_neuron_list){NULL, f->d_ff};
    if (s->select) return hth_fwd_call_selector(s, n->op, i_row);
    hth_compact args = {.x = s->scores + i_row * f->d_ff,
                        .n = f->d_ff,
                        .threshold = f->predictor.threshold,
                        .out_idx = s->list};
    return (hth_neuron_list){s->list, (uint32_t)s->k->compact(&args)};
}

/* Compacts x to the entries that the list names. */
static hth_neuron_list compact_listed(float *x, hth_neuron_list active)
{
    for (size_t i = 0; active.list && i < active.n; i++) x[i] = x[active.list[i]];
    return active;
}

/* Removes the neurons that their first half (at `half`) rules out. Compacts the values along with the list. */
static hth_neuron_list filter_candidates(const network *n, size_t i_row, float *half, hth_neuron_list active)
{
    hth_step *s = n->s;
    const hth_ffn *f = n->f;
    hth_compact args = {.x = half, .list = active.list, .n = active.n, .out_idx = s->list};
    if (s->select)
        return hth_fwd_selects_by_half(s) ? compact_listed(half, hth_fwd_call_selector(s, n->op, i_row))
                                          : active;
    if (s->selector == HEARTH_SELECTOR_THRESHOLD) {
        args.x = s->scores + i_row * f->d_ff;
        score_halves(s, half, f->d_ff, s->scores + i_row * f->d_ff);
        hth_pool_finish(s->pool);
        args.thresholds = f->thresholds;
        return compact_listed(half, (hth_neuron_list){s->list, (uint32_t)s->k->compact_abs(&args)});
    }
    if (s->selector == HEARTH_SELECTOR_DENSE) return active;
    if (!hth_activation_is_sparse(s->model->hparams.activation)) return active;
    hth_pool_finish(s->pool);
    args.threshold = MIN_MAGNITUDE;
    args.out_x = half;
    return (hth_neuron_list){s->list, (uint32_t)s->k->compact(&args)};
}

/* Scatters x[n_list] to the listed positions, zeros elsewhere; runs from the end, so that no value is overwritten
 * before it has moved. */
static void scatter(float *x, hth_neuron_list active, size_t n)
{
    if (!active.list) return;
    for (size_t to = n, i = active.n; to-- > 0;) {
        bool is_active = i > 0 && (size_t)active.list[i - 1] == to;
        x[to] = is_active ? x[--i] : 0.0f;
    }
}

/* The input of down for token i_row: the neurons of `active` with a nonzero hidden value; with a caller's
 * selector, all those it named. */
static void store_active(hth_step *s, const hth_ffn *f, const float *hidden, size_t i_row,
                         hth_neuron_list active)
{
    int32_t *list = s->active_idx + i_row * f->d_ff;
    float *h = s->active_vals + i_row * f->d_ff;
    hth_compact args = {.x = hidden + i_row * f->d_ff,
                        .list = active.list,
                        .n = active.n,
                        .threshold = s->select ? 0.0f : MIN_MAGNITUDE,
                        .out_idx = list,
                        .out_x = h};
    s->active_sets[i_row] = (hth_active_set){list, h, s->k->compact_abs(&args)};
}

typedef struct active_job {
    hth_step *s;
    const hth_ffn *f;
    const float *hidden; /* [][d_ff] */
} active_job;

static void active_unit(void *arg, size_t i, uint32_t i_thread)
{
    const active_job *job = arg;
    (void)i_thread;
    store_active(job->s, job->f, job->hidden, i, (hth_neuron_list){NULL, job->f->d_ff});
}

static void queue_active(hth_step *s, const hth_ffn *f, const float *hidden, size_t n_tok)
{
    active_job job = {s, f, hidden};
    hth_pool_add(s->pool, active_unit, &job, sizeof job, n_tok);
}

/* One token with its own lists. */
static void compute_row(const network *n, size_t i_row)
{
    hth_step *s = n->s;
    const hth_ffn *f = n->f;
    const hth_ffn_values *v = &n->v;
    size_t at = i_row * f->d_ff;
    hth_neuron_list active = find_candidates(n, i_row);
    if (!all_are_candidates(s)) compute_neurons(n, FIRST_HALF, i_row, 1, active);
    active = filter_candidates(n, i_row, (is_gated(f) ? v->gate : v->up) + at, active);
    compute_neurons(n, SECOND_HALF, i_row, 1, active);
    activate(n, at, active.n);
    hth_pool_finish(s->pool);
    if (s->probe && is_gated(f)) scatter(v->gate + at, active, f->d_ff);
    if (s->probe) scatter(v->up + at, active, f->d_ff);
    if (s->probe || !hth_ffn_is_transposed(f)) scatter(v->hidden + at, active, f->d_ff);
    else store_active(s, f, v->hidden, i_row, active);
}

/* Each token with its own lists; full products are computed for all tokens at once. Requires normed inputs and a
 * predictor's scores. */
static void compute_rows(const network *n)
{
    if (all_are_candidates(n->s))
        compute_neurons(n, FIRST_HALF, 0, n->s->n_tok, (hth_neuron_list){NULL, n->f->d_ff});
    hth_pool_finish(n->s->pool);
    for (size_t i = 0; i < n->s->n_tok; i++) compute_row(n, i);
}

/* Scores of all neurons, if the selector has a predictor; requires normed inputs. */
static void predict(const network *n)
{
    if (n->s->selector == HEARTH_SELECTOR_PREDICTOR)
        hth_fwd_predict(n->s, n->f, n->v.residual, n->v.input, n->s->n_tok, n->s->scores);
}

static void compute_by_lists(const network *n)
{
    hth_fwd_flush(n->s);
    predict(n);
    compute_rows(n);
}

/* ---- many tokens -------------------------------------------------------------------------------- */

typedef struct zero_job {
    const hth_step *s;
    const hth_ffn *f;
    float *hidden;
} zero_job;

/* Sets to zero what the selector leaves out of token i. */
static void zero_inactive(void *arg, size_t i, uint32_t i_thread)
{
    const zero_job *job = arg;
    const hth_step *s = job->s;
    const hth_ffn *f = job->f;
    const float *scores = s->scores + i * f->d_ff;
    float *h = job->hidden + i * f->d_ff;
    (void)i_thread;
    if (s->selector == HEARTH_SELECTOR_PREDICTOR) {
        for (size_t j = 0; j < f->d_ff; j++) h[j] = scores[j] < f->predictor.threshold ? 0.0f : h[j];
    } else if (s->selector == HEARTH_SELECTOR_THRESHOLD) {
        for (size_t j = 0; j < f->d_ff; j++)
            h[j] = __builtin_fabsf(scores[j]) < f->thresholds[j] ? 0.0f : h[j];
    }
}

/* All neurons of all tokens; requires their normed inputs. */
static void compute_all(const network *n)
{
    compute_neurons(n, BOTH, 0, n->s->n_tok, (hth_neuron_list){NULL, n->f->d_ff});
    activate(n, 0, (size_t)n->s->n_tok * n->f->d_ff);
}

/* Zeroes what the selector leaves out of all tokens; requires a predictor's scores. */
static void zero_inactive_rows(const network *n)
{
    hth_step *s = n->s;
    zero_job job = {s, n->f, n->v.hidden};
    bool scores_halves = s->selector == HEARTH_SELECTOR_THRESHOLD;
    if (scores_halves)
        score_halves(s, is_gated(n->f) ? n->v.gate : n->v.up, (size_t)s->n_tok * n->f->d_ff, s->scores);
    if (scores_halves || s->selector == HEARTH_SELECTOR_PREDICTOR)
        hth_pool_add(s->pool, zero_inactive, &job, sizeof job, s->n_tok);
}

static void compute_dense(const network *n)
{
    hth_step *s = n->s;
    if (s->probe || s->unfused || s->selector == HEARTH_SELECTOR_THRESHOLD || !compute_hidden(n)) {
        hth_fwd_flush(s);
        compute_all(n);
    }
    predict(n);
    zero_inactive_rows(n);
}

/* ---- the layer ------------------------------------------------------------------------------------ */

static void call_probe(const network *n)
{
    hth_step *s = n->s;
    const hth_ffn *f = n->f;
    hth_ffn_probe seen = {.i_layer = n->op->layer,
                          .n_tok = s->n_tok,
                          .d_model = d_model_of(s),
                          .d_ff = f->d_ff,
                          .residual = n->v.residual,
                          .input = n->v.input,
                          .gate = is_gated(f) ? n->v.gate : NULL,
                          .up = n->v.up,
                          .hidden = n->v.hidden,
                          .pool = s->pool};
    hth_pool_finish(s->pool);
    if (hth_pool_is_cancelled(s->pool)) return;
    hth_alloc_assert_none(-1);
    s->probe(s->probe_user, &seen);
    hth_alloc_assert_none(1);
}

/* y = down of hidden (or of its active set) for n_tok tokens; accumulated onto add_to where that is not NULL. */
static void queue_down(hth_step *s, const hth_ffn *f, const float *hidden, size_t n_tok, const float *bias,
                       float *y, float *add_to)
{
    if (hth_ffn_is_transposed(f)) {
        hth_axpy_output down = {.down_t = &f->down_t, .bias = bias, .y = y, .add_to = add_to};
        hth_pool_finish(s->pool);
        hth_axpy_add(s->k, s->pool, &s->axpy_scratch, s->active_sets, n_tok, &down);
        return;
    }
    /* In file order the rows of down span all neurons; a block of zeros adds nothing to a row, so lists need no
     * separate down. */
    hth_output down = {.matrix = &f->down, .bias = bias, .y = y, .add_to = add_to};
    hth_product_add(s->k, s->pool, &s->act_q8, hidden, n_tok, &down, 1, NULL);
}

void hth_fwd_finish_hidden(hth_step *s, const hth_op *op)
{
    network n = network_of(s, op, &s->model->layers[op->layer].ffn);
    activate(&n, 0, (size_t)s->n_tok * n.f->d_ff);
    zero_inactive_rows(&n);
}

hearth_status hth_fwd_ffn(hth_step *s, const hth_op *op, hearth_error *err)
{
    const hth_streamed *from = s->streamed;
    network n = network_of(s, op, &s->model->layers[op->layer].ffn);
    if (from && from->pieces && from->pieces[op->layer].n_half > 0) return hth_fwd_ffn_streamed(s, op, err);
    if (from && from->bundles && from->bundles[op->layer].n > 0) return hth_fwd_ffn_bundles(s, op, err);
    bool transposed = hth_ffn_is_transposed(n.f);
    uint32_t dense_min = transposed ? DENSE_MIN_TOKENS_PACKED : DENSE_MIN_TOKENS;
    bool by_lists = s->select || (s->selector != HEARTH_SELECTOR_DENSE && s->n_tok < dense_min);
    if (by_lists) compute_by_lists(&n);
    else compute_dense(&n);
    if (s->probe) call_probe(&n);
    if (transposed && (s->probe || !by_lists)) queue_active(s, n.f, n.v.hidden, s->n_tok);
    queue_down(s, n.f, n.v.hidden, s->n_tok, n.f->down_bias, n.v.out, n.v.add_to);
    return HEARTH_OK;
}

/* ---- some neurons ------------------------------------------------------------------------------------ */

/* n rows of a matrix after n_skip rows; an absent matrix stays absent. */
static hth_matrix slice_rows(const hth_matrix *m, uint32_t n_skip, uint32_t n)
{
    hth_matrix some = *m;
    if (m->n_row == 0) return some;
    some.data = m->data ? m->data + n_skip * m->row_size : NULL;
    some.n_row = n;
    return some;
}

hth_ffn hth_ffn_slice(const hth_ffn *f, uint32_t first, uint32_t n, uint32_t n_skip)
{
    hth_ffn some = *f;
    some.d_ff = n;
    some.gate = slice_rows(&f->gate, n_skip, n);
    some.up = slice_rows(&f->up, n_skip, n);
    some.down_t.rows = slice_rows(&f->down_t.rows, n_skip, n);
    some.down_t.scale_max = f->down_t.scale_max + first / HTH_CLUSTER_NEURONS;
    some.gate_bias = f->gate_bias ? f->gate_bias + first : NULL;
    some.up_bias = f->up_bias ? f->up_bias + first : NULL;
    some.thresholds = f->thresholds ? f->thresholds + first : NULL;
    return some;
}

/* ---- neurons that are not on the device -------------------------------------------------------------- */

bool hth_fwd_has_overflow(const hth_step *s) { return memchr(s->overflow, true, s->n_tok) != NULL; }

void hth_fwd_ffn_cold(hth_step *s, uint32_t i_layer, const hth_ffn *cold, uint32_t n_row, hth_cold_sums *out)
{
    uint32_t n_row_of_step = s->n_tok;
    hth_axpy_output down = {
        .down_t = &cold->down_t, .acc64 = out->sums, .adds = out->more, .overflow = s->overflow};
    network n = network_of(s, hth_fwd_ffn_op(s, i_layer), cold);
    s->n_tok = n_row;
    memset(s->overflow, false, n_row);
    out->n_active = 0;
    if (s->selector != HEARTH_SELECTOR_DENSE && n_row < DENSE_MIN_TOKENS_PACKED) {
        compute_rows(&n);
    } else {
        compute_all(&n);
        zero_inactive_rows(&n);
        queue_active(s, cold, n.v.hidden, n_row);
    }
    hth_pool_finish(s->pool);
    for (uint32_t i = 0; i < n_row; i++) out->n_active += s->active_sets[i].n;
    if (out->n_active > 0) hth_axpy_add(s->k, s->pool, &s->axpy_scratch, s->active_sets, n_row, &down);
    hth_pool_finish(s->pool);
    out->overflow = out->overflow || hth_fwd_has_overflow(s);
    s->n_tok = n_row_of_step;
}

/* ---- masks of a selector's decisions --------------------------------------------------------------- */

typedef struct mark_job {
    const hth_step *s;
    const hth_ffn *f;
    const float *first_half; /* [n_tok][d_ff] */
    uint8_t *marked;
} mark_job;

/* The decisions of find_candidates and filter_candidates, or of zero_inactive: those of the predictor, else those
 * from the first half. */
static void mark_row(void *arg, size_t i, uint32_t i_thread)
{
    const mark_job *job = arg;
    size_t n = job->f->d_ff, at = i * n;
    const float *scores = job->s->scores + at, *half = job->first_half + at, *thresholds = job->f->thresholds;
    uint8_t *marked = job->marked + at;
    (void)i_thread;
    switch (job->s->selector) {
    case HEARTH_SELECTOR_GATE:
        for (size_t j = 0; j < n; j++) marked[j] = !(half[j] < MIN_MAGNITUDE);
        break;
    case HEARTH_SELECTOR_PREDICTOR:
        for (size_t j = 0; j < n; j++) marked[j] = !(scores[j] < job->f->predictor.threshold);
        break;
    case HEARTH_SELECTOR_THRESHOLD:
        for (size_t j = 0; j < n; j++) marked[j] = !(__builtin_fabsf(scores[j]) < thresholds[j]);
        break;
    default: memset(marked, 1, n);
    }
}

void hth_step_selector_mask(hth_step *s, const hth_ffn_probe *seen, uint8_t *marked)
{
    const hth_ffn *f = &s->model->layers[seen->i_layer].ffn;
    mark_job job = {s, f, seen->gate ? seen->gate : seen->up, marked};
    assert(seen->n_tok <= s->n_tok_max && seen->d_ff == f->d_ff);
    if (s->selector == HEARTH_SELECTOR_PREDICTOR)
        hth_fwd_predict(s, f, seen->residual, seen->input, seen->n_tok, s->scores);
    if (s->selector == HEARTH_SELECTOR_THRESHOLD)
        score_halves(s, job.first_half, seen->n_tok * f->d_ff, s->scores);
    hth_pool_run(s->pool, mark_row, &job, seen->n_tok);
    hth_pool_quiesce(s->pool); /* `seen` belongs to the caller; wait for its last reader */
}

const float *hth_step_down(hth_step *s, uint32_t i_layer, const float *hidden, size_t n_tok)
{
    const hth_ffn *f = &s->model->layers[i_layer].ffn;
    float *y = hth_fwd_row(s, s->program->hidden, 0);
    assert(n_tok <= s->n_tok_max);
    if (hth_ffn_is_transposed(f)) queue_active(s, f, hidden, n_tok);
    queue_down(s, f, hidden, n_tok, NULL, y, NULL);
    hth_pool_finish(s->pool);
    hth_pool_quiesce(s->pool);
    return y;
}
