/* Counts the dispatches of an operation for one token, from shapes and types alone, as record.c and the files of its
 * kinds record them. Matrices that are divided because a binding or a submission is too small count once. */
#include "forward/gpu/gpu_int.h"

enum { FORM_32 = 1, FORM_256 = 2 };

static uint32_t max_one(uint32_t n) { return n > 0 ? n : 1; }
static uint32_t n_form(uint32_t forms) { return (forms & FORM_32 ? 1u : 0u) + (forms & FORM_256 ? 1u : 0u); }

/* The quantised forms of the input that the matrices of a group read. */
static uint32_t forms_of(const hth_gpu_fused_src *s)
{
    uint32_t forms = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t block = s->n_row[i] > 0 ? hth_type_act_block(s->matrix[i]->type) : 0;
        forms |= block == HTH_ACT_BLOCK ? FORM_32 : block == HTH_ACT_BLOCK_256 ? FORM_256 : 0;
    }
    return forms;
}

/* Neighbours of one type are one matrix on the device. */
static uint32_t n_matrix(const hth_gpu_fused_src *s)
{
    uint32_t n = 0, last = s->n;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->n_row[i] == 0) continue;
        n += last == s->n || s->matrix[i]->type != s->matrix[last]->type || !s->bias[i] != !s->bias[last];
        last = i;
    }
    return n;
}

/* Whether the reader computes a value: a norm of whole rows or the attention of one token, which nothing has read. */
static bool is_pending(const hth_model *m, const hth_offload_params *params, const hth_op *reader,
                       uint32_t value)
{
    for (const hth_op *op = reader; op-- > m->program->ops;) {
        if (hth_op_writes(op, value))
            return (op->kind == HTH_OP_ATTEND ||
                    (op->kind == HTH_OP_NORM && hth_gpu_norm_is_whole(m->program, op))) &&
                   !hth_gpu_op_lacks(m, params, op);
        if (hth_op_reads(op, value) && !hth_gpu_op_lacks(m, params, op)) return false;
    }
    return false;
}

static uint32_t forms_of_experts(const hth_model *m, const hth_op *op)
{
    hth_gpu_fused_src s[HTH_GPU_OP_FUSED];
    hth_gpu_op_srcs(m, op, UINT32_MAX, HEARTH_SELECTOR_DENSE, s);
    return forms_of(&s[HTH_GPU_EXPERT_GATE]) | forms_of(&s[HTH_GPU_EXPERT_UP]);
}

/* The first of the ROUTE before an operation; the operation itself: there is none. */
static const hth_op *first_route(const hth_program *p, const hth_op *op)
{
    while (op > p->ops && op[-1].kind == HTH_OP_ROUTE) op--;
    return op;
}

/* The quantised forms of an input that the operation before this one made, if both are products of it, or that the
 * choice of experts made for them. */
static uint32_t forms_before(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    hth_gpu_fused_src s[HTH_GPU_OP_FUSED];
    uint32_t forms = 0;
    const hth_op *route = first_route(m->program, op);
    if (op->kind == HTH_OP_EXPERTS && !hth_gpu_op_lacks(m, params, route) &&
        hth_gpu_experts_behind(m->program, route) == op)
        return forms_of_experts(m, op);
    bool is_of_both = op > m->program->ops && op->kind == HTH_OP_PRODUCT && op[-1].kind == HTH_OP_PRODUCT &&
                      op[-1].in[0].value == op->in[0].value;
    uint32_t n = is_of_both ? hth_gpu_op_srcs(m, op - 1, UINT32_MAX, HEARTH_SELECTOR_DENSE, s) : 0;
    for (uint32_t i = 0; i < n; i++) forms |= forms_of(&s[i]);
    return forms;
}

/* Returns the dispatches that make the quantised forms of an input. A pending value that is read as floats takes one
 * dispatch. */
static uint32_t of_input(const hth_model *m, const hth_offload_params *params, const hth_op *op, hth_view in,
                         uint32_t forms)
{
    if (forms == 0) return is_pending(m, params, op, in.value) ? 1 : 0;
    return n_form(forms & ~forms_before(m, params, op));
}

static uint32_t of_product(const hth_model *m, const hth_offload_params *params, const hth_op *op,
                           const hth_gpu_fused_src *s, uint32_t n)
{
    uint32_t forms = 0, n_all = 0;
    for (uint32_t i = 0; i < n; i++) forms |= forms_of(&s[i]), n_all += n_matrix(&s[i]);
    return of_input(m, params, op, op->in[0], forms) + n_all;
}

/* A transposed down: scales of clusters, unless its sums are floats; products; the sum of these. */
static uint32_t of_sums(const hth_gpu_fused_src *down)
{
    return (forms_of(down) ? 1u : 0u) + n_matrix(down) + 1;
}

static uint32_t of_predictor(const hth_model *m, const hth_offload_params *params, const hth_op *op,
                             const hth_gpu_fused_src *s)
{
    hth_view in = op->in[m->predicts_from_residual ? 1 : 0];
    return of_input(m, params, op, in, forms_of(&s[HTH_GPU_PREDICT_IN])) + n_matrix(&s[HTH_GPU_PREDICT_IN]) +
           max_one(n_form(forms_of(&s[HTH_GPU_PREDICT_OUT]))) + n_matrix(&s[HTH_GPU_PREDICT_OUT]);
}

/* Masks divide gate from up (neurons of record_ffn.c). */
static uint32_t of_ffn(const hth_model *m, const hth_offload_params *params, const hth_op *op,
                       const hth_gpu_fused_src *s)
{
    const hth_ffn *f = &m->layers[op->layer].ffn;
    const hth_gpu_fused_src *gate_up = &s[HTH_GPU_GATE_UP], *down = &s[HTH_GPU_DOWN];
    hearth_selector selector = params->selector;
    bool predicts = selector == HEARTH_SELECTOR_PREDICTOR,
         looks = selector == HEARTH_SELECTOR_THRESHOLD ||
                 (selector != HEARTH_SELECTOR_DENSE && hth_activation_is_sparse(m->hparams.activation)),
         is_gated = f->gate.n_row > 0, by_half = is_gated && looks;
    uint32_t n_mask = (predicts ? 1u : 0u) + (by_half ? 1u : 0u),
             n_hidden = by_half || (predicts && is_gated) ? 2 : n_matrix(gate_up);
    return (predicts ? of_predictor(m, params, op, s) : 0) +
           of_input(m, params, op, op->in[0], forms_of(gate_up)) + n_mask + n_hidden +
           (f->down_t.rows.n_row > 0 ? 1 + of_sums(down) : max_one(n_form(forms_of(down))) + n_matrix(down));
}

static uint32_t of_experts(const hth_model *m, const hth_offload_params *params, const hth_op *op,
                           const hth_gpu_fused_src *s)
{
    const hth_experts *e = &m->layers[op->layer].experts;
    const hth_gpu_fused_src *gate = &s[HTH_GPU_EXPERT_GATE], *up = &s[HTH_GPU_EXPERT_UP],
                            *down = &s[HTH_GPU_EXPERT_DOWN];
    bool halves_are_one = !op->experts.shared && e->up.n_row == 0,
         is_transposed = !op->experts.shared && e->down_t.rows.n_row > 0;
    uint32_t n_half = halves_are_one ? 2 : n_matrix(gate) + n_matrix(up);
    return of_input(m, params, op, op->in[0], forms_of(gate) | forms_of(up)) + n_half +
           (is_transposed ? 1 : max_one(n_form(forms_of(down))) + 1);
}

/* The input is quantised for the experts, too. */
static uint32_t of_route(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    const hth_experts *e = &m->layers[op->layer].experts;
    const hth_op *experts = op->experts.shared ? NULL : hth_gpu_experts_behind(m->program, op);
    if (op->experts.shared && !e->shared_gate) return 1;
    return of_input(m, params, op, op->in[0], experts ? forms_of_experts(m, experts) : 0) + 2;
}

static uint32_t of_settle(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    hth_gpu_fused_src s[HTH_GPU_OP_FUSED];
    hth_gpu_op_srcs(m, op - 1, UINT32_MAX, params->selector, s);
    return m->layers[op->layer].experts.down_t.rows.n_row > 0 ? of_sums(&s[HTH_GPU_EXPERT_DOWN]) : 1;
}

/* Returns the dispatches of an operation that reads floats. */
static uint32_t of_floats(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    uint32_t n = 1;
    for (int i = 0; i < HTH_OP_IN; i++)
        if (op->in[i].value != HTH_NO_VALUE) n += of_input(m, params, op, op->in[i], 0);
    return n;
}

/* Gates are two copies, norms of all heads one of queries and one of keys. Of latent attention: a copy of what rotates, a
 * norm, and the key, behind the factors of queries. */
static uint32_t of_heads(const hth_model *m, const hth_layer *l)
{
    const hth_attention *a = &l->attn;
    bool norms_all = m->hparams.qk_norm == HTH_QK_NORM_ALL;
    if (l->mixer == HTH_MIXER_LATENT) return m->hparams.temperature_scale != 0.0f && a->has_temperature ? 4 : 3;
    return 1u + (a->q_has_gate ? 2u : 0u) + (norms_all && a->q_norm.weight ? 1u : 0u) +
           (norms_all && a->k_norm.weight ? 1u : 0u);
}

/* A copy, forms and a product for as many heads as are multiplied at once. */
static uint32_t of_by_head(const hth_model *m, const hth_offload_params *params, const hth_op *op,
                           const hth_gpu_fused_src *s)
{
    uint32_t n = op->by_head.n_head / hth_gpu_heads_at_once(m, params);
    return of_input(m, params, op, op->in[0], 0) + n * (2 + n_form(forms_of(s)));
}

/* Whether an addition is part of the network before it: behind that of its neighbour's output, in parallel layers
 * (network of record.c). */
static bool is_accumulated(const hth_program *p, const hth_op *add)
{
    if (add - p->ops < 3) return false;
    const hth_op *other = add - 1, *post = other[-1].kind == HTH_OP_NORM ? other - 1 : NULL,
                 *ffn = post ? post - 1 : other - 1;
    uint32_t x = add->in[0].value;
    return other->kind == HTH_OP_ADD && other->in[0].value == x && ffn->kind == HTH_OP_FFN && !ffn->adds &&
           ffn->in[1].value == x && ffn->in[0].value != x && ffn->out[0].value == add->in[1].value &&
           (!post || other->in[1].value == post->out[0].value);
}

uint32_t hth_gpu_op_dispatches(const hth_model *m, const hth_offload_params *params, uint32_t i_op)
{
    const hth_op *op = &m->program->ops[i_op];
    hth_gpu_fused_src s[HTH_GPU_OP_FUSED];
    uint32_t n = hth_gpu_op_srcs(m, op, UINT32_MAX, params->selector, s);
    if (hth_gpu_host_attends(m, params, op)) return 0;
    switch (op->kind) {
    case HTH_OP_NORM: return hth_gpu_norm_is_whole(m->program, op) ? 0 : of_floats(m, params, op);
    case HTH_OP_PRODUCT: return of_product(m, params, op, s, n);
    case HTH_OP_HEADS: return of_heads(m, &m->layers[op->layer]);
    case HTH_OP_ATTEND: return of_floats(m, params, op) + (m->layers[op->layer].mixer == HTH_MIXER_LATENT ? 1 : 0);
    case HTH_OP_BY_HEAD: return of_by_head(m, params, op, s);
    case HTH_OP_FFN: return of_ffn(m, params, op, s);
    case HTH_OP_EXPERTS: return of_experts(m, params, op, s);
    case HTH_OP_ROUTE: return of_route(m, params, op);
    case HTH_OP_SETTLE: return of_settle(m, params, op);
    case HTH_OP_ADD: return is_accumulated(m->program, op) ? 0 : 1;
    case HTH_OP_COPY: return of_input(m, params, op, op->in[0], 0) + op->copy.n_part;
    case HTH_OP_GATHER: return 0;
    default: return of_floats(m, params, op);
    }
}
