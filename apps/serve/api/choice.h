/* A choice of an answer: tokens come in, and what they are goes to the format of the answer (generation.h), at once if
 * it is a stream. Nothing of the scheduler is known here. */
#ifndef HEARTH_APPS_SERVE_API_CHOICE_H
#define HEARTH_APPS_SERVE_API_CHOICE_H

#include "serve/api/generation.h"

/* Choice i of the generation, which has room for it. constraint: a copy is made; NULL: all texts are allowed. */
hearth_status choice_open(generation *g, size_t i, hearth_constraint *constraint, hearth_error *err);
void choice_close(choice *c);
/* Its text begins with that of the prompt. False: memory ran out. */
bool choice_repeat_prompt(choice *c);
/* A token, and the logits of which it was sampled. is_broken of the generation: memory ran out. */
void choice_take(choice *c, int32_t token, const float *logits);
/* No token follows. */
void choice_end(choice *c, finish_reason why);

#endif
