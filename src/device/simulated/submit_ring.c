/* The ring of turns that were submitted: what is open, what was passed. Called with the lock where the clock
 * is real. */
#include "device/simulated/simulated_int.h"

static hth_sim_submit *turn_of(hth_sim *sim, hth_fence fence)
{
    return &sim->submits[fence % HTH_QUEUE_MAX_IN_FLIGHT];
}

hearth_status hth_sim_enqueue(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                              uint64_t now, hearth_error *err)
{
    hth_sim *sim = d->priv;
    hth_fence last = first + n - 1;
    if (last - sim->completed > HTH_QUEUE_MAX_IN_FLIGHT)
        return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: %llu tapes wait for the host", d->info.name,
                        (unsigned long long)(last - sim->completed));
    for (size_t i = 0; i < n; i++)
        *turn_of(sim, first + i) = (hth_sim_submit){submits[i].cmdlist, submits[i].wait, now, 0};
    sim->submitted = last;
    return HEARTH_OK;
}

void hth_sim_signal(hth_sim *sim, uint64_t value, uint64_t now)
{
    for (hth_fence i = sim->computed + 1; i <= sim->submitted; i++) {
        hth_sim_submit *t = turn_of(sim, i);
        if (t->wait > sim->host_value && t->wait <= value) t->ready_ns = now;
    }
    sim->host_value = value;
}

hth_sim_submit *hth_sim_next(hth_sim *sim)
{
    if (sim->computed == sim->submitted) return NULL;
    hth_sim_submit *t = turn_of(sim, sim->computed + 1);
    return t->wait <= sim->host_value ? t : NULL;
}

hearth_status hth_sim_not_done(const hth_device *d, hth_fence fence, bool *late, hearth_error *err)
{
    const hth_sim *sim = d->priv;
    *late = true;
    const hth_sim_submit *t = &sim->submits[(sim->computed + 1) % HTH_QUEUE_MAX_IN_FLIGHT];
    if (sim->computed < fence && sim->computed < sim->submitted && t->wait > sim->host_value)
        return hth_fail(err, HEARTH_ERROR_DEVICE,
                        "%s: tape %llu waits for the host's signal %llu, which stands at %llu", d->info.name,
                        (unsigned long long)sim->computed + 1, (unsigned long long)t->wait,
                        (unsigned long long)sim->host_value);
    return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: tape %llu is not done after %.6f s: %llu tapes are",
                    d->info.name, (unsigned long long)fence, (double)d->timeout_ns * 1e-9,
                    (unsigned long long)sim->completed);
}
