/* Evaluates prompts in sessions of their own. What comes of a token is what the scheduler would have computed:
 * results do not depend on how tokens are divided into steps. */
#include "serve/api/prompt_scores.h"

#include <stdlib.h>

enum { PART = 32 }; /* tokens between two steps of the scheduler */

struct prompt_scores {
    hearth_session *session; /* evaluates prompt i_prompt; NULL: none is evaluated */
    size_t i_prompt, n_done; /* its tokens that are evaluated */
};

bool prompt_scores_open(generation *g)
{
    g->scores = calloc(1, sizeof *g->scores);
    return g->scores;
}

void prompt_scores_close(prompt_scores *s)
{
    if (!s) return;
    hearth_session_close(s->session);
    free(s);
}

/* The logits after token i of a prompt tell the probability of the next one. */
static hearth_status add_next(void *user, size_t i, const float *logits, hearth_error *err)
{
    generation *g = user;
    prompt_scores *s = g->scores;
    const prompt *p = &g->prompts.at[s->i_prompt];
    size_t next = s->n_done + i + 1;
    for (size_t k = 0; next < p->n && k < g->n_choice; k++)
        if (!logprobs_add(&g->choices[s->i_prompt * g->n_choice + k].probs, logits, g->served->info.n_vocab,
                          p->ids[next])) {
            snprintf(err->message, sizeof err->message, "out of memory");
            return err->status = HEARTH_ERROR_MEMORY;
        }
    return HEARTH_OK;
}

static hearth_status begin_prompt(generation *g, hearth_error *err)
{
    prompt_scores *s = g->scores;
    const served_model *served = g->served;
    const prompt *p = &g->prompts.at[s->i_prompt];
    hearth_session_options o = hearth_session_defaults();
    o.n_ctx = served_model_n_ctx(served), o.kv = served->scheduling.kv,
    o.n_thread = served->scheduling.n_thread;
    for (size_t k = 0; k < g->n_choice; k++)
        if (!logprobs_add_first(&g->choices[s->i_prompt * g->n_choice + k].probs, p->ids[0]))
            g->is_broken = true;
    return hearth_session_open(served->model, &o, &s->session, err);
}

bool prompt_scores_go_on(generation *g)
{
    prompt_scores *s = g->scores;
    const prompt *p = &g->prompts.at[s->i_prompt];
    hearth_error err;
    hearth_status st = s->session ? HEARTH_OK : begin_prompt(g, &err);
    choice *choices = &g->choices[s->i_prompt * g->n_choice];
    size_t n = p->n - s->n_done < PART ? p->n - s->n_done : PART, n_before = choices->probs.n;
    if (st == HEARTH_OK) st = hearth_session_eval_each(s->session, p->ids + s->n_done, n, add_next, g, &err);
    if (st == HEARTH_ERROR_CANCELLED) { /* by the end of another request: the part is evaluated again */
        for (size_t k = 0; k < g->n_choice; k++) choices[k].probs.n = n_before;
        return true;
    }
    if (st != HEARTH_OK) {
        problem_of_error(&g->problem, &err);
        return false;
    }
    s->n_done += n;
    if (s->n_done < p->n) return true;
    hearth_session_close(s->session);
    s->session = NULL;
    s->n_done = 0;
    return ++s->i_prompt < g->prompts.n;
}
