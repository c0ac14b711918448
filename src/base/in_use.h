/* One thread at a time changes an object of hearth.h, or several read it: a function that finds it in use otherwise fails
 * at once, whether another thread has it or a function of the caller that runs within a use. */
#ifndef HTH_BASE_IN_USE_H
#define HTH_BASE_IN_USE_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct hth_in_use {
    atomic_int n; /* readers; -1: one that changes it */
} hth_in_use;

/* NULL: it is in use. */
static inline hth_in_use *hth_use_begin(const hth_in_use *object)
{
    hth_in_use *u = (hth_in_use *)(uintptr_t)object;
    int free = 0;
    return atomic_compare_exchange_strong_explicit(&u->n, &free, -1, memory_order_acquire, memory_order_relaxed) ? u : NULL;
}

/* As one of several that read it. */
static inline hth_in_use *hth_use_begin_reading(const hth_in_use *object)
{
    hth_in_use *u = (hth_in_use *)(uintptr_t)object;
    int n = atomic_load_explicit(&u->n, memory_order_relaxed);
    while (n >= 0)
        if (atomic_compare_exchange_weak_explicit(&u->n, &n, n + 1, memory_order_acquire, memory_order_relaxed)) return u;
    return NULL;
}

static inline void hth_use_end(hth_in_use **use)
{
    if (*use) atomic_fetch_add_explicit(&(*use)->n, atomic_load_explicit(&(*use)->n, memory_order_relaxed) < 0 ? 1 : -1,
                                        memory_order_release);
}

/* Declarations: a use of an object, NULL if it has one, until the block ends. */
#define HTH_USE_BY(NAME, USE) __attribute__((cleanup(hth_use_end))) hth_in_use *NAME = USE
#define HTH_USE(NAME, OBJECT) HTH_USE_BY(NAME, hth_use_begin(&(OBJECT)->in_use))
#define HTH_USE_READING(NAME, OBJECT) HTH_USE_BY(NAME, hth_use_begin_reading(&(OBJECT)->in_use))

static inline hearth_status hth_fail_in_use(hearth_error *err, const char *name)
{
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s is in use: by another thread, or by the function that called this one", name);
}

#endif
