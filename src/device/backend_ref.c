/* The reference device ("null" in the user interface): its shaders are C functions that the caller passes in, its
 * memory is host memory. A command list runs in the caller's thread as soon as all earlier ones are done and the
 * host semaphore allows it: inside submit, signal, wait or a query. Every GPU path can therefore run without a
 * GPU, in a repeatable order. A command list of the second queue runs when it is submitted. */
#include "base/alloc.h"
#include "device/device_int.h"

#include <stdio.h>
#include <string.h>

enum { SHARED = 32768, LOCAL = 256, SUBGROUP = 32 /* the minimum of common GPUs */ };

/* The smallest maxStorageBufferRange that a driver may report, so that buffer ranges split as on a GPU. */
static const uint64_t MAX_BINDING = (uint64_t)128 << 20;

typedef struct pending {
    hth_cmdlist *cmdlist;
    uint64_t wait;
} pending;

typedef struct ref_device {
    hth_shader_ref_fn *const *functions;
    pending queue[HTH_QUEUE_MAX_IN_FLIGHT]; /* ring, indexed by fence */
    hth_fence completed, completed_beside;
    uint64_t host_value;
} ref_device;

static hearth_status open_ref(hth_device *d, const hth_device_spec *spec, hearth_error *err)
{
    ref_device *own = hth_alloc(1, sizeof *own);
    if (!own) return hth_fail_memory(err, sizeof *own, "the null device");
    own->functions = spec->shader_refs;
    d->priv = own;
    d->info = (hth_device_info){.kind = HTH_DEVICE_REF, .memory = UINT64_MAX, .has_second_queue = true,
                                .max_binding_size = MAX_BINDING, .alignment = 4};
    d->info.max_shared_memory = SHARED, d->info.max_workgroup_size = LOCAL, d->info.subgroup_size = SUBGROUP;
    d->info.features = HTH_FEATURE_IMPORT & ~spec->disabled_features;
    if (spec->coopmat.m > 0 && !(spec->disabled_features & HTH_FEATURE_COOPMAT)) {
        d->info.features |= HTH_FEATURE_COOPMAT;
        if (spec->coopmat2) d->info.features |= HTH_FEATURE_COOPMAT2 & ~spec->disabled_features;
        d->info.n_shape = 1, d->info.shapes[0] = spec->coopmat;
    }
    snprintf(d->info.name, sizeof d->info.name, "null");
    snprintf(d->info.driver, sizeof d->info.driver, "functions of C");
    return HEARTH_OK;
}

static void close_ref(hth_device *d) { hth_free(d->priv); }

/* ---- memory ------------------------------------------------------------------------------------- */

/* Filled with NaNs, so that a read of unwritten memory shows. */
hearth_status hth_ref_buffer_new(hth_buffer *b, const char *what, hearth_error *err)
{
    b->map = b->allocated <= SIZE_MAX ? hth_pages_alloc((size_t)b->allocated) : NULL;
    if (!b->map) return hth_fail_memory(err, (size_t)b->allocated, what);
    memset(b->map, 0xff, (size_t)b->allocated);
    return HEARTH_OK;
}

/* From a multiple of the alignment of bindings on. */
hearth_status hth_ref_buffer_import(hth_buffer *b, const void *data, const char *what, hearth_error *err)
{
    uintptr_t before = (uintptr_t)data % b->device->info.alignment;
    (void)what, (void)err;
    b->map = (uint8_t *)((uintptr_t)data - before);
    b->size += before;
    return HEARTH_OK;
}

static void free_buffer(hth_buffer *b)
{
    if (b->memory != HTH_MEMORY_HOST) hth_pages_free(b->map, (size_t)b->allocated);
}

static hearth_status upload(hth_buffer_range to, const void *from, hearth_error *err)
{
    (void)err;
    memcpy(to.buffer->map + to.offset, from, (size_t)to.size);
    return HEARTH_OK;
}

static hearth_status download(hth_buffer_range from, void *to, hearth_error *err)
{
    (void)err;
    memcpy(to, from.buffer->map + from.offset, (size_t)from.size);
    return HEARTH_OK;
}

/* ---- shaders and command lists --------------------------------------------------------------------- */

static hearth_status new_pipeline(hth_device *d, hth_pipeline *p, hearth_error *err)
{
    const ref_device *own = d->priv;
    if (own->functions && own->functions[p->id]) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "the null device was given no function for the shader %s",
                    hth_shader_infos[p->id].name);
}

static uint8_t *bytes_of(const hth_buffer_range *s) { return s->buffer->map + s->offset; }

void hth_ref_dispatch(const hth_device *d, const hth_cmdlist *t, const hth_cmd *cmd)
{
    const ref_device *own = d->priv;
    const hth_buffer_range *ranges = t->ranges + cmd->first_range;
    hth_dispatch_args call = {.push = t->push + cmd->push_offset};
    if (cmd->kind == HTH_CMD_BARRIER) return;
    if (cmd->kind == HTH_CMD_COPY) {
        uint64_t n = ranges[0].size < ranges[1].size ? ranges[0].size : ranges[1].size;
        memmove(bytes_of(&ranges[1]), bytes_of(&ranges[0]), (size_t)n);
        return;
    }
    size_t n = cmd->kind == HTH_CMD_DISPATCH_INDIRECT ? cmd->n_range - 1 : cmd->n_range;
    memcpy(call.grid, cmd->kind == HTH_CMD_DISPATCH_INDIRECT ? (const void *)bytes_of(&ranges[n]) : cmd->grid,
           sizeof call.grid);
    for (size_t i = 0; i < n; i++) call.bind[i] = bytes_of(&ranges[i]), call.size[i] = ranges[i].size;
    call.consts = cmd->pipeline->consts;
    if (call.grid[0] && call.grid[1] && call.grid[2]) own->functions[cmd->pipeline->id](&call);
}

/* ---- execution ---------------------------------------------------------------------------------------- */

static void run_cmdlist(hth_device *d, const hth_cmdlist *t)
{
    for (size_t i = 0; i < t->n_cmd; i++) hth_ref_dispatch(d, t, &t->cmds[i]);
}

static void run_ready(hth_device *d)
{
    ref_device *own = d->priv;
    while (own->completed < d->last[HTH_QUEUE_MAIN]) {
        const pending *p = &own->queue[(own->completed + 1) % HTH_QUEUE_MAX_IN_FLIGHT];
        if (p->wait > own->host_value) return;
        run_cmdlist(d, p->cmdlist);
        own->completed++;
    }
}

static hearth_status submit(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first, hearth_error *err)
{
    ref_device *own = d->priv;
    if (first + n - 1 - own->completed > HTH_QUEUE_MAX_IN_FLIGHT)
        return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: %llu command lists wait for the host", d->info.name,
                        (unsigned long long)(first + n - 1 - own->completed));
    for (size_t i = 0; i < n; i++)
        own->queue[(first + i) % HTH_QUEUE_MAX_IN_FLIGHT] = (pending){submits[i].cmdlist, submits[i].wait};
    return HEARTH_OK;
}

static hearth_status submit_beside(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence first, hearth_error *err)
{
    (void)err;
    for (size_t i = 0; i < n; i++) run_cmdlist(d, t[i]);
    ((ref_device *)d->priv)->completed_beside = first + n - 1;
    return HEARTH_OK;
}

static hearth_status signal_host(hth_device *d, uint64_t value, hearth_error *err)
{
    ref_device *own = d->priv;
    (void)err;
    own->host_value = value;
    run_ready(d);
    return HEARTH_OK;
}

static hth_fence completed(hth_device *d, hth_queue_id queue)
{
    const ref_device *own = d->priv;
    if (queue == HTH_QUEUE_BESIDE) return own->completed_beside;
    run_ready(d);
    return own->completed;
}

/* The waiting thread is the only one that could signal the host semaphore, so waiting changes nothing. */
static hearth_status wait_for(hth_device *d, hth_queue_id queue, hth_fence fence, uint64_t timeout_ns, bool *late,
                              hearth_error *err)
{
    const ref_device *own = d->priv;
    (void)timeout_ns, (void)late;
    if (completed(d, queue) >= fence) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_DEVICE, "%s: command list %llu waits for the host semaphore value %llu; it is %llu",
        d->info.name, (unsigned long long)own->completed + 1,
        (unsigned long long)own->queue[(own->completed + 1) % HTH_QUEUE_MAX_IN_FLIGHT].wait,
        (unsigned long long)own->host_value);
}

const hth_backend hth_backend_ref = {
    .open = open_ref,
    .close = close_ref,
    .buffer_new = hth_ref_buffer_new,
    .buffer_import = hth_ref_buffer_import,
    .buffer_free = free_buffer,
    .upload = upload,
    .download = download,
    .pipeline_new = new_pipeline,
    .submit = submit,
    .submit_beside = submit_beside,
    .signal = signal_host,
    .completed_value = completed,
    .wait = wait_for,
};
