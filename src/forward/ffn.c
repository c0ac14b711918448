/* The feed-forward network of one layer: who fires, what they compute, who adds it
 * up into `out`. Called by step.c once per layer and batch. Exact selectors must give the
 * bits of `dense` on the same file: keep every sum in the order of docs/arithmetic.md. Work is
 * queued; before a list is made, or an observer sees values, the queue is finished.
 *
 * Few tokens have lists of their own, each: candidates (of the predictor, which is computed for all at once), those of them whose first half
 * (the gate; up where there is none) says that they may fire, those that sent something on. Many
 * tokens are computed together, all neurons of each, and what a selector leaves out becomes zero:
 * the same bits. */
#include "forward/forward_int.h"

#include "base/bits.h"
#include "sparse/selector.h"

#include <assert.h>
#include <string.h>

/* From so many tokens on, all neurons are computed together: nearly all are wanted by some token. In packed
 * files they are rows, which steps of some tokens read more slowly than panels, so lists are worth it for longer
 * (docs/performance.md, Skipping neurons). */
enum { TOGETHER = 4, TOGETHER_PACKED = 17 };

/* No magnitude but zero is below it. */
static const float LEAST = 0x1p-149f;

static size_t d_model_of(const hth_step *s) { return s->model->hparams.d_model; }
static bool is_gated(const hth_layer *l) { return l->gate.n_row > 0; }

/* ---- neurons ---------------------------------------------------------------------------------- */

/* What a half of the FFN is computed from and where it goes. */
static hth_output half_of(const hth_step *s, const hth_layer *l, bool gate, size_t i_row, hth_neuron_list active)
{
    return (hth_output){.matrix = gate ? &l->gate : &l->up,
                        .bias = gate ? l->gate_bias : l->up_bias,
                        .list = active.list,
                        .n_list = active.n,
                        .y = (gate ? s->gate : s->up) + i_row * l->d_ff};
}

/* Gate and up, or the first or second of them, of the active neurons of n_tok tokens from row
 * `first` on, compact: entry i belongs to list[i]. */
enum { FIRST_HALF = 1, SECOND_HALF = 2, BOTH = FIRST_HALF | SECOND_HALF };

static void compute_neurons(hth_step *s, const hth_layer *l, int halves, size_t first, size_t n_tok,
                            hth_neuron_list active)
{
    hth_output outputs[2];
    size_t n = 0;
    if (halves & FIRST_HALF) outputs[n++] = half_of(s, l, is_gated(l), first, active);
    if (halves & SECOND_HALF && is_gated(l)) outputs[n++] = half_of(s, l, false, first, active);
    if (n == 0) return;
    const float *x = s->x_norm + first * d_model_of(s);
    hth_product_add(s->k, s->pool, &s->act_q8, x, n_tok, outputs, n, NULL);
}

/* All neurons of all rows, norm and activation included, where nobody looks in between. False: a
 * unit has no room for so many rows. */
static bool compute_hidden(hth_step *s, const hth_layer *l)
{
    hth_output both[] = {{.matrix = &l->gate, .bias = l->gate_bias}, {.matrix = &l->up, .bias = l->up_bias}};
    const hth_output *outputs = is_gated(l) ? both : both + 1;
    size_t n = is_gated(l) ? 2 : 1;
    hth_fwd_norm_rows rows = {s, &l->ffn_norm, s->x, s->x_norm};
    hth_fusion fusion = {.prepare = hth_fwd_norm_row,
                         .prepare_arg = &rows,
                         .activate = s->k->activate[s->model->hparams.activation],
                         .hidden = s->hidden};
    if (!hth_product_fits_scratch(s->n_tok, outputs, n)) return false;
    hth_product_add(s->k, s->pool, &s->act_q8, s->x_norm, s->n_tok, outputs, n, &fusion);
    return true;
}

/* y = f(gate) up, or f(up) without a gate, elementwise. */
typedef struct activate_job {
    hth_activate_fn *activate;
    const float *gate, *up;
    float *y;
    size_t n;
} activate_job;

/* Values of one unit: cheap work, cut only when there is much. */
enum { ACTIVATE_UNIT = 4096 };

static void activate_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    const activate_job *job = arg;
    size_t first = i_unit * ACTIVATE_UNIT, left = job->n - first;
    job->activate(job->gate ? job->gate + first : NULL, job->up + first,
                  left < ACTIVATE_UNIT ? left : ACTIVATE_UNIT, job->y + first);
}

static void add_activation(hth_step *s, hth_activation f, const float *gate, const float *up, size_t n,
                           float *y)
{
    activate_job job = {s->k->activate[f], gate, up, y, n};
    hth_pool_add(s->pool, activate_unit, &job, sizeof job, (n + ACTIVATE_UNIT - 1) / ACTIVATE_UNIT);
}

/* hidden of n values from `at` on. */
static void activate(hth_step *s, const hth_layer *l, size_t at, size_t n)
{
    add_activation(s, s->model->hparams.activation, is_gated(l) ? s->gate + at : NULL, s->up + at, n,
                   s->hidden + at);
}

/* ---- who fires --------------------------------------------------------------------------------- */

/* scores[n_tok][d_ff] of the predictor; residual and input are those of the FFN. */
static void predict(hth_step *s, const hth_layer *l, const float *residual, const float *input, size_t n_tok,
                    float *scores)
{
    const hth_predictor *p = &l->predictor;
    const float *x = s->model->predicts_from_residual ? residual : input;
    hth_output in = {.matrix = &p->in, .y = s->rank_out},
               out = {.matrix = &p->out, .bias = p->bias, .y = scores};
    hth_product_add(s->k, s->pool, &s->act_q8, x, n_tok, &in, 1, NULL);
    add_activation(s, HTH_ACTIVATION_RELU, NULL, s->rank_out, n_tok * p->in.n_row, s->rank_out);
    hth_product_add(s->k, s->pool, &s->act_q8, s->rank_out, n_tok, &out, 1, NULL);
}

/* scores[n] are what thresholds look at: f of n values of the first half. */
static void score_halves(hth_step *s, const float *half, size_t n, float *scores)
{
    add_activation(s, s->model->hparams.activation, NULL, half, n, scores);
}

/* Whether the selector decides by the half that is computed first. */
static bool looks_at_half(const hth_step *s)
{
    return s->selector == HEARTH_SELECTOR_GATE || s->selector == HEARTH_SELECTOR_THRESHOLD;
}

static hth_neuron_list ask_caller(hth_step *s, uint32_t i_layer, size_t i_row)
{
    hth_pool_finish(s->pool);
    hth_alloc_assert_none(-1);
    hth_neuron_list named = s->select(s->select_user, i_layer, s->x_norm + i_row * d_model_of(s));
    hth_alloc_assert_none(1);
    return named;
}

/* Whether every neuron's first half is computed, for all rows at once. */
static bool all_are_candidates(const hth_step *s)
{
    return s->selector != HEARTH_SELECTOR_PREDICTOR && (!s->select || looks_at_half(s));
}

/* The neurons of a row whose first half is wanted: all, or those that the caller names, or the predictor, which
 * does not count where there is a caller. */
static hth_neuron_list find_candidates(hth_step *s, uint32_t i_layer, const hth_layer *l, size_t i_row)
{
    if (all_are_candidates(s)) return (hth_neuron_list){NULL, l->d_ff};
    if (s->select) return ask_caller(s, i_layer, i_row);
    hth_compact pick = {.x = s->scores + i_row * l->d_ff,
                     .n = l->d_ff,
                     .threshold = l->predictor.threshold,
                     .out_idx = s->list};
    return (hth_neuron_list){s->list, (uint32_t)s->k->compact(&pick)};
}

/* Of all values those that a list names. */
static hth_neuron_list gather(float *x, hth_neuron_list active)
{
    for (size_t i = 0; active.list && i < active.n; i++) x[i] = x[active.list[i]];
    return active;
}

/* Of the active neurons, whose first half stands at `half`, those that it does not rule out. The
 * values close up with the list. */
static hth_neuron_list filter_candidates(hth_step *s, uint32_t i_layer, const hth_layer *l, size_t i_row, float *half,
                           hth_neuron_list active)
{
    hth_compact pick = {.x = half, .list = active.list, .n = active.n, .out_idx = s->list};
    if (s->select) return looks_at_half(s) ? gather(half, ask_caller(s, i_layer, i_row)) : active;
    if (s->selector == HEARTH_SELECTOR_THRESHOLD) {
        pick.x = s->scores + i_row * l->d_ff;
        score_halves(s, half, l->d_ff, s->scores + i_row * l->d_ff);
        hth_pool_finish(s->pool);
        pick.thresholds = l->thresholds;
        return gather(half, (hth_neuron_list){s->list, (uint32_t)s->k->compact_abs(&pick)});
    }
    if (s->selector == HEARTH_SELECTOR_DENSE) return active;
    if (!hth_activation_is_sparse(s->model->hparams.activation)) return active;
    hth_pool_finish(s->pool);
    pick.threshold = LEAST;
    pick.out_x = half;
    return (hth_neuron_list){s->list, (uint32_t)s->k->compact(&pick)};
}

/* x[n_list] to the places that list names, zeros elsewhere; from the end, so that
 * no value is overwritten before it has moved. */
static void spread(float *x, hth_neuron_list active, size_t n)
{
    if (!active.list) return;
    for (size_t to = n, i = active.n; to-- > 0;) {
        bool is_active = i > 0 && (size_t)active.list[i - 1] == to;
        x[to] = is_active ? x[--i] : 0.0f;
    }
}

/* What row i_row of hidden sends to down: the neurons of `active` that are not zero; those that a caller
 * named whatever they are. */
static void note_row(hth_step *s, const hth_layer *l, const float *hidden, size_t i_row, hth_neuron_list active)
{
    int32_t *list = s->active_idx + i_row * l->d_ff;
    float *h = s->active_vals + i_row * l->d_ff;
    hth_compact pick = {.x = hidden + i_row * l->d_ff,
                     .list = active.list,
                     .n = active.n,
                     .threshold = s->select ? 0.0f : LEAST,
                     .out_idx = list,
                     .out_x = h};
    s->active_sets[i_row] = (hth_active_set){list, h, s->k->compact_abs(&pick)};
}

typedef struct note_job {
    hth_step *s;
    const hth_layer *l;
    const float *hidden; /* [][d_ff] */
} note_job;

static void note_unit(void *arg, size_t i, uint32_t i_thread)
{
    const note_job *job = arg;
    (void)i_thread;
    note_row(job->s, job->l, job->hidden, i, (hth_neuron_list){NULL, job->l->d_ff});
}

static void add_note(hth_step *s, const hth_layer *l, const float *hidden, size_t n_tok)
{
    note_job job = {s, l, hidden};
    hth_pool_add(s->pool, note_unit, &job, sizeof job, n_tok);
}

/* One token with lists of its own. */
static void compute_row(hth_step *s, uint32_t i_layer, const hth_layer *l, size_t i_row)
{
    size_t at = i_row * l->d_ff;
    hth_neuron_list active = find_candidates(s, i_layer, l, i_row);
    if (!all_are_candidates(s)) compute_neurons(s, l, FIRST_HALF, i_row, 1, active);
    active = filter_candidates(s, i_layer, l, i_row, (is_gated(l) ? s->gate : s->up) + at, active);
    compute_neurons(s, l, SECOND_HALF, i_row, 1, active);
    activate(s, l, at, active.n);
    hth_pool_finish(s->pool);
    if (s->probe && is_gated(l)) spread(s->gate + at, active, l->d_ff);
    if (s->probe) spread(s->up + at, active, l->d_ff);
    if (s->probe || !s->model->down_transposed) spread(s->hidden + at, active, l->d_ff);
    else note_row(s, l, s->hidden, i_row, active);
}

/* Each token with lists of its own; what they are made from is read once for all. Normed inputs, and a predictor's scores,
 * are there. */
static void compute_rows(hth_step *s, uint32_t i_layer, const hth_layer *l)
{
    if (all_are_candidates(s)) compute_neurons(s, l, FIRST_HALF, 0, s->n_tok, (hth_neuron_list){NULL, l->d_ff});
    hth_pool_finish(s->pool);
    for (size_t i = 0; i < s->n_tok; i++) compute_row(s, i_layer, l, i);
}

static void compute_by_lists(hth_step *s, uint32_t i_layer, const hth_layer *l)
{
    hth_fwd_norm(s, &l->ffn_norm, s->x, s->x_norm, s->n_tok);
    if (s->selector == HEARTH_SELECTOR_PREDICTOR) predict(s, l, s->x, s->x_norm, s->n_tok, s->scores);
    compute_rows(s, i_layer, l);
}

/* ---- many tokens -------------------------------------------------------------------------------- */

typedef struct leave_job {
    const hth_step *s;
    const hth_layer *l;
} leave_job;

/* What the selector leaves out of row i becomes zero. */
static void zero_inactive(void *arg, size_t i, uint32_t i_thread)
{
    const leave_job *job = arg;
    const hth_step *s = job->s;
    const hth_layer *l = job->l;
    const float *scores = s->scores + i * l->d_ff;
    float *h = s->hidden + i * l->d_ff;
    (void)i_thread;
    if (s->selector == HEARTH_SELECTOR_PREDICTOR) {
        for (size_t j = 0; j < l->d_ff; j++) h[j] = scores[j] < l->predictor.threshold ? 0.0f : h[j];
    } else if (s->selector == HEARTH_SELECTOR_THRESHOLD) {
        for (size_t j = 0; j < l->d_ff; j++) h[j] = __builtin_fabsf(scores[j]) < l->thresholds[j] ? 0.0f : h[j];
    }
}

/* All neurons of all rows, whose normed inputs are there. */
static void compute_all(hth_step *s, const hth_layer *l)
{
    compute_neurons(s, l, BOTH, 0, s->n_tok, (hth_neuron_list){NULL, l->d_ff});
    activate(s, l, 0, (size_t)s->n_tok * l->d_ff);
}

/* What the selector leaves out of all rows; a predictor's scores are there. */
static void zero_inactive_rows(hth_step *s, const hth_layer *l)
{
    leave_job job = {s, l};
    bool scores_halves = s->selector == HEARTH_SELECTOR_THRESHOLD;
    if (scores_halves) score_halves(s, is_gated(l) ? s->gate : s->up, (size_t)s->n_tok * l->d_ff, s->scores);
    if (scores_halves || s->selector == HEARTH_SELECTOR_PREDICTOR)
        hth_pool_add(s->pool, zero_inactive, &job, sizeof job, s->n_tok);
}

static void compute_together(hth_step *s, const hth_layer *l)
{
    if (s->probe || s->selector == HEARTH_SELECTOR_THRESHOLD || !compute_hidden(s, l)) {
        hth_fwd_norm(s, &l->ffn_norm, s->x, s->x_norm, s->n_tok);
        compute_all(s, l);
    }
    if (s->selector == HEARTH_SELECTOR_PREDICTOR) predict(s, l, s->x, s->x_norm, s->n_tok, s->scores);
    zero_inactive_rows(s, l);
}

/* ---- the layer ------------------------------------------------------------------------------------ */

static void observe(hth_step *s, uint32_t i_layer, const hth_layer *l)
{
    hth_ffn_probe seen = {.i_layer = i_layer,
                            .n_tok = s->n_tok,
                            .d_model = d_model_of(s),
                            .d_ff = l->d_ff,
                            .residual = s->x,
                            .input = s->x_norm,
                            .gate = is_gated(l) ? s->gate : NULL,
                            .up = s->up,
                            .hidden = s->hidden,
                            .pool = s->pool};
    hth_pool_finish(s->pool);
    if (hth_pool_is_cancelled(s->pool)) return;
    hth_alloc_assert_none(-1);
    s->probe(s->probe_user, &seen);
    hth_alloc_assert_none(1);
}

/* out = down of hidden (or what was noted of it) for n_tok tokens, and onto where that is not NULL. */
static void add_down(hth_step *s, const hth_layer *l, const float *hidden, size_t n_tok, const float *bias,
                     float *add_to)
{
    if (s->model->down_transposed) {
        hth_axpy_output down = {.down_t = &l->down_t, .bias = bias, .y = s->block_out, .add_to = add_to};
        hth_pool_finish(s->pool);
        hth_axpy_add(s->k, s->pool, &s->axpy_scratch, s->active_sets, n_tok, &down);
        return;
    }
    /* In file order down is made of rows over all neurons; a block of zeros adds
     * nothing to a row, so lists need no down of their own. */
    hth_output down = {.matrix = &l->down, .bias = bias, .y = s->block_out, .add_to = add_to};
    hth_product_add(s->k, s->pool, &s->act_q8, hidden, n_tok, &down, 1, NULL);
}

void hth_fwd_ffn(hth_step *s, uint32_t i_layer, float *add_to)
{
    const hth_layer *l = &s->model->layers[i_layer];
    uint32_t together = s->model->down_transposed ? TOGETHER_PACKED : TOGETHER;
    bool by_lists = s->select || (s->selector != HEARTH_SELECTOR_DENSE && s->n_tok < together);
    if (by_lists) compute_by_lists(s, i_layer, l);
    else compute_together(s, l);
    if (s->probe) observe(s, i_layer, l);
    if (s->model->down_transposed && (s->probe || !by_lists)) add_note(s, l, s->hidden, s->n_tok);
    add_down(s, l, s->hidden, s->n_tok, l->down_bias, add_to);
}

/* ---- neurons that do not lie on a device ------------------------------------------------------------- */

void hth_fwd_ffn_cold(hth_step *s, uint32_t i_layer, const hth_layer *cold, uint32_t n_row,
                      hth_cold_sums *out)
{
    uint32_t n_row_of_step = s->n_tok;
    hth_axpy_output down = {
        .down_t = &cold->down_t, .acc64 = out->sums, .adds = out->more, .overflow = &out->overflow};
    s->n_tok = n_row;
    out->n_active = 0, out->overflow = false;
    if (s->selector != HEARTH_SELECTOR_DENSE && n_row < TOGETHER_PACKED) {
        compute_rows(s, i_layer, cold);
    } else {
        compute_all(s, cold);
        zero_inactive_rows(s, cold);
        add_note(s, cold, s->hidden, n_row);
    }
    hth_pool_finish(s->pool);
    for (uint32_t i = 0; i < n_row; i++) {
        uint32_t top = hth_bits_of(hth_axpy_absmax_h(s->active_sets[i].h, s->active_sets[i].n));
        if (top > out->absmax[i]) out->absmax[i] = top;
        out->n_active += s->active_sets[i].n;
    }
    if (out->n_active > 0) hth_axpy_add(s->k, s->pool, &s->axpy_scratch, s->active_sets, n_row, &down);
    hth_pool_finish(s->pool);
    s->n_tok = n_row_of_step;
}

/* ---- what a selector would have done --------------------------------------------------------------- */

typedef struct mark_job {
    const hth_step *s;
    const hth_layer *l;
    const float *first_half; /* [n_tok][d_ff] */
    uint8_t *marked;
} mark_job;

/* The decisions of find_candidates and filter_candidates, or of zero_inactive: the predictor's, or else those
 * over the first half. */
static void mark_row(void *arg, size_t i, uint32_t i_thread)
{
    const mark_job *job = arg;
    size_t n = job->l->d_ff, at = i * n;
    const float *scores = job->s->scores + at, *half = job->first_half + at, *floor = job->l->thresholds;
    uint8_t *marked = job->marked + at;
    (void)i_thread;
    switch (job->s->selector) {
    case HEARTH_SELECTOR_GATE:
        for (size_t j = 0; j < n; j++) marked[j] = !(half[j] < LEAST);
        break;
    case HEARTH_SELECTOR_PREDICTOR:
        for (size_t j = 0; j < n; j++) marked[j] = !(scores[j] < job->l->predictor.threshold);
        break;
    case HEARTH_SELECTOR_THRESHOLD:
        for (size_t j = 0; j < n; j++) marked[j] = !(__builtin_fabsf(scores[j]) < floor[j]);
        break;
    default: memset(marked, 1, n);
    }
}

void hth_step_selector_mask(hth_step *s, const hth_ffn_probe *seen, uint8_t *marked)
{
    const hth_layer *l = &s->model->layers[seen->i_layer];
    mark_job job = {s, l, seen->gate ? seen->gate : seen->up, marked};
    assert(seen->n_tok <= s->n_row_max && seen->d_ff == l->d_ff);
    if (s->selector == HEARTH_SELECTOR_PREDICTOR)
        predict(s, l, seen->residual, seen->input, seen->n_tok, s->scores);
    if (s->selector == HEARTH_SELECTOR_THRESHOLD)
        score_halves(s, job.first_half, seen->n_tok * l->d_ff, s->scores);
    hth_pool_run(s->pool, mark_row, &job, seen->n_tok);
    hth_pool_quiesce(s->pool); /* what was seen is not ours */
}

const float *hth_step_down(hth_step *s, uint32_t i_layer, const float *hidden, size_t n_tok)
{
    const hth_layer *l = &s->model->layers[i_layer];
    assert(n_tok <= s->n_row_max);
    if (s->model->down_transposed) add_note(s, l, hidden, n_tok);
    add_down(s, l, hidden, n_tok, NULL, NULL);
    hth_pool_finish(s->pool);
    hth_pool_quiesce(s->pool);
    return s->block_out;
}
