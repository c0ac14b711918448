/* A hash table with open addressing and linear probing, at most half full. Used by the reader (duplicates,
 * lookups) and by the writer. Names come from untrusted files: the seed prevents a file from mapping all names to
 * one slot. The seed changes only the time of a search, never its result. */
#include "file/name_index.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"

#include <string.h>

typedef struct hth_file_name_slot {
    uint32_t hash;
    uint32_t i_plus_1; /* 0: free */
} hth_file_name_slot;

static uint32_t hash_name(const hth_file_name_index *index, hth_str name)
{
    uint64_t h = hth_hash_more(index->seed, name.bytes, name.n);
    return (uint32_t)(h ^ (h >> 32));
}

uint32_t hth_file_name_find(const hth_file_name_index *index, const void *items, size_t stride,
                            hth_str name)
{
    if (index->n_slot == 0) return HTH_FILE_NAME_NONE;
    uint32_t hash = hash_name(index, name);
    size_t mask = index->n_slot - 1;
    for (size_t k = hash & mask; index->slots[k].i_plus_1 != 0; k = (k + 1) & mask) {
        if (index->slots[k].hash != hash) continue;
        uint32_t i = index->slots[k].i_plus_1 - 1;
        hth_str there;
        memcpy(&there, (const char *)items + stride * i, sizeof there);
        if (there.n == name.n && memcmp(there.bytes, name.bytes, name.n) == 0) return i;
    }
    return HTH_FILE_NAME_NONE;
}

static void put_slot(hth_file_name_index *index, hth_file_name_slot slot)
{
    size_t mask = index->n_slot - 1, k = slot.hash & mask;
    while (index->slots[k].i_plus_1 != 0) k = (k + 1) & mask;
    index->slots[k] = slot;
}

static bool grow(hth_file_name_index *index)
{
    hth_file_name_index larger = *index;
    larger.n_slot = index->n_slot ? 2 * index->n_slot : 64;
    larger.slots = hth_alloc(larger.n_slot, sizeof *larger.slots);
    if (!larger.slots) return false;
    for (size_t k = 0; k < index->n_slot; k++)
        if (index->slots[k].i_plus_1 != 0) put_slot(&larger, index->slots[k]);
    hth_free(index->slots);
    *index = larger;
    return true;
}

bool hth_file_name_add(hth_file_name_index *index, hth_str name, uint32_t i)
{
    if (index->n_slot == 0) index->seed = hth_clock_ns() ^ (uint64_t)(uintptr_t)index;
    if (2 * (index->n_used + 1) > index->n_slot && !grow(index)) return false;
    put_slot(index, (hth_file_name_slot){hash_name(index, name), i + 1});
    index->n_used++;
    return true;
}

void hth_file_name_free(hth_file_name_index *index)
{
    hth_free(index->slots);
    *index = (hth_file_name_index){0};
}
