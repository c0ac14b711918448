/* Functions become one JSON array in the form of OpenAI's chat API, whatever the request's API is. */
#include "serve/api/functions.h"

#include <stdlib.h>
#include <string.h>

/* Whatever clients call their functions, but for what ends a name in the forms in which models write calls. */
static bool check_name(fields *f, const char *name)
{
    size_t n = 0;
    bool ok = *name;
    for (const char *p = name; ok && *p; p++) {
        n += (*p & 0xC0) != 0x80;
        ok = (unsigned char)*p >= 0x20 && !strchr("\"\\<>{}\x7f", *p);
    }
    return (ok && n <= MAX_FUNCTION_NAME) ||
           fields_fail(f, "name", "1 to %d characters are expected, and none of \"\\<>{}", MAX_FUNCTION_NAME);
}

static bool write_function(fields *f, const function_shape *shape, const char *name, bool with_strict, json *j)
{
    static const char none[] = "{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": false}"; /* OpenAI: no arguments */
    const char *description = NULL;
    const hth_json *parameters;
    size_t n = 0;
    bool is_strict = false;
    if (!fields_text(f, "description", &description, &n) || !fields_object(f, shape->parameters, &parameters) ||
        !fields_bool(f, "strict", &is_strict))
        return false;
    char *schema = parameters ? hth_json_write(parameters, false, NULL) : NULL;
    if (parameters && !schema) return fields_no_memory(f);
    json_open_compact(j, NULL, '{');
    json_word(j, "type", "function");
    json_open_compact(j, "function", '{');
    json_word(j, "name", name);
    if (description) json_text(j, "description", description, n);
    json_raw(j, "parameters", schema ? schema : none, strlen(schema ? schema : none));
    if (with_strict) json_bool(j, "strict", is_strict);
    json_close(j, '}');
    json_close(j, '}');
    hth_free(schema);
    return true;
}

/* Whether an item is a function; an item of another type is left out or refused. */
static bool is_function(fields *item, const function_shape *shape)
{
    const char *type = "function";
    if (!fields_word(item, "type", &type)) return false;
    if (strcmp(type, "function") == 0 ||
        (!shape->inside && strcmp(type, "custom") == 0 && fields_value(item, shape->parameters)))
        return true;
    return !shape->tolerant && fields_fail(item, "type", "functions alone are supported, not '%.60s'", type);
}

typedef struct function_writer {
    const function_shape *shape;
    const char *only; /* the name of the one that is wanted; NULL: all are */
    bool with_strict; /* writes the member strict, which constraints read and templates do not show */
    json *j;
    size_t n;
} function_writer;

static bool write_item(fields *item, void *user)
{
    function_writer *w = user;
    const function_shape *shape = w->shape;
    const char *name;
    fields f = *item;
    if (!is_function(item, shape)) return fields_ok(item);
    if (shape->inside) {
        const hth_json *inside;
        if (!fields_object(item, shape->inside, &inside)) return false;
        if (!inside) return fields_fail(item, shape->inside, "an object is expected; the field is missing");
        f.object = inside;
        snprintf(f.path, sizeof f.path, "%.80s.%s", item->path, shape->inside);
    }
    if (!fields_need_word(&f, "name", &name) || !check_name(&f, name)) return false;
    if (w->only && strcmp(name, w->only) != 0) return true;
    w->n++;
    return write_function(&f, shape, name, w->with_strict, w->j);
}

const function_shape chat_functions = {.field = "tools", .inside = "function", .parameters = "parameters"};

static bool write_list(fields *f, const function_shape *shape, const char *only, bool with_strict, char **out)
{
    const hth_json *tools;
    json_line l;
    size_t n;
    char *line;
    *out = NULL;
    if (!fields_array(f, shape->field, &tools)) return false;
    if (hth_json_count(tools) > MAX_FUNCTIONS)
        return fields_fail(f, shape->field, "%zu tools; at most %d are taken", hth_json_count(tools),
                           MAX_FUNCTIONS);
    if (!json_array_begin(&l)) return fields_no_memory(f);
    function_writer w = {shape, only, with_strict, &l.j, 0};
    bool ok = fields_each(f, shape->field, tools, write_item, &w);
    if (!json_array_end(&l, &line, &n)) return fields_no_memory(f);
    if (!ok || w.n == 0) {
        free(line);
        return ok;
    }
    line[n - 1] = '\0'; /* the end of the line */
    *out = line;
    return true;
}

bool functions_list(fields *f, const function_shape *shape, char **out)
{
    return write_list(f, shape, NULL, false, out);
}

/* Calls, or, where they may be left out, JSON of the schema that is wanted. */
static bool want_calls(fields *f, const function_shape *shape, const function_choice *wanted, generation *g)
{
    const wanted_constraint format = g->constraint;
    bool may_answer = wanted->kind == MAY_CALL;
    if (!write_list(f, shape, wanted->name, true, &g->called)) return false;
    if (!g->called) return fields_fail(f, wanted->field, "there is no function '%.64s'", wanted->name);
    g->constraint = (wanted_constraint){.kind = HEARTH_CONSTRAINT_CALLS,
                                        .schema = may_answer ? format.schema : NULL,
                                        .or_object = may_answer && format.kind == HEARTH_CONSTRAINT_JSON_OBJECT,
                                        .text = g->called,
                                        .n = strlen(g->called),
                                        .one_call = wanted->one || wanted->name,
                                        .field = may_answer ? format.field : wanted->field};
    return true;
}

bool functions_read(fields *f, const function_shape *shape, const function_choice *wanted, generation *g)
{
    if (!functions_list(f, shape, &g->functions)) return false;
    if (wanted->kind == NO_CALL) {
        free(g->functions);
        g->functions = NULL;
    }
    g->one_call = wanted->one;
    if (!g->functions)
        return wanted->kind != MUST_CALL || fields_fail(f, wanted->field, "there are no functions to call");
    if (g->constraint.field && g->constraint.kind == HEARTH_CONSTRAINT_GRAMMAR)
        return fields_fail(f, g->constraint.field, "cannot be wanted together with tools");
    return (wanted->kind == MAY_CALL && !g->constraint.field) || want_calls(f, shape, wanted, g);
}

/* ---- tool_choice ------------------------------------------------------------------------------------------- */

static bool choose_word(fields *f, const char *word, function_choice *out)
{
    if (strcmp(word, "auto") == 0) out->kind = MAY_CALL;
    else if (strcmp(word, "none") == 0) out->kind = NO_CALL;
    else if (strcmp(word, "required") == 0) out->kind = MUST_CALL;
    else return fields_fail(f, "tool_choice", "none, auto, required or a function is expected");
    return true;
}

/* {"type": "function", "function": {"name"}}, {"type": "function", "name"}, or allowed tools, of which the mode
 * counts */
static bool choose_object(fields *f, const hth_json *object, function_choice *out)
{
    fields inner = {.object = object, .path = "tool_choice", .problem = f->problem};
    const hth_json *more = NULL;
    const char *type, *mode = "auto";
    if (!fields_need_word(&inner, "type", &type)) return false;
    bool allowed = strcmp(type, "allowed_tools") == 0;
    if (!allowed && strcmp(type, "function") != 0)
        return fields_fail(&inner, "type", "functions alone are supported, not '%.60s'", type);
    if (!fields_object(&inner, allowed ? "allowed_tools" : "function", &more)) return false;
    if (more) inner.object = more;
    if (allowed) return fields_word(&inner, "mode", &mode) && choose_word(f, mode, out);
    out->kind = MUST_CALL;
    return fields_need_word(&inner, "name", &out->name);
}

bool function_choice_read(fields *f, function_choice *out)
{
    const hth_json *v = fields_value(f, "tool_choice");
    bool parallel = true;
    *out = (function_choice){.field = "tool_choice"};
    if (!fields_bool(f, "parallel_tool_calls", &parallel)) return false;
    out->one = !parallel;
    if (!v) return true;
    if (hth_json_kind_of(v) == HTH_JSON_TEXT) return choose_word(f, v->text.bytes, out);
    if (hth_json_kind_of(v) == HTH_JSON_OBJECT) return choose_object(f, v, out);
    return fields_fail(f, "tool_choice", "a text or an object is expected, not %s",
                       json_kind_words(hth_json_kind_of(v)));
}
