/* Asks the worker for the constraint of an answer, then the scheduler for its choices, and gives them their tokens. */
#define _GNU_SOURCE
#include "serve/api/choice.h"

#include "base/clock.h"
#include "serve/api/progress.h"
#include "serve/api/prompt_scores.h"
#include "serve/large_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The job of the worker that compiles the constraint of a generation. */
struct compiling {
    worker_job job;
    const generation *generation;
    hearth_constraint *made; /* NULL: the problem says why */
    problem problem;
};

const char *finish_word(finish_reason f)
{
    return f == FINISH_LENGTH ? "length" : f == FINISH_CALLS ? "tool_calls" : "stop";
}

/* ---- a generation ------------------------------------------------------------------------------------------ */

generation *generation_make(served_model *served, call *c, const answer_format *format, fields *f, problem *p)
{
    bool ok = fields_read(c, f, p);
    if (ok && served_model_is_reranker(served)) {
        problem_set(p, 400, "", "this model is a reranker and writes no text: POST /v1/rerank scores documents");
        ok = false;
    }
    generation *g = ok ? calloc(1, sizeof *g) : NULL;
    if (ok && !g) fields_no_memory(f);
    if (!g) {
        call_problem(c, p);
        return NULL;
    }
    *g = (generation){.served = served,
                      .call = c,
                      .format = format,
                      .created = (int64_t)time(NULL),
                      .sampler = served->sampling,
                      .max_token = served->engine->max_token ? served->engine->max_token : format->max_token,
                      .goes_on = format->continues,
                      .n_choice = 1,
                      .begin_ns = hth_clock_ns()};
    g->sampler.seed = served->engine->has_seed ? served->engine->seed : random_number() >> 1;
    snprintf(g->name, sizeof g->name, "%s%016llx%016llx", format->prefix, (unsigned long long)random_number(),
             (unsigned long long)random_number());
    return g;
}

size_t generation_count(const generation *g) { return g->choices ? g->prompts.n * g->n_choice : 0; }

void generation_free(generation *g)
{
    for (size_t i = 0; i < generation_count(g); i++) choice_close(&g->choices[i]);
    prompt_list_free(&g->prompts);
    prompt_scores_close(g->scores);
    free(g->choices);
    free(g->functions);
    free(g->called);
    item_list_free(g->served->engine->responses, &g->items);
    free(g->biases);
    free(g);
}

void generation_refuse(generation *g, const problem *p)
{
    call_problem(g->call, p);
    generation_free(g);
}

void generation_keep_model(const generation *g)
{
    if (g->keep != KEEP_AS_IT_WAS) g->served->leaves = g->keep == KEEP_UNTIL_IDLE;
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

/* Sums the cached tokens over the prompts; each prompt counts what its first choice found in the cache. */
size_t generation_n_cached(const generation *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->prompts.n; i++) n += g->choices[i * g->n_choice].n_cached;
    return n;
}

static double rate(size_t n, double seconds) { return seconds > 0.0 ? (double)n / seconds : 0.0; }

/* Lists the keywords of schemas that were left to the client, if there are any. */
static void write_notes(json *j, const generation *g)
{
    const char *notes = generation_count(g) > 0 ? hearth_constraint_get_notes(g->choices[0].constraint) : "";
    if (!*notes) return;
    json_open_compact(j, "warnings", '[');
    for (size_t n; *notes; notes += n + 1) {
        n = strcspn(notes, "\n");
        json_text(j, NULL, notes, n);
    }
    json_close(j, ']');
}

void generation_write_timings(json *j, const generation *g)
{
    double before = (double)(g->first_ns - g->begin_ns) * 1e-9,
           rest = (double)(g->last_ns - g->first_ns) * 1e-9;
    size_t n_generated = generation_n_generated(g), n_cached = generation_n_cached(g),
           n_prompt = generation_n_prompt(g) - n_cached, n_step = n_generated > 0 ? n_generated - 1 : 0;
    json_open_compact(j, "timings", '{');
    json_uint(j, "cache_n", n_cached);
    json_uint(j, "prompt_n", n_prompt);
    json_float(j, "prompt_ms", before * 1e3, 6);
    json_float(j, "prompt_per_token_ms", rate(1, (double)n_prompt) * before * 1e3, 6);
    json_float(j, "prompt_per_second", rate(n_prompt, before), 6);
    json_uint(j, "predicted_n", n_generated);
    json_float(j, "predicted_ms", rest * 1e3, 6);
    json_float(j, "predicted_per_token_ms", rate(1, (double)n_step) * rest * 1e3, 6);
    json_float(j, "predicted_per_second", rate(n_step, rest), 6);
    hearth_draft_stats draft = {0};
    for (size_t i = 0; i < generation_count(g); i++)
        draft.n_drafted += g->choices[i].draft.n_drafted, draft.n_accepted += g->choices[i].draft.n_accepted;
    if (draft.n_drafted > 0) {
        json_uint(j, "draft_n", draft.n_drafted);
        json_uint(j, "draft_n_accepted", draft.n_accepted);
    }
    json_close(j, '}');
    json_uint(j, "seed", g->sampler.seed);
    write_notes(j, g);
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

static void take_token(choice *c, const hearth_request_event *e)
{
    generation *g = c->generation;
    uint64_t now = hth_clock_ns();
    figures *seen = &g->served->engine->figures;
    if (generation_n_generated(g) == 0)
        g->first_ns = now, figures_add_seconds(&seen->first_token, now - g->call->submit_ns);
    else if (g->n_choice * g->prompts.n == 1) figures_add_seconds(&seen->next_token, now - g->last_ns);
    g->last_ns = now;
    if (c->n_generated == 0 && progress_is_wanted(g)) progress_complete(c);
    choice_take(c, e->token, e->logits);
}

/* max_token or the context is reached; without a token it is the prompt that has ended. */
static void take_length(choice *c)
{
    generation *g = c->generation;
    if (generation_n_generated(g) == 0) g->first_ns = g->last_ns = hth_clock_ns();
    if (c->n_generated == 0 && progress_is_wanted(g)) progress_complete(c);
    choice_end(c, FINISH_LENGTH);
}

static bool take_event(void *user, const hearth_request_event *e)
{
    choice *c = user;
    generation *g = c->generation;
    c->n_cached = e->n_cached, c->draft = e->draft;
    switch (e->state) {
    case HEARTH_REQUEST_TOKEN: take_token(c, e); return !c->is_stopped && !g->is_broken;
    case HEARTH_REQUEST_END:
    case HEARTH_REQUEST_STOP_TEXT:
    case HEARTH_REQUEST_STOPPED: choice_end(c, FINISH_STOP); break;
    case HEARTH_REQUEST_LENGTH: take_length(c); break;
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
                              .prompt_only = g->prompt_only,
                              .ignore_end = g->ignore_end,
                              .sampler = &c->sampler,
                              .constraint = c->constraint,
                              .owner = g->call->owner,
                              .fn = take_event,
                              .user = c};
    hearth_status st = hearth_scheduler_add(served->scheduler, &r, &c->id, err);
    if (st == HEARTH_OK) g->n_begun++;
    return st;
}

static bool prepare(generation *g, hearth_constraint *constraint, problem *p)
{
    hearth_error err = {0};
    size_t n = g->prompts.n * g->n_choice;
    g->choices = calloc(n, sizeof *g->choices);
    hearth_status st = g->choices ? HEARTH_OK : HEARTH_ERROR_MEMORY;
    if (!g->choices) snprintf(err.message, sizeof err.message, "out of memory"), err.status = st;
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) st = choice_open(g, i, constraint, &err);
    if (st != HEARTH_OK) problem_of_error(p, &err);
    return st == HEARTH_OK;
}

/* The first choice of each prompt is given to the scheduler; others follow when its first token came. */
static bool begin_first(generation *g)
{
    hearth_error err;
    for (size_t i = 0; i < g->prompts.n; i++) {
        if (begin_choice(&g->choices[i * g->n_choice], &err) == HEARTH_OK) continue;
        problem_of_error(&g->problem, &err);
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

/* Ends all choices of a request that asks only for the probabilities of its prompts, which were evaluated before. */
static void end_scored(generation *g)
{
    size_t n = generation_count(g);
    g->n_begun = n;
    for (size_t i = 0; i < n; i++) {
        take_length(&g->choices[i]);
        count_over(g); /* the last one frees g */
    }
}

/* Gives the choices to the scheduler. If it refuses one, generations_tend ends the call. A stream begins only when
 * nothing was refused, so that an error has its HTTP status. */
static void begin_choices(generation *g)
{
    bool is_scored = g->prompt_only && g->echo && g->probs.wanted;
    if (!is_scored && !begin_first(g)) {
        g->is_broken = true;
        return;
    }
    if (g->is_stream) begin_stream(g);
    for (size_t i = 0; g->echo && !g->is_broken && i < generation_count(g); i++)
        if (!choice_repeat_prompt(&g->choices[i])) g->is_broken = true;
    if (is_scored && !g->is_broken) end_scored(g);
}

/* The constraint is there, or none is wanted: the answer begins, or the call ends by what is wrong. */
static void start_generation(generation *g, hearth_constraint *constraint)
{
    problem p = {0};
    if (prepare(g, constraint, &p) && g->echo && g->probs.wanted && !prompt_scores_open(g))
        problem_set(&p, 503, "", "out of memory");
    if (p.status) {
        unlink_generation(g);
        generation_refuse(g, &p);
        return;
    }
    if (!g->scores) begin_choices(g);
}

/* ---- constraints ---------------------------------------------------------------------------------------------- */

/* Requests that came since the last step wait in the scheduler until the next one, whatever room a step has, so that
 * those that run and those that wait are counted together. */
bool generation_has_room(const served_model *served, problem *p)
{
    hearth_scheduler_stats stats = {0};
    const uint32_t most = engine_max_requests(served->engine);
    (void)hearth_scheduler_get_stats(served->scheduler, &stats);
    size_t n = (size_t)stats.n_waiting + stats.n_running + tasks_count(served->tasks) + served->n_large;
    for (const generation *g = served->generations; g; g = g->next) n += g->compiling || g->scores;
    if (n < most) return true;
    problem_set(p, 429, "", "%u requests run or wait already", most);
    return false;
}

/* On the worker's thread, which reads of the generation what does not change meanwhile. */
static void compile(worker_job *j)
{
    struct compiling *c = (struct compiling *)j;
    const generation *g = c->generation;
    wanted_constraint_open(&g->constraint, g->served->model, g->format->continues ? NULL : g->served->chat,
                           g->in_reasoning, &c->made, &c->problem);
}

static void start_request(void *object)
{
    generation *g = object;
    served_model *served = g->served;
    problem p = {0};
    generation_keep_model(g);
    g->first_ns = g->last_ns = g->begin_ns;
    if (generation_has_room(served, &p) && g->constraint.field &&
        !(g->compiling = calloc(1, sizeof *g->compiling)))
        problem_set(&p, 503, "", "out of memory");
    if (p.status) {
        generation_refuse(g, &p);
        return;
    }
    g->next = served->generations;
    served->generations = g;
    if (!g->compiling) {
        start_generation(g, NULL);
        return;
    }
    *g->compiling = (struct compiling){.job.run = compile, .generation = g};
    worker_add(served->engine->worker, &g->compiling->job);
}

void generation_start(generation *g) { call_go_on(g->call, start_request, g); }

/* The worker has given the job back: the answer begins, unless a problem or the client's end stands against it. */
static void end_compiling(generation *g, const problem *p)
{
    struct compiling *c = g->compiling;
    const problem found = p ? *p : c->problem;
    g->compiling = NULL;
    if (!call_is_cancelled(g->call) && !found.status) {
        start_generation(g, c->made);
    } else {
        unlink_generation(g);
        if (!call_is_cancelled(g->call)) {
            generation_refuse(g, &found);
        } else {
            call_break(g->call);
            generation_free(g);
        }
    }
    hearth_constraint_close(c->made);
    free(c);
}

/* Part of the prompts was evaluated for their probabilities; the answer begins behind the last one. */
static void go_on_scoring(generation *g)
{
    if (prompt_scores_go_on(g)) return;
    prompt_scores_close(g->scores);
    g->scores = NULL;
    if (g->problem.status) g->is_broken = true;
    if (!g->is_broken) begin_choices(g);
}

/* Whether a choice waited for the first token of another one, whose prompt it shares, and that is there or over. */
static bool may_begin(const choice *c)
{
    const generation *g = c->generation;
    const choice *first = &g->choices[c->i_prompt * g->n_choice];
    return c != first && !c->id && !c->finish && (first->n_generated > 0 || first->finish);
}

static void begin_others(generation *g)
{
    hearth_error err;
    for (size_t i = 0; i < generation_count(g) && !g->is_broken; i++) {
        choice *c = &g->choices[i];
        if (!may_begin(c)) continue;
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

static void pause_choices(generation *g, bool is_paused)
{
    for (size_t i = 0; i < generation_count(g); i++)
        if (g->choices[i].id) hearth_scheduler_pause(g->served->scheduler, g->choices[i].id, is_paused);
}

/* A request that took too long ends with an error, which says so. */
static void set_late(const generation *g, problem *p)
{
    problem_set(p, 408, "",
                "the answer took longer than %.6g seconds, the limit of this server; ask for fewer tokens",
                (double)g->served->engine->max_request_ns * 1e-9);
}

/* False: the worker has the constraint still, and wakes the engine when it has ended. */
static bool tend_compiling(generation *g, bool is_late)
{
    worker *w = g->served->engine->worker;
    struct compiling *c = g->compiling;
    problem late = {0};
    if (is_late) set_late(g, &late);
    bool is_over = is_late || call_is_cancelled(g->call);
    if (is_over ? !worker_take_back(w, &c->job) : !worker_has_ended(w, &c->job)) return false;
    end_compiling(g, is_late ? &late : NULL);
    return true;
}

uint64_t generations_tend(served_model *served)
{
    uint64_t next_ns = UINT64_MAX, now = hth_clock_ns();
    for (generation *g = served->generations, *next; g; g = next) {
        next = g->next;
        uint64_t end_ns = served->engine->max_request_ns > 0
                              ? g->call->submit_ns + served->engine->max_request_ns
                              : UINT64_MAX;
        if (g->compiling) {
            if (tend_compiling(g, now >= end_ns)) next_ns = now; /* it may have choices now */
            else if (end_ns > now && end_ns < next_ns) next_ns = end_ns;
        } else if (call_is_cancelled(g->call) || g->is_broken) {
            cancel(g);
        } else if (now >= end_ns) {
            set_late(g, &g->problem);
            cancel(g);
        } else {
            pause_choices(g, call_is_paused(g->call));
            if (progress_is_wanted(g)) progress_look(g);
            if (g->scores) go_on_scoring(g), next_ns = now;
            else if (g->n_begun < generation_count(g)) begin_others(g);
            if (end_ns < next_ns) next_ns = end_ns;
        }
    }
    return next_ns;
}

bool generations_go_on(const served_model *served)
{
    for (const generation *g = served->generations; g; g = g->next) {
        if (g->is_broken) return true;
        for (size_t i = 0; i < generation_count(g) && g->n_begun < generation_count(g); i++)
            if (may_begin(&g->choices[i])) return true;
    }
    return false;
}

void generations_cancel_all(served_model *served)
{
    for (generation *g = served->generations, *next; g; g = next) {
        next = g->next;
        if (!g->compiling) continue;
        worker_settle(served->engine->worker, &g->compiling->job);
        call_cancel(g->call);
        end_compiling(g, NULL);
    }
    while (served->generations) cancel(served->generations);
}
