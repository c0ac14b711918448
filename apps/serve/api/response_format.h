/* Which texts a request allows: response_format of OpenAI's protocol, llama.cpp's fields json_schema and grammar, and
 * calls of functions. */
#ifndef HEARTH_APPS_SERVE_API_RESPONSE_FORMAT_H
#define HEARTH_APPS_SERVE_API_RESPONSE_FORMAT_H

#include "serve/api/fields.h"

typedef struct wanted_constraint {
    hearth_constraint_kind kind;
    const hth_json *schema; /* JSON_SCHEMA; CALLS: JSON of it may come instead of calls; NULL: it may not */
    bool or_object;         /* CALLS: any JSON object may */
    const char *text;       /* GRAMMAR, CALLS: n bytes */
    size_t n;
    bool one_call;
    const char *field; /* the field's name, for error messages; NULL: all texts are allowed */
} wanted_constraint;

/* False: f->problem says what is wrong. */
bool response_format_read(fields *f, wanted_constraint *out);
/* An object {"type": "text" | "json_object" | "json_schema", ...}; path: of it, for messages. A schema stands in it or
 * in its member json_schema; inside: the member in which it is missed, NULL: the object itself. */
bool response_format_read_object(fields *f, const hth_json *format, const char *path, const char *inside,
                                 wanted_constraint *out);
void response_format_want_schema(wanted_constraint *out, const char *field, const hth_json *schema);

/* *out: closed by the caller; NULL: all texts are allowed. False: *p says what is wrong. chat may be NULL. */
bool wanted_constraint_open(const wanted_constraint *w, const hearth_model *model, const hearth_chat *chat,
                            bool in_reasoning, hearth_constraint **out, problem *p);

#endif
