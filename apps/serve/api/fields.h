/* The fields of the JSON body of a request. Unknown fields are ignored, null means absent, and what is wrong is named by its
 * path: "messages[1].content". After the first error all functions return false and change nothing. */
#ifndef HEARTH_APPS_SERVE_FIELDS_H
#define HEARTH_APPS_SERVE_FIELDS_H

#include "text/json.h"
#include "serve/exchange.h"
#include "serve/reply.h"

/* An object of the document. */
typedef struct fields {
    const hth_json *object;
    char path[120];   /* "messages[1]"; "": the document */
    problem *problem; /* status 0: nothing is wrong so far */
} fields;

/* The fields of a call's body; they live as long as the call. False: *problem says why there are none. */
bool fields_read(const call *c, fields *out, problem *problem);

bool fields_ok(const fields *f);
/* Notes an error at a field (name "": the object itself). Returns false. */
bool fields_fail(fields *f, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Memory ran out. Returns false. */
bool fields_no_memory(fields *f);

/* The value of a field; NULL: absent or null. */
const hth_json *fields_value(const fields *f, const char *name);
/* False: the value of that name is of another kind, which is noted. */
bool fields_need_kind(fields *f, const char *name, hth_json_kind kind, const hth_json *v);
/* Each leaves *value as it is if the field is absent. False: it is of another kind. */
bool fields_bool(fields *f, const char *name, bool *value);
/* Whole numbers and numbers from least to most. */
bool fields_int(fields *f, const char *name, int64_t least, int64_t most, int64_t *value);
bool fields_float(fields *f, const char *name, double least, double most, double *value);
bool fields_text(fields *f, const char *name, const char **text, size_t *n); /* any of its bytes may be zero */
bool fields_word(fields *f, const char *name, const char **word); /* no byte of it is zero */
/* *array NULL: absent. */
bool fields_array(fields *f, const char *name, const hth_json **array);
bool fields_object(fields *f, const char *name, const hth_json **object);
/* False also if the field is absent. */
bool fields_need_text(fields *f, const char *name, const char **text, size_t *n);
bool fields_need_word(fields *f, const char *name, const char **word);
bool fields_need_array(fields *f, const char *name, const hth_json **array);

/* Calls fn for each value of an array, which must be objects, until it returns false. */
typedef bool fields_fn(fields *one, void *user);
bool fields_each(fields *f, const char *name, const hth_json *array, fields_fn *fn, void *user);

/* "a text", "null" */
const char *json_kind_words(hth_json_kind kind);

#endif
