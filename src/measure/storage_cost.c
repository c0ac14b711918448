/* The compute time of a token, from the bytes of its matrices and the measured rates. Matrices that stay in memory have
 * the layout that the CPU prefers, items of a store that of the file. */
#include "measure/storage_cost.h"

#include "base/alloc.h"
#include "model/program.h"
#include "placement/plan_model.h"

/* Jobs of the thread pool: of a mixer and what surrounds it; of a router and of a wave of experts; of a dense network.
 * */
enum { MIXER_JOBS = 7, EXPERT_JOBS = 8, DENSE_JOBS = 4 };

typedef struct costing {
    const hearth_model *m;
    const hth_memory_division *d;
    const hth_storage_machine *machine;
    const hth_profile *profile; /* or NULL */
    bool many;                  /* tokens of a prompt */
} costing;

/* ---- rates ----------------------------------------------------------------------------------------- */

static const hth_calibration *rates_of(const hth_storage_machine *machine, hth_type type)
{
    for (size_t i = 0; i < machine->n_rate; i++)
        if (machine->rates[i].type == type) return &machine->rates[i];
    return &machine->rates[0]; /* a type with few bytes was not measured */
}

/* Seconds of a byte in the order of the file. */
static double of_rows(const costing *c, const hth_matrix *w)
{
    const hth_calibration *r = rates_of(c->machine, w->type);
    return 1.0 / (c->many ? r->cpu_prompt_rows : r->cpu_rate.median);
}

/* Seconds of a matrix in memory. */
static double of_packed(const costing *c, const hth_matrix *w)
{
    const hth_calibration *r = rates_of(c->machine, w->type);
    double size = (double)w->n_row * (double)w->row_size;
    if (c->many) return size / r->cpu_prompt;
    return size / (r->cpu_packed.median > 0.0 ? r->cpu_packed.median : r->cpu_rate.median);
}

/* Seconds of a byte if this share of the rows is computed, one by one; of all, as of whole matrices. */
static double of_live(const costing *c, const hth_matrix *w, double share)
{
    hth_plan_rates rates;
    const hth_calibration *r = rates_of(c->machine, w->type);
    if (c->many) return of_rows(c, w); /* all neurons are computed */
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++) rates.at[i] = r->cpu_down[i];
    return share / hth_plan_rate(&rates, share);
}

/* ---- networks -------------------------------------------------------------------------------------- */

static double sum_packed(const costing *c, const hth_matrix *const *all, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += of_packed(c, all[i]);
    return sum;
}

static void cost_experts(const costing *c, const hth_experts *e, hth_layer_cost *to)
{
    const hth_matrix *all[HTH_EXPERT_MATRICES], *const shared[] = {&e->shared.gate, &e->shared.up,
                                                                   &e->shared.down};
    const hth_router *r = &e->router;
    int n = 0;
    hth_expert_matrices(e, all);
    double used = (double)r->n_used / r->n_expert;
    to->network = used * sum_packed(c, all, HTH_EXPERT_MATRICES);
    for (int i = 0; i < HTH_EXPERT_MATRICES; i++)
        if (all[i]->n_row > 0 && n < HTH_MAX_EXTENT) to->of_byte[n++] = of_rows(c, all[i]);
    to->always += sum_packed(c, shared, sizeof shared / sizeof *shared) + EXPERT_JOBS * c->machine->job +
                  (double)r->n_expert * c->m->model->hparams.d_model * sizeof *r->weight /
                      c->machine->rates[0].cpu_rate.median;
}

/* The chance that a neuron is active. */
static double neuron_share(const costing *c, uint32_t i_layer, uint32_t j)
{
    const hth_ffn *f = &c->m->model->layers[i_layer].ffn;
    if (c->profile) return (double)c->profile->layers[i_layer].n_fired[j] / (double)c->profile->n_done;
    return f->act_freq ? (double)f->act_freq[j / HTH_ACT_FREQ_BLOCK] : hth_plan_assumed(c->m->selector);
}

/* The share of a cluster's neurons that is computed after the first half. */
static double active_share(const costing *c, uint32_t i_layer, uint32_t i)
{
    if (c->m->selector == HEARTH_SELECTOR_DENSE || c->many) return 1.0;
    return c->profile ? hth_plan_profiled_share(c->profile, i_layer, i)
                      : hth_plan_active_share(&c->m->model->layers[i_layer], i, c->m->selector);
}

static double live_share(const costing *c, uint32_t i_layer)
{
    double sum = 0.0;
    size_t n = hth_n_cluster(c->m->model->layers[i_layer].ffn.d_ff);
    for (uint32_t k = 0; k < n; k++) sum += active_share(c, i_layer, k);
    return sum / (double)n;
}

static void cost_dense(const costing *c, uint32_t i_layer, hth_layer_cost *to)
{
    const hth_ffn *f = &c->m->model->layers[i_layer].ffn;
    const hth_matrix *const halves[] = {&f->gate, &f->up}, *const predictor[] = {&f->predictor.in,
                                                                                 &f->predictor.out};
    const hth_matrix *down = hth_ffn_is_transposed(f) ? &f->down_t.rows : &f->down;
    bool predicts = c->m->selector == HEARTH_SELECTOR_PREDICTOR;
    double live = live_share(c, i_layer), size = 0.0;
    int n = 0;
    for (int i = 0; i < 2; i++) {
        bool whole = live >= 1.0 || (n == 0 && !predicts);
        if (halves[i]->n_row == 0) continue;
        size = (double)halves[i]->n_row * (double)halves[i]->row_size;
        to->network += whole ? of_packed(c, halves[i]) : size * of_live(c, halves[i], live);
        to->of_byte[n++] = of_rows(c, halves[i]);
    }
    size = (double)down->n_row * (double)down->row_size;
    to->network += down == &f->down ? of_packed(c, down) : size * of_live(c, down, live);
    to->of_down = of_rows(c, down);
    to->always += DENSE_JOBS * c->machine->job + (predicts ? sum_packed(c, predictor, 2) : 0.0);
    if (down != &f->down) to->of_byte[n] = of_live(c, down, 1.0);
}

/* Bundles of a layer. numbers: two for each. */
static double *cost_bundles(const costing *c, uint32_t i_layer, hth_layer_cost *to, double *numbers)
{
    const hth_ffn *f = &c->m->model->layers[i_layer].ffn;
    const hth_ffn_bundles *b = to->bundles = &c->d->items.bundles[i_layer];
    bool leaves_out = c->m->selector != HEARTH_SELECTOR_DENSE && !c->many;
    to->live = numbers, to->wanted = numbers + b->n;
    to->names = c->m->selector == HEARTH_SELECTOR_PREDICTOR && !c->many;
    to->of_live = of_live(c, &f->down_t.rows, 1.0);
    for (uint32_t i = 0; i < b->n; i++) {
        double none = 1.0, sum = 0.0;
        uint32_t first = i << b->shift, end = (i + 1) << b->shift;
        if (end > f->d_ff) end = f->d_ff;
        for (uint32_t j = first; j < end; j++) {
            double fires = leaves_out ? neuron_share(c, i_layer, j) : 1.0;
            none *= 1.0 - fires, sum += fires;
        }
        to->live[i] = sum / (end - first);
        to->wanted[i] = 1.0 - none;
    }
    return numbers + 2 * b->n;
}

/* ---- layers ---------------------------------------------------------------------------------------- */

/* All matrices of a layer but those of its network. */
static double cost_mixers(const costing *c, uint32_t i)
{
    const hth_program *p = c->m->model->program;
    double sum = MIXER_JOBS * c->machine->job;
    for (uint32_t k = p->first_of_layer[i]; k < p->first_of_layer[i + 1]; k++) {
        const hth_op_weights w = hth_op_weights_of(c->m->model, &p->ops[k]);
        for (uint32_t j = 0; j < w.n && !hth_op_is_network(&p->ops[k]); j++) sum += of_packed(c, w.matrix[j]);
    }
    return sum;
}

/* A generated token attends to few positions beside all weights. */
static void cost_attention(const costing *c, const hth_attention *a, hth_layer_cost *to)
{
    if (!c->many) return;
    to->position = 2.0 * a->n_head * a->d_head / c->machine->rates[0].cpu_attention;
    to->window = a->window > 0 ? a->window : a->chunk; /* a chunk hides more */
}

static double *cost_layer(const costing *c, uint32_t i, hth_layer_cost *to, double *numbers)
{
    const hth_layer *l = &c->m->model->layers[i];
    const hth_ffn_pieces *pieces = &c->d->items.pieces[i];
    bool in_bundles = c->d->items.bundles[i].n > 0;
    bool has_experts = hth_has_experts(l->network);
    *to = (hth_layer_cost){.always = cost_mixers(c, i), .first_down = UINT32_MAX};
    cost_attention(c, &l->attn, to);
    if (has_experts) cost_experts(c, &l->experts, to);
    if (l->ffn.d_ff == 0) return numbers;
    hth_layer_cost dense = {0};
    cost_dense(c, i, &dense);
    to->always += dense.always;
    if (has_experts || (pieces->n_half == 0 && !in_bundles)) { /* the dense network stays in memory */
        to->always += dense.network;
        return numbers;
    }
    to->network = dense.network;
    to->of_down = dense.of_down;
    for (int k = 0; k < HTH_MAX_EXTENT; k++) to->of_byte[k] = dense.of_byte[k];
    if (pieces->n_down > 0) to->first_down = pieces->first_item + pieces->n_half;
    return in_bundles ? cost_bundles(c, i, to, numbers) : numbers;
}

hearth_status hth_storage_cost_open(hth_storage_cost *cost, const hearth_model *m,
                                    const hth_memory_division *d, const hth_storage_machine *machine,
                                    const hth_storage_tokens *tokens, hearth_error *err)
{
    const costing c = {m, d, machine, tokens->profile, tokens->n_together > 1};
    uint32_t n_layer = m->model->hparams.n_layer;
    size_t n_number = 0;
    for (uint32_t i = 0; i < n_layer; i++) n_number += 2 * (size_t)d->items.bundles[i].n;
    cost->layers = hth_alloc(n_layer, sizeof *cost->layers);
    cost->numbers = hth_alloc(n_number + 1, sizeof *cost->numbers);
    if (!cost->layers || !cost->numbers)
        return hth_fail_memory(err, n_layer * sizeof *cost->layers, "a plan");
    double *numbers = cost->numbers;
    for (uint32_t i = 0; i < n_layer; i++) numbers = cost_layer(&c, i, &cost->layers[i], numbers);
    if (!c.many) cost->head = of_packed(&c, m->model->tied ? &m->model->token_embd : &m->model->output);
    return HEARTH_OK;
}

void hth_storage_cost_free(hth_storage_cost *cost)
{
    hth_free(cost->layers);
    hth_free(cost->numbers);
}

/* Items of bundles: first halves (or both halves), second halves, rows of down. */
static double cost_bundle_item(const hth_layer_cost *layer, const hth_store_item *item, uint32_t at)
{
    const hth_ffn_bundles *b = layer->bundles;
    uint32_t i_bundle = at % b->n;
    double rows = 0.0, live = layer->live[i_bundle] * layer->of_live;
    if (at >= b->n) return live * (double)item->extents[0].size;
    for (uint32_t k = 0; k < item->n_extent; k++)
        rows += (k > 0 || (layer->names && !b->has_second) ? live : layer->of_byte[k]) *
                (double)item->extents[k].size;
    return rows;
}

double hth_layer_cost_item(const hth_layer_cost *layer, const hth_weight_items *items, uint32_t i_item)
{
    const hth_store_item *item = &items->items[i_item];
    double sum = 0.0;
    if (layer->bundles) return cost_bundle_item(layer, item, i_item - layer->bundles->first_item);
    if (i_item >= layer->first_down) return layer->of_down * (double)item->extents[0].size;
    for (uint32_t k = 0; k < item->n_extent; k++) sum += layer->of_byte[k] * (double)item->extents[k].size;
    return sum;
}

/* Positions that the first n tokens attend to. */
static double positions_of(double n, double window)
{
    double grows = window > 0.0 && window < n ? window : n;
    return grows * (grows + 1.0) / 2.0 + (n - grows) * window;
}

double hth_layer_cost_attention(const hth_layer_cost *layer, uint64_t position, uint32_t n_tok)
{
    double n = (double)position, window = layer->window;
    return layer->position * (positions_of(n + n_tok, window) - positions_of(n, window));
}

double hth_storage_cost_resident(const hth_storage_cost *cost, uint32_t n_layer, uint32_t n_tok)
{
    double sum = cost->head;
    for (uint32_t i = 0; i < n_layer; i++)
        sum += cost->layers[i].always + cost->layers[i].network +
               hth_layer_cost_attention(&cost->layers[i], 0, n_tok) / n_tok;
    return sum;
}
