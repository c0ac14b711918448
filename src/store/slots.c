/* Slots: how memory is divided into them, which of them are open, and a heap for each class. */
#include "store/slots.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/format_bytes.h"

#include <stdlib.h>
#include <string.h>

/* Items share a class if the smaller one fills 15 of 16 parts of a slot. A class of streamed items has 32 MiB to
 * read ahead, as much as a disk of 4 GB/s reads in 8 ms, and at least a slot that is computed, one that is there and
 * one that is read. */
enum { CLASS_PARTS = 16, STREAM_SIZE = 32 << 20, STREAM_MIN_SLOT = 3 };
/* Cached items beside streamed ones get at least this part of what is left: several are read at once. */
enum { CACHED_PART = 2 };

/* ---- classes -------------------------------------------------------------------------------- */

typedef struct item_size {
    uint32_t i_item;
    bool cached, pinned, on_device;
    size_t size;
} item_size;

/* Cached before other ones, then the larger before the smaller. */
static int compare_sizes(const void *a, const void *b)
{
    const item_size *x = a, *y = b;
    if (x->cached != y->cached) return x->cached ? -1 : 1;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->i_item < y->i_item ? -1 : 1;
}

static bool shares_class(const hth_slot_class *c, const item_size *i)
{
    return c->cached == i->cached && i->size >= c->size - c->size / CLASS_PARTS;
}

/* classes NULL: counts them. */
static uint32_t make_classes(const item_size *sizes, uint32_t n, hth_slot_class *classes, uint32_t *class_of)
{
    uint32_t n_class = 0;
    hth_slot_class c = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || !shares_class(&c, &sizes[i])) {
            c = (hth_slot_class){.size = sizes[i].size, .cached = sizes[i].cached};
            n_class++;
        }
        if (sizes[i].on_device) c.n_on_device++;
        else c.n_item++;
        c.n_pinned += sizes[i].pinned;
        if (classes) classes[n_class - 1] = c;
        class_of[sizes[i].i_item] = n_class - 1;
    }
    return n_class;
}

hearth_status hth_slots_sort(hth_slots *s, const hth_store_item *items, uint32_t n_item, hearth_error *err)
{
    uint64_t least;
    *s = (hth_slots){0};
    item_size *sizes = hth_alloc(n_item, sizeof *sizes);
    s->class_of = hth_alloc(n_item, sizeof *s->class_of);
    hearth_status st = HEARTH_OK;
    if (!sizes || !s->class_of) st = hth_fail_memory(err, n_item * sizeof *sizes, "sizes of items");
    bool fits = true;
    for (uint32_t i = 0; st == HEARTH_OK && i < n_item; i++) {
        hth_store_residence residence = items[i].residence;
        sizes[i] = (item_size){i, residence == HTH_STORE_CACHED, residence == HTH_STORE_PINNED, items[i].on_device, 0};
        fits = fits && hth_reader_buffer_size(items[i].extents, items[i].n_extent, &sizes[i].size);
    }
    if (st == HEARTH_OK && fits) {
        qsort(sizes, n_item, sizeof *sizes, compare_sizes);
        s->n_class = make_classes(sizes, n_item, NULL, s->class_of);
        s->classes = hth_alloc(s->n_class, sizeof *s->classes);
        if (s->classes) make_classes(sizes, n_item, s->classes, s->class_of);
        else st = hth_fail_memory(err, s->n_class * sizeof *s->classes, "classes of items");
    }
    if (st == HEARTH_OK && !(fits && hth_slots_least(s, &least)))
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "the bytes of all items do not fit into an integer");
    hth_free(sizes);
    return st;
}

/* ---- division of memory ---------------------------------------------------------------------- */

static uint32_t n_all(const hth_slot_class *c) { return c->n_item + c->n_on_device; }

/* Beside pinned items. What is on a device counts: it may come back, or be asked for by a step that began before. */
static uint32_t min_slots(const hth_slot_class *c)
{
    uint32_t n = c->cached ? 1 : STREAM_MIN_SLOT, n_other = n_all(c) - c->n_pinned;
    return c->n_pinned + (n < n_other ? n : n_other);
}

/* More slots would have no items. */
static uint32_t max_slots(const hth_slot_class *c) { return c->n_item > min_slots(c) ? c->n_item : min_slots(c); }

bool hth_slots_suffice(const hth_slots *s)
{
    for (uint32_t i = 0; i < s->n_class; i++)
        if (min_slots(&s->classes[i]) > s->classes[i].n_slot) return false;
    return true;
}

bool hth_slots_hold_all(const hth_slots *s, uint64_t memory)
{
    uint64_t sum = 0, of_class;
    for (uint32_t i = 0; i < s->n_class; i++)
        if (!hth_mul_u64(s->classes[i].size, max_slots(&s->classes[i]), &of_class) ||
            !hth_add_u64(sum, of_class, &sum))
            return false;
    return sum <= memory && (!s->slots || hth_slots_suffice(s));
}

static uint32_t stream_slots(const hth_slot_class *c)
{
    uint64_t n = c->n_pinned + STREAM_SIZE / c->size;
    return n > max_slots(c) ? max_slots(c) : n < min_slots(c) ? min_slots(c) : (uint32_t)n;
}

bool hth_slots_least(const hth_slots *s, uint64_t *size)
{
    uint64_t sum = 0, of_class;
    for (uint32_t i = 0; i < s->n_class; i++)
        if (!hth_mul_u64(s->classes[i].size, min_slots(&s->classes[i]), &of_class) ||
            !hth_add_u64(sum, of_class, &sum))
            return false;
    *size = sum;
    return sum <= SIZE_MAX;
}

/* Divides the memory above the least: first for reading ahead, then for cached items, to each class in proportion to
 * the bytes of its items. */
void hth_slots_divide(hth_slots *s, uint64_t memory)
{
    uint64_t least = 0;
    double all = 0.0, part;
    hth_slots_least(s, &least);
    uint64_t left = memory > least ? memory - least : 0, kept = 0;
    for (uint32_t i = 0; i < s->n_class; i++) {
        hth_slot_class *c = &s->classes[i];
        if (c->cached && c->n_item > 0) all += (double)c->size * c->n_item, kept = left / CACHED_PART;
    }
    for (uint32_t i = 0; i < s->n_class; i++) {
        hth_slot_class *c = &s->classes[i];
        c->n_open = min_slots(c);
        if (c->cached) continue;
        uint64_t n = left > kept ? (left - kept) / c->size : 0, max = stream_slots(c) - c->n_open;
        c->n_open += (uint32_t)(n < max ? n : max);
        left -= (n < max ? n : max) * c->size;
    }
    /* Sizes fall: the last classes take what others left. */
    for (uint32_t i = 0; i < s->n_class && all > 0.0; i++) {
        hth_slot_class *c = &s->classes[i];
        if (!c->cached) continue;
        part = (double)left * ((double)c->size * c->n_item / all);
        all -= (double)c->size * c->n_item;
        uint64_t n = (uint64_t)part / c->size, max = max_slots(c) - c->n_open;
        if (n > max) n = max;
        c->n_open += (uint32_t)n;
        left -= n * c->size;
    }
    for (uint32_t i = 0; i < s->n_class && s->slots; i++) {
        hth_slot_class *c = &s->classes[i];
        if (c->n_open > c->n_slot) c->n_open = c->n_slot;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

bool hth_store_min_memory(const hth_store_item *items, uint32_t n_item, uint64_t *size)
{
    hth_slots s;
    bool ok = hth_slots_sort(&s, items, n_item, NULL) == HEARTH_OK && hth_slots_least(&s, size);
    hth_slots_close(&s);
    return ok;
}

/* Addresses, and all slots free. */
static void place(hth_slots *s)
{
    uint8_t *at = s->memory;
    uint32_t n = 0, *list = s->lists;
    for (uint32_t i = 0; i < s->n_class; i++) {
        hth_slot_class *c = &s->classes[i];
        c->first_slot = n;
        c->heap = list, c->free = list + c->n_slot, list += 2 * (size_t)c->n_slot;
        for (uint32_t k = 0; k < c->n_slot; k++, at += c->size) {
            s->slots[n] = (hth_slot){.memory = at, .i_class = i, .i_item = HTH_NO_ITEM, .i_heap = HTH_NO_SLOT};
            c->free[c->n_slot - 1 - k] = n++;
        }
        c->n_free = c->n_slot;
    }
}

/* Bytes of all items, those on a device included; 0.0: none is there. */
static double size_with_device(const hth_slots *s)
{
    double size = 0.0;
    bool some = false;
    for (uint32_t i = 0; i < s->n_class; i++) {
        const hth_slot_class *c = &s->classes[i];
        size += (double)c->size * n_all(c);
        some = some || c->n_on_device > 0;
    }
    return some ? size : 0.0;
}

/* Slots that a class may have once items come back, of `all` bytes in memory: its share, and what is read ahead. */
static uint32_t slots_with_device(const hth_slot_class *c, uint64_t memory, double all)
{
    double n = (double)memory / all * n_all(c) + (double)(STREAM_SIZE / c->size + STREAM_MIN_SLOT);
    return n < n_all(c) ? (uint32_t)n : n_all(c);
}

hearth_status hth_slots_open(hth_slots *s, uint64_t memory, bool no_bytes, hearth_error *err)
{
    void *(*alloc)(size_t) = no_bytes ? hth_pages_reserve : hth_pages_alloc;
    uint64_t size = 0;
    size_t n_slot = 0;
    double all = size_with_device(s);
    hth_slots_divide(s, memory);
    for (uint32_t i = 0; i < s->n_class; i++) {
        hth_slot_class *c = &s->classes[i];
        uint32_t n = all > 0.0 ? slots_with_device(c, memory, all) : 0;
        c->n_slot = n > c->n_open ? n : c->n_open;
        n_slot += c->n_slot;
        size += (uint64_t)c->n_slot * c->size;
    }
    s->n_slot = (uint32_t)n_slot;
    s->size = (size_t)size, s->open_size = size;
    s->slots = hth_alloc(n_slot, sizeof *s->slots);
    s->lists = hth_alloc(2 * n_slot, sizeof *s->lists);
    s->memory = s->slots && s->lists ? alloc(s->size) : NULL;
    if (!s->memory)
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "no memory: %s for weights that are read when they are needed",
                        hth_format_bytes(size).text);
    place(s);
    if (all > 0.0) hth_slots_close_free(s);
    return HEARTH_OK;
}

void hth_slots_close(hth_slots *s)
{
    hth_pages_free(s->memory, s->size);
    hth_free(s->slots);
    hth_free(s->lists);
    hth_free(s->classes);
    hth_free(s->class_of);
    *s = (hth_slots){0};
}

/* ---- slots that are closed ----------------------------------------------------------------------- */

bool hth_slots_is_surplus(const hth_slots *s, uint32_t i_slot)
{
    const hth_slot_class *c = &s->classes[s->slots[i_slot].i_class];
    return i_slot - c->first_slot >= c->n_open;
}

void hth_slots_close_one(hth_slots *s, uint32_t i_slot)
{
    hth_slot *slot = &s->slots[i_slot];
    size_t size = s->classes[slot->i_class].size;
    if (slot->touched) hth_pages_discard(slot->memory, size), s->touched_size -= size;
    s->open_size -= size;
    slot->i_item = HTH_NO_ITEM;
    slot->touched = false, slot->closed = true;
}

void hth_slots_touch(hth_slots *s, uint32_t i_slot)
{
    hth_slot *slot = &s->slots[i_slot];
    if (!slot->touched) s->touched_size += s->classes[slot->i_class].size;
    slot->touched = true;
}

static void reopen(hth_slots *s, uint32_t i_slot)
{
    hth_slot *slot = &s->slots[i_slot];
    slot->closed = false;
    s->open_size += s->classes[slot->i_class].size;
    hth_slots_put_free(s, i_slot);
}

void hth_slots_close_free(hth_slots *s)
{
    for (uint32_t i = 0; i < s->n_class; i++) {
        hth_slot_class *c = &s->classes[i];
        uint32_t n_free = c->n_free;
        c->n_free = 0;
        for (uint32_t k = 0; k < n_free; k++) {
            if (hth_slots_is_surplus(s, c->free[k])) hth_slots_close_one(s, c->free[k]);
            else c->free[c->n_free++] = c->free[k];
        }
        for (uint32_t k = 0; k < c->n_open; k++)
            if (s->slots[c->first_slot + k].closed) reopen(s, c->first_slot + k);
    }
}

/* ---- free slots ------------------------------------------------------------------------------- */

uint32_t hth_slots_take_free(hth_slots *s, uint32_t i_class)
{
    hth_slot_class *c = &s->classes[i_class];
    return c->n_free > 0 ? c->free[--c->n_free] : HTH_NO_SLOT;
}

void hth_slots_put_free(hth_slots *s, uint32_t i_slot)
{
    hth_slot_class *c = &s->classes[s->slots[i_slot].i_class];
    s->slots[i_slot].i_item = HTH_NO_ITEM;
    c->free[c->n_free++] = i_slot;
}

/* ---- the heap ----------------------------------------------------------------------------------- */

static void heap_set(hth_slots *s, hth_slot_class *c, uint32_t i, uint32_t i_slot)
{
    c->heap[i] = i_slot;
    s->slots[i_slot].i_heap = i;
}

/* Moves entry i to where its key belongs. */
static void heap_sift(hth_slots *s, hth_slot_class *c, uint32_t i)
{
    uint32_t i_slot = c->heap[i];
    float key = s->slots[i_slot].key;
    for (; i > 0 && s->slots[c->heap[(i - 1) / 2]].key > key; i = (i - 1) / 2) heap_set(s, c, i, c->heap[(i - 1) / 2]);
    for (uint32_t k; (k = 2 * i + 1) < c->n_heap; i = k) {
        if (k + 1 < c->n_heap && s->slots[c->heap[k + 1]].key < s->slots[c->heap[k]].key) k++;
        if (s->slots[c->heap[k]].key >= key) break;
        heap_set(s, c, i, c->heap[k]);
    }
    heap_set(s, c, i, i_slot);
}

uint32_t hth_slots_victim(const hth_slots *s, uint32_t i_class)
{
    const hth_slot_class *c = &s->classes[i_class];
    return c->n_heap > 0 ? c->heap[0] : HTH_NO_SLOT;
}

void hth_slots_release(hth_slots *s, uint32_t i_slot, float key)
{
    hth_slot *slot = &s->slots[i_slot];
    hth_slot_class *c = &s->classes[slot->i_class];
    slot->key = key;
    if (slot->i_heap == HTH_NO_SLOT) slot->i_heap = c->n_heap, c->heap[c->n_heap++] = i_slot;
    heap_sift(s, c, slot->i_heap);
}

void hth_slots_hold(hth_slots *s, uint32_t i_slot)
{
    hth_slot *slot = &s->slots[i_slot];
    uint32_t at = slot->i_heap;
    if (at == HTH_NO_SLOT) return;
    hth_slot_class *c = &s->classes[slot->i_class];
    uint32_t last = c->heap[--c->n_heap];
    slot->i_heap = HTH_NO_SLOT;
    if (last == i_slot) return;
    heap_set(s, c, at, last);
    heap_sift(s, c, at);
}

void hth_slots_scale(hth_slots *s, float factor)
{
    for (uint32_t i = 0; i < s->n_slot; i++) s->slots[i].key *= factor;
}
