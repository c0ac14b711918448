/* The ring of submissions: pending and completed ones. Called with the lock held where the clock is a wall clock. */
#include "device/simulated/simulated_int.h"

static hth_sim_submit *submit_at(hth_sim *sim, hth_fence fence)
{
    return &sim->submits[fence % HTH_QUEUE_MAX_IN_FLIGHT];
}

hearth_status hth_sim_enqueue(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                              uint64_t now, hearth_error *err)
{
    hth_sim *sim = d->priv;
    hth_fence last = first + n - 1;
    if (last - sim->completed > HTH_QUEUE_MAX_IN_FLIGHT)
        return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: %llu command lists wait for the host", d->info.name,
                        (unsigned long long)(last - sim->completed));
    for (size_t i = 0; i < n; i++)
        *submit_at(sim, first + i) = (hth_sim_submit){.cmdlist = submits[i].cmdlist,
                                                      .wait = submits[i].wait,
                                                      .ready_ns = now,
                                                      .after_ns = hth_sim_beside_end(sim, submits[i].beside)};
    sim->submitted = last;
    return HEARTH_OK;
}

void hth_sim_signal(hth_sim *sim, uint64_t value, uint64_t now)
{
    for (hth_fence i = sim->computed + 1; i <= sim->submitted; i++) {
        hth_sim_submit *t = submit_at(sim, i);
        if (t->wait > sim->host_value && t->wait <= value) t->ready_ns = now;
    }
    sim->host_value = value;
}

hth_sim_submit *hth_sim_next(hth_sim *sim)
{
    if (sim->computed == sim->submitted) return NULL;
    hth_sim_submit *t = submit_at(sim, sim->computed + 1);
    return t->wait <= sim->host_value ? t : NULL;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t hth_sim_start_of(const hth_sim *sim, const hth_sim_submit *t)
{
    return later(later(t->ready_ns, t->after_ns), sim->clocks[HTH_QUEUE_MAIN].busy_ns);
}

hearth_status hth_sim_not_done(const hth_device *d, hth_fence fence, bool *late, hearth_error *err)
{
    const hth_sim *sim = d->priv;
    *late = true;
    const hth_sim_submit *t = &sim->submits[(sim->computed + 1) % HTH_QUEUE_MAX_IN_FLIGHT];
    if (sim->computed < fence && sim->computed < sim->submitted && t->wait > sim->host_value)
        return hth_fail(err, HEARTH_ERROR_DEVICE,
                        "%s: command list %llu waits for the host semaphore value %llu; it is %llu", d->info.name,
                        (unsigned long long)sim->computed + 1, (unsigned long long)t->wait,
                        (unsigned long long)sim->host_value);
    return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: command list %llu is not done after %.6f s: %llu command lists are",
                    d->info.name, (unsigned long long)fence, (double)d->timeout_ns * 1e-9,
                    (unsigned long long)sim->completed);
}
