/* /v1/responses: OpenAI's newer API. A request has the conversation as items (response_input.c); the answer has items too:
 * reasoning, messages, calls of functions. Responses are stored, so that the next request can name them. */
#define _GNU_SOURCE
#include "serve/api/chat_prompt.h"
#include "serve/api/functions.h"
#include "serve/api/progress.h"
#include "serve/api/refused_fields.h"
#include "serve/api/openai/response_input.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- items of the answer ----------------------------------------------------------------------------------- */

typedef enum item_status { ITEM_BEGUN, ITEM_DONE } item_status;

static const char *const item_prefixes[] = {
    [HEARTH_ANSWER_TEXT] = "msg", [HEARTH_ANSWER_REASONING] = "rs", [HEARTH_ANSWER_CALL] = "fc"};

/* "msg_…": unique for each part. */
static void make_item_id(char id[RESPONSE_ID], const choice *c, size_t i)
{
    snprintf(id, RESPONSE_ID, "%s_%s_%zu", item_prefixes[c->parts[i].kind], strchr(c->generation->name, '_') + 1, i);
}

static void write_item_id(json *j, const char *key, const choice *c, size_t i)
{
    char id[RESPONSE_ID];
    make_item_id(id, c, i);
    json_word(j, key, id);
}

/* The one part of content that a message, or reasoning, has. */
static void write_content(json *j, const char *key, choice *c, const answer_part *p, item_status status)
{
    bool is_text = p->kind == HEARTH_ANSWER_TEXT;
    const buffer *from = is_text ? &c->text : &c->reasoning;
    json_open_compact(j, key, '{');
    json_word(j, "type", is_text ? "output_text" : "reasoning_text");
    if (status == ITEM_DONE) json_text(j, "text", from->bytes + p->from, p->n);
    else json_word(j, "text", "");
    if (is_text) {
        json_open_compact(j, "annotations", '[');
        json_close(j, ']');
        if (status == ITEM_DONE) logprobs_write_list(j, "logprobs", &c->probs, c->generation->served->model);
        else json_open_compact(j, "logprobs", '['), json_close(j, ']');
    }
    json_close(j, '}');
}

static void write_arguments(json *j, const char *key, const function_call *f, item_status status)
{
    json_text(j, key, status == ITEM_DONE && f->arguments.bytes ? f->arguments.bytes : "",
              status == ITEM_DONE ? f->arguments.n : 0);
}

/* The last item of an answer that was cut is as incomplete as the answer. */
static const char *status_word(const choice *c, size_t i, item_status status)
{
    if (status != ITEM_DONE) return "in_progress";
    bool is_cut = c->finish == FINISH_LENGTH && i + 1 == c->n_part && !c->has_dropped;
    return is_cut ? "incomplete" : "completed";
}

static void write_item(json *j, const char *key, choice *c, size_t i, item_status status)
{
    const answer_part *p = &c->parts[i];
    static const char *const types[] = {[HEARTH_ANSWER_TEXT] = "message",
                                        [HEARTH_ANSWER_REASONING] = "reasoning",
                                        [HEARTH_ANSWER_CALL] = "function_call"};
    json_open_compact(j, key, '{');
    json_word(j, "type", types[p->kind]);
    write_item_id(j, "id", c, i);
    json_word(j, "status", status_word(c, i, status));
    if (p->kind == HEARTH_ANSWER_CALL) {
        const function_call *f = &c->calls[p->from];
        json_word(j, "call_id", f->id);
        json_word(j, "name", f->name);
        write_arguments(j, "arguments", f, status);
    } else {
        if (p->kind == HEARTH_ANSWER_TEXT) json_word(j, "role", "assistant");
        else json_open_compact(j, "summary", '['), json_close(j, ']');
        json_open_compact(j, "content", '[');
        if (status == ITEM_DONE) write_content(j, NULL, c, p, status);
        json_close(j, ']');
    }
    json_close(j, '}');
}

/* ---- the response ------------------------------------------------------------------------------------------- */

/* A member of the request as it came, or a word. */
static void write_member(json *j, const hth_json *object, const char *name, const char *otherwise)
{
    const hth_json *v = hth_json_member(object, name);
    char *text = v && hth_json_kind_of(v) != HTH_JSON_NULL ? hth_json_write(v, false, NULL) : NULL;
    if (text) json_raw(j, name, text, strlen(text));
    else json_raw(j, name, otherwise, strlen(otherwise));
    hth_free(text);
}

static void write_field(json *j, const generation *g, const char *name, const char *otherwise)
{
    write_member(j, g->call->document, name, otherwise);
}

/* An object of the request with both of its members, as some clients check. */
static void write_options(json *j, const generation *g, const char *name, const char *const members[2][2])
{
    const hth_json *object = hth_json_member(g->call->document, name);
    json_open_compact(j, name, '{');
    for (int i = 0; i < 2; i++) write_member(j, object, members[i][0], members[i][1]);
    json_close(j, '}');
}

/* The functions of the request, with all members. */
static void write_tools(json *j, const generation *g)
{
    const hth_json *tools = hth_json_member(g->call->document, "tools");
    json_open_compact(j, "tools", '[');
    for (const hth_json *one = hth_json_first(tools); one; one = one->next) {
        static const char *const names[] = {"name", "description", "parameters", "strict"};
        const char *type = hth_json_text(hth_json_member(one, "type"));
        if (!type || strcmp(type, "function") != 0) continue;
        json_open_compact(j, NULL, '{');
        json_word(j, "type", "function");
        for (size_t k = 0; k < 4; k++) {
            const hth_json *v = hth_json_member(one, names[k]);
            char *text = v ? hth_json_write(v, false, NULL) : NULL;
            if (text) json_raw(j, names[k], text, strlen(text));
            else json_put_null(j, names[k]);
            hth_free(text);
        }
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void write_usage(json *j, const generation *g)
{
    size_t n_prompt = generation_n_prompt(g), n_generated = generation_n_generated(g);
    json_open_compact(j, "usage", '{');
    json_uint(j, "input_tokens", n_prompt);
    json_open_compact(j, "input_tokens_details", '{');
    json_uint(j, "cached_tokens", generation_n_cached(g));
    json_close(j, '}');
    json_uint(j, "output_tokens", n_generated);
    json_open_compact(j, "output_tokens_details", '{');
    json_uint(j, "reasoning_tokens", generation_n_reasoning(g));
    json_close(j, '}');
    json_uint(j, "total_tokens", n_prompt + n_generated);
    json_close(j, '}');
}

static void write_request(json *j, const generation *g)
{
    static const char *const text_members[2][2] = {{"format", "{\"type\": \"text\"}"},
                                                   {"verbosity", "\"medium\""}},
                             *const reasoning_members[2][2] = {{"effort", "null"}, {"summary", "null"}};
    write_field(j, g, "instructions", "null");
    write_field(j, g, "max_output_tokens", "null");
    write_field(j, g, "max_tool_calls", "null");
    write_field(j, g, "metadata", "{}");
    write_field(j, g, "parallel_tool_calls", "true");
    write_field(j, g, "prompt_cache_key", "null");
    write_options(j, g, "reasoning", reasoning_members);
    write_field(j, g, "safety_identifier", "null");
    write_options(j, g, "text", text_members);
    write_field(j, g, "tool_choice", "\"auto\"");
    write_field(j, g, "top_logprobs", "0");
    write_field(j, g, "truncation", "\"disabled\"");
    write_field(j, g, "user", "null");
    json_float(j, "temperature", (double)g->sampler.temperature, 6);
    json_float(j, "top_p", (double)g->sampler.top_p, 6);
    json_float(j, "presence_penalty", (double)g->sampler.presence_penalty, 6);
    json_float(j, "frequency_penalty", (double)g->sampler.frequency_penalty, 6);
    write_field(j, g, "previous_response_id", "null");
    json_bool(j, "store", g->stores);
    json_bool(j, "background", false);
    json_word(j, "service_tier", "default");
    write_tools(j, g);
}

static void write_members(json *j, generation *g, bool is_over)
{
    choice *c = &g->choices[0];
    bool is_cut = is_over && c->finish == FINISH_LENGTH;
    json_word(j, "id", g->name);
    json_word(j, "object", "response");
    json_int(j, "created_at", g->created);
    if (is_over && !is_cut) json_int(j, "completed_at", (int64_t)time(NULL));
    else json_put_null(j, "completed_at");
    json_word(j, "status", !is_over ? "in_progress" : is_cut ? "incomplete" : "completed");
    json_put_null(j, "error");
    if (is_cut) {
        json_open_compact(j, "incomplete_details", '{');
        json_word(j, "reason", "max_output_tokens");
        json_close(j, '}');
    } else {
        json_put_null(j, "incomplete_details");
    }
    json_word(j, "model", g->served->id);
    json_open_compact(j, "output", '[');
    c->probs.n_written = 0; /* a stream's events wrote them before */
    for (size_t i = 0; is_over && i < c->n_part; i++) write_item(j, NULL, c, i, ITEM_DONE);
    json_close(j, ']');
    write_request(j, g);
    if (is_over) write_usage(j, g);
    else json_put_null(j, "usage");
    if (is_over) generation_write_timings(j, g);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static bool begin_event(generation *g, json_line *l, const char *type)
{
    if (!json_line_begin(l)) return false;
    json_word(&l->j, "type", type);
    json_uint(&l->j, "sequence_number", g->n_event++);
    return true;
}

/* progress: of the prompt; NULL: it is not told. */
static void send_state(generation *g, const char *type, bool is_over, const hearth_request_progress *progress)
{
    json_line l;
    if (begin_event(g, &l, type)) {
        json_open_compact(&l.j, "response", '{');
        write_members(&l.j, g, is_over);
        json_close(&l.j, '}');
        if (progress) progress_write(&l.j, g, progress);
        if (is_over && g->each_timings) generation_write_timings(&l.j, g);
    }
    generation_send(g, type, &l);
}

static void send_progress(choice *c, const hearth_request_progress *progress)
{
    send_state(c->generation, "response.in_progress", false, progress);
}

static void begin_stream(choice *c)
{
    send_state(c->generation, "response.created", false, NULL);
    send_state(c->generation, "response.in_progress", false, NULL);
}

static void send_item(choice *c, size_t i, item_status status)
{
    json_line l;
    const char *type = status == ITEM_DONE ? "response.output_item.done" : "response.output_item.added";
    if (begin_event(c->generation, &l, type)) {
        json_uint(&l.j, "output_index", i);
        write_item(&l.j, "item", c, i, status);
    }
    generation_send(c->generation, type, &l);
}

/* An event about the content of an item; what is particular follows. */
static bool begin_content(choice *c, size_t i, json_line *l, const char *type)
{
    if (!begin_event(c->generation, l, type)) return false;
    write_item_id(&l->j, "item_id", c, i);
    json_uint(&l->j, "output_index", i);
    if (c->parts[i].kind != HEARTH_ANSWER_CALL) json_uint(&l->j, "content_index", 0);
    return true;
}

static void send_content(choice *c, size_t i, item_status status)
{
    json_line l;
    const char *type = status == ITEM_DONE ? "response.content_part.done" : "response.content_part.added";
    if (begin_content(c, i, &l, type)) write_content(&l.j, "part", c, &c->parts[i], status);
    generation_send(c->generation, type, &l);
}

static void write_text_done(json *j, choice *c, const answer_part *p)
{
    const buffer *from = p->kind == HEARTH_ANSWER_TEXT ? &c->text : &c->reasoning;
    json_text(j, "text", from->bytes + p->from, p->n);
    if (p->kind == HEARTH_ANSWER_TEXT) json_open_compact(j, "logprobs", '['), json_close(j, ']');
}

/* The last part that was begun is complete. */
static void close_part(choice *c)
{
    static const char *const types[] = {[HEARTH_ANSWER_TEXT] = "response.output_text.done",
                                        [HEARTH_ANSWER_REASONING] = "response.reasoning_text.done",
                                        [HEARTH_ANSWER_CALL] = "response.function_call_arguments.done"};
    json_line l;
    size_t i = c->generation->n_opened - 1;
    const answer_part *p = &c->parts[i];
    if (begin_content(c, i, &l, types[p->kind])) {
        if (p->kind != HEARTH_ANSWER_CALL) {
            write_text_done(&l.j, c, p);
        } else {
            json_word(&l.j, "name", c->calls[p->from].name);
            write_arguments(&l.j, "arguments", &c->calls[p->from], ITEM_DONE);
        }
    }
    generation_send(c->generation, types[p->kind], &l);
    if (p->kind != HEARTH_ANSWER_CALL) send_content(c, i, ITEM_DONE);
    send_item(c, i, ITEM_DONE);
}

static void open_part(choice *c)
{
    generation *g = c->generation;
    if (g->n_opened > 0) close_part(c);
    size_t i = g->n_opened++;
    send_item(c, i, ITEM_BEGUN);
    if (c->parts[i].kind != HEARTH_ANSWER_CALL) send_content(c, i, ITEM_BEGUN);
}

static void send_part(choice *c, hearth_answer_kind kind, const char *text, size_t n)
{
    static const char *const types[] = {[HEARTH_ANSWER_TEXT] = "response.output_text.delta",
                                        [HEARTH_ANSWER_REASONING] = "response.reasoning_text.delta",
                                        [HEARTH_ANSWER_ARGUMENTS] = "response.function_call_arguments.delta"};
    json_line l;
    if (c->n_part > c->generation->n_opened) open_part(c);
    if (kind == HEARTH_ANSWER_CALL) return;
    if (begin_content(c, c->n_part - 1, &l, types[kind])) {
        json_text(&l.j, "delta", text, n);
        if (kind == HEARTH_ANSWER_TEXT)
            logprobs_write_list(&l.j, "logprobs", &c->probs, c->generation->served->model);
        if (generation_tells_timings(c->generation)) generation_write_timings(&l.j, c->generation);
    }
    generation_send(c->generation, types[kind], &l);
}

/* ---- the store -------------------------------------------------------------------------------------------- */

/* An item of the answer, as the next request would have it. */
static bool add_output(item_list *items, choice *c, size_t i)
{
    json_line l;
    char *line, id[RESPONSE_ID];
    size_t n;
    if (!json_array_begin(&l)) return false;
    c->probs.n_written = c->probs.n; /* writes no logprobs: a later request does not need them */
    write_item(&l.j, NULL, c, i, ITEM_DONE);
    if (!json_array_end(&l, &line, &n)) return false;
    make_item_id(id, c, i);
    bool ok = item_list_add(items, id, c->generation->call->owner, line + 1, n - 3); /* [ ]\n around it */
    free(line);
    return ok;
}

/* Without memory it is not stored, which a client learns as from one that was dropped. */
static void store_response(generation *g, const char *body, size_t n)
{
    choice *c = &g->choices[0];
    bool ok = g->stores && body;
    for (size_t i = 0; ok && i < c->n_part; i++) ok = add_output(&g->items, c, i);
    if (ok) response_store_add(g->served->engine->responses, g->name, g->call->owner, &g->items, body, n);
}

static bool write_whole(generation *g, char **body, size_t *n)
{
    json_line l;
    *body = NULL;
    if (!json_line_begin(&l)) return false;
    write_members(&l.j, g, true);
    return json_line_end(&l, body, n);
}

static void end_choice(choice *c)
{
    generation *g = c->generation;
    char *body;
    size_t n;
    if (g->n_opened > 0) close_part(c);
    if (write_whole(g, &body, &n)) store_response(g, body, n);
    free(body);
    send_state(g, c->finish == FINISH_LENGTH ? "response.incomplete" : "response.completed", true, NULL);
}

static void send_failure(generation *g)
{
    json_line l;
    if (begin_event(g, &l, "error")) problem_write(&l.j, &g->problem);
    generation_send(g, "error", &l);
}

static void answer_whole(generation *g)
{
    char *body;
    size_t n;
    bool ok = write_whole(g, &body, &n);
    if (ok) store_response(g, body, n);
    call_reply(g->call, ok ? 200 : 503, body, ok ? n : 0);
}

const answer_format openai_response_format = {.prefix = "resp_",
                                              .begin = begin_stream,
                                              .part = send_part,
                                              .progress = send_progress,
                                              .end_choice = end_choice,
                                              .fail = send_failure,
                                              .whole = answer_whole};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool refuse_background(fields *f)
{
    bool background = false;
    if (fields_value(f, "conversation"))
        return fields_fail(f, "conversation", "is not supported: send previous_response_id, or the full input");
    return fields_bool(f, "background", &background) &&
           (!background || fields_fail(f, "background", "is not supported: send the full input and wait"));
}

static bool read_truncation(fields *f, generation *g)
{
    const char *word = "disabled";
    if (!fields_word(f, "truncation", &word)) return false;
    g->drops_turns = strcmp(word, "auto") == 0;
    return g->drops_turns || strcmp(word, "disabled") == 0 || fields_fail(f, "truncation", "auto or disabled is expected");
}

static bool read_effort(fields *f, chat_variables *v)
{
    const hth_json *reasoning;
    if (!fields_object(f, "reasoning", &reasoning)) return false;
    fields inner = {.object = reasoning, .path = "reasoning", .problem = f->problem};
    return !reasoning || effort_read(&inner, "effort", v);
}

static bool read_options(fields *f, generation *g, chat_variables *v)
{
    static const refused_field others[] = {
        {"response_format", "text.format", 0},
        {"json_schema", "text.format", 0},
        {"guided_json", "text.format", 0},
        {"grammar", NULL, 0},
        {"messages", "input", 0},
        {"system", "instructions", 0},
        {"logit_bias", NULL, 0},
        {"n", NULL, 1},
        {"prompt", "input", 0},
        {NULL, NULL, 0},
    };
    const hth_json *text, *format_in = NULL;
    int64_t n_top = 0;
    sampling_read(g, f);
    stops_read(g, f, "stop");
    g->stores = true;
    if (!fields_refuse(f, others) || !fields_bool(f, "store", &g->stores) || !lengths_read(g, f) || !length_read(g, f, "max_output_tokens") ||
        !fields_bool(f, "stream", &g->is_stream) || !read_truncation(f, g) ||
        !progress_read(g, f) || !fields_int(f, "top_logprobs", 0, MAX_TOP, &n_top) ||
        !fields_object(f, "text", &text) || !read_effort(f, v))
        return false;
    g->probs = (logprobs){.wanted = n_top > 0, .n_top = (uint32_t)n_top};
    fields inner = {.object = text, .path = "text", .problem = f->problem};
    if (text && !fields_object(&inner, "format", &format_in)) return false;
    return !format_in || response_format_read_object(f, format_in, "text.format", NULL, &g->constraint);
}

static const function_shape shape = {.field = "tools", .parameters = "parameters", .tolerant = true};

static bool read_functions(fields *f, generation *g)
{
    function_choice wanted;
    return function_choice_read(f, &wanted) && functions_read(f, &shape, &wanted, g);
}

void responses_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    generation *g = generation_make(served, c, &openai_response_format, &f, &p);
    if (!g) return;
    if (refuse_background(&f) && read_options(&f, g, &v) && template_variables(&f, &v.given) &&
        read_functions(&f, g))
        response_input_read(&f, served->engine->responses, c->owner, &m, g->stores ? &g->items : NULL);
    chat_start(g, &m, &v, &p);
}

/* POST /v1/responses/input_tokens: how many the prompt of such a request has. */
void responses_count_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    char *functions = NULL;
    if (fields_read(c, &f, &p) && refuse_background(&f) && read_effort(&f, &v) && template_variables(&f, &v.given) &&
        functions_list(&f, &shape, &functions))
        response_input_read(&f, served->engine->responses, c->owner, &m, NULL);
    chat_count(served, c, &m, &v, functions, "response.input_tokens", &p);
}

/* ---- stored responses ---------------------------------------------------------------------------------------- */

static void fail_unknown(call *c)
{
    problem p;
    problem_set(&p, 404, "", "there is no response '%.60s' here", c->tail);
    call_problem(c, &p);
}

/* GET /v1/responses/ID */
void response_get_run(void *user, call *c)
{
    const served_model *served = user;
    char *body;
    size_t n;
    hearth_status st = response_store_body(served->engine->responses, c->tail, c->owner, &body, &n);
    if (st == HEARTH_ERROR_ARGUMENT) fail_unknown(c);
    else call_reply(c, body ? 200 : 503, body, n);
}

/* DELETE /v1/responses/ID */
void response_delete_run(void *user, call *c)
{
    const served_model *served = user;
    json_line l;
    if (!response_store_delete(served->engine->responses, c->tail, c->owner)) {
        fail_unknown(c);
        return;
    }
    if (json_line_begin(&l)) {
        json_word(&l.j, "id", c->tail);
        json_word(&l.j, "object", "response");
        json_bool(&l.j, "deleted", true);
    }
    call_line(c, &l);
}
