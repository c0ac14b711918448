/* One thread at a time uses an object of hearth.h: a function that finds it in use fails at once, whether another thread
 * has it or a function of the caller that runs within a use. */
#ifndef HTH_BASE_IN_USE_H
#define HTH_BASE_IN_USE_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct hth_in_use {
    _Atomic bool is;
} hth_in_use;

/* NULL: it is in use. */
static inline hth_in_use *hth_use_begin(const hth_in_use *object)
{
    hth_in_use *u = (hth_in_use *)(uintptr_t)object;
    return atomic_exchange_explicit(&u->is, true, memory_order_acquire) ? NULL : u;
}

static inline void hth_use_end(hth_in_use **use)
{
    if (*use) atomic_store_explicit(&(*use)->is, false, memory_order_release);
}

/* A declaration: a use of an object, NULL if it has one, until the block ends. */
#define HTH_USE(NAME, OBJECT)                                                                                \
    __attribute__((cleanup(hth_use_end))) hth_in_use *NAME = hth_use_begin(&(OBJECT)->in_use)

static inline hearth_status hth_fail_in_use(hearth_error *err, const char *name)
{
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s is in use: by another thread, or by the function that called this one", name);
}

#endif
