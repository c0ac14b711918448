/* DRY (pi6am 2024): a token that would lengthen what the text has said already is penalised, the more the longer the
 * repetition is. Texts as line ends break repetitions, and are not penalised. */
#ifndef HTH_SAMPLE_DRY_H
#define HTH_SAMPLE_DRY_H

#include "base/status.h"

#include <hearth/sampler.h>

/* A sequence breaker of DRY, which ends repetitions: a token, and the tokens that must follow it. Samplers share
 * them. */
typedef struct hth_dry_breaker {
    int32_t token;
    uint32_t n_tail;
    int32_t *tail; /* [n_tail] */
} hth_dry_breaker;

typedef struct hth_dry hth_dry;

/* capacity: tokens that are looked at. breakers[n]: sorted by token, copied. Zero in options has the default. MEMORY. */
hearth_status hth_dry_open(int32_t n_vocab, const hearth_sampler_options *o, size_t capacity,
                           const hth_dry_breaker *breakers, size_t n_breaker, hth_dry **out, hearth_error *err);
/* NULL for NULL. */
hearth_status hth_dry_copy(const hth_dry *from, hth_dry **out, hearth_error *err);
void hth_dry_close(hth_dry *d);

void hth_dry_forget(hth_dry *d);
void hth_dry_accept(hth_dry *d, int32_t id);
/* The history of another one that was opened alike. */
void hth_dry_follow(hth_dry *d, const hth_dry *from);
/* Subtracts the penalties from logits[n_vocab]. */
void hth_dry_apply(hth_dry *d, float *logits);

#endif
