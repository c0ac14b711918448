/* A priority queue of candidates: the smallest (rank, at) comes first. Used for merges (rank: score) and for
 * special tokens (rank: length). */
#ifndef HTH_TEXT_HEAP_H
#define HTH_TEXT_HEAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hth_text_candidate {
    uint64_t at;
    uint32_t rank;
    int32_t id;
} hth_text_candidate;

/* A zero-initialised heap is empty. */
typedef struct hth_text_heap {
    hth_text_candidate *item;
    size_t n, capacity;
    uint64_t n_pushed; /* since the start, for tests of the bound */
} hth_text_heap;

hearth_status hth_text_heap_push(hth_text_heap *heap, hth_text_candidate c, hearth_error *err);
/* False if empty. */
bool hth_text_heap_pop(hth_text_heap *heap, hth_text_candidate *out);
void hth_text_heap_free(hth_text_heap *heap);

/* Ensures capacity for need items of size bytes in *items, by doubling. */
hearth_status hth_text_grow(void **items, size_t *capacity, size_t need, size_t size,
                            hearth_error *err);

#endif
