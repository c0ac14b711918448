/* Tells streams how far their prompts are. */
#include "serve/api/progress.h"

#include "base/clock.h"

bool progress_is_wanted(const generation *g)
{
    return g->each_progress && g->is_streaming && g->format->progress;
}

/* First with what was found of an earlier request. A request that was preempted says nothing until it is farther than
 * before. */
static void tell(choice *c, hearth_request_progress p)
{
    generation *g = c->generation;
    uint32_t n = p.n_evaluated;
    if (!c->has_progress) {
        p.n_evaluated = c->n_evaluated = p.n_cached;
        c->has_progress = true;
        g->format->progress(c, &p);
    }
    if (n <= c->n_evaluated) return;
    p.n_evaluated = c->n_evaluated = n;
    g->format->progress(c, &p);
}

void progress_look(generation *g)
{
    hearth_request_progress p = {0};
    for (size_t i = 0; i < generation_count(g); i++) {
        choice *c = &g->choices[i];
        bool is_known =
            c->id && c->n_generated == 0 && hearth_scheduler_get_progress(g->served->scheduler, c->id, &p);
        if (is_known && p.is_running) tell(c, p);
    }
}

void progress_complete(choice *c)
{
    uint32_t n = (uint32_t)c->generation->prompts.at[c->i_prompt].n;
    tell(c, (hearth_request_progress){.n_prompt = n, .n_cached = (uint32_t)c->n_cached, .n_evaluated = n});
}

void progress_write(json *j, const generation *g, const hearth_request_progress *progress)
{
    json_open_compact(j, "prompt_progress", '{');
    json_uint(j, "total", progress->n_prompt);
    json_uint(j, "cache", progress->n_cached);
    json_uint(j, "processed", progress->n_evaluated);
    json_float(j, "time_ms", hth_clock_since(g->begin_ns) * 1e3, 6);
    json_close(j, '}');
}
