/* The loop of the engine thread (exchange.h). */
#include "serve/api/generation.h"

#include "base/thread.h"
#include "common/output.h"
#include "engine/engine.h"

#include <stdio.h>

static bool open_all(engine *e)
{
    hearth_error err;
    uint64_t hash;
    if (!e->load(e->load_user, e)) return false;
    if (hearth_scheduler_open(e->model, &e->scheduling, &e->scheduler, &err) != HEARTH_OK ||
        (e->kept && hearth_scheduler_restore(e->scheduler, e->kept, &err) != HEARTH_OK)) {
        report(&err);
        return false;
    }
    hearth_model_get_info(e->model, &e->info);
    if (hth_model_hash(e->model->file, &hash, &err) == HEARTH_OK)
        snprintf(e->digest, sizeof e->digest, "%016llx", (unsigned long long)hash);
    if (!live_figures_open(e)) {
        report_text("out of memory");
        return false;
    }
    /* A model without a chat template serves all that needs none. */
    if (hearth_chat_open(e->model, NULL, &e->chat, &e->chat_error) != HEARTH_OK) e->chat = NULL;
    return true;
}

/* Saves what was kept, for the next run. */
static void keep(const engine *e)
{
    hearth_error err;
    if (e->kept && hearth_scheduler_save(e->scheduler, e->kept, e->kept_size, &err) != HEARTH_OK)
        print_warning("the cache of requests was not saved: %s", err.message);
}

static void *run(void *arg)
{
    engine *e = arg;
    exchange *x = server_exchange(e->server);
    e->failed = !open_all(e);
    if (e->failed) {
        server_stop(e->server);
        return NULL;
    }
    server_set_ready(e->server);
    if (e->on_ready) e->on_ready(e);
    for (;;) {
        uint64_t seen = exchange_changes(x);
        clear_interrupt(); /* from here on a call that is cancelled ends the step */
        for (call *c = exchange_take(x); c; c = exchange_take(x)) c->run(c->user, c);
        uint64_t end_ns = generations_tend(e);
        if (tasks_go_on(&e->tasks)) end_ns = 0; /* do not wait */
        live_figures_take(e, false);
        bool has_stepped = hearth_scheduler_step(e->scheduler);
        const hearth_scheduler_stats stats = hearth_scheduler_get_stats(e->scheduler);
        figures_update(&e->figures, &stats);
        if (has_stepped) continue;
        live_figures_take(e, true);
        if (exchange_is_closed(x)) break;
        exchange_wait(x, seen, end_ns);
    }
    keep(e);
    return NULL;
}

bool engine_start(engine *e) { return hth_thread_start(&e->thread, run, e); }

void engine_stop(engine *e)
{
    exchange_close(server_exchange(e->server));
    pthread_join(e->thread, NULL);
    generations_cancel_all(e);
    tasks_end(&e->tasks);
    hearth_scheduler_close(e->scheduler);
    hearth_chat_close(e->chat);
    hearth_model_close(e->draft);
    hearth_model_close(e->model);
    live_figures_close(&e->live);
}

uint32_t engine_n_ctx(const engine *e)
{
    return hth_context_for(&e->model->model->hparams, e->scheduling.n_ctx);
}
