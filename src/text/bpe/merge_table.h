/* The merge table: maps pairs of symbols to a number. Built once, then only read. */
#ifndef HTH_TEXT_MERGE_TABLE_H
#define HTH_TEXT_MERGE_TABLE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hth_merge_table_slot {
    uint32_t left, right; /* left UINT32_MAX: free slot */
    int32_t value;
} hth_merge_table_slot;

/* A zero-initialised table is empty. */
typedef struct hth_merge_table {
    hth_merge_table_slot *slot;
    size_t n, n_slot; /* n_slot: a power of two, at least 2 n */
    uint32_t seed;
} hth_merge_table;

/* Llama 2 has 61,000 pairs, Llama 3 280,147 merges, a vocabulary of 262,144 tokens
 * under a million. */
enum { HTH_TEXT_MAX_PAIRS = 1 << 24 };

/* Adds (left, right) -> value, value >= 0. An existing pair keeps its value. Errors: MEMORY; FORMAT for more than
 * HTH_TEXT_MAX_PAIRS, or if the table collide too often, which only chosen table do. */
hearth_status hth_merge_table_put(hth_merge_table *table, uint32_t left, uint32_t right,
                                 int32_t value, hearth_error *err);
/* The value, or -1. */
int32_t hth_merge_table_get(const hth_merge_table *table, uint32_t left, uint32_t right);
void hth_merge_table_free(hth_merge_table *table);

#endif
