/* A hash table over pairs of symbols, with open addressing. Built by spm_vocab.c or bpe_vocab.c at load, read for
 * every pair by merge.c. An untrusted vocabulary could make its pairs collide: no pair may be more than MAX_PROBE
 * slots from its home slot. If one would be, the table is rebuilt with other seeds or more slots, so a lookup is
 * bounded. */
#include "text/bpe/merge_table.h"

#include "base/alloc.h"
#include "base/checked_math.h"

/* With half of the slots free, runs over 100 do not occur below 2^24 pairs unless the pairs are chosen for it. */
enum { MAX_PROBE = 128, N_SEED = 16 };

static size_t home_slot(const hth_merge_table *table, uint32_t left, uint32_t right)
{
    /* the multipliers of splitmix64 */
    uint64_t x = ((uint64_t)left << 32 | right) + table->seed * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (size_t)(x ^ (x >> 31)) & (table->n_slot - 1);
}

/* The slot of a pair, or the free slot for it, or NULL beyond MAX_PROBE. */
static hth_merge_table_slot *slot_of(const hth_merge_table *table, uint32_t left, uint32_t right)
{
    size_t at = home_slot(table, left, right);
    for (int probe = 0; probe < MAX_PROBE; probe++) {
        hth_merge_table_slot *s = &table->slot[(at + (size_t)probe) & (table->n_slot - 1)];
        if (s->left == UINT32_MAX || (s->left == left && s->right == right)) return s;
    }
    return NULL;
}

/* Copies all pairs of `from` to free slots of `to`. False beyond MAX_PROBE. */
static bool rehash(const hth_merge_table *from, hth_merge_table *to)
{
    for (size_t i = 0; i < to->n_slot; i++) to->slot[i].left = UINT32_MAX;
    for (size_t i = 0; i < from->n_slot; i++) {
        if (from->slot[i].left == UINT32_MAX) continue;
        hth_merge_table_slot *s = slot_of(to, from->slot[i].left, from->slot[i].right);
        if (!s) return false;
        *s = from->slot[i];
    }
    return true;
}

static hearth_status fail_too_many(const hth_merge_table *table, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_FORMAT,
                    "the vocabulary has too many pairs of texts that make another (%zu, of at "
                    "most %d), or pairs made to be slow to find",
                    table->n, HTH_TEXT_MAX_PAIRS);
}

static hearth_status rebuild(hth_merge_table *table, size_t n_slot, uint32_t seed, hearth_error *err)
{
    hth_merge_table fresh = {.n = table->n, .n_slot = n_slot, .seed = seed};
    fresh.slot = hth_alloc(n_slot, sizeof *fresh.slot);
    if (!fresh.slot) return hth_fail_memory(err, n_slot * sizeof *fresh.slot, "pairs of symbols");
    while (!rehash(table, &fresh)) {
        if (++fresh.seed < seed + N_SEED) continue;
        hth_free(fresh.slot);
        return fail_too_many(table, err);
    }
    hth_free(table->slot);
    *table = fresh;
    return HEARTH_OK;
}

hearth_status hth_merge_table_put(hth_merge_table *table, uint32_t left, uint32_t right, int32_t value,
                                 hearth_error *err)
{
    if (table->n >= HTH_TEXT_MAX_PAIRS) return fail_too_many(table, err);
    if (2 * (table->n + 1) > table->n_slot) {
        size_t n_slot = 64;
        if (table->n_slot > 0 && !hth_mul_size(table->n_slot, 2, &n_slot))
            return hth_fail_memory(err, SIZE_MAX, "pairs of symbols");
        hearth_status status = rebuild(table, n_slot, table->seed, err);
        if (status != HEARTH_OK) return status;
    }
    hth_merge_table_slot *s = slot_of(table, left, right);
    for (int attempt = 0; !s && attempt < N_SEED; attempt++) {
        hearth_status status = rebuild(table, table->n_slot, table->seed + 1, err);
        if (status != HEARTH_OK) return status;
        s = slot_of(table, left, right);
    }
    if (!s) return fail_too_many(table, err);
    if (s->left != UINT32_MAX) return HEARTH_OK;
    *s = (hth_merge_table_slot){left, right, value};
    table->n++;
    return HEARTH_OK;
}

int32_t hth_merge_table_get(const hth_merge_table *table, uint32_t left, uint32_t right)
{
    if (table->n_slot == 0) return -1;
    const hth_merge_table_slot *s = slot_of(table, left, right);
    return s && s->left != UINT32_MAX ? s->value : -1;
}

void hth_merge_table_free(hth_merge_table *table)
{
    hth_free(table->slot);
    *table = (hth_merge_table){0};
}
