/* Makes a constraint of a request's fields. */
#include "serve/api/response_format.h"

#include <stdlib.h>
#include <string.h>

void response_format_want_schema(wanted_constraint *w, const char *field, const hth_json *schema)
{
    *w = (wanted_constraint){.kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .schema = schema, .field = field};
}

/* {"name", "schema", "strict"}; the schema is enforced either way. */
static void read_named_schema(fields *format, const char *path, const char *inside, wanted_constraint *w)
{
    const hth_json *named = NULL, *schema = NULL;
    if (!fields_object(format, "json_schema", &named)) return;
    fields inner = *format;
    if (named) inner.object = named, inside = "json_schema";
    if (inside) snprintf(inner.path, sizeof inner.path, "%.80s.%s", format->path, inside);
    if (!fields_object(&inner, "schema", &schema)) return;
    if (schema) response_format_want_schema(w, path, schema);
    else fields_fail(&inner, "schema", "a schema is expected; the field is missing");
}

bool response_format_read_object(fields *f, const hth_json *format, const char *path, const char *inside,
                                 wanted_constraint *w)
{
    const char *type;
    const hth_json *schema;
    fields inner = {.object = format, .problem = f->problem};
    snprintf(inner.path, sizeof inner.path, "%s", path);
    if (!fields_need_word(&inner, "type", &type)) return false;
    if (strcmp(type, "json_schema") == 0) {
        read_named_schema(&inner, path, inside, w);
    } else if (strcmp(type, "json_object") == 0) {
        if (!fields_object(&inner, "schema", &schema)) return false;
        if (schema) response_format_want_schema(w, path, schema);
        else *w = (wanted_constraint){.kind = HEARTH_CONSTRAINT_JSON_OBJECT, .field = path};
    } else if (strcmp(type, "text") != 0) {
        fields_fail(&inner, "type", "text, json_object or json_schema is expected");
    }
    return fields_ok(f);
}

/* Each names another constraint: two of them contradict each other. */
bool response_format_read(fields *f, wanted_constraint *w)
{
    const hth_json *format, *schema;
    const char *grammar = NULL;
    size_t n = 0;
    *w = (wanted_constraint){.field = NULL};
    if (!fields_object(f, "response_format", &format)) return false;
    if (format && !response_format_read_object(f, format, "response_format", "json_schema", w)) return false;
    static const char *const schemas[] = {"json_schema", "guided_json"}; /* names in llama.cpp and in vLLM */
    for (int i = 0; i < 2; i++) {
        if (!fields_object(f, schemas[i], &schema)) return false;
        if (schema && w->field) return fields_fail(f, schemas[i], "contradicts %s", w->field);
        if (schema) response_format_want_schema(w, schemas[i], schema);
    }
    if (!fields_text(f, "grammar", &grammar, &n)) return false;
    if (!grammar || n == 0) return true;
    if (w->field) return fields_fail(f, "grammar", "contradicts %s", w->field);
    *w = (wanted_constraint){.kind = HEARTH_CONSTRAINT_GRAMMAR, .text = grammar, .n = n, .field = "grammar"};
    return true;
}

bool wanted_constraint_open(const wanted_constraint *w, const hearth_model *model, const hearth_chat *chat,
                            bool in_reasoning, hearth_constraint **out, problem *p)
{
    hearth_error err;
    char *written = NULL;
    *out = NULL;
    if (!w->field) return true;
    if (w->schema && !(written = hth_json_write(w->schema, false, NULL))) {
        problem_set(p, 503, "", "out of memory");
        return false;
    }
    static const char any_object[] = "{\"type\": \"object\"}";
    const char *schema = w->or_object ? any_object : written;
    bool is_calls = w->kind == HEARTH_CONSTRAINT_CALLS, is_schema = w->kind == HEARTH_CONSTRAINT_JSON_SCHEMA;
    const hearth_constraint_options o = {.kind = w->kind,
                                         .text = is_schema ? schema : w->text,
                                         .n = is_schema ? strlen(schema) : w->n,
                                         .schema = is_calls ? schema : NULL,
                                         .n_schema = is_calls && schema ? strlen(schema) : 0,
                                         .chat = chat,
                                         .one_call = w->one_call,
                                         .in_reasoning = in_reasoning};
    bool ok = hearth_constraint_open(model, &o, out, &err) == HEARTH_OK;
    hth_free(written);
    if (ok) return true;
    *out = NULL;
    problem_of_error(p, &err);
    snprintf(p->param, sizeof p->param, "%s", w->field);
    return false;
}
