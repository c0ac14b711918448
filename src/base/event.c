/* The futex of an event. The count of notifications is the futex word: a notification between a waiter's last
 * check and its system call makes that call return at once. */
#define _GNU_SOURCE
#include "base/event.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint32_t hth_event_prepare_wait(hth_event *event)
{
    uint32_t seen = atomic_load(&event->n_notify);
    (void)atomic_exchange(&event->sleeping, 1); /* not a store: see publish in pool.c */
    return seen;
}

bool hth_event_wait(hth_event *event, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                            .tv_nsec = (long)(timeout_ns % 1000000000)};
    syscall(SYS_futex, &event->n_notify, FUTEX_WAIT_PRIVATE, seen, timeout_ns == UINT64_MAX ? NULL : &time,
            NULL, 0);
    return atomic_load(&event->n_notify) != seen;
}

void hth_event_notify_all(hth_event *event)
{
    if (!atomic_load(&event->sleeping)) return;
    atomic_store(&event->sleeping, 0);
    atomic_fetch_add(&event->n_notify, 1);
    syscall(SYS_futex, &event->n_notify, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
