/* The list of guarded maps. Entries are taken and released without locks, because a signal handler may read the
 * list at any time: begin is set last and cleared first. */
#define _DEFAULT_SOURCE
#include "file/sigbus_guard.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    atomic_bool taken, broken;
    _Atomic uintptr_t begin; /* 0: unused */
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

void hth_sigbus_guard_remove(int index)
{
    if (index < 0) return;
    atomic_store(&entries[index].begin, 0);
    atomic_store(&entries[index].taken, false);
}

bool hth_sigbus_guard_broken(int index) { return index >= 0 && atomic_load(&entries[index].broken); }

/* Maps zeros from the page of the address to the end of the range. The pages after a missing one are missing too,
 * or their contents are discarded. */
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
