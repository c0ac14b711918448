/* The second queue of a simulated device, and what it takes of the host's memory. Its command lists run in the caller's
 * thread when they are submitted, with either clock, and complete at the time that is known then: so nothing of it waits
 * for the first queue. */
#include "device/simulated/simulated_int.h"

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t hth_sim_beside_end(const hth_sim *sim, hth_fence fence)
{
    return fence > sim->beside.completed ? sim->beside.end_ns[fence % HTH_QUEUE_MAX_IN_FLIGHT] : 0;
}

hth_fence hth_sim_beside_completed(hth_sim *sim)
{
    hth_sim_beside *b = &sim->beside;
    uint64_t now = hth_sim_time(sim);
    while (b->completed < b->submitted && hth_sim_beside_end(sim, b->completed + 1) <= now) b->completed++;
    return b->completed;
}

hearth_status hth_sim_beside_submit(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence first, hearth_error *err)
{
    hth_sim *sim = d->priv;
    hth_sim_clock *clock = &sim->clocks[HTH_QUEUE_BESIDE];
    hth_sim_advance_host(sim, hth_sim_time(sim) + hth_sim_cost(sim, &sim->host_random, sim->gpu.submit_ns));
    uint64_t n_before = first + n - 1 - hth_sim_beside_completed(sim), now = hth_sim_time(sim);
    if (n_before > HTH_QUEUE_MAX_IN_FLIGHT)
        return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: %llu command lists of the second queue are not done",
                        d->info.name, (unsigned long long)n_before);
    for (size_t i = 0; i < n; i++) {
        uint64_t end = hth_sim_execute(sim, HTH_QUEUE_BESIDE, t[i], later(now, clock->busy_ns));
        if (sim->gpu.wall_clock) end = later(end, hth_sim_now(sim)); /* computing it took longer */
        clock->busy_ns = sim->beside.end_ns[(first + i) % HTH_QUEUE_MAX_IN_FLIGHT] = end;
    }
    sim->beside.submitted = first + n - 1;
    return HEARTH_OK;
}

hearth_status hth_sim_beside_wait(hth_device *d, hth_fence fence, uint64_t timeout_ns, bool *late, hearth_error *err)
{
    hth_sim *sim = d->priv;
    if (hth_sim_beside_completed(sim) >= fence) return HEARTH_OK;
    uint64_t now = hth_sim_time(sim), end = hth_sim_beside_end(sim, fence);
    if (end > now && end - now > timeout_ns) {
        hth_sim_advance_host(sim, now + timeout_ns);
        *late = true;
        return hth_fail(err, HEARTH_ERROR_DEVICE,
                        "%s: command list %llu%s is not done after %.6f s: %llu command lists are", d->info.name,
                        (unsigned long long)fence, hth_queue_words[HTH_QUEUE_BESIDE], (double)d->timeout_ns * 1e-9,
                        (unsigned long long)hth_sim_beside_completed(sim));
    }
    hth_sim_advance_host(sim, later(now, end) + hth_sim_cost(sim, &sim->host_random, sim->gpu.wake_ns));
    return HEARTH_OK;
}

/* ---- the host beside it --------------------------------------------------------------------------------- */

void hth_sim_charge_host(hth_device *d, uint64_t bytes, double products)
{
    const hth_sim *sim = d->priv;
    double alone = d->info.host_rate, link = sim->gpu.pcie_up;
    if (alone <= 0.0) return;
    double shared = alone - link > alone / 4 ? alone - link : alone / 4;
    uint64_t end = sim->clocks[HTH_QUEUE_BESIDE].up_ns, now = hth_sim_time(sim);
    double busy_ns = end > now ? (double)(end - now) : 0.0, ns = (double)bytes / shared * 1e9;
    if (ns > busy_ns) ns = busy_ns + ((double)bytes - busy_ns * 1e-9 * shared) / alone * 1e9;
    double computed_ns = sim->gpu.host_products > 0.0 ? products / sim->gpu.host_products * 1e9 : 0.0;
    if (computed_ns > ns) ns = computed_ns;
    hth_device_advance_clock(d, (uint64_t)(ns + 0.5));
}
