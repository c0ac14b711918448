/* Calls of a conversation as the text that a format has for them: what call_format.h says that a model writes. */
#include "chat/call_writer.h"

#include <stdio.h>
#include <string.h>

static bool put_plain(hth_call_writer *w, const char *p, size_t n)
{
    return hth_jinja_strbuf_bytes(w->j, w->b, p, n, false);
}

/* A mark is text of the template, in which control tokens count. */
static bool put_mark(hth_call_writer *w, const char *mark)
{
    char number[16];
    const char *at = strchr(mark, '#');
    if (!at) return hth_jinja_strbuf_bytes(w->j, w->b, mark, strlen(mark), true);
    int n = snprintf(number, sizeof number, "%u", w->n_call);
    return hth_jinja_strbuf_bytes(w->j, w->b, mark, (size_t)(at - mark), true) && put_plain(w, number, (size_t)n) &&
           put_mark(w, at + 1);
}

static bool put_json(hth_call_writer *w, const hth_json *v)
{
    size_t n;
    char *text = hth_json_write(v, true, &n);
    bool ok = text ? put_plain(w, text, n) : hth_jinja_fail(w->j, HEARTH_ERROR_MEMORY, "out of memory");
    hth_free(text);
    return ok;
}

static bool put_element(hth_call_writer *w, const hth_json *v)
{
    const hth_element_marks *m = &w->format->elements;
    const char *line = m->in_lines ? "\n" : "";
    bool is_text = v->kind == HTH_JSON_TEXT;
    return put_mark(w, m->key_open) && put_plain(w, v->key.bytes, v->key.n) && put_mark(w, m->key_close) &&
           put_mark(w, m->key_gap) && (!m->is_typed || put_mark(w, is_text ? " string=\"true\"" : " string=\"false\"")) &&
           put_mark(w, m->value_open) && put_mark(w, line) &&
           (is_text ? put_plain(w, v->text.bytes, v->text.n) : put_json(w, v)) && put_mark(w, line) &&
           put_mark(w, m->value_close) && put_mark(w, m->gap);
}

/* A text in quotes that end it nowhere else, else as JSON. */
static bool put_literal(hth_call_writer *w, const hth_json *v, bool is_first)
{
    const hth_call_format *f = w->format;
    bool fits = v->kind == HTH_JSON_TEXT && (f->quote[1] || !memchr(v->text.bytes, '\\', v->text.n));
    fits = fits && !hth_str_contains(v->text, f->quote);
    return (is_first || put_mark(w, f->between_arguments)) && put_plain(w, v->key.bytes, v->key.n) &&
           put_mark(w, f->key_end) &&
           (fits ? put_mark(w, f->quote) && put_plain(w, v->text.bytes, v->text.n) && put_mark(w, f->quote)
                 : put_json(w, v));
}

static bool put_members(hth_call_writer *w, const hth_json *arguments)
{
    const hth_element_marks *m = &w->format->elements;
    bool is_elements = w->format->style == HTH_CALL_ELEMENTS;
    if (!put_mark(w, is_elements ? m->name_close : w->format->name_end) || !put_mark(w, m->gap)) return false;
    for (const hth_json *v = hth_json_first(arguments); v; v = v->next)
        if (!(is_elements ? put_element(w, v) : put_literal(w, v, v == arguments->child))) return false;
    return put_mark(w, m->call_close);
}

bool hth_call_write(hth_call_writer *w, hth_str name, hth_str arguments)
{
    const hth_call_format *f = w->format;
    hearth_error why;
    hth_json *members = NULL;
    bool is_quoted = f->style == HTH_CALL_JSON || f->style == HTH_CALL_KEYED;
    bool has_members = f->style == HTH_CALL_ELEMENTS || f->style == HTH_CALL_LITERALS;
    bool ok = put_mark(w, w->n_call == 0 ? f->first : f->between) && put_mark(w, f->open) &&
              put_mark(w, f->elements.call_open) && (!is_quoted || put_plain(w, "\"", 1)) &&
              put_plain(w, name.bytes, name.n) && (!is_quoted || put_plain(w, "\"", 1));
    if (ok && has_members) {
        hearth_status st = hth_json_read(w->j->arena, arguments.bytes, arguments.n, NULL, &members, &why);
        if (st == HEARTH_ERROR_MEMORY) return hth_jinja_fail(w->j, st, "%s", why.message);
    }
    hth_json alone = {.kind = HTH_JSON_TEXT, .key = {"arguments", 9}, .text = arguments};
    const hth_json other = {.kind = HTH_JSON_OBJECT, .n = 1, .child = &alone};
    bool is_object = hth_json_kind_of(members) == HTH_JSON_OBJECT;
    ok = ok && (has_members ? put_members(w, is_object ? members : &other)
                            : put_mark(w, f->name_end) && put_plain(w, arguments.bytes, arguments.n));
    w->n_call++;
    return ok && put_mark(w, f->close);
}

bool hth_calls_end(hth_call_writer *w) { return put_mark(w, w->format->last); }
