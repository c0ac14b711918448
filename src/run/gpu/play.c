/* A step's tapes as they run: all are queued at once, and wait for the host's signals; or each is submitted
 * when the host is ready. Between them the host does what it has to (acts.c). */
#include "run/gpu/gpu_int.h"

/* What is given at once: while one half of what may wait is done, the other is given. */
enum { MOST_QUEUED = HTH_QUEUE_PENDING / 2 };

/* The first n tapes of the step under way are done. A device answers within its patience for some tapes; a
 * step may have many. */
static hearth_status await(hth_gpu *g, uint32_t n, hearth_error *err)
{
    enum { AT_ONCE = 16 };
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && g->n_done < n) {
        uint32_t next = n - g->n_done < AT_ONCE ? n : g->n_done + AT_ONCE;
        st = hth_queue_await(g->device, g->ticks[next - 1], g->patience_ns, err);
        if (st == HEARTH_OK) g->n_done = next;
    }
    return st;
}

/* The next tapes of the step, up to number `end`. Where they are more than can be held, the first must end
 * before the last may be given: none of them waits for the host. */
static hearth_status submit(hth_gpu *g, uint32_t end, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && g->n_sent < end) {
        uint32_t first = g->n_sent, n = end - first < MOST_QUEUED ? end - first : MOST_QUEUED;
        if (first + n > HTH_QUEUE_PENDING) st = await(g, first + n - HTH_QUEUE_PENDING, err);
        if (st == HEARTH_OK) st = hth_queue_submit(g->device, g->turns + first, n, g->ticks + first, err);
        if (st == HEARTH_OK) g->n_sent += n;
    }
    return st;
}

hearth_status hth_gpu_settle(hth_gpu *g, hearth_error *err)
{
    if (g->n_done == g->n_sent) return HEARTH_OK;
    hearth_status st = hth_queue_signal(g->device, g->gate, err);
    return st == HEARTH_OK ? await(g, g->n_sent, err) : st;
}

/* All acts; tapes are submitted as far as they can run, where they do not wait in the queue. */
static hearth_status do_acts(hth_gpu *g, hth_step *s, const hth_gpu_play *p, uint64_t before,
                             hearth_error *err)
{
    const hth_gpu_tapes *tapes = p->tapes;
    bool queued = g->n_sent >= tapes->n;
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0, seen = 0, end = 0; st == HEARTH_OK && i < tapes->n_act; i++) {
        const hth_gpu_act *act = &tapes->acts[i];
        while (end < tapes->n && tapes->cut[end].n_act <= i) end++;
        st = submit(g, end, err);
        while (act->n_letter > 0 && tapes->cut[seen].n_letter < act->n_letter) seen++;
        if (st == HEARTH_OK && act->n_letter > 0) st = await(g, seen + 1, err);
        if (st != HEARTH_OK) return st;
        hth_gpu_do(g, s, p->passage, act, p->n_row);
        if (queued) st = hth_queue_signal(g->device, before + i + 1, err);
    }
    return st;
}

/* The tapes of the step under way from now on, each with what it waits for in the queue. Returns how many. */
static uint32_t set_turns(hth_gpu *g, const hth_gpu_play *p, bool queued)
{
    const hth_gpu_tapes *tapes = p->tapes, *behind = p->behind;
    uint32_t n = tapes->n, n_before = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_act = tapes->cut[i].n_act;
        g->turns[i] = (hth_turn){tapes->cut[i].tape, queued && n_act > n_before ? g->gate + n_act : 0};
        n_before = n_act;
    }
    for (uint32_t i = 0; behind && i < behind->n; i++) g->turns[n++] = (hth_turn){behind->cut[i].tape, 0};
    g->n_sent = g->n_done = 0;
    return n;
}

hearth_status hth_gpu_play_step(hth_gpu *g, hth_step *s, const hth_gpu_play *p, hearth_error *err)
{
    if (hth_pool_is_cancelled(s->pool)) return hth_run_cancelled(err);
    bool fits = p->tapes->n + (p->behind ? p->behind->n : 0) <= MOST_QUEUED;
    bool queued = (p->handoff == HTH_GPU_QUEUED && fits) || p->tapes->n_act == 0;
    uint64_t before = g->gate;
    uint32_t n = set_turns(g, p, queued);
    g->spoilt = false;
    hearth_status st = HEARTH_OK;
    if (queued) {
        if ((st = submit(g, n, err)) != HEARTH_OK) return st;
        g->gate += p->tapes->n_act;
    }
    st = do_acts(g, s, p, before, err);
    if (st == HEARTH_OK) st = submit(g, n, err);
    return st == HEARTH_OK ? await(g, n, err) : st;
}
