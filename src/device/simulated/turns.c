/* The ring of turns that were submitted: what is open, what was passed. Called with the lock where the clock
 * is real. */
#include "device/simulated/simulated_int.h"

static hth_sim_turn *turn_of(hth_sim *own, hth_tick tick) { return &own->turns[tick % HTH_QUEUE_PENDING]; }

hearth_status hth_sim_enqueue(hth_device *d, const hth_turn *turns, size_t n, hth_tick first, uint64_t now,
                              hearth_error *err)
{
    hth_sim *own = d->own;
    hth_tick last = first + n - 1;
    if (last - own->reached > HTH_QUEUE_PENDING)
        return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: %llu tapes wait for the host", d->info.name,
                        (unsigned long long)(last - own->reached));
    for (size_t i = 0; i < n; i++)
        *turn_of(own, first + i) = (hth_sim_turn){turns[i].tape, turns[i].wait, now, 0};
    own->submitted = last;
    return HEARTH_OK;
}

void hth_sim_open_gate(hth_sim *own, uint64_t value, uint64_t now)
{
    for (hth_tick i = own->computed + 1; i <= own->submitted; i++) {
        hth_sim_turn *t = turn_of(own, i);
        if (t->wait > own->gate && t->wait <= value) t->ready_ns = now;
    }
    own->gate = value;
}

hth_sim_turn *hth_sim_next(hth_sim *own)
{
    if (own->computed == own->submitted) return NULL;
    hth_sim_turn *t = turn_of(own, own->computed + 1);
    return t->wait <= own->gate ? t : NULL;
}

hearth_status hth_sim_not_done(const hth_device *d, hth_tick tick, bool *late, hearth_error *err)
{
    const hth_sim *own = d->own;
    *late = true;
    const hth_sim_turn *t = &own->turns[(own->computed + 1) % HTH_QUEUE_PENDING];
    if (own->computed < tick && own->computed < own->submitted && t->wait > own->gate)
        return hth_fail(err, HEARTH_ERROR_DEVICE,
                        "%s: tape %llu waits for the host's signal %llu, which stands at %llu", d->info.name,
                        (unsigned long long)own->computed + 1, (unsigned long long)t->wait,
                        (unsigned long long)own->gate);
    return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: tape %llu is not done after %.6f s: %llu tapes are",
                    d->info.name, (unsigned long long)tick, (double)d->patience_ns * 1e-9,
                    (unsigned long long)own->reached);
}
