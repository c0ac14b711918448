/* A step's tapes as they run: all are queued at once, and wait for the host's signals; or each is submitted
 * when the host is ready. Between them the host does what it has to (host_ops.c). */
#include "forward/gpu/gpu_int.h"

/* What is given at once: while one half of what may wait is done, the other is given. */
enum { MAX_QUEUED = HTH_QUEUE_MAX_IN_FLIGHT / 2 };

/* The first n tapes of the step under way are done. A device answers within its patience for some tapes; a
 * step may have many. */
static hearth_status await(hth_gpu *g, uint32_t n, hearth_error *err)
{
    enum { AT_ONCE = 16 };
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && g->n_done < n) {
        uint32_t next = n - g->n_done < AT_ONCE ? n : g->n_done + AT_ONCE;
        st = hth_queue_wait_spin(g->device, g->fences[next - 1], g->timeout_ns, err);
        if (st == HEARTH_OK) g->n_done = next;
    }
    return st;
}

/* The next tapes of the step, up to number `end`. Where they are more than can be held, the first must end
 * before the last may be given: none of them waits for the host. */
static hearth_status submit(hth_gpu *g, uint32_t end, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && g->n_submitted < end) {
        uint32_t first = g->n_submitted, n = end - first < MAX_QUEUED ? end - first : MAX_QUEUED;
        if (first + n > HTH_QUEUE_MAX_IN_FLIGHT) st = await(g, first + n - HTH_QUEUE_MAX_IN_FLIGHT, err);
        if (st == HEARTH_OK) st = hth_queue_submit(g->device, g->submits + first, n, g->fences + first, err);
        if (st == HEARTH_OK) g->n_submitted += n;
    }
    return st;
}

hearth_status hth_gpu_wait_idle(hth_gpu *g, hearth_error *err)
{
    if (g->n_done == g->n_submitted) return HEARTH_OK;
    hearth_status st = hth_queue_signal(g->device, g->host_value, err);
    return st == HEARTH_OK ? await(g, g->n_submitted, err) : st;
}

/* All acts; tapes are submitted as far as they can run, where they do not wait in the queue. */
static hearth_status run_host_ops(hth_gpu *g, hth_step *s, const hth_gpu_step_exec *p, uint64_t before,
                             hearth_error *err)
{
    const hth_gpu_segments *tapes = p->segments;
    bool queued = g->n_submitted >= tapes->n;
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0, seen = 0, end = 0; st == HEARTH_OK && i < tapes->n_host_op; i++) {
        const hth_gpu_host_op *op = &tapes->host_ops[i];
        while (end < tapes->n && tapes->segments[end].n_host_op <= i) end++;
        st = submit(g, end, err);
        while (op->n_d2h > 0 && tapes->segments[seen].n_d2h < op->n_d2h) seen++;
        if (st == HEARTH_OK && op->n_d2h > 0) st = await(g, seen + 1, err);
        if (st != HEARTH_OK) return st;
        hth_gpu_run_host_op(g, s, p->stream, op, p->n_row);
        if (queued) st = hth_queue_signal(g->device, before + i + 1, err);
    }
    return st;
}

/* The tapes of the step under way from now on, each with what it waits for in the queue. Returns how many. */
static uint32_t set_turns(hth_gpu *g, const hth_gpu_step_exec *p, bool queued)
{
    const hth_gpu_segments *tapes = p->segments, *behind = p->next;
    uint32_t n = tapes->n, n_before = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_act = tapes->segments[i].n_host_op;
        g->submits[i] = (hth_submit_info){tapes->segments[i].cmdlist, queued && n_act > n_before ? g->host_value + n_act : 0};
        n_before = n_act;
    }
    for (uint32_t i = 0; behind && i < behind->n; i++) g->submits[n++] = (hth_submit_info){behind->segments[i].cmdlist, 0};
    g->n_submitted = g->n_done = 0;
    return n;
}

hearth_status hth_gpu_submit_step(hth_gpu *g, hth_step *s, const hth_gpu_step_exec *p, hearth_error *err)
{
    if (hth_pool_is_cancelled(s->pool)) return hth_fwd_cancelled(err);
    bool fits = p->segments->n + (p->next ? p->next->n : 0) <= MAX_QUEUED;
    bool queued = (p->submit_mode == HTH_SUBMIT_UPFRONT && fits) || p->segments->n_host_op == 0;
    uint64_t before = g->host_value;
    uint32_t n = set_turns(g, p, queued);
    g->host_sums_invalid = false;
    hearth_status st = HEARTH_OK;
    if (queued) {
        if ((st = submit(g, n, err)) != HEARTH_OK) return st;
        g->host_value += p->segments->n_host_op;
    }
    st = run_host_ops(g, s, p, before, err);
    if (st == HEARTH_OK) st = submit(g, n, err);
    return st == HEARTH_OK ? await(g, n, err) : st;
}
