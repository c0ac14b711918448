/* Makes a constraint of a request's fields. generation.c calls it. */
#include "serve/response_format.h"

#include <stdlib.h>
#include <string.h>

typedef struct wanted {
    hearth_constraint_kind kind;
    const json_in *schema; /* JSON_SCHEMA */
    const char *text;      /* GRAMMAR: n bytes */
    size_t n;
    const char *field;
    bool any; /* there is a constraint */
} wanted;

static void want_schema(wanted *w, const char *field, const json_in *schema)
{
    *w = (wanted){.kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .schema = schema, .field = field, .any = true};
}

/* {"name", "schema", "strict"}; the schema is enforced either way. */
static void read_named_schema(fields *format, wanted *w)
{
    const json_in *named, *schema;
    if (!fields_object(format, "json_schema", &named)) return;
    fields inner = {.object = named, .path = "response_format.json_schema", .problem = format->problem};
    if (!named) fields_fail(format, "json_schema", "an object is expected; the field is missing");
    else if (fields_object(&inner, "schema", &schema) && schema)
        want_schema(w, "response_format.json_schema.schema", schema);
    else fields_fail(&inner, "schema", "a schema is expected; the field is missing");
}

static void read_format(fields *f, wanted *w)
{
    const json_in *format, *schema;
    const char *type;
    if (!fields_object(f, "response_format", &format) || !format) return;
    fields inner = {.object = format, .path = "response_format", .problem = f->problem};
    size_t n;
    if (!fields_need_text(&inner, "type", &type, &n)) return;
    if (strcmp(type, "text") == 0) return;
    if (strcmp(type, "json_schema") == 0) {
        read_named_schema(&inner, w);
    } else if (strcmp(type, "json_object") != 0) {
        fields_fail(&inner, "type", "text, json_object or json_schema is expected");
    } else if (fields_object(&inner, "schema", &schema)) {
        if (schema) want_schema(w, "response_format.schema", schema);
        else *w = (wanted){.kind = HEARTH_CONSTRAINT_JSON_OBJECT, .field = "response_format", .any = true};
    }
}

/* Each names another constraint: the last one counts if the others are absent. */
static void read_all(fields *f, wanted *w)
{
    const json_in *schema;
    const char *grammar = NULL;
    size_t n = 0;
    read_format(f, w);
    if (fields_object(f, "json_schema", &schema) && schema) {
        if (w->any) fields_fail(f, "json_schema", "contradicts %s", w->field);
        else want_schema(w, "json_schema", schema);
    }
    if (fields_text(f, "grammar", &grammar, &n) && grammar && n > 0) {
        if (w->any) fields_fail(f, "grammar", "contradicts %s", w->field);
        else
            *w = (wanted){
                .kind = HEARTH_CONSTRAINT_GRAMMAR, .text = grammar, .n = n, .field = "grammar", .any = true};
    }
}

void response_format_read(fields *f, const hearth_model *model, hearth_constraint **out)
{
    wanted w = {.any = false};
    hearth_error err;
    char *written = NULL;
    *out = NULL;
    read_all(f, &w);
    if (!fields_ok(f) || !w.any) return;
    if (w.schema && !(written = json_in_write(w.schema))) {
        problem_set(f->problem, 503, "", "out of memory");
        return;
    }
    const hearth_constraint_options o = {
        .kind = w.kind, .text = written ? written : w.text, .n = written ? strlen(written) : w.n};
    if (hearth_constraint_open(model, &o, out, &err) != HEARTH_OK) {
        *out = NULL;
        problem_of_error(f->problem, &err);
        snprintf(f->problem->param, sizeof f->problem->param, "%s", w.field);
    }
    free(written);
}
