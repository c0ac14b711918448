/* Reads messages. What the templates of this version cannot show is refused by name, not left out. */
#include "serve/messages.h"

#include "common/buffer.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *given, *role;
} roles[] = {{"system", "system"},       {"developer", "system"}, {"user", "user"},
             {"assistant", "assistant"}, {"tool", "tool"},        {"function", "tool"}};

static bool read_role(fields *f, const char **role)
{
    const char *text;
    size_t n;
    if (!fields_need_text(f, "role", &text, &n)) return false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (n == strlen(roles[i].given) && memcmp(text, roles[i].given, n) == 0) {
            *role = roles[i].role;
            return true;
        }
    return fields_fail(f, "role", "one of system, developer, user, assistant, tool is expected");
}

static bool read_part(fields *f, buffer *text)
{
    const char *type, *part;
    size_t n_type, n;
    if (!fields_need_text(f, "type", &type, &n_type)) return false;
    if (n_type != 4 || memcmp(type, "text", 4) != 0)
        return fields_fail(f, "type", "parts of type text alone are supported by this model");
    if (!fields_need_text(f, "text", &part, &n)) return false;
    if (buffer_add(text, part, n)) return true;
    problem_set(f->problem, 503, "", "out of memory");
    return false;
}

static bool read_content(fields *f, hearth_message *m, char **joined)
{
    const json_in *v = fields_value(f, "content");
    buffer text = {0};
    m->content = "";
    m->n = 0;
    if (!v)
        return strcmp(m->role, "assistant") == 0 ||
               fields_fail(f, "content", "a text is expected; the field is missing");
    if (json_in_kind_of(v) == JSON_IN_TEXT) {
        m->content = json_in_bytes(v, &m->n);
        return true;
    }
    if (json_in_kind_of(v) != JSON_IN_ARRAY)
        return fields_fail(f, "content", "a text or an array of parts is expected, not %s",
                           json_kind_words(json_in_kind_of(v)));
    fields part;
    bool ok = true;
    for (size_t i = 0; ok && i < json_in_count(v); i++)
        ok = fields_at(f, "content", v, i, &part) && read_part(&part, &text);
    *joined = text.bytes;
    if (text.bytes) m->content = text.bytes;
    m->n = text.n;
    return ok;
}

static bool read_message(fields *f, hearth_message *m, char **joined)
{
    if (!read_role(f, &m->role) || !read_content(f, m, joined)) return false;
    if (fields_value(f, "tool_calls"))
        return fields_fail(f, "tool_calls", "calls of tools are not supported");
    return true;
}

bool messages_read(fields *f, messages *out)
{
    const json_in *array;
    fields one;
    *out = (messages){0};
    if (!fields_need_array(f, "messages", &array)) return false;
    size_t n = json_in_count(array);
    if (n == 0 || n > MAX_MESSAGES)
        return fields_fail(f, "messages", "1 to %d messages are expected, not %zu", MAX_MESSAGES, n);
    out->at = calloc(n, sizeof *out->at);
    out->joined = calloc(n, sizeof *out->joined);
    out->n = n;
    if (!out->at || !out->joined) {
        problem_set(f->problem, 503, "", "out of memory");
        return false;
    }
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = fields_at(f, "messages", array, i, &one) && read_message(&one, &out->at[i], &out->joined[i]);
    return ok;
}

void messages_free(messages *m)
{
    for (size_t i = 0; m->joined && i < m->n; i++) free(m->joined[i]);
    free(m->joined);
    free(m->at);
}
