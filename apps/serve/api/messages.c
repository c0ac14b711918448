/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's API. Its blocks become messages, reasoning, calls and
 * results as all templates know them. */
#define _GNU_SOURCE
#include "serve/api/chat_prompt.h"
#include "serve/api/functions.h"
#include "serve/api/refused_fields.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* ---- blocks of the answer ------------------------------------------------------------------------------------ */

static const char *stop_reason(const choice *c)
{
    if (c->finish == FINISH_LENGTH) return "max_tokens";
    if (c->finish == FINISH_CALLS) return "tool_use";
    return c->stop ? "stop_sequence" : "end_turn";
}

static void write_stop(json *j, const choice *c, bool is_over)
{
    if (is_over) json_word(j, "stop_reason", stop_reason(c));
    else json_put_null(j, "stop_reason");
    if (is_over && c->stop) json_text(j, "stop_sequence", c->stop->text, c->stop->n);
    else json_put_null(j, "stop_sequence");
}

static void write_usage(json *j, const generation *g)
{
    size_t n_cached = generation_n_cached(g);
    json_open_compact(j, "usage", '{');
    json_uint(j, "input_tokens", generation_n_prompt(g) - n_cached);
    json_uint(j, "cache_creation_input_tokens", 0);
    json_uint(j, "cache_read_input_tokens", n_cached);
    json_uint(j, "output_tokens", generation_n_generated(g));
    json_close(j, '}');
}

static void write_block(json *j, const char *key, const choice *c, const answer_part *p, bool is_whole)
{
    size_t n = is_whole ? p->n : 0;
    json_open_compact(j, key, '{');
    switch (p->kind) {
    case HEARTH_ANSWER_TEXT:
        json_word(j, "type", "text");
        json_text(j, "text", c->text.bytes + p->from, n);
        break;
    case HEARTH_ANSWER_REASONING:
        json_word(j, "type", "thinking");
        json_text(j, "thinking", c->reasoning.bytes + p->from, n);
        json_word(j, "signature", "");
        break;
    default:
        json_word(j, "type", "tool_use");
        json_word(j, "id", c->calls[p->from].id);
        json_word(j, "name", c->calls[p->from].name);
        if (is_whole)
            arguments_write_object(j, "input", c->calls[p->from].arguments.bytes, c->calls[p->from].arguments.n);
        else json_open_compact(j, "input", '{'), json_close(j, '}');
    }
    json_close(j, '}');
}

static void write_message(json *j, const generation *g, bool is_over)
{
    const choice *c = &g->choices[0];
    json_word(j, "id", g->name);
    json_word(j, "type", "message");
    json_word(j, "role", "assistant");
    json_word(j, "model", g->served->id);
    json_open_compact(j, "content", '[');
    for (size_t i = 0; is_over && i < c->n_part; i++) write_block(j, NULL, c, &c->parts[i], true);
    json_close(j, ']');
    write_stop(j, c, is_over);
    write_usage(j, g);
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static bool begin_event(json_line *l, const char *type)
{
    if (!json_line_begin(l)) return false;
    json_word(&l->j, "type", type);
    return true;
}

static void begin_stream(choice *c)
{
    json_line l;
    if (begin_event(&l, "message_start")) {
        json_open_compact(&l.j, "message", '{');
        write_message(&l.j, c->generation, false);
        json_close(&l.j, '}');
    }
    generation_send(c->generation, "message_start", &l);
}

static void send_delta(choice *c, const char *type, const char *key, const char *text, size_t n)
{
    json_line l;
    if (begin_event(&l, "content_block_delta")) {
        json_uint(&l.j, "index", c->generation->n_opened - 1);
        json_open_compact(&l.j, "delta", '{');
        json_word(&l.j, "type", type);
        json_text(&l.j, key, text, n);
        json_close(&l.j, '}');
    }
    generation_send(c->generation, "content_block_delta", &l);
}

static void close_block(choice *c)
{
    generation *g = c->generation;
    json_line l;
    if (g->n_opened == 0) return;
    if (c->parts[g->n_opened - 1].kind == HEARTH_ANSWER_REASONING)
        send_delta(c, "signature_delta", "signature", "", 0);
    if (begin_event(&l, "content_block_stop")) json_uint(&l.j, "index", g->n_opened - 1);
    generation_send(g, "content_block_stop", &l);
}

static void open_block(choice *c)
{
    generation *g = c->generation;
    json_line l;
    close_block(c);
    size_t i = g->n_opened++;
    if (begin_event(&l, "content_block_start")) {
        json_uint(&l.j, "index", i);
        write_block(&l.j, "content_block", c, &c->parts[i], false);
    }
    generation_send(g, "content_block_start", &l);
}

static void send_part(choice *c, hearth_answer_kind kind, const char *text, size_t n)
{
    if (c->n_part > c->generation->n_opened) open_block(c);
    if (kind == HEARTH_ANSWER_TEXT) send_delta(c, "text_delta", "text", text, n);
    if (kind == HEARTH_ANSWER_REASONING) send_delta(c, "thinking_delta", "thinking", text, n);
    if (kind == HEARTH_ANSWER_ARGUMENTS) send_delta(c, "input_json_delta", "partial_json", text, n);
}

static void end_choice(choice *c)
{
    generation *g = c->generation;
    json_line l;
    close_block(c);
    if (begin_event(&l, "message_delta")) {
        json_open_compact(&l.j, "delta", '{');
        write_stop(&l.j, c, true);
        json_close(&l.j, '}');
        write_usage(&l.j, g);
    }
    generation_send(g, "message_delta", &l);
    (void)begin_event(&l, "message_stop");
    generation_send(g, "message_stop", &l);
}

static void answer_whole(generation *g)
{
    json_line l;
    if (json_line_begin(&l)) write_message(&l.j, g, true);
    call_line(g->call, &l);
}

const answer_format anthropic_format = {.prefix = "msg_",
                                        .begin = begin_stream,
                                        .part = send_part,
                                        .end_choice = end_choice,
                                        .whole = answer_whole};

/* ---- blocks of the request --------------------------------------------------------------------------------------- */

/* {"type": "tool_use", "id", "name", "input"} */
static bool read_use(fields *f, assistant_turn *t)
{
    const char *id, *name, *input;
    size_t n;
    if (!fields_need_word(f, "id", &id) || !fields_need_word(f, "name", &name) ||
        !arguments_read(f, "input", t->owner, &input, &n))
        return false;
    return turn_call(t, id, name, input, n) || fields_no_memory(f);
}

/* Blocks of the assistant's are one message. A second text is added to the first. */
static bool read_assistant_block(fields *f, const char *type, assistant_turn *t, buffer *text)
{
    const char *more;
    size_t n;
    if (strcmp(type, "tool_use") == 0) return read_use(f, t);
    if (strcmp(type, "thinking") == 0) {
        if (!fields_need_text(f, "thinking", &more, &n)) return false;
        if (!t->has_calls) t->reasoning = more, t->n_reasoning = n, t->has_reasoning = n > 0;
        return true;
    }
    if (strcmp(type, "redacted_thinking") == 0) return true;
    if (strcmp(type, "text") != 0)
        return fields_fail(f, "type", "blocks of type '%.60s' are not supported by this server", type);
    return fields_need_text(f, "text", &more, &n) && (buffer_add(text, more, n) || fields_no_memory(f));
}

static bool read_result(fields *f, conversation *c)
{
    const char *id, *content = "";
    size_t n = 0;
    json_line members;
    if (!fields_need_word(f, "tool_use_id", &id)) return false;
    if (fields_value(f, "content") && !content_read(f, "content", "text", c, &content, &n)) return false;
    if (!json_line_begin(&members)) return fields_no_memory(f);
    json_word(&members.j, "tool_call_id", id);
    return conversation_add(c, "tool", content, n, &members) || fields_no_memory(f);
}

/* Results of calls come before the rest of what the user says. */
static bool read_user_block(fields *f, const char *type, conversation *c, buffer *text)
{
    const char *more;
    size_t n;
    if (strcmp(type, "tool_result") == 0) return read_result(f, c);
    if (strcmp(type, "text") != 0)
        return fields_fail(f, "type", "blocks of type '%.60s' are not supported by this server", type);
    return fields_need_text(f, "text", &more, &n) && (buffer_add(text, more, n) || fields_no_memory(f));
}

static bool end_text(fields *f, buffer *text, conversation *c, const char **out, size_t *n)
{
    *out = text->bytes ? text->bytes : "";
    *n = text->n;
    return !text->bytes || conversation_own(c, text->bytes) || fields_no_memory(f);
}

typedef struct blocks {
    conversation *owner;
    bool is_user, has_result;
    assistant_turn turn;
    buffer text; /* text of all blocks */
} blocks;

static bool read_block(fields *f, void *user)
{
    blocks *b = user;
    const char *type;
    if (!fields_need_word(f, "type", &type)) return false;
    b->has_result |= strcmp(type, "tool_result") == 0;
    return b->is_user ? read_user_block(f, type, b->owner, &b->text)
                      : read_assistant_block(f, type, &b->turn, &b->text);
}

static bool read_blocks(fields *f, const hth_json *array, bool is_user, conversation *c)
{
    blocks b = {.owner = c, .is_user = is_user, .turn.owner = c};
    assistant_turn *t = &b.turn;
    bool ok = fields_each(f, "content", array, read_block, &b);
    if (!ok) free(b.text.bytes);
    else ok = end_text(f, &b.text, c, &t->text, &t->n_text);
    t->has_text = t->n_text > 0;
    if (ok && is_user && (t->has_text || !b.has_result))
        ok = conversation_add(c, "user", t->text, t->n_text, NULL) || fields_no_memory(f);
    if (ok && !is_user) ok = turn_end(t) || fields_no_memory(f);
    turn_drop(t);
    return ok;
}

static bool read_message(fields *f, void *user)
{
    conversation *c = user;
    const char *role, *text;
    size_t n;
    const hth_json *content = fields_value(f, "content");
    if (!fields_need_word(f, "role", &role)) return false;
    bool is_user = strcmp(role, "user") == 0;
    if (!is_user && strcmp(role, "assistant") != 0 && strcmp(role, "system") != 0)
        return fields_fail(f, "role", "user or assistant is expected");
    if (hth_json_kind_of(content) == HTH_JSON_ARRAY && strcmp(role, "system") != 0)
        return read_blocks(f, content, is_user, c);
    return content_read(f, "content", "text", c, &text, &n) &&
           (conversation_add(c,
                             is_user                       ? "user"
                             : strcmp(role, "system") == 0 ? "system"
                                                           : "assistant",
                             text, n, NULL) ||
            fields_no_memory(f));
}

/* A text or blocks of text; a block that is the billing header alone is left out. */
static bool read_system(fields *f, conversation *c)
{
    const char *text;
    size_t n;
    if (!fields_value(f, "system")) return true;
    if (!content_read(f, "system", "text", c, &text, &n)) return false;
    return n == 0 || conversation_add(c, "system", text, n, NULL) || fields_no_memory(f);
}

static bool read_messages(fields *f, conversation *c)
{
    return read_system(f, c) && messages_each(f, read_message, c);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static const function_shape functions_shape = {
    .field = "tools", .parameters = "input_schema", .tolerant = true};

/* {"type": "auto" | "any" | "tool" | "none", "name", "disable_parallel_tool_use"} */
static bool read_choice(fields *f, function_choice *out)
{
    const hth_json *object;
    const char *type;
    *out = (function_choice){.field = "tool_choice"};
    if (!fields_object(f, "tool_choice", &object) || !object) return fields_ok(f);
    fields inner = {.object = object, .path = "tool_choice", .problem = f->problem};
    if (!fields_need_word(&inner, "type", &type) ||
        !fields_bool(&inner, "disable_parallel_tool_use", &out->one))
        return false;
    if (strcmp(type, "any") == 0) out->kind = MUST_CALL;
    else if (strcmp(type, "none") == 0) out->kind = NO_CALL;
    else if (strcmp(type, "tool") == 0) {
        out->kind = MUST_CALL;
        return fields_need_word(&inner, "name", &out->name);
    } else if (strcmp(type, "auto") != 0) {
        return fields_fail(&inner, "type", "auto, any, tool or none is expected");
    }
    return true;
}

static bool read_thinking(fields *f, chat_variables *v)
{
    const hth_json *object;
    const char *type;
    if (!fields_object(f, "thinking", &object) || !object) return fields_ok(f);
    fields inner = {.object = object, .path = "thinking", .problem = f->problem};
    if (!fields_need_word(&inner, "type", &type)) return false;
    bool thinks = strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0;
    if (!thinks && strcmp(type, "disabled") != 0)
        return fields_fail(&inner, "type", "enabled, adaptive or disabled is expected, not %.40s", type);
    v->thinking = thinks ? THINK : NO_THINK;
    return true;
}

/* {"type": "json_schema", "schema"}, in the beta's place or in output_config. */
static bool read_format(fields *f, generation *g)
{
    const hth_json *format = NULL, *config = NULL;
    const char *path = "output_format";
    if (!fields_object(f, path, &format) || !fields_object(f, "output_config", &config)) return false;
    fields inner = {.object = config, .path = "output_config", .problem = f->problem};
    if (!format && config) {
        path = "output_config.format";
        if (!fields_object(&inner, "format", &format)) return false;
    }
    return !format || response_format_read_object(f, format, path, NULL, &g->constraint);
}

static bool read_options(fields *f, generation *g)
{
    static const refused_field others[] = {
        {"response_format", "output_format", 0},
        {"json_schema", "output_format", 0},
        {"guided_json", "output_format", 0},
        {"grammar", NULL, 0},
        {"stop", "stop_sequences", 0},
        {"logit_bias", NULL, 0},
        {"n", NULL, 1},
        {"mcp_servers", "tools", 0},
        {"container", NULL, 0},
        {NULL, NULL, 0},
    };
    sampling_read(g, f);
    stops_read(g, f, "stop_sequences");
    if (!fields_refuse(f, others) || !read_format(f, g) || !length_read(g, f, "max_tokens") || !fields_bool(f, "stream", &g->is_stream)) return false;
    return fields_value(f, "max_tokens") ||
           fields_fail(f, "max_tokens", "a whole number is expected; the field is missing");
}

void messages_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    function_choice wanted;
    generation *g = generation_make(served, c, &anthropic_format, &f, &p);
    if (!g) return;
    if (read_options(&f, g) && read_thinking(&f, &v) && template_variables(&f, &v.given) &&
        read_choice(&f, &wanted) && functions_read(&f, &functions_shape, &wanted, g))
        read_messages(&f, &m);
    chat_start(g, &m, &v, &p);
}

void count_tokens_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    char *functions = NULL;
    if (fields_read(c, &f, &p) && read_thinking(&f, &v) && template_variables(&f, &v.given) &&
        functions_list(&f, &functions_shape, &functions))
        read_messages(&f, &m);
    chat_count(served, c, &m, &v, functions, NULL, &p);
}
