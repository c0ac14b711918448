/* text/bpe/heap.c, text/bpe/merge_table.c: the structures under the merging. */
#include "base/alloc.h"
#include "support/test.h"
#include "text/bpe/heap.h"
#include "text/bpe/merge_table.h"

TEST(heap_gives_candidates_by_rank_then_place)
{
    CLEANUP(hth_text_heap_free) hth_text_heap heap = {0};
    test_random r = {1};
    enum { N = 3000 };
    for (uint32_t i = 0; i < N; i++) {
        hth_text_candidate c = {i, test_random_below(&r, 40), (int32_t)i};
        CHECK_OK(hth_text_heap_push(&heap, c, err));
    }
    hth_text_candidate last = {0, 0, -1}, c;
    int n = 0;
    for (; hth_text_heap_pop(&heap, &c); n++) {
        CHECK(n == 0 || c.rank > last.rank || (c.rank == last.rank && c.at > last.at));
        CHECK_INT(c.id, c.at);
        last = c;
    }
    CHECK_INT(n, N);
    CHECK(!hth_text_heap_pop(&heap, &c));
}

TEST(pairs_come_back_and_others_do_not)
{
    CLEANUP(hth_merge_table_free) hth_merge_table pairs = {0};
    CHECK_INT(hth_merge_table_get(&pairs, 1, 2), -1);
    enum { N = 20000 };
    for (uint32_t i = 0; i < N; i++) CHECK_OK(hth_merge_table_put(&pairs, i % 173, i, (int32_t)i, err));
    CHECK_OK(hth_merge_table_put(&pairs, 5, 5, 77, err));
    CHECK_INT(pairs.n, N);
    for (uint32_t i = 0; i < N; i++) {
        CHECK_INT(hth_merge_table_get(&pairs, i % 173, i), i);
        CHECK_INT(hth_merge_table_get(&pairs, i % 173 + 1, i), -1);
    }
}

/* The inverse of the table's mixing (splitmix64) gives keys that all fall on one
 * place under the first seed: the table must find another seed. */
static uint64_t unmix(uint64_t x)
{
    x ^= x >> 31 ^ x >> 62;
    x *= UINT64_C(0x319642B2D24D8EC3);
    x ^= x >> 27 ^ x >> 54;
    x *= UINT64_C(0x96DE1B173F119089);
    return x ^ x >> 30 ^ x >> 60;
}

TEST(pairs_made_to_collide_stay_fast)
{
    CLEANUP(hth_merge_table_free) hth_merge_table pairs = {0};
    enum { N = 2000 };
    for (uint64_t i = 0; i < N; i++) {
        uint64_t key = unmix(i << 32 | 1);
        if (key >> 32 == UINT32_MAX) continue;
        CHECK_OK(hth_merge_table_put(&pairs, (uint32_t)(key >> 32), (uint32_t)key, (int32_t)i, err));
    }
    CHECK(pairs.seed > 0);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t key = unmix(i << 32 | 1);
        if (key >> 32 == UINT32_MAX) continue;
        CHECK_INT(hth_merge_table_get(&pairs, (uint32_t)(key >> 32), (uint32_t)key), i);
    }
}
