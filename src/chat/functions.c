/* Reads functions and calls in OpenAI's form, and writes conversations with them as plain messages. */
#include "chat/functions.h"

#include "chat/jinja.h"

#include <string.h>

/* ---- JSON ---------------------------------------------------------------------------------------------- */

/* A member of a dict; NULL: v is none, or has no such member. */
static const hth_jinja_value *member(hth_jinja *j, const hth_jinja_value *v, const char *name)
{
    hth_jinja_value key;
    hth_jinja_pair *at = NULL;
    if (!v || v->kind != JINJA_DICT || !hth_jinja_text_word(j, name, &key) ||
        !hth_jinja_find(j, v->as.dict, &key, &at) || !at)
        return NULL;
    return &at->value;
}

static bool text_of(hth_jinja *j, const hth_jinja_value *v, hth_str *out)
{
    if (!v || v->kind != JINJA_TEXT || !(out->bytes = hth_jinja_bytes(j, v->as.text))) return false;
    out->n = v->as.text->n;
    return true;
}

static bool same(hth_str a, hth_str b) { return a.n == b.n && memcmp(a.bytes, b.bytes, a.n) == 0; }

static bool is_word(hth_jinja *j, const hth_jinja_value *v, const char *word)
{
    hth_str text;
    return text_of(j, v, &text) && hth_str_eq(text, word);
}

/* The type of a schema is "string", or a list that has it. */
static bool takes_text(hth_jinja *j, const hth_jinja_value *schema)
{
    const hth_jinja_value *type = member(j, schema, "type");
    if (!type || type->kind != JINJA_LIST) return is_word(j, type, "string");
    for (size_t i = 0; i < type->as.list->n; i++)
        if (is_word(j, &type->as.list->v[i], "string")) return true;
    return false;
}

static bool find_argument(hth_jinja *j, const hth_jinja_value *tools, hth_str function, hth_str argument)
{
    hth_str name;
    for (size_t i = 0; tools->kind == JINJA_LIST && i < tools->as.list->n; i++) {
        const hth_jinja_value *f = member(j, &tools->as.list->v[i], "function");
        if (!f || !text_of(j, member(j, f, "name"), &name) || !same(name, function)) continue;
        const hth_jinja_value *properties = member(j, member(j, f, "parameters"), "properties");
        for (size_t k = 0; properties && properties->kind == JINJA_DICT && k < properties->as.dict->n; k++) {
            const hth_jinja_pair *p = &properties->as.dict->v[k];
            if (text_of(j, &p->key, &name) && same(name, argument)) return takes_text(j, &p->value);
        }
        return false;
    }
    return false;
}

bool hth_function_takes_text(const char *tools, hth_str function, hth_str argument, bool *has_memory)
{
    hth_arena arena = {0};
    hth_jinja j = {.arena = &arena};
    hth_jinja_value list;
    bool is_text = tools && hth_jinja_from_json(&j, tools, strlen(tools), &list) &&
                   find_argument(&j, &list, function, argument);
    if (j.status == HEARTH_ERROR_MEMORY) *has_memory = false;
    hth_arena_free(&arena);
    return is_text;
}

bool hth_is_json(const char *text, size_t n, bool *has_memory)
{
    hth_arena arena = {0};
    hth_jinja j = {.arena = &arena};
    hth_jinja_value v;
    bool ok = hth_jinja_from_json(&j, text, n, &v);
    if (j.status == HEARTH_ERROR_MEMORY) *has_memory = false;
    hth_arena_free(&arena);
    return ok;
}

hearth_status hth_check_json(const char *name, const char *text, bool is_array, hearth_error *err)
{
    hearth_error why = {0};
    hth_arena arena = {0};
    hth_jinja j = {.arena = &arena, .err = &why};
    hth_jinja_value v;
    if (!text || !*text) return HEARTH_OK;
    hearth_status st = HEARTH_OK;
    if (!hth_jinja_from_json(&j, text, strlen(text), &v)) st = hth_fail(err, j.status, "%s: %s", name, why.message);
    else if (v.kind != (is_array ? JINJA_LIST : JINJA_DICT))
        st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s is no JSON %s", name, is_array ? "array" : "object");
    hth_arena_free(&arena);
    return st;
}

/* ---- plain messages -------------------------------------------------------------------------------------- */

typedef struct writer {
    hth_jinja *j;
    hth_plain_messages *out;
    hth_jinja_strbuf b; /* the content of the message that is written */
    bool in_results;    /* that is one of results */
} writer;

static bool put(writer *w, const char *p, size_t n)
{
    return hth_jinja_strbuf_bytes(w->j, &w->b, p, n, false);
}
static bool put_word(writer *w, const char *word) { return put(w, word, strlen(word)); }

static bool end_message(writer *w, const char *role)
{
    hth_jinja_value v;
    hth_message *m = &w->out->at[w->out->n];
    if (!hth_jinja_strbuf_value(w->j, &w->b, &v)) return false;
    *m = (hth_message){.role = {role, strlen(role)}, .content = {"", v.as.text->n}};
    if (v.as.text->n > 0 && !(m->content.bytes = hth_jinja_bytes(w->j, v.as.text))) return false;
    w->out->n++;
    w->b = (hth_jinja_strbuf){0};
    w->in_results = false;
    return true;
}

static bool put_tools(writer *w, hth_str tools)
{
    return put_word(w, "You can call these functions:\n<tools>\n") && put(w, tools.bytes, tools.n) &&
           put_word(w,
                    "\n</tools>\nTo call one, write its name and its arguments as JSON between two marks:\n"
                    "<tool_call>\n{\"name\": NAME, \"arguments\": {...}}\n</tool_call>\n"
                    "Then wait: the result comes between <tool_response> and </tool_response>.");
}

/* Arguments are JSON: a text, or as it is. */
static bool arguments_of(hth_jinja *j, const hth_jinja_value *v, hth_str *out)
{
    hth_jinja_value usual[4], text;
    const hth_jinja_args none = {.v = usual, .n = 4};
    if (!v || v->kind != JINJA_DICT) return text_of(j, v, out);
    for (size_t i = 0; i < 4; i++) usual[i] = (hth_jinja_value){.kind = JINJA_MISSING};
    return hth_jinja_to_json(j, v, &none, &text) && text_of(j, &text, out);
}

static bool put_call(writer *w, const hth_jinja_value *call)
{
    hth_str name, arguments;
    const hth_jinja_value *f = member(w->j, call, "function");
    if (!text_of(w->j, member(w->j, f, "name"), &name) ||
        !arguments_of(w->j, member(w->j, f, "arguments"), &arguments))
        return hth_jinja_fail(w->j, HEARTH_ERROR_FORMAT, "a call needs function.name and function.arguments");
    return (w->b.text.n == 0 || put_word(w, "\n")) && put_word(w, "<tool_call>\n{\"name\": \"") &&
           put(w, name.bytes, name.n) && put_word(w, "\", \"arguments\": ") &&
           put(w, arguments.bytes, arguments.n) && put_word(w, "}\n</tool_call>");
}

static bool put_message(writer *w, const hth_message *m)
{
    hth_jinja_value members = hth_jinja_none();
    bool is_result = hth_str_eq(m->role, "tool");
    if (w->in_results && !is_result && !end_message(w, "user")) return false;
    if (is_result) {
        if (w->in_results && !put_word(w, "\n")) return false;
        w->in_results = true;
        return put_word(w, "<tool_response>\n") && put(w, m->content.bytes, m->content.n) &&
               put_word(w, "\n</tool_response>");
    }
    if (m->members.n > 0 && !hth_jinja_from_json(w->j, m->members.bytes, m->members.n, &members))
        return false;
    const hth_jinja_value *calls = member(w->j, &members, "tool_calls");
    if (!calls || calls->kind != JINJA_LIST || calls->as.list->n == 0) {
        w->out->at[w->out->n] = *m;
        w->out->at[w->out->n++].members.n = 0;
        return true;
    }
    if (!put(w, m->content.bytes, m->content.n)) return false;
    for (size_t i = 0; i < calls->as.list->n; i++)
        if (!put_call(w, &calls->as.list->v[i])) return false;
    return end_message(w, "assistant");
}

static bool put_all(writer *w, const hth_message *messages, size_t n, hth_str tools)
{
    size_t i = 0;
    if (tools.n > 0) {
        if (n > 0 && hth_str_eq(messages[0].role, "system") &&
            (!put(w, messages[i].content.bytes, messages[i].content.n) || !put_word(w, "\n\n") || i++ > 0))
            return false;
        if (!put_tools(w, tools) || !end_message(w, "system")) return false;
    }
    for (; i < n; i++)
        if (!put_message(w, &messages[i])) return false;
    return !w->in_results || end_message(w, "user");
}

hearth_status hth_plain_messages_make(const hth_message *messages, size_t n, hth_str tools,
                                      hth_plain_messages *out, hearth_error *err)
{
    *out = (hth_plain_messages){0};
    hth_jinja j = {.arena = &out->arena, .err = err};
    writer w = {.j = &j, .out = out};
    out->at = hth_arena_alloc(&out->arena, n + 2, sizeof *out->at, 16);
    if (!out->at) return hth_fail_memory(err, (n + 2) * sizeof *out->at, "messages");
    if (put_all(&w, messages, n, tools)) return HEARTH_OK;
    hth_plain_messages_free(out);
    return j.status;
}

void hth_plain_messages_free(hth_plain_messages *m)
{
    hth_arena_free(&m->arena);
    *m = (hth_plain_messages){0};
}
