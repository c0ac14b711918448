/* The null device: its programs are functions of C that the caller hands in, its memory is the host's.
 * Tapes run in the caller's thread, as soon as their turn has come and the gate is open: when they are
 * submitted, or signalled, waited or asked for. So every path of a GPU can be walked where there is none,
 * in an order that repeats. */
#include "base/alloc.h"
#include "device/device_int.h"

#include <stdio.h>
#include <string.h>

enum { SHARED = 32768, LOCAL = 256, SUBGROUP = 32 /* what common cards have, at least */ };

/* The most that a driver must allow for one binding, so that slices are cut here as there. */
static const uint64_t MOST = (uint64_t)128 << 20;

typedef struct pending {
    hth_tape *tape;
    uint64_t wait;
} pending;

typedef struct null_device {
    hth_program_fn *const *functions;
    pending queue[HTH_QUEUE_PENDING]; /* a ring, by tick */
    hth_tick reached;
    uint64_t gate;
} null_device;

static hearth_status open_null(hth_device *d, const hth_device_spec *spec, hearth_error *err)
{
    null_device *own = hth_alloc(1, sizeof *own);
    if (!own) return hth_fail_memory(err, sizeof *own, "the null device");
    own->functions = spec->functions;
    d->own = own;
    d->info = (hth_device_info){.kind = HTH_DEVICE_NULL, .memory = UINT64_MAX, .most = MOST, .alignment = 4};
    d->info.shared = SHARED, d->info.local = LOCAL, d->info.subgroup = SUBGROUP;
    if (spec->matrix.m > 0 && !(spec->without & HTH_FEATURE_MATRIX)) {
        d->info.features = HTH_FEATURE_MATRIX | (spec->matrix_2 ? HTH_FEATURE_MATRIX_2 & ~spec->without : 0u);
        d->info.n_shape = 1, d->info.shapes[0] = spec->matrix;
    }
    snprintf(d->info.name, sizeof d->info.name, "null");
    snprintf(d->info.driver, sizeof d->info.driver, "functions of C");
    return HEARTH_OK;
}

static void stop(hth_device *d) { (void)d; }

static uint64_t complaints(const hth_device *d)
{
    (void)d;
    return 0;
}

static void close_null(hth_device *d) { hth_free(d->own); }

/* ---- memory ------------------------------------------------------------------------------------- */

/* Filled with NaNs, so that what was never written shows. */
static hearth_status new_buffer(hth_buffer *b, const char *what, hearth_error *err)
{
    b->map = b->held <= SIZE_MAX ? hth_pages_alloc((size_t)b->held) : NULL;
    if (!b->map) return hth_fail_memory(err, (size_t)b->held, what);
    memset(b->map, 0xff, (size_t)b->held);
    return HEARTH_OK;
}

static void free_buffer(hth_buffer *b) { hth_pages_free(b->map, (size_t)b->held); }

static hearth_status upload(hth_slice to, const void *from, hearth_error *err)
{
    (void)err;
    memcpy(to.of->map + to.at, from, (size_t)to.bytes);
    return HEARTH_OK;
}

static hearth_status download(hth_slice from, void *to, hearth_error *err)
{
    (void)err;
    memcpy(to, from.of->map + from.at, (size_t)from.bytes);
    return HEARTH_OK;
}

/* ---- programs and tapes ---------------------------------------------------------------------------- */

static hearth_status new_program(hth_device *d, hth_program *p, hearth_error *err)
{
    const null_device *own = d->own;
    if (own->functions && own->functions[p->id]) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "the null device was given no function for the program %s",
                    hth_program_forms[p->id].name);
}

static void free_program(hth_device *d, hth_program *p) { (void)d, (void)p; }

static hearth_status end_tape(hth_tape *t, hearth_error *err)
{
    (void)t, (void)err;
    return HEARTH_OK;
}

static void free_tape(hth_tape *t) { (void)t; }

static uint8_t *bytes_of(const hth_slice *s) { return s->of->map + s->at; }

void hth_null_run(const hth_device *d, const hth_tape *t, const hth_op *op)
{
    const null_device *own = d->own;
    const hth_slice *slices = t->slices + op->first_slice;
    hth_program_call call = {.push = t->push + op->push_at};
    if (op->kind == HTH_OP_ORDER) return;
    if (op->kind == HTH_OP_COPY) {
        uint64_t n = slices[0].bytes < slices[1].bytes ? slices[0].bytes : slices[1].bytes;
        memmove(bytes_of(&slices[1]), bytes_of(&slices[0]), (size_t)n);
        return;
    }
    size_t n = op->kind == HTH_OP_RUN_AT ? op->n_slice - 1 : op->n_slice;
    memcpy(call.grid, op->kind == HTH_OP_RUN_AT ? (const void *)bytes_of(&slices[n]) : op->grid,
           sizeof call.grid);
    for (size_t i = 0; i < n; i++) call.bind[i] = bytes_of(&slices[i]), call.size[i] = slices[i].bytes;
    call.consts = op->program->consts;
    if (call.grid[0] && call.grid[1] && call.grid[2]) own->functions[op->program->id](&call);
}

/* ---- running ------------------------------------------------------------------------------------------ */

static void run_ready(hth_device *d)
{
    null_device *own = d->own;
    while (own->reached < d->last) {
        const pending *p = &own->queue[(own->reached + 1) % HTH_QUEUE_PENDING];
        if (p->wait > own->gate) return;
        for (size_t i = 0; i < p->tape->n_op; i++) hth_null_run(d, p->tape, &p->tape->ops[i]);
        own->reached++;
    }
}

static hearth_status submit(hth_device *d, const hth_turn *turns, size_t n, hth_tick first, hearth_error *err)
{
    null_device *own = d->own;
    if (first + n - 1 - own->reached > HTH_QUEUE_PENDING)
        return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: %llu tapes wait for the host", d->info.name,
                        (unsigned long long)(first + n - 1 - own->reached));
    for (size_t i = 0; i < n; i++)
        own->queue[(first + i) % HTH_QUEUE_PENDING] = (pending){turns[i].tape, turns[i].wait};
    return HEARTH_OK;
}

static hearth_status signal_gate(hth_device *d, uint64_t value, hearth_error *err)
{
    null_device *own = d->own;
    (void)err;
    own->gate = value;
    run_ready(d);
    return HEARTH_OK;
}

static hth_tick reached(hth_device *d)
{
    const null_device *own = d->own;
    run_ready(d);
    return own->reached;
}

/* Who waits here is the only one who could open the gate, so time changes nothing. */
static hearth_status wait_for(hth_device *d, hth_tick tick, uint64_t timeout_ns, bool *late,
                              hearth_error *err)
{
    const null_device *own = d->own;
    (void)timeout_ns, (void)late;
    if (reached(d) >= tick) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_DEVICE, "%s: tape %llu waits for the host's signal %llu, which stands at %llu",
        d->info.name, (unsigned long long)own->reached + 1,
        (unsigned long long)own->queue[(own->reached + 1) % HTH_QUEUE_PENDING].wait, (unsigned long long)own->gate);
}

const hth_backend hth_backend_null = {
    .open = open_null,
    .stop = stop,
    .close = close_null,
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
};
