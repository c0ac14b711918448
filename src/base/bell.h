/* Sleep and wake for threads that share atomics: a futex with a note of whether anybody
 * sleeps, so that ringing costs a system call only then. Called by the pool. A sleeper
 * listens, looks once more at what it waits for, then sleeps: nothing is missed. */
#ifndef HTH_BASE_BELL_H
#define HTH_BASE_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zero-initialised is a bell that nobody hears. */
typedef struct hth_bell {
    _Atomic uint32_t n_ring;
    _Atomic uint32_t sleeping; /* somebody may sleep since the last ring */
} hth_bell;

/* Announces a sleeper; what was heard so far, for hth_bell_sleep. */
uint32_t hth_bell_listen(hth_bell *bell);
/* Sleeps until a ring after hth_bell_listen, timeout_ns (UINT64_MAX: for ever), or a
 * signal. True when it rang. */
bool hth_bell_sleep(hth_bell *bell, uint32_t heard, uint64_t timeout_ns);
/* Wakes all sleepers, in one system call where there are any. What they wait for must have
 * been changed before by a sequentially consistent exchange or the like. */
void hth_bell_ring(hth_bell *bell);

#endif
