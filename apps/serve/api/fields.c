/* Fields of JSON objects. jansson checks the text: UTF-8, escapes, numbers that fit, no key twice; what a document
 * would take in memory is estimated before, because short texts can make many values. */
#include "serve/api/fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *json_kind_words(json_in_kind kind)
{
    static const char *const words[] = {
        [JSON_IN_ABSENT] = "nothing",         [JSON_IN_NULL] = "null",       [JSON_IN_BOOL] = "true or false",
        [JSON_IN_INTEGER] = "a whole number", [JSON_IN_REAL] = "a number",   [JSON_IN_TEXT] = "a text",
        [JSON_IN_ARRAY] = "an array",         [JSON_IN_OBJECT] = "an object"};
    return words[kind];
}

/* ---- the document -------------------------------------------------------------------------------------- */

/* Counts what values will take, by the sizes of jansson 2.14 with their heap blocks. */
static bool check_size(const char *text, size_t n, problem *p)
{
    enum { OBJECT_SIZE = 256, ARRAY_SIZE = 128, VALUE_SIZE = 112 };
    uint64_t size = n;
    unsigned depth = 0;
    bool in_text = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_text) {
            if (c == '\\') i++;
            else in_text = c != '"';
            continue;
        }
        in_text = c == '"';
        if (c == '{' || c == '[') {
            size += c == '{' ? OBJECT_SIZE : ARRAY_SIZE;
            if (++depth > FIELDS_MAX_DEPTH) {
                problem_set(p, 400, "", "the body is nested deeper than %d levels, at byte %zu",
                            FIELDS_MAX_DEPTH, i);
                return false;
            }
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        } else if (c == ',' || c == ':') {
            size += VALUE_SIZE;
        }
    }
    if (size <= FIELDS_MAX_MEMORY + (uint64_t)n) return true;
    problem_set(p, 400, "", "the body has too many values");
    return false;
}

json_in *fields_read(const call *c, fields *out, problem *p)
{
    hearth_error err;
    *p = (problem){0};
    *out = (fields){.problem = p};
    if (c->n_body == 0) {
        problem_set(p, 400, "", "the body is empty; a JSON object is expected");
        return NULL;
    }
    if (!check_size(c->body, c->n_body, p)) return NULL;
    json_in *document = json_in_read(c->body, c->n_body, &err);
    if (!document) {
        if (err.status == HEARTH_ERROR_MEMORY) problem_of_error(p, &err);
        else problem_set(p, 400, "", "the body is %s", err.message);
        return NULL;
    }
    if (json_in_kind_of(document) != JSON_IN_OBJECT) {
        problem_set(p, 400, "", "the body is %s; a JSON object is expected",
                    json_kind_words(json_in_kind_of(document)));
        json_in_free(document);
        return NULL;
    }
    out->object = document;
    return document;
}

/* ---- fields -------------------------------------------------------------------------------------------- */

bool fields_ok(const fields *f) { return f->problem->status == 0; }

bool fields_fail(fields *f, const char *name, const char *format, ...)
{
    char param[200], message[300];
    va_list list;
    if (!fields_ok(f)) return false;
    snprintf(param, sizeof param, "%s%s%s", f->path, *f->path && *name ? "." : "", name);
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    problem_set(f->problem, 400, param, "%s: %s", *param ? param : "the body", message);
    return false;
}

bool fields_no_memory(fields *f)
{
    problem_set(f->problem, 503, "", "out of memory");
    return false;
}

const json_in *fields_value(const fields *f, const char *name)
{
    const json_in *v = json_in_member(f->object, name);
    return json_in_kind_of(v) == JSON_IN_NULL ? NULL : v;
}

bool fields_need_kind(fields *f, const char *name, json_in_kind kind, const json_in *v)
{
    json_in_kind found = json_in_kind_of(v);
    if (found == kind) return true;
    if (kind == JSON_IN_INTEGER && found == JSON_IN_REAL)
        return fields_fail(f, name, "%s is expected, not %g", json_kind_words(kind), json_in_number(v));
    return fields_fail(f, name, "%s is expected, not %s", json_kind_words(kind), json_kind_words(found));
}

/* False: an error. *value NULL: absent. */
static bool of_kind(fields *f, const char *name, json_in_kind kind, const json_in **value)
{
    *value = NULL;
    if (!fields_ok(f)) return false;
    const json_in *v = fields_value(f, name);
    if (v && !fields_need_kind(f, name, kind, v)) return false;
    *value = v;
    return true;
}

bool fields_bool(fields *f, const char *name, bool *value)
{
    const json_in *v;
    if (!of_kind(f, name, JSON_IN_BOOL, &v)) return false;
    if (v) *value = json_in_bool(v);
    return true;
}

bool fields_int(fields *f, const char *name, int64_t least, int64_t most, int64_t *value)
{
    const json_in *v;
    if (!of_kind(f, name, JSON_IN_INTEGER, &v)) return false;
    if (!v) return true;
    int64_t n = json_in_integer(v);
    if (n < least || n > most)
        return fields_fail(f, name, "%lld is not from %lld to %lld", (long long)n, (long long)least,
                           (long long)most);
    *value = n;
    return true;
}

bool fields_float(fields *f, const char *name, double least, double most, double *value)
{
    const json_in *v;
    if (!fields_ok(f)) return false;
    json_in_kind kind = json_in_kind_of(fields_value(f, name));
    if (kind != JSON_IN_INTEGER && !of_kind(f, name, JSON_IN_REAL, &v)) return false;
    v = fields_value(f, name);
    if (!v) return true;
    double x = json_in_number(v);
    if (!(x >= least && x <= most)) return fields_fail(f, name, "%g is not from %g to %g", x, least, most);
    *value = x;
    return true;
}

bool fields_text(fields *f, const char *name, const char **text, size_t *n)
{
    const json_in *v;
    if (!of_kind(f, name, JSON_IN_TEXT, &v)) return false;
    if (v) *text = json_in_bytes(v, n);
    return true;
}

bool fields_array(fields *f, const char *name, const json_in **array)
{
    return of_kind(f, name, JSON_IN_ARRAY, array);
}
bool fields_object(fields *f, const char *name, const json_in **object)
{
    return of_kind(f, name, JSON_IN_OBJECT, object);
}

bool fields_need_text(fields *f, const char *name, const char **text, size_t *n)
{
    *text = NULL;
    if (!fields_text(f, name, text, n)) return false;
    return *text || fields_fail(f, name, "a text is expected; the field is missing");
}

bool fields_need_array(fields *f, const char *name, const json_in **array)
{
    if (!fields_array(f, name, array)) return false;
    return *array || fields_fail(f, name, "an array is expected; the field is missing");
}

/* The i-th value of an array, which must be an object. */
static bool at(fields *f, const char *name, const json_in *array, size_t i, fields *out)
{
    if (!fields_ok(f)) return false;
    *out = (fields){.object = json_in_at(array, i), .problem = f->problem};
    snprintf(out->path, sizeof out->path, "%.60s%s%s[%zu]", f->path, *f->path ? "." : "", name, i);
    if (json_in_kind_of(out->object) == JSON_IN_OBJECT) return true;
    return fields_fail(out, "", "an object is expected, not %s",
                       json_kind_words(json_in_kind_of(out->object)));
}

bool fields_each(fields *f, const char *name, const json_in *array, fields_fn *fn, void *user)
{
    fields one;
    for (size_t i = 0; i < json_in_count(array); i++)
        if (!at(f, name, array, i, &one) || !fn(&one, user)) return false;
    return fields_ok(f);
}
