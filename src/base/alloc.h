/* All memory of the library: the heap, arenas, and large aligned regions on huge pages. One counter over all of
 * them lets tests make the n-th allocation fail, and count allocations in a loop that must not allocate. */
#ifndef HTH_BASE_ALLOC_H
#define HTH_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Heap memory, zeroed, aligned to 16. NULL on failure or if n * size overflows. n * size == 0 returns a valid
 * pointer. */
void *hth_alloc(size_t n, size_t size);
/* realloc for n * size bytes. New bytes are not zeroed. */
void *hth_realloc(void *p, size_t n, size_t size);
void hth_free(void *p);

/* size bytes, zeroed, aligned to a page (4096 or more), on 2 MiB pages if possible (madvise). NULL on failure. Freed with the same
 * size. */
void *hth_pages_alloc(size_t size);
void hth_pages_free(void *p, size_t size);
/* Addresses without memory, which nothing may read or write. */
void *hth_pages_reserve(size_t size);
/* Bytes that such a region takes; 0: overflow. */
size_t hth_pages_size(size_t size);
/* Gives the memory of the whole pages in a part of such a region back to the system, if it takes it. The addresses can
 * still be used; the contents are undefined. */
void hth_pages_discard(void *p, size_t size);

/* Many small objects that are freed together. A zero-initialised arena is empty. */
typedef struct hth_arena {
    struct hth_arena_block *blocks;
    size_t used; /* bytes allocated from it, for limits and reports */
    int failed;  /* an allocation failed */
} hth_arena;

/* n * size zeroed bytes, aligned to align (a power of two up to 64). */
void *hth_arena_alloc(hth_arena *arena, size_t n, size_t size, size_t align);
/* A NUL-terminated copy of n bytes. */
char *hth_arena_strndup(hth_arena *arena, const char *text, size_t n);
void hth_arena_free(hth_arena *arena);

/* ---- for tests ---------------------------------------------------------- */

/* The n-th allocation from now on (counted from 1) fails once. 0 disables that. Sticky: that one and all later
 * ones fail. */
void hth_alloc_fail_at(uint64_t n, int sticky);
/* Allocations since the start of the process, and bytes in use now. */
uint64_t hth_alloc_count(void);
uint64_t hth_alloc_in_use(void);

/* Between calls with 1 and -1, an allocation by this thread aborts a build with assertions. Other builds ignore
 * it. Guards the token loop. */
void hth_alloc_assert_none(int by);
/* Whether the library was built with assertions. */
int hth_alloc_asserts(void);

#endif
