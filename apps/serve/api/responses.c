/* POST /v1/responses: OpenAI's newer API, without state. Each request has the whole conversation as items; the answer
 * has items too: reasoning, messages, calls of functions. */
#define _GNU_SOURCE
#include "serve/api/chat_prompt.h"
#include "serve/api/functions.h"
#include "serve/api/progress.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- items of the answer ----------------------------------------------------------------------------------- */

typedef enum item_status { ITEM_BEGUN, ITEM_DONE } item_status;

static const char *const item_prefixes[] = {
    [HEARTH_ANSWER_TEXT] = "msg", [HEARTH_ANSWER_REASONING] = "rs", [HEARTH_ANSWER_CALL] = "fc"};

/* "msg_…": unique for each part. */
static void write_item_id(json *j, const char *key, const choice *c, size_t i)
{
    char id[80];
    snprintf(id, sizeof id, "%s_%s_%zu", item_prefixes[c->parts[i].kind],
             strchr(c->generation->name, '_') + 1, i);
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
    json_put_null(j, "previous_response_id");
    json_bool(j, "store", false);
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
    c->probs.n_written = 0; /* of a stream: its events had them before */
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

static void send_state(generation *g, const char *type, bool is_over)
{
    json_line l;
    if (begin_event(g, &l, type)) {
        json_open_compact(&l.j, "response", '{');
        write_members(&l.j, g, is_over);
        json_close(&l.j, '}');
        if (is_over && g->each_timings) generation_write_timings(&l.j, g);
    }
    generation_send(g, type, &l);
}

static void send_progress(choice *c, const hearth_request_progress *progress)
{
    json_line l;
    static const char type[] = "response.in_progress";
    if (begin_event(c->generation, &l, type)) {
        json_open_compact(&l.j, "response", '{');
        write_members(&l.j, c->generation, false);
        json_close(&l.j, '}');
        progress_write(&l.j, c->generation, progress);
    }
    generation_send(c->generation, type, &l);
}

static void begin_stream(choice *c)
{
    send_state(c->generation, "response.created", false);
    send_state(c->generation, "response.in_progress", false);
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

static void end_choice(choice *c)
{
    generation *g = c->generation;
    if (g->n_opened > 0) close_part(c);
    send_state(g, c->finish == FINISH_LENGTH ? "response.incomplete" : "response.completed", true);
}

static void send_failure(generation *g)
{
    json_line l;
    if (begin_event(g, &l, "error")) problem_write(&l.j, &g->problem);
    generation_send(g, "error", &l);
}

static void answer_whole(generation *g)
{
    json_line l;
    if (json_line_begin(&l)) write_members(&l.j, g, true);
    call_line(g->call, &l);
}

const answer_format openai_response_format = {.prefix = "resp_",
                                              .begin = begin_stream,
                                              .part = send_part,
                                              .progress = send_progress,
                                              .end_choice = end_choice,
                                              .fail = send_failure,
                                              .whole = answer_whole};

/* ---- items of the request ---------------------------------------------------------------------------------------- */

static const char text_types[] = "input_text|output_text|text|summary_text|reasoning_text|refusal";

/* An item of type message; what the assistant wrote may have calls behind it. */
static bool read_message(fields *f, assistant_turn *t)
{
    static const char *const roles[] = {"user", "system", "developer"};
    const char *role, *content;
    size_t n;
    if (!fields_need_word(f, "role", &role) ||
        !content_read(f, "content", text_types, t->owner, &content, &n))
        return false;
    if (strcmp(role, "assistant") == 0) {
        if ((t->has_text || t->has_calls) && !turn_end(t)) return fields_no_memory(f);
        t->text = content, t->n_text = n, t->has_text = true;
        return true;
    }
    for (size_t i = 0; i < 3; i++)
        if (strcmp(role, roles[i]) == 0)
            return (turn_end(t) &&
                    conversation_add(t->owner, i == 0 ? "user" : "system", content, n, NULL)) ||
                   fields_no_memory(f);
    return fields_fail(f, "role", "one of user, assistant, system, developer is expected");
}

/* Calls of tools as the API has them, with the member that says what is wanted. A call of a function has it as its
 * arguments; of others the model sees a call of a function with that member. */
static const struct {
    const char *type, *name, *member;
    bool is_arguments, has_result; /* in the item itself */
} call_items[] = {
    {"function_call", NULL, "arguments", true, false},
    {"mcp_call", NULL, "arguments", true, true},
    {"custom_tool_call", NULL, "input", false, false},
    {"local_shell_call", "local_shell", "action", false, false},
    {"shell_call", "shell", "action", false, false},
    {"apply_patch_call", "apply_patch", "operation", false, false},
    {"computer_call", "computer", "action", false, false},
};

/* Items of tools that the API's own servers run: what they found is in the answer behind them. */
static const char *const skipped_items[] = {"web_search_call",  "file_search_call",     "code_interpreter_call",
                                            "mcp_list_tools",   "mcp_approval_request", "mcp_approval_response",
                                            "image_generation_call", "compaction"};

static bool read_id(fields *f, const char **id)
{
    *id = NULL;
    if (!fields_word(f, "call_id", id) || (!*id && !fields_word(f, "id", id))) return false;
    return *id || fields_fail(f, "call_id", "a text is expected; the field is missing");
}

static bool add_result(fields *f, assistant_turn *t, const char *id, const char *name)
{
    const char *output = "";
    size_t n = 0;
    json_line members;
    bool is_content = !fields_value(f, name) || hth_json_kind_of(fields_value(f, name)) == HTH_JSON_TEXT ||
                      hth_json_kind_of(fields_value(f, name)) == HTH_JSON_ARRAY;
    if (!(is_content ? content_read(f, name, text_types, t->owner, &output, &n)
                     : arguments_read(f, name, t->owner, &output, &n)))
        return false;
    if (!turn_end(t) || !json_line_begin(&members)) return fields_no_memory(f);
    json_word(&members.j, "tool_call_id", id);
    return conversation_add(t->owner, "tool", output, n, &members) || fields_no_memory(f);
}

/* A call of call_items[i]. Its arguments are the text of a member, or an object with that member. */
static bool read_call(fields *f, assistant_turn *t, size_t i)
{
    const char *id, *name = call_items[i].name, *arguments;
    size_t n;
    json_line l;
    if (!read_id(f, &id) || (!name && !fields_need_word(f, "name", &name))) return false;
    if (!arguments_read(f, call_items[i].member, t->owner, &arguments, &n)) return false;
    if (!call_items[i].is_arguments) {
        const hth_json *v = fields_value(f, call_items[i].member);
        char *text;
        if (!json_line_begin(&l)) return fields_no_memory(f);
        if (hth_json_kind_of(v) == HTH_JSON_TEXT) json_text(&l.j, call_items[i].member, v->text.bytes, v->text.n);
        else json_raw(&l.j, call_items[i].member, arguments, n);
        if (!json_line_end(&l, &text, &n)) return fields_no_memory(f);
        arguments = text, n -= text[n - 1] == '\n';
        if (!conversation_own(t->owner, text)) return fields_no_memory(f);
    }
    if (!turn_call(t, id, name, arguments, n)) return fields_no_memory(f);
    return !call_items[i].has_result || add_result(f, t, id, "output");
}

/* Reasoning belongs to what follows it. */
static bool read_reasoning(fields *f, assistant_turn *t)
{
    const char *text = "";
    size_t n = 0;
    if (!turn_end(t)) return fields_no_memory(f);
    if (fields_value(f, "content") && !content_read(f, "content", text_types, t->owner, &text, &n))
        return false;
    if (n == 0) return true; /* a summary, or what is encrypted: nothing for the model */
    t->reasoning = text, t->n_reasoning = n, t->has_reasoning = true;
    return true;
}

static bool read_item(fields *f, void *user)
{
    assistant_turn *t = user;
    const char *type = "message";
    if (!fields_word(f, "type", &type)) return false;
    if (strcmp(type, "message") == 0) return read_message(f, t);
    if (strcmp(type, "reasoning") == 0) return read_reasoning(f, t);
    for (size_t i = 0; i < sizeof call_items / sizeof *call_items; i++)
        if (strcmp(type, call_items[i].type) == 0) return read_call(f, t, i);
    for (size_t i = 0; i < sizeof skipped_items / sizeof *skipped_items; i++)
        if (strcmp(type, skipped_items[i]) == 0) return true;
    const char *id;
    size_t n = strlen(type);
    if (n > 7 && strcmp(type + n - 7, "_output") == 0) return read_id(f, &id) && add_result(f, t, id, "output");
    return fields_fail(f, "type", "items of type '%.60s' are not supported", type);
}

static bool read_input(fields *f, conversation *c)
{
    const hth_json *input = fields_value(f, "input");
    const char *text = NULL;
    size_t n = 0;
    assistant_turn t = {.owner = c};
    if (!fields_text(f, "instructions", &text, &n)) return false;
    if (text && n > 0 && !conversation_add(c, "system", text, n, NULL)) return fields_no_memory(f);
    if (hth_json_kind_of(input) == HTH_JSON_TEXT) {
        text = input->text.bytes, n = input->text.n;
        return conversation_add(c, "user", text, n, NULL) || fields_no_memory(f);
    }
    if (hth_json_kind_of(input) != HTH_JSON_ARRAY)
        return fields_fail(f, "input", "a text or an array of items is expected, not %s",
                           json_kind_words(hth_json_kind_of(input)));
    if (hth_json_count(input) > MAX_MESSAGES)
        return fields_fail(f, "input", "%zu items; at most %d are taken", hth_json_count(input), MAX_MESSAGES);
    bool ok = fields_each(f, "input", input, read_item, &t);
    if (ok && !turn_end(&t)) ok = fields_no_memory(f);
    turn_drop(&t);
    /* Clients ask with an empty input whether the server is there. */
    return ok && (c->n > 0 || conversation_add(c, "user", "", 0, NULL) || fields_no_memory(f));
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* What would need a server that remembers. */
static bool refuse_state(fields *f)
{
    bool background = false;
    static const char *const names[] = {"previous_response_id", "conversation"};
    for (size_t i = 0; i < 2; i++)
        if (fields_value(f, names[i]))
            return fields_fail(f, names[i], "nothing is stored here: send the full input");
    return fields_bool(f, "background", &background) &&
           (!background || fields_fail(f, "background", "is not supported: send the full input and wait"));
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
    const hth_json *text, *format_in = NULL;
    int64_t n_top = 0;
    sampling_read(g, f);
    stops_read(g, f, "stop");
    if (!length_read(g, f, "max_output_tokens") || !fields_bool(f, "stream", &g->is_stream) ||
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
    if (refuse_state(&f) && read_options(&f, g, &v) && template_variables(&f, &v.given) &&
        read_functions(&f, g))
        read_input(&f, &m);
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
    if (fields_read(c, &f, &p) && refuse_state(&f) && read_effort(&f, &v) && template_variables(&f, &v.given) &&
        functions_list(&f, &shape, &functions))
        read_input(&f, &m);
    chat_count(served, c, &m, &v, functions, "response.input_tokens", &p);
}
