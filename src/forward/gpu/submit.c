/* Submits the segments of a step: all at once, waiting for the host's signals, or each when the host is ready. In
 * between it runs the host operations (host_ops.c). */
#include "forward/gpu/gpu_int.h"

/* Submitted at once: while one half of the in-flight limit completes, the other is submitted. */
enum { MAX_QUEUED = HTH_QUEUE_MAX_IN_FLIGHT / 2 };

/* Waits for the first n segments of the current step. The timeout covers a limited number of segments per wait; a
 * step may have many. wait_ns: of the last time, and of this one then. */
static hearth_status await(hth_gpu *g, uint32_t n, uint64_t *wait_ns, hearth_error *err)
{
    enum { AT_ONCE = 16 };
    hearth_status st = HEARTH_OK;
    uint64_t start = hth_device_time(g->device), spin_ns = hth_queue_spin_ns(g->device, *wait_ns);
    while (st == HEARTH_OK && g->n_done < n) {
        uint32_t next = n - g->n_done < AT_ONCE ? n : g->n_done + AT_ONCE;
        st = hth_queue_wait_spin(g->device, g->fences[next - 1], spin_ns, g->timeout_ns, err);
        if (st == HEARTH_OK) g->n_done = next;
    }
    *wait_ns = hth_device_time(g->device) - start;
    return st;
}

/* Waits for segments of which some may be of no step any more. */
static hearth_status await_any(hth_gpu *g, uint32_t n, hearth_error *err)
{
    uint64_t unknown = 0;
    return await(g, n, &unknown, err);
}

/* Submits the next segments of the step, up to number `end`. If they exceed the in-flight limit, the first must
 * complete before the last is submitted: none of them waits for the host. */
static hearth_status submit(hth_gpu *g, uint32_t end, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && g->n_submitted < end) {
        uint32_t first = g->n_submitted, n = end - first < MAX_QUEUED ? end - first : MAX_QUEUED;
        if (first + n > HTH_QUEUE_MAX_IN_FLIGHT) st = await_any(g, first + n - HTH_QUEUE_MAX_IN_FLIGHT, err);
        if (st == HEARTH_OK) st = hth_queue_submit(g->device, g->submits + first, n, g->fences + first, err);
        if (st == HEARTH_OK) g->n_submitted += n;
    }
    return st;
}

hearth_status hth_gpu_wait_idle(hth_gpu *g, hearth_error *err)
{
    if (g->n_done == g->n_submitted) return HEARTH_OK;
    hearth_status st = hth_queue_signal(g->device, g->host_value, err);
    return st == HEARTH_OK ? await_any(g, g->n_submitted, err) : st;
}

/* A host operation failed: lets the device end the step, of which nothing is used. The next one finds it idle. */
static hearth_status end_step(hth_gpu *g, hearth_status failed, const hearth_error *why, hearth_error *err)
{
    hearth_status st = hth_gpu_wait_idle(g, err);
    if (st == HEARTH_OK && err) *err = *why;
    return st == HEARTH_OK ? failed : st;
}

/* Submits the segments that wait for no more than n_op host operations, from number *end on. */
static hearth_status submit_behind(hth_gpu *g, const hth_gpu_segments *segments, uint32_t n_op, uint32_t *end,
                                   hearth_error *err)
{
    while (*end < segments->n && segments->segments[*end].n_host_op <= n_op) ++*end;
    return submit(g, *end, err);
}

/* Lets a chunk of experts come, for which the next segment to be submitted waits. */
static hearth_status pass_chunk(hth_gpu *g, const hth_step *s, uint32_t i_chunk, uint32_t next, hearth_error *err)
{
    hth_fence fence;
    if (hth_pool_is_cancelled(s->pool)) return hth_fail_cancelled(err);
    hearth_status st = hth_gpu_pass_chunk(g, i_chunk, &fence, err);
    if (fence > g->submits[next].beside) g->submits[next].beside = fence;
    return st;
}

/* Runs all host operations; in on-demand mode, submits segments as soon as they can run. Experts leave for the device once
 * it has what it waits for. */
static hearth_status run_host_ops(hth_gpu *g, hth_step *s, const hth_gpu_step_exec *p, uint64_t before,
                             hearth_error *err)
{
    const hth_gpu_segments *segments = p->segments;
    bool queued = g->n_submitted >= segments->n;
    uint32_t end = 0;
    hearth_status st = submit_behind(g, segments, 0, &end, err);
    for (uint32_t i = 0, seen = 0; st == HEARTH_OK && i < segments->n_host_op; i++) {
        const hth_gpu_host_op *op = &segments->host_ops[i];
        while (op->n_d2h > 0 && segments->segments[seen].n_d2h < op->n_d2h) seen++;
        if (op->n_d2h > 0) st = await(g, seen + 1, &segments->segments[seen].wait_ns, err);
        if (st != HEARTH_OK) return st;
        hearth_error why = {0};
        if (op->kind == HTH_HOST_OP_EXPERTS) hth_gpu_see_lone_move(g);
        if (op->kind == HTH_HOST_OP_PASS_CHUNK) st = pass_chunk(g, s, op->index, end, &why);
        else st = hth_gpu_run_host_op(g, s, p->stream, op, p->n_row, &why);
        if (st != HEARTH_OK) return end_step(g, st, &why, err);
        st = queued ? hth_queue_signal(g->device, before + i + 1, err) : submit_behind(g, segments, i + 1, &end, err);
        if (st == HEARTH_OK && op->kind == HTH_HOST_OP_EXPERTS)
            st = hth_gpu_move_experts(g, s, s->program->ops[op->index].layer, err);
    }
    return st;
}

/* Fills the submissions of the current step, with the semaphore values that they wait for when queued. Returns
 * their number. */
static uint32_t fill_submits(hth_gpu *g, const hth_gpu_step_exec *p, bool queued)
{
    const hth_gpu_segments *segments = p->segments, *next = p->next;
    uint32_t n = segments->n, n_before = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_op = segments->segments[i].n_host_op;
        g->submits[i] = (hth_submit_info){.cmdlist = segments->segments[i].cmdlist,
                                          .wait = queued && n_op > n_before ? g->host_value + n_op : 0,
                                          .beside = i == 0 ? g->moves.done : 0};
        n_before = n_op;
    }
    for (uint32_t i = 0; next && i < next->n; i++)
        g->submits[n++] = (hth_submit_info){.cmdlist = next->segments[i].cmdlist};
    g->n_submitted = g->n_done = 0;
    return n;
}

hearth_status hth_gpu_submit_copy(hth_gpu *g, hearth_error *err)
{
    g->submits[0] = (hth_submit_info){.cmdlist = g->copy_segment.segments[0].cmdlist};
    g->n_submitted = g->n_done = 0;
    hearth_status st = submit(g, 1, err);
    return st == HEARTH_OK ? await_any(g, 1, err) : st;
}

hearth_status hth_gpu_submit_step(hth_gpu *g, hth_step *s, const hth_gpu_step_exec *p, hearth_error *err)
{
    if (hth_pool_is_cancelled(s->pool)) return hth_fail_cancelled(err);
    bool in_limit = p->segments->n + (p->next ? p->next->n : 0) <= MAX_QUEUED;
    bool passes = p->stream && g->passing.n_chunk > 0; /* what submissions wait for is known late */
    bool queued = (p->submit_mode == HTH_SUBMIT_UPFRONT && in_limit && !passes) || p->segments->n_host_op == 0;
    uint64_t before = g->host_value;
    uint32_t n = fill_submits(g, p, queued);
    hearth_status st = HEARTH_OK;
    if (queued) {
        if ((st = submit(g, n, err)) != HEARTH_OK) return st;
        g->host_value += p->segments->n_host_op;
    }
    st = run_host_ops(g, s, p, before, err);
    if (st == HEARTH_OK) st = submit(g, n, err);
    return st == HEARTH_OK ? await(g, n, &p->segments->segments[p->segments->n - 1].wait_ns, err) : st;
}
