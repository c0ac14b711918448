/* Slots: how memory is divided into them, and a heap for each class. */
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

/* ---- classes -------------------------------------------------------------------------------- */

typedef struct item_size {
    uint32_t i_item;
    bool streamed;
    size_t size;
} item_size;

/* Cached before streamed ones, then the larger before the smaller. */
static int compare_sizes(const void *a, const void *b)
{
    const item_size *x = a, *y = b;
    if (x->streamed != y->streamed) return x->streamed ? 1 : -1;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->i_item < y->i_item ? -1 : 1;
}

static bool shares_class(const hth_slot_class *c, const item_size *i)
{
    return c->streamed == i->streamed && i->size >= c->size - c->size / CLASS_PARTS;
}

/* Sorts the items that are not pinned; returns their number. *pinned: bytes of the others. False: overflow. */
static bool sort_items(const hth_store_item *items, uint32_t n_item, item_size *sizes, uint32_t *n, uint64_t *pinned)
{
    *n = 0, *pinned = 0;
    for (uint32_t i = 0; i < n_item; i++) {
        item_size s = {i, items[i].residence == HTH_STORE_STREAMED, 0};
        if (!hth_reader_room(items[i].extents, items[i].n_extent, &s.size)) return false;
        if (items[i].residence != HTH_STORE_PINNED) sizes[(*n)++] = s;
        else if (!hth_add_u64(*pinned, s.size, pinned)) return false;
    }
    qsort(sizes, *n, sizeof *sizes, compare_sizes);
    return true;
}

/* classes NULL: counts them. class_of may be NULL. */
static uint32_t make_classes(const item_size *sizes, uint32_t n, hth_slot_class *classes, uint32_t *class_of)
{
    uint32_t n_class = 0;
    hth_slot_class c = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || !shares_class(&c, &sizes[i])) {
            c = (hth_slot_class){.size = sizes[i].size, .streamed = sizes[i].streamed};
            n_class++;
        }
        c.n_item++;
        if (classes) classes[n_class - 1] = c;
        if (class_of) class_of[sizes[i].i_item] = n_class - 1;
    }
    return n_class;
}

static uint32_t min_slots(const hth_slot_class *c)
{
    uint32_t n = c->streamed ? STREAM_MIN_SLOT : 1;
    return n < c->n_item ? n : c->n_item;
}

static uint32_t stream_slots(const hth_slot_class *c)
{
    uint64_t n = STREAM_SIZE / c->size;
    return n > c->n_item ? c->n_item : n < min_slots(c) ? min_slots(c) : (uint32_t)n;
}

/* Least memory of all, in which each class has min_slots. False: overflow. */
static bool least_of(const hth_slot_class *classes, uint32_t n_class, uint64_t pinned, uint64_t *size)
{
    uint64_t sum = pinned, of_class;
    for (uint32_t i = 0; i < n_class; i++)
        if (!hth_mul_u64(classes[i].size, min_slots(&classes[i]), &of_class) || !hth_add_u64(sum, of_class, &sum))
            return false;
    *size = sum;
    return sum <= SIZE_MAX;
}

/* What is left of `left` bytes above the least: first for reading ahead, then for cached items, to each class in
 * proportion to the bytes of its items. */
static void divide(hth_slot_class *classes, uint32_t n_class, uint64_t left)
{
    double all = 0.0, part;
    for (uint32_t i = 0; i < n_class; i++) {
        hth_slot_class *c = &classes[i];
        c->n_slot = min_slots(c);
        if (!c->streamed) all += (double)c->size * c->n_item;
        if (!c->streamed) continue;
        uint64_t n = left / c->size, max = stream_slots(c) - c->n_slot;
        c->n_slot += (uint32_t)(n < max ? n : max);
        left -= (n < max ? n : max) * c->size;
    }
    /* Sizes fall: the last classes take what others left. */
    for (uint32_t i = 0; i < n_class && all > 0.0; i++) {
        hth_slot_class *c = &classes[i];
        if (c->streamed) continue;
        part = (double)left * ((double)c->size * c->n_item / all);
        all -= (double)c->size * c->n_item;
        uint64_t n = (uint64_t)part / c->size, max = c->n_item - c->n_slot;
        if (n > max) n = max;
        c->n_slot += (uint32_t)n;
        left -= n * c->size;
    }
}

/* The classes of items, freed by hth_free. */
static hearth_status find_classes(const hth_store_item *items, uint32_t n_item, hth_slots *s, uint64_t *pinned,
                                  uint64_t *least, hearth_error *err)
{
    uint32_t n;
    hearth_status st = HEARTH_OK;
    item_size *sizes = hth_alloc(n_item, sizeof *sizes);
    s->class_of = hth_alloc(n_item, sizeof *s->class_of);
    if (!sizes || !s->class_of) {
        st = hth_fail_memory(err, n_item * sizeof *sizes, "sizes of items");
        goto done;
    }
    memset(s->class_of, 0xff, n_item * sizeof *s->class_of);
    if (!sort_items(items, n_item, sizes, &n, pinned)) {
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "the bytes of all items do not fit into an integer");
        goto done;
    }
    s->n_class = make_classes(sizes, n, NULL, NULL);
    s->classes = hth_alloc(s->n_class, sizeof *s->classes);
    if (!s->classes) {
        st = hth_fail_memory(err, s->n_class * sizeof *s->classes, "classes of items");
        goto done;
    }
    make_classes(sizes, n, s->classes, s->class_of);
    if (!least_of(s->classes, s->n_class, *pinned, least))
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "the bytes of all items do not fit into an integer");
done:
    hth_free(sizes);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

bool hth_store_min_memory(const hth_store_item *items, uint32_t n_item, uint64_t *size)
{
    hth_slots s = {0};
    uint64_t pinned;
    bool ok = find_classes(items, n_item, &s, &pinned, size, NULL) == HEARTH_OK;
    hth_slots_close(&s);
    return ok;
}

/* Addresses, first of the slots of pinned items. */
static void place(hth_slots *s, const hth_store_item *items, uint32_t n_item)
{
    uint8_t *at = s->memory;
    uint32_t n = 0, *list = s->lists;
    for (uint32_t i = 0; i < n_item; i++) {
        size_t room = 0;
        if (items[i].residence != HTH_STORE_PINNED) continue;
        hth_reader_room(items[i].extents, items[i].n_extent, &room);
        s->slots[n++] = (hth_slot){.memory = at, .i_class = HTH_NO_SLOT, .i_item = HTH_NO_SLOT, .i_heap = HTH_NO_SLOT};
        at += room;
    }
    for (uint32_t i = 0; i < s->n_class; i++) {
        hth_slot_class *c = &s->classes[i];
        c->first_slot = n;
        c->heap = list, c->free = list + c->n_slot, list += 2 * (size_t)c->n_slot;
        for (uint32_t k = 0; k < c->n_slot; k++, at += c->size) {
            s->slots[n] = (hth_slot){.memory = at, .i_class = i, .i_item = HTH_NO_SLOT, .i_heap = HTH_NO_SLOT};
            c->free[c->n_slot - 1 - k] = n++;
        }
        c->n_free = c->n_slot;
    }
}

hearth_status hth_slots_open(hth_slots *s, const hth_store_item *items, uint32_t n_item, uint64_t memory,
                             hearth_error *err)
{
    uint64_t pinned = 0, least = 0, size;
    *s = (hth_slots){0};
    hearth_status st = find_classes(items, n_item, s, &pinned, &least, err);
    if (st == HEARTH_OK && memory < least)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s for weights that are read when they are needed; the least is %s",
                      hth_format_bytes(memory).text, hth_format_bytes(least).text);
    if (st != HEARTH_OK) goto failed;
    divide(s->classes, s->n_class, memory - least);
    size = pinned;
    for (uint32_t i = 0; i < n_item; i++) s->n_slot += items[i].residence == HTH_STORE_PINNED;
    size_t n_cached = 0;
    for (uint32_t i = 0; i < s->n_class; i++) {
        n_cached += s->classes[i].n_slot;
        size += (uint64_t)s->classes[i].n_slot * s->classes[i].size;
    }
    s->n_slot += (uint32_t)n_cached;
    s->size = (size_t)size;
    s->slots = hth_alloc(s->n_slot, sizeof *s->slots);
    s->lists = hth_alloc(2 * n_cached, sizeof *s->lists);
    s->memory = s->slots && s->lists ? hth_pages_alloc(s->size) : NULL;
    if (!s->memory) {
        st = hth_fail(err, HEARTH_ERROR_MEMORY, "out of memory: %s for weights that are read when they are needed",
                      hth_format_bytes(size).text);
        goto failed;
    }
    place(s, items, n_item);
    return HEARTH_OK;
failed:
    hth_slots_close(s);
    return st;
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

/* ---- free slots ------------------------------------------------------------------------------- */

uint32_t hth_slots_take_free(hth_slots *s, uint32_t i_class)
{
    hth_slot_class *c = &s->classes[i_class];
    return c->n_free > 0 ? c->free[--c->n_free] : HTH_NO_SLOT;
}

void hth_slots_put_free(hth_slots *s, uint32_t i_slot)
{
    hth_slot_class *c = &s->classes[s->slots[i_slot].i_class];
    s->slots[i_slot].i_item = HTH_NO_SLOT;
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
    if (slot->i_class == HTH_NO_SLOT) return; /* pinned */
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
