/* Renders and tokenizes conversations. */
#define _GNU_SOURCE
#include "serve/api/chat_prompt.h"

#include "base/alloc.h"
#include "common/local_time.h"
#include "engine/chat_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- variables -------------------------------------------------------------------------------------------- */

bool template_variables(fields *f, const hth_json **variables)
{
    static const char name[] = "chat_template_kwargs";
    if (!fields_object(f, name, variables)) return false;
    for (const hth_json *v = hth_json_first(*variables); v; v = v->next)
        if (v->kind == HTH_JSON_ARRAY || v->kind == HTH_JSON_OBJECT)
            return fields_fail(f, name, "%.100s is %s; single values alone are taken", v->key.bytes,
                               json_kind_words(v->kind));
    return true;
}

bool effort_read(fields *f, const char *name, chat_variables *out)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const char *effort = NULL;
    size_t i = 0, n_word = sizeof words / sizeof *words;
    if (!fields_word(f, name, &effort)) return false;
    if (!effort) return true;
    while (i < n_word && strcmp(effort, words[i]) != 0) i++;
    if (i == n_word)
        return fields_fail(f, name, "none, minimal, low, medium, high, xhigh or max is expected");
    if (i == 0) out->thinking = NO_THINK;
    else out->effort = words[i];
    return true;
}

bool continuing_read(fields *f, chat_variables *out)
{
    bool adds = false, continues = false;
    if (!fields_bool(f, "add_generation_prompt", &adds) ||
        !fields_bool(f, "continue_final_message", &continues))
        return false;
    if (adds && continues)
        return fields_fail(f, "continue_final_message", "cannot be true together with add_generation_prompt");
    out->no_answer = fields_value(f, "add_generation_prompt") && !adds && !continues;
    out->no_continuing = adds || (fields_value(f, "continue_final_message") && !continues);
    return true;
}

static bool write_variable(json *j, const hth_json *one)
{
    size_t n;
    char *value = hth_json_write(one, false, &n);
    if (value) json_raw(j, one->key.bytes, value, n);
    hth_free(value);
    return value != NULL;
}

/* Whether the request says this one. */
static bool is_given(const chat_variables *v, const hth_json *one)
{
    if (v->thinking != AS_USUAL && strcmp(one->key.bytes, "enable_thinking") == 0) return true;
    if (v->effort && strcmp(one->key.bytes, "reasoning_effort") == 0) return true;
    return hth_json_member(v->given, one->key.bytes) != NULL;
}

char *chat_variables_write(const chat_variables *v, const hth_json *defaults)
{
    json_line l;
    char *text;
    size_t n;
    if (!json_line_begin(&l)) return NULL;
    bool ok = true;
    if (v->thinking != AS_USUAL) json_bool(&l.j, "enable_thinking", v->thinking == THINK);
    if (v->effort) json_word(&l.j, "reasoning_effort", v->effort);
    for (const hth_json *one = hth_json_first(defaults); one; one = one->next)
        ok = (is_given(v, one) || write_variable(&l.j, one)) && ok;
    for (const hth_json *one = hth_json_first(v->given); one; one = one->next) ok = write_variable(&l.j, one) && ok;
    if (!json_line_end(&l, &text, &n)) return NULL;
    if (ok) return text;
    free(text);
    return NULL;
}

/* ---- prompts ---------------------------------------------------------------------------------------------- */

static bool no_memory(problem *p)
{
    problem_set(p, 503, "", "out of memory");
    return false;
}

/* The last message, if the answer goes on with it; NULL: an answer begins. */
static const hearth_message *continued(const conversation *c, const chat_variables *v)
{
    const hearth_message *last = c->n > 1 ? &c->at[c->n - 1] : NULL;
    bool goes_on = !v->no_continuing && !v->no_answer && last && strcmp(last->role, "assistant") == 0 &&
                   !last->members && last->n > 0;
    return goes_on ? last : NULL;
}

static bool make(const served_model *served, const conversation *c, const chat_variables *v,
                 const char *functions, bool with_ids, hth_chat_prompt *out, problem *p)
{
    hearth_error err;
    int64_t now = local_seconds();
    if (!served->chat) {
        problem_of_error(p, &served->chat_error);
        const problem why = *p;
        problem_set(p, why.status, "", "%s; %s", why.message,
                    served->engine->n_model == 1 ? "hearth serve MODEL --template NAME gives it one"
                                                 : "several models that are served together can be given none: serve this one "
                                                   "alone, by hearth serve MODEL --template NAME");
        return false;
    }
    char *variables = chat_variables_write(v, served->engine->variables);
    if (!variables) return no_memory(p);
    const hearth_chat_options o = {.add_generation_prompt = !v->no_answer,
                                   .local_time = &now,
                                   .variables = variables,
                                   .tools = functions};
    size_t n = continued(c, v) ? c->n - 1 : c->n;
    hearth_status st = hth_chat_make_prompt(served->chat, c->at, n, &o, with_ids, out, &err);
    free(variables);
    if (st != HEARTH_OK) problem_of_error(p, &err);
    return st == HEARTH_OK;
}

/* An answer does not go on with a text where the prompt ends within reasoning. */
static bool check_continuing(const served_model *served, const hth_chat_prompt *made, problem *p)
{
    if (!hearth_chat_is_reasoning(served->chat, made->ids, made->n_ids)) return true;
    problem_set(p, 400, "messages",
                "messages: an answer cannot be continued where the template begins reasoning");
    return false;
}

/* The ids of a text that the answer goes on with follow those of the prompt. */
static bool append_ids(const served_model *served, const hearth_message *m, hth_chat_prompt *to, problem *p)
{
    int32_t *more = NULL;
    size_t n_more = 0;
    hearth_error err;
    if (hearth_tokenize(served->model, m->content, m->n, 0, &more, &n_more, &err) != HEARTH_OK) {
        problem_of_error(p, &err);
        return false;
    }
    int32_t *all = hth_realloc(to->ids, to->n_ids + n_more, sizeof *all);
    if (all) {
        to->ids = all;
        if (n_more > 0) memcpy(all + to->n_ids, more, n_more * sizeof *more);
        to->n_ids += n_more;
    }
    hearth_free(more);
    return all || no_memory(p);
}

static bool append_bytes(const hearth_message *m, hth_chat_prompt *to, problem *p)
{
    char *all = hth_realloc(to->text, to->n_text + m->n + 1, 1);
    if (!all) return no_memory(p);
    to->text = all;
    memcpy(all + to->n_text, m->content, m->n);
    to->n_text += m->n;
    all[to->n_text] = '\0';
    return true;
}

bool chat_prompt_make(const served_model *served, const conversation *c, const chat_variables *v,
                      const char *functions, int32_t **ids, size_t *n, problem *p)
{
    hth_chat_prompt made = {0};
    const hearth_message *last = continued(c, v);
    bool ok = make(served, c, v, functions, true, &made, p) &&
              (!last || (check_continuing(served, &made, p) && append_ids(served, last, &made, p)));
    hearth_free(made.text);
    if (!ok) hearth_free(made.ids);
    *ids = ok ? made.ids : NULL;
    *n = ok ? made.n_ids : 0;
    return ok;
}

char *chat_prompt_text(const served_model *served, const conversation *c, const chat_variables *v,
                       const char *functions, size_t *n, problem *p)
{
    hth_chat_prompt made = {0};
    const hearth_message *last = continued(c, v);
    bool ok = make(served, c, v, functions, last != NULL, &made, p) &&
              (!last || (check_continuing(served, &made, p) && append_bytes(last, &made, p)));
    hearth_free(made.ids);
    if (!ok) hearth_free(made.text);
    *n = made.n_text;
    return ok ? made.text : NULL;
}

void chat_count(served_model *served, call *c, conversation *m, const chat_variables *v, char *functions,
                const char *object, problem *p)
{
    int32_t *ids = NULL;
    size_t n = 0;
    json_line l;
    if (!p->status && chat_prompt_make(served, m, v, functions, &ids, &n, p)) {
        if (json_line_begin(&l)) {
            if (object) json_word(&l.j, "object", object);
            json_uint(&l.j, "input_tokens", n);
        }
        call_line(c, &l);
    } else {
        call_problem(c, p);
    }
    hearth_free(ids);
    free(functions);
    conversation_free(m);
}

/* ---- conversations that are too long ------------------------------------------------------------------------ */

static bool is_of(const hearth_message *m, const char *role) { return strcmp(m->role, role) == 0; }

/* Messages of the system's that begin the conversation. */
static size_t count_head(const conversation *c)
{
    size_t n = 0;
    while (n < c->n && is_of(&c->at[n], "system")) n++;
    return n;
}

/* The prompt without the first n_turn turns behind the system's first messages; a turn ends before a message of the user's. */
static bool make_without(const generation *g, const conversation *c, const chat_variables *v, size_t n_turn, int32_t **ids,
                         size_t *n, problem *p)
{
    size_t n_head = count_head(c), from = n_head;
    conversation rest = *c;
    hearth_free(*ids);
    *ids = NULL;
    rest.at = calloc(c->n, sizeof *rest.at);
    if (!rest.at) return no_memory(p);
    while (n_turn > 0) n_turn -= is_of(&c->at[++from], "user");
    rest.n = n_head + c->n - from;
    memcpy(rest.at, c->at, n_head * sizeof *rest.at);
    memcpy(rest.at + n_head, c->at + from, (c->n - from) * sizeof *rest.at);
    bool ok = chat_prompt_make(g->served, &rest, v, g->functions, ids, n, p);
    free(rest.at);
    return ok;
}

/* Whether an answer has as much room behind a prompt of n tokens as `hearth chat` keeps for it, or as it may take. */
static bool has_room(const generation *g, size_t n)
{
    size_t n_ctx = served_model_n_ctx(g->served), room = n_ctx / 8 < 256 ? n_ctx / 8 : 256;
    if (g->max_token > 0 && g->max_token < room) room = g->max_token;
    return n + room <= n_ctx;
}

/* Drops as few turns as possible, never the last message of the user's, and finds that number by halves: a template and
 * a tokenizer take long for a long conversation. What is too long still is refused as any prompt is. */
static bool drop_turns(const generation *g, const conversation *c, const chat_variables *v, int32_t **ids, size_t *n, problem *p)
{
    size_t few = 0, most = 0;
    bool ok = true;
    for (size_t i = count_head(c) + 1; i < c->n; i++) most += is_of(&c->at[i], "user");
    if (most == 0 || has_room(g, *n)) return true;
    while (ok && few + 1 < most) {
        size_t half = few + (most - few) / 2;
        ok = make_without(g, c, v, half, ids, n, p);
        if (ok && has_room(g, *n)) most = half;
        else few = half;
    }
    return ok && make_without(g, c, v, most, ids, n, p);
}

void chat_start(generation *g, conversation *c, const chat_variables *v, problem *p)
{
    int32_t *ids;
    size_t n;
    if (!p->status && chat_prompt_make(g->served, c, v, g->functions, &ids, &n, p) &&
        (!g->drops_turns || drop_turns(g, c, v, &ids, &n, p))) {
        g->goes_on = continued(c, v) != NULL;
        g->in_reasoning = hearth_chat_is_reasoning(g->served->chat, ids, n);
        if (!prompt_list_add(&g->prompts, ids, n, NULL, 0)) no_memory(p);
    }
    conversation_free(c);
    if (p->status) generation_refuse(g, p);
    else generation_start(g);
}
