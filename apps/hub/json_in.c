/* The only file that calls jansson. Its parser limits the nesting depth. */
#include "hub/json_in.h"

#include <string.h>

#if HEARTH_JANSSON

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

/* jansson's values are not const; this module does not change them. */
static const json_t *value_of(const json_in *v) { return (const json_t *)(const void *)v; }
static const json_in *in(const json_t *v) { return (const json_in *)(const void *)v; }

/* jansson reports memory that runs out as bad syntax, so its allocations are watched. */
static _Thread_local bool out_of_memory;

static void *allocate(size_t n)
{
    void *p = malloc(n);
    if (!p) out_of_memory = true;
    return p;
}

/* In jansson's words, unless they name an option of it. */
static const char *reason(const json_error_t *e)
{
    return strstr(e->text, "JSON_ALLOW_NUL") ? "a text cannot contain \\u0000" : e->text;
}

static void watch_allocations(void) { json_set_alloc_funcs(allocate, free); }

json_in *json_in_read(const char *text, size_t n, hearth_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    json_error_t problem;
    pthread_once(&once, watch_allocations);
    out_of_memory = false;
    json_t *document = json_loadb(text, n, JSON_REJECT_DUPLICATES, &problem);
    if (document) return (json_in *)(void *)document;
    if (out_of_memory) hth_fail_memory(err, n, "a JSON document");
    else hth_fail(err, HEARTH_ERROR_FORMAT, "no JSON: byte %d: %s", problem.position, reason(&problem));
    return NULL;
}

void json_in_free(json_in *document) { json_decref((json_t *)(void *)document); }
bool json_in_is_there(void) { return true; }
const json_in *json_in_member(const json_in *o, const char *key)
{
    return in(json_object_get(value_of(o), key));
}
bool json_in_is_array(const json_in *value) { return json_is_array(value_of(value)); }
size_t json_in_count(const json_in *array) { return json_array_size(value_of(array)); }
size_t json_in_size(const json_in *object) { return json_object_size(value_of(object)); }
const json_in *json_in_at(const json_in *array, size_t i) { return in(json_array_get(value_of(array), i)); }

const char *json_in_text(const json_in *value)
{
    const char *text = json_string_value(value_of(value));
    return text && strlen(text) == json_string_length(value_of(value)) ? text : NULL;
}

bool json_in_uint(const json_in *value, uint64_t *number)
{
    const json_t *v = value_of(value);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *number = (uint64_t)json_integer_value(v);
    return true;
}

json_in_kind json_in_kind_of(const json_in *value)
{
    const json_t *v = value_of(value);
    if (!v) return JSON_IN_ABSENT;
    switch (json_typeof(v)) {
    case JSON_OBJECT: return JSON_IN_OBJECT;
    case JSON_ARRAY: return JSON_IN_ARRAY;
    case JSON_STRING: return JSON_IN_TEXT;
    case JSON_INTEGER: return JSON_IN_INTEGER;
    case JSON_REAL: return JSON_IN_REAL;
    case JSON_NULL: return JSON_IN_NULL;
    default: return JSON_IN_BOOL;
    }
}

bool json_in_bool(const json_in *value) { return json_is_true(value_of(value)); }
int64_t json_in_integer(const json_in *value) { return json_integer_value(value_of(value)); }
double json_in_number(const json_in *value) { return json_number_value(value_of(value)); }

const char *json_in_bytes(const json_in *value, size_t *n)
{
    *n = json_string_length(value_of(value));
    return json_string_value(value_of(value));
}

bool json_in_each(const json_in *object, json_in_member_fn *fn, void *user)
{
    json_t *o = (json_t *)(void *)(uintptr_t)object; /* iterators of jansson take no const */
    for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i))
        if (!fn(user, json_object_iter_key(i), in(json_object_iter_value(i)))) return false;
    return true;
}

char *json_in_write(const json_in *value)
{
    return json_dumps(value_of(value), JSON_COMPACT | JSON_ENCODE_ANY);
}

#else

json_in *json_in_read(const char *text, size_t n, hearth_error *err)
{
    (void)text, (void)n;
    hth_fail(
        err, HEARTH_ERROR_UNSUPPORTED,
        "this hearth was built without jansson, which reads JSON: install it with its headers, and build "
        "again");
    return NULL;
}

void json_in_free(json_in *document) { (void)document; }
bool json_in_is_there(void) { return false; }
const json_in *json_in_member(const json_in *o, const char *key) { return (void)key, o; }
bool json_in_is_array(const json_in *value) { return (void)value, false; }
size_t json_in_count(const json_in *array) { return (void)array, 0; }
size_t json_in_size(const json_in *object) { return (void)object, 0; }
const json_in *json_in_at(const json_in *array, size_t i) { return (void)i, array; }
const char *json_in_text(const json_in *value) { return (void)value, NULL; }
bool json_in_uint(const json_in *value, uint64_t *number) { return (void)value, (void)number, false; }
json_in_kind json_in_kind_of(const json_in *value) { return (void)value, JSON_IN_ABSENT; }
bool json_in_bool(const json_in *value) { return (void)value, false; }
int64_t json_in_integer(const json_in *value) { return (void)value, 0; }
double json_in_number(const json_in *value) { return (void)value, 0.0; }
const char *json_in_bytes(const json_in *value, size_t *n) { return (void)value, *n = 0, NULL; }
bool json_in_each(const json_in *object, json_in_member_fn *fn, void *user)
{
    (void)object, (void)fn, (void)user;
    return false;
}
char *json_in_write(const json_in *value) { return (void)value, NULL; }

#endif
