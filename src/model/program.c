/* Builds the program of a model: embeddings, each layer's mixer (program_mixers.c) and network, the head.
 * What follows from a layer's tensors and the hyper-parameters is decided here and nowhere else. */
#include "model/program_int.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

static hth_build_target target_of(hth_builder *b, bool adds, hth_view x)
{
    return (hth_build_target){adds ? x : hth_build_floats(b, b->h->d_model), adds};
}

/* ---- networks ------------------------------------------------------------------------------------------ */

static void dense(hth_builder *b, const hth_layer *l, hth_view x, hth_build_target to)
{
    hth_view n = hth_build_normed(b, &l->ffn_norm, x), halves = hth_build_floats(b, 2 * (size_t)l->ffn.d_ff),
             hidden = hth_build_floats(b, l->ffn.d_ff);
    hth_view scratch = hth_build_scratch(b, to);
    b->p->ffn_of_layer[b->layer] = b->p->n_op;
    hth_op *op = hth_build_op(b, HTH_OP_FFN);
    op->in[0] = n, op->in[1] = x;
    hth_build_set_target(op, to, scratch);
    op->temp[1] = halves, op->temp[2] = hidden; /* gate and up */
}

/* The choice of a layer's experts, and behind them their weights: side by side, as devices need them. */
static hth_view route(hth_builder *b, const hth_layer *l, hth_view x, bool early)
{
    const hth_router *r = &l->experts.router;
    hth_view chosen = hth_build_value(b, HTH_IDS, HTH_ROWS_TOKENS, 2 * (size_t)r->n_used),
             logits = hth_build_floats(b, r->n_expert);
    hth_op *op = hth_build_op(b, HTH_OP_ROUTE);
    op->in[0] = x, op->out[0] = chosen, op->temp[0] = logits;
    op->experts.early = early;
    return chosen;
}

/* The one that all tokens use: its number, which is 0, and its weight. */
static hth_view route_shared(hth_builder *b, hth_view x)
{
    hth_view chosen = hth_build_value(b, HTH_IDS, HTH_ROWS_TOKENS, 2), logit = hth_build_floats(b, 1);
    hth_op *op = hth_build_op(b, HTH_OP_ROUTE);
    op->in[0] = x, op->out[0] = chosen, op->temp[0] = logit, op->experts.shared = true;
    return chosen;
}

/* The input of each expert, times its weight. */
static hth_view weighed_inputs(hth_builder *b, const hth_router *r, hth_view n, hth_view chosen)
{
    size_t d = b->h->d_model;
    hth_view all = hth_build_floats(b, r->n_used * d);
    for (uint32_t i = 0; i < r->n_used; i++)
        hth_build_mul(b, HTH_MUL_PLAIN, hth_build_behind(chosen, r->n_used + i), n, hth_build_behind(all, i * d), d, d);
    return all;
}

/* kept: the normed input of layers whose experts read the stream before the mixer; made: the choice, if it was. */
static void experts(hth_builder *b, const hth_layer *l, hth_view x, hth_view kept, hth_view made,
                    hth_build_target to)
{
    const hth_experts *e = &l->experts;
    if (e->router.norm.weight) made = route(b, l, hth_build_normed(b, &e->router.norm, x), false);
    hth_view n = e->reads_stream_before
                     ? kept
                     : hth_build_normed(b, hth_build_is_bound(&e->norm) ? &e->norm : &l->ffn_norm, x);
    if (hth_build_is_none(made)) made = route(b, l, n, false);
    hth_view shared = e->shared.d_ff > 0 ? route_shared(b, n) : hth_build_none;
    hth_view sums = hth_build_value(b, HTH_SUMS, HTH_ROWS_TOKENS,
                                    b->h->d_model + 1), /* and whether a sum overflowed */
        scratch = hth_build_scratch(b, to);
    bool is_weighed = e->router.apply_router_weight_on_input;
    hth_view in = is_weighed ? weighed_inputs(b, &e->router, n, made) : n;
    hth_op *op = hth_build_op(b, HTH_OP_EXPERTS);
    op->in[0] = in, op->in[1] = made, op->out[0] = sums, op->experts.is_weighed = is_weighed;
    if (e->shared.d_ff > 0) {
        op = hth_build_op(b, HTH_OP_EXPERTS);
        op->in[0] = n, op->in[1] = shared, op->out[0] = sums, op->experts.shared = true;
    }
    op = hth_build_op(b, HTH_OP_SETTLE);
    op->in[0] = sums;
    hth_build_set_target(op, to, scratch);
}

static void both(hth_builder *b, const hth_layer *l, hth_view x, hth_view kept, hth_view made,
                 hth_build_target to)
{
    const hth_experts *e = &l->experts;
    size_t d = b->h->d_model;
    hth_build_target residual = target_of(b, false, x);
    assert(!to.adds);
    dense(b, l, x, residual);
    hth_build_norm_in_place(b, &e->dense_post_norm, residual.to);
    experts(b, l, x, kept, made, to);
    hth_build_norm_in_place(b, &e->post_norm, to.to);
    hth_build_add(b, residual.to, to.to, d);
    if (b->h->dense_residual_scale != 0.0)
        hth_build_scale(b, to.to, to.to, d, (float)b->h->dense_residual_scale, NULL);
}

/* ---- layers -------------------------------------------------------------------------------------------- */

static hth_view mixer_input(hth_builder *b, const hth_layer *l, hth_view x)
{
    return hth_build_normed(b, hth_build_is_bound(&l->mixer_norm) ? &l->mixer_norm : &l->ffn_norm, x);
}

static void network(hth_builder *b, const hth_layer *l, hth_view x, hth_view kept, hth_view made,
                    hth_build_target to)
{
    if (l->network == HTH_NETWORK_DENSE) dense(b, l, x, to);
    else if (l->network == HTH_NETWORK_EXPERTS) experts(b, l, x, kept, made, to);
    else both(b, l, x, kept, made, to);
}

/* Adds a block's output to the residual stream, after a post-norm where the architecture has one. */
static void add_block(hth_builder *b, hth_view block, const hth_norm *post, hth_view x)
{
    size_t d = b->h->d_model;
    hth_build_norm_in_place(b, post, block);
    if (b->h->residual_scale != 1.0f) hth_build_scale(b, block, block, d, b->h->residual_scale, NULL);
    hth_build_add(b, block, x, d);
}

/* Adds the operations after the network: the layer's embedding, and scales. Layers without a network, and those with
 * several streams, have none. */
static void end_layer(hth_builder *b, const hth_layer *l, hth_view x, hth_view embedding, hth_view by_layer)
{
    size_t d = b->h->d_model, d_own = b->h->d_layer_embd;
    if (l->embedding.gate.n_row > 0) {
        hth_view gate = hth_build_floats(b, d_own);
        hth_build_target to = target_of(b, false, x);
        hth_build_multiply(b, &l->embedding.gate, x, gate);
        hth_build_mul(b, HTH_MUL_GELU, gate, hth_build_behind(by_layer, b->layer * d_own), gate, d_own, 0);
        hth_build_multiply_to(b, &l->embedding.proj, NULL, gate, to);
        add_block(b, to.to, &l->embedding.norm, x);
    }
    if (l->embedding_scale) {
        hth_view scaled = hth_build_floats(b, d);
        hth_build_scale(b, embedding, scaled, d, 1.0f, &l->embedding_scale);
        hth_build_add(b, scaled, x, d);
    }
    if (l->output_scale) hth_build_scale(b, x, x, d, 1.0f, &l->output_scale);
}

static void layer(hth_builder *b, const hth_layer *l, hth_view x, hth_view embedding, hth_view by_layer)
{
    const hth_hparams *h = b->h;
    bool scaled = h->residual_scale != 1.0f, two = l->parallel_mixer != HTH_MIXER_NONE,
         parallel = h->parallel;
    hth_view made = hth_build_none, kept = hth_build_none, saved = hth_build_none;
    if (hth_has_experts(l->network) && l->experts.router.reads_layer_input) made = route(b, l, x, true);
    if (l->experts.reads_stream_before) kept = hth_build_normed(b, &l->experts.norm, x);
    if (l->mixer != HTH_MIXER_NONE) {
        hth_build_target to =
            target_of(b, !(parallel || scaled || two || hth_build_is_bound(&l->mixer_post_norm)), x);
        hth_view n = mixer_input(b, l, x);
        hth_build_mixer(b, l->mixer, l, n, to);
        if (two) hth_build_mixer(b, l->parallel_mixer, l, n, (hth_build_target){to.to, true});
        if (parallel) saved = to.to;
        else if (!to.adds) add_block(b, to.to, &l->mixer_post_norm, x);
    }
    if (l->network == HTH_NETWORK_NONE) return;
    bool is_both = l->network == HTH_NETWORK_BOTH;
    hth_build_target to =
        target_of(b, !(parallel || scaled || is_both || hth_build_is_bound(&l->ffn_post_norm)), x);
    network(b, l, x, kept, made, to);
    if (parallel) add_block(b, saved, &l->mixer_post_norm, x);
    if (!to.adds) add_block(b, to.to, &l->ffn_post_norm, x);
    end_layer(b, l, x, embedding, by_layer);
}

static void streams(hth_builder *b, hth_stream_form form, const hth_hyper_connection *c, hth_view from,
                    hth_view to, hth_view weights)
{
    hth_op *op = hth_build_op(b, HTH_OP_STREAMS);
    op->in[0] = from, op->out[0] = to;
    op->streams = (hth_op_stream){form, c};
    if (form == HTH_STREAMS_READ) op->out[1] = weights;
    if (form == HTH_STREAMS_WRITE) op->in[1] = weights;
}

/* A layer whose blocks read and write streams (hth_hyper_connection). */
static void connected_layer(hth_builder *b, const hth_layer *l, hth_view x, hth_view all)
{
    size_t n = b->h->n_stream;
    hth_view weights = hth_build_floats(b, (2 + n) * n);
    hth_build_target to = target_of(b, false, x);
    streams(b, HTH_STREAMS_READ, &l->mixer_connection, all, x, weights);
    hth_build_mixer(b, l->mixer, l, mixer_input(b, l, x), to);
    streams(b, HTH_STREAMS_WRITE, NULL, to.to, all, weights);
    weights = hth_build_floats(b, (2 + n) * n), to = target_of(b, false, x);
    streams(b, HTH_STREAMS_READ, &l->ffn_connection, all, x, weights);
    network(b, l, x, hth_build_none, hth_build_none, to);
    streams(b, HTH_STREAMS_WRITE, NULL, to.to, all, weights);
}

/* ---- before and after the layers ----------------------------------------------------------------------- */

static void embed(hth_builder *b, hth_embed_table table, hth_view x)
{
    hth_op *op = hth_build_op(b, HTH_OP_EMBED);
    op->out[0] = x, op->table = table;
    if (table == HTH_EMBED_LAYERS) op->in[0] = x;
}

/* The input of a block that predicts a token further. */
static void join_hidden(hth_builder *b, hth_view x)
{
    const hth_mtp_input *in = &b->m->mtp;
    size_t d = b->h->d_model;
    hth_view hidden = hth_build_floats(b, d), halves = hth_build_floats(b, 2 * d);
    embed(b, HTH_EMBED_HIDDEN, hidden);
    hth_build_norm(b, &in->embedding_norm, x, halves);
    hth_build_norm(b, &in->hidden_norm, hidden, hth_build_behind(halves, d));
    hth_build_multiply(b, &in->proj, halves, x);
}

static void head(hth_builder *b, hth_view x)
{
    const hth_hparams *h = b->h;
    hth_view rows = hth_build_value(b, HTH_FLOATS, HTH_ROWS_WANTED, h->d_model),
             logits = hth_build_value(b, HTH_FLOATS, HTH_ROWS_WANTED, h->n_vocab);
    hth_op *op;
    b->p->logits = logits;
    b->p->hidden = hth_build_floats(b, h->d_model);
    op = hth_build_op(b, HTH_OP_GATHER);
    op->in[0] = x, op->out[0] = rows;
    b->p->output_norm = b->p->n_op;
    hth_build_norm(b, &b->m->output_norm, rows, rows);
    op = hth_build_product(b, rows);
    hth_build_also(op, b->m->tied ? &b->m->token_embd : &b->m->output, &b->m->output_bias, logits);
    if (h->logit_scale != 1.0f) hth_build_scale(b, logits, logits, h->n_vocab, h->logit_scale, NULL);
    if (h->logit_softcap != 0.0f) {
        op = hth_build_op(b, HTH_OP_CAP);
        op->in[0] = op->out[0] = logits;
        op->vector = (hth_op_vector){.n = h->n_vocab, .factor = h->logit_softcap};
    }
}

static void build(hth_builder *b)
{
    hth_model *m = b->m;
    const hth_hparams *h = b->h;
    size_t d = h->d_model, n_own = (size_t)h->n_layer * h->d_layer_embd;
    hth_view x = b->p->x = hth_build_floats(b, d), embedding = hth_build_none, by_layer = hth_build_none,
             all = hth_build_none;
    b->layer = h->n_layer;
    embed(b, HTH_EMBED_TOKENS, x);
    hth_build_norm_in_place(b, &m->embedding_norm, x);
    if (m->mtp.proj.n_row > 0) join_hidden(b, x);
    if (h->adds_embedding)
        embedding = hth_build_floats(b, d),
        hth_build_copy_part(hth_build_copy(b, x, embedding), 0, 1, d, 0, 0, 0, 0);
    if (h->n_stream > 0)
        all = hth_build_floats(b, h->n_stream * d),
        streams(b, HTH_STREAMS_BEGIN, NULL, x, all, hth_build_none);
    if (n_own > 0)
        by_layer = hth_build_floats(b, n_own), hth_build_multiply(b, &m->layer_proj, x, by_layer),
        embed(b, HTH_EMBED_LAYERS, by_layer);
    if (h->rope.n_rot > 0) hth_build_op(b, HTH_OP_ROPE);
    for (uint32_t i = 0; i < h->n_layer; i++) {
        b->layer = i;
        b->p->first_of_layer[i] = b->p->n_op;
        b->p->ffn_of_layer[i] = UINT32_MAX;
        if (h->n_stream > 0) connected_layer(b, &m->layers[i], x, all);
        else layer(b, &m->layers[i], x, embedding, by_layer);
    }
    b->layer = h->n_layer;
    b->p->first_of_layer[h->n_layer] = b->p->n_op;
    if (h->n_stream > 0)
        streams(b, HTH_STREAMS_READ, &m->output_connection, all, x,
                hth_build_floats(b, (2 + h->n_stream) * h->n_stream));
    head(b, x);
}

/* Moves a list to the arena. */
static void *keep(hth_model *m, void *list, size_t n, size_t size)
{
    void *kept = list ? hth_arena_alloc(&m->arena, n, size, 16) : NULL;
    if (kept) memcpy(kept, list, n * size);
    hth_free(list);
    return kept;
}

hearth_status hth_program_build(hth_model *m, hearth_error *err)
{
    hth_program *p = hth_arena_alloc(&m->arena, 1, sizeof *p, 16);
    hth_builder b = {.m = m, .h = &m->hparams, .p = p};
    bool ok = p != NULL;
    if (ok)
        p->first_of_layer = hth_arena_alloc(&m->arena, m->hparams.n_layer + 1, sizeof *p->first_of_layer, 16);
    if (ok) p->ffn_of_layer = hth_arena_alloc(&m->arena, m->hparams.n_layer, sizeof *p->ffn_of_layer, 16);
    ok = ok && p->first_of_layer && p->ffn_of_layer;
    if (ok) build(&b);
    ok = ok && !b.no_memory && hth_build_place_values(p);
    if (p) p->ops = keep(m, p->ops, p->n_op, sizeof *p->ops);
    if (p) p->values = keep(m, p->values, p->n_value, sizeof *p->values);
    if (!ok || !p->ops || !p->values) return hth_fail_memory(err, sizeof *p, "the operations of a model");
    m->program = p;
    return HEARTH_OK;
}
