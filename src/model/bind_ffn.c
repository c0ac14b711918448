/* Binds the network of a layer: gate, up and down, or a router and experts; and what describes single neurons. */
#include "kernels/vector/math.h"
#include "model/bind_int.h"

#include <stdio.h>

/* A router means that a layer has experts, which contradicts the metadata. */
static hearth_status check_router(hth_binder *b, uint32_t i_layer)
{
    const hth_expert_sizes *e = &b->model->hparams.experts;
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i_layer, "ffn_gate_inp.weight");
    if (!t) return HEARTH_OK;
    char why[80] = "expert_count is 0 or missing";
    if (e->n_expert > 0 && i_layer < e->n_leading)
        snprintf(why, sizeof why, "leading_dense_block_count is %u", e->n_leading);
    else if (e->n_expert > 0) snprintf(why, sizeof why, "interleave_moe_layer_step is %u", e->step);
    return hth_fail(b->err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' (info at byte %llu) is there, but %s.%s",
                    hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                    b->model->hparams.arch->name, why);
}

/* The gate of a layer. Either all dense networks have one or none. */
static hearth_status bind_gate(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    uint32_t first = 0; /* layer with a dense network */
    while (first < i && b->model->layers[first].ffn.d_ff == 0) first++;
    bool first_has = b->model->layers[first].ffn.gate.n_row > 0;
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "ffn_gate.weight");
    if (t && i > first && !first_has) {
        hth_bind_find_in_layer(b, first, "ffn_gate.weight");
        return hth_bind_missing(b);
    }
    if (t)
        return hth_bind_linear(b, i, "ffn_gate", false, l->ffn.d_ff, h->d_model, &l->ffn.gate,
                               &l->ffn.gate_bias);
    return h->needs_gate || (i > first && first_has) ? hth_bind_missing(b) : HEARTH_OK;
}

/* Gate and up, in two tensors or in one. */
static hearth_status bind_gate_up(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    if (h->arch->fused_gate_up && !hth_bind_find_in_layer(b, i, "ffn_gate.weight")) {
        const hth_bind_part parts[] = {{l->ffn.d_ff, &l->ffn.gate}, {l->ffn.d_ff, &l->ffn.up}};
        hearth_status st =
            hth_bind_parts(b, hth_bind_find_in_layer(b, i, "ffn_up.weight"), h->d_model, parts, 2);
        if (st != HEARTH_OK) return st;
        return hth_bind_bias_parts(b, hth_bind_find_in_layer(b, i, "ffn_up.bias"),
                                   (size_t[]){l->ffn.d_ff, l->ffn.d_ff},
                                   (const float **[]){&l->ffn.gate_bias, &l->ffn.up_bias}, 2);
    }
    hearth_status st = bind_gate(b, i, l);
    bool biased = h->arch->biases == HTH_BIAS_ALL;
    return st != HEARTH_OK ? st
                           : hth_bind_linear(b, i, "ffn_up", biased, l->ffn.d_ff, h->d_model, &l->ffn.up,
                                             &l->ffn.up_bias);
}

/* True if layer 0 has a tensor. Then all layers must have it. */
static bool first_has(hth_binder *b, const char *name) { return hth_bind_find_in_layer(b, 0, name) != NULL; }

/* Checks t before it is bound as n_neuron rows of neurons, and allocates the scales of its clusters. A token uses
 * n_summed clusters. */
static hearth_status start_neuron_rows(hth_binder *b, const hth_gguf_tensor *t, size_t n_neuron, size_t n_summed,
                                       hth_transposed_down *down)
{
    const char *path = hth_gguf_path(b->model->file);
    size_t n_cluster = hth_n_cluster(n_neuron);
    const hth_type_info *type = t ? hth_type_find(t->type) : NULL;
    down->n_summed = n_summed;
    down->scale_max = hth_arena_alloc(&b->model->arena, n_cluster, sizeof *down->scale_max, 16);
    if (!down->scale_max) return hth_fail_memory(b->err, n_cluster * sizeof *down->scale_max, "bounds of neurons");
    if (!type || !type->supported) return HEARTH_OK; /* which binding refuses */
    if (hth_axpy_limit((hth_type)t->type) == 0)
        return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED, "%s: tensor '%s' is %s, which a transposed down cannot be",
                        path, b->name, type->name);
    if (hth_type_act_block((hth_type)t->type) == 0 && n_summed > HTH_MAX_CHAINS)
        return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: tensor '%s' is %s, and a token uses up to %zu neurons of it; of more than %d, a transposed "
                        "down must be quantised",
                        path, b->name, type->name, n_summed * HTH_CLUSTER_NEURONS, HTH_MAX_CHAINS * HTH_CLUSTER_NEURONS);
    return HEARTH_OK;
}

/* Down: rows of outputs or, as in PowerInfer's and packed files, transposed (rows of neurons). */
static hearth_status bind_down(hth_binder *b, uint32_t i, hth_layer *l)
{
    hth_model *m = b->model;
    size_t d = m->hparams.d_model;
    bool biased = m->hparams.arch->biases == HTH_BIAS_ALL;
    if (i == 0)
        m->down_transposed = hth_gguf_is_powerinfer(m->file) ||
                             (!first_has(b, "ffn_down.weight") && first_has(b, "ffn_down_t.weight"));
    if (!m->down_transposed)
        return hth_bind_linear(b, i, "ffn_down", biased, d, l->ffn.d_ff, &l->ffn.down, &l->ffn.down_bias);
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "ffn_down_t.weight");
    hearth_status st = start_neuron_rows(b, t, l->ffn.d_ff, hth_n_cluster(l->ffn.d_ff), &l->ffn.down_t);
    if (st == HEARTH_OK) st = hth_bind_matrix(b, t, l->ffn.d_ff, d, &l->ffn.down_t.rows);
    return st != HEARTH_OK ? st : hth_bind_bias(b, i, "ffn_down_t", biased, d, &l->ffn.down_bias);
}

/* The file determines the rank, layer by layer. */
static hearth_status bind_predictor(hth_binder *b, uint32_t i, hth_layer *l)
{
    hth_model *m = b->model;
    hth_predictor *p = &l->ffn.predictor;
    if (i == 0) m->has_predictors = hth_gguf_is_powerinfer(m->file) || first_has(b, "fc1.weight");
    if (!m->has_predictors) return HEARTH_OK;
    const hth_gguf_tensor *in = hth_bind_find_in_layer(b, i, "fc1.weight");
    if (!in) return hth_bind_missing(b);
    if (in->dim[1] < 1 || in->dim[1] > HTH_MAX_RANK)
        return hth_bind_wrong_shape(b, in, m->hparams.d_model, HTH_MAX_RANK);
    hearth_status st = hth_bind_matrix(b, in, in->dim[1], m->hparams.d_model, &p->in);
    if (st == HEARTH_OK)
        st =
            hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "fc2.weight"), l->ffn.d_ff, p->in.n_row, &p->out);
    if (p->in.n_row > m->hparams.rank) m->hparams.rank = (uint32_t)p->in.n_row;
    return st != HEARTH_OK ? st : hth_bind_bias(b, i, "fc2", false, l->ffn.d_ff, &p->bias);
}

static hearth_status bind_floor(hth_binder *b, uint32_t i, hth_layer *l)
{
    if (i == 0) b->model->has_thresholds = first_has(b, "ffn_floor.weight");
    if (!b->model->has_thresholds) return HEARTH_OK;
    hearth_status st =
        hth_bind_vector(b, hth_bind_find_in_layer(b, i, "ffn_floor.weight"), l->ffn.d_ff, &l->ffn.thresholds);
    if (st == HEARTH_OK) b->model->bindings[b->model->n_binding - 1].must_be_nonneg = true;
    return st;
}

/* The original index of each neuron before packing. No computation uses it, but it must be a permutation
 * (check_order in engine/load.c). */
static hearth_status bind_order(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "ffn_order");
    if (!t) return HEARTH_OK;
    hearth_status st = hth_bind_check_indices(b, t, l->ffn.d_ff, 1);
    if (st != HEARTH_OK) return st;
    l->ffn.order = t;
    hth_bind_note_used(b->model, t);
    return HEARTH_OK;
}

/* ---- experts ------------------------------------------------------------------------ */

static hearth_status bind_router(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_expert_sizes *e = &h->experts;
    hth_router *r = &l->experts.router;
    *r = (hth_router){.n_expert = e->n_expert,
                      .n_used = e->n_used,
                      .n_group = e->n_group,
                      .n_group_used = e->n_group_used,
                      .score = e->score,
                      .normalise = e->normalise,
                      .scale = e->scale,
                      .apply_router_weight_on_input = h->arch->experts.apply_router_weight_on_input,
                      .reads_layer_input = h->arch->experts.routes_layer_input};
    hearth_status st = hth_bind_vectors(b, hth_bind_find_in_layer(b, i, "ffn_gate_inp.weight"), h->d_model,
                                        e->n_expert, &r->weight);
    if (st == HEARTH_OK && h->arch->experts.router_normed)
        st = hth_bind_scaled(b, hth_bind_find_in_layer(b, i, "ffn_gate_inp.scale"), h->d_model,
                             1.0 / hth_sqrt_d((double)h->d_model), &r->norm.weight);
    const hth_gguf_tensor *scale = hth_bind_find_in_layer(b, i, "ffn_down_exps.scale");
    if (st == HEARTH_OK && scale && h->arch->experts.dense_residual_normed)
        st = hth_bind_vector(b, scale, e->n_expert, &r->expert_scale);
    if (st == HEARTH_OK)
        st = hth_bind_bias(b, i, "ffn_gate_inp", h->arch->experts.biased, e->n_expert, &r->bias);
    if (st == HEARTH_OK && i < e->n_hashed)
        return hth_bind_indices(b, hth_bind_find_in_layer(b, i, "ffn_gate_tid2eid.weight"), e->n_used, h->n_vocab,
                                e->n_expert, &r->by_token);
    if (st != HEARTH_OK || !h->arch->experts.select_bias) return st;
    const hth_gguf_tensor *bare =
        hth_bind_find_in_layer(b, i, "exp_probs_b"); /* some converters write it without a suffix */
    if (bare) return hth_bind_vector(b, bare, e->n_expert, &r->select_bias);
    return hth_bind_bias(b, i, "exp_probs_b", false, e->n_expert, &r->select_bias);
}

/* One of the three matrices of all experts, and its bias. */
static hearth_status bind_expert_matrix(hth_binder *b, uint32_t i, const char *name, size_t n_row,
                                        size_t n_col, hth_matrix *m, const float **bias)
{
    const hth_hparams *h = &b->model->hparams;
    char full[48];
    snprintf(full, sizeof full, "%s.weight", name);
    hearth_status st =
        hth_bind_slices(b, hth_bind_find_in_layer(b, i, full), h->experts.n_expert, n_row, n_col, m);
    if (st != HEARTH_OK || !h->arch->experts.biased) return st;
    snprintf(full, sizeof full, "%s.bias", name);
    return hth_bind_vectors(b, hth_bind_find_in_layer(b, i, full), n_row, h->experts.n_expert, bias);
}

/* Whether experts of a layer have a gate: the activation needs one, or the file has it. */
static bool has_gate(hth_binder *b, uint32_t i, const char *name)
{
    return b->model->hparams.needs_gate || hth_bind_find_in_layer(b, i, name);
}

/* Gate and up, in two tensors or in one. Slices of the joined one are halves of experts. */
static hearth_status bind_expert_halves(hth_binder *b, uint32_t i, hth_experts *e)
{
    size_t d = b->model->hparams.d_model, f = e->d_ff, n = b->model->hparams.experts.n_expert;
    const hth_gguf_tensor *joined = hth_bind_find_in_layer(b, i, "ffn_gate_up_exps.weight");
    if (joined) {
        hearth_status st = hth_bind_slices(b, joined, n, 2 * f, d, &e->gate);
        e->gate.n_slice = 2 * n;
        return st;
    }
    hearth_status st = HEARTH_OK;
    if (has_gate(b, i, "ffn_gate_exps.weight"))
        st = bind_expert_matrix(b, i, "ffn_gate_exps", f, d, &e->gate, &e->gate_bias);
    return st != HEARTH_OK ? st : bind_expert_matrix(b, i, "ffn_up_exps", f, d, &e->up, &e->up_bias);
}

/* Down: rows of outputs or, in SmallThinker's own files, of neurons, which its shape alone tells. */
static hearth_status bind_expert_down(hth_binder *b, uint32_t i, hth_experts *e)
{
    const hth_hparams *h = &b->model->hparams;
    size_t d = h->d_model, f = e->d_ff, n = h->experts.n_expert;
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "ffn_down_exps.weight");
    if (h->arch->experts.down_by_shape && d == f)
        return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: experts of %zu neurons and outputs: nothing tells whether tensor '%s' has rows of either",
                        hth_gguf_path(b->model->file), d, b->name);
    if (!t || !h->arch->experts.down_by_shape || t->dim[0] != d || t->dim[1] != f)
        return bind_expert_matrix(b, i, "ffn_down_exps", d, f, &e->down, &e->down_bias);
    b->model->expert_down_transposed = true;
    size_t n_summed = h->experts.n_used * (hth_n_cluster(f) + 1); /* experts need not begin with a cluster */
    hearth_status st = start_neuron_rows(b, t, n * f, n_summed, &e->down_t);
    return st == HEARTH_OK ? hth_bind_slices(b, t, n, f, d, &e->down_t.rows) : st;
}

static hearth_status bind_shared_expert(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    size_t d = h->d_model, f = h->experts.d_ff_shared;
    hth_ffn *shared = &l->experts.shared;
    hearth_status st = HEARTH_OK;
    if (f == 0) return HEARTH_OK;
    shared->d_ff = (uint32_t)f;
    l->experts.shared_weight = h->experts.shared_weight;
    if (has_gate(b, i, "ffn_gate_shexp.weight"))
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "ffn_gate_shexp.weight"), f, d, &shared->gate);
    if (st != HEARTH_OK ||
        (st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "ffn_up_shexp.weight"), f, d, &shared->up)) !=
            HEARTH_OK ||
        (st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "ffn_down_shexp.weight"), d, f,
                              &shared->down)) != HEARTH_OK)
        return st;
    if (!h->arch->experts.shared_gated) return HEARTH_OK;
    return hth_bind_vector(b, hth_bind_find_in_layer(b, i, "ffn_gate_inp_shexp.weight"), d,
                           &l->experts.shared_gate);
}

static hearth_status bind_experts(hth_binder *b, uint32_t i, hth_layer *l)
{
    hth_experts *e = &l->experts;
    hearth_status st;
    e->d_ff = b->model->hparams.experts.d_ff;
    if ((st = bind_router(b, i, l)) != HEARTH_OK || (st = bind_expert_halves(b, i, e)) != HEARTH_OK ||
        (st = bind_expert_down(b, i, e)) != HEARTH_OK)
        return st;
    return bind_shared_expert(b, i, l);
}

static hearth_status bind_dense(hth_binder *b, uint32_t i, hth_layer *l)
{
    hearth_status st;
    bool checked = l->network == HTH_NETWORK_DENSE && !b->model->hparams.arch->experts.ignored;
    if (checked && (st = check_router(b, i)) != HEARTH_OK) return st;
    if ((st = bind_gate_up(b, i, l)) != HEARTH_OK || (st = bind_down(b, i, l)) != HEARTH_OK ||
        (st = bind_predictor(b, i, l)) != HEARTH_OK || (st = bind_floor(b, i, l)) != HEARTH_OK)
        return st;
    return bind_order(b, i, l);
}

static hearth_status bind_both_norms(hth_binder *b, uint32_t i, hth_experts *e)
{
    hearth_status st = hth_bind_norm(b, i, "pre_ffw_norm_2", &e->norm);
    if (st == HEARTH_OK) st = hth_bind_norm(b, i, "post_ffw_norm_1", &e->dense_post_norm);
    return st == HEARTH_OK ? hth_bind_norm(b, i, "post_ffw_norm_2", &e->post_norm) : st;
}

static const char *post_norm_name(hth_binder *b, uint32_t i)
{
    const char *name = b->model->hparams.arch->ffn_post_norm;
    return name && !hth_bind_find_in_layer(b, i, "post_ffw_norm.weight") ? name : "post_ffw_norm";
}

hearth_status hth_bind_ffn(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const char *norm = h->arch->layers == HTH_LAYERS_EITHER ? "attn_norm"
                       : h->arch->ffn_norm                  ? h->arch->ffn_norm
                                                            : "ffn_norm";
    bool has_norm = !h->arch->no_pre_norms && (!h->parallel || h->arch->parallel == HTH_PARALLEL_BY_KEY);
    hearth_status st = has_norm ? hth_bind_norm(b, i, norm, &l->ffn_norm) : HEARTH_OK;
    if (st == HEARTH_OK && l->network != HTH_NETWORK_EXPERTS) st = bind_dense(b, i, l);
    if (st == HEARTH_OK && hth_has_experts(l->network)) st = bind_experts(b, i, l);
    if (st == HEARTH_OK && l->network == HTH_NETWORK_BOTH && h->arch->experts.dense_residual_normed)
        st = bind_both_norms(b, i, &l->experts);
    l->experts.reads_stream_before = hth_has_experts(l->network) && h->arch->experts.reads_stream_before;
    if (st == HEARTH_OK && l->experts.reads_stream_before) st = hth_bind_norm(b, i, "ffn_norm_exps", &l->experts.norm);
    if (st == HEARTH_OK && h->arch->post_norms) st = hth_bind_norm(b, i, post_norm_name(b, i), &l->ffn_post_norm);
    return st == HEARTH_OK ? hth_bind_storage(b, i, l) : st;
}
