/* The simulated device: a GPU as a file describes it, computed by the functions of the reference device. With a
 * virtual clock, a command list runs in the caller's thread as soon as order and host semaphore allow it, and its
 * completion time is known then: identical in every run. Opened as "sim:FILE". */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/format_bytes.h"
#include "device/simulated/simulated_int.h"

#include <stdio.h>
#include <string.h>

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- opening ------------------------------------------------------------------------------------ */

static hearth_status open_simulated(hth_device *d, const hth_device_spec *spec, hearth_error *err)
{
    const char *path = spec->name + strlen("sim:");
    hth_sim *sim = hth_alloc(1, sizeof *sim);
    if (!sim) return hth_fail_memory(err, sizeof *sim, "a simulated device");
    sim->opened_ns = hth_clock_ns();
    hearth_status st = hth_sim_describe(path, &sim->gpu, err);
    if (st == HEARTH_OK && sim->gpu.no_values && !spec->only_times)
        st = hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: values = none: it computes nothing", path);
    if (st == HEARTH_OK) st = hth_backend_ref.open(&sim->ref, spec, err);
    if (st != HEARTH_OK) goto no_device;
    sim->host_random = sim->gpu.seed;
    sim->clocks[HTH_QUEUE_MAIN].random = ~sim->gpu.seed;
    sim->clocks[HTH_QUEUE_BESIDE].random = sim->gpu.seed ^ 0x9e3779b97f4a7c15u;
    if (sim->gpu.wall_clock) st = hth_sim_start(sim, err);
    if (st != HEARTH_OK) goto no_thread;
    d->priv = sim;
    d->info = sim->ref.info;
    d->info.kind = HTH_DEVICE_SIMULATED;
    d->info.memory = d->info.budget = sim->gpu.vram_bytes;
    d->info.flops = sim->gpu.flops;
    if (sim->gpu.pinned_bytes == 0) d->info.features &= ~(uint32_t)HTH_FEATURE_IMPORT;
    if (sim->gpu.max_binding_bytes > 0) d->info.max_binding_size = sim->gpu.max_binding_bytes;
    d->info.host_rate = sim->gpu.wall_clock ? 0.0 : sim->gpu.host_bandwidth;
    d->info.host_products = sim->gpu.host_products;
    d->faults = sim->gpu.faults, d->n_fault = sim->gpu.n_fault;
    d->info.no_values = sim->gpu.no_values;
    snprintf(d->info.name, sizeof d->info.name, "simulated %s%s", sim->gpu.name,
             sim->gpu.no_values ? " without values" : "");
    snprintf(d->info.driver, sizeof d->info.driver, "functions of C, a %s clock",
             sim->gpu.wall_clock ? "real" : "virtual");
    return HEARTH_OK;
no_thread:
    hth_backend_ref.close(&sim->ref);
no_device:
    hth_free(sim);
    return st;
}

static void stop(hth_device *d)
{
    hth_sim *sim = d->priv;
    if (sim->gpu.wall_clock) hth_sim_stop(sim);
}

static void close_simulated(hth_device *d)
{
    hth_sim *sim = d->priv;
    if (sim->gpu.wall_clock) hth_sim_finish(sim);
    hth_backend_ref.close(&sim->ref);
    hth_free(sim);
}

/* ---- time ---------------------------------------------------------------------------------------------- */

uint64_t hth_sim_time(const hth_sim *sim) { return sim->gpu.wall_clock ? hth_sim_now(sim) : sim->host_ns; }

static uint64_t time_of(const hth_device *d) { return hth_sim_time(d->priv); }

static void advance_clock(hth_device *d, uint64_t time_ns)
{
    hth_sim *sim = d->priv;
    if (!sim->gpu.wall_clock && __builtin_add_overflow(sim->host_ns, time_ns, &sim->host_ns))
        sim->host_ns = UINT64_MAX;
}

void hth_sim_advance_host(hth_sim *sim, uint64_t until_ns)
{
    if (sim->gpu.wall_clock) hth_sim_sleep_until(sim, until_ns);
    else sim->host_ns = later(sim->host_ns, until_ns);
}

/* ---- memory ------------------------------------------------------------------------------------- */

/* Without values pages stay untouched until a copy or a list of experts needs them, so that models may be larger than
 * this machine's memory. */
static hearth_status new_buffer(hth_buffer *b, const char *what, hearth_error *err)
{
    const hth_sim *sim = b->device->priv;
    if (!sim->gpu.no_values) return hth_ref_buffer_new(b, what, err);
    b->map = b->allocated <= SIZE_MAX ? hth_pages_alloc((size_t)b->allocated) : NULL;
    return b->map ? HEARTH_OK : hth_fail_memory(err, (size_t)b->allocated, what);
}

/* On a lost device its thread may still use what is being freed. */
static void quiesce_lost(hth_device *d)
{
    hth_sim *sim = d->priv;
    if (d->lost && sim->gpu.wall_clock && !sim->ending) hth_sim_quiesce(sim);
}

static hearth_status import_buffer(hth_buffer *b, const void *data, const char *what, hearth_error *err)
{
    hth_sim *sim = b->device->priv;
    uint64_t size = b->size, limit = sim->gpu.pinned_bytes;
    hearth_status st = hth_ref_buffer_import(b, data, what, err);
    if (st != HEARTH_OK) return st;
    if (sim->imported > limit || b->size > limit - sim->imported)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s: %s of the host wanted, %s of %s are imported",
                        b->device->info.name, what, hth_format_bytes(size).text, hth_format_bytes(sim->imported).text,
                        hth_format_bytes(limit).text);
    sim->imported += b->size;
    return HEARTH_OK;
}

static void free_buffer(hth_buffer *b)
{
    quiesce_lost(b->device);
    if (b->memory == HTH_MEMORY_HOST) ((hth_sim *)b->device->priv)->imported -= b->size;
    hth_backend_ref.buffer_free(b);
}

/* When a transfer of the host can begin. */
static uint64_t transfer_start(const hth_sim *sim)
{
    return later(hth_sim_time(sim), sim->clocks[HTH_QUEUE_MAIN].busy_ns);
}

static hearth_status upload(hth_buffer_range to, const void *from, hearth_error *err)
{
    hth_sim *sim = to.buffer->device->priv;
    if (to.size == 0 || to.buffer->memory != HTH_MEMORY_DEVICE) return hth_backend_ref.upload(to, from, err);
    if (sim->gpu.wall_clock) hth_sim_lock_when_idle(sim);
    hearth_status st = hth_backend_ref.upload(to, from, err);
    uint64_t end = hth_sim_transfer_up(sim, HTH_QUEUE_MAIN, &sim->host_random, to.size, transfer_start(sim));
    if (sim->gpu.wall_clock) pthread_mutex_unlock(&sim->lock);
    hth_sim_advance_host(sim, end);
    return st;
}

static hearth_status download(hth_buffer_range from, void *to, hearth_error *err)
{
    hth_sim *sim = from.buffer->device->priv;
    if (from.size == 0 || from.buffer->memory != HTH_MEMORY_DEVICE)
        return hth_backend_ref.download(from, to, err);
    if (sim->gpu.wall_clock) hth_sim_lock_when_idle(sim);
    hearth_status st = hth_backend_ref.download(from, to, err);
    uint64_t end = hth_sim_transfer(sim, &sim->host_random, &sim->down_ns, sim->gpu.pcie_down, from.size,
                                    transfer_start(sim));
    if (sim->gpu.wall_clock) pthread_mutex_unlock(&sim->lock);
    hth_sim_advance_host(sim, end);
    return st;
}

/* ---- shaders and command lists ------------------------------------------------------------------ */

static hearth_status new_pipeline(hth_device *d, hth_pipeline *p, hearth_error *err)
{
    hth_sim *sim = d->priv;
    return hth_backend_ref.pipeline_new(&sim->ref, p, err);
}

static void free_cmdlist(hth_cmdlist *t) { quiesce_lost(t->device); }

/* ---- execution ---------------------------------------------------------------------------------- */

/* Virtual clock: runs everything that is ready. */
static void execute_ready(hth_sim *sim)
{
    for (hth_sim_submit *t; (t = hth_sim_next(sim)) != NULL; sim->computed++)
        t->end_ns = sim->clocks[HTH_QUEUE_MAIN].busy_ns =
            hth_sim_execute(sim, HTH_QUEUE_MAIN, t->cmdlist, hth_sim_start_of(sim, t));
}

static void update_completed(hth_sim *sim)
{
    while (sim->completed < sim->computed &&
           sim->submits[(sim->completed + 1) % HTH_QUEUE_MAX_IN_FLIGHT].end_ns <= sim->host_ns)
        sim->completed++;
}

/* Lowers the budget; existing allocations stay. */
static void shrink(hth_device *d)
{
    hth_sim *sim = d->priv;
    sim->n_submit++;
    for (size_t i = 0; i < sim->gpu.n_budget; i++) {
        const hth_sim_budget *b = &sim->gpu.budgets[i];
        if (b->step != sim->n_submit) continue;
        if (b->bytes < d->limit) d->limit = b->bytes;
        if (b->bytes < d->info.budget) d->info.budget = b->bytes;
    }
}

static hearth_status submit(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                            hearth_error *err)
{
    hth_sim *sim = d->priv;
    uint64_t cost = hth_sim_cost(sim, &sim->host_random, sim->gpu.submit_ns);
    shrink(d);
    hth_sim_advance_host(sim, hth_sim_time(sim) + cost);
    if (!sim->gpu.wall_clock) {
        update_completed(sim);
        hearth_status st = hth_sim_enqueue(d, submits, n, first, sim->host_ns, err);
        if (st == HEARTH_OK) execute_ready(sim);
        return st;
    }
    pthread_mutex_lock(&sim->lock);
    hearth_status st = hth_sim_enqueue(d, submits, n, first, hth_sim_now(sim), err);
    pthread_cond_broadcast(&sim->changed);
    pthread_mutex_unlock(&sim->lock);
    return st;
}

static hearth_status signal_host(hth_device *d, uint64_t value, hearth_error *err)
{
    hth_sim *sim = d->priv;
    (void)err;
    if (!sim->gpu.wall_clock) {
        hth_sim_signal(sim, value, sim->host_ns);
        execute_ready(sim);
        return HEARTH_OK;
    }
    pthread_mutex_lock(&sim->lock);
    hth_sim_signal(sim, value, hth_sim_now(sim));
    pthread_cond_broadcast(&sim->changed);
    pthread_mutex_unlock(&sim->lock);
    return HEARTH_OK;
}

static hth_fence reached(hth_device *d, hth_queue_id queue)
{
    hth_sim *sim = d->priv;
    if (queue == HTH_QUEUE_BESIDE) return hth_sim_beside_completed(sim);
    if (!sim->gpu.wall_clock) {
        update_completed(sim);
        return sim->completed;
    }
    pthread_mutex_lock(&sim->lock);
    hth_fence fence = sim->completed;
    pthread_mutex_unlock(&sim->lock);
    return fence;
}

static hearth_status wait_for(hth_device *d, hth_queue_id queue, hth_fence fence, uint64_t timeout_ns, bool *late,
                              hearth_error *err)
{
    hth_sim *sim = d->priv;
    if (queue == HTH_QUEUE_BESIDE) return hth_sim_beside_wait(d, fence, timeout_ns, late, err);
    if (sim->gpu.wall_clock) return hth_sim_wait_wall(d, fence, timeout_ns, late, err);
    update_completed(sim);
    if (sim->completed >= fence) return HEARTH_OK;
    uint64_t end = sim->computed < fence ? UINT64_MAX : sim->submits[fence % HTH_QUEUE_MAX_IN_FLIGHT].end_ns;
    if (end == UINT64_MAX || end - sim->host_ns > timeout_ns) {
        advance_clock(d, timeout_ns);
        update_completed(sim);
        return hth_sim_not_done(d, fence, late, err);
    }
    sim->host_ns = end + hth_sim_cost(sim, &sim->host_random, sim->gpu.wake_ns);
    update_completed(sim);
    return HEARTH_OK;
}

const hth_backend hth_backend_simulated = {
    .open = open_simulated,
    .stop = stop,
    .close = close_simulated,
    .buffer_new = new_buffer,
    .buffer_import = import_buffer,
    .buffer_free = free_buffer,
    .upload = upload,
    .download = download,
    .pipeline_new = new_pipeline,
    .cmdlist_free = free_cmdlist,
    .submit = submit,
    .submit_beside = hth_sim_beside_submit,
    .signal = signal_host,
    .completed_value = reached,
    .wait = wait_for,
    .time = time_of,
    .advance_clock = advance_clock,
    .charge_host = hth_sim_charge_host,
};
