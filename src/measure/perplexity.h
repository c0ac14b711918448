/* Perplexity as llama.cpp's llama-perplexity defines it: consecutive chunks of n_ctx tokens; BOS replaces the
 * first token of each; an incomplete last chunk is dropped. The second half of each chunk is scored. No state
 * passes between chunks. */
#ifndef HTH_MEASURE_PERPLEXITY_H
#define HTH_MEASURE_PERPLEXITY_H

#include <hearth/hearth.h>

typedef struct hth_perplexity {
    uint64_t n_token;  /* tokens of the text, with BOS */
    uint64_t n_chunk; /* chunks of the text; n_done of them were scored */
    uint64_t n_done, n_scored;
    double nll; /* mean negative log-likelihood, nats per token */
    double perplexity;
    double error; /* standard error of the perplexity over the scored tokens */
} hth_perplexity;

/* Sums of negative log-likelihoods; zeros: none yet. */
typedef struct hth_nll_sum {
    double sum, sum_of_squares;
    uint64_t n;
} hth_nll_sum;

void hth_measure_nll_add(hth_nll_sum *s, double nll);
/* Sets n_scored, nll, perplexity and error of *out. Leaves *out unchanged if there are none. */
void hth_measure_nll_result(const hth_nll_sum *s, hth_perplexity *out);

/* session: empty; its context is the chunk size. Drops one trailing newline of text. n_chunk_max: chunks; 0:
 * all. progress counts chunks; false ends early, with the results so far. ARGUMENT: the text is shorter than a
 * chunk. */
hearth_status hth_measure_perplexity(const hearth_model *model, hearth_session *session, const char *text,
                                     size_t n, uint64_t n_chunk_max, hearth_progress_fn *progress,
                                     void *progress_user, hth_perplexity *out, hearth_error *err);

/* log of the softmax of logits[n_vocab] at id, in double precision. */
double hth_measure_log_probability(const float *logits, size_t n_vocab, int32_t id);

#endif
