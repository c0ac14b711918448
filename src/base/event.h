/* Sleep and wake for threads that share atomics: a futex with a note of whether anybody
 * sleeps, so that ringing costs a system call only then. Called by the pool. A sleeper
 * listens, looks once more at what it waits for, then sleeps: nothing is missed. */
#ifndef HTH_BASE_BELL_H
#define HTH_BASE_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zero-initialised is a bell that nobody hears. */
typedef struct hth_event {
    _Atomic uint32_t n_notify;
    _Atomic uint32_t sleeping; /* somebody may sleep since the last ring */
} hth_event;

/* Announces a sleeper; what was heard so far, for hth_event_wait. */
uint32_t hth_event_prepare_wait(hth_event *event);
/* Sleeps until a ring after hth_event_prepare_wait, timeout_ns (UINT64_MAX: for ever), or a
 * signal. True when it rang. */
bool hth_event_wait(hth_event *event, uint32_t seen, uint64_t timeout_ns);
/* Wakes all sleepers, in one system call where there are any. What they wait for must have
 * been changed before by a sequentially consistent exchange or the like. */
void hth_event_notify_all(hth_event *event);

#endif
