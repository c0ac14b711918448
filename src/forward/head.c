/* The output head: from the residual stream to logits, for the tokens that want them. step.c calls it last. Logits
 * that are not finite end the step. */
#include "forward/forward_int.h"

#include "base/bits.h"

#include <string.h>

static uint32_t count_wanted(const hth_step *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_tok; i++) n += s->tokens[i].want_logits;
    return n;
}

/* Copies the wanted rows to the front of x, from there or from x_norm: a single unit, because rows may move onto
 * others. */
static void gather_wanted(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_unit, (void)i_thread;
    const hth_step *s = arg;
    const float *from = s->keeps_hidden ? s->x_norm : s->x;
    size_t d = s->model->hparams.d_model, n = 0;
    for (uint32_t i = 0; i < s->n_tok; i++) {
        if (!s->tokens[i].want_logits) continue;
        if (from + i * d != s->x + n * d) memcpy(s->x + n * d, from + i * d, d * sizeof *s->x);
        n++;
    }
}

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

/* Computes the logits of n normed rows, and passes them to the sink. */
static hearth_status compute_chunk(hth_step *s, const float *rows, uint32_t n, hth_logits_sink *to,
                                   hearth_error *err)
{
    size_t n_vocab = s->model->hparams.n_vocab;
    hth_output head = {.matrix = s->model->tied ? &s->model->token_embd : &s->model->output,
                       .bias = s->model->output_bias,
                       .y = s->logits};
    hth_product_add(s->k, s->pool, &s->act_q8, rows, n, &head, 1, NULL);
    hth_pool_finish(s->pool);
    float cap = s->model->hparams.logit_softcap, factor = s->model->hparams.logit_scale;
    if (factor != 1.0f) s->k->scale(s->logits, factor, n * n_vocab, s->logits);
    if (cap != 0.0f) s->k->soft_cap(s->logits, cap, 1.0f / cap, n * n_vocab, s->logits);
    return hth_fwd_emit_logits(s, s->logits, n, to, err);
}

hearth_status hth_fwd_head(hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    uint32_t n_want = count_wanted(s);
    size_t d = s->model->hparams.d_model;
    const float *rows = s->keeps_hidden ? s->x : s->x_norm;
    if (s->keeps_hidden) hth_fwd_norm(s, &s->model->output_norm, s->x, s->x_norm, s->n_tok);
    if (n_want == 0) return HEARTH_OK;
    hth_pool_add(s->pool, gather_wanted, s, 0, 1);
    if (!s->keeps_hidden) hth_fwd_norm(s, &s->model->output_norm, s->x, s->x_norm, n_want);
    for (uint32_t first = 0; st == HEARTH_OK && first < n_want; first += s->head_rows) {
        uint32_t left = n_want - first;
        st = compute_chunk(s, rows + first * d, left < s->head_rows ? left : s->head_rows, to, err);
    }
    return st;
}
