/* All memory of the library comes from here: the heap, arenas, and large
 * aligned regions on huge pages. One counter over all of them lets tests make
 * the n-th allocation fail and count allocations in a loop that must not have
 * any. */
#ifndef HTH_BASE_ALLOC_H
#define HTH_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Heap memory, zeroed, aligned to 16. NULL when it fails or n * size wraps.
 * n * size == 0 gives a valid pointer. */
void *hth_alloc(size_t n, size_t size);
/* As realloc for n * size bytes; new bytes are not zeroed. */
void *hth_realloc(void *p, size_t n, size_t size);
void hth_free(void *p);

/* size bytes, zeroed, aligned to 64, on 2 MiB pages where that is possible
 * (madvise). NULL when it fails. Freed with the same size. */
void *hth_pages_alloc(size_t size);
void hth_pages_free(void *p, size_t size);

/* Many small objects that die together. Zero-initialised is an empty arena. */
typedef struct hth_arena {
    struct hth_arena_block *blocks;
    size_t used; /* bytes handed out, for limits and reports */
} hth_arena;

/* n * size zeroed bytes aligned to align (a power of two up to 64). */
void *hth_arena_alloc(hth_arena *arena, size_t n, size_t size, size_t align);
/* A terminated copy of n bytes. */
char *hth_arena_strndup(hth_arena *arena, const char *text, size_t n);
void hth_arena_free(hth_arena *arena);

/* ---- for tests ---------------------------------------------------------- */

/* From now on the n-th allocation (from 1) fails, once; 0 turns that off.
 * Sticky: that one and all later ones fail. */
void hth_alloc_fail_at(uint64_t n, int sticky);
/* Allocations since the start of the process, and bytes held now. */
uint64_t hth_alloc_count(void);
uint64_t hth_alloc_in_use(void);

/* Between forbid(1) and forbid(-1) an allocation by this thread ends a build that has
 * assertions; in others nothing happens. Guards the token loop. */
void hth_alloc_assert_none(int by);
/* Whether the library was built with assertions. */
int hth_alloc_asserts(void);

#endif
