/* The simulated device: a card as a file describes it, computed by the functions of the null device. With a
 * virtual clock a tape runs as soon as its turn and its gate let it, in the caller's thread, and when it
 * would have been over is known then: the same in every run. Opened by "sim:FILE". */
#include "base/alloc.h"
#include "base/clock.h"
#include "device/simulated/simulated_int.h"

#include <stdio.h>
#include <string.h>

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- opening ------------------------------------------------------------------------------------ */

static hearth_status open_simulated(hth_device *d, const hth_device_spec *spec, hearth_error *err)
{
    const char *path = spec->name + strlen("sim:");
    hth_sim *own = hth_alloc(1, sizeof *own);
    if (!own) return hth_fail_memory(err, sizeof *own, "a simulated device");
    own->opened_ns = hth_clock_ns();
    hearth_status st = hth_sim_describe(path, &own->card, err);
    if (st == HEARTH_OK) st = hth_backend_null.open(&own->null, spec, err);
    if (st != HEARTH_OK) goto no_device;
    own->host_random = own->card.seed;
    own->device_random = ~own->card.seed;
    if (own->card.real) st = hth_sim_start(own, err);
    if (st != HEARTH_OK) goto no_thread;
    d->own = own;
    d->info = own->null.info;
    d->info.kind = HTH_DEVICE_SIMULATED;
    d->info.memory = d->info.budget = own->card.vram_bytes;
    d->info.flops = own->card.flops;
    d->info.host_rate = own->card.real ? 0.0 : own->card.host_bandwidth;
    d->faults = own->card.faults, d->n_fault = own->card.n_fault;
    snprintf(d->info.name, sizeof d->info.name, "simulated %s", own->card.name);
    snprintf(d->info.driver, sizeof d->info.driver, "functions of C, a %s clock",
             own->card.real ? "real" : "virtual");
    return HEARTH_OK;
no_thread:
    hth_backend_null.close(&own->null);
no_device:
    hth_free(own);
    return st;
}

static void stop(hth_device *d)
{
    hth_sim *own = d->own;
    if (own->card.real) hth_sim_stop(own);
}

static void close_simulated(hth_device *d)
{
    hth_sim *own = d->own;
    if (own->card.real) hth_sim_finish(own);
    hth_backend_null.close(&own->null);
    hth_free(own);
}

static uint64_t complaints(const hth_device *d)
{
    (void)d;
    return 0;
}

/* ---- time ---------------------------------------------------------------------------------------------- */

static uint64_t time_of(const hth_device *d)
{
    const hth_sim *own = d->own;
    return own->card.real ? hth_sim_now(own) : own->host_ns;
}

static void charge(hth_device *d, uint64_t time_ns)
{
    hth_sim *own = d->own;
    if (!own->card.real && __builtin_add_overflow(own->host_ns, time_ns, &own->host_ns))
        own->host_ns = UINT64_MAX;
}

/* The host stays here until then. */
static void pass(hth_sim *own, uint64_t until_ns)
{
    if (own->card.real) hth_sim_hold(own, until_ns);
    else own->host_ns = later(own->host_ns, until_ns);
}

/* ---- memory ------------------------------------------------------------------------------------- */

static hearth_status new_buffer(hth_buffer *b, const char *what, hearth_error *err)
{
    return hth_backend_null.buffer_new(b, what, err);
}

/* What is given back because the device was lost may be in use by its thread. */
static void quiesce_lost(hth_device *d)
{
    hth_sim *own = d->own;
    if (d->lost && own->card.real && !own->ending) hth_sim_quiesce(own);
}

static void free_buffer(hth_buffer *b)
{
    quiesce_lost(b->device);
    hth_backend_null.buffer_free(b);
}

/* When a transfer by the host is over that begins now. */
static uint64_t transfer(hth_sim *own, uint64_t *link_ns, double rate, uint64_t bytes)
{
    uint64_t now = own->card.real ? hth_sim_now(own) : own->host_ns;
    return hth_sim_transfer(own, &own->host_random, link_ns, rate, bytes, later(now, own->device_ns));
}

static hearth_status upload(hth_slice to, const void *from, hearth_error *err)
{
    hth_sim *own = to.of->device->own;
    if (to.bytes == 0 || to.of->memory != HTH_MEMORY_DEVICE) return hth_backend_null.upload(to, from, err);
    if (own->card.real) hth_sim_lock_idle(own);
    hearth_status st = hth_backend_null.upload(to, from, err);
    uint64_t end = transfer(own, &own->up_ns, own->card.pcie_up, to.bytes);
    if (own->card.real) pthread_mutex_unlock(&own->lock);
    pass(own, end);
    return st;
}

static hearth_status download(hth_slice from, void *to, hearth_error *err)
{
    hth_sim *own = from.of->device->own;
    if (from.bytes == 0 || from.of->memory != HTH_MEMORY_DEVICE)
        return hth_backend_null.download(from, to, err);
    if (own->card.real) hth_sim_lock_idle(own);
    hearth_status st = hth_backend_null.download(from, to, err);
    uint64_t end = transfer(own, &own->down_ns, own->card.pcie_down, from.bytes);
    if (own->card.real) pthread_mutex_unlock(&own->lock);
    pass(own, end);
    return st;
}

/* ---- programs and tapes ------------------------------------------------------------------------- */

static hearth_status new_program(hth_device *d, hth_program *p, hearth_error *err)
{
    hth_sim *own = d->own;
    return hth_backend_null.program_new(&own->null, p, err);
}

static void free_program(hth_device *d, hth_program *p) { (void)d, (void)p; }

static hearth_status end_tape(hth_tape *t, hearth_error *err) { return hth_backend_null.tape_end(t, err); }

static void free_tape(hth_tape *t) { quiesce_lost(t->device); }

/* ---- running ------------------------------------------------------------------------------------ */

/* On a virtual clock: everything that may run. */
static void play_ready(hth_sim *own)
{
    for (hth_sim_turn *t; (t = hth_sim_next(own)) != NULL; own->computed++)
        t->end_ns = own->device_ns = hth_sim_play(own, t->tape, later(t->ready_ns, own->device_ns));
}

static void look(hth_sim *own)
{
    while (own->reached < own->computed &&
           own->turns[(own->reached + 1) % HTH_QUEUE_PENDING].end_ns <= own->host_ns)
        own->reached++;
}

/* What may be allocated shrinks; what is allocated stays. */
static void shrink(hth_device *d)
{
    hth_sim *own = d->own;
    own->n_submit++;
    for (size_t i = 0; i < own->card.n_budget; i++) {
        const hth_sim_budget *b = &own->card.budgets[i];
        if (b->step != own->n_submit) continue;
        if (b->bytes < d->limit) d->limit = b->bytes;
        if (b->bytes < d->info.budget) d->info.budget = b->bytes;
    }
}

static hearth_status submit(hth_device *d, const hth_turn *turns, size_t n, hth_tick first, hearth_error *err)
{
    hth_sim *own = d->own;
    uint64_t cost = hth_sim_cost(own, &own->host_random, own->card.submit_ns);
    shrink(d);
    pass(own, (own->card.real ? hth_sim_now(own) : own->host_ns) + cost);
    if (!own->card.real) {
        look(own);
        hearth_status st = hth_sim_enqueue(d, turns, n, first, own->host_ns, err);
        if (st == HEARTH_OK) play_ready(own);
        return st;
    }
    pthread_mutex_lock(&own->lock);
    hearth_status st = hth_sim_enqueue(d, turns, n, first, hth_sim_now(own), err);
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->lock);
    return st;
}

static hearth_status signal_gate(hth_device *d, uint64_t value, hearth_error *err)
{
    hth_sim *own = d->own;
    (void)err;
    if (!own->card.real) {
        hth_sim_open_gate(own, value, own->host_ns);
        play_ready(own);
        return HEARTH_OK;
    }
    pthread_mutex_lock(&own->lock);
    hth_sim_open_gate(own, value, hth_sim_now(own));
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->lock);
    return HEARTH_OK;
}

static hth_tick reached(hth_device *d)
{
    hth_sim *own = d->own;
    if (!own->card.real) {
        look(own);
        return own->reached;
    }
    pthread_mutex_lock(&own->lock);
    hth_tick tick = own->reached;
    pthread_mutex_unlock(&own->lock);
    return tick;
}

static hearth_status wait_for(hth_device *d, hth_tick tick, uint64_t timeout_ns, bool *late,
                              hearth_error *err)
{
    hth_sim *own = d->own;
    if (own->card.real) return hth_sim_wait_real(d, tick, timeout_ns, late, err);
    look(own);
    if (own->reached >= tick) return HEARTH_OK;
    uint64_t end = own->computed < tick ? UINT64_MAX : own->turns[tick % HTH_QUEUE_PENDING].end_ns;
    if (end == UINT64_MAX || end - own->host_ns > timeout_ns) {
        charge(d, timeout_ns);
        look(own);
        return hth_sim_not_done(d, tick, late, err);
    }
    own->host_ns = end + hth_sim_cost(own, &own->host_random, own->card.wake_ns);
    look(own);
    return HEARTH_OK;
}

const hth_backend hth_backend_simulated = {
    .open = open_simulated,
    .stop = stop,
    .close = close_simulated,
    .complaints = complaints,
    .buffer_new = new_buffer,
    .buffer_free = free_buffer,
    .upload = upload,
    .download = download,
    .program_new = new_program,
    .program_free = free_program,
    .tape_end = end_tape,
    .tape_free = free_tape,
    .submit = submit,
    .signal = signal_gate,
    .reached = reached,
    .wait = wait_for,
    .time = time_of,
    .charge = charge,
};
