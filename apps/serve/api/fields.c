/* Fields of JSON objects. */
#include "serve/api/fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *json_kind_words(hth_json_kind kind)
{
    static const char *const words[] = {
        [HTH_JSON_ABSENT] = "nothing",         [HTH_JSON_NULL] = "null",       [HTH_JSON_BOOL] = "true or false",
        [HTH_JSON_INTEGER] = "a whole number", [HTH_JSON_REAL] = "a number",   [HTH_JSON_TEXT] = "a text",
        [HTH_JSON_ARRAY] = "an array",         [HTH_JSON_OBJECT] = "an object"};
    return words[kind];
}

/* ---- the document -------------------------------------------------------------------------------------- */

bool fields_read(const call *c, fields *out, problem *p)
{
    *p = (problem){0};
    *out = (fields){.object = c->document, .problem = p};
    if (hth_json_kind_of(c->document) == HTH_JSON_OBJECT) return true;
    if (c->document)
        problem_set(p, 400, "", "the body is %s; a JSON object is expected", json_kind_words(c->document->kind));
    else if (c->n_body == 0) problem_set(p, 400, "", "the body is empty; a JSON object is expected");
    else if (c->unread.status == HEARTH_ERROR_MEMORY) problem_of_error(p, &c->unread);
    else
        problem_set(p, 400, "", "the body%s %s", c->unread.status == HEARTH_ERROR_FORMAT ? " is" : ":",
                    c->unread.message);
    return false;
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

const hth_json *fields_value(const fields *f, const char *name)
{
    const hth_json *v = hth_json_member(f->object, name);
    return hth_json_kind_of(v) == HTH_JSON_NULL ? NULL : v;
}

bool fields_need_kind(fields *f, const char *name, hth_json_kind kind, const hth_json *v)
{
    hth_json_kind found = hth_json_kind_of(v);
    if (found == kind) return true;
    if (kind == HTH_JSON_INTEGER && found == HTH_JSON_REAL && (v->real >= 9.2e18 || v->real <= -9.2e18))
        return fields_fail(f, name, "whole numbers of at most 19 digits are taken, not %g", v->real);
    if (kind == HTH_JSON_INTEGER && found == HTH_JSON_REAL)
        return fields_fail(f, name, "%s is expected, not %g", json_kind_words(kind), v->real);
    return fields_fail(f, name, "%s is expected, not %s", json_kind_words(kind), json_kind_words(found));
}

/* False: an error. *value NULL: absent. */
static bool of_kind(fields *f, const char *name, hth_json_kind kind, const hth_json **value)
{
    *value = NULL;
    if (!fields_ok(f)) return false;
    const hth_json *v = fields_value(f, name);
    if (v && !fields_need_kind(f, name, kind, v)) return false;
    *value = v;
    return true;
}

bool fields_bool(fields *f, const char *name, bool *value)
{
    const hth_json *v;
    if (!of_kind(f, name, HTH_JSON_BOOL, &v)) return false;
    if (v) *value = hth_json_is_true(v);
    return true;
}

bool fields_int(fields *f, const char *name, int64_t least, int64_t most, int64_t *value)
{
    const hth_json *v;
    if (!of_kind(f, name, HTH_JSON_INTEGER, &v)) return false;
    if (!v) return true;
    int64_t n = v->integer;
    if (n < least || n > most)
        return fields_fail(f, name, "%lld is not from %lld to %lld", (long long)n, (long long)least,
                           (long long)most);
    *value = n;
    return true;
}

bool fields_float(fields *f, const char *name, double least, double most, double *value)
{
    const hth_json *v;
    if (!fields_ok(f)) return false;
    hth_json_kind kind = hth_json_kind_of(fields_value(f, name));
    if (kind != HTH_JSON_INTEGER && !of_kind(f, name, HTH_JSON_REAL, &v)) return false;
    v = fields_value(f, name);
    if (!v) return true;
    double x = v->real;
    if (!(x >= least && x <= most)) return fields_fail(f, name, "%g is not from %g to %g", x, least, most);
    *value = x;
    return true;
}

bool fields_text(fields *f, const char *name, const char **text, size_t *n)
{
    const hth_json *v;
    if (!of_kind(f, name, HTH_JSON_TEXT, &v)) return false;
    if (v) *text = v->text.bytes, *n = v->text.n;
    return true;
}

bool fields_word(fields *f, const char *name, const char **word)
{
    const hth_json *v;
    if (!of_kind(f, name, HTH_JSON_TEXT, &v)) return false;
    if (v && !(*word = hth_json_text(v))) return fields_fail(f, name, "U+0000 cannot be in it");
    return true;
}

bool fields_array(fields *f, const char *name, const hth_json **array)
{
    return of_kind(f, name, HTH_JSON_ARRAY, array);
}
bool fields_object(fields *f, const char *name, const hth_json **object)
{
    return of_kind(f, name, HTH_JSON_OBJECT, object);
}

bool fields_need_text(fields *f, const char *name, const char **text, size_t *n)
{
    *text = NULL;
    if (!fields_text(f, name, text, n)) return false;
    return *text || fields_fail(f, name, "a text is expected; the field is missing");
}

bool fields_need_word(fields *f, const char *name, const char **word)
{
    *word = NULL;
    if (!fields_word(f, name, word)) return false;
    return *word || fields_fail(f, name, "a text is expected; the field is missing");
}

bool fields_need_array(fields *f, const char *name, const hth_json **array)
{
    if (!fields_array(f, name, array)) return false;
    return *array || fields_fail(f, name, "an array is expected; the field is missing");
}

/* A value of an array, which must be an object. */
static bool enter(fields *f, const char *name, const hth_json *v, fields *out)
{
    if (!fields_ok(f)) return false;
    *out = (fields){.object = v, .problem = f->problem};
    snprintf(out->path, sizeof out->path, "%.60s%s%s[%u]", f->path, *f->path ? "." : "", name, v->index);
    if (hth_json_kind_of(out->object) == HTH_JSON_OBJECT) return true;
    return fields_fail(out, "", "an object is expected, not %s",
                       json_kind_words(hth_json_kind_of(out->object)));
}

bool fields_each(fields *f, const char *name, const hth_json *array, fields_fn *fn, void *user)
{
    fields one;
    for (const hth_json *v = hth_json_first(array); v; v = v->next)
        if (!enter(f, name, v, &one) || !fn(&one, user)) return false;
    return fields_ok(f);
}
