/* POST /api/chat and /api/generate: answers in the form of Ollama's API, lines of JSON. */
#define _GNU_SOURCE
#include "serve/api/chat_prompt.h"
#include "serve/api/functions.h"

#include "base/alloc.h"
#include "serve/api/ollama.h"
#include "serve/api/refused_fields.h"
#include "serve/large_call.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- answers
 * ----------------------------------------------------------------------------------------------------- */

static bool begin_line(const generation *g, json_line *l)
{
    if (!json_line_begin(l)) return false;
    json_word(&l->j, "model", g->served->id);
    ollama_write_time(&l->j, "created_at", (int64_t)time(NULL));
    return true;
}

/* Calls are whole here: their arguments are an object, written again because the model may have put line breaks into
 * it, and a line of the answer has none. */
static void write_call(json *j, const function_call *f)
{
    json_open_compact(j, NULL, '{');
    json_open_compact(j, "function", '{');
    json_word(j, "name", f->name);
    arguments_write_object(j, "arguments", f->arguments.bytes, f->arguments.n);
    json_close(j, '}');
    json_close(j, '}');
}

typedef struct piece {
    const char *text, *reasoning;
    size_t n_text, n_reasoning;
    size_t from_call, n_call; /* range of the choice's calls */
} piece;

/* Writes the piece as the member message for a chat, or as response and thinking for generate. */
static void write_piece(json *j, choice *c, const piece *p)
{
    bool is_chat = !c->generation->is_plain;
    if (is_chat) json_open_compact(j, "message", '{');
    if (is_chat) json_word(j, "role", "assistant");
    json_text(j, is_chat ? "content" : "response", p->text ? p->text : "", p->n_text);
    if (p->n_reasoning > 0) json_text(j, "thinking", p->reasoning, p->n_reasoning);
    if (p->n_call > 0) {
        json_open_compact(j, "tool_calls", '[');
        for (size_t i = 0; i < p->n_call; i++) write_call(j, &c->calls[p->from_call + i]);
        json_close(j, ']');
    }
    if (is_chat) json_close(j, '}');
    if (c->probs.n > c->probs.n_written)
        logprobs_write_list(j, "logprobs", &c->probs, c->generation->served->model);
}

static void write_end(json *j, const choice *c)
{
    const generation *g = c->generation;
    json_bool(j, "done", true);
    json_word(j, "done_reason", c->finish == FINISH_LENGTH ? "length" : "stop");
    json_uint(j, "total_duration", g->last_ns - g->begin_ns);
    json_uint(j, "load_duration", 0);
    json_uint(j, "prompt_eval_count", generation_n_prompt(g));
    json_uint(j, "prompt_eval_duration", g->first_ns - g->begin_ns);
    json_uint(j, "eval_count", generation_n_generated(g));
    json_uint(j, "eval_duration", g->last_ns - g->first_ns);
}

static void send_piece(choice *c, const piece *p)
{
    json_line l;
    if (begin_line(c->generation, &l)) {
        write_piece(&l.j, c, p);
        json_bool(&l.j, "done", false);
    }
    generation_send_line(c->generation, &l);
}

/* Calls that are complete, as another part has begun, or the answer is over. n_opened counts those that were sent. */
static void send_calls(choice *c, size_t n_complete)
{
    generation *g = c->generation;
    if (n_complete <= g->n_opened) return;
    send_piece(c, &(piece){.from_call = g->n_opened, .n_call = n_complete - g->n_opened});
    g->n_opened = n_complete;
}

static void send_part(choice *c, hearth_answer_kind kind, const char *text, size_t n)
{
    if (kind == HEARTH_ANSWER_ARGUMENTS) return;
    send_calls(c, kind == HEARTH_ANSWER_CALL ? c->n_call - 1 : c->n_call);
    if (kind == HEARTH_ANSWER_TEXT) send_piece(c, &(piece){.text = text, .n_text = n});
    if (kind == HEARTH_ANSWER_REASONING) send_piece(c, &(piece){.reasoning = text, .n_reasoning = n});
}

static void end_choice(choice *c)
{
    json_line l;
    send_calls(c, c->n_call);
    if (begin_line(c->generation, &l)) {
        write_piece(&l.j, c, &(piece){.n_text = 0});
        write_end(&l.j, c);
    }
    generation_send_line(c->generation, &l);
}

static void answer_whole(generation *g)
{
    choice *c = &g->choices[0];
    json_line l;
    if (begin_line(g, &l)) {
        write_piece(&l.j, c,
                    &(piece){.text = c->text.bytes,
                             .n_text = c->text.n,
                             .reasoning = c->reasoning.bytes,
                             .n_reasoning = c->reasoning.n,
                             .n_call = c->n_call});
        write_end(&l.j, c);
    }
    call_line(g->call, &l);
}

const answer_format ollama_format = {
    .prefix = "ollama-", .part = send_part, .end_choice = end_choice, .whole = answer_whole};

/* ---- requests
 * ---------------------------------------------------------------------------------------------------- */

static bool read_format(fields *f, generation *g)
{
    const hth_json *v = fields_value(f, "format");
    if (!v) return true;
    if (hth_json_kind_of(v) == HTH_JSON_OBJECT) {
        response_format_want_schema(&g->constraint, "format", v);
        return true;
    }
    const char *word = hth_json_kind_of(v) == HTH_JSON_TEXT ? v->text.bytes : "?";
    if (strcmp(word, "json") == 0)
        g->constraint = (wanted_constraint){.kind = HEARTH_CONSTRAINT_JSON_OBJECT, .field = "format"};
    else if (*word) return fields_fail(f, "format", "\"json\" or a schema is expected");
    return true;
}

/* true, false, or a word like "high" */
static bool read_think(fields *f, chat_variables *v)
{
    bool on = false;
    const hth_json *think = fields_value(f, "think");
    if (hth_json_kind_of(think) == HTH_JSON_TEXT) return effort_read(f, "think", v);
    if (!fields_bool(f, "think", &on)) return false;
    if (think) v->thinking = on ? THINK : NO_THINK;
    return true;
}

/* keep_alive 0: the model leaves when it has no requests any more. Other times have no effect: a model leaves for
 * another one. */
static bool read_keep_alive(fields *f, generation *g)
{
    const hth_json *v = fields_value(f, "keep_alive");
    if (v && !hth_json_is_number(v) && v->kind != HTH_JSON_TEXT)
        return fields_fail(f, "keep_alive", "a number of seconds or a text as 5m is expected");
    char *end = NULL;
    bool is_zero = hth_json_is_number(v) ? !(v->real < 0.0 || v->real > 0.0)
                                         : v && strtol(v->text.bytes, &end, 10) == 0 && end > v->text.bytes && *end != '.';
    g->keep = is_zero ? KEEP_UNTIL_IDLE : KEEP_LOADED;
    return true;
}

static bool read_all(fields *f, generation *g, chat_variables *v)
{
    const hth_json *options;
    int64_t n_predict = -1;
    g->is_stream = true;
    logprobs_read_chat(f, &g->probs);
    if (!fields_bool(f, "stream", &g->is_stream) || !read_format(f, g) || !read_think(f, v) || !read_keep_alive(f, g) ||
        !fields_object(f, "options", &options))
        return false;
    if (!options) return true;
    fields inner = {.object = options, .path = "options", .problem = f->problem};
    sampling_read(g, &inner);
    stops_read(g, &inner, "stop");
    if (!fields_int(&inner, "num_predict", INT32_MIN, INT32_MAX, &n_predict)) return false;
    if (fields_value(&inner, "num_predict")) g->max_token = n_predict > 0 ? (uint32_t)n_predict : 0;
    return true;
}

/* Clients ask so that a model is loaded, which it is, or that it leaves. */
static void answer_loaded(void *object)
{
    generation *g = object;
    json_line l;
    call *c = g->call;
    generation_keep_model(g);
    if (begin_line(g, &l)) {
        write_piece(&l.j, &(choice){.generation = g}, &(piece){.n_text = 0});
        json_bool(&l.j, "done", true);
        json_word(&l.j, "done_reason", g->served->leaves ? "unload" : "load");
    }
    call_line(c, &l);
    generation_free(g);
}

void ollama_chat_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    const hth_json *messages = NULL;
    const function_choice wanted = {.field = "tools"};
    generation *g = generation_make(served, c, &ollama_format, &f, &p);
    if (!g) return;
    if (fields_array(&f, "messages", &messages) && hth_json_count(messages) == 0 && read_keep_alive(&f, g)) {
        call_go_on(c, answer_loaded, g);
        return;
    }
    if (read_all(&f, g, &v) && functions_read(&f, &chat_functions, &wanted, g)) conversation_read(&f, &m);
    chat_start(g, &m, &v, &p);
}

/* raw: the prompt is the text itself. */
static void start_raw(generation *g, const char *text, size_t n_text, problem *p)
{
    int32_t *ids;
    size_t n;
    hearth_error err;
    g->goes_on = true;
    if (hearth_tokenize(g->served->model, text, n_text, HEARTH_ADD_SPECIAL | HEARTH_PARSE_SPECIAL, &ids, &n,
                        &err) != HEARTH_OK)
        problem_of_error(p, &err);
    else if (!prompt_list_add(&g->prompts, ids, n, NULL, 0)) problem_set(p, 503, "", "out of memory");
    if (p->status) generation_refuse(g, p);
    else generation_start(g);
}

void ollama_generate_run(void *user, call *c)
{
    static const refused_field others[] = {
        {"suffix", "/infill", 0},
        {"context", "/api/chat", 0},
        {"template", "raw, or the option --template of the server", 0},
        {NULL, NULL, 0},
    };
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    const char *text = "", *system = NULL;
    size_t n = 0, n_system = 0;
    bool raw = false;
    generation *g = generation_make(served, c, &ollama_format, &f, &p);
    if (!g) return;
    g->is_plain = true;
    if (fields_text(&f, "prompt", &text, &n) && fields_text(&f, "system", &system, &n_system) && fields_bool(&f, "raw", &raw) &&
        read_all(&f, g, &v) && fields_refuse(&f, others))
        images_refuse(&f);
    if (fields_ok(&f) && n == 0) {
        call_go_on(c, answer_loaded, g);
        return;
    }
    if (fields_ok(&f) && raw) {
        start_raw(g, text, n, &p);
        return;
    }
    if (fields_ok(&f) && !served->chat) {
        problem why;
        problem_of_error(&why, &served->chat_error);
        problem_set(&p, why.status, "", "%s; {\"raw\": true} continues the text as it is", why.message);
    }
    if (fields_ok(&f) && ((n_system > 0 && !conversation_add(&m, "system", system, n_system, NULL)) ||
                          !conversation_add(&m, "user", text, n, NULL)))
        problem_set(&p, 503, "", "out of memory");
    chat_start(g, &m, &v, &p);
}
