/* Buffers: enforces the memory budget, and frees memory only once the device has completed its last use. Imported ones
 * are the caller's memory, which no budget counts. */
#include "base/alloc.h"
#include "base/format_bytes.h"
#include "device/device_int.h"

#include <assert.h>
#include <string.h>

enum { ALIGNMENT = 256 }; /* allocation granularity, bytes */

static void link_buffer(hth_buffer **list, hth_buffer *b)
{
    b->next = *list, b->link = list;
    if (*list) (*list)->link = &b->next;
    *list = b;
}

static void unlink_buffer(hth_buffer *b)
{
    *b->link = b->next;
    if (b->next) b->next->link = b->link;
}

static hearth_status make_buffer(hth_device *d, hth_memory memory, uint64_t size, const char *what,
                                 hth_buffer **out, hearth_error *err)
{
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK) return st;
    hth_device_reclaim(d, false);
    uint64_t held = size <= UINT64_MAX - ALIGNMENT ? (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : UINT64_MAX;
    if (d->used > d->limit || held > d->limit - d->used)
        return hth_fail(err, HEARTH_ERROR_MEMORY, "%s: %s: %s wanted, %s of %s are in use", d->info.name,
                        what, hth_format_bytes(size).text, hth_format_bytes(d->used).text,
                        hth_format_bytes(d->limit).text);
    if (d->info.max_allocation > 0 && held > d->info.max_allocation)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s: %s wanted, its driver allocates at most %s at once",
                        d->info.name, what, hth_format_bytes(size).text, hth_format_bytes(d->info.max_allocation).text);
    hth_buffer *b = hth_alloc(1, sizeof *b);
    if (!b) return hth_fail_memory(err, sizeof *b, "a buffer");
    *b = (hth_buffer){.device = d, .memory = memory, .size = size, .allocated = held};
    st = hth_device_end_call(d, d->backend->buffer_new(b, what, err));
    if (st != HEARTH_OK) {
        hth_free(b);
        return st;
    }
    d->used += held;
    if (memory == HTH_MEMORY_DEVICE) d->used_device += held;
    if (d->used > d->peak) d->peak = d->used;
    link_buffer(&d->buffers, b);
    *out = b;
    return HEARTH_OK;
}

hearth_status hth_buffer_new(hth_device *d, hth_memory memory, uint64_t size, const char *what,
                             hth_buffer **out, hearth_error *err)
{
    *out = NULL;
    hearth_status st = make_buffer(d, memory, size, what, out, err);
    if (st == HEARTH_ERROR_MEMORY) d->used_at_oom = d->used;
    return st;
}

static hearth_status import_buffer(hth_device *d, const void *data, uint64_t size, const char *what, hth_buffer **out,
                                   uint64_t *offset, hearth_error *err)
{
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK) return st;
    hth_device_reclaim(d, false);
    if (!(d->info.features & HTH_FEATURE_IMPORT))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s: its driver does not read the host's memory in place",
                        d->info.name, what);
    if (size > d->info.max_binding_size)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s: %s wanted, its driver binds at most %s at once",
                        d->info.name, what, hth_format_bytes(size).text,
                        hth_format_bytes(d->info.max_binding_size).text);
    hth_buffer *b = hth_alloc(1, sizeof *b);
    if (!b) return hth_fail_memory(err, sizeof *b, "a buffer");
    *b = (hth_buffer){.device = d, .memory = HTH_MEMORY_HOST, .size = size};
    st = hth_device_end_call(d, d->backend->buffer_import(b, data, what, err));
    if (st != HEARTH_OK) {
        hth_free(b);
        return st;
    }
    link_buffer(&d->buffers, b);
    *offset = (uint64_t)((const uint8_t *)data - b->map);
    *out = b;
    return HEARTH_OK;
}

hearth_status hth_buffer_import(hth_device *d, const void *data, uint64_t size, const char *what, hth_buffer **out,
                                uint64_t *offset, hearth_error *err)
{
    assert(data && size > 0);
    *out = NULL, *offset = 0;
    return import_buffer(d, data, size, what, out, offset, err);
}

void hth_buffer_free(hth_buffer *b)
{
    if (!b) return;
    hth_device *d = b->device;
    unlink_buffer(b);
    memcpy(b->free_after, d->last, sizeof b->free_after);
    link_buffer(&d->pending_free, b);
    hth_device_reclaim(d, false);
}

uint64_t hth_buffer_size(const hth_buffer *b) { return b->size; }
void *hth_buffer_map(hth_buffer *b) { return b->memory == HTH_MEMORY_DEVICE ? NULL : b->map; }

static bool is_unused(const hth_fence after[HTH_N_QUEUE], const hth_fence reached[HTH_N_QUEUE])
{
    for (int i = 0; i < HTH_N_QUEUE; i++)
        if (after[i] > reached[i]) return false;
    return true;
}

static void reclaim_buffers(hth_device *d, const hth_fence reached[HTH_N_QUEUE])
{
    for (hth_buffer *b = d->pending_free, *next; b; b = next) {
        next = b->next;
        if (!is_unused(b->free_after, reached)) continue;
        unlink_buffer(b);
        d->used -= b->allocated;
        if (b->memory == HTH_MEMORY_DEVICE) d->used_device -= b->allocated;
        d->backend->buffer_free(b);
        hth_free(b);
    }
}

static void reclaim_cmdlists(hth_device *d, const hth_fence reached[HTH_N_QUEUE])
{
    for (hth_cmdlist *t = d->pending_free_cmdlists, *next; t; t = next) {
        next = t->next;
        if (!is_unused(t->free_after, reached)) continue;
        *t->link = t->next;
        if (t->next) t->next->link = t->link;
        if (t->ended && d->backend->cmdlist_free) d->backend->cmdlist_free(t);
        hth_free(t->cmds);
        hth_free(t->ranges);
        hth_free(t->push);
        hth_free(t);
    }
}

void hth_device_reclaim(hth_device *d, bool all)
{
    if (!d->pending_free && !d->pending_free_cmdlists) return;
    /* A lost device may still access its memory until it is stopped. */
    if (d->lost && !all) return;
    hth_fence reached[HTH_N_QUEUE];
    for (int i = 0; i < HTH_N_QUEUE; i++)
        reached[i] = all ? UINT64_MAX : d->backend->completed_value(d, (hth_queue_id)i);
    reclaim_cmdlists(d, reached);
    reclaim_buffers(d, reached);
}

/* ---- transfers between host and device -------------------------------------------------------------- */

hearth_status hth_buffer_range_check(hth_buffer_range *s, hearth_error *err)
{
    uint64_t size = s->buffer->size;
    if (s->size == 0 && s->offset <= size) s->size = size - s->offset;
    if (s->offset <= size && s->size <= size - s->offset) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: %llu bytes from %llu on of a buffer of %llu",
                    s->buffer->device->info.name, (unsigned long long)s->size, (unsigned long long)s->offset,
                    (unsigned long long)size);
}

hearth_status hth_buffer_check_written(const hth_buffer *b, hearth_error *err)
{
    if (b->memory != HTH_MEMORY_HOST) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: imported memory of the host is not written", b->device->info.name);
}

hearth_status hth_device_upload(hth_buffer_range to, const void *from, hearth_error *err)
{
    hth_device *d = to.buffer->device;
    hearth_status st = hth_device_begin_call(d, err);
    if (st == HEARTH_OK) st = hth_buffer_range_check(&to, err);
    if (st == HEARTH_OK) st = hth_buffer_check_written(to.buffer, err);
    if (st != HEARTH_OK) return st;
    return hth_device_end_call(d, d->backend->upload(to, from, err));
}

hearth_status hth_device_download(hth_buffer_range from, void *to, hearth_error *err)
{
    hth_device *d = from.buffer->device;
    hearth_status st = hth_device_begin_call(d, err);
    if (st == HEARTH_OK) st = hth_buffer_range_check(&from, err);
    if (st != HEARTH_OK) return st;
    return hth_device_end_call(d, d->backend->download(from, to, err));
}
