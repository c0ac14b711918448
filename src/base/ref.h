/* A counted reference to an object of hearth.h, which is freed when the last user gives its reference up. Any thread may
 * take and drop references; what is freed sees all that other threads did with the object before. */
#ifndef HTH_BASE_REF_H
#define HTH_BASE_REF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct hth_ref {
    _Atomic uint64_t n_more; /* references beside the first one */
} hth_ref;

static inline void hth_ref_take(hth_ref *r)
{
    atomic_fetch_add_explicit(&r->n_more, 1, memory_order_relaxed);
}

/* True: it was the last one. */
static inline bool hth_ref_drop(hth_ref *r)
{
    return atomic_fetch_sub_explicit(&r->n_more, 1, memory_order_acq_rel) == 0;
}

#endif
