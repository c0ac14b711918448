/* The functions that a request offers to the model, and whether it must call one. */
#ifndef HEARTH_APPS_SERVE_API_FUNCTIONS_H
#define HEARTH_APPS_SERVE_API_FUNCTIONS_H

#include "serve/api/generation.h"

enum { MAX_FUNCTIONS = 128, MAX_FUNCTION_NAME = 128 };

/* The names of the members with which an API describes functions. */
typedef struct function_shape {
    const char *field;      /* "tools" */
    const char *inside;     /* the member of an item that has them; NULL: the item itself */
    const char *parameters; /* the name of the schema */
    bool tolerant;          /* items of other types are left out, not refused */
} function_shape;

typedef struct function_choice {
    enum { MAY_CALL, MUST_CALL, NO_CALL } kind;
    const char *name;  /* MUST_CALL: of the function; NULL: any */
    bool one;          /* at most one call */
    const char *field; /* the field's name, for error messages */
} function_choice;

/* Reads the functions of a request by their shape; then what is wanted of them. Sets functions, called, one_call and
 * constraint of the generation: with a schema that was read before, calls or JSON of it. False: f->problem says why. */
bool functions_read(fields *f, const function_shape *shape, const function_choice *wanted, generation *g);
/* The functions, as a template shows them, as JSON: *out is freed with free; NULL: there is none. */
bool functions_list(fields *f, const function_shape *shape, char **out);
extern const function_shape chat_functions; /* OpenAI's chat API and Ollama's API have this one */
/* The fields tool_choice and parallel_tool_calls of OpenAI's APIs. */
bool function_choice_read(fields *f, function_choice *out);

#endif
