/* Decides, with several models, which calls run, which model is loaded next, and which models leave for it.
 *
 * Calls are taken in their order. One whose model is loaded runs at once, unless an older one has waited for another model
 * for TURN_NS: then it waits behind it, so that the loaded models come to have no requests, and leave. A model with
 * requests never leaves; of the others the one that was used least recently does. So no call waits for ever, and models
 * that are asked for in turns are not loaded for each call. */
#include "serve/large_call.h"

#include "base/clock.h"
#include "common/output.h"
#include "serve/api/generation.h"

#include <string.h>

#define TURN_NS (10 * (uint64_t)1000000000)

/* ---- the model of a call --------------------------------------------------------------------------------------- */

/* Requests that name no model are for the first one that is loaded. */
static served_model *default_model(const engine *e)
{
    served_model *m = engine_next_loaded(e, NULL);
    return m ? m : &e->models[0];
}

/* NULL: the call was ended, and may be gone. The only model has any name. */
static served_model *model_of(const engine *e, call *c)
{
    fields f;
    problem p;
    const char *name = NULL;
    served_model *m = NULL;
    if (e->n_model == 1) return &e->models[0];
    bool ok = fields_read(c, &f, &p) && fields_word(&f, "model", &name);
    if (ok && !name && c->form == FORM_OLLAMA) ok = fields_word(&f, "name", &name); /* older clients send it */
    if (ok) m = name ? engine_find(e, name, strlen(name), true) : default_model(e);
    if (ok && !m) problem_no_model(&p, e, name);
    if (!m) call_problem(c, &p);
    return m;
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

static size_t count_loaded(const engine *e)
{
    size_t n = 0;
    for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m)) n++;
    return n;
}

/* Models share no device: each plans for all of its memory. */
static bool uses_device(const engine *e)
{
    for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m))
        if (m->info.gpu) return true;
    return false;
}

/* The one that was used least recently, of those without requests; NULL: all have some. */
static served_model *find_idle(const engine *e)
{
    served_model *best = NULL;
    for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m))
        if (!served_model_is_busy(m) && (!best || m->used_ns < best->used_ns)) best = m;
    return best;
}

static void unload(engine *e, served_model *m)
{
    hearth_scheduler_stats stats = {0};
    (void)hearth_scheduler_get_stats(m->scheduler, &stats);
    figures_add(&e->ended, &stats);
    e->ended.n_page = e->ended.n_page_used = 0;
    served_model_keep(m, NULL, NULL);
    served_model_close(m);
    print_status("%s has left the memory", m->id);
}

/* Unloads models until the next one can be loaded. False: those that are left have requests. */
static bool make_room(engine *e, served_model *next)
{
    for (;;) {
        size_t n = count_loaded(e);
        if (n == 0) return true;
        if (n < e->max_loaded && !next->needs_room && !uses_device(e)) {
            if (e->fits(e->user, next)) return true;
            next->needs_room = true;
        }
        served_model *m = find_idle(e);
        if (!m) return false;
        unload(e, m);
        next->needs_room = false;
    }
}

/* Ends all calls that wait for a model. */
static void refuse_all(engine *e, const served_model *m, const problem *p)
{
    for (call **at = &e->waiting; *at;) {
        call *c = *at;
        if (c->user != m) {
            at = &c->next_queued;
            continue;
        }
        *at = c->next_queued;
        call_problem(c, p);
    }
}

static void describe_failure(problem *p, const served_model *m, const hearth_error *err)
{
    problem reason;
    problem_of_error(&reason, err);
    problem_set(p, reason.status == 500 ? 503 : reason.status, "model", "the model %s cannot be loaded: %s",
                m->id, reason.message);
}

/* Loads a model, or ends the calls that wait for it; or finds that others have to leave first. */
static void load(engine *e, served_model *m)
{
    hearth_error err;
    problem p;
    clear_interrupt();
    hearth_status st = served_model_open(m, &err);
    if (st == HEARTH_OK) {
        e->on_loaded(m);
    } else if (atomic_load(&e->stops)) {
        return; /* the calls that wait end by that */
    } else if (st == HEARTH_ERROR_MEMORY && count_loaded(e) > 0) {
        m->needs_room = true;
    } else {
        report(&err);
        describe_failure(&p, m, &err);
        refuse_all(e, m, &p);
    }
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

static void take_calls(engine *e)
{
    call **end = &e->waiting, *c;
    while (*end) end = &(*end)->next_queued;
    while ((c = exchange_take(server_exchange(e->server)))) {
        served_model *m = model_of(e, c);
        if (!m) continue; /* the call may be gone */
        c->user = m;
        atomic_store(&c->model, m->id);
        if (c->run == ollama_show_run) { /* needs what is known of the file alone */
            c->run(m, c);
            continue;
        }
        *end = c;
        end = &c->next_queued;
    }
}

static bool is_late(const engine *e, const call *c, uint64_t now, problem *p)
{
    bool late = e->max_request_ns > 0 && now - c->submit_ns >= e->max_request_ns;
    if (late)
        problem_set(p, 408, "", "the request waited longer than %.6g seconds, the limit of this server",
                    (double)e->max_request_ns * 1e-9);
    return late;
}

/* Sets *p if a waiting call must end: it is late, or the server stops and does not load its model. */
static void find_end(const engine *e, const call *c, uint64_t now, problem *p)
{
    const served_model *m = c->user;
    if (!is_late(e, c, now, p) && !m->is_loaded && atomic_load(&e->stops)) problem_set(p, 503, "", "the server stops");
}

/* The turn of a call on the reader's thread. */
static void run_large(void *user, call *c)
{
    const served_model *m = user;
    problem p;
    if (call_is_cancelled(c)) call_break(c);
    else if (is_late(m->engine, c, hth_clock_ns(), &p)) call_problem(c, &p);
    else c->run(user, c);
}

/* How long its body is tells how long it takes; in the Responses API it may name stored items of any size. */
static bool is_large(const call *c)
{
    return c->n_body > CALL_LARGE || c->run == responses_run || c->run == responses_count_run;
}

static void run_call(served_model *m, call *c)
{
    problem p = {0};
    if (!is_large(c)) {
        c->run(m, c);
        return;
    }
    if (generation_has_room(m, &p) && !large_call_begin(m, c, run_large, m))
        problem_set(&p, 503, "", "out of memory");
    if (p.status) call_problem(c, &p);
}

/* Runs the calls whose turn it is. Returns the model that the oldest of the others waits for; NULL: none is to be loaded.
 * *late_ns: when the next one has waited too long. */
static served_model *run_queue(engine *e, uint64_t *late_ns)
{
    uint64_t now = hth_clock_ns();
    served_model *next = NULL;
    bool is_held = false;
    uint32_t n_waiting = 0, most = engine_max_requests(e);
    problem p;
    for (call **at = &e->waiting; *at;) {
        call *c = *at;
        served_model *m = c->user;
        bool is_over = call_is_cancelled(c), runs = m->is_loaded && !is_held;
        p.status = 0;
        if (!runs) find_end(e, c, now, &p);
        if (!is_over && !runs && !p.status && n_waiting >= most)
            problem_set(&p, 429, "", "%u requests wait already", most);
        if (!is_over && !runs && !p.status) {
            n_waiting++;
            if (!m->is_loaded && !next) next = m;
            is_held |= !m->is_loaded && now - c->submit_ns >= TURN_NS;
            if (e->max_request_ns > 0 && c->submit_ns + e->max_request_ns < *late_ns)
                *late_ns = c->submit_ns + e->max_request_ns;
            at = &c->next_queued;
            continue;
        }
        *at = c->next_queued; /* from here on the call may be gone */
        if (is_over) {
            call_break(c);
        } else if (p.status) {
            call_problem(c, &p);
        } else {
            m->used_ns = now;
            run_call(m, c);
        }
    }
    return next;
}

static bool is_waited_for(const engine *e, const served_model *m)
{
    const call *c = e->waiting;
    while (c && c->user != m) c = c->next_queued;
    return c != NULL;
}

/* Models that a client does not want any more; the next request loads them again. */
static void unload_leaving(engine *e)
{
    for (served_model *m = engine_next_loaded(e, NULL), *next; m; m = next) {
        next = engine_next_loaded(e, m);
        if (!m->leaves || served_model_is_busy(m) || is_waited_for(e, m)) continue;
        m->leaves = false;
        unload(e, m);
    }
}

uint64_t engine_run_calls(engine *e)
{
    uint64_t late_ns;
    served_model *next;
    large_calls_go_on(e);
    take_calls(e);
    do {
        late_ns = UINT64_MAX;
        next = run_queue(e, &late_ns);
        if (next && !make_room(e, next)) break;
        if (next) load(e, next);
    } while (next);
    unload_leaving(e);
    return late_ns;
}

bool engine_can_go_on(const engine *e) { return e->waiting && find_idle(e); }

void engine_drop_calls(engine *e)
{
    for (call *c = e->waiting, *next; c; c = next) {
        next = c->next_queued;
        call_break(c);
    }
    e->waiting = NULL;
}
