/* Reads functions and calls in OpenAI's form, and writes conversations with them as plain messages. */
#include "chat/functions.h"

#include "chat/call_writer.h"

#include <string.h>

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static bool same(hth_str a, hth_str b) { return hth_str_compare(a, b) == 0; }

/* References and combinations that a model's file or a client nests deeper say nothing here. */
enum { MAX_NESTED = 16 };

const hth_json *hth_schema_target(const hth_json *root, const hth_json *schema)
{
    const hth_json *ref;
    for (int i = 0; schema && (ref = hth_json_member(schema, "$ref")) != NULL; i++)
        schema = i < MAX_NESTED && ref->kind == HTH_JSON_TEXT ? hth_json_at(root, ref->text) : NULL;
    return schema;
}

static bool is_value(const hth_json *v, const hth_str *value)
{
    return hth_json_kind_of(v) == HTH_JSON_TEXT && (!value || same(v->text, *value));
}

static bool takes_text(const hth_json *root, const hth_json *schema, const hth_str *value, int depth)
{
    static const char *const combined[] = {"anyOf", "oneOf", "allOf"};
    static const char *const of_texts[] = {"pattern", "minLength", "maxLength", "format"};
    schema = hth_schema_target(root, schema);
    const hth_json *values = hth_json_member(schema, "enum"), *type = hth_json_member(schema, "type");
    const hth_json *only = hth_json_member(schema, "const");
    if (only) return is_value(only, value);
    for (const hth_json *v = hth_json_first(values); v; v = v->next)
        if (is_value(v, value)) return true;
    if (values) return false;
    if (hth_json_is_word(type, "string")) return true;
    for (size_t i = 0; !type && i < sizeof of_texts / sizeof *of_texts; i++)
        if (hth_json_member(schema, of_texts[i])) return true;
    for (const hth_json *v = hth_json_kind_of(type) == HTH_JSON_ARRAY ? type->child : NULL; v; v = v->next)
        if (hth_json_is_word(v, "string")) return true;
    for (size_t i = 0; depth < MAX_NESTED && i < sizeof combined / sizeof *combined; i++)
        for (const hth_json *v = hth_json_first(hth_json_member(schema, combined[i])); v; v = v->next)
            if (takes_text(root, v, value, depth + 1)) return true;
    return false;
}

bool hth_schema_takes_text(const hth_json *root, const hth_json *schema, const hth_str *value)
{
    return takes_text(root, schema, value, 0);
}

/* The function of that name; NULL: there is none. */
static const hth_json *find_function(const hth_json *tools, hth_str function)
{
    for (const hth_json *tool = hth_json_first(tools); tool; tool = tool->next) {
        const hth_json *f = hth_json_member(tool, "function"), *name = hth_json_member(f, "name");
        if (hth_json_kind_of(name) == HTH_JSON_TEXT && same(name->text, function)) return f;
    }
    return NULL;
}

bool hth_function_is_given(const char *tools, hth_str function, bool *has_memory)
{
    hearth_error why = {0};
    hth_json *list = tools ? hth_json_open(tools, strlen(tools), NULL, &why) : NULL;
    bool is_given = find_function(list, function) != NULL;
    if (why.status == HEARTH_ERROR_MEMORY) *has_memory = false;
    hth_json_close(list);
    return is_given;
}

bool hth_function_takes_text(const char *tools, hth_str function, hth_str argument, hth_str value, bool *has_memory)
{
    hearth_error why = {0};
    hth_json *list = tools ? hth_json_open(tools, strlen(tools), NULL, &why) : NULL;
    const hth_json *parameters = hth_json_member(find_function(list, function), "parameters");
    const hth_json *p = hth_json_first(hth_json_member(hth_schema_target(parameters, parameters), "properties"));
    while (p && !same(p->key, argument)) p = p->next;
    bool is_text = p && hth_schema_takes_text(parameters, p, &value);
    if (why.status == HEARTH_ERROR_MEMORY) *has_memory = false;
    hth_json_close(list);
    return is_text;
}

bool hth_is_json(const char *text, size_t n, bool *has_memory)
{
    hearth_error why = {0};
    hth_json *v = hth_json_open(text, n, NULL, &why);
    if (why.status == HEARTH_ERROR_MEMORY) *has_memory = false;
    hth_json_close(v);
    return v != NULL;
}

hearth_status hth_check_json(const char *name, const char *text, bool is_array, hearth_error *err)
{
    hearth_error why;
    if (!text || !*text) return HEARTH_OK;
    hth_json *v = hth_json_open(text, strlen(text), NULL, &why);
    bool is_right = hth_json_kind_of(v) == (is_array ? HTH_JSON_ARRAY : HTH_JSON_OBJECT);
    hth_json_close(v);
    if (!v) return hth_fail(err, why.status, "%s: %s", name, why.message);
    if (is_right) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_FORMAT, "%s is no JSON %s", name, is_array ? "array" : "object");
}

/* ---- plain messages -------------------------------------------------------------------------------------- */

typedef struct writer {
    hth_jinja *j;
    hth_plain_messages *out;
    const hth_call_format *format; /* format of calls */
    bool keeps_results;            /* results stay messages of their own role */
    hth_jinja_strbuf b; /* the content of the message that is written */
    bool in_results;    /* that message contains results */
} writer;

static bool write_text(writer *w, const char *p, size_t n)
{
    return hth_jinja_strbuf_bytes(w->j, &w->b, p, n, false);
}
static bool put_word(writer *w, const char *word) { return write_text(w, word, strlen(word)); }

static bool end_message(writer *w, const char *role)
{
    hth_jinja_value v;
    hth_message *m = &w->out->at[w->out->n];
    if (!hth_jinja_strbuf_value(w->j, &w->b, &v)) return false;
    const hth_jinja_text *t = v.as.text;
    hth_text_part *parts = hth_arena_alloc(w->j->arena, t->n_span + 1, sizeof *parts, 16);
    *m = (hth_message){.role = {role, strlen(role)}, .content = {"", t->n}, .parts = parts, .n_part = t->n_span};
    if (!parts) return hth_jinja_fail(w->j, HEARTH_ERROR_MEMORY, "out of memory");
    for (size_t i = 0; i < t->n_span; i++) {
        const hth_jinja_span *span = &t->spans->span[i];
        parts[i] = (hth_text_part){span->p, span->n, span->is_template};
    }
    if (t->n > 0 && !(m->content.bytes = hth_jinja_bytes(w->j, v.as.text))) return false;
    w->out->n++;
    w->b = (hth_jinja_strbuf){0};
    w->in_results = false;
    return true;
}

static bool put_tools(writer *w, hth_str tools)
{
    static const hth_str name = {"NAME", 4}, arguments = {"{\"KEY\": \"VALUE\"}", 16};
    hth_call_writer example = {w->j, &w->b, w->format, 0};
    return put_word(w, "You can call these functions:\n<tools>\n") && write_text(w, tools.bytes, tools.n) &&
           put_word(w, "\n</tools>\nTo call one, write its name and its arguments in this form:\n") &&
           hth_call_write(&example, name, arguments) && hth_calls_end(&example) &&
           put_word(w, w->keeps_results ? "\nThen wait for the result."
                                        : "\nThen wait: the result comes between <tool_response> and </tool_response>.");
}

static bool put_call(hth_call_writer *calls, const hth_json *call)
{
    const hth_json *f = hth_json_member(call, "function"), *name = hth_json_member(f, "name"),
                   *arguments = hth_json_member(f, "arguments");
    hth_json_kind kind = hth_json_kind_of(arguments);
    if (hth_json_kind_of(name) != HTH_JSON_TEXT || (kind != HTH_JSON_TEXT && kind != HTH_JSON_OBJECT))
        return hth_jinja_fail(calls->j, HEARTH_ERROR_FORMAT, "a call needs function.name and function.arguments");
    if (kind == HTH_JSON_TEXT) return hth_call_write(calls, name->text, arguments->text);
    size_t n;
    char *text = hth_json_write(arguments, true, &n);
    bool ok = text ? hth_call_write(calls, name->text, (hth_str){text, n})
                   : hth_jinja_fail(calls->j, HEARTH_ERROR_MEMORY, "out of memory");
    hth_free(text);
    return ok;
}

static bool put_calls(writer *w, const hth_json *list)
{
    hth_call_writer calls = {w->j, &w->b, w->format, 0};
    if (w->b.text.n > 0 && !put_word(w, "\n")) return false;
    for (const hth_json *call = list->child; call; call = call->next)
        if (!put_call(&calls, call)) return false;
    return hth_calls_end(&calls);
}

static bool put_message(writer *w, const hth_message *m)
{
    hth_json *members = NULL;
    hearth_error why;
    bool is_result = !w->keeps_results && hth_str_eq(m->role, "tool");
    if (w->in_results && !is_result && !end_message(w, "user")) return false;
    if (is_result) {
        if (w->in_results && !put_word(w, "\n")) return false;
        w->in_results = true;
        return put_word(w, "<tool_response>\n") && write_text(w, m->content.bytes, m->content.n) &&
               put_word(w, "\n</tool_response>");
    }
    if (m->members.n > 0) {
        hearth_status st = hth_json_read(w->j->arena, m->members.bytes, m->members.n, NULL, &members, &why);
        if (st != HEARTH_OK) return hth_jinja_fail(w->j, st, "%s", why.message);
    }
    const hth_json *calls = hth_json_member(members, "tool_calls");
    if (hth_json_kind_of(calls) != HTH_JSON_ARRAY || calls->n == 0) {
        w->out->at[w->out->n] = *m;
        if (!w->keeps_results) w->out->at[w->out->n].members.n = 0;
        w->out->n++;
        return true;
    }
    if (!write_text(w, m->content.bytes, m->content.n)) return false;
    return put_calls(w, calls) && end_message(w, "assistant");
}

static bool put_all(writer *w, const hth_message *messages, size_t n, hth_str tools)
{
    size_t i = 0;
    if (tools.n > 0) {
        if (n > 0 && hth_str_eq(messages[0].role, "system") &&
            (!write_text(w, messages[i].content.bytes, messages[i].content.n) || !put_word(w, "\n\n") || i++ > 0))
            return false;
        if (!put_tools(w, tools) || !end_message(w, "system")) return false;
    }
    for (; i < n; i++)
        if (!put_message(w, &messages[i])) return false;
    return !w->in_results || end_message(w, "user");
}

static hearth_status make(writer w, const hth_message *messages, size_t n, hth_str tools, hearth_error *err)
{
    hth_plain_messages *out = w.out;
    *out = (hth_plain_messages){0};
    hth_jinja j = {.arena = &out->arena, .err = err};
    w.j = &j;
    out->at = hth_arena_alloc(&out->arena, n + 2, sizeof *out->at, 16);
    if (!out->at) return hth_fail_memory(err, (n + 2) * sizeof *out->at, "messages");
    if (put_all(&w, messages, n, tools)) return HEARTH_OK;
    hth_plain_messages_free(out);
    return j.status;
}

hearth_status hth_plain_messages_make(const hth_message *messages, size_t n, hth_str tools, const hth_call_format *format,
                                      bool keeps_results, hth_plain_messages *out, hearth_error *err)
{
    return make((writer){.out = out, .format = format, .keeps_results = keeps_results}, messages, n, tools, err);
}

hearth_status hth_calls_as_text(const hth_message *messages, size_t n, const hth_call_format *format,
                                hth_plain_messages *out, hearth_error *err)
{
    return make((writer){.out = out, .format = format, .keeps_results = true}, messages, n, (hth_str){"", 0}, err);
}

void hth_plain_messages_free(hth_plain_messages *m)
{
    hth_arena_free(&m->arena);
    *m = (hth_plain_messages){0};
}
