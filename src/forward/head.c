/* The output head: from the residual stream to logits, for the tokens that want them. step.c calls it last. Logits
 * that are not finite end the step. */
#include "forward/forward_int.h"

#include "base/bits.h"

hearth_status hth_fwd_emit_logits(const hth_step *s, const float *logits, uint32_t n, hth_logits_sink *to,
                                  hearth_error *err)
{
    size_t n_vocab = s->model->hparams.n_vocab;
    if (hth_pool_is_cancelled(s->pool)) return hth_fail_cancelled(err);
    if (!hth_all_finite(logits, n * n_vocab))
        return hth_fail(err, HEARTH_ERROR_NUMERIC,
                        "%s: a logit is not finite: the weights hold NaN or infinity, or a sum overflowed",
                        hth_gguf_path(s->model->file));
    hearth_status st = HEARTH_OK;
    hth_alloc_assert_none(-1);
    for (uint32_t i = 0; st == HEARTH_OK && i < n; i++)
        st = to->fn(to->user, to->n_given++, logits + i * n_vocab, err);
    hth_alloc_assert_none(1);
    return st;
}

/* Takes tokens that want logits, from *next on, as many as the head computes at once. Returns their number. */
static uint32_t take_wanted(hth_step *s, uint32_t *next)
{
    s->n_wanted = 0;
    for (; *next < s->n_tok && s->n_wanted < s->head_rows; (*next)++)
        if (s->tokens[*next].want_logits) s->wanted[s->n_wanted++] = *next;
    return s->n_wanted;
}

/* Computes the logits of the tokens that were taken, and passes them to the sink. What follows the product
 * is little. */
static hearth_status compute_chunk(hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    const hth_program *p = s->program;
    uint32_t product = p->output_norm + 1;
    hearth_status st = hth_fwd_ops(s, p->output_norm - 1, product + 1, err);
    if (st != HEARTH_OK) return st;
    hth_pool_finish(s->pool);
    for (uint32_t i = product + 1; i < p->n_op; i++)
        for (uint32_t t = 0; t < s->n_wanted; t++) hth_fwd_compute_row(s, &p->ops[i], t);
    return hth_fwd_emit_logits(s, hth_fwd_row(s, p->logits, 0), s->n_wanted, to, err);
}

hearth_status hth_fwd_head(hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    uint32_t next = 0;
    hth_fwd_flush(s);
    if (s->keeps_hidden) s->run = (hth_fwd_run){.s = s, .first = &s->keep_norm, .n = 1}, hth_fwd_flush(s);
    while (st == HEARTH_OK && take_wanted(s, &next) > 0) st = compute_chunk(s, to, err);
    return st;
}
