/* Which texts a request allows: response_format of OpenAI's protocol, llama.cpp's fields json_schema and grammar. */
#ifndef HEARTH_APPS_SERVE_RESPONSE_FORMAT_H
#define HEARTH_APPS_SERVE_RESPONSE_FORMAT_H

#include "serve/fields.h"

/* *out: closed by the caller; NULL: all texts are allowed, or f->problem says what is wrong. */
void response_format_read(fields *f, const hearth_model *model, hearth_constraint **out);

#endif
