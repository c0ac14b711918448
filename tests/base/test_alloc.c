/* base/alloc.c: counters, injection, arenas, page regions. */
#include "base/alloc.h"
#include "support/test.h"

#include <sys/mman.h>
#include <unistd.h>

TEST(heap_counts_what_is_held)
{
    uint64_t before = hth_alloc_in_use();
    char *p = hth_alloc(3, 7);
    CHECK(p && p[20] == 0);
    CHECK_INT(hth_alloc_in_use() - before, 21);
    p = hth_realloc(p, 100, 2);
    CHECK_INT(hth_alloc_in_use() - before, 200);
    hth_free(p);
    CHECK_INT(hth_alloc_in_use(), before);
}

TEST(sizes_that_wrap_are_refused)
{
    CHECK(hth_alloc(SIZE_MAX / 2, 3) == NULL);
    CHECK(hth_alloc(SIZE_MAX, 1) == NULL);
    CHECK(hth_pages_alloc(SIZE_MAX - 100) == NULL);
    CLEANUP(hth_arena_free) hth_arena arena = {0};
    CHECK(hth_arena_alloc(&arena, SIZE_MAX / 4, 8, 8) == NULL);
}

TEST(nth_allocation_fails_once_or_sticky)
{
    hth_alloc_fail_at(2, 0);
    void *a = hth_alloc(1, 1), *b = hth_alloc(1, 1), *c = hth_alloc(1, 1);
    CHECK(a && !b && c);
    hth_free(a);
    hth_free(c);
    hth_alloc_fail_at(1, 1);
    CHECK(!hth_alloc(1, 1) && !hth_pages_alloc(1));
    hth_alloc_fail_at(0, 0);
}

TEST(arena_aligns_and_keeps_bytes_apart)
{
    uint64_t before = hth_alloc_in_use();
    hth_arena arena = {0};
    test_random r = {1};
    unsigned char *objects[300];
    size_t sizes[300];
    for (int i = 0; i < 300; i++) {
        size_t align = (size_t)1 << test_random_below(&r, 7);
        sizes[i] = test_random_below(&r, i % 50 == 0 ? 100000 : 300);
        objects[i] = hth_arena_alloc(&arena, sizes[i], 1, align);
        CHECK(objects[i] && ((uintptr_t)objects[i] & (align - 1)) == 0);
        memset(objects[i], i, sizes[i]);
    }
    for (int i = 0; i < 300; i++)
        for (size_t k = 0; k < sizes[i]; k++)
            if (objects[i][k] != (unsigned char)i) {
                CHECK(objects[i][k] == (unsigned char)i);
                break;
            }
    hth_arena_free(&arena);
    CHECK_INT(hth_alloc_in_use(), before);
}

TEST(pages_are_zero_and_aligned)
{
    uint64_t before = hth_alloc_in_use();
    size_t size = ((size_t)5 << 20) + 12345;
    unsigned char *p = hth_pages_alloc(size);
    CHECK(p && ((uintptr_t)p & ((2u << 20) - 1)) == 0);
    CHECK(p[0] == 0 && p[size - 1] == 0);
    p[size - 1] = 1;
    hth_pages_free(p, size);
    CHECK_INT(hth_alloc_in_use(), before);
}

TEST(discarded_pages_leave_memory_and_can_be_used_again)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (size_t)5 << 20, n_page = size / page, n = 0;
    FREED char *in = malloc(n_page);
    char *p = hth_pages_alloc(size);
    if (!CHECK(p && in)) return;
    memset(p, 1, size);
    hth_pages_discard(p + 1, (size_t)3 << 20); /* its first and last page in part: these stay */
    CHECK(mincore(p, size, (unsigned char *)in) == 0);
    for (size_t i = 0; i < n_page; i++) n += in[i] & 1;
    CHECK_INT(n, n_page - ((size_t)3 << 20) / page + 1);
    CHECK(p[0] == 1 && p[page - 1] == 1 && p[(size_t)3 << 20] == 1 && p[size - 1] == 1);
    hth_pages_discard(p + 1, page - 2);
    CHECK_INT(p[1], 1);
    memset(p, 2, size);
    CHECK_INT(p[page], 2);
    hth_pages_free(p, size);
}
