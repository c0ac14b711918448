/* Adds values and operations to a program; the kinds of operations. */
#include "model/program_int.h"

#include "base/alloc.h"

#include <assert.h>

/* ---- values and operations ----------------------------------------------------------------------------- */

static void *grow(hth_builder *b, void *list, uint32_t n, uint32_t *capacity, size_t size)
{
    if (n < *capacity) return list;
    void *grown = b->no_memory ? NULL : hth_realloc(list, *capacity ? 2 * *capacity : 256, size);
    if (grown) *capacity = *capacity ? 2 * *capacity : 256;
    else b->no_memory = true;
    return grown ? grown : list;
}

hth_view hth_build_value(hth_builder *b, hth_element element, hth_row_domain domain, size_t width)
{
    b->p->values = grow(b, b->p->values, b->p->n_value, &b->value_capacity, sizeof *b->p->values);
    if (b->no_memory) return (hth_view){0, 0};
    b->p->values[b->p->n_value] =
        (hth_value){.width = (uint32_t)width, .element = element, .domain = domain, .first_op = UINT32_MAX};
    return (hth_view){b->p->n_value++, 0};
}

hth_view hth_build_floats(hth_builder *b, size_t width)
{
    return hth_build_value(b, HTH_FLOATS, HTH_ROWS_TOKENS, width);
}

hth_op *hth_build_op(hth_builder *b, hth_op_kind kind)
{
    b->p->ops = grow(b, b->p->ops, b->p->n_op, &b->op_capacity, sizeof *b->p->ops);
    hth_op *op = b->no_memory ? &b->lost : &b->p->ops[b->p->n_op++];
    *op = (hth_op){.kind = kind, .layer = b->layer};
    for (int i = 0; i < HTH_OP_IN; i++) op->in[i] = hth_build_none;
    for (int i = 0; i < HTH_OP_OUT; i++) op->out[i] = hth_build_none;
    for (int i = 0; i < HTH_OP_TEMP; i++) op->temp[i] = hth_build_none;
    return op;
}

hth_view hth_build_scratch(hth_builder *b, hth_build_target to)
{
    return to.adds ? hth_build_floats(b, b->h->d_model) : hth_build_none;
}

void hth_build_set_target(hth_op *op, hth_build_target to, hth_view scratch)
{
    op->out[0] = to.to, op->adds = to.adds, op->temp[0] = scratch;
}

/* ---- small operations ---------------------------------------------------------------------------------- */

void hth_build_norm(hth_builder *b, const hth_norm *norm, hth_view x, hth_view y)
{
    hth_op *op = hth_build_op(b, HTH_OP_NORM);
    op->in[0] = x, op->out[0] = y;
    op->norm = (hth_op_norm){.weight = &norm->weight,
                             .bias = &norm->bias,
                             .n_group = 1,
                             .width = b->h->d_model,
                             .layer = b->h->norm == HTH_NORM_LAYER,
                             .eps = norm->eps != 0.0f ? norm->eps : b->h->norm_eps,
                             .inv_n = 1.0f / (float)b->h->d_model};
}

hth_view hth_build_normed(hth_builder *b, const hth_norm *norm, hth_view x)
{
    if (!hth_build_is_bound(norm)) return x;
    hth_view y = hth_build_floats(b, b->h->d_model);
    hth_build_norm(b, norm, x, y);
    return y;
}

void hth_build_norm_in_place(hth_builder *b, const hth_norm *norm, hth_view x)
{
    if (hth_build_is_bound(norm)) hth_build_norm(b, norm, x, x);
}

void hth_build_norm_groups(hth_builder *b, const float *const *weight, bool own, size_t n_group, size_t width,
                           float inv_n, hth_view x)
{
    hth_op *op = hth_build_op(b, HTH_OP_NORM);
    op->in[0] = op->out[0] = x;
    op->norm = (hth_op_norm){.weight = weight,
                             .n_group = (uint32_t)n_group,
                             .width = (uint32_t)width,
                             .own = own,
                             .eps = b->h->norm_eps,
                             .inv_n = inv_n};
}

void hth_build_norm_whole(hth_builder *b, const float *const *weight, size_t width, hth_view x)
{
    hth_build_norm_groups(b, weight, false, 1, width, 1.0f / (float)width, x);
}

void hth_build_also(hth_op *op, const hth_matrix *m, const float *const *bias, hth_view y)
{
    if (m->n_row == 0) return;
    assert(!hth_build_is_none(y));
    uint32_t i = op->product.n++;
    op->product.matrix[i] = m, op->product.bias[i] = bias, op->out[i] = y;
}

hth_op *hth_build_product(hth_builder *b, hth_view x)
{
    hth_op *op = hth_build_op(b, HTH_OP_PRODUCT);
    op->in[0] = x;
    return op;
}

void hth_build_multiply(hth_builder *b, const hth_matrix *m, hth_view x, hth_view y)
{
    hth_build_also(hth_build_product(b, x), m, NULL, y);
}

void hth_build_multiply_to(hth_builder *b, const hth_matrix *m, const float *const *bias, hth_view x,
                           hth_build_target to)
{
    hth_view scratch = hth_build_scratch(b, to);
    hth_op *op = hth_build_product(b, x);
    hth_build_also(op, m, bias, to.to);
    hth_build_set_target(op, to, scratch);
}

void hth_build_add(hth_builder *b, hth_view x, hth_view to, size_t n)
{
    hth_op *op = hth_build_op(b, HTH_OP_ADD);
    op->in[0] = to, op->in[1] = x, op->out[0] = to;
    op->vector = (hth_op_vector){.n = (uint32_t)n};
}

void hth_build_scale(hth_builder *b, hth_view x, hth_view y, size_t n, float factor, const float *const *by)
{
    hth_op *op = hth_build_op(b, HTH_OP_SCALE);
    op->in[0] = x, op->out[0] = y;
    op->vector = (hth_op_vector){.n = (uint32_t)n, .factor = factor, .by = by};
}

void hth_build_mul(hth_builder *b, hth_mul_form form, hth_view x, hth_view y, hth_view out, size_t n,
                   size_t by_head)
{
    hth_op *op = hth_build_op(b, HTH_OP_MUL);
    op->in[0] = x, op->in[1] = y, op->out[0] = out;
    op->mul = (hth_op_mul){form, (uint32_t)n, (uint32_t)by_head};
}

void hth_build_copy_part(hth_op *op, uint32_t i_out, size_t count, size_t n, size_t from, size_t from_step,
                         size_t to, size_t to_step)
{
    assert(op->copy.n_part < HTH_MAX_COPY);
    op->copy.part[op->copy.n_part++] =
        (hth_copy_part){i_out,        (uint32_t)count,  (uint32_t)n, (uint32_t)from, (uint32_t)from_step,
                        (uint32_t)to, (uint32_t)to_step};
}

hth_op *hth_build_copy(hth_builder *b, hth_view x, hth_view y)
{
    hth_op *op = hth_build_op(b, HTH_OP_COPY);
    op->in[0] = x, op->out[0] = y;
    return op;
}

/* ---- kinds --------------------------------------------------------------------------------------------- */

bool hth_op_is_by_row(hth_op_kind kind)
{
    switch (kind) {
    case HTH_OP_ROPE:
    case HTH_OP_NORM:
    case HTH_OP_CONV:
    case HTH_OP_RATES:
    case HTH_OP_MUL:
    case HTH_OP_SETTLE:
    case HTH_OP_ADD:
    case HTH_OP_SCALE:
    case HTH_OP_CAP:
    case HTH_OP_COPY:
    case HTH_OP_GATHER: return true;
    default: return false;
    }
}

const char *hth_op_name(hth_op_kind kind)
{
    static const char *const names[HTH_N_OP] = {
        [HTH_OP_EMBED] = "embed",     [HTH_OP_ROPE] = "rope",         [HTH_OP_NORM] = "norm",
        [HTH_OP_PRODUCT] = "product", [HTH_OP_BY_HEAD] = "by_head",   [HTH_OP_HEADS] = "heads",
        [HTH_OP_ATTEND] = "attend",   [HTH_OP_COMPRESS] = "compress", [HTH_OP_CONV] = "conv",
        [HTH_OP_RATES] = "rates",     [HTH_OP_DELTA] = "delta_rule",  [HTH_OP_KDA] = "kda_rule",
        [HTH_OP_SCAN] = "scan",       [HTH_OP_MUL] = "mul",           [HTH_OP_FFN] = "ffn",
        [HTH_OP_ROUTE] = "route",     [HTH_OP_EXPERTS] = "experts",   [HTH_OP_SETTLE] = "settle",
        [HTH_OP_ADD] = "add",         [HTH_OP_SCALE] = "scale",       [HTH_OP_CAP] = "cap",
        [HTH_OP_COPY] = "copy",       [HTH_OP_STREAMS] = "streams",   [HTH_OP_GATHER] = "gather"};
    return names[kind];
}
