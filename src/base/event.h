/* Sleep and wake for threads that share atomics: a futex with a flag for "a thread may sleep", so that a
 * notification costs a system call only then. Called by the pool. A waiter calls hth_event_prepare_wait, checks
 * its condition once more, then sleeps: no notification is lost. */
#ifndef HTH_BASE_EVENT_H
#define HTH_BASE_EVENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A zero-initialised event has no waiters. */
typedef struct hth_event {
    _Atomic uint32_t n_notify;
    _Atomic uint32_t sleeping; /* a thread may have gone to sleep since the last notification */
} hth_event;

/* Registers a waiter. Returns the notifications so far, for hth_event_wait. */
uint32_t hth_event_prepare_wait(hth_event *event);
/* Sleeps until a notification after hth_event_prepare_wait, timeout_ns (UINT64_MAX: none), or a signal. True if
 * notified. */
bool hth_event_wait(hth_event *event, uint32_t seen, uint64_t timeout_ns);
/* Wakes all waiters, with one system call if there are any. The caller must have changed their condition before by
 * a sequentially consistent exchange or similar. */
void hth_event_notify_all(hth_event *event);

#endif
