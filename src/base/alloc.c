/* All memory of the library. The heap stores the size in front of each object to count the bytes in use. Arenas
 * and page regions count what they map. */
#define _GNU_SOURCE
#include "base/alloc.h"

#include "base/checked_math.h"
#include "base/switches.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t n_alloc, n_held, fail_at;
static _Atomic int fail_sticky;

void hth_alloc_fail_at(uint64_t n, int sticky)
{
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_at, n == 0 ? 0 : atomic_load(&n_alloc) + n);
}

uint64_t hth_alloc_count(void) { return atomic_load(&n_alloc); }
uint64_t hth_alloc_in_use(void) { return atomic_load(&n_held); }

#ifndef NDEBUG
static _Thread_local int n_forbidden;
void hth_alloc_assert_none(int by) { n_forbidden += by; }
static void check_allowed(void) { assert(n_forbidden == 0); }
int hth_alloc_asserts(void) { return 1; }
#else
void hth_alloc_assert_none(int by) { (void)by; }
static void check_allowed(void) {}
int hth_alloc_asserts(void) { return 0; }
#endif

/* Counts one allocation. Returns false if a test asked for this one to fail. */
static bool count_allocation(void)
{
    check_allowed();
    uint64_t mine = atomic_fetch_add(&n_alloc, 1) + 1;
    uint64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (at == 0) return true;
    return !(mine == at || (mine > at && atomic_load(&fail_sticky)));
}

/* The header keeps the alignment of malloc. */
typedef union heap_header {
    size_t size;
    max_align_t align;
} heap_header;

void *hth_alloc(size_t n, size_t size)
{
    size_t bytes, total;
    if (!hth_mul_size(n, size, &bytes) || !hth_add_size(bytes, sizeof(heap_header), &total))
        return NULL;
    if (!count_allocation()) return NULL;
    heap_header *h = calloc(1, total);
    if (!h) return NULL;
    h->size = bytes;
    atomic_fetch_add(&n_held, bytes);
    return h + 1;
}

void *hth_realloc(void *p, size_t n, size_t size)
{
    if (!p) return hth_alloc(n, size);
    size_t bytes, total;
    if (!hth_mul_size(n, size, &bytes) || !hth_add_size(bytes, sizeof(heap_header), &total))
        return NULL;
    if (!count_allocation()) return NULL;
    heap_header *old = (heap_header *)p - 1;
    size_t old_size = old->size;
    heap_header *h = realloc(old, total);
    if (!h) return NULL;
    h->size = bytes;
    atomic_fetch_add(&n_held, bytes);
    atomic_fetch_sub(&n_held, old_size);
    return h + 1;
}

void hth_free(void *p)
{
    if (!p) return;
    heap_header *h = (heap_header *)p - 1;
    atomic_fetch_sub(&n_held, h->size);
    free(h);
}

/* ---- huge pages --------------------------------------------------------- */

enum { HUGE_SIZE = 2 << 20 };

/* Regions below one huge page take ordinary pages; larger ones are placed on a
 * 2 MiB boundary so that madvise can back all of them with huge pages. */
size_t hth_pages_size(size_t size)
{
    size_t grain = size >= HUGE_SIZE ? HUGE_SIZE : 4096, padded;
    if (size == 0) size = 1;
    if (!hth_add_size(size, grain - 1, &padded)) return 0;
    return padded & ~(grain - 1);
}

void *hth_pages_alloc(size_t size)
{
    size_t want = hth_pages_size(size), map;
    if (want == 0 || !count_allocation()) return NULL;
    size_t slack = want >= HUGE_SIZE ? HUGE_SIZE : 0;
    if (!hth_add_size(want, slack, &map)) return NULL;
    char *p = mmap(NULL, map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (slack) {
        size_t head = (HUGE_SIZE - ((uintptr_t)p & (HUGE_SIZE - 1))) & (HUGE_SIZE - 1);
        if (head) munmap(p, head);
        if (slack - head) munmap(p + head + want, slack - head);
        p += head;
#ifdef MADV_HUGEPAGE
        if (hth_switch_is_on(HTH_SWITCH_HUGE_PAGES)) madvise(p, want, MADV_HUGEPAGE); /* a hint: ordinary pages work too */
#endif
    }
    atomic_fetch_add(&n_held, want);
    return p;
}

void *hth_pages_reserve(size_t size)
{
    size_t want = hth_pages_size(size);
    if (want == 0 || !count_allocation()) return NULL;
    void *p = mmap(NULL, want, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    atomic_fetch_add(&n_held, want);
    return p;
}

void hth_pages_free(void *p, size_t size)
{
    if (!p) return;
    munmap(p, hth_pages_size(size));
    atomic_fetch_sub(&n_held, hth_pages_size(size));
}

void hth_pages_discard(void *p, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = ((uintptr_t)p + page - 1) / page * page,
              end = ((uintptr_t)p + size) / page * page;
    if (end > first) madvise((char *)p + (first - (uintptr_t)p), end - first, MADV_DONTNEED);
}

/* ---- arenas ------------------------------------------------------------- */

struct hth_arena_block {
    struct hth_arena_block *next;
    size_t size, used;
    _Alignas(64) unsigned char data[];
};

/* The first block is small, later ones are as large as all before them: few allocations, at most half of the
 * memory unused. */
static struct hth_arena_block *new_block(hth_arena *arena, size_t at_least)
{
    size_t size = arena->used < 4096 ? 4096 : arena->used > (1u << 20) ? (1u << 20) : arena->used;
    if (size < at_least) size = at_least;
    size_t total;
    if (!hth_add_size(size, sizeof(struct hth_arena_block) + 64, &total)) return NULL;
    char *raw = hth_alloc(1, total);
    if (!raw) return NULL;
    /* hth_alloc aligns to 16, the block needs 64. The raw address is stored in front of the block, for hth_free. */
    size_t shift = (64 - ((uintptr_t)raw & 63)) & 63;
    if (shift < sizeof(void *)) shift += 64;
    struct hth_arena_block *b = (struct hth_arena_block *)(void *)(raw + shift);
    memcpy(raw + shift - sizeof raw, &raw, sizeof raw);
    b->size = total - shift - sizeof *b;
    b->used = 0;
    b->next = arena->blocks;
    arena->blocks = b;
    return b;
}

static void *take_bytes(hth_arena *arena, size_t n, size_t size, size_t align)
{
    size_t bytes, padded;
    if (!hth_mul_size(n, size, &bytes) || !hth_add_size(bytes, align, &padded)) return NULL;
    struct hth_arena_block *b = arena->blocks;
    size_t at = b ? (b->used + align - 1) & ~(align - 1) : 0;
    if (!b || at > b->size || b->size - at < bytes) {
        b = new_block(arena, padded + 64);
        if (!b) return NULL;
        at = 0;
    }
    b->used = at + bytes;
    arena->used += bytes;
    return b->data + at;
}

void *hth_arena_alloc(hth_arena *arena, size_t n, size_t size, size_t align)
{
    void *p = take_bytes(arena, n, size, align);
    if (!p) arena->failed = 1;
    return p;
}

char *hth_arena_strndup(hth_arena *arena, const char *text, size_t n)
{
    size_t size;
    if (!hth_add_size(n, 1, &size)) return NULL;
    char *copy = hth_arena_alloc(arena, size, 1, 1);
    if (copy && n) memcpy(copy, text, n);
    return copy;
}

void hth_arena_free(hth_arena *arena)
{
    for (struct hth_arena_block *b = arena->blocks, *next; b; b = next) {
        next = b->next;
        char *raw;
        memcpy(&raw, (char *)b - sizeof raw, sizeof raw);
        hth_free(raw);
    }
    *arena = (hth_arena){0};
}
