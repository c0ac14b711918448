/* The operations of mixers. */
#include "model/program_int.h"

#include <assert.h>

/* ---- attention ----------------------------------------------------------------------------------------- */

static hth_view attend(hth_builder *b, const hth_attention *a, hth_view q)
{
    hth_view y = hth_build_floats(b, (size_t)a->n_head * a->d_head);
    hth_op *op = hth_build_op(b, HTH_OP_ATTEND);
    op->in[0] = q, op->out[0] = y;
    return y;
}

/* Multiplies the results of heads by the gate, in place. */
static void gate_heads(hth_builder *b, const hth_attention *a, hth_view gate, hth_view y)
{
    size_t n = (size_t)a->n_head * a->d_head;
    bool by_head = !a->q_has_gate && a->gate.n_row != n;
    hth_build_mul(b, b->h->gate_softplus ? HTH_MUL_SOFTPLUS : HTH_MUL_SIGMOID, gate, y, y, n,
                  by_head ? a->d_head : 0);
}

static void attention(hth_builder *b, const hth_layer *l, hth_view n, hth_build_target to)
{
    const hth_attention *a = &l->attn;
    size_t n_q = (size_t)a->n_head * a->d_head, n_kv = (size_t)a->n_head_kv * a->d_head;
    bool own = a->kv_layer == b->layer, is_gated = a->q_has_gate || a->gate.n_row > 0,
         is_narrow = a->d_value > 0;
    assert(!(is_gated && is_narrow)); /* no architecture has both */
    /* The outputs of one product lie together, as devices need them. */
    hth_view q = hth_build_floats(b, own ? n_q + 2 * n_kv : n_q), k = own ? hth_build_behind(q, n_q) : hth_build_none,
             v = own ? hth_build_behind(k, n_kv) : hth_build_none,
             q_in = a->q_has_gate ? hth_build_floats(b, 2 * n_q) : q,
             v_in = is_narrow && own ? hth_build_floats(b, a->v.n_row) : v,
             gate = is_gated ? hth_build_floats(b, a->q_has_gate ? n_q : a->gate.n_row) : hth_build_none;
    hth_op *op = hth_build_product(b, n);
    hth_build_also(op, &a->q, &a->q_bias, q_in);
    if (own) hth_build_also(op, &a->k, &a->k_bias, k); /* a joined tensor has rows of these all the same */
    if (own) hth_build_also(op, &a->v, &a->v_bias, v_in);
    hth_build_also(op, &a->gate, NULL, gate);
    op = hth_build_op(b, HTH_OP_HEADS);
    op->in[0] = q_in, op->in[1] = k, op->in[2] = a->values_are_keys ? hth_build_none : v_in;
    op->out[0] = q, op->out[1] = k, op->out[2] = v, op->out[3] = a->q_has_gate ? gate : hth_build_none;
    hth_view y = attend(b, a, q);
    if (is_gated) gate_heads(b, a, gate, y);
    if (is_narrow) {
        hth_view together = hth_build_floats(b, (size_t)a->n_head * a->d_value);
        hth_build_copy_part(hth_build_copy(b, y, together), 0, a->n_head, a->d_value, 0, a->d_head, 0,
                            a->d_value);
        y = together;
    }
    hth_build_multiply_to(b, &a->o, &a->o_bias, y, to);
}

static void by_head(hth_builder *b, hth_by_head_form form, const hth_matrix *m, size_t n_head,
                    size_t from_head, size_t d_in, size_t to_head, size_t d_out, hth_view x, hth_view y)
{
    hth_op *op = hth_build_op(b, HTH_OP_BY_HEAD);
    op->in[0] = x, op->out[0] = y;
    op->by_head = (hth_op_by_head){
        form, m, (uint32_t)n_head, (uint32_t)from_head, (uint32_t)to_head, (uint32_t)d_in, (uint32_t)d_out};
}

static void latent(hth_builder *b, const hth_layer *l, hth_view n, hth_build_target to)
{
    const hth_latent *t = &l->latent;
    const hth_latent_sizes *z = &b->h->latent;
    size_t n_head = l->attn.n_head, d_key = z->d_nope + z->d_rope, d = z->rank + z->d_rope;
    bool low_rank = t->q_b.n_row > 0, joined = t->kv_b.n_row > 0;
    hth_view q = hth_build_floats(b, n_head * d), whole = hth_build_floats(b, n_head * d_key),
             key = hth_build_floats(b, d), value = hth_build_floats(b, d),
             low = low_rank ? hth_build_floats(b, t->q_a.n_row) : hth_build_none,
             out = hth_build_floats(b, n_head * z->d_value);
    hth_op *op = hth_build_product(b, n);
    hth_build_also(op, &t->q_a, NULL, low_rank ? low : whole);
    hth_build_also(op, &t->kv_a, NULL, key);
    if (low_rank) hth_build_norm_whole(b, &t->q_norm, t->q_a.n_row, low);
    if (low_rank) hth_build_multiply(b, &t->q_b, low, whole);
    op = hth_build_op(b, HTH_OP_HEADS);
    op->in[0] = whole, op->in[1] = key;
    op->out[0] = q, op->out[1] = key, op->out[2] = value;
    if (b->h->temperature_scale != 0.0f && l->attn.has_temperature) op->out[3] = whole; /* scaled in place */
    by_head(b, joined ? HTH_BY_HEAD_ROWS : HTH_BY_HEAD_QUERIES, joined ? &t->kv_b : &t->k_b, n_head, d_key, z->d_nope, d,
            z->rank, whole, q);
    hth_view y = attend(b, &l->attn, q);
    if (joined) { /* with all rows, of which the first ones are those of keys */
        size_t n_row = z->d_nope + z->d_value;
        hth_view both = hth_build_floats(b, n_head * n_row);
        by_head(b, HTH_BY_HEAD_VALUES, &t->kv_b, n_head, d, z->rank, n_row, n_row, y, both);
        hth_build_copy_part(hth_build_copy(b, both, out), 0, n_head, z->d_value, z->d_nope, n_row, 0, z->d_value);
    } else {
        by_head(b, HTH_BY_HEAD_VALUES, &t->v_b, n_head, d, z->rank, z->d_value, z->d_value, y, out);
    }
    hth_build_multiply_to(b, &l->attn.o, NULL, out, to);
}

static void compressed(hth_builder *b, const hth_layer *l, hth_view n, hth_build_target to)
{
    const hth_compressed *c = &l->compressed;
    const hth_compressed_sizes *z = &b->h->compressed;
    size_t d = l->attn.d_head, n_head = l->attn.n_head, d_in = n_head / z->n_group * d;
    bool has_blocks = c->n_tok > 0;
    hth_view low = hth_build_floats(b, c->q_a.n_row), key = hth_build_floats(b, d),
             q = hth_build_floats(b, n_head * d),
             values = has_blocks ? hth_build_floats(b, c->values.n_row) : hth_build_none,
             scores = has_blocks ? hth_build_floats(b, c->scores.n_row) : hth_build_none,
             groups = hth_build_floats(b, (size_t)z->n_group * z->out_rank);
    hth_op *op = hth_build_product(b, n);
    hth_build_also(op, &c->q_a, NULL, low);
    hth_build_also(op, &c->kv, NULL, key);
    if (has_blocks) hth_build_also(op, &c->values, NULL, values);
    if (has_blocks) hth_build_also(op, &c->scores, NULL, scores);
    hth_build_norm_whole(b, &c->q_norm, c->q_a.n_row, low);
    hth_build_multiply(b, &c->q_b, low, q);
    op = hth_build_op(b, HTH_OP_HEADS);
    op->in[0] = q, op->in[1] = key, op->out[0] = q, op->out[1] = key;
    if (has_blocks) {
        op = hth_build_op(b, HTH_OP_COMPRESS);
        op->in[0] = values, op->in[1] = scores, op->out[0] = scores;
    }
    hth_view y = attend(b, &l->attn, q);
    by_head(b, HTH_BY_HEAD_GROUPS, &c->o_a, z->n_group, d_in, d_in, z->out_rank, z->out_rank, y, groups);
    hth_build_multiply_to(b, &l->attn.o, NULL, groups, to);
}

/* ---- recurrent mixers ---------------------------------------------------------------------------------- */

static void convolve(hth_builder *b, const hth_conv *c, hth_view x, hth_view y, size_t state_at, bool silu)
{
    hth_op *op = hth_build_op(b, HTH_OP_CONV);
    op->in[0] = x, op->out[0] = y;
    op->conv = (hth_op_conv){c, (uint32_t)state_at, silu};
}

static void short_conv(hth_builder *b, const hth_layer *l, hth_view n, hth_build_target to)
{
    const hth_short_conv *c = &l->short_conv;
    size_t d = c->conv.n_channel;
    hth_view in = hth_build_floats(b, 3 * d), y = hth_build_floats(b, d); /* in: b, c and x */
    hth_build_multiply(b, &c->in, n, in);
    hth_build_mul(b, HTH_MUL_PLAIN, in, hth_build_behind(in, 2 * d), hth_build_behind(in, 2 * d), d, 0);
    convolve(b, &c->conv, hth_build_behind(in, 2 * d), y, 0, false);
    hth_build_mul(b, HTH_MUL_PLAIN, hth_build_behind(in, d), y, y, d, 0);
    hth_build_multiply_to(b, &c->out, NULL, y, to);
}

/* The rows of one tensor of old converters, by heads of keys: queries, keys, values of its heads, their gates. */
static void split_delta(hth_builder *b, const hth_delta_net *n, hth_view joined, hth_view in, hth_view gate)
{
    size_t d = n->d, n_key = n->n_head_key, n_value = n->n_head / n_key * d, step = 2 * d + 2 * n_value;
    hth_op *op = hth_build_copy(b, joined, in);
    op->out[1] = gate;
    hth_build_copy_part(op, 0, n_key, d, 0, step, 0, d);
    hth_build_copy_part(op, 0, n_key, d, d, step, n_key * d, d);
    hth_build_copy_part(op, 0, n_key, n_value, 2 * d, step, 2 * n_key * d, n_value);
    hth_build_copy_part(op, 1, n_key, n_value, 2 * d + n_value, step, 0, n_value);
}

static void delta_net(hth_builder *b, const hth_layer *l, hth_view x, hth_build_target to)
{
    const hth_delta_net *n = &l->delta_net;
    size_t d = n->d, n_head = n->n_head, n_channel = n->conv.n_channel;
    const float *const *plain = (const float *const *)&b->m->ones;
    bool joined = n->gate.n_row == 0, joined_rates = n->decay.n_row == 0;
    hth_view in = hth_build_floats(b, n_channel), gate = hth_build_floats(b, n_head * d),
             whole = joined ? hth_build_floats(b, n->qkv.n_row) : in,
             raw_beta = hth_build_floats(b, n->beta.n_row),
             raw_decay = joined_rates ? hth_build_none : hth_build_floats(b, n_head),
             y = hth_build_floats(b, n_channel), beta = hth_build_floats(b, n_head),
             decay = hth_build_floats(b, n_head), out = hth_build_floats(b, n_head * d);
    hth_op *op = hth_build_product(b, x);
    hth_build_also(op, &n->qkv, NULL, whole);
    hth_build_also(op, &n->beta, NULL, raw_beta);
    hth_build_also(op, &n->gate, NULL, gate);
    hth_build_also(op, &n->decay, NULL, raw_decay);
    if (joined) split_delta(b, n, whole, in, gate);
    convolve(b, &n->conv, in, y, 0, true);
    hth_build_norm_groups(b, plain, false, 2 * (size_t)n->n_head_key, d, 1.0f,
                          y); /* x / sqrt(sum of squares + eps) */
    op = hth_build_op(b, HTH_OP_RATES);
    op->in[0] = raw_beta, op->in[1] = raw_decay, op->out[0] = beta, op->out[1] = decay;
    op = hth_build_op(b, HTH_OP_DELTA);
    op->in[0] = y, op->in[1] = beta, op->in[2] = decay, op->out[0] = out;
    hth_build_norm_groups(b, &n->norm, false, n_head, d, 1.0f / (float)d, out);
    hth_build_mul(b, HTH_MUL_SILU, gate, out, out, n_head * d, 0);
    hth_build_multiply_to(b, &n->out, NULL, out, to);
}

static void kda(hth_builder *b, const hth_layer *l, hth_view x, hth_build_target to)
{
    const hth_kda *n = &l->kda;
    size_t d = n->d, inner = n->n_head * d;
    const float *const *plain = (const float *const *)&b->m->ones;
    hth_view in[3], y[3], beta = hth_build_floats(b, n->n_head),
                          low[2] = {hth_build_floats(b, d), hth_build_floats(b, d)},
                          decay = hth_build_floats(b, inner), gate = hth_build_floats(b, inner),
                          out = hth_build_floats(b, inner);
    const hth_matrix *const qkv[] = {&n->q, &n->k, &n->v};
    hth_op *op;
    for (int i = 0; i < 3; i++) in[i] = hth_build_floats(b, inner), y[i] = hth_build_floats(b, inner);
    op = hth_build_product(b, x);
    for (int i = 0; i < 3; i++) hth_build_also(op, qkv[i], NULL, in[i]);
    hth_build_also(op, &n->beta, NULL, beta);
    op = hth_build_product(b, x);
    hth_build_also(op, &n->decay_a, NULL, low[0]);
    hth_build_also(op, &n->gate_a, NULL, low[1]);
    hth_build_multiply(b, &n->decay_b, low[0], decay);
    hth_build_multiply(b, &n->gate_b, low[1], gate);
    for (size_t i = 0; i < 3; i++) {
        convolve(b, &n->conv[i], in[i], y[i], i * (n->conv[i].d_conv - 1) * inner, true);
        if (i < 2) hth_build_norm_groups(b, plain, false, n->n_head, d, 1.0f, y[i]);
    }
    op = hth_build_op(b, HTH_OP_RATES);
    op->in[0] = beta, op->in[1] = decay, op->out[0] = beta, op->out[1] = decay;
    op = hth_build_op(b, HTH_OP_KDA);
    for (int i = 0; i < 3; i++) op->in[i] = y[i];
    op->in[3] = beta, op->in[4] = decay, op->out[0] = out;
    hth_build_norm_groups(b, &n->norm, false, n->n_head, d, 1.0f / (float)d, out);
    hth_build_mul(b, HTH_MUL_SIGMOID, gate, out, out, inner, 0);
    hth_build_multiply_to(b, &n->out, NULL, out, to);
}

/* Steps, B and C of the convolved inputs: in[1], in[2] of the scan. */
static void low_rates(hth_builder *b, const hth_ssm *n, hth_view y, hth_view raw, hth_view low[2])
{
    hth_view dt = hth_build_floats(b, n->dt_rank);
    const float *const *const weights[] = {&n->dt_norm, &n->b_norm, &n->c_norm};
    const hth_view views[] = {dt, low[0], low[1]};
    const size_t widths[] = {n->dt_rank, n->d_state, n->d_state};
    hth_op *op = hth_build_product(b, y);
    hth_build_also(op, &n->dt_low, NULL, dt);
    hth_build_also(op, &n->b, NULL, low[0]);
    hth_build_also(op, &n->c, NULL, low[1]);
    for (int i = 0; i < 3; i++)
        if (*weights[i]) hth_build_norm_whole(b, weights[i], widths[i], views[i]);
    hth_build_also(hth_build_product(b, dt), &n->dt, &n->dt_bias, raw);
}

static void ssm(hth_builder *b, const hth_layer *l, hth_view x, hth_build_target to)
{
    const hth_ssm *n = &l->ssm;
    size_t inner = n->n_inner, n_step = n->n_head > 0 ? n->n_head : inner, size = inner / n->n_group;
    bool joined = n->gate.n_row == 0, is_low = n->dt_low.n_row > 0;
    hth_view in = hth_build_floats(b, n->conv.n_channel),
             whole = joined ? hth_build_floats(b, n->x.n_row) : in, gate = hth_build_floats(b, inner),
             raw = hth_build_floats(b, n_step), y = hth_build_floats(b, n->conv.n_channel),
             out = hth_build_floats(b, inner),
             decay = n->n_head > 0 ? hth_build_floats(b, n_step) : hth_build_none,
             low[2] = {hth_build_none, hth_build_none};
    hth_op *op = hth_build_product(b, x);
    hth_build_also(op, &n->x, NULL, whole);
    hth_build_also(op, &n->gate, NULL, gate);
    if (!is_low) hth_build_also(op, &n->dt, &n->dt_bias, raw);
    if (joined) {
        size_t d = inner / n->n_head;
        op = hth_build_copy(b, whole, gate);
        op->out[1] = in;
        hth_build_copy_part(op, 0, n->n_head, d, 0, 2 * d, 0, d);
        hth_build_copy_part(op, 1, n->n_head, d, d, 2 * d, 0, d);
    }
    convolve(b, &n->conv, in, y, 0, true);
    if (is_low)
        low[0] = hth_build_floats(b, n->d_state), low[1] = hth_build_floats(b, n->d_state),
        low_rates(b, n, y, raw, low);
    op = hth_build_op(b, HTH_OP_RATES);
    op->in[0] = raw, op->out[0] = raw, op->out[1] = decay;
    op = hth_build_op(b, HTH_OP_SCAN);
    op->in[0] = y, op->in[1] = raw, op->in[2] = decay, op->in[3] = low[0], op->in[4] = low[1],
    op->out[0] = out;
    hth_build_mul(b, HTH_MUL_SILU, gate, out, out, inner, 0);
    if (n->norm) hth_build_norm_groups(b, &n->norm, true, n->n_group, size, 1.0f / (float)size, out);
    hth_build_multiply_to(b, &n->out, NULL, out, to);
}

/* ---- kinds --------------------------------------------------------------------------------------------- */

void hth_build_mixer(hth_builder *b, hth_mixer_kind kind, const hth_layer *l, hth_view n, hth_build_target to)
{
    switch (kind) {
    case HTH_MIXER_ATTENTION: attention(b, l, n, to); break;
    case HTH_MIXER_LATENT: latent(b, l, n, to); break;
    case HTH_MIXER_COMPRESSED: compressed(b, l, n, to); break;
    case HTH_MIXER_SHORT_CONV: short_conv(b, l, n, to); break;
    case HTH_MIXER_DELTA_NET: delta_net(b, l, n, to); break;
    case HTH_MIXER_KDA: kda(b, l, n, to); break;
    case HTH_MIXER_SSM: ssm(b, l, n, to); break;
    default: assert(false);
    }
}
