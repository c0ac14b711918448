/* From logits to a token: penalties, bias, truncation, temperature, draw. The
 * same seed and logits give the same tokens on every machine: the generator and
 * all arithmetic are stated here and use no libm.
 *
 * Arithmetic: bias and penalties in double precision, rounded to float once each
 * and kept finite. Candidates are ordered by descending logit, ties by lower id.
 * Each filter sees the softmax (temperature 1) of what the one before left; sums
 * run over the candidates in order. typical and top-p keep the shortest beginning
 * of their order whose share reaches p, at least one token.
 * Draw: xoshiro256++ seeded by splitmix64, one number per pick; its top 53 bits
 * give u in [0, 1); the token is the first candidate whose weights, added up in
 * order, exceed u times their sum. A greedy pick looks at no filter and draws no
 * number. */
#ifndef HTH_SAMPLE_SAMPLER_H
#define HTH_SAMPLE_SAMPLER_H

#include "base/status.h"

#include <stdint.h>

typedef struct hth_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY bans the token */
} hth_logit_bias;

/* The largest repeat_last_n; -1 counts all. */
enum { HTH_SAMPLER_MAX_LAST_N = 1 << 20 };

/* Ranges: temperature 0 to 100; top_k from 0; typical_p, top_p, min_p 0 to 1;
 * repeat_penalty 0.01 to 100; the other penalties -100 to 100; repeat_last_n -1
 * to HTH_SAMPLER_MAX_LAST_N; a bias is finite or -INFINITY.
 * Applied in this order: bias, penalties, top-k, typical, top-p, min-p,
 * temperature, draw. A field at its neutral value does nothing. */
typedef struct hth_sampler_params {
    float temperature;       /* 0: greedy (largest logit, lowest id among equals) */
    int32_t top_k;           /* 0: all */
    float typical_p;         /* 1: off. Meister et al. 2022, Locally Typical Sampling */
    float top_p;             /* 1: off. Holtzman et al. 2020 */
    float min_p;             /* 0: off. Keep tokens of at least min_p times the best one's probability */
    float repeat_penalty;    /* 1: off. Keskar et al. 2019 (CTRL): positive logits divided, others multiplied */
    float presence_penalty;  /* 0: off. Subtracted once from every token seen */
    float frequency_penalty; /* 0: off. Subtracted once per occurrence */
    int32_t repeat_last_n;   /* how many last tokens count for penalties; -1: all, 0: none */
    uint64_t seed;
    const hth_logit_bias *bias;
    size_t n_bias;
} hth_sampler_params;

/* temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, typical 1, no penalties
 * (repeat_last_n 64), seed 0. */
hth_sampler_params hth_sampler_defaults(void);

typedef struct hth_sampler hth_sampler;

/* Copies params. ARGUMENT names the field that is out of range, with the range. */
hearth_status hth_sampler_open(int32_t n_vocab, const hth_sampler_params *params, hth_sampler **out,
                               hearth_error *err);
void hth_sampler_close(hth_sampler *s);

/* Tells the penalties of a token of the prompt or of the generation. Allocates
 * nothing. */
void hth_sampler_accept(hth_sampler *s, int32_t id);

/* Chooses a token by logits[n_vocab] (left unchanged). Allocates nothing. NUMERIC when a
 * logit is NaN or +infinity, or when all are banned. */
hearth_status hth_sampler_pick(hth_sampler *s, const float *logits, int32_t *id, hearth_error *err);

#endif
