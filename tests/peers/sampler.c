/* Prints the tokens that Hearth draws from, for tests/peers/samplers.py.
 *
 *     sampler VOCAB CASES THEIRS OUT
 *
 * VOCAB: a file whose tokens have the breakers of DRY. THEIRS: llama.cpp's answers, whose tokens are taken, so that both
 * go on alike. */
#include "support/test.h"
#include "engine/engine.h"
#include "sample/sampler.h"
#include "sampler_case.h"

#include <stdlib.h>

static float logits[MAX_VOCAB], shares[MAX_VOCAB];
static int32_t history[MAX_HISTORY], ids[MAX_VOCAB], theirs[MAX_VOCAB];

static hearth_sampler_options options_of(const sampler_case *c)
{
    return (hearth_sampler_options){.size = sizeof(hearth_sampler_options),
                                    .temperature = c->temperature,
                                    .top_k = c->top_k,
                                    .typical_p = c->typical_p,
                                    .top_p = c->top_p,
                                    .min_p = c->min_p,
                                    .repeat_penalty = c->repeat_penalty,
                                    .presence_penalty = c->presence_penalty,
                                    .frequency_penalty = c->frequency_penalty,
                                    .repeat_last_n = c->repeat_last_n,
                                    .top_n_sigma = c->top_n_sigma,
                                    .xtc_probability = c->xtc_probability,
                                    .xtc_threshold = c->xtc_threshold,
                                    .dynatemp_range = c->dynatemp_range,
                                    .dynatemp_exponent = c->dynatemp_exponent,
                                    .dry_multiplier = c->dry_multiplier,
                                    .dry_base = c->dry_base,
                                    .dry_allowed_length = c->dry_allowed_length,
                                    .dry_last_n = c->dry_last_n,
                                    .mirostat = c->mirostat,
                                    .mirostat_tau = c->mirostat_tau,
                                    .mirostat_eta = c->mirostat_eta};
}

static hearth_status open_sampler(const hearth_model *vocab, const sampler_case *c, hearth_sampler **s, hearth_error *err)
{
    const hearth_sampler_options o = options_of(c);
    hearth_status st = hth_sampler_open(c->n_vocab, &o, s, err);
    if (st != HEARTH_OK || !(c->dry_multiplier > 0.0f)) return st;
    return c->has_breakers ? hth_engine_use_dry(vocab, &o, *s, err)
                           : hth_sampler_use_dry(*s, (size_t)c->dry_last_n, NULL, 0, err);
}

/* Which of the candidates has the token that llama.cpp drew; -1: none. */
static int32_t find_drawn(FILE *f, const hth_sample_choice *of)
{
    int32_t head[2];
    if (!read_numbers(f, head, 2) || head[0] < 1 || head[0] > MAX_VOCAB || !read_numbers(f, theirs, head[0]) ||
        !read_numbers(f, shares, head[0]))
        return -1;
    for (size_t i = 0; i < of->n; i++)
        if (of->c[i].id == theirs[head[1]]) return (int32_t)i;
    return -1;
}

static hearth_status answer(const sampler_case *c, hearth_sampler *s, FILE *in, FILE *drawn, FILE *out, hearth_error *err)
{
    hth_sampler_set_history(s, history, (size_t)c->n_history, err);
    for (int32_t step = 0; step < c->n_step; step++) {
        hth_sample_choice of;
        if (!read_numbers(in, logits, c->n_vocab)) return hth_fail(err, HEARTH_ERROR_IO, "the logits end");
        hearth_status st = hth_sampler_list(s, logits, &of, err);
        if (st != HEARTH_OK) return st;
        const int32_t head[2] = {(int32_t)of.n, find_drawn(drawn, &of)};
        for (size_t i = 0; i < of.n; i++) ids[i] = of.c[i].id, shares[i] = (float)(of.c[i].p / of.sum);
        if (!write_answer(out, head, ids, shares)) return hth_fail(err, HEARTH_ERROR_IO, "the answer is not written");
        hearth_sampler_accept(s, hth_sampler_take(s, &of, head[1] < 0 ? 0 : (size_t)head[1]));
    }
    return HEARTH_OK;
}

int main(int argc, char **argv)
{
    hearth_error err;
    hearth_model *vocab = NULL;
    FILE *in = argc == 5 ? fopen(argv[2], "rb") : NULL, *drawn = argc == 5 ? fopen(argv[3], "rb") : NULL;
    FILE *out = argc == 5 ? fopen(argv[4], "wb") : NULL;
    hearth_model_options o = hearth_model_defaults();
    o.vocab_only = true;
    hearth_status st = in && drawn && out ? hearth_model_open(argv[1], &o, &vocab, &err)
                                          : hth_fail(&err, HEARTH_ERROR_IO, "sampler VOCAB CASES THEIRS OUT");
    sampler_case c;
    while (st == HEARTH_OK && read_case(in, &c, history)) {
        hearth_sampler *s = NULL;
        st = open_sampler(vocab, &c, &s, &err);
        if (st == HEARTH_OK) st = answer(&c, s, in, drawn, out, &err);
        hearth_sampler_close(s);
    }
    if (st == HEARTH_OK && (!feof(in) || fclose(out) != 0)) st = hth_fail(&err, HEARTH_ERROR_IO, "a case is not whole");
    if (st != HEARTH_OK) fprintf(stderr, "sampler: %s\n", err.message);
    hearth_model_close(vocab);
    return st != HEARTH_OK;
}
