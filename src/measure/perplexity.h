/* Perplexity as llama.cpp's llama-perplexity defines it: windows of n_ctx tokens
 * cut one after another, the first token of each replaced by BOS, an incomplete
 * last one dropped; the second half of each window is scored; no state passes
 * between windows. */
#ifndef HTH_MEASURE_PERPLEXITY_H
#define HTH_MEASURE_PERPLEXITY_H

#include <hearth/hearth.h>

typedef struct hth_perplexity {
    uint64_t n_token;  /* of the text, with BOS */
    uint64_t n_window; /* that fit; n_done of them were scored */
    uint64_t n_done, n_scored;
    double nll; /* mean negative log-likelihood, nats per token */
    double perplexity;
    double error; /* standard error of perplexity over the scored tokens */
} hth_perplexity;

/* Negative log-likelihoods as they come; zeros: none yet. */
typedef struct hth_nll_sum {
    double sum, sum_of_squares;
    uint64_t n;
} hth_nll_sum;

void hth_measure_nll_add(hth_nll_sum *s, double nll);
/* What they come to: n_scored, nll, perplexity and error of *out, which stays as it is for none. */
void hth_measure_nll_result(const hth_nll_sum *s, hth_perplexity *out);

/* session: empty; its context is the window. One trailing newline of text is
 * dropped. n_window_max 0: all. progress counts windows; false ends early, with
 * what was measured. ARGUMENT when the text is shorter than a window. */
hearth_status hth_measure_perplexity(const hearth_model *model, hearth_session *session, const char *text,
                                     size_t n, uint64_t n_window_max, hearth_progress_fn *progress,
                                     void *progress_user, hth_perplexity *out, hearth_error *err);

/* log of the softmax of logits[n_vocab] at id, in double precision. */
double hth_measure_log_probability(const float *logits, size_t n_vocab, int32_t id);

#endif
