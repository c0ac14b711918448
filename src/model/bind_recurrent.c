/* Binds the tensors of recurrent mixers, and sizes their states. */
#include "model/bind_int.h"

#include <stdio.h>

static hearth_status bind_conv(hth_binder *b, uint32_t i, const char *name, size_t n_channel, hth_layer *l,
                               hth_conv *conv)
{
    conv->n_channel = (uint32_t)n_channel, conv->d_conv = b->model->hparams.recurrent.d_conv;
    l->state_sizes[HTH_STATE_STEP] = (conv->d_conv - 1) * n_channel * sizeof(float);
    return hth_bind_transposed(b, hth_bind_find_in_layer(b, i, name), conv->d_conv, n_channel, &conv->taps);
}

static hearth_status bind_short_conv(hth_binder *b, uint32_t i, hth_layer *l)
{
    size_t d = b->model->hparams.d_model;
    hth_short_conv *c = &l->short_conv;
    hearth_status st = bind_conv(b, i, "shortconv.conv.weight", d, l, &c->conv);
    if (st == HEARTH_OK)
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "shortconv.in_proj.weight"), 3 * d, d, &c->in);
    return st != HEARTH_OK
               ? st
               : hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "shortconv.out_proj.weight"), d, d, &c->out);
}

/* Queries, keys, values and the gate: in two tensors, or in one of old converters, by heads of keys. */
static hearth_status bind_inputs(hth_binder *b, uint32_t i, hth_delta_net *n)
{
    size_t d = b->model->hparams.d_model, n_inner = (size_t)n->n_head * n->d,
           n_qkv = n_inner + 2 * (size_t)n->n_head_key * n->d;
    const hth_gguf_tensor *joined = hth_bind_find_in_layer(b, i, "ssm_in.weight"),
                          *qkv = hth_bind_find_in_layer(b, i, "attn_qkv.weight");
    if (joined && !qkv) return hth_bind_matrix(b, joined, n_qkv + n_inner, d, &n->qkv);
    if (joined) hth_bind_note_used(b->model, joined);
    hearth_status st = hth_bind_matrix(b, qkv, n_qkv, d, &n->qkv);
    if (st != HEARTH_OK) return st;
    return hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_gate.weight"), n_inner, d, &n->gate);
}

static hearth_status bind_rates(hth_binder *b, uint32_t i, hth_delta_net *n)
{
    size_t d = b->model->hparams.d_model;
    const hth_gguf_tensor *joined = hth_bind_find_in_layer(b, i, "ssm_ba.weight");
    hearth_status st;
    if (joined) st = hth_bind_matrix(b, joined, 2 * n->n_head, d, &n->beta);
    else if ((st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "ssm_beta.weight"), n->n_head, d,
                                   &n->beta)) == HEARTH_OK)
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "ssm_alpha.weight"), n->n_head, d, &n->decay);
    if (st == HEARTH_OK) st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "ssm_a"), n->n_head, &n->a);
    return st != HEARTH_OK ? st : hth_bind_bias(b, i, "ssm_dt", true, n->n_head, &n->dt);
}

static hearth_status bind_delta_net(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_recurrent_sizes *sizes = &h->recurrent;
    hth_delta_net *n = &l->delta_net;
    *n = (hth_delta_net){.n_head = sizes->n_head,
                         .n_head_key = sizes->n_head_key,
                         .d = sizes->d_state,
                         .key_head_interleaved = h->arch->recurrent.key_head_interleaved};
    size_t n_inner = (size_t)n->n_head * n->d;
    l->state_sizes[HTH_STATE_CHUNK] = n->n_head_key * hth_delta_net_state(n) * sizeof(float);
    hearth_status st = bind_inputs(b, i, n);
    if (st == HEARTH_OK)
        st = bind_conv(b, i, "ssm_conv1d.weight", n_inner + 2 * (size_t)n->n_head_key * n->d, l, &n->conv);
    if (st == HEARTH_OK) st = bind_rates(b, i, n);
    if (st == HEARTH_OK)
        st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "ssm_norm.weight"), n->d, &n->norm);
    if (st != HEARTH_OK) return st;
    return hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "ssm_out.weight"), h->d_model, n_inner, &n->out);
}

static hearth_status bind_kda(hth_binder *b, uint32_t i, hth_layer *l)
{
    static const char *const taps[] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight"};
    const hth_hparams *h = &b->model->hparams;
    hth_kda *n = &l->kda;
    size_t d = h->recurrent.d_state, inner = h->recurrent.n_head * d, d_model = h->d_model;
    n->n_head = h->recurrent.n_head, n->d = (uint32_t)d;
    const hth_bind_named matrices[] = {
        {"attn_q.weight", inner, d_model, &n->q},    {"attn_k.weight", inner, d_model, &n->k},
        {"attn_v.weight", inner, d_model, &n->v},    {"ssm_beta.weight", n->n_head, d_model, &n->beta},
        {"ssm_f_a.weight", d, d_model, &n->decay_a}, {"ssm_f_b.weight", inner, d, &n->decay_b},
        {"ssm_g_a.weight", d, d_model, &n->gate_a},  {"ssm_g_b.weight", inner, d, &n->gate_b},
        {"attn_output.weight", d_model, inner, &n->out}};
    hearth_status st = HEARTH_OK;
    for (int c = 0; st == HEARTH_OK && c < 3; c++) st = bind_conv(b, i, taps[c], inner, l, &n->conv[c]);
    if (st == HEARTH_OK) st = hth_bind_matrices(b, i, matrices, sizeof matrices / sizeof *matrices);
    if (st == HEARTH_OK) st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "ssm_a"), n->n_head, &n->a);
    if (st == HEARTH_OK) st = hth_bind_bias(b, i, "ssm_dt", true, inner, &n->dt);
    if (st == HEARTH_OK) st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "ssm_norm.weight"), d, &n->norm);
    l->state_sizes[HTH_STATE_STEP] = (hth_kda_conv_state(n) + inner * d) * sizeof(float);
    return st;
}

/* ---- state spaces --------------------------------------------------------------------- */

/* A tensor NAME.weight of a layer, which some files name without its suffix. */
static const hth_gguf_tensor *find_weight(hth_binder *b, uint32_t i, const char *name)
{
    char weight[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    const hth_gguf_tensor *bare = hth_bind_find_in_layer(b, i, name), *t = hth_bind_find_in_layer(b, i, weight);
    return t ? t : bare;
}

/* ssm_in. */
static hearth_status bind_ssm_in(hth_binder *b, uint32_t i, hth_ssm *n)
{
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "ssm_in.weight");
    size_t d = b->model->hparams.d_model, inner = n->n_inner;
    switch (b->model->hparams.arch->recurrent.ssm) {
    case HTH_SSM_LOW_HEADS: return hth_bind_matrix(b, t, 2 * inner, d, &n->x);
    case HTH_SSM_CHANNELS: {
        const hth_bind_part parts[] = {{inner, &n->x}, {inner, &n->gate}};
        return hth_bind_parts(b, t, d, parts, 2);
    }
    default: {
        const hth_bind_part parts[] = {{inner, &n->gate}, {n->conv.n_channel, &n->x}, {n->n_head, &n->dt}};
        return hth_bind_parts(b, t, d, parts, 3);
    }
    }
}

/* Low steps, B and C, their norms, and the matrix of steps. */
static hearth_status bind_low(hth_binder *b, uint32_t i, hth_ssm *n)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_recurrent_rule *rule = &h->arch->recurrent;
    const hth_bind_part dt_low = {n->dt_rank, &n->dt_low}, of_b = {n->d_state, &n->b}, of_c = {n->d_state, &n->c};
    bool dt_first = rule->ssm == HTH_SSM_CHANNELS;
    const hth_bind_part parts[] = {dt_first ? dt_low : of_b, dt_first ? of_b : of_c, dt_first ? of_c : dt_low};
    hearth_status st = hth_bind_parts(b, hth_bind_find_in_layer(b, i, "ssm_x.weight"), n->n_inner, parts, 3);
    if (st == HEARTH_OK)
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "ssm_dt.weight"), n->n_head > 0 ? n->n_head : n->n_inner,
                             n->dt_rank, &n->dt);
    if (h->recurrent.norms_low) n->dt_norm = n->b_norm = n->c_norm = b->model->ones;
    if (st != HEARTH_OK || !rule->norms_low) return st;
    if ((st = hth_bind_vector(b, find_weight(b, i, "ssm_dt_norm"), n->dt_rank, &n->dt_norm)) != HEARTH_OK ||
        (st = hth_bind_vector(b, find_weight(b, i, "ssm_b_norm"), n->d_state, &n->b_norm)) != HEARTH_OK)
        return st;
    return hth_bind_vector(b, find_weight(b, i, "ssm_c_norm"), n->d_state, &n->c_norm);
}

/* Rates of decay, and the share of the input in the output. */
static hearth_status bind_ssm_rates(hth_binder *b, uint32_t i, hth_ssm *n)
{
    hth_ssm_form form = b->model->hparams.arch->recurrent.ssm;
    const hth_gguf_tensor *a = hth_bind_find_in_layer(b, i, "ssm_a");
    hearth_status st = form == HTH_SSM_CHANNELS ? hth_bind_transposed(b, a, n->d_state, n->n_inner, &n->a)
                       : form == HTH_SSM_HEADS  ? hth_bind_vectors(b, a, 1, n->n_head, &n->a)
                                                : hth_bind_vector(b, a, n->n_head, &n->a);
    if (st != HEARTH_OK) return st;
    const hth_gguf_tensor *d = hth_bind_find_in_layer(b, i, "ssm_d");
    if (form == HTH_SSM_HEADS) return hth_bind_vectors(b, d, 1, n->n_head, &n->d);
    return hth_bind_vector(b, d, n->n_head > 0 ? n->n_head : n->n_inner, &n->d);
}

static hearth_status bind_ssm_norm(hth_binder *b, uint32_t i, hth_ssm *n)
{
    const hth_recurrent_rule *rule = &b->model->hparams.arch->recurrent;
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "ssm_norm.weight");
    if (rule->ssm != HTH_SSM_HEADS || (!t && rule->ssm_norm_optional)) return HEARTH_OK;
    return hth_bind_vectors(b, t, n->n_inner / n->n_group, n->n_group, &n->norm);
}

static hearth_status bind_ssm(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_recurrent_sizes *sizes = &h->recurrent;
    hth_ssm_form form = h->arch->recurrent.ssm;
    hth_ssm *n = &l->ssm;
    *n = (hth_ssm){.n_inner = sizes->d_inner,
                   .d_state = sizes->d_state,
                   .n_head = form == HTH_SSM_CHANNELS ? 0 : sizes->n_head,
                   .n_group = sizes->n_group,
                   .dt_rank = sizes->dt_rank};
    size_t n_channel = n->n_inner + (form == HTH_SSM_HEADS ? 2 * (size_t)n->n_group * n->d_state : 0);
    hearth_status st = bind_conv(b, i, "ssm_conv1d.weight", n_channel, l, &n->conv);
    l->state_sizes[HTH_STATE_STEP] += hth_ssm_state(n) * sizeof(float);
    if (st != HEARTH_OK || (st = hth_bind_bias(b, i, "ssm_conv1d", false, n_channel, &n->conv.bias)) != HEARTH_OK ||
        (st = bind_ssm_in(b, i, n)) != HEARTH_OK)
        return st;
    if (form != HTH_SSM_HEADS && (st = bind_low(b, i, n)) != HEARTH_OK) return st;
    if ((st = hth_bind_bias(b, i, "ssm_dt", true, n->dt.n_row, &n->dt_bias)) != HEARTH_OK ||
        (st = bind_ssm_rates(b, i, n)) != HEARTH_OK || (st = bind_ssm_norm(b, i, n)) != HEARTH_OK)
        return st;
    return hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "ssm_out.weight"), h->d_model, n->n_inner, &n->out);
}

hearth_status hth_bind_recurrent(hth_binder *b, uint32_t i, hth_mixer_kind *kind, hth_layer *l)
{
    *kind = b->model->hparams.arch->recurrent.mixer;
    switch (*kind) {
    case HTH_MIXER_SSM: return bind_ssm(b, i, l);
    case HTH_MIXER_DELTA_NET: return bind_delta_net(b, i, l);
    case HTH_MIXER_KDA: return bind_kda(b, i, l);
    default: return bind_short_conv(b, i, l);
    }
}
