/* Command lists: records commands and checks them against the shader table and the buffer sizes, for every back
 * end. */
#include "base/alloc.h"
#include "base/checked_math.h"
#include "device/device_int.h"

#include <assert.h>
#include <string.h>

hearth_status hth_cmdlist_begin(hth_device *d, hth_cmdlist **out, hearth_error *err)
{
    *out = NULL;
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK) return st;
    hth_cmdlist *t = hth_alloc(1, sizeof *t);
    if (!t) return hth_fail_memory(err, sizeof *t, "a command list");
    t->device = d;
    t->next = d->cmdlists, t->link = &d->cmdlists;
    if (t->next) t->next->link = &t->next;
    d->cmdlists = t;
    *out = t;
    return HEARTH_OK;
}

void hth_cmdlist_free(hth_cmdlist *t)
{
    if (!t) return;
    hth_device *d = t->device;
    *t->link = t->next;
    if (t->next) t->next->link = t->link;
    memcpy(t->free_after, d->last, sizeof t->free_after);
    t->next = d->pending_free_cmdlists, t->link = &d->pending_free_cmdlists;
    if (t->next) t->next->link = &t->next;
    d->pending_free_cmdlists = t;
    hth_device_reclaim(d, false);
}

/* ---- recording -------------------------------------------------------------------------------------- */

/* Grows the array to n + more elements of `size` bytes. NULL: out of memory; the command list then holds the
 * error. */
static void *grow(hth_cmdlist *t, void *array, size_t n, size_t more, size_t *capacity, size_t size)
{
    size_t want = SIZE_MAX;
    if (hth_add_size(n, more, &want) && want <= *capacity && array) return array;
    size_t twice = *capacity < 16 ? 16 : 2 * *capacity, next = twice > want ? twice : want;
    void *grown = hth_realloc(array, next, size);
    if (!grown) {
        t->error.status = hth_fail_memory(&t->error, next * size, "a command list");
        return NULL;
    }
    *capacity = next;
    return grown;
}

/* The range lies in its buffer. If bound: the device allows its offset and size. */
static bool check_range(hth_cmdlist *t, hth_buffer_range *s, bool bound)
{
    const hth_device_info *info = &t->device->info;
    t->error.status = hth_buffer_range_check(s, &t->error);
    if (t->error.status == HEARTH_OK && bound &&
        (s->offset % info->alignment != 0 || s->size > info->max_binding_size))
        t->error.status =
            hth_fail(&t->error, HEARTH_ERROR_UNSUPPORTED,
                     "%s: %llu bytes from %llu on cannot be bound: at most %llu, at multiples of %u",
                     info->name, (unsigned long long)s->size, (unsigned long long)s->offset,
                     (unsigned long long)info->max_binding_size, info->alignment);
    return t->error.status == HEARTH_OK;
}

static bool check_written(hth_cmdlist *t, const hth_buffer_range *s)
{
    if (t->error.status == HEARTH_OK) t->error.status = hth_buffer_check_written(s->buffer, &t->error);
    return t->error.status == HEARTH_OK;
}

static hth_cmd *add_cmd(hth_cmdlist *t, hth_cmd_kind kind, const hth_buffer_range *ranges, size_t n_ranges)
{
    if (t->error.status != HEARTH_OK) return NULL;
    hth_cmd *cmds = grow(t, t->cmds, t->n_cmd, 1, &t->cmd_capacity, sizeof *cmds);
    if (!cmds) return NULL;
    t->cmds = cmds;
    hth_buffer_range *all = grow(t, t->ranges, t->n_range, n_ranges, &t->range_capacity, sizeof *all);
    if (!all) return NULL;
    t->ranges = all;
    for (size_t i = 0; i < n_ranges; i++) {
        hth_buffer_range s = ranges[i];
        bool is_grid = kind == HTH_CMD_DISPATCH_INDIRECT && i + 1 == n_ranges;
        if (!check_range(t, &s, (kind == HTH_CMD_DISPATCH || kind == HTH_CMD_DISPATCH_INDIRECT) && !is_grid))
            return NULL;
        all[t->n_range + i] = s;
    }
    hth_cmd *cmd = &cmds[t->n_cmd++];
    *cmd = (hth_cmd){.kind = kind, .n_range = (uint32_t)n_ranges, .first_range = t->n_range};
    t->n_range += n_ranges;
    return cmd;
}

/* Grids in memory are not checked: they are not larger than those recorded for the same shader. */
static bool check_grid(hth_cmdlist *t, const hth_pipeline *pipeline, const uint32_t grid[3])
{
    const uint32_t *max = t->device->info.max_groups;
    for (int i = 0; i < 3 && t->error.status == HEARTH_OK; i++)
        if (max[i] > 0 && grid[i] > max[i])
            t->error.status =
                hth_fail(&t->error, HEARTH_ERROR_UNSUPPORTED, "%s: %u workgroups of %s: at most %u",
                         t->device->info.name, grid[i], hth_shader_infos[pipeline->id].name, max[i]);
    return t->error.status == HEARTH_OK;
}

static void add_dispatch(hth_cmdlist *t, hth_cmd_kind kind, const hth_pipeline *pipeline,
                         const hth_buffer_range *ranges, size_t n_ranges, const void *push,
                         const uint32_t grid[3])
{
    const hth_shader_info *shader = &hth_shader_infos[pipeline->id];
    if (t->error.status != HEARTH_OK || !check_grid(t, pipeline, grid)) return;
    for (size_t i = 0; shader->bindings[i]; i++)
        if (shader->bindings[i] != 'r' && !check_written(t, &ranges[i])) return;
    uint8_t *bytes = grow(t, t->push, t->n_push, shader->push_size, &t->push_capacity, 1);
    if (!bytes) return;
    t->push = bytes;
    hth_cmd *cmd = add_cmd(t, kind, ranges, n_ranges);
    if (!cmd) return;
    cmd->pipeline = pipeline;
    cmd->push_offset = t->n_push;
    memcpy(cmd->grid, grid, sizeof cmd->grid);
    if (shader->push_size > 0) memcpy(bytes + t->n_push, push, shader->push_size);
    t->n_push += shader->push_size;
}

void hth_cmdlist_dispatch(hth_cmdlist *t, const hth_pipeline *pipeline, const hth_buffer_range *bind,
                          const void *push, uint32_t gx, uint32_t gy, uint32_t gz)
{
    const uint32_t grid[3] = {gx, gy, gz};
    add_dispatch(t, HTH_CMD_DISPATCH, pipeline, bind, strlen(hth_shader_infos[pipeline->id].bindings), push,
                 grid);
}

void hth_cmdlist_dispatch_indirect(hth_cmdlist *t, const hth_pipeline *pipeline, const hth_buffer_range *bind,
                                   const void *push, hth_buffer_range grid)
{
    static const uint32_t none[3];
    hth_buffer_range all[HTH_SHADER_MAX_BIND + 1];
    size_t n = strlen(hth_shader_infos[pipeline->id].bindings);
    memcpy(all, bind, n * sizeof *all);
    all[n] = grid;
    add_dispatch(t, HTH_CMD_DISPATCH_INDIRECT, pipeline, all, n + 1, push, none);
}

static hth_cmd *last_dispatch(hth_cmdlist *t)
{
    assert(t->n_cmd > 0 && t->cmds[t->n_cmd - 1].kind <= HTH_CMD_DISPATCH_INDIRECT);
    return &t->cmds[t->n_cmd - 1];
}

void hth_cmdlist_hint_bytes(hth_cmdlist *t, uint64_t bytes)
{
    if (t->error.status == HEARTH_OK) last_dispatch(t)->read_bytes = bytes;
}

void hth_cmdlist_hint_link_bytes(hth_cmdlist *t, uint64_t bytes)
{
    if (t->error.status == HEARTH_OK) last_dispatch(t)->link_bytes = bytes;
}

void hth_cmdlist_hint_bytes_masked(hth_cmdlist *t, uint64_t bytes, hth_buffer_range marks, uint32_t first,
                                   uint32_t n)
{
    if (t->error.status != HEARTH_OK || !check_range(t, &marks, false)) return;
    hth_cmdlist_hint_bytes(t, bytes);
    hth_cmd *cmd = &t->cmds[t->n_cmd - 1];
    assert(cmd->kind == HTH_CMD_DISPATCH && (uint64_t)first + n <= marks.size * 8);
    cmd->mask = marks, cmd->first_bit = first, cmd->n_bit = n;
}

void hth_cmdlist_copy(hth_cmdlist *t, hth_buffer_range from, hth_buffer_range to)
{
    if (check_written(t, &to)) add_cmd(t, HTH_CMD_COPY, (hth_buffer_range[]){from, to}, 2);
}

void hth_cmdlist_barrier(hth_cmdlist *t, const hth_buffer_range *written, size_t n)
{
    add_cmd(t, HTH_CMD_BARRIER, written, n);
}

bool hth_cmdlist_is_empty(const hth_cmdlist *t) { return t->n_cmd == 0; }

hearth_status hth_cmdlist_end(hth_cmdlist *t, hearth_error *err)
{
    hearth_status st = hth_device_begin_call(t->device, err);
    if (st != HEARTH_OK) return st;
    if (t->error.status != HEARTH_OK) {
        if (err) *err = t->error;
        return t->error.status;
    }
    const hth_backend *backend = t->device->backend;
    st = hth_device_end_call(t->device, backend->cmdlist_end ? backend->cmdlist_end(t, err) : HEARTH_OK);
    t->ended = st == HEARTH_OK;
    return st;
}
