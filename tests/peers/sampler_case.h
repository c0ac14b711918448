/* Cases of samplers, which tests/peers/samplers.py writes and both programs read, and what they answer. */
#ifndef PEERS_SAMPLER_CASE_H
#define PEERS_SAMPLER_CASE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { MAX_VOCAB = 32000, MAX_HISTORY = 512 };

typedef struct sampler_case {
    int32_t n_vocab, n_history, n_step, top_k, repeat_last_n, dry_last_n, dry_allowed_length, has_breakers, mirostat;
    float temperature, typical_p, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty, top_n_sigma, xtc_probability,
        xtc_threshold, dynatemp_range, dynatemp_exponent, dry_multiplier, dry_base, mirostat_tau, mirostat_eta;
} sampler_case;

static inline bool read_numbers(FILE *f, void *to, int n) { return fread(to, 4, (size_t)n, f) == (size_t)n; }

/* Then n_history ids follow, and n_vocab logits for each step. */
static inline bool read_case(FILE *f, sampler_case *c, int32_t *history)
{
    return read_numbers(f, c, (int)(sizeof *c / 4)) && c->n_vocab > 0 && c->n_vocab <= MAX_VOCAB && c->n_history >= 0 &&
           c->n_history <= MAX_HISTORY && read_numbers(f, history, c->n_history);
}

/* The answer of a step: n, which one was drawn, the ids, their probabilities. */
static inline bool write_answer(FILE *f, const int32_t head[2], const int32_t *ids, const float *p)
{
    const size_t n = (size_t)head[0];
    return fwrite(head, 4, 2, f) == 2 && fwrite(ids, 4, n, f) == n && fwrite(p, 4, n, f) == n;
}

#endif
