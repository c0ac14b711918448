/* Takes and writes the figures of a model at work. Clients show differences of two samples, so that the server keeps
 * none, and several clients may ask. Counting active neurons costs a pass over them, so it is done only while /stats is
 * asked for. */
#include "serve/live_figures.h"

#include "base/clock.h"
#include "serve/api/generation.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t second = 1000000000u;

bool live_figures_open(served_model *m)
{
    live_figures *f = &m->live;
    pthread_mutex_init(&f->lock, NULL);
    f->n_layer = m->info.n_layer;
    f->layers = calloc(f->n_layer, sizeof *f->layers);
    f->shares = calloc(f->n_layer, sizeof *f->shares);
    f->counted = calloc(f->n_layer, sizeof *f->counted);
    if (!f->layers || !f->shares || !f->counted) return false;
    live_figures_take(m, true);
    return true;
}

void live_figures_close(live_figures *f)
{
    if (f->n_layer == 0) return;
    pthread_mutex_destroy(&f->lock);
    free(f->layers);
    free(f->shares);
    free(f->counted);
    memset(f, 0, sizeof *f);
}

/* ---- the engine thread ------------------------------------------------------------------------------------------- */

/* From zero each time: clients see that the number of tokens fell. */
static void count_neurons(served_model *m, uint64_t time)
{
    live_figures *f = &m->live;
    uint64_t asked = atomic_load(&f->asked_ns);
    bool is_asked = asked > 0 && (time < asked || time - asked < 10 * second);
    if (!m->info.sparse_activation || f->is_counting == is_asked) return;
    hearth_scheduler_enable_sparsity_stats(m->scheduler, is_asked);
    f->is_counting = is_asked;
}

/* The choices of an answer that the scheduler has. */
static void take_choices(const served_model *m, const generation *g, live_request *out, uint32_t *n_taken)
{
    for (size_t i = 0; i < generation_count(g) && *n_taken < LIVE_MAX_REQUESTS; i++) {
        live_request *r = &out[*n_taken];
        uint64_t id = g->choices[i].id;
        if (!id || !hearth_scheduler_get_progress(m->scheduler, id, &r->progress)) continue;
        memcpy(r->name, g->name, sizeof r->name);
        r->i_key = g->call->i_key;
        ++*n_taken;
    }
}

/* The oldest answers: they are at the end of the list. */
static uint32_t take_requests(const served_model *m, live_request *out)
{
    uint32_t n = 0, i = 0;
    for (const generation *g = m->generations; g; g = g->next) n++;
    uint32_t n_skip = n > LIVE_MAX_REQUESTS ? n - LIVE_MAX_REQUESTS : 0, n_taken = 0;
    for (const generation *g = m->generations; g; g = g->next, i++)
        if (i >= n_skip) take_choices(m, g, out, &n_taken);
    return n_taken;
}

void live_figures_take(served_model *m, bool now)
{
    live_figures *f = &m->live;
    uint64_t time = hth_clock_ns();
    count_neurons(m, time);
    if (!now && time - f->counts.time_ns < second / 10) return;
    uint64_t n_token = f->is_counting ? hearth_scheduler_sparsity_stats(m->scheduler, f->counted) : 0;
    pthread_mutex_lock(&f->lock);
    live_counts *c = &f->counts;
    c->time_ns = time;
    (void)hearth_scheduler_get_stats(m->scheduler, &c->scheduler);
    c->is_streamed = hearth_model_get_storage(m->model, &c->storage);
    for (uint32_t i = 0; c->is_streamed && i < f->n_layer; i++) {
        hearth_storage_stats layer = {0};
        hearth_model_get_layer_storage(m->model, i, &layer);
        f->layers[i][0] = layer.n_hit, f->layers[i][1] = layer.n_miss;
    }
    c->n_token = n_token;
    if (n_token > 0) memcpy(f->shares, f->counted, f->n_layer * sizeof *f->shares);
    c->n_request = take_requests(m, c->requests);
    pthread_mutex_unlock(&f->lock);
}

/* ---- the network thread ------------------------------------------------------------------------------------------ */

static void write_requests(json *j, const live_counts *c)
{
    json_open_compact(j, "requests", '[');
    for (uint32_t i = c->n_request; i-- > 0;) {
        const live_request *r = &c->requests[i];
        const hearth_request_progress *p = &r->progress;
        bool is_read = p->n_evaluated >= p->n_prompt || p->n_generated > 0;
        bool begins = c->scheduler.n_running == 0 && p->n_before == 0; /* with the step that runs now */
        json_open_compact(j, NULL, '{');
        json_word(j, "id", r->name);
        json_uint(j, "key", r->i_key);
        json_word(j, "state", !p->is_running && !begins ? "waiting" : is_read ? "generating" : "prompt");
        json_uint(j, "before", p->n_before);
        json_uint(j, "prompt_tokens", p->n_prompt);
        json_uint(j, "cached_tokens", p->n_cached);
        json_uint(j, "evaluated_tokens", p->n_evaluated);
        json_uint(j, "generated_tokens", p->n_generated);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void write_scheduler(json *j, const hearth_scheduler_stats *s)
{
    json_uint(j, "waiting", s->n_waiting);
    json_uint(j, "running", s->n_running);
    json_uint(j, "kept", s->n_kept);
    json_uint(j, "preempted", s->n_preempted);
    json_uint(j, "pages", s->n_page);
    json_uint(j, "pages_used", s->n_page_used);
    json_uint(j, "prompt_tokens", s->n_prompt);
    json_uint(j, "cached_tokens", s->n_cached);
    json_uint(j, "generated_tokens", s->n_generated);
}

/* Writes for each layer its share of active neurons times the tokens. A client gets the share of an interval from two
 * answers: the difference of these values divided by the difference of the tokens. */
static void write_neurons(json *j, const live_figures *f)
{
    if (f->counts.n_token == 0) return;
    json_open_compact(j, "neurons", '{');
    json_uint(j, "tokens", f->counts.n_token);
    json_open_compact(j, "layers", '[');
    for (uint32_t i = 0; i < f->n_layer; i++)
        json_float(j, NULL, f->shares[i] * (double)f->counts.n_token, 12);
    json_close(j, ']');
    json_close(j, '}');
}

static void write_storage(json *j, const served_model *m)
{
    const live_figures *f = &m->live;
    const hearth_storage_stats *s = &f->counts.storage;
    if (!f->counts.is_streamed) return;
    json_open_compact(j, "storage", '{');
    json_word(j, "reader", m->info.reader ? m->info.reader : "");
    json_uint(j, "parts", m->info.n_streamed);
    json_uint(j, "hits", s->n_hit);
    json_uint(j, "misses", s->n_miss);
    json_uint(j, "guesses", s->n_guess);
    json_uint(j, "guesses_used", s->n_guess_used);
    json_uint(j, "read_bytes", s->read_bytes);
    json_uint(j, "stalls", s->n_stall);
    json_float(j, "stall_seconds", s->stall_seconds, 12);
    json_uint(j, "cache_bytes", s->cache_bytes);
    json_open_compact(j, "layers", '[');
    for (uint32_t i = 0; i < f->n_layer; i++) {
        json_open_compact(j, NULL, '[');
        json_uint(j, NULL, f->layers[i][0]);
        json_uint(j, NULL, f->layers[i][1]);
        json_close(j, ']');
    }
    json_close(j, ']');
    json_close(j, '}');
}

void live_figures_write(served_model *m, json *j)
{
    live_figures *f = &m->live;
    uint64_t now = hth_clock_ns();
    atomic_store(&f->asked_ns, now);
    pthread_mutex_lock(&f->lock);
    /* Without requests nothing changes: what was noted then is so now. */
    bool is_idle = f->counts.scheduler.n_running + f->counts.scheduler.n_waiting == 0;
    json_float(j, "seconds", (double)(is_idle ? now : f->counts.time_ns) * 1e-9, 12);
    write_scheduler(j, &f->counts.scheduler);
    write_requests(j, &f->counts);
    write_neurons(j, f);
    write_storage(j, m);
    pthread_mutex_unlock(&f->lock);
}

bool live_figures_add_storage(served_model *m, hearth_storage_stats *sum)
{
    live_figures *f = &m->live;
    pthread_mutex_lock(&f->lock);
    const hearth_storage_stats s = f->counts.storage;
    bool is_streamed = f->counts.is_streamed;
    pthread_mutex_unlock(&f->lock);
    if (!is_streamed) return false;
    sum->n_hit += s.n_hit, sum->n_miss += s.n_miss;
    sum->read_bytes += s.read_bytes, sum->stall_seconds += s.stall_seconds;
    return true;
}
