/* Open addressing over pairs of symbols. Built by spm_vocab.c or bpe_vocab.c at load,
 * read for every pair by merge.c. A vocabulary comes from outside and could be made so
 * that its pairs collide: no pair may lie more than MAX_PROBE slots from its
 * place, which other seeds and more slots provide for, so a lookup is bounded. */
#include "text/merge_table.h"

#include "base/alloc.h"
#include "base/checked_math.h"

/* With half of the slots free, runs over 100 do not happen below 2^24 pairs
 * unless somebody wants them. */
enum { MAX_PROBE = 128, N_SEED = 16 };

static size_t place_of(const hth_merge_table *pairs, uint32_t left, uint32_t right)
{
    /* the multipliers are those of splitmix64 */
    uint64_t x = ((uint64_t)left << 32 | right) + pairs->seed * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (size_t)(x ^ (x >> 31)) & (pairs->n_slot - 1);
}

/* The slot of a pair, or the free one where it goes, or NULL past MAX_PROBE. */
static hth_merge_table_slot *slot_of(const hth_merge_table *pairs, uint32_t left, uint32_t right)
{
    size_t at = place_of(pairs, left, right);
    for (int probe = 0; probe < MAX_PROBE; probe++) {
        hth_merge_table_slot *s = &pairs->slot[(at + (size_t)probe) & (pairs->n_slot - 1)];
        if (s->left == UINT32_MAX || (s->left == left && s->right == right)) return s;
    }
    return NULL;
}

/* Moves all pairs of `from` to the free slots of `to`; false past MAX_PROBE. */
static bool spread(const hth_merge_table *from, hth_merge_table *to)
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

static hearth_status refuse(const hth_merge_table *pairs, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_FORMAT,
                    "the vocabulary has too many pairs of texts that make another (%zu, of at "
                    "most %d), or pairs made to be slow to find",
                    pairs->n, HTH_TEXT_MAX_PAIRS);
}

static hearth_status rebuild(hth_merge_table *pairs, size_t n_slot, uint32_t seed, hearth_error *err)
{
    hth_merge_table fresh = {.n = pairs->n, .n_slot = n_slot, .seed = seed};
    fresh.slot = hth_alloc(n_slot, sizeof *fresh.slot);
    if (!fresh.slot) return hth_fail_memory(err, n_slot * sizeof *fresh.slot, "pairs of symbols");
    while (!spread(pairs, &fresh)) {
        if (++fresh.seed < seed + N_SEED) continue;
        hth_free(fresh.slot);
        return refuse(pairs, err);
    }
    hth_free(pairs->slot);
    *pairs = fresh;
    return HEARTH_OK;
}

hearth_status hth_merge_table_put(hth_merge_table *pairs, uint32_t left, uint32_t right, int32_t value,
                                 hearth_error *err)
{
    if (pairs->n >= HTH_TEXT_MAX_PAIRS) return refuse(pairs, err);
    if (2 * (pairs->n + 1) > pairs->n_slot) {
        size_t n_slot = 64;
        if (pairs->n_slot > 0 && !hth_mul_size(pairs->n_slot, 2, &n_slot))
            return hth_fail_memory(err, SIZE_MAX, "pairs of symbols");
        hearth_status status = rebuild(pairs, n_slot, pairs->seed, err);
        if (status != HEARTH_OK) return status;
    }
    hth_merge_table_slot *s = slot_of(pairs, left, right);
    for (int attempt = 0; !s && attempt < N_SEED; attempt++) {
        hearth_status status = rebuild(pairs, pairs->n_slot, pairs->seed + 1, err);
        if (status != HEARTH_OK) return status;
        s = slot_of(pairs, left, right);
    }
    if (!s) return refuse(pairs, err);
    if (s->left != UINT32_MAX) return HEARTH_OK;
    *s = (hth_merge_table_slot){left, right, value};
    pairs->n++;
    return HEARTH_OK;
}

int32_t hth_merge_table_get(const hth_merge_table *pairs, uint32_t left, uint32_t right)
{
    if (pairs->n_slot == 0) return -1;
    const hth_merge_table_slot *s = slot_of(pairs, left, right);
    return s && s->left != UINT32_MAX ? s->value : -1;
}

void hth_merge_table_free(hth_merge_table *pairs)
{
    hth_free(pairs->slot);
    *pairs = (hth_merge_table){0};
}
