/* Asks the scheduler for the choices of an answer, and divides the tokens that come into what clients get. */
#define _GNU_SOURCE
#include "serve/api/generation.h"

#include "base/clock.h"
#include "serve/api/progress.h"
#include "serve/api/prompt_scores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RETRY_SECONDS = 2 };

const char *finish_word(finish_reason f)
{
    return f == FINISH_LENGTH ? "length" : f == FINISH_CALLS ? "tool_calls" : "stop";
}

/* ---- a generation ------------------------------------------------------------------------------------------ */

generation *generation_make(served_model *served, call *c, const answer_format *format, fields *f, problem *p)
{
    json_in *document = fields_read(c, f, p);
    generation *g = document ? calloc(1, sizeof *g) : NULL;
    if (document && !g) fields_no_memory(f);
    if (!g) {
        json_in_free(document);
        call_problem(c, p);
        return NULL;
    }
    *g = (generation){.served = served,
                      .call = c,
                      .format = format,
                      .document = document,
                      .created = (int64_t)time(NULL),
                      .sampler = hearth_sampler_defaults(),
                      .max_token = format->max_token,
                      .n_choice = 1,
                      .begin_ns = hth_clock_ns()};
    g->sampler.seed = random_number() >> 1;
    snprintf(g->name, sizeof g->name, "%s%016llx%016llx", format->prefix, (unsigned long long)random_number(),
             (unsigned long long)random_number());
    return g;
}

static void free_choice(choice *c)
{
    hearth_answer_close(c->answer);
    hearth_constraint_close(c->constraint);
    for (size_t i = 0; i < c->n_call; i++) {
        free(c->calls[i].name);
        free(c->calls[i].arguments.bytes);
    }
    free(c->calls);
    free(c->parts);
    free(c->text.bytes);
    free(c->reasoning.bytes);
    free(c->probs.at);
}

size_t generation_count(const generation *g) { return g->choices ? g->prompts.n * g->n_choice : 0; }

void generation_free(generation *g)
{
    for (size_t i = 0; i < generation_count(g); i++) free_choice(&g->choices[i]);
    prompt_list_free(&g->prompts);
    prompt_scores_close(g->scores);
    json_in_free(g->document);
    free(g->choices);
    free(g->functions);
    free(g->called);
    free(g->biases);
    free(g);
}

void generation_refuse(generation *g, const problem *p)
{
    size_t n;
    char *body = problem_json(p, g->call->form, &n);
    call_reply_later(g->call, p->status, p->status == 429 ? RETRY_SECONDS : 0, body, n);
    generation_free(g);
}

size_t generation_n_prompt(const generation *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->prompts.n; i++) n += g->prompts.at[i].n;
    return n;
}

size_t generation_n_generated(const generation *g)
{
    size_t n = 0;
    for (size_t i = 0; i < generation_count(g); i++) n += g->choices[i].n_generated;
    return n;
}

size_t generation_n_reasoning(const generation *g)
{
    size_t n = 0;
    for (size_t i = 0; i < generation_count(g); i++) n += g->choices[i].n_reasoning;
    return n;
}

/* Of each prompt, as its first choice found them. */
size_t generation_n_cached(const generation *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->prompts.n; i++) n += g->choices[i * g->n_choice].n_cached;
    return n;
}

static double rate(size_t n, double seconds) { return seconds > 0.0 ? (double)n / seconds : 0.0; }

void generation_write_timings(json *j, const generation *g)
{
    double before = (double)(g->first_ns - g->begin_ns) * 1e-9,
           rest = (double)(g->last_ns - g->first_ns) * 1e-9;
    size_t n_generated = generation_n_generated(g), n_cached = generation_n_cached(g),
           n_prompt = generation_n_prompt(g) - n_cached;
    json_open_compact(j, "timings", '{');
    json_uint(j, "cache_n", n_cached);
    json_uint(j, "prompt_n", n_prompt);
    json_float(j, "prompt_ms", before * 1e3, 6);
    json_float(j, "prompt_per_second", rate(n_prompt, before), 6);
    json_uint(j, "predicted_n", n_generated);
    json_float(j, "predicted_ms", rest * 1e3, 6);
    json_float(j, "predicted_per_second", rate(n_generated > 0 ? n_generated - 1 : 0, rest), 6);
    hearth_draft_stats draft = {0};
    for (size_t i = 0; i < generation_count(g); i++)
        draft.n_drafted += g->choices[i].draft.n_drafted, draft.n_accepted += g->choices[i].draft.n_accepted;
    if (draft.n_drafted > 0) {
        json_uint(j, "draft_n", draft.n_drafted);
        json_uint(j, "draft_n_accepted", draft.n_accepted);
    }
    json_close(j, '}');
    json_uint(j, "seed", g->sampler.seed);
}

bool generation_tells_timings(const generation *g)
{
    return g->each_timings && generation_n_generated(g) > 0;
}

/* ---- events of a stream --------------------------------------------------------------------------------------- */

static void send_text(generation *g, const char *before, const char *name, const char *between,
                      const char *line, size_t n, const char *end)
{
    buffer text = {0};
    bool ok = line && buffer_add(&text, before, strlen(before)) && buffer_add(&text, name, strlen(name)) &&
              buffer_add(&text, between, strlen(between)) && buffer_add(&text, line, n) &&
              buffer_add(&text, end, strlen(end)) && call_send(g->call, text.bytes, text.n);
    if (!ok) g->is_broken = true;
    free(text.bytes);
}

void generation_send(generation *g, const char *name, json_line *l)
{
    char *line;
    size_t n;
    if (!json_line_end(l, &line, &n)) line = NULL;
    if (name) send_text(g, "event: ", name, "\ndata: ", line, n, "\n"); /* the line ends with one newline */
    else send_text(g, "data: ", "", "", line, n, "\n");
    free(line);
}

void generation_send_line(generation *g, json_line *l)
{
    char *line;
    size_t n;
    if (!json_line_end(l, &line, &n)) line = NULL;
    send_text(g, "", "", "", line, n, "");
    free(line);
}

/* ---- text of a choice ------------------------------------------------------------------------------------------ */

/* The first stop string in the text from n_sure on; NULL: none. */
static const char *find_stop(choice *c)
{
    const stop_list *stops = &c->generation->stops;
    const char *first = NULL;
    for (size_t i = 0; i < stops->n; i++) {
        const char *at =
            memmem(c->text.bytes + c->n_sure, c->text.n - c->n_sure, stops->at[i].text, stops->at[i].n);
        if (at && (!first || at < first)) first = at, c->stop = stops->at[i].text, c->n_stop = stops->at[i].n;
    }
    return first;
}

/* Bytes at the end of the text with which a stop string may begin. */
static size_t count_unsure(const choice *c)
{
    const stop_list *stops = &c->generation->stops;
    size_t longest = 0, n_text = c->text.n - c->n_sure;
    for (size_t i = 0; i < stops->n; i++) {
        size_t n = stops->at[i].n - 1 < n_text ? stops->at[i].n - 1 : n_text;
        while (n > longest && memcmp(c->text.bytes + c->text.n - n, stops->at[i].text, n) != 0) n--;
        if (n > longest) longest = n;
    }
    return longest;
}

/* n bytes more of text or reasoning, or a call. */
static bool add_part(choice *c, hearth_answer_kind kind, size_t from, size_t n)
{
    answer_part *last = c->n_part > 0 ? &c->parts[c->n_part - 1] : NULL;
    if (last && kind == last->kind && kind != HEARTH_ANSWER_CALL) {
        last->n += n;
        return true;
    }
    void *more = grow_array(c->parts, &c->part_capacity, c->n_part + 1, sizeof *c->parts);
    if (!more) return false;
    c->parts = more;
    c->parts[c->n_part++] = (answer_part){kind, from, n};
    return true;
}

/* The text up to n is sure: a stream gets it. */
static void release_text(choice *c, size_t n)
{
    generation *g = c->generation;
    size_t from = c->n_sure;
    if (n == from) return;
    c->n_sure = n;
    if (!add_part(c, HEARTH_ANSWER_TEXT, from, n - from)) g->is_broken = true;
    else if (g->is_streaming) g->format->part(c, HEARTH_ANSWER_TEXT, c->text.bytes + from, n - from);
}

static void take_text(choice *c, const char *text, size_t n)
{
    if (!buffer_add(&c->text, text, n)) {
        c->generation->is_broken = true;
        return;
    }
    const char *stop = find_stop(c);
    if (!stop) {
        release_text(c, c->text.n - count_unsure(c));
        return;
    }
    c->is_stopped = true;
    c->text.n = (size_t)(stop - c->text.bytes);
    release_text(c, c->text.n);
}

static void make_call_id(char id[12])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    uint64_t x = random_number();
    for (int i = 0; i < 9; i++, x /= 62) id[i] = letters[x % 62];
    id[9] = '\0';
}

/* A second call is left out where one alone is wanted. */
static bool begin_call(choice *c, const char *name, size_t n)
{
    if (c->generation->one_call && c->n_call > 0) {
        c->is_stopped = true;
        return true;
    }
    void *more = grow_array(c->calls, &c->call_capacity, c->n_call + 1, sizeof *c->calls);
    if (!more) return false;
    c->calls = more;
    function_call *f = &c->calls[c->n_call];
    *f = (function_call){.name = strndup(name, n)};
    if (!f->name) return false;
    make_call_id(f->id);
    return add_part(c, HEARTH_ANSWER_CALL, c->n_call++, 0);
}

static void take_part(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    choice *c = user;
    generation *g = c->generation;
    bool ok = true;
    if (c->is_stopped || g->is_broken) return;
    if (kind == HEARTH_ANSWER_TEXT) {
        take_text(c, text, n);
        return;
    }
    release_text(c, c->text.n);
    if (kind == HEARTH_ANSWER_REASONING)
        ok = add_part(c, kind, c->reasoning.n, n) && buffer_add(&c->reasoning, text, n);
    if (kind == HEARTH_ANSWER_CALL) ok = begin_call(c, text, n);
    if (kind == HEARTH_ANSWER_ARGUMENTS) ok = buffer_add(&c->calls[c->n_call - 1].arguments, text, n);
    if (!ok) g->is_broken = true;
    else if (g->is_streaming && !c->is_stopped) g->format->part(c, kind, text, n);
}

/* ---- events of the scheduler ------------------------------------------------------------------------------------ */

static void unlink_generation(generation *g)
{
    generation **at = &g->served->generations;
    while (*at != g) at = &(*at)->next;
    *at = g->next;
}

static void send_problem(generation *g)
{
    size_t n;
    char *body = problem_json(&g->problem, g->call->form, &n);
    const char *before = g->call->form == FORM_OPENAI      ? "data: "
                         : g->call->form == FORM_ANTHROPIC ? "event: error\ndata: "
                                                           : "";
    send_text(g, before, "", "", body, n, g->call->form == FORM_OLLAMA ? "" : "\n");
    free(body);
}

static void fail(generation *g)
{
    if (!g->is_streaming) {
        call_problem(g->call, &g->problem);
        return;
    }
    if (g->format->fail) g->format->fail(g);
    else send_problem(g);
    call_end(g->call);
}

static void finish(generation *g)
{
    figures *seen = &g->served->engine->figures;
    figures_add_seconds(&seen->whole, hth_clock_ns() - g->call->submit_ns);
    figures_add_tokens(&seen->n_prompt, generation_n_prompt(g));
    figures_add_tokens(&seen->n_generated, generation_n_generated(g));
    if (g->is_streaming && g->format->end) g->format->end(g);
    else if (!g->is_streaming && !g->is_broken) g->format->whole(g);
    if (g->is_broken) call_break(g->call);
    else if (g->is_streaming) call_end(g->call);
}

/* A choice is over; the last one ends the call. */
static void count_over(generation *g)
{
    if (++g->n_over < generation_count(g)) return;
    if (g->problem.status && !call_is_cancelled(g->call)) fail(g);
    else if (g->is_broken) call_break(g->call);
    else finish(g);
    unlink_generation(g);
    generation_free(g);
}

static void end_choice(choice *c, finish_reason why)
{
    generation *g = c->generation;
    hearth_error err;
    if (!c->is_stopped && hearth_answer_finish(c->answer, &err) != HEARTH_OK) g->is_broken = true;
    if (!c->is_stopped) release_text(c, c->text.n);
    if (c->is_stopped) why = FINISH_STOP;
    c->finish = why == FINISH_STOP && c->n_call > 0 ? FINISH_CALLS : why;
    if (g->is_streaming && !g->is_broken && g->format->end_choice) g->format->end_choice(c);
}

static void take_token(choice *c, const hearth_request_event *e)
{
    generation *g = c->generation;
    hearth_error why;
    uint64_t now = hth_clock_ns();
    figures *seen = &g->served->engine->figures;
    if (generation_n_generated(g) == 0)
        g->first_ns = now, figures_add_seconds(&seen->first_token, now - g->call->submit_ns);
    else if (g->n_choice * g->prompts.n == 1) figures_add_seconds(&seen->next_token, now - g->last_ns);
    g->last_ns = now;
    if (c->n_generated == 0 && progress_is_wanted(g)) progress_complete(c);
    c->n_generated++;
    if (!logprobs_add(&c->probs, e->logits, g->served->info.n_vocab, e->token) ||
        hearth_answer_push(c->answer, e->token, &why) != HEARTH_OK)
        g->is_broken = true;
    if (c->n_part > 0 ? c->parts[c->n_part - 1].kind == HEARTH_ANSWER_REASONING : g->in_reasoning)
        c->n_reasoning++;
}

static bool take_event(void *user, const hearth_request_event *e)
{
    choice *c = user;
    generation *g = c->generation;
    c->n_cached = e->n_cached, c->draft = e->draft;
    switch (e->state) {
    case HEARTH_REQUEST_TOKEN: take_token(c, e); return !c->is_stopped && !g->is_broken;
    case HEARTH_REQUEST_END:
    case HEARTH_REQUEST_STOPPED: end_choice(c, FINISH_STOP); break;
    case HEARTH_REQUEST_LENGTH: end_choice(c, FINISH_LENGTH); break;
    case HEARTH_REQUEST_CANCELLED: g->is_broken = true; break;
    case HEARTH_REQUEST_FAILED:
        if (!g->problem.status) problem_of_error(&g->problem, e->error);
        g->is_broken = true;
        break;
    }
    c->id = 0;
    count_over(g);
    return false;
}

/* ---- on the engine thread ---------------------------------------------------------------------------------------- */

static hearth_status begin_choice(choice *c, hearth_error *err)
{
    generation *g = c->generation;
    served_model *served = g->served;
    const prompt *p = &g->prompts.at[c->i_prompt];
    const hearth_request r = {.tokens = p->ids,
                              .n_token = p->n,
                              .max_token = g->max_token,
                              .ignore_end = g->ignore_end,
                              .sampler = &c->sampler,
                              .constraint = c->constraint,
                              .owner = g->call->i_key,
                              .fn = take_event,
                              .user = c};
    hearth_status st = hearth_scheduler_add(served->scheduler, &r, &c->id, err);
    if (st == HEARTH_OK) g->n_begun++;
    return st;
}

/* All that a choice needs before the scheduler has it. The choices of a prompt differ by their seeds. */
static hearth_status prepare_choice(generation *g, size_t i, hearth_constraint *constraint, hearth_error *err)
{
    choice *c = &g->choices[i];
    served_model *served = g->served;
    *c = (choice){.generation = g,
                  .index = (uint32_t)i,
                  .i_prompt = i / g->n_choice,
                  .sampler = g->sampler,
                  .probs = {.wanted = g->probs.wanted, .n_top = g->probs.n_top}};
    c->sampler.seed += i % g->n_choice;
    const hearth_answer_options o = {.chat = g->format->continues ? NULL : served->chat,
                                     .at_start = !g->format->continues && !constraint,
                                     .in_reasoning = g->in_reasoning,
                                     .tools = g->functions,
                                     .fn = take_part,
                                     .user = c};
    hearth_status st = hearth_answer_open(served->model, &o, &c->answer, err);
    if (st == HEARTH_OK && constraint) st = hearth_constraint_copy(constraint, &c->constraint, err);
    return st;
}

static bool prepare(generation *g, problem *p)
{
    hearth_error err = {0};
    hearth_constraint *constraint;
    served_model *served = g->served;
    size_t n = g->prompts.n * g->n_choice;
    if (!wanted_constraint_open(&g->constraint, served->model, g->format->continues ? NULL : served->chat,
                                g->in_reasoning, &constraint, p))
        return false;
    g->choices = calloc(n, sizeof *g->choices);
    hearth_status st = g->choices ? HEARTH_OK : HEARTH_ERROR_MEMORY;
    if (!g->choices) snprintf(err.message, sizeof err.message, "out of memory"), err.status = st;
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) st = prepare_choice(g, i, constraint, &err);
    hearth_constraint_close(constraint);
    if (st != HEARTH_OK) problem_of_error(p, &err);
    return st == HEARTH_OK;
}

/* The text of a prompt, which the answer repeats; of ids that of their tokens, without control tokens. */
static bool add_echo(choice *c)
{
    const generation *g = c->generation;
    const prompt *p = &g->prompts.at[c->i_prompt];
    hearth_detokenizer *decoder;
    hearth_error err;
    const char *text;
    size_t n;
    if (p->text) return buffer_add(&c->text, p->text, p->n_text);
    bool ok = hearth_detokenizer_open(g->served->model, true, false, &decoder, &err) == HEARTH_OK;
    for (size_t i = 0; ok && i < p->n; i++)
        ok = hearth_detokenizer_push(decoder, p->ids[i], &text, &n, &err) == HEARTH_OK &&
             buffer_add(&c->text, text, n);
    hearth_detokenizer_close(decoder);
    return ok;
}

/* The first choice of each prompt is given to the scheduler; others follow when its first token came. */
static bool begin(generation *g, problem *p)
{
    hearth_error err;
    for (size_t i = 0; g->echo && i < generation_count(g); i++) {
        choice *c = &g->choices[i];
        if (add_echo(c)) release_text(c, c->text.n);
        else g->is_broken = true;
    }
    for (size_t i = 0; i < g->prompts.n; i++) {
        hearth_status st = begin_choice(&g->choices[i * g->n_choice], &err);
        if (st == HEARTH_OK) continue;
        problem_of_error(p, &err);
        if (st == HEARTH_ERROR_CONTEXT) p->code = "context_length_exceeded";
        return false;
    }
    return true;
}

static void begin_stream(generation *g)
{
    g->is_streaming = call_begin_stream(g->call);
    if (!g->is_streaming) g->is_broken = true;
    for (size_t i = 0; g->is_streaming && g->format->begin && i < generation_count(g); i++)
        g->format->begin(&g->choices[i]);
}

void generation_start(generation *g)
{
    served_model *served = g->served;
    problem p = {0};
    g->first_ns = g->last_ns = g->begin_ns;
    if (hearth_scheduler_get_stats(served->scheduler).n_waiting >= served->engine->max_waiting)
        problem_set(&p, 429, "", "%u requests wait already", served->engine->max_waiting);
    else if (prepare(g, &p) && g->echo && g->probs.wanted && !prompt_scores_open(g))
        problem_set(&p, 503, "", "out of memory");
    if (p.status) {
        generation_refuse(g, &p);
        return;
    }
    g->next = served->generations;
    served->generations = g;
    /* What the scheduler refuses ends the call by generations_tend, with the choices that it has. */
    if (!g->scores && !begin(g, &g->problem)) g->is_broken = true;
    else if (g->is_stream && !g->scores) begin_stream(g);
}

/* Part of the prompts was evaluated for their probabilities; the answer begins behind the last one. */
static void go_on_scoring(generation *g)
{
    if (prompt_scores_go_on(g)) return;
    prompt_scores_close(g->scores);
    g->scores = NULL;
    if (g->problem.status) g->is_broken = true;
    if (g->is_stream && !g->is_broken) begin_stream(g);
    if (!g->is_broken && !begin(g, &g->problem)) g->is_broken = true;
}

/* Choices that wait for the first token of another one, whose prompt they share, begin. */
static void begin_others(generation *g)
{
    hearth_error err;
    for (size_t i = 0; i < generation_count(g) && !g->is_broken; i++) {
        choice *c = &g->choices[i], *first = &g->choices[c->i_prompt * g->n_choice];
        if (c == first || c->id || c->finish || (first->n_generated == 0 && !first->finish)) continue;
        if (begin_choice(c, &err) == HEARTH_OK) continue;
        problem_of_error(&g->problem, &err);
        g->is_broken = true;
    }
}

/* Cancels all choices. Those that the scheduler does not have are over with it. */
static void cancel(generation *g)
{
    size_t n = generation_count(g), n_idle = n - g->n_begun, n_left = n - n_idle - g->n_over;
    hearth_scheduler *s = g->served->scheduler;
    uint64_t ids[MAX_CHOICES * MAX_PROMPTS];
    for (size_t i = 0; i < n; i++) ids[i] = g->choices[i].id;
    g->is_broken = true;
    g->n_begun = n;
    for (size_t i = 0; i < n_idle; i++) count_over(g);
    if (n_left == 0) return; /* g is freed */
    for (size_t i = 0; i < n; i++)
        if (ids[i]) hearth_scheduler_cancel(s, ids[i]);
}

static void pause(generation *g, bool is_paused)
{
    for (size_t i = 0; i < generation_count(g); i++)
        if (g->choices[i].id) hearth_scheduler_pause(g->served->scheduler, g->choices[i].id, is_paused);
}

/* A request that took too long ends with an error, which says so. */
static void cancel_late(generation *g)
{
    problem_set(&g->problem, 408, "",
                "the answer took longer than %.6g seconds, the limit of this server; ask for fewer tokens",
                (double)g->served->engine->max_request_ns * 1e-9);
    cancel(g);
}

uint64_t generations_tend(served_model *served)
{
    uint64_t next_ns = UINT64_MAX, now = hth_clock_ns();
    for (generation *g = served->generations, *next; g; g = next) {
        next = g->next;
        uint64_t end_ns = served->engine->max_request_ns > 0
                              ? g->call->submit_ns + served->engine->max_request_ns
                              : UINT64_MAX;
        if (call_is_cancelled(g->call) || g->is_broken) {
            cancel(g);
        } else if (now >= end_ns) {
            cancel_late(g);
        } else {
            pause(g, call_is_paused(g->call));
            if (progress_is_wanted(g)) progress_look(g);
            if (g->scores) go_on_scoring(g), next_ns = now;
            else if (g->n_begun < generation_count(g)) begin_others(g);
            if (end_ns < next_ns) next_ns = end_ns;
        }
    }
    return next_ns;
}

void generations_cancel_all(served_model *served)
{
    while (served->generations) cancel(served->generations);
}
