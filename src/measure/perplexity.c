/* Perplexity over a text. hearth perplexity calls it; it uses the engine through the public API. */
#include "measure/perplexity.h"

#include "base/status.h"
#include "kernels/vector/math.h"
#include "measure/chunks.h"

#include <string.h>

double hth_measure_log_probability(const float *logits, size_t n_vocab, int32_t id)
{
    double max = (double)logits[0], sum = 0.0;
    for (size_t i = 1; i < n_vocab; i++) max = (double)logits[i] > max ? (double)logits[i] : max;
    for (size_t i = 0; i < n_vocab; i++) sum += hth_exp_d((double)logits[i] - max);
    return (double)logits[id] - max - hth_log_d(sum);
}

void hth_measure_nll_add(hth_nll_sum *s, double nll)
{
    s->sum += nll;
    s->sum_of_squares += nll * nll;
    s->n++;
}

void hth_measure_nll_result(const hth_nll_sum *s, hth_perplexity *out)
{
    if (s->n == 0) return;
    double n = (double)s->n, mean = s->sum / n, variance = s->sum_of_squares / n - mean * mean;
    out->n_scored = s->n;
    out->nll = mean;
    out->perplexity = hth_exp_d(mean);
    out->error = s->n > 1 && variance > 0.0 ? out->perplexity * hth_sqrt_d(variance / (n - 1.0)) : 0.0;
}

/* Tokens between two calls of the progress function, which may cancel. */
enum { PROGRESS_EVERY = 256 };

typedef struct scorer {
    hearth_progress_fn *progress;
    void *progress_user;
    uint64_t n_done, n_chunk;
    bool cancelled;
    const int32_t *chunk;
    size_t n_ctx, n_vocab;
    hth_nll_sum sum;
} scorer;

static hearth_status score(void *user, size_t i, const float *logits, hearth_error *err)
{
    (void)err;
    scorer *s = user;
    if (i % PROGRESS_EVERY == 0 && s->progress && !s->progress(s->progress_user, s->n_done, s->n_chunk)) {
        s->cancelled = true;
        return HEARTH_ERROR_CANCELLED;
    }
    if (i < s->n_ctx / 2 || i + 1 >= s->n_ctx) return HEARTH_OK;
    hth_measure_nll_add(&s->sum, -hth_measure_log_probability(logits, s->n_vocab, s->chunk[i + 1]));
    return HEARTH_OK;
}

hearth_status hth_measure_perplexity(const hearth_model *model, hearth_session *session, const char *text,
                                     size_t n, uint64_t n_chunk_max, hearth_progress_fn *progress,
                                     void *progress_user, hth_perplexity *out, hearth_error *err)
{
    hearth_model_info info = {0};
    hth_chunks chunks;
    size_t n_ctx = hearth_session_n_ctx(session);
    *out = (hth_perplexity){0};
    if (n_ctx < 3)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "chunks of %zu tokens score nothing; 3 is the least",
                        n_ctx);
    hearth_model_get_info(model, &info);
    hearth_status st = hth_chunks_open(&chunks, model, text, n, n_ctx, err);
    if (st != HEARTH_OK) return st;
    out->n_token = chunks.n_id;
    out->n_chunk = chunks.n_chunk;
    uint64_t n_chunk = n_chunk_max && n_chunk_max < out->n_chunk ? n_chunk_max : out->n_chunk;
    scorer s = {.n_ctx = n_ctx,
                .n_vocab = info.n_vocab,
                .progress = progress,
                .progress_user = progress_user,
                .n_chunk = n_chunk};
    for (uint64_t i = 0; i < n_chunk; i++) {
        s.chunk = hth_chunks_at(&chunks, i);
        if ((st = hearth_session_truncate(session, 0, err)) != HEARTH_OK) goto done;
        st = hearth_session_eval_each(session, s.chunk, n_ctx, score, &s, err);
        if (s.cancelled || st == HEARTH_ERROR_CANCELLED) { /* the scored part of this chunk does not count */
            st = HEARTH_OK;
            break;
        }
        if (st != HEARTH_OK) goto done;
        s.n_done = ++out->n_done;
        hth_measure_nll_result(&s.sum, out);
        if (progress && !progress(progress_user, s.n_done, n_chunk)) break;
    }
done:
    hth_chunks_close(&chunks);
    return st;
}
