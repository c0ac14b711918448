/* A table from pairs of symbols to a number, built once and then only read. */
#ifndef HTH_TEXT_PAIRS_H
#define HTH_TEXT_PAIRS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hth_merge_table_slot {
    uint32_t left, right; /* left UINT32_MAX: free */
    int32_t value;
} hth_merge_table_slot;

/* Zero-initialised is empty. */
typedef struct hth_merge_table {
    hth_merge_table_slot *slot;
    size_t n, n_slot; /* n_slot is a power of two, at least 2 n */
    uint32_t seed;
} hth_merge_table;

/* Llama 2 has 61,000 pairs, Llama 3 280,147 merges, a vocabulary of 262,144 tokens
 * under a million. */
enum { HTH_TEXT_MAX_PAIRS = 1 << 24 };

/* Puts (left, right) -> value, value >= 0; a pair that is there keeps its value.
 * Errors: MEMORY; FORMAT for more than HTH_TEXT_MAX_PAIRS, and where the pairs
 * cannot be spread because they were made to collide. */
hearth_status hth_merge_table_put(hth_merge_table *pairs, uint32_t left, uint32_t right,
                                 int32_t value, hearth_error *err);
/* The value, or -1. */
int32_t hth_merge_table_get(const hth_merge_table *pairs, uint32_t left, uint32_t right);
void hth_merge_table_free(hth_merge_table *pairs);

#endif
