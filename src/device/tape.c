/* Tapes: commands as they are recorded, checked against the table of programs and the sizes of buffers, for
 * whichever back end runs them. */
#include "base/alloc.h"
#include "base/checked.h"
#include "device/device_int.h"

#include <assert.h>
#include <string.h>

hearth_status hth_tape_begin(hth_device *d, hth_tape **out, hearth_error *err)
{
    *out = NULL;
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK) return st;
    hth_tape *t = hth_alloc(1, sizeof *t);
    if (!t) return hth_fail_memory(err, sizeof *t, "a tape");
    t->device = d;
    t->next = d->tapes, t->link = &d->tapes;
    if (t->next) t->next->link = &t->next;
    d->tapes = t;
    *out = t;
    return HEARTH_OK;
}

void hth_tape_free(hth_tape *t)
{
    if (!t) return;
    hth_device *d = t->device;
    *t->link = t->next;
    if (t->next) t->next->link = t->link;
    t->free_after = d->last;
    t->next = d->waiting_tapes, t->link = &d->waiting_tapes;
    if (t->next) t->next->link = &t->next;
    d->waiting_tapes = t;
    hth_device_sweep(d, false);
}

/* ---- recording -------------------------------------------------------------------------------------- */

/* Room for `more` of `size` bytes each behind the n there are; NULL: the tape is wrong from now on. */
static void *grow(hth_tape *t, void *array, size_t n, size_t more, size_t *room, size_t size)
{
    size_t want = SIZE_MAX;
    if (hth_add_size(n, more, &want) && want <= *room && array) return array;
    size_t twice = *room < 16 ? 16 : 2 * *room, next = twice > want ? twice : want;
    void *grown = hth_realloc(array, next, size);
    if (!grown) {
        t->wrong.status = hth_fail_memory(&t->wrong, next * size, "a tape");
        return NULL;
    }
    *room = next;
    return grown;
}

/* In its buffer and, where it is bound, at a place and of a size that the device allows. */
static bool check_slice(hth_tape *t, hth_slice *s, bool bound)
{
    const hth_device_info *info = &t->device->info;
    t->wrong.status = hth_slice_check(s, &t->wrong);
    if (t->wrong.status == HEARTH_OK && bound && (s->at % info->alignment != 0 || s->bytes > info->most))
        t->wrong.status =
            hth_fail(&t->wrong, HEARTH_ERROR_UNSUPPORTED,
                     "%s: %llu bytes from %llu on cannot be bound: at most %llu, at multiples of %u",
                     info->name, (unsigned long long)s->bytes, (unsigned long long)s->at,
                     (unsigned long long)info->most, info->alignment);
    return t->wrong.status == HEARTH_OK;
}

static hth_op *add_op(hth_tape *t, hth_op_kind kind, const hth_slice *slices, size_t n_slice)
{
    if (t->wrong.status != HEARTH_OK) return NULL;
    hth_op *ops = grow(t, t->ops, t->n_op, 1, &t->room_op, sizeof *ops);
    if (!ops) return NULL;
    t->ops = ops;
    hth_slice *all = grow(t, t->slices, t->n_slice, n_slice, &t->room_slice, sizeof *all);
    if (!all) return NULL;
    t->slices = all;
    for (size_t i = 0; i < n_slice; i++) {
        hth_slice s = slices[i];
        bool is_grid = kind == HTH_OP_RUN_AT && i + 1 == n_slice;
        if (!check_slice(t, &s, (kind == HTH_OP_RUN || kind == HTH_OP_RUN_AT) && !is_grid)) return NULL;
        all[t->n_slice + i] = s;
    }
    hth_op *op = &ops[t->n_op++];
    *op = (hth_op){.kind = kind, .n_slice = (uint32_t)n_slice, .first_slice = t->n_slice};
    t->n_slice += n_slice;
    return op;
}

static void add_run(hth_tape *t, hth_op_kind kind, const hth_program *program, const hth_slice *slices,
                    size_t n_slice, const void *push, const uint32_t grid[3])
{
    const hth_program_form *form = &hth_program_forms[program->id];
    if (t->wrong.status != HEARTH_OK) return;
    uint8_t *bytes = grow(t, t->push, t->n_push, form->push_size, &t->room_push, 1);
    if (!bytes) return;
    t->push = bytes;
    hth_op *op = add_op(t, kind, slices, n_slice);
    if (!op) return;
    op->program = program;
    op->push_at = t->n_push;
    memcpy(op->grid, grid, sizeof op->grid);
    if (form->push_size > 0) memcpy(bytes + t->n_push, push, form->push_size);
    t->n_push += form->push_size;
}

void hth_tape_run(hth_tape *t, const hth_program *program, const hth_slice *bind, const void *push,
                  uint32_t gx, uint32_t gy, uint32_t gz)
{
    const uint32_t grid[3] = {gx, gy, gz};
    add_run(t, HTH_OP_RUN, program, bind, strlen(hth_program_forms[program->id].bindings), push, grid);
}

void hth_tape_run_at(hth_tape *t, const hth_program *program, const hth_slice *bind, const void *push,
                     hth_slice grid)
{
    static const uint32_t none[3];
    hth_slice all[HTH_PROGRAM_MAX_BIND + 1];
    size_t n = strlen(hth_program_forms[program->id].bindings);
    memcpy(all, bind, n * sizeof *all);
    all[n] = grid;
    add_run(t, HTH_OP_RUN_AT, program, all, n + 1, push, none);
}

void hth_tape_reads(hth_tape *t, uint64_t bytes)
{
    if (t->wrong.status != HEARTH_OK) return;
    assert(t->n_op > 0 && t->ops[t->n_op - 1].kind <= HTH_OP_RUN_AT);
    t->ops[t->n_op - 1].reads = bytes;
}

void hth_tape_reads_marked(hth_tape *t, uint64_t bytes, hth_slice marks, uint32_t first, uint32_t n)
{
    if (t->wrong.status != HEARTH_OK || !check_slice(t, &marks, false)) return;
    hth_tape_reads(t, bytes);
    hth_op *op = &t->ops[t->n_op - 1];
    assert(op->kind == HTH_OP_RUN && (uint64_t)first + n <= marks.bytes * 8);
    op->marks = marks, op->first_mark = first, op->n_mark = n;
}

void hth_tape_copy(hth_tape *t, hth_slice from, hth_slice to)
{
    add_op(t, HTH_OP_COPY, (hth_slice[]){from, to}, 2);
}

void hth_tape_order(hth_tape *t, const hth_slice *written, size_t n) { add_op(t, HTH_OP_ORDER, written, n); }

bool hth_tape_is_empty(const hth_tape *t) { return t->n_op == 0; }

hearth_status hth_tape_end(hth_tape *t, hearth_error *err)
{
    hearth_status st = hth_device_begin_call(t->device, err);
    if (st != HEARTH_OK) return st;
    if (t->wrong.status != HEARTH_OK) {
        if (err) *err = t->wrong;
        return t->wrong.status;
    }
    st = hth_device_end_call(t->device, t->device->back->tape_end(t, err));
    t->ended = st == HEARTH_OK;
    return st;
}
