/* Functions that write the answers of OpenAI's chat completions and completions APIs. */
#ifndef HEARTH_APPS_SERVE_API_OPENAI_H
#define HEARTH_APPS_SERVE_API_OPENAI_H

#include "serve/api/generation.h"

/* Begins an object with the members of all: id, object, created, model, system_fingerprint. False: memory ran out. */
bool openai_begin(const generation *g, json_line *l, const char *object);
void openai_write_usage(json *j, const generation *g);
/* Ends the call by a whole answer; write: one of its choices. */
void openai_answer(generation *g, const char *object, void (*write)(json *j, choice *c));
/* The usage, if it is wanted, and the end of a stream. */
void openai_end_stream(generation *g, const char *object);

#endif
