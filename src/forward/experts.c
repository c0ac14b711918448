/* ROUTE, EXPERTS and SETTLE, the mixture of experts of a layer: routes all tokens of a step, then computes
 * by expert, so that the weights of each are read once, with its tokens side by side. A token's experts
 * are parts of sums in Q31.32, each times its weight: neither the order of experts nor the tokens beside
 * it change a bit (docs/arithmetic.md 6).
 *
 * A pair is a token and one of its experts. Pairs are computed in waves, as many as fit into the
 * workspace. */
#include "forward/forward_int.h"
#include "forward/router.h"

#include <string.h>

/* Outputs of a unit that adds pairs to the sums; bytes of router rows of a unit. */
enum { JOIN_OUTPUTS = 256, ROUTER_UNIT = 64 << 10 };

static uint32_t d_model_of(const hth_step *s) { return s->model->hparams.d_model; }

/* ---- routing ------------------------------------------------------------------------------------------- */

typedef struct route_job {
    const hth_step *s;
    const hth_op *op;
    const hth_router *router;
    size_t n_row; /* experts of a unit */
} route_job;

static void logits_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const route_job *job = arg;
    const hth_router *r = job->router;
    size_t d = d_model_of(job->s), per_token = (r->n_expert + job->n_row - 1) / job->n_row;
    size_t t = i_unit / per_token, first = i_unit % per_token * job->n_row, left = r->n_expert - first,
           n = left < job->n_row ? left : job->n_row;
    float *y = hth_fwd_row(job->s, job->op->temp[0], t) + first;
    (void)i_thread;
    job->s->k->dot_rows(r->weight + first * d, n, d, hth_fwd_row(job->s, job->op->in[0], t), y);
    if (r->bias) job->s->k->add(y, r->bias + first, n, y);
}

static float *weights_behind(uint32_t *chosen, uint32_t n_used) { return (float *)(void *)(chosen + n_used); }

static void choose_unit(void *arg, size_t t, uint32_t i_thread)
{
    const route_job *job = arg;
    const hth_step *s = job->s;
    const hth_router *r = job->router;
    uint32_t *chosen = hth_fwd_ids(s, job->op->out[0], t);
    float *weights = weights_behind(chosen, r->n_used);
    hth_route(s->k, r, s->tokens[t].token, hth_fwd_row(s, job->op->temp[0], t),
              s->experts.scores + i_thread * r->n_expert, chosen, weights);
    if (s->route) s->route(s->route_user, job->op->layer, s->n_tok_done + t, false, chosen);
    for (uint32_t i = 0; r->expert_scale && i < r->n_used; i++) weights[i] *= r->expert_scale[chosen[i]];
}

static bool is_here(const uint32_t *slot_of, uint32_t expert) { return !slot_of || slot_of[expert] == UINT32_MAX; }

/* Sorts the pairs of all tokens by expert: those of expert e are [first[e], first[e + 1]). slot_of: NULL, or only experts
 * without a slot. */
static void sort_pairs(hth_step *s, const hth_router *r, hth_view view, bool is_weighed, const uint32_t *slot_of)
{
    hth_expert_buffers *b = &s->experts;
    memset(b->first, 0, (r->n_expert + 2) * sizeof *b->first);
    for (uint32_t t = 0; t < s->n_tok; t++)
        for (uint32_t i = 0; i < r->n_used; i++)
            b->first[hth_fwd_ids(s, view, t)[i] + 2] += is_here(slot_of, hth_fwd_ids(s, view, t)[i]);
    for (uint32_t e = 0; e < r->n_expert; e++) b->first[e + 2] += b->first[e + 1];
    for (uint32_t t = 0; t < s->n_tok; t++) { /* first[e + 1] moves from the start of e to its end */
        uint32_t *chosen = hth_fwd_ids(s, view, t);
        const float *weights = weights_behind(chosen, r->n_used);
        for (uint32_t i = 0; i < r->n_used; i++)
            if (is_here(slot_of, chosen[i]))
                b->pairs[b->first[chosen[i] + 1]++] =
                    (hth_expert_pair){t, is_weighed ? t * r->n_used + i : t, is_weighed ? 1.0f : weights[i]};
    }
}

static bool is_streamed(const hth_step *s, uint32_t i_layer)
{
    return s->streamed && s->streamed->first_expert && s->streamed->first_expert[i_layer] != UINT32_MAX;
}

/* Asks for the experts that were chosen, if that was not done. */
static void ask_for_chosen(hth_step *s, uint32_t i_layer)
{
    const hth_streamed *from = s->streamed;
    hth_expert_buffers *b = &s->experts;
    uint32_t n_expert = s->model->layers[i_layer].experts.router.n_expert,
             first_item = from->first_expert[i_layer];
    if (b->n_wanted > 0) return;
    for (uint32_t i = 0; i < n_expert; i++)
        if (b->first[i + 1] > b->first[i]) b->wanted[b->n_wanted++] = first_item + i;
    hth_store_request(from->store, b->wanted, b->n_wanted);
    hth_store_prefetch(from->store, NULL, 0); /* the guesses that were wrong are not read any more */
}

/* The shared expert's weight for a token. */
static void weigh_unit(void *arg, size_t t, uint32_t i_thread)
{
    const route_job *job = arg;
    const hth_step *s = job->s;
    const hth_experts *e = &s->model->layers[job->op->layer].experts;
    uint32_t *chosen = hth_fwd_ids(s, job->op->out[0], t);
    float *weight = weights_behind(chosen, 1);
    (void)i_thread;
    *chosen = 0, *weight = e->shared_weight;
    if (!e->shared_gate) return;
    s->k->dot_rows(e->shared_gate, 1, d_model_of(s), hth_fwd_row(s, job->op->in[0], t), weight);
    s->k->sigmoid(weight, 1, weight);
}

hearth_status hth_fwd_route(hth_step *s, const hth_op *op, hearth_error *err)
{
    const hth_router *r = &s->model->layers[op->layer].experts.router;
    route_job job = {s, op, r, ROUTER_UNIT / (d_model_of(s) * sizeof(float)) / 4 * 4 + 4};
    size_t per_token = (r->n_expert + job.n_row - 1) / job.n_row;
    if (op->experts.shared) {
        hth_pool_add(s->pool, weigh_unit, &job, sizeof job, s->n_tok);
        return HEARTH_OK;
    }
    hth_pool_add(s->pool, logits_unit, &job, sizeof job, s->n_tok * per_token);
    hth_pool_add(s->pool, choose_unit, &job, sizeof job, s->n_tok);
    if (!op->experts.early || !is_streamed(s, op->layer)) return HEARTH_OK;
    hth_pool_finish(s->pool);
    if (hth_pool_is_cancelled(s->pool)) return hth_fail_cancelled(err);
    sort_pairs(s, r, op->out[0], r->apply_router_weight_on_input, NULL);
    ask_for_chosen(s, op->layer);
    return HEARTH_OK;
}

/* ---- a wave -------------------------------------------------------------------------------------------- */

/* Copies the inputs of pairs side by side, where a product quantises them. */
typedef struct gather_arg {
    const float *from;
    float *to;
    const hth_expert_pair *pairs;
    size_t d;
} gather_arg;
_Static_assert(sizeof(gather_arg) == HTH_PREPARE_SIZE, "a gather is what a product prepares with");

static void gather(const void *arg, size_t i)
{
    const gather_arg *g = arg;
    memcpy(g->to + i * g->d, g->from + g->pairs[i].x * g->d, g->d * sizeof *g->to);
}

typedef struct join_job {
    const hth_step *s;
    int64_t *sums;
    uint32_t n_row; /* rows of the wave */
} join_job;

/* Adds some outputs of all pairs of a wave to the sums of their tokens. */
static void join_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const join_job *job = arg;
    const hth_expert_buffers *b = &job->s->experts;
    size_t d = d_model_of(job->s), first = i_unit * JOIN_OUTPUTS,
           n = d - first < JOIN_OUTPUTS ? d - first : JOIN_OUTPUTS;
    float part[JOIN_OUTPUTS];
    (void)i_thread;
    for (uint32_t i = 0; i < job->n_row; i++) {
        const hth_expert_pair *p = &b->rows[i];
        if (p->token == UINT32_MAX) continue;
        job->s->k->scale(b->out + i * d + first, p->weight, n, part);
        int64_t *sums = job->sums + p->token * (d + 1);
        if (!job->s->k->axpy_flush_chain(n, part, sums + first))
            __atomic_store_n(&sums[d], 1, __ATOMIC_RELAXED);
    }
}

/* The computation of a wave: slices of three matrices, or two. */
typedef struct network {
    const float *x;                     /* [n_tok][d_model], or is_weighed: [n_tok][n_used][d_model] */
    int64_t *sums;                      /* [n_tok][d_model + 1] */
    const hth_matrix *gate, *up, *down; /* gate may be absent */
    const hth_transposed_down *down_t;  /* instead of down, or NULL */
    const float *gate_bias, *up_bias, *down_bias;
    uint32_t d_ff;
    uint32_t step; /* 2: gate and up are one matrix (hth_experts) */
    bool is_weighed;
    float limit; /* hth_experts */
    bool streamed;
    const uint8_t *data[HTH_N_EXPERT_PART]; /* weights of the expert that is added next, if it is streamed */
} network;

/* The addresses of a wave's slices; NULL: they are in the matrix. */
static const uint8_t *const *data_of(const hth_step *s, const network *net, int part)
{
    return net->streamed ? s->experts.data[part] : NULL;
}

/* Gate and up, or up alone; returns their number. */
static size_t get_halves(const hth_step *s, const network *net, hth_output halves[2])
{
    size_t n = 0;
    if (net->gate->n_row > 0)
        halves[n++] = (hth_output){.matrix = net->gate,
                                   .bias = net->gate_bias,
                                   .slice_step = net->step,
                                   .slice_data = data_of(s, net, HTH_EXPERT_GATE)};
    halves[n++] = (hth_output){.matrix = net->up,
                               .bias = net->up_bias,
                               .slice_step = net->step,
                               .first_slice = net->step - 1,
                               .slice_data = data_of(s, net, HTH_EXPERT_UP)};
    return n;
}

/* Computes the rows of a wave, and adds them to the sums. */
static void run_wave(hth_step *s, const network *net)
{
    hth_expert_buffers *b = &s->experts;
    bool one = s->n_tok == 1 && !net->is_weighed;
    hth_submatrices in = {b->slices, b->n_slice, net->d_ff, b->n_row, one, b->slice_of},
                    out = {b->slices, b->n_slice, d_model_of(s), b->n_row, false, b->slice_of};
    const uint8_t *const *down_data = data_of(s, net, HTH_EXPERT_DOWN);
    hth_output halves[2],
        down = {.matrix = net->down, .bias = net->down_bias, .y = b->out, .slice_data = down_data};
    gather_arg g = {net->x, b->x, b->rows, d_model_of(s)};
    hth_fusion fusion = {.prepare = one ? NULL : gather,
                         .prepare_arg = &g,
                         .activate = s->k->activate[s->model->hparams.activation],
                         .limit = net->limit,
                         .hidden = b->hidden};
    size_t n_half = get_halves(s, net, halves);
    hth_product_slices_add(s->k, s->pool, &s->act_q8, one ? net->x : b->x, &in, halves, n_half, &fusion);
    if (net->down_t) {
        hth_fwd_experts_down(s, net->down_t, down_data, net->d_ff, net->sums);
    } else {
        hth_product_slices_add(s->k, s->pool, &s->act_q8, b->hidden, &out, &down, 1, NULL);
        join_job join = {s, net->sums, b->n_row};
        hth_pool_add(s->pool, join_unit, &join, sizeof join,
                     (d_model_of(s) + JOIN_OUTPUTS - 1) / JOIN_OUTPUTS);
    }
    hth_pool_finish(s->pool);
    b->n_slice = b->n_row = 0;
}

static uint32_t whole_tiles(uint32_t n) { return (uint32_t)hth_n_tiled(n); }

/* Adds n pairs as a slice. Several begin at a tile, and fill it. */
static void add_slice(hth_step *s, const network *net, uint32_t i_slice, const hth_expert_pair *pairs,
                      uint32_t n)
{
    hth_expert_buffers *b = &s->experts;
    uint32_t first = n > 1 ? whole_tiles(b->n_row) : b->n_row, size = n > 1 ? whole_tiles(n) : 1;
    if (first + size > b->max_row) run_wave(s, net), first = 0;
    for (uint32_t r = b->n_row; r < first + size; r++) b->rows[r].token = b->slice_of[r] = UINT32_MAX;
    memcpy(b->rows + first, pairs, n * sizeof *pairs);
    for (uint32_t r = first; r < first + n; r++) b->slice_of[r] = b->n_slice;
    for (int i = 0; i < HTH_N_EXPERT_PART; i++) b->data[i][b->n_slice] = net->data[i];
    b->slices[b->n_slice++] = (hth_submatrix){i_slice, first, n};
    b->n_row = first + size;
}

/* n pairs of one slice, in pieces whose gate and up fit into the scratch memory of a thread. */
static void add_pairs(hth_step *s, const network *net, uint32_t i_slice, const hth_expert_pair *pairs,
                      uint32_t n)
{
    hth_output halves[2];
    uint32_t max = (uint32_t)hth_product_max_fused(halves, get_halves(s, net, halves));
    if (max > s->experts.max_row) max = s->experts.max_row;
    for (uint32_t at = 0; at < n; at += max)
        add_slice(s, net, i_slice, pairs + at, n - at < max ? n - at : max);
}

/* Adds the pairs of an expert. */
static void add_expert(hth_step *s, const network *net, uint32_t i)
{
    const hth_expert_buffers *b = &s->experts;
    add_pairs(s, net, i, b->pairs + b->first[i], b->first[i + 1] - b->first[i]);
}

/* Sets where the parts of an expert lie. */
static void set_data(network *net, const hth_store_view *view)
{
    uint32_t n = 0;
    if (net->gate->n_row > 0) net->data[HTH_EXPERT_GATE] = view->data[n++];
    if (net->step == 1) net->data[HTH_EXPERT_UP] = view->data[n++];
    else net->data[HTH_EXPERT_UP] = net->data[HTH_EXPERT_GATE] + net->d_ff * net->gate->row_size;
    net->data[HTH_EXPERT_DOWN] = view->data[n];
}

static void give_back(const hth_step *s, size_t *n_held)
{
    while (*n_held > 0) hth_store_release(s->streamed->store, s->experts.held[--*n_held]);
}

static const hth_op *route_of(const hth_step *s, uint32_t i_layer)
{
    const hth_op *op = &s->program->ops[s->program->first_of_layer[i_layer]];
    while (op->kind != HTH_OP_ROUTE) op++;
    return op;
}

/* Prefetches the experts that the next layer would choose if this one added nothing to the residual stream. */
static void prefetch_experts(hth_step *s, uint32_t i_layer)
{
    const hth_streamed *from = s->streamed;
    hth_expert_buffers *b = &s->experts;
    uint32_t next = i_layer + 1;
    if (s->n_tok > 1 || next == s->model->hparams.n_layer || from->first_expert[next] == UINT32_MAX) return;
    const hth_router *r = &s->model->layers[next].experts.router;
    s->k->dot_rows(r->weight, r->n_expert, d_model_of(s),
                   hth_fwd_guess_input(s, route_of(s, next), b->guess_x), b->guess_logits);
    if (r->bias) s->k->add(b->guess_logits, r->bias, r->n_expert, b->guess_logits);
    hth_route(s->k, r, s->tokens[0].token, b->guess_logits, b->scores, b->guess, b->guess_weights);
    if (s->route) s->route(s->route_user, next, s->n_tok_done, true, b->guess);
    for (uint32_t i = 0; i < r->n_used; i++) b->guess[i] += from->first_expert[next];
    hth_store_prefetch(from->store, b->guess, r->n_used);
}

/* Computes experts in waves as the store has them: those in memory first, while the others are read. */
static hearth_status run_streamed(hth_step *s, uint32_t i_layer, network *net, bool guesses, hearth_error *err)
{
    hth_store *store = s->streamed->store;
    hth_expert_buffers *b = &s->experts;
    hearth_status st = HEARTH_OK;
    size_t n_held = 0;
    ask_for_chosen(s, i_layer);
    if (guesses) prefetch_experts(s, i_layer);
    while (b->n_wanted + n_held > 0) {
        hth_store_view view;
        size_t before = b->n_wanted;
        if (before > 0) st = hth_store_acquire(store, b->wanted, &b->n_wanted, n_held == 0, &view, err);
        if (st != HEARTH_OK) break;
        if (b->n_wanted < before) {
            set_data(net, &view);
            add_expert(s, net, view.i_item - s->streamed->first_expert[i_layer]);
            b->held[n_held++] = view.i_item;
        } else {
            run_wave(s, net);
            give_back(s, &n_held);
        }
    }
    b->n_slice = b->n_row = 0;
    hth_fwd_drop_wanted(s);
    give_back(s, &n_held);
    return st;
}

void hth_fwd_drop_wanted(hth_step *s)
{
    if (s->experts.n_wanted > 0) hth_store_cancel(s->streamed->store, s->experts.wanted, s->experts.n_wanted);
    s->experts.n_wanted = 0;
}

static hearth_status run_chosen(hth_step *s, const hth_op *op, bool guesses, hearth_error *err)
{
    const hth_experts *e = &s->model->layers[op->layer].experts;
    bool joined = e->up.n_row == 0;
    network net = {hth_fwd_row(s, op->in[0], 0),
                   hth_fwd_value(s, op->out[0]),
                   &e->gate,
                   joined ? &e->gate : &e->up,
                   &e->down,
                   e->down_t.rows.n_row > 0 ? &e->down_t : NULL,
                   e->gate_bias,
                   e->up_bias,
                   e->down_bias,
                   e->d_ff,
                   joined ? 2 : 1,
                   op->experts.is_weighed,
                   e->limit,
                   is_streamed(s, op->layer),
                   {0}};
    if (net.streamed) return run_streamed(s, op->layer, &net, guesses, err);
    for (uint32_t i = 0; i < e->router.n_expert; i++) add_expert(s, &net, i);
    run_wave(s, &net);
    return HEARTH_OK;
}

/* ---- the shared expert --------------------------------------------------------------------------------- */

/* The pairs of all tokens. */
static hearth_status run_shared(hth_step *s, const hth_op *op)
{
    const hth_experts *e = &s->model->layers[op->layer].experts;
    const hth_ffn *f = &e->shared;
    const float *x = hth_fwd_row(s, op->in[0], 0);
    const network net = {x,
                         hth_fwd_value(s, op->out[0]),
                         &f->gate,
                         &f->up,
                         &f->down,
                         NULL,
                         f->gate_bias,
                         f->up_bias,
                         f->down_bias,
                         f->d_ff,
                         1,
                         false,
                         e->shared_limit,
                         false,
                         {0}};
    hth_expert_buffers *b = &s->experts;
    hth_pool_finish(s->pool); /* the weights are computed */
    for (uint32_t t = 0; t < s->n_tok; t++)
        b->pairs[t] = (hth_expert_pair){t, t, *weights_behind(hth_fwd_ids(s, op->in[1], t), 1)};
    add_pairs(s, &net, 0, b->pairs, s->n_tok);
    run_wave(s, &net);
    return HEARTH_OK;
}

/* ---- operations ---------------------------------------------------------------------------------------- */

/* slot_of: NULL, or experts without a slot. guesses: the residual stream is here, so that the next layer's can be
 * guessed. */
static hearth_status run_experts(hth_step *s, const hth_op *op, const uint32_t *slot_of, bool guesses, hearth_error *err)
{
    sort_pairs(s, &s->model->layers[op->layer].experts.router, op->in[1], op->experts.is_weighed, slot_of);
    memset(hth_fwd_value(s, op->out[0]), 0, (size_t)s->n_tok * (d_model_of(s) + 1) * sizeof(int64_t));
    return run_chosen(s, op, guesses, err);
}

hearth_status hth_fwd_experts(hth_step *s, const hth_op *op, hearth_error *err)
{
    if (op->experts.shared) return run_shared(s, op);
    hth_pool_finish(s->pool);
    if (hth_pool_is_cancelled(s->pool)) return hth_fail_cancelled(err); /* then nothing was chosen */
    return run_experts(s, op, NULL, true, err);
}

hearth_status hth_fwd_experts_without(hth_step *s, const hth_op *op, const uint32_t *slot_of, hearth_error *err)
{
    return run_experts(s, op, slot_of, false, err);
}

hearth_status hth_fwd_read_experts_without(hth_step *s, const hth_op *op, const uint32_t *slot_of, hearth_error *err)
{
    hth_expert_buffers *b = &s->experts;
    hearth_status st = HEARTH_OK;
    if (!is_streamed(s, op->layer)) return HEARTH_OK;
    sort_pairs(s, &s->model->layers[op->layer].experts.router, op->in[1], op->experts.is_weighed, slot_of);
    ask_for_chosen(s, op->layer);
    while (st == HEARTH_OK && b->n_wanted > 0) {
        hth_store_view view;
        st = hth_store_acquire(s->streamed->store, b->wanted, &b->n_wanted, true, &view, err);
        if (st == HEARTH_OK) hth_store_release(s->streamed->store, view.i_item);
    }
    hth_fwd_drop_wanted(s);
    return st;
}

/* The sums become floats. */
void hth_fwd_settle_row(const hth_step *s, const hth_op *op, size_t t)
{
    size_t d = d_model_of(s);
    const int64_t *sums = (const int64_t *)hth_fwd_value(s, op->in[0]) + t * (d + 1);
    float *y = hth_fwd_row(s, op->adds ? op->temp[0] : op->out[0], t);
    hth_axpy_write(s->k, sums, d, sums[d] != 0, NULL, y, op->adds ? hth_fwd_row(s, op->out[0], t) : NULL);
}
