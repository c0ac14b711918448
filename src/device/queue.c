/* Submissions: command lists in the order of their queue, the host semaphore, and fences. */
#include "device/device_int.h"

#include <assert.h>

/* Virtual time that one poll of a fence costs, so that a polling loop ends on a virtual clock too. */
enum { POLL_NS = 100 };

const char *const hth_queue_words[HTH_N_QUEUE] = {"", " of the second queue"};

hearth_status hth_queue_submit(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence *fences,
                               hearth_error *err)
{
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK || n == 0) return st;
    hth_fence *last = &d->last[HTH_QUEUE_MAIN];
    for (size_t i = 0; i < n; i++) {
        assert(submits[i].cmdlist->ended && submits[i].cmdlist->device == d);
        assert(submits[i].beside <= d->last[HTH_QUEUE_BESIDE]);
    }
    st = hth_device_end_call(d, d->backend->submit(d, submits, n, *last + 1, err));
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; fences && i < n; i++) fences[i] = *last + 1 + i;
    for (size_t i = 0; i < n; i++)
        if (submits[i].wait > d->max_wait_value) d->max_wait_value = submits[i].wait;
    *last += n;
    return HEARTH_OK;
}

hearth_status hth_beside_submit(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence *fences, hearth_error *err)
{
    hth_fence *last = &d->last[HTH_QUEUE_BESIDE];
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK || n == 0) return st;
    for (size_t i = 0; i < n; i++) assert(t[i]->ended && t[i]->device == d);
    st = hth_device_end_call(d, d->backend->submit_beside(d, t, n, *last + 1, err));
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; fences && i < n; i++) fences[i] = *last + 1 + i;
    *last += n;
    return HEARTH_OK;
}

uint64_t hth_queue_host_value(const hth_device *d) { return d->host_value; }

hearth_status hth_queue_signal(hth_device *d, uint64_t value, hearth_error *err)
{
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK) return st;
    assert(value >= d->host_value);
    if (value == d->host_value) return HEARTH_OK;
    st = hth_device_end_call(d, d->backend->signal(d, value, err));
    if (st == HEARTH_OK) d->host_value = value;
    return st;
}

static bool is_complete(hth_device *d, hth_queue_id queue, hth_fence fence)
{
    if (d->lost) return false;
    if (d->backend->completed_value(d, queue) >= fence) return true;
    hth_device_advance_clock(d, POLL_NS);
    return false;
}

bool hth_queue_is_complete(hth_device *d, hth_fence fence) { return is_complete(d, HTH_QUEUE_MAIN, fence); }
bool hth_beside_is_complete(hth_device *d, hth_fence fence) { return is_complete(d, HTH_QUEUE_BESIDE, fence); }

/* Counts the timeout as requested, not as elapsed. A process that is stopped within one interval loses at most
 * that interval, however long it was stopped; so does one that gets no core. */
static hearth_status wait_in_intervals(hth_device *d, hth_queue_id queue, hth_fence fence, uint64_t timeout_ns,
                                       hearth_error *err)
{
    enum { N_INTERVAL = 16, MAX_NS = 100000000 };
    uint64_t interval = timeout_ns / N_INTERVAL + 1, left = timeout_ns;
    hearth_error why = {0};
    hearth_status st;
    bool late;
    if (interval > MAX_NS) interval = MAX_NS;
    d->timeout_ns = timeout_ns;
    do {
        uint64_t now = interval < left ? interval : left;
        late = false;
        st = d->backend->wait(d, queue, fence, now, &late, &why);
        left -= now;
    } while (late && left > 0);
    if (st != HEARTH_OK && err) *err = why;
    return st;
}

/* A fence was reached: whether that is true. */
static hearth_status check_run(hth_device *d, hth_queue_id queue, hth_fence fence, hearth_error *err)
{
    if (!d->backend->did_run || d->backend->did_run(d, queue, fence)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_DEVICE,
                    "%s: its driver says that command list %llu%s is complete, but it did not run",
                    d->info.name, (unsigned long long)fence, hth_queue_words[queue]);
}

static hearth_status wait_on(hth_device *d, hth_queue_id queue, hth_fence fence, uint64_t timeout_ns, hearth_error *err)
{
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK) return st;
    assert(fence <= d->last[queue]);
    st = wait_in_intervals(d, queue, fence, timeout_ns, err);
    return hth_device_end_call(d, st == HEARTH_OK ? check_run(d, queue, fence, err) : st);
}

hearth_status hth_queue_wait(hth_device *d, hth_fence fence, uint64_t timeout_ns, hearth_error *err)
{
    return wait_on(d, HTH_QUEUE_MAIN, fence, timeout_ns, err);
}

hearth_status hth_beside_wait(hth_device *d, hth_fence fence, uint64_t timeout_ns, hearth_error *err)
{
    return wait_on(d, HTH_QUEUE_BESIDE, fence, timeout_ns, err);
}

uint64_t hth_queue_spin_ns(const hth_device *d, uint64_t last_ns)
{
    enum { MARGIN_NS = 50000, MAX_NS = 1000000 };
    bool on_cpu = d->info.kind == HTH_DEVICE_CPU || d->info.kind == HTH_DEVICE_REF;
    return MARGIN_NS + (on_cpu || last_ns > MAX_NS ? 0 : last_ns);
}

hearth_status hth_queue_wait_spin(hth_device *d, hth_fence fence, uint64_t spin_ns, uint64_t timeout_ns,
                                  hearth_error *err)
{
    uint64_t start = hth_device_time(d);
    while (!hth_queue_is_complete(d, fence))
        if (hth_device_time(d) - start > spin_ns) return hth_queue_wait(d, fence, timeout_ns, err);
    return hth_device_end_call(d, check_run(d, HTH_QUEUE_MAIN, fence, err));
}

static hearth_status drain_one(hth_device *d, hth_queue_id queue, uint64_t timeout_ns, int *n_failed, hearth_error *err)
{
    enum { TRIES = 3, AT_ONCE = 16 };
    hth_fence reached, last = d->last[queue];
    hearth_status st = HEARTH_OK;
    while (*n_failed < TRIES && st != HEARTH_ERROR_DEVICE && (reached = d->backend->completed_value(d, queue)) < last) {
        hth_fence next = last - reached < AT_ONCE ? last : reached + AT_ONCE;
        st = d->host_value < d->max_wait_value ? hth_queue_signal(d, d->max_wait_value, err) : HEARTH_OK;
        if (st == HEARTH_OK) st = wait_on(d, queue, next, timeout_ns, err);
        *n_failed += st != HEARTH_OK;
    }
    return st;
}

hearth_status hth_queue_drain(hth_device *d, uint64_t timeout_ns, hearth_error *err)
{
    int n_failed = 0;
    if (d->lost) return hth_device_begin_call(d, err); /* reports the lost device */
    hearth_status st = drain_one(d, HTH_QUEUE_MAIN, timeout_ns, &n_failed, err);
    return st == HEARTH_OK ? drain_one(d, HTH_QUEUE_BESIDE, timeout_ns, &n_failed, err) : st;
}
