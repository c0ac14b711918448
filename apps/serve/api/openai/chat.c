/* POST /v1/chat/completions: the answer to a conversation. */
#define _GNU_SOURCE
#include "serve/api/chat_prompt.h"
#include "serve/api/functions.h"
#include "serve/api/openai/openai.h"
#include "serve/api/progress.h"
#include "serve/api/refused_fields.h"

#include <string.h>

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Choices are ended by close_choice; what is between is the delta or message. */
static void open_choice(json *j, const choice *c, const char *member)
{
    json_open_compact(j, NULL, '{');
    json_uint(j, "index", c->index);
    json_open_compact(j, member, '{');
}

static void close_choice(json *j, choice *c, bool is_last)
{
    json_close(j, '}');
    if (is_last || c->probs.n_written < c->probs.n)
        logprobs_write_chat(j, &c->probs, c->generation->served->model);
    else json_put_null(j, "logprobs");
    if (is_last) json_word(j, "finish_reason", finish_word(c->finish));
    else json_put_null(j, "finish_reason");
    json_close(j, '}');
}

static bool begin_chunk(choice *c, json_line *l)
{
    if (!openai_begin(c->generation, l, "chat.completion.chunk")) return false;
    json_open_compact(&l->j, "choices", '[');
    open_choice(&l->j, c, "delta");
    return true;
}

static void end_chunk(choice *c, json_line *l, bool is_last)
{
    generation *g = c->generation;
    close_choice(&l->j, c, is_last);
    json_close(&l->j, ']');
    if (g->include_usage) json_put_null(&l->j, "usage"); /* the last event has it */
    if (is_last || generation_tells_timings(g)) generation_write_timings(&l->j, g);
}

static void begin_stream(choice *c)
{
    json_line l;
    if (begin_chunk(c, &l)) {
        json_word(&l.j, "role", "assistant");
        json_word(&l.j, "content", "");
        end_chunk(c, &l, false);
    }
    generation_send(c->generation, NULL, &l);
}

/* The first part of a call has its id and name, the others parts of its arguments. */
static void write_call_part(json *j, const choice *c, bool is_first, const char *arguments, size_t n)
{
    const function_call *made = &c->calls[c->n_call - 1];
    json_open_compact(j, "tool_calls", '[');
    json_open_compact(j, NULL, '{');
    json_uint(j, "index", c->n_call - 1);
    if (is_first) json_word(j, "id", made->id);
    if (is_first) json_word(j, "type", "function");
    json_open_compact(j, "function", '{');
    if (is_first) json_word(j, "name", made->name);
    json_text(j, "arguments", arguments, n);
    json_close(j, '}');
    json_close(j, '}');
    json_close(j, ']');
}

static void send_part(choice *c, hearth_answer_kind kind, const char *text, size_t n)
{
    json_line l;
    if (begin_chunk(c, &l)) {
        switch (kind) {
        case HEARTH_ANSWER_TEXT: json_text(&l.j, "content", text, n); break;
        case HEARTH_ANSWER_REASONING: json_text(&l.j, "reasoning_content", text, n); break;
        case HEARTH_ANSWER_CALL: write_call_part(&l.j, c, true, "", 0); break;
        case HEARTH_ANSWER_ARGUMENTS: write_call_part(&l.j, c, false, text, n); break;
        }
        end_chunk(c, &l, false);
    }
    generation_send(c->generation, NULL, &l);
}

static void send_progress(choice *c, const hearth_request_progress *progress)
{
    json_line l;
    if (begin_chunk(c, &l)) {
        end_chunk(c, &l, false);
        progress_write(&l.j, c->generation, progress);
    }
    generation_send(c->generation, NULL, &l);
}

static void end_choice(choice *c)
{
    json_line l;
    if (begin_chunk(c, &l)) end_chunk(c, &l, true);
    generation_send(c->generation, NULL, &l);
}

static void end_stream(generation *g) { openai_end_stream(g, "chat.completion.chunk"); }

static void write_message(json *j, const choice *c)
{
    json_word(j, "role", "assistant");
    if (c->n_call > 0 && c->text.n == 0) json_put_null(j, "content");
    else json_text(j, "content", c->text.bytes ? c->text.bytes : "", c->text.n);
    json_put_null(j, "refusal");
    if (c->reasoning.n > 0) json_text(j, "reasoning_content", c->reasoning.bytes, c->reasoning.n);
    if (c->n_call == 0) return;
    json_open_compact(j, "tool_calls", '[');
    for (size_t i = 0; i < c->n_call; i++) {
        const buffer *arguments = &c->calls[i].arguments;
        call_write(j, c->calls[i].id, c->calls[i].name, arguments->bytes ? arguments->bytes : "", arguments->n);
    }
    json_close(j, ']');
}

static void write_whole(json *j, choice *c)
{
    open_choice(j, c, "message");
    write_message(j, c);
    close_choice(j, c, true);
}

static void answer_whole(generation *g) { openai_answer(g, "chat.completion", write_whole); }

const answer_format openai_chat_format = {.prefix = "chatcmpl-",
                                          .begin = begin_stream,
                                          .part = send_part,
                                          .progress = send_progress,
                                          .end_choice = end_choice,
                                          .end = end_stream,
                                          .whole = answer_whole};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool read_functions(fields *f, generation *g)
{
    function_choice wanted;
    return function_choice_read(f, &wanted) && functions_read(f, &chat_functions, &wanted, g);
}

static bool read_variables(fields *f, chat_variables *v)
{
    return effort_read(f, "reasoning_effort", v) && template_variables(f, &v->given) && continuing_read(f, v);
}

void chat_run(void *user, call *c)
{
    static const refused_field others[] = {
        {"echo", "/v1/completions", 0},
        {NULL, NULL, 0},
    };
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    generation *g = generation_make(served, c, &openai_chat_format, &f, &p);
    if (!g) return;
    if (fields_refuse(&f, others) && generation_read(g, &f)) logprobs_read_chat(&f, &g->probs);
    if (fields_ok(&f) && read_variables(&f, &v) && read_functions(&f, g)) conversation_read(&f, &m);
    chat_start(g, &m, &v, &p);
}

/* POST /v1/chat/completions/input_tokens: how many the prompt of such a request has. */
void chat_count_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    char *functions = NULL;
    if (fields_read(c, &f, &p) && read_variables(&f, &v) && functions_list(&f, &chat_functions, &functions))
        conversation_read(&f, &m);
    chat_count(served, c, &m, &v, functions, "response.input_tokens", &p);
}
