/* Implements chat of hearth.h: selects a model's template or format, and converts messages to text or ids. A
 * conversation is rendered completely each time. A caller that keeps a session compares its tokens with the new
 * ids. */
#include "base/alloc.h"
#include "base/fp_state.h"
#include "base/log.h"
#include "chat/normalise.h"
#include "engine/engine.h"
#include "engine/chat_int.h"
#include "engine/struct_size.h"

#include <stdio.h>
#include <string.h>

/* ---- opening ----------------------------------------------------------------------------------- */

static hearth_status new_chat(const hearth_model *model, const char *name, hearth_chat **out,
                              hearth_error *err)
{
    *out = hth_alloc(1, sizeof **out);
    if (!*out) return hth_fail_memory(err, sizeof **out, "a chat");
    (*out)->model = hth_engine_hold_model(model);
    (*out)->name = name;
    return HEARTH_OK;
}

void hearth_chat_close(hearth_chat *chat)
{
    if (!chat || !hth_ref_drop(&chat->ref)) return;
    hth_template_close(chat->template);
    hth_template_close(chat->with_functions);
    hth_free(chat->source);
    hth_engine_release_model(chat->model);
    hth_free(chat);
}

hearth_chat_options hearth_chat_defaults(void)
{
    return (hearth_chat_options){.size = sizeof(hearth_chat_options)};
}

const char *hearth_chat_name(const hearth_chat *chat) { return chat ? chat->name : NULL; }

const char *hearth_chat_source(const hearth_chat *chat, size_t *n)
{
    if (n) *n = chat ? chat->n_source : 0;
    return chat ? chat->source : NULL;
}

const char *hearth_chat_format(size_t i)
{
    const hth_chat_format *f = hth_chat_format_at(i);
    return f ? hth_chat_format_name(f) : NULL;
}

enum { NAMES = 540 }; /* bytes for the names of all formats: the text of an error has 600 */

/* "chatglm4, chatml, ..." */
static const char *format_names(char out[NAMES])
{
    size_t n = 0;
    for (size_t i = 0; hearth_chat_format(i) && n < NAMES; i++)
        n += (size_t)snprintf(out + n, NAMES - n, "%s%s", i ? ", " : "", hearth_chat_format(i));
    return out;
}

/* Errors with a path have no room for all names. */
#define SOME_NAMES "formats by name: chatml, gemma, llama3.1, qwen3 and others (a wrong name lists all)"

static hearth_status open_format(const hearth_model *model, const hth_chat_format *f, hearth_chat **out,
                                 hearth_error *err)
{
    hearth_status st = new_chat(model, hth_chat_format_name(f), out, err);
    if (st != HEARTH_OK) return st;
    const char *reasoning = hth_chat_format_reasoning(f);
    (*out)->format = f;
    (*out)->calls = hth_call_format_find(hth_chat_format_calls(f));
    (*out)->reasoning = hth_reasoning_detect((hth_str){reasoning, strlen(reasoning)});
    return HEARTH_OK;
}

/* Finds the forms of calls and reasoning by the text of a template. */
static void detect(hearth_chat *chat, hth_str source)
{
    const hth_reasoning_marks *reasoning = hth_reasoning_detect(source);
    chat->calls = hth_call_format_detect(source);
    chat->shows_calls = hth_str_contains(source, "tool_calls");
    if (reasoning) chat->reasoning = reasoning;
}

static hearth_status open_source(const hearth_model *model, hth_str source, const char *name,
                                 hearth_chat **out, hearth_error *err)
{
    hearth_chat *chat;
    *out = NULL;
    hearth_status st = new_chat(model, name, &chat, err);
    if (st == HEARTH_OK) st = hth_template_open(source.bytes, source.n, &chat->template, err);
    if (st == HEARTH_OK && !(chat->source = hth_alloc(1, source.n + 1)))
        st = hth_fail_memory(err, source.n + 1, "a template");
    if (st != HEARTH_OK) {
        hearth_chat_close(chat);
        return st;
    }
    memcpy(chat->source, source.bytes, chat->n_source = source.n);
    detect(chat, source);
    *out = chat;
    return HEARTH_OK;
}

/* A file may have a second template for requests with functions. Without a known form of calls it is of no use. */
static hearth_status open_with_functions(hearth_chat *chat, hearth_error *err)
{
    static const char key[] = "tokenizer.chat_template.tool_use";
    hearth_error why = {0};
    const hth_gguf *file = chat->model->file;
    const hth_gguf_value *v = hth_gguf_find(file, key);
    if (!v || v->type != HTH_GGUF_TEXT || !hth_call_format_detect(v->as.text)) return HEARTH_OK;
    hearth_status st = hth_template_open(v->as.text.bytes, v->as.text.n, &chat->with_functions, &why);
    if (st == HEARTH_OK) detect(chat, v->as.text);
    else if (st == HEARTH_ERROR_MEMORY) return hth_fail(err, st, "%s", why.message);
    else hth_log(HEARTH_LOG_WARN, "%s: %s: %s; requests with functions use tokenizer.chat_template", hth_gguf_path(file), key, why.message);
    return HEARTH_OK;
}

/* Called if the file's template did not open, for the reason in why. */
static hearth_status open_instead(const hearth_model *model, hth_str source, const hearth_error *why,
                                  hearth_chat **out, hearth_error *err)
{
    const hth_chat_format *f = hth_chat_format_detect(source);
    const char *path = hth_gguf_path(model->file);
    if (!f)
        return hth_fail(err, why->status, "%s: tokenizer.chat_template: %.150s; " SOME_NAMES, path, why->message);
    hth_log(HEARTH_LOG_WARN, "%s: tokenizer.chat_template: %s; the format '%s' takes its place", path,
            why->message, hth_chat_format_name(f));
    return open_format(model, f, out, err);
}

static hearth_status open_own(const hearth_model *model, hearth_chat **out, hearth_error *err)
{
    hearth_error why = {0};
    const hth_gguf_value *v = hth_gguf_find(model->file, "tokenizer.chat_template");
    if (!v)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: tokenizer.chat_template is missing: this model was not made for chat, or the file does not "
                        "say how; " SOME_NAMES,
                        hth_gguf_path(model->file));
    if (v->type != HTH_GGUF_TEXT)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: tokenizer.chat_template at %llu: a text is expected; " SOME_NAMES,
                        hth_gguf_path(model->file), (unsigned long long)v->offset);
    const hth_chat_format *f = hth_chat_format_find(v->as.text);
    if (f) return open_format(model, f, out, err);
    hearth_status st = open_source(model, v->as.text, "template of the file", out, &why);
    if (st == HEARTH_OK && (st = open_with_functions(*out, &why)) != HEARTH_OK) {
        hearth_chat_close(*out);
        *out = NULL;
    }
    if (st == HEARTH_OK) return st;
    if (st != HEARTH_ERROR_MEMORY) return open_instead(model, v->as.text, &why, out, err);
    if (err) *err = why;
    return st;
}

hearth_status hearth_chat_open(const hearth_model *model, const char *format, hearth_chat **out,
                               hearth_error *err)
{
    HTH_FP_SCOPE;
    char names[NAMES], shown[16];
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!model) return hth_fail_null(err, "model");
    if (!format) return open_own(model, out, err);
    const hth_chat_format *f = hth_chat_format_find((hth_str){format, strlen(format)});
    if (f) return open_format(model, f, out, err);
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "chat format '%s' is not known; there are %s",
                    hth_escape(shown, sizeof shown, format, strlen(format)), format_names(names));
}

hearth_status hearth_chat_open_template(const hearth_model *model, const char *source, size_t n,
                                        hearth_chat **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!model || !source) return hth_fail_null(err, model ? "source" : "model");
    return open_source(model, (hth_str){source, n}, "template", out, err);
}

/* ---- rendering ------------------------------------------------------------------------------------ */

static hth_str token_text(const hearth_model *m, int32_t id)
{
    return id < 0 ? (hth_str){"", 0} : hth_tokenizer_entry(m->tokenizer, id);
}

static hth_str text_or_empty(const char *text)
{
    return text ? (hth_str){text, strlen(text)} : (hth_str){"", 0};
}

/* One of the two renders a request. */
typedef struct renderer {
    const hth_template *template; /* NULL: format renders */
    const hth_chat_format *format;
} renderer;

/* Renders messages as they are. */
static hearth_status render_as_is(renderer r, const hth_template_input *in, hth_rendered *out, hearth_error *err)
{
    return r.template ? hth_template_render(r.template, in, out, err) : hth_chat_format_render(r.format, in, out, err);
}

/* Renders messages by a set of rules. Whether the template takes them so; *shows: it shows all of them. */
static bool render_by(renderer r, const hth_template_input *in, unsigned rules, hth_rendered *out,
                      bool *shows)
{
    hth_plain_messages list;
    hth_template_input other = *in;
    hearth_error why;
    bool is_new, ok = false;
    *out = (hth_rendered){0}, *shows = false;
    if (hth_normalise(in->messages, in->n_message, rules, &list, &is_new, &why) != HEARTH_OK) return false;
    other.messages = list.at, other.n_message = list.n;
    if (is_new) ok = render_as_is(r, &other, out, &why) == HEARTH_OK;
    if (ok) *shows = hth_shows_messages(out->text, out->n, list.at, list.n);
    hth_plain_messages_free(&list);
    return ok;
}

/* Renders messages as they are, or by the fewest rules with which the template takes and shows all of them; else by the
 * fewest with which it takes them, or as they are. */
static hearth_status render_messages(renderer r, const hth_template_input *in, hth_rendered *out, hearth_error *err)
{
    enum { MAX_TRY = 64 };
    hth_rendered other;
    hearth_status st = render_as_is(r, in, out, err);
    bool may_retry = st == HEARTH_ERROR_ARGUMENT || st == HEARTH_ERROR_FORMAT ||
                     (st == HEARTH_OK && !hth_shows_messages(out->text, out->n, in->messages, in->n_message));
    hth_normal_sets sets;
    hearth_error why;
    bool shows = false;
    if (!may_retry || hth_normal_begin(in->messages, in->n_message, &sets, &why) != HEARTH_OK) return st;
    unsigned rules = hth_normal_next(&sets);
    for (int n_try = 0; n_try < MAX_TRY && rules && !shows; rules = hth_normal_next(&sets)) {
        if (!render_by(r, in, rules, &other, &shows)) continue;
        n_try++;
        if (shows || st != HEARTH_OK) { /* the first one that is taken, unless a later one shows all */
            hth_rendered_free(out);
            *out = other, st = HEARTH_OK;
        } else {
            hth_rendered_free(&other);
        }
    }
    return st;
}

/* Messages with functions, calls or results, for a template that shows none. */
static hearth_status render_plain(renderer r, const hth_call_format *calls, hth_template_input *in, hth_rendered *out,
                                  hearth_error *err)
{
    hth_plain_messages plain;
    bool has_results = r.format && hth_chat_format_has_results(r.format);
    hearth_status st =
        hth_plain_messages_make(in->messages, in->n_message, in->tools, calls, has_results, &plain, err);
    if (st != HEARTH_OK) return st;
    in->messages = plain.at;
    in->n_message = plain.n;
    in->tools = (hth_str){"", 0};
    st = render_messages(r, in, out, err);
    hth_plain_messages_free(&plain);
    return st;
}

/* Messages with calls, for a template that shows functions only. */
static hearth_status render_calls(renderer r, const hth_call_format *calls, hth_template_input *in, hth_rendered *out,
                                  hearth_error *err)
{
    hth_plain_messages written;
    hearth_status st = hth_calls_as_text(in->messages, in->n_message, calls, &written, err);
    if (st != HEARTH_OK) return st;
    in->messages = written.at;
    in->n_message = written.n;
    st = render_messages(r, in, out, err);
    hth_plain_messages_free(&written);
    return st;
}

static hearth_status check_messages(const hearth_message *messages, size_t n, hearth_error *err)
{
    if (!messages && n > 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "messages is NULL, but n_message is %zu", n);
    for (size_t i = 0; i < n; i++) {
        const hearth_message *m = &messages[i];
        const char *missing = !m->role ? "role" : !m->content && m->n > 0 ? "content" : NULL;
        char name[60];
        if (missing) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "messages[%zu].%s is NULL", i, missing);
        snprintf(name, sizeof name, "messages[%zu]", i);
        hearth_status st = hth_engine_check_reserved(name, m->reserved, sizeof m->reserved, err);
        if (st != HEARTH_OK) return st;
    }
    return HEARTH_OK;
}

/* Checks JSON texts that the renderer does not parse: tools, and without a template also variables and members. */
static hearth_status check_texts(const hearth_chat *chat, const hearth_message *messages, size_t n,
                                 const hearth_chat_options *o, hearth_error *err)
{
    hearth_status st = hth_check_json("hearth_chat_options.tools", o->tools, true, err);
    if (st != HEARTH_OK || chat->template) return st;
    st = hth_check_json("hearth_chat_options.variables", o->variables, false, err);
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) {
        char name[60];
        snprintf(name, sizeof name, "messages[%zu].members", i);
        st = hth_check_json(name, messages[i].members, false, err);
    }
    return st;
}

static hearth_status render(const hearth_chat *chat, const hearth_message *messages, size_t n_message,
                            const hearth_chat_options *options, hth_rendered *out, hearth_error *err)
{
    hearth_chat_options o;
    *out = (hth_rendered){0};
    if (!chat) return hth_fail_null(err, "chat");
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_chat_options, options, &o, err);
    if (st == HEARTH_OK) st = check_messages(messages, n_message, err);
    if (st == HEARTH_OK) st = check_texts(chat, messages, n_message, &o, err);
    if (st == HEARTH_OK) st = hth_engine_need_tokenizer(chat->model, err);
    if (st != HEARTH_OK) return st;
    hth_message *list = hth_alloc(n_message + 1, sizeof *list);
    if (!list) return hth_fail_memory(err, (n_message + 1) * sizeof *list, "messages");
    bool with_functions = o.tools != NULL;
    for (size_t i = 0; i < n_message; i++) {
        const hearth_message *m = &messages[i];
        list[i] = (hth_message){.role = text_or_empty(m->role),
                                .content = {m->content ? m->content : "", m->n},
                                .members = text_or_empty(m->members)};
        with_functions |= m->members || hth_str_eq(list[i].role, "tool");
    }
    hth_template_input in = {.messages = list,
                             .n_message = n_message,
                             .add_generation_prompt = o.add_generation_prompt,
                             .bos = token_text(chat->model, hth_tokenizer_bos(chat->model->tokenizer)),
                             .eos = token_text(chat->model, hth_tokenizer_eos(chat->model->tokenizer)),
                             .seconds = o.local_time,
                             .variables = text_or_empty(o.variables),
                             .tools = text_or_empty(o.tools)};
    renderer r = {chat->template, chat->format};
    if (with_functions && chat->with_functions) r.template = chat->with_functions;
    if (with_functions && !hth_chat_shows_functions(chat)) st = render_plain(r, hth_chat_calls(chat), &in, out, err);
    else if (with_functions && !chat->shows_calls) st = render_calls(r, chat->calls, &in, out, err);
    else st = render_messages(r, &in, out, err);
    hth_free(list);
    return st;
}

/* Adds the begin-of-text token, if the vocabulary requires it and the template did not write it. An end-of-text
 * token, which some vocabularies require, must not precede an answer. */
static hearth_status put_bos(const hth_tokenizer *tok, hth_ids *ids, hearth_error *err)
{
    int32_t bos = hth_tokenizer_bos(tok);
    if (!hth_tokenizer_adds_bos(tok) || (ids->n > 0 && ids->id[0] == bos)) return HEARTH_OK;
    hearth_status st = hth_ids_push(ids, bos, err);
    if (st != HEARTH_OK) return st;
    memmove(ids->id + 1, ids->id, (ids->n - 1) * sizeof *ids->id);
    ids->id[0] = bos;
    return HEARTH_OK;
}

static hearth_status tokenize(const hearth_chat *chat, const hth_rendered *r, hth_chat_prompt *out,
                              hearth_error *err)
{
    hth_ids list = {0};
    size_t n_lost = 0;
    const hth_tokenizer *tok = chat->model->tokenizer;
    hearth_status st = hth_tokenize_parts(tok, r->parts, r->n_part, 0, &list, &n_lost, err);
    if (st == HEARTH_OK) st = put_bos(tok, &list, err);
    if (st != HEARTH_OK) {
        hth_ids_free(&list);
        return st;
    }
    if (n_lost > 0)
        hth_log(HEARTH_LOG_WARN, "%zu bytes of the conversation are not in the vocabulary", n_lost);
    out->ids = list.id;
    out->n_ids = list.n;
    return HEARTH_OK;
}

hearth_status hth_chat_make_prompt(const hearth_chat *chat, const hearth_message *messages, size_t n_message,
                                   const hearth_chat_options *options, bool with_ids, hth_chat_prompt *out,
                                   hearth_error *err)
{
    hth_rendered r;
    *out = (hth_chat_prompt){0};
    hearth_status st = render(chat, messages, n_message, options, &r, err);
    if (st == HEARTH_OK && with_ids) st = tokenize(chat, &r, out, err);
    if (st == HEARTH_OK) {
        out->text = r.text, out->n_text = r.n;
        r.text = NULL;
    }
    hth_rendered_free(&r);
    return st;
}

hearth_status hearth_chat_render(const hearth_chat *chat, const hearth_message *messages, size_t n_message,
                                 const hearth_chat_options *options, char **text, size_t *n,
                                 hearth_error *err)
{
    HTH_FP_SCOPE;
    hth_chat_prompt made;
    if (!text || !n) return hth_fail_null(err, text ? "n" : "text");
    hearth_status st = hth_chat_make_prompt(chat, messages, n_message, options, false, &made, err);
    *text = made.text;
    *n = made.n_text;
    return st;
}

hearth_status hearth_chat_tokenize(const hearth_chat *chat, const hearth_message *messages, size_t n_message,
                                   const hearth_chat_options *options, int32_t **ids, size_t *n_ids,
                                   hearth_error *err)
{
    HTH_FP_SCOPE;
    hth_chat_prompt made;
    if (!ids || !n_ids) return hth_fail_null(err, ids ? "n_ids" : "ids");
    hearth_status st = hth_chat_make_prompt(chat, messages, n_message, options, true, &made, err);
    hth_free(made.text);
    *ids = made.ids;
    *n_ids = made.n_ids;
    return st;
}
