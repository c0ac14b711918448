/* Items of the Responses API: messages, reasoning, calls of functions and of the API's own tools, their results, and those
 * that are stored here. */
#define _GNU_SOURCE
#include "serve/api/openai/response_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static const char *const skipped_items[] = {
    "web_search_call",      "file_search_call",      "code_interpreter_call", "mcp_list_tools",
    "mcp_approval_request", "mcp_approval_response", "image_generation_call", "compaction"};

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
        if (hth_json_kind_of(v) == HTH_JSON_TEXT)
            json_text(&l.j, call_items[i].member, v->text.bytes, v->text.n);
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

static bool read_item(fields *f, assistant_turn *t)
{
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
    if (n > 7 && strcmp(type + n - 7, "_output") == 0)
        return read_id(f, &id) && add_result(f, t, id, "output");
    return fields_fail(f, "type", "items of type '%.60s' are not supported", type);
}

/* ---- stored items ------------------------------------------------------------------------------------------ */

typedef struct input {
    assistant_turn turn;
    response_store *store;
    uint64_t owner;
    item_list *items; /* all of the conversation, as the store takes them; where it is not stored, those that were stored */
    bool stores;
} input;

/* Refuses what the store has not given. */
static bool fail_unknown(fields *f, const char *name, const char *what, const char *id, hearth_status why)
{
    if (why == HEARTH_ERROR_MEMORY) return fields_no_memory(f);
    fields_fail(f, name,
                "there is no %s '%.60s' here: it was not stored (store: false), was dropped "
                "(--responses-store), or the "
                "server was started again; send the full input",
                what, id);
    f->problem->status = 404;
    return false;
}

static bool read_stored(fields *f, input *in, const char *name, const stored_item *item)
{
    hth_json *v;
    hearth_error why;
    fields one = {.problem = f->problem};
    if (hth_json_read(&in->turn.owner->documents, item->text, item->n, NULL, &v, &why) != HEARTH_OK)
        return fields_no_memory(f); /* it was read before */
    one.object = v;
    snprintf(one.path, sizeof one.path, "%s", *f->path ? f->path : name);
    return read_item(&one, &in->turn);
}

/* An item of the request: itself, or one that is stored. */
static bool take_item(fields *f, void *user)
{
    input *in = user;
    bool is_bare = fields_value(f, "id") && !fields_value(f, "role");
    const char *type = is_bare ? "item_reference" : "message", *id;
    if (!fields_word(f, "type", &type)) return false;
    if (strcmp(type, "item_reference") == 0) {
        if (!fields_need_word(f, "id", &id)) return false;
        hearth_status st = response_store_item(in->store, id, in->owner, in->items);
        return st == HEARTH_OK ? read_stored(f, in, "input", in->items->at[in->items->n - 1]) : fail_unknown(f, "id", "item", id, st);
    }
    if (!read_item(f, &in->turn)) return false;
    if (!in->stores) return true;
    size_t n;
    char *text = hth_json_write(f->object, false, &n);
    bool ok = text && item_list_add(in->items, "", in->owner, text, n);
    hth_free(text);
    return ok || fields_no_memory(f);
}

/* The items of an earlier response and of its input. */
static bool read_previous(fields *f, input *in)
{
    static const char field[] = "previous_response_id";
    const char *id = NULL;
    if (!fields_word(f, field, &id) || !id) return fields_ok(f);
    hearth_status st = response_store_items(in->store, id, in->owner, in->items);
    if (st != HEARTH_OK) return fail_unknown(f, field, "response", id, st);
    for (size_t i = 0; i < in->items->n; i++)
        if (!read_stored(f, in, field, in->items->at[i])) return false;
    return true;
}

static bool read_text(fields *f, input *in, const hth_json *text)
{
    json_line l;
    char *line;
    size_t n;
    if (!turn_end(&in->turn) ||
        !conversation_add(in->turn.owner, "user", text->text.bytes, text->text.n, NULL))
        return fields_no_memory(f);
    if (!in->stores) return true;
    if (!json_line_begin(&l)) return fields_no_memory(f);
    json_word(&l.j, "role", "user");
    json_text(&l.j, "content", text->text.bytes, text->text.n);
    if (!json_line_end(&l, &line, &n)) return fields_no_memory(f);
    bool ok = item_list_add(in->items, "", in->owner, line, n);
    free(line);
    return ok || fields_no_memory(f);
}

/* ---- the input --------------------------------------------------------------------------------------------- */

static bool read_all(fields *f, input *in)
{
    const hth_json *v = fields_value(f, "input");
    const char *text = NULL;
    size_t n = 0;
    conversation *c = in->turn.owner;
    if (!fields_text(f, "instructions", &text, &n)) return false;
    if (text && n > 0 && !conversation_add(c, "system", text, n, NULL)) return fields_no_memory(f);
    if (!read_previous(f, in)) return false;
    if (hth_json_kind_of(v) == HTH_JSON_TEXT) return read_text(f, in, v);
    if (hth_json_kind_of(v) != HTH_JSON_ARRAY)
        return fields_fail(f, "input", "a text or an array of items is expected, not %s",
                           json_kind_words(hth_json_kind_of(v)));
    if (c->n + hth_json_count(v) > MAX_MESSAGES)
        return fields_fail(f, "input", "%zu items; at most %d are taken", c->n + hth_json_count(v),
                           MAX_MESSAGES);
    if (!fields_each(f, "input", v, take_item, in)) return false;
    if (!turn_end(&in->turn)) return fields_no_memory(f);
    /* Clients ask with an empty input whether the server is there. */
    return c->n > 0 || conversation_add(c, "user", "", 0, NULL) || fields_no_memory(f);
}

bool response_input_read(fields *f, response_store *store, uint64_t owner, conversation *out,
                         item_list *items)
{
    item_list held = {.n = 0};
    input in = {.turn = {.owner = out}, .store = store, .owner = owner, .items = items ? items : &held, .stores = items != NULL};
    bool ok = read_all(f, &in);
    turn_drop(&in.turn);
    item_list_free(store, &held);
    return ok;
}
