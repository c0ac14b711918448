/* Operations that are computed row by row: norms, products of values, sums, copies. step.c joins such operations to
 * runs, which it queues as one job, or which the next product prepares its rows with. */
#include "forward/forward_int.h"

#include <assert.h>
#include <string.h>

/* ---- norms ------------------------------------------------------------------------------------------------------ */

static void norm_values(const hth_step *s, const hth_op_norm *n, const float *x, float *y)
{
    const float *weight = *n->weight, *bias = n->bias ? *n->bias : NULL;
    for (size_t i = 0; i < n->n_group; i++, x += n->width, y += n->width) {
        if (n->layer) s->k->layer_norm(x, weight, bias, n->width, n->inv_n, n->eps, y);
        else s->k->rms_norm(x, weight, n->width, n->inv_n, n->eps, y);
        if (!n->layer && bias) s->k->add(y, bias, n->width, y);
        if (n->own) weight += n->width;
    }
}

void hth_fwd_norm_row(const hth_step *s, const hth_op *op, size_t t)
{
    norm_values(s, &op->norm, hth_fwd_row(s, op->in[0], t), hth_fwd_row(s, op->out[0], t));
}

const float *hth_fwd_guess_input(const hth_step *s, const hth_op *op, float *scratch)
{
    const hth_op *norm = op;
    if (op->in[0].value == s->program->x.value) return hth_fwd_x(s);
    while (norm->kind != HTH_OP_NORM || norm->out[0].value != op->in[0].value) {
        assert(norm > s->program->ops); /* a network and a router read a norm, or the stream */
        norm--;
    }
    norm_values(s, &norm->norm, hth_fwd_x(s), scratch);
    return scratch;
}

/* ---- products of values ----------------------------------------------------------------------------------------- */

/* Each value of a is a factor of a head of b. */
static void mul_heads(const hth_step *s, const hth_op_mul *m, float *a, const float *b, float *y)
{
    size_t d = m->by_head, n_head = m->n / d;
    if (m->form == HTH_MUL_SOFTPLUS) s->k->softplus(a, n_head, a);
    if (m->form == HTH_MUL_SIGMOID) s->k->sigmoid(a, n_head, a);
    for (size_t h = 0; h < n_head; h++) s->k->scale(b + h * d, a[h], d, y + h * d);
}

void hth_fwd_mul_row(const hth_step *s, const hth_op *op, size_t t)
{
    float *a = hth_fwd_row(s, op->in[0], t), *b = hth_fwd_row(s, op->in[1], t),
          *y = hth_fwd_row(s, op->out[0], t);
    size_t n = op->mul.n;
    if (op->mul.by_head > 0) {
        mul_heads(s, &op->mul, a, b, y);
        return;
    }
    switch (op->mul.form) {
    case HTH_MUL_PLAIN: s->k->mul(a, b, n, y); break;
    case HTH_MUL_SIGMOID: s->k->gate_sigmoid(a, b, n, y); break;
    case HTH_MUL_SOFTPLUS:
        s->k->softplus(a, n, a);
        s->k->mul(a, b, n, y);
        break;
    case HTH_MUL_SILU: s->k->activate[HTH_ACTIVATION_SILU](a, b, n, y); break;
    case HTH_MUL_GELU: s->k->activate[HTH_ACTIVATION_GELU](a, b, n, y); break;
    }
}

/* ---- sums, factors, copies ------------------------------------------------------------------------------------- */

void hth_fwd_add_row(const hth_step *s, const hth_op *op, size_t t)
{
    s->k->add(hth_fwd_row(s, op->in[0], t), hth_fwd_row(s, op->in[1], t), op->vector.n,
              hth_fwd_row(s, op->out[0], t));
}

void hth_fwd_scale_row(const hth_step *s, const hth_op *op, size_t t)
{
    float factor = op->vector.by ? **op->vector.by : op->vector.factor;
    s->k->scale(hth_fwd_row(s, op->in[0], t), factor, op->vector.n, hth_fwd_row(s, op->out[0], t));
}

void hth_fwd_cap_row(const hth_step *s, const hth_op *op, size_t t)
{
    float cap = op->vector.factor;
    s->k->soft_cap(hth_fwd_row(s, op->in[0], t), cap, 1.0f / cap, op->vector.n,
                   hth_fwd_row(s, op->out[0], t));
}

void hth_fwd_copy_row(const hth_step *s, const hth_op *op, size_t t)
{
    const float *x = hth_fwd_row(s, op->in[0], t);
    for (uint32_t i = 0; i < op->copy.n_part; i++) {
        const hth_copy_part *p = &op->copy.part[i];
        float *y = hth_fwd_row(s, op->out[p->i_out], t) + p->to;
        for (size_t k = 0; k < p->count; k++)
            memcpy(y + k * p->to_step, x + p->from + k * p->from_step, p->n * sizeof *y);
    }
}

/* t: among the tokens whose logits are computed. */
void hth_fwd_gather_row(const hth_step *s, const hth_op *op, size_t t)
{
    float *y = hth_fwd_row(s, op->out[0], t);
    memcpy(y, hth_fwd_row(s, op->in[0], s->wanted[t]), hth_fwd_width(s, op->in[0]) * sizeof *y);
}
