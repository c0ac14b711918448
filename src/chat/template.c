/* Implements template.h: parsing and rendering with limits, and splitting the text into parts by the origin of its
 * bytes. */
#include "chat/jinja.h"

#include <string.h>

hearth_status hth_template_open(const char *source, size_t n, hth_template **out, hearth_error *err)
{
    *out = NULL;
    hth_template *t = hth_alloc(1, sizeof *t);
    if (!t) return hth_fail_memory(err, sizeof *t, "a chat template");
    hth_jinja j = {.arena = &t->arena, .err = err};
    if (hth_jinja_parse(&j, source, n, &t->body)) {
        *out = t;
        return HEARTH_OK;
    }
    hth_template_close(t);
    return j.status;
}

void hth_template_close(hth_template *t)
{
    if (!t) return;
    hth_arena_free(&t->arena);
    hth_free(t);
}

/* ---- variables of a template --------------------------------------------------------------------- */

bool hth_message_role_ok(hth_str role)
{
    bool ok = role.n > 0 && role.n <= 64;
    for (size_t i = 0; ok && i < role.n; i++) {
        char c = role.bytes[i];
        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
             c == '_';
    }
    return ok;
}

static bool put_text(hth_jinja *j, hth_jinja_dict *dict, const char *name, hth_str text, bool is_template)
{
    hth_jinja_value key, v;
    return hth_jinja_text_word(j, name, &key) && hth_jinja_text_of(j, text.bytes, text.n, is_template, &v) &&
           hth_jinja_put(j, dict, &key, &v);
}

/* Bytes that are NULL are None. */
static bool put_content(hth_jinja *j, hth_jinja_dict *message, const hth_message *m)
{
    hth_jinja_value key, content = hth_jinja_none();
    hth_jinja_strbuf b = {0};
    if (m->content.bytes && !m->parts) return put_text(j, message, "content", m->content, false);
    for (size_t i = 0; i < m->n_part; i++)
        if (!hth_jinja_strbuf_bytes(j, &b, m->parts[i].text, m->parts[i].n, m->parts[i].is_template)) return false;
    if (m->content.bytes && !hth_jinja_strbuf_value(j, &b, &content)) return false;
    return hth_jinja_text_word(j, "content", &key) && hth_jinja_put(j, message, &key, &content);
}

/* The object that arguments of a call spell. What a model wrote and is none (it was cut, or is an array) is the one
 * member of an object, so that templates that go over members show it too. */
static bool object_of(hth_jinja *j, hth_jinja_value *arguments, hth_str text, hth_jinja_value *out)
{
    static const hth_json_limits limits = {.max_bytes = HTH_TEMPLATE_MAX_MEMORY / 4};
    hth_json *v;
    hth_jinja_value key;
    hearth_error why;
    hearth_status st = hth_json_read(j->arena, text.bytes, text.n, &limits, &v, &why);
    if (st == HEARTH_ERROR_MEMORY) return hth_jinja_fail(j, st, "%s", why.message);
    if (st == HEARTH_OK && v->kind == HTH_JSON_OBJECT) return hth_jinja_from_tree(j, v, out);
    return hth_jinja_new_dict(j, JINJA_DICT, out) &&
           (text.n == 0 || (hth_jinja_text_word(j, "arguments", &key) &&
                            hth_jinja_put(j, out->as.dict, &key, arguments)));
}

/* Arguments of a call that are a text become an object, whose members templates may go over. Where they print it, alone
 * or as JSON, or add it to a text, it is that text. */
static bool open_arguments(hth_jinja *j, hth_jinja_value *call)
{
    hth_jinja_pair *f = NULL, *arguments = NULL;
    hth_jinja_value key, v;
    if (call->kind != JINJA_DICT || !hth_jinja_text_word(j, "function", &key)) return !j->status;
    if (!hth_jinja_find(j, call->as.dict, &key, &f)) return false;
    if (!f || f->value.kind != JINJA_DICT || !hth_jinja_text_word(j, "arguments", &key)) return !j->status;
    if (!hth_jinja_find(j, f->value.as.dict, &key, &arguments)) return false;
    if (!arguments || arguments->value.kind != JINJA_TEXT) return true;
    hth_str text = {hth_jinja_bytes(j, arguments->value.as.text), arguments->value.as.text->n};
    if (!text.bytes) return false;
    if (!object_of(j, &arguments->value, text, &v)) return false;
    v.as.dict->source = text;
    arguments->value = v;
    return true;
}

static bool put_members(hth_jinja *j, hth_jinja_dict *message, hth_str members)
{
    hth_jinja_value v;
    bool is_calls;
    if (members.n == 0) return true;
    if (!hth_jinja_from_json(j, members.bytes, members.n, &v)) return false;
    if (v.kind != JINJA_DICT)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "the members of a message are not a JSON object");
    for (size_t i = 0; i < v.as.dict->n; i++) {
        hth_jinja_pair *p = &v.as.dict->v[i];
        if (!hth_jinja_text_is(j, p->key.as.text, "tool_calls", &is_calls)) return false;
        for (size_t k = 0; is_calls && p->value.kind == JINJA_LIST && k < p->value.as.list->n; k++)
            if (!open_arguments(j, &p->value.as.list->v[k])) return false;
        if (!hth_jinja_put(j, message, &p->key, &p->value)) return false;
    }
    return true;
}

static bool set_messages(hth_jinja *j)
{
    hth_jinja_value list, message;
    if (!hth_jinja_new_list(j, JINJA_LIST, &list)) return false;
    for (size_t i = 0; i < j->in->n_message; i++) {
        const hth_message *m = &j->in->messages[i];
        if (!hth_message_role_ok(m->role))
            return hth_jinja_fail(j, HEARTH_ERROR_ARGUMENT,
                                  "message %zu: a role is a word of at most 64 letters, digits, - and _", i);
        if (!hth_jinja_new_dict(j, JINJA_DICT, &message) ||
            !put_text(j, message.as.dict, "role", m->role, true) ||
            !put_content(j, message.as.dict, m) ||
            !put_members(j, message.as.dict, m->members) || !hth_jinja_push(j, list.as.list, &message))
            return false;
    }
    return hth_jinja_set(j, (hth_str){"messages", 8}, &list);
}

static bool set_text(hth_jinja *j, const char *name, hth_str text)
{
    hth_jinja_value v;
    return hth_jinja_text_of(j, text.bytes, text.n, true, &v) &&
           hth_jinja_set(j, (hth_str){name, strlen(name)}, &v);
}

static bool set_functions(hth_jinja *j)
{
    for (const hth_jinja_function *f = hth_jinja_globals; f->name; f++) {
        if (!j->in->seconds && strcmp(f->name, "strftime_now") == 0) continue;
        hth_jinja_bound *bound = hth_jinja_alloc(j, 1, sizeof *bound);
        if (!bound) return false;
        *bound = (hth_jinja_bound){f, {JINJA_NONE, {0}}};
        if (!hth_jinja_set(j, (hth_str){f->name, strlen(f->name)},
                           &(hth_jinja_value){JINJA_FUNCTION, {.bound = bound}}))
            return false;
    }
    return true;
}

static bool set_variables(hth_jinja *j)
{
    hth_jinja_value v;
    if (j->in->variables.n == 0) return true;
    if (!hth_jinja_from_json(j, j->in->variables.bytes, j->in->variables.n, &v)) return false;
    if (v.kind != JINJA_DICT)
        return hth_jinja_fail(j, HEARTH_ERROR_ARGUMENT, "the variables are not a JSON object");
    for (size_t i = 0; i < v.as.dict->n; i++) {
        hth_jinja_text *name = v.as.dict->v[i].key.as.text;
        const char *p = hth_jinja_bytes(j, name);
        if (!p || !hth_jinja_set(j, (hth_str){p, name->n}, &v.as.dict->v[i].value)) return false;
    }
    return true;
}

static bool set_tools(hth_jinja *j)
{
    hth_jinja_value v;
    if (j->in->tools.n == 0) return true;
    if (!hth_jinja_from_json(j, j->in->tools.bytes, j->in->tools.n, &v)) return false;
    if (v.kind != JINJA_LIST)
        return hth_jinja_fail(j, HEARTH_ERROR_ARGUMENT, "the tools are not a JSON array");
    return v.as.list->n == 0 || hth_jinja_set(j, (hth_str){"tools", 5}, &v);
}

static bool set_all(hth_jinja *j)
{
    hth_jinja_value gen = hth_jinja_bool(j->in->add_generation_prompt);
    return set_functions(j) && set_messages(j) && set_text(j, "bos_token", j->in->bos) &&
           set_text(j, "eos_token", j->in->eos) &&
           hth_jinja_set(j, (hth_str){"add_generation_prompt", 21}, &gen) && set_tools(j) && set_variables(j);
}

/* ---- rendering -------------------------------------------------------------------------------------- */

void hth_rendered_free(hth_rendered *r)
{
    hth_free(r->text);
    hth_free(r->parts);
    *r = (hth_rendered){0};
}

static hearth_status copy_out(const hth_jinja_text *t, hth_rendered *out, hearth_error *err)
{
    out->text = hth_alloc(t->n + 1, 1);
    out->parts = hth_alloc(t->n_span + 1, sizeof *out->parts);
    if (!out->text || !out->parts) {
        hth_rendered_free(out);
        return hth_fail_memory(err, t->n + 1, "a rendered conversation");
    }
    for (size_t i = 0; i < t->n_span; i++) {
        const hth_jinja_span *span = &t->spans->span[i];
        hth_text_part *last = out->n_part ? &out->parts[out->n_part - 1] : NULL;
        memcpy(out->text + out->n, span->p, span->n);
        if (last && last->is_template == span->is_template) last->n += span->n;
        else out->parts[out->n_part++] = (hth_text_part){out->text + out->n, span->n, span->is_template};
        out->n += span->n;
    }
    return HEARTH_OK;
}

hearth_status hth_template_render(const hth_template *t, const hth_template_input *in, hth_rendered *out,
                                  hearth_error *err)
{
    hth_arena arena = {0};
    hth_jinja_scope scope = {0};
    hth_jinja_strbuf b = {0};
    hth_jinja j = {.arena = &arena, .err = err, .in = in, .scope = &scope, .out = &b};
    *out = (hth_rendered){0};
    bool ok = set_all(&j) && hth_jinja_exec(&j, t->body);
    hearth_status st = ok ? copy_out(&b.text, out, err) : j.status;
    hth_arena_free(&arena);
    return st;
}
