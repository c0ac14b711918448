/* Log probabilities of the tokens of prompts, for completions that repeat them (echo). The scheduler computes logits
 * of the last token of a prompt alone, so prompts are evaluated here before, in parts between its steps. */
#ifndef HEARTH_APPS_SERVE_API_PROMPT_SCORES_H
#define HEARTH_APPS_SERVE_API_PROMPT_SCORES_H

#include "serve/api/generation.h"

typedef struct prompt_scores prompt_scores;

/* False: memory ran out. */
bool prompt_scores_open(generation *g);
void prompt_scores_close(prompt_scores *s);
/* Evaluates a part. False: all is evaluated, or g->problem says what failed. */
bool prompt_scores_go_on(generation *g);

#endif
