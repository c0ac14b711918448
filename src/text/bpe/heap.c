/* A heap of candidates, and the growing array of this folder. No two candidates have the same rank and position,
 * so the order is total and the result does not depend on how the heap is built. */
#include "text/bpe/heap.h"

#include "base/alloc.h"
#include "base/checked_math.h"

hearth_status hth_text_grow(void **items, size_t *capacity, size_t need, size_t size, hearth_error *err)
{
    if (need <= *capacity) return HEARTH_OK;
    size_t more = *capacity < 16 ? 16 : *capacity, bytes;
    while (more < need)
        if (!hth_mul_size(more, 2, &more)) return hth_fail_memory(err, SIZE_MAX, "text");
    if (!hth_mul_size(more, size, &bytes)) return hth_fail_memory(err, SIZE_MAX, "text");
    void *grown = hth_realloc(*items, more, size);
    if (!grown) return hth_fail_memory(err, bytes, "text");
    *items = grown;
    *capacity = more;
    return HEARTH_OK;
}

/* Four children per parent: half as many levels as with two, and the children of a parent are adjacent. */
enum { N_CHILD = 4 };

static bool before(const hth_text_candidate *a, const hth_text_candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

hearth_status hth_text_heap_push(hth_text_heap *heap, hth_text_candidate c, hearth_error *err)
{
    void *items = heap->item;
    hearth_status status = hth_text_grow(&items, &heap->capacity, heap->n + 1, sizeof *heap->item, err);
    if (status != HEARTH_OK) return status;
    heap->item = items;

    size_t i = heap->n++;
    for (size_t parent; i > 0; i = parent) {
        parent = (i - 1) / N_CHILD;
        if (!before(&c, &heap->item[parent])) break;
        heap->item[i] = heap->item[parent];
    }
    heap->item[i] = c;
    heap->n_pushed++;
    return HEARTH_OK;
}

/* The smallest of the existing children first, first + 1, ... */
static size_t least_child(const hth_text_heap *heap, size_t first)
{
    size_t min = first, end = heap->n - first < N_CHILD ? heap->n : first + N_CHILD;
    for (size_t child = first + 1; child < end; child++)
        if (before(&heap->item[child], &heap->item[min])) min = child;
    return min;
}

bool hth_text_heap_pop(hth_text_heap *heap, hth_text_candidate *out)
{
    if (heap->n == 0) return false;
    *out = heap->item[0];
    const hth_text_candidate last = heap->item[--heap->n];
    size_t i = 0;
    for (size_t child; N_CHILD * i + 1 < heap->n; i = child) {
        child = least_child(heap, N_CHILD * i + 1);
        if (!before(&heap->item[child], &last)) break;
        heap->item[i] = heap->item[child];
    }
    if (heap->n > 0) heap->item[i] = last;
    return true;
}

void hth_text_heap_free(hth_text_heap *heap)
{
    hth_free(heap->item);
    *heap = (hth_text_heap){0};
}
