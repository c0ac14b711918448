/* return_progress of llama.cpp's server: a stream tells how far the prompt is. On the engine thread. */
#ifndef HEARTH_APPS_SERVE_API_PROGRESS_H
#define HEARTH_APPS_SERVE_API_PROGRESS_H

#include "serve/api/generation.h"

/* Whether the request asks for it, in a stream whose format can tell it. */
bool progress_is_wanted(const generation *g);
/* Between two steps. */
void progress_look(generation *g);
/* The whole prompt of a choice was evaluated: its first token is there. */
void progress_complete(choice *c);
/* The member "prompt_progress". */
void progress_write(json *j, const generation *g, const hearth_request_progress *progress);

#endif
