/* The list behind sigbus_guard.h. Entries are taken and given back without locks, because
 * a handler may look at any moment: begin is set last and cleared first. */
#define _DEFAULT_SOURCE
#include "file/sigbus_guard.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct entry {
    atomic_bool taken, broken;
    _Atomic uintptr_t begin; /* 0: nothing is guarded */
    _Atomic size_t size;
} entry;

static entry entries[HTH_MAP_GUARD_MAX];

int hth_sigbus_guard_add(void *begin, size_t size)
{
    for (int i = 0; i < HTH_MAP_GUARD_MAX; i++) {
        entry *e = &entries[i];
        if (atomic_exchange(&e->taken, true)) continue;
        atomic_store(&e->broken, false);
        atomic_store(&e->size, size);
        atomic_store(&e->begin, (uintptr_t)begin);
        return i;
    }
    return -1;
}

void hth_sigbus_guard_remove(int place)
{
    if (place < 0) return;
    atomic_store(&entries[place].begin, 0);
    atomic_store(&entries[place].taken, false);
}

bool hth_sigbus_guard_broken(int place) { return place >= 0 && atomic_load(&entries[place].broken); }

/* Zeros from the page of the address to the end of the range: what follows a missing
 * page is missing too, or will not be believed. */
static bool patch(entry *e, uintptr_t begin, uintptr_t address)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE); /* async-signal-safe */
    uintptr_t first = begin + (address - begin) / page * page, end = begin + atomic_load(&e->size);
    void *at = (void *)first;
    atomic_store(&e->broken, true);
    return mmap(at, end - first, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

bool hth_sigbus_guard_handle(const void *address)
{
    uintptr_t a = (uintptr_t)address;
    for (int i = 0; i < HTH_MAP_GUARD_MAX; i++) {
        entry *e = &entries[i];
        uintptr_t begin = atomic_load(&e->begin);
        if (begin != 0 && a >= begin && a - begin < atomic_load(&e->size)) return patch(e, begin, a);
    }
    return false;
}
