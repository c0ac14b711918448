/* Says why no shader computes an operation of the program. */
#include "forward/gpu/cache.h"
#include "forward/gpu/gpu_int.h"

/* ---- weights ------------------------------------------------------------------------------------------ */

static const char *fused_lacks(const hth_gpu_fused_src *source)
{
    uint64_t bytes;
    return hth_gpu_fused_matrix_bytes(source, UINT32_MAX, &bytes) ? NULL : "no shader supports a type of its weights";
}

/* Why no shader reads the weights of an operation; NULL: one does. Of experts the first is looked at, as all are alike. */
static const char *weights_lack(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    hth_gpu_fused_src sources[HTH_GPU_OP_FUSED];
    const char *lacks = NULL;
    uint32_t n = hth_gpu_op_srcs(m, op, op->kind == HTH_OP_EXPERTS ? 1 : UINT32_MAX, params->selector, sources);
    for (uint32_t i = 0; i < n && !lacks; i++) lacks = fused_lacks(&sources[i]);
    return lacks;
}

/* ---- kinds -------------------------------------------------------------------------------------------- */

/* Whether a view is whole rows of n values. */
static bool is_rows_of(const hth_program *p, hth_view v, size_t n)
{
    return v.at == 0 && p->values[v.value].width == n;
}

static const char *add_lacks(const hth_program *p, const hth_op *op)
{
    return is_rows_of(p, op->in[0], op->vector.n) && is_rows_of(p, op->in[1], op->vector.n)
               ? NULL
               : "no shader adds parts of values";
}

/* A norm in place is computed by the operation that adds its result. */
static bool is_added_next(const hth_program *p, const hth_op *op)
{
    const hth_op *next = op + 1;
    while (next < p->ops + p->n_op && !hth_op_reads(next, op->out[0].value)) next++;
    return next < p->ops + p->n_op && next->kind == HTH_OP_ADD && next->in[1].value == op->out[0].value &&
           next->in[0].value != op->out[0].value && !add_lacks(p, next);
}

bool hth_gpu_norm_is_whole(const hth_program *p, const hth_op *op)
{
    const hth_op_norm *n = &op->norm;
    bool in_place = op->in[0].value == op->out[0].value, is_output = op == &p->ops[p->output_norm];
    return n->n_group == 1 && !n->own && is_rows_of(p, op->in[0], n->width) && is_rows_of(p, op->out[0], n->width) &&
           (!in_place || is_output || is_added_next(p, op));
}

static const char *norm_lacks(const hth_program *p, const hth_op *op)
{
    bool is_output = op == &p->ops[p->output_norm];
    return is_output && !hth_gpu_norm_is_whole(p, op) ? "no shader norms parts of the values of its head" : NULL;
}

static const char *product_lacks(const hth_program *p, const hth_op *op)
{
    return is_rows_of(p, op->in[0], op->product.matrix[0]->n_col) ? NULL : "no shader reads parts of values";
}

/* The last layer that reads the keys and values of a layer: itself, or a later one. */
static uint32_t last_reader(const hth_model *m, uint32_t kv_layer)
{
    uint32_t last = kv_layer;
    for (uint32_t i = kv_layer + 1; i < m->hparams.n_layer; i++)
        if (m->layers[i].mixer == HTH_MIXER_ATTENTION && m->layers[i].attn.kv_layer == kv_layer) last = i;
    return last;
}

/* Whether all layers that share the keys and values of a layer are among those of the device. */
static bool has_all_readers(const hth_model *m, const hth_offload_params *params, uint32_t i_layer)
{
    uint32_t kv_layer = m->layers[i_layer].attn.kv_layer;
    return kv_layer >= params->first_layer && last_reader(m, kv_layer) < params->end_layer;
}

bool hth_gpu_host_attends(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    bool attends = params->host_kv && (op->kind == HTH_OP_HEADS || op->kind == HTH_OP_ATTEND);
    hth_mixer_kind mixer = attends ? m->layers[op->layer].mixer : HTH_MIXER_ATTENTION;
    return attends && (mixer == HTH_MIXER_ATTENTION || mixer == HTH_MIXER_LATENT);
}

/* HEADS and ATTEND of a layer use one cache, so that devices have both or neither. */
static const char *attention_lacks(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    const hth_layer *l = &m->layers[op->layer];
    const hth_attention *a = &l->attn;
    if (l->mixer != HTH_MIXER_ATTENTION && l->mixer != HTH_MIXER_LATENT) return "no shader supports its kind of mixer";
    if (params->host_kv) return "the host has its keys and values";
    if (!params->crosses && !params->has_all_layers && last_reader(m, a->kv_layer) > a->kv_layer)
        return "no shader shares keys and values with a layer that may lie elsewhere";
    if (a->kv_layer == op->layer && !a->q_norm.weight != !a->k_norm.weight)
        return "no shader norms queries or keys alone";
    if (a->d_head % 4 > 0) return "its heads are no multiple of 4 values";
    if (params->kv == HEARTH_KV_Q8_0 && a->d_head % HTH_ACT_BLOCK > 0)
        return "its heads are no multiple of 32 values, as a Q8_0 cache is";
    return a->d_head > HTH_GPU_MAX_D_HEAD ? "its heads are too large" : NULL;
}

bool hth_gpu_attends(const hth_model *m, const hth_offload_params *params, uint32_t i_layer)
{
    const hth_program *p = m->program;
    for (uint32_t i = p->first_of_layer[i_layer]; i < p->first_of_layer[i_layer + 1]; i++)
        if (p->ops[i].kind == HTH_OP_ATTEND) return !attention_lacks(m, params, &p->ops[i]);
    return false;
}

enum { MAX_GRID = 65535 }; /* workgroups in x or y, as Vulkan promises */

uint32_t hth_gpu_heads_at_once(const hth_model *m, const hth_offload_params *params)
{
    uint32_t n = m->hparams.latent.rank > 0 ? m->hparams.n_head : 0;
    while (n > 1 && (m->hparams.n_head % n > 0 || (uint64_t)n * params->n_row > MAX_GRID)) n--;
    return n;
}

static const char *by_head_lacks(const hth_op *op)
{
    bool multiplies = op->by_head.form == HTH_BY_HEAD_QUERIES || op->by_head.form == HTH_BY_HEAD_VALUES;
    return multiplies ? NULL : "no shader sums rows by head, or multiplies groups of heads";
}

/* SETTLE computes the transposed down of the experts that are the operation before it, with the weights of their
 * outputs. It reads the choices of tokens when it has written the outputs of others, which the residual stream alone is
 * sure to keep apart. */
static const char *neurons_lack(const hth_program *p, const hth_experts *e, const hth_op *op)
{
    const hth_op *settle = op->kind == HTH_OP_SETTLE ? op : op + 1;
    uint64_t n_split = (uint64_t)e->router.n_used * hth_down_clusters(e->d_ff) * (HTH_CLUSTER_NEURONS / HTH_DOWN_SPLIT);
    bool is_alone = settle->kind == HTH_OP_SETTLE && !settle[-1].experts.shared && !settle[-1].experts.is_weighed;
    if (!is_alone || !settle->adds || settle->out[0].value != p->x.value)
        return "no shader computes a transposed down in such a mixture of experts";
    return n_split > MAX_GRID ? "its experts have too many neurons" : NULL;
}

/* The outputs of a layer's experts are parts of one sum, so that devices have all of its operations or none. */
static const char *experts_lack(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    const hth_program *p = m->program;
    const hth_experts *e = &m->layers[op->layer].experts;
    const char *lacks = e->down_t.rows.n_row > 0 ? neurons_lack(p, e, op) : NULL;
    for (uint32_t i = p->first_of_layer[op->layer]; i < p->first_of_layer[op->layer + 1] && !lacks; i++)
        if (p->ops[i].kind == HTH_OP_EXPERTS) lacks = weights_lack(m, params, &p->ops[i]);
    return lacks;
}

/* A table of the experts of each token of the vocabulary is the host's. */
static const char *route_lacks(const hth_model *m, const hth_op *op)
{
    const hth_router *r = &m->layers[op->layer].experts.router;
    if (op->experts.shared) return NULL;
    if (r->by_token) return "no shader reads the experts of a token from a table";
    return r->n_expert > HTH_ROUTE_MAX || r->n_used > HTH_ROUTE_MAX_USED || r->n_group > HTH_ROUTE_MAX_GROUP
               ? "no shader chooses among so many experts"
               : NULL;
}

const hth_op *hth_gpu_experts_behind(const hth_program *p, const hth_op *route)
{
    const hth_op *op = route + 1, *end = p->ops + p->n_op;
    while (op < end && op->kind == HTH_OP_ROUTE) op++;
    return op < end && op->kind == HTH_OP_EXPERTS && op->in[0].value == route->in[0].value ? op : NULL;
}

static const char *recurrent_lacks(const hth_model *m, const hth_op *op)
{
    const hth_layer *l = &m->layers[op->layer];
    if (op->kind == HTH_OP_CONV && op->conv.conv->d_conv > HTH_CONV_MAX_TAP) return "its convolution has too many taps";
    if (op->kind == HTH_OP_DELTA && l->delta_net.d > HTH_DELTA_NET_MAX_D) return "its heads are too large";
    return op->kind == HTH_OP_KDA && l->kda.d > HTH_KDA_MAX_D ? "its heads are too large" : NULL;
}

/* Whether the rows are those of all tokens, for which the shaders of values are. */
static bool is_of_tokens(const hth_program *p, const hth_op *op)
{
    return p->values[op->out[0].value].domain == HTH_ROWS_TOKENS;
}

static const char *kind_lacks(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    const hth_program *p = m->program;
    switch (op->kind) {
    case HTH_OP_NORM: return norm_lacks(p, op);
    case HTH_OP_PRODUCT: return product_lacks(p, op);
    case HTH_OP_HEADS:
    case HTH_OP_ATTEND: return attention_lacks(m, params, op);
    case HTH_OP_BY_HEAD: return by_head_lacks(op);
    case HTH_OP_FFN: return NULL;
    case HTH_OP_ADD: return add_lacks(p, op);
    case HTH_OP_CAP:
    case HTH_OP_GATHER: return NULL;
    case HTH_OP_EXPERTS:
    case HTH_OP_SETTLE: return experts_lack(m, params, op);
    case HTH_OP_ROUTE: return route_lacks(m, op);
    case HTH_OP_CONV:
    case HTH_OP_RATES:
    case HTH_OP_DELTA:
    case HTH_OP_KDA:
    case HTH_OP_SCAN: return recurrent_lacks(m, op);
    case HTH_OP_SCALE:
    case HTH_OP_MUL:
    case HTH_OP_COPY: return is_of_tokens(p, op) ? NULL : "no shader computes it for the head";
    case HTH_OP_STREAMS: return "no shader mixes residual streams";
    default: return "no shader supports its kind of mixer";
    }
}

const char *hth_gpu_op_lacks(const hth_model *m, const hth_offload_params *params, const hth_op *op)
{
    const char *lacks = kind_lacks(m, params, op);
    return lacks || op->kind == HTH_OP_EXPERTS ? lacks : weights_lack(m, params, op);
}

bool hth_gpu_op_is_on_device(const hth_model *m, const hth_offload_params *params, uint32_t i_op)
{
    const hth_program *p = m->program;
    uint32_t tail = p->first_of_layer[m->hparams.n_layer];
    bool in_range = i_op >= tail ? params->head
                                 : i_op >= p->first_of_layer[params->first_layer] &&
                                       i_op < p->first_of_layer[params->end_layer];
    if (!in_range || (i_op > p->output_norm + 1 && p->ops[p->output_norm + 2].kind == HTH_OP_SCALE))
        return false;
    const hth_op *op = &p->ops[i_op];
    bool attends = op->kind == HTH_OP_HEADS || op->kind == HTH_OP_ATTEND;
    if (hth_gpu_op_lacks(m, params, op)) return false;
    return !attends || has_all_readers(m, params, op->layer);
}

/* Others are little work: a layer of these alone is the host's. */
static bool is_worth_crossing(hth_op_kind kind)
{
    return kind == HTH_OP_PRODUCT || kind == HTH_OP_FFN || kind == HTH_OP_EXPERTS;
}

const char *hth_gpu_unsupported_reason(const hth_model *m, const hth_offload_params *params, uint32_t i_layer)
{
    const hth_program *p = m->program;
    const char *lacks = NULL;
    if (i_layer == m->hparams.n_layer) {
        lacks = hth_gpu_op_lacks(m, params, &p->ops[p->output_norm]);
        return lacks ? lacks : hth_gpu_op_lacks(m, params, &p->ops[p->output_norm + 1]);
    }
    for (uint32_t i = p->first_of_layer[i_layer]; i < p->first_of_layer[i_layer + 1]; i++) {
        const char *one = hth_gpu_host_attends(m, params, &p->ops[i]) ? NULL : hth_gpu_op_lacks(m, params, &p->ops[i]);
        if (!one && params->crosses && is_worth_crossing(p->ops[i].kind)) return NULL;
        if (one && !lacks) lacks = one;
    }
    return lacks;
}
