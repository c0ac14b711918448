/* Reads and collects messages. What no template can show is refused by name, not left out. */
#define _GNU_SOURCE
#include "serve/api/conversation.h"

#include <stdlib.h>
#include <string.h>

/* ---- collecting ------------------------------------------------------------------------------------------ */

bool conversation_own(conversation *c, char *text)
{
    void *more = text ? grow_array(c->owned, &c->owned_capacity, c->n_owned + 1, sizeof *c->owned) : NULL;
    if (!more) {
        free(text);
        return false;
    }
    c->owned = more;
    c->owned[c->n_owned++] = text;
    return true;
}

/* Claude Code begins its system prompt with a line that is another one in each request, for its makers' accounts:
 * with it no two requests would begin alike, and nothing of an earlier one could be used again. */
static size_t billing_size(const char *text, size_t n)
{
    static const char header[] = "x-anthropic-billing-header:";
    if (n < strlen(header) || memcmp(text, header, strlen(header)) != 0) return 0;
    const char *end = memchr(text, '\n', n);
    size_t size = end ? (size_t)(end - text) : n;
    while (size < n && text[size] == '\n') size++;
    return size;
}

bool conversation_add(conversation *c, const char *role, const char *content, size_t n, json_line *members)
{
    char *line = NULL;
    size_t n_line;
    if (members && (!json_line_end(members, &line, &n_line) || !conversation_own(c, line))) return false;
    void *more = grow_array(c->at, &c->capacity, c->n + 1, sizeof *c->at);
    if (!more) return false;
    c->at = more;
    size_t skip = strcmp(role, "system") == 0 && !c->keeps_billing ? billing_size(content, n) : 0;
    c->at[c->n++] = (hearth_message){.role = role, .content = content + skip, .n = n - skip, .members = line};
    return true;
}

void conversation_free(conversation *c)
{
    for (size_t i = 0; i < c->n_owned; i++) free(c->owned[i]);
    free(c->owned);
    free(c->at);
    hth_arena_free(&c->documents);
    *c = (conversation){0};
}

/* ---- answers in parts ------------------------------------------------------------------------------------ */

/* The line of members begins with reasoning, under both names that templates have for it, and calls follow. */
static bool begin_members(assistant_turn *t)
{
    if (!json_line_begin(&t->members)) return false;
    if (t->has_reasoning) {
        json_text(&t->members.j, "reasoning_content", t->reasoning, t->n_reasoning);
        json_text(&t->members.j, "thinking", t->reasoning, t->n_reasoning);
    }
    return true;
}

bool turn_call(assistant_turn *t, const char *id, const char *name, const char *arguments, size_t n)
{
    if (!t->has_calls) {
        if (!begin_members(t)) return false;
        json_open_compact(&t->members.j, "tool_calls", '[');
        t->has_calls = true;
    }
    call_write(&t->members.j, id, name, arguments, n);
    return true;
}

/* The line of members is a stream that knows its place in memory: it is ended there, not in a copy. */
bool turn_end(assistant_turn *t)
{
    bool has_members = t->has_calls || t->has_reasoning, ok = true;
    if (!t->has_text && !has_members) return true;
    if (t->has_calls) json_close(&t->members.j, ']');
    else if (has_members) ok = begin_members(t);
    ok = ok && conversation_add(t->owner, "assistant", t->has_text ? t->text : "", t->n_text,
                                has_members ? &t->members : NULL);
    *t = (assistant_turn){.owner = t->owner};
    return ok;
}

void turn_drop(assistant_turn *t)
{
    char *line;
    size_t n;
    if (!t->has_calls) return;
    json_close(&t->members.j, ']');
    if (json_line_end(&t->members, &line, &n)) free(line);
    t->has_calls = false;
}

/* ---- contents -------------------------------------------------------------------------------------------- */

/* Whether a list like "text|input_text" has the word. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, '|')) {
        if (*at == '|') at++;
        if (strncmp(at, word, n) == 0 && (at[n] == '|' || at[n] == '\0')) return true;
    }
    return false;
}

typedef struct content_parts {
    const char *types;
    buffer text;
} content_parts;

static bool read_part(fields *f, void *user)
{
    content_parts *parts = user;
    const char *type, *part;
    size_t n;
    if (!fields_need_word(f, "type", &type)) return false;
    if (!has_word(parts->types, type))
        return fields_fail(f, "type", "parts of type text alone are supported by this server");
    if (!fields_need_text(f, strcmp(type, "refusal") == 0 ? type : "text", &part, &n)) return false;
    bool ends = n > 0 && billing_size(part, n) == n && part[n - 1] != '\n'; /* a line, whatever follows */
    return (buffer_add(&parts->text, part, n) && (!ends || buffer_add(&parts->text, "\n", 1))) ||
           fields_no_memory(f);
}

bool content_read(fields *f, const char *name, const char *types, conversation *owner, const char **out,
                  size_t *n)
{
    const hth_json *v = fields_value(f, name);
    content_parts parts = {.types = types};
    *out = "";
    *n = 0;
    if (!fields_ok(f)) return false;
    if (hth_json_kind_of(v) == HTH_JSON_TEXT) {
        *out = v->text.bytes, *n = v->text.n;
        return true;
    }
    if (hth_json_kind_of(v) != HTH_JSON_ARRAY)
        return fields_fail(f, name, "a text or an array of parts is expected, not %s",
                           json_kind_words(hth_json_kind_of(v)));
    bool ok = fields_each(f, name, v, read_part, &parts);
    if (!ok) free(parts.text.bytes);
    if (!ok || !parts.text.bytes) return ok;
    *out = parts.text.bytes;
    *n = parts.text.n;
    return conversation_own(owner, parts.text.bytes) || fields_no_memory(f);
}

/* ---- OpenAI's messages ------------------------------------------------------------------------------------- */

static const struct {
    const char *given, *role;
} roles[] = {{"system", "system"},       {"developer", "system"}, {"user", "user"},
             {"assistant", "assistant"}, {"tool", "tool"},        {"function", "tool"}};

static bool read_role(fields *f, const char **role)
{
    const char *text;
    if (!fields_need_word(f, "role", &text)) return false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(text, roles[i].given) == 0) {
            *role = roles[i].role;
            return true;
        }
    return fields_fail(f, "role", "one of system, developer, user, assistant, tool, function is expected");
}

/* ---- calls ------------------------------------------------------------------------------------------------- */

void call_write(json *j, const char *id, const char *name, const char *arguments, size_t n)
{
    json_open_compact(j, NULL, '{');
    json_word(j, "id", id);
    json_word(j, "type", "function");
    json_open_compact(j, "function", '{');
    json_word(j, "name", name);
    json_text(j, "arguments", arguments, n);
    json_close(j, '}');
    json_close(j, '}');
}

bool arguments_read(fields *f, const char *name, conversation *owner, const char **text, size_t *n)
{
    const hth_json *v = fields_value(f, name);
    if (!fields_ok(f)) return false;
    *text = "{}", *n = 2;
    if (hth_json_kind_of(v) == HTH_JSON_TEXT) {
        if (v->text.n > 0) *text = v->text.bytes, *n = v->text.n;
        return true;
    }
    if (!v) return true;
    char *written = hth_json_write(v, true, n), *kept = written ? strdup(written) : NULL;
    hth_free(written);
    *text = kept;
    return conversation_own(owner, kept) || fields_no_memory(f);
}

void arguments_write_object(json *j, const char *key, const char *arguments, size_t n)
{
    hearth_error why;
    hth_json *v = n > 0 ? hth_json_open(arguments, n, NULL, &why) : NULL;
    char *object = hth_json_kind_of(v) == HTH_JSON_OBJECT ? hth_json_write(v, false, &n) : NULL;
    if (object) {
        json_raw(j, key, object, n);
    } else {
        json_open_compact(j, key, '{');
        if (n > 0) json_text(j, "arguments", arguments, n);
        json_close(j, '}');
    }
    hth_free(object);
    hth_json_close(v);
}

typedef struct call_list {
    conversation *owner;
    json *j;
} call_list;

static bool read_call(fields *f, void *user)
{
    call_list *l = user;
    const hth_json *function;
    const char *id = "", *name, *arguments;
    size_t n;
    if (!fields_word(f, "id", &id) || !fields_object(f, "function", &function)) return false;
    if (!function) return fields_fail(f, "function", "an object is expected; the field is missing");
    fields inner = {.object = function, .problem = f->problem};
    snprintf(inner.path, sizeof inner.path, "%.100s.function", f->path);
    if (!fields_need_word(&inner, "name", &name) || !arguments_read(&inner, "arguments", l->owner, &arguments, &n))
        return false;
    call_write(l->j, id, name, arguments, n);
    return true;
}

static bool read_calls(fields *f, const hth_json *calls, call_list *l)
{
    json *j = l->j;
    json_open_compact(j, "tool_calls", '[');
    bool ok = fields_each(f, "tool_calls", calls, read_call, l);
    json_close(j, ']');
    return ok;
}

static bool put_text(fields *f, json *j, const char *name, const char *as)
{
    const char *text = NULL;
    size_t n;
    if (!fields_text(f, name, &text, &n)) return false;
    if (text) json_text(j, as, text, n);
    return true;
}

/* Reasoning has one name in most templates, and another in that of gpt-oss. */
static bool read_members(fields *f, const hth_json *calls, conversation *owner, json *j)
{
    return put_text(f, j, "name", "name") && put_text(f, j, "tool_call_id", "tool_call_id") &&
           put_text(f, j, "reasoning_content", "reasoning_content") &&
           put_text(f, j, "reasoning_content", "thinking") &&
           (hth_json_count(calls) == 0 || read_calls(f, calls, &(call_list){owner, j}));
}

bool images_refuse(fields *f)
{
    const hth_json *images;
    if (!fields_array(f, "images", &images)) return false;
    return hth_json_count(images) == 0 || fields_fail(f, "images", "are not supported by this server");
}

static bool read_message(fields *f, void *user)
{
    conversation *c = user;
    const char *role = "", *content = "";
    size_t n = 0;
    const hth_json *calls;
    json_line members;
    if (!read_role(f, &role) || !fields_array(f, "tool_calls", &calls) || !images_refuse(f)) return false;
    bool may_lack = strcmp(role, "assistant") == 0;
    if (fields_value(f, "content") || !may_lack) {
        if (!fields_value(f, "content"))
            return fields_fail(f, "content", "a text is expected; the field is missing");
        if (!content_read(f, "content", "text|refusal", c, &content, &n)) return false;
    }
    bool has_members = hth_json_count(calls) > 0 || fields_value(f, "name") ||
                       fields_value(f, "tool_call_id") || fields_value(f, "reasoning_content");
    if (!has_members) return conversation_add(c, role, content, n, NULL) || fields_no_memory(f);
    if (!json_line_begin(&members)) return fields_no_memory(f);
    if (read_members(f, calls, c, &members.j))
        return conversation_add(c, role, content, n, &members) || fields_no_memory(f);
    char *line;
    if (json_line_end(&members, &line, &n)) free(line);
    return false;
}

bool messages_each(fields *f, fields_fn *read, conversation *out)
{
    const hth_json *array;
    if (!fields_need_array(f, "messages", &array)) return false;
    size_t n = hth_json_count(array);
    if (n == 0 || n > MAX_MESSAGES)
        return fields_fail(f, "messages", "1 to %d messages are expected, not %zu", MAX_MESSAGES, n);
    return fields_each(f, "messages", array, read, out);
}

bool conversation_read(fields *f, conversation *out) { return messages_each(f, read_message, out); }
