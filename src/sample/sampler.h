/* From logits to a token: penalties, bias, truncation, temperature, draw. The same seed and logits give the same
 * tokens on every machine: the generator and all arithmetic are specified here and use no libm.
 *
 * Arithmetic: bias and penalties in double precision, rounded to float once each and kept finite. Candidates are
 * ordered by descending logit, ties by lower id. Each filter uses the softmax (temperature 1) of the output of the
 * previous one. Sums run over the candidates in order. typical and top-p keep the shortest prefix of their order
 * whose share reaches p, at least one token. Draw: xoshiro256++ seeded by splitmix64, one number per draw. Its
 * most significant 53 bits give u in [0, 1). The token is the first candidate at which the cumulative weight, in
 * order, exceeds u times the total. Greedy sampling uses no filter and draws no number. */
#ifndef HTH_SAMPLE_SAMPLER_H
#define HTH_SAMPLE_SAMPLER_H

#include "base/status.h"
#include "sample/order.h"

#include <stdint.h>

struct hth_dry_breaker;

/* The largest repeat_last_n; -1 counts all tokens. */
enum { HTH_SAMPLER_MAX_LAST_N = 1 << 20 };

/* Ranges: temperature 0 to 100; top_k from 0; typical_p, top_p, min_p 0 to 1; repeat_penalty 0, 0.01 to 100; the
 * other penalties -100 to 100; repeat_last_n -1 to HTH_SAMPLER_MAX_LAST_N; a bias is finite or -INFINITY. Zero turns a
 * stage off, and repeat_last_n 0 is 64. Sources: typical, Meister et al. 2022; top-p, Holtzman et al. 2020; repeat penalty, Keskar et al. 2019 (positive logits
 * are divided, others multiplied).
 *
 * hth_sampler_open is hearth_sampler_open for any number of logits. It copies options. ARGUMENT names the field
 * that is out of range, with the range. Neither hearth_sampler_accept nor hearth_sampler_sample allocates.
 * hearth_sampler_sample returns NUMERIC if a logit is NaN or +infinity, or if all tokens are banned. */
hearth_status hth_sampler_open(int32_t n_vocab, const hearth_sampler_options *options, hearth_sampler **out,
                               hearth_error *err);
/* A sampler with dry_multiplier looks at the last `capacity` tokens, across none of breakers[n]. Once, before it has
 * tokens. MEMORY. */
hearth_status hth_sampler_use_dry(hearth_sampler *sampler, size_t capacity, const struct hth_dry_breaker *breakers, size_t n,
                                  hearth_error *err);
/* A token is drawn from these candidates. */
typedef struct hth_sample_choice {
    hth_sample_candidate *c; /* [n], best first, in the sampler's memory until its next call */
    size_t n;
    double sum; /* sum of their p */
} hth_sample_choice;
/* hearth_sampler_sample in two parts, between which it draws i: the candidates that all stages leave, and the token of one
 * of them, by which mirostat goes on. */
hearth_status hth_sampler_list(hearth_sampler *sampler, const float *logits, hth_sample_choice *of, hearth_error *err);
int32_t hth_sampler_take(hearth_sampler *sampler, const hth_sample_choice *of, size_t i);
/* The number of logits that it samples from; NULL: 0. */
int32_t hth_sampler_n_vocab(const hearth_sampler *sampler);
/* The tokens become the whole history. ARGUMENT: it is in use. */
hearth_status hth_sampler_set_history(hearth_sampler *sampler, const int32_t *tokens, size_t n, hearth_error *err);
/* A reference for a session, which hearth_sampler_close gives up; NULL for NULL. */
hearth_sampler *hth_sampler_hold(const hearth_sampler *sampler);
/* A sampler with the options of another one, but without its fn. */
hearth_status hth_sampler_open_like(const hearth_sampler *from, hearth_sampler **out, hearth_error *err);
/* From now on a sampler that was opened like `from` draws and penalises as that one would. */
void hth_sampler_follow(hearth_sampler *s, const hearth_sampler *from);

#endif
