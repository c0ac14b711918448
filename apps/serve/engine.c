/* The loop of the engine thread (exchange.h). */
#include "serve/api/generation.h"

#include "base/clock.h"
#include "base/thread.h"
#include "common/output.h"

void engine_init(engine *e) { pthread_mutex_init(&e->lock, NULL); }
void engine_lock(engine *e) { pthread_mutex_lock(&e->lock); }
void engine_unlock(engine *e) { pthread_mutex_unlock(&e->lock); }

uint32_t engine_max_requests(const engine *e) { return e->scheduling.n_running + e->max_waiting; }

served_model *engine_next_loaded(const engine *e, const served_model *after)
{
    for (size_t i = after ? (size_t)(after - e->models) + 1 : 0; i < e->n_model; i++)
        if (e->models[i].is_loaded) return &e->models[i];
    return NULL;
}

served_model *engine_find(const engine *e, const char *name, size_t n, bool with_tag)
{
    for (size_t i = 0; i < e->n_model; i++)
        if (served_model_is_called(&e->models[i], name, n, with_tag)) return &e->models[i];
    return NULL;
}

/* False: it cannot be loaded, and there is no other one. */
static bool begin_with(engine *e, served_model *first)
{
    hearth_error err;
    hearth_status st = served_model_open(first, &err);
    if (st != HEARTH_OK) report(&err);
    if (st != HEARTH_OK && e->n_model == 1) return false;
    server_set_ready(e->server);
    if (st == HEARTH_OK) e->on_loaded(first);
    e->on_ready();
    return true;
}

/* Between two steps. Returns when it is to be done again. */
static uint64_t tend(engine *e)
{
    uint64_t next_ns = UINT64_MAX;
    for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m)) {
        uint64_t end_ns = generations_tend(m);
        if (served_model_is_busy(m)) m->busy_ns = hth_clock_ns();
        if (tasks_go_on(&m->tasks)) end_ns = 0; /* do not wait */
        if (end_ns < next_ns) next_ns = end_ns;
        live_figures_take(m, false);
    }
    return next_ns;
}

/* A step of each model. False: none has one, nor is anything to be done before the next one. */
static bool step(engine *e)
{
    bool has_stepped = false;
    hearth_scheduler_stats sum = e->ended;
    for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m)) {
        bool more = false;
        (void)hearth_scheduler_step(m->scheduler, &more, NULL); /* cancelled: there are new calls to look at */
        has_stepped |= more;
        has_stepped |= generations_go_on(m);
        hearth_scheduler_stats stats = {0};
        (void)hearth_scheduler_get_stats(m->scheduler, &stats);
        figures_add(&sum, &stats);
    }
    figures_update(&e->figures, &sum);
    return has_stepped;
}

/* Lets is_idle stop the writing of a cache as soon as the engine has something else to do. */
typedef struct idle_work {
    exchange *exchange;
    uint64_t seen; /* exchange_changes before */
} idle_work;

static bool is_idle(void *user, uint64_t done, uint64_t total)
{
    const idle_work *w = user;
    (void)done, (void)total;
    return exchange_changes(w->exchange) == w->seen;
}

/* Writes the cache of models that had no request for a while. Returns when the next one is due (UINT64_MAX: none). */
static uint64_t keep_idle(engine *e, uint64_t seen)
{
    idle_work work = {server_exchange(e->server), seen};
    uint64_t next_ns = UINT64_MAX, now = hth_clock_ns();
    for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m)) {
        if (!m->kept || m->keep_failed || served_model_is_busy(m) ||
            !hearth_scheduler_has_unsaved(m->scheduler))
            continue;
        uint64_t due_ns = m->busy_ns + e->keep_ns;
        if (now >= due_ns) {
            served_model_keep(m, is_idle, &work);
            m->busy_ns = now = hth_clock_ns(); /* if it was interrupted, the rest waits as long again */
            continue;
        }
        if (due_ns < next_ns) next_ns = due_ns;
    }
    return next_ns;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void *run_engine(void *arg)
{
    engine *e = arg;
    exchange *x = server_exchange(e->server);
    e->failed = !begin_with(e, &e->models[0]);
    if (e->failed) {
        server_stop(e->server);
        return NULL;
    }
    for (;;) {
        uint64_t seen = exchange_changes(x);
        clear_interrupt(); /* from here on a call that is cancelled ends the step */
        uint64_t late_ns = engine_run_calls(e), end_ns = tend(e);
        if (step(e) || engine_can_go_on(e)) continue;
        for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m))
            live_figures_take(m, true);
        if (exchange_is_closed(x) && !e->large_calls) break;
        uint64_t keep_ns = keep_idle(e, seen);
        exchange_wait(x, seen, least(least(late_ns, end_ns), keep_ns));
    }
    for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m))
        served_model_keep(m, NULL, NULL);
    return NULL;
}

static void wake(void *user) { exchange_wake(user); }

static void close_helpers(engine *e)
{
    worker_close(e->worker);
    worker_close(e->reader);
    e->worker = e->reader = NULL;
    response_store_close(e->responses); /* jobs of the workers use it */
    e->responses = NULL;
}

bool engine_start(engine *e)
{
    e->worker = worker_open("hearth-opener", wake, server_exchange(e->server));
    e->reader = worker_open("hearth-prompts", wake, server_exchange(e->server));
    e->responses = response_store_open(e->responses_size);
    if (e->worker && e->reader && e->responses && hth_thread_start(&e->thread, run_engine, e, "hearth-engine"))
        return true;
    close_helpers(e);
    return false;
}

void engine_stop_loading(engine *e) { atomic_store(&e->stops, true); }

void engine_stop(engine *e)
{
    exchange_close(server_exchange(e->server));
    pthread_join(e->thread, NULL);
    engine_drop_calls(e);
    for (size_t i = 0; i < e->n_model; i++) served_model_close(&e->models[i]);
    close_helpers(e);
}
