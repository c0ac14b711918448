/* The futex behind a bell. The count of rings is the futex's word: a ring between a
 * sleeper's last look and its system call makes that call return at once. */
#define _GNU_SOURCE
#include "base/bell.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint32_t hth_bell_listen(hth_bell *bell)
{
    uint32_t heard = atomic_load(&bell->n_ring);
    (void)atomic_exchange(&bell->sleeping, 1); /* no store: see announce in pool.c */
    return heard;
}

bool hth_bell_sleep(hth_bell *bell, uint32_t heard, uint64_t timeout_ns)
{
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                            .tv_nsec = (long)(timeout_ns % 1000000000)};
    syscall(SYS_futex, &bell->n_ring, FUTEX_WAIT_PRIVATE, heard, timeout_ns == UINT64_MAX ? NULL : &time,
            NULL, 0);
    return atomic_load(&bell->n_ring) != heard;
}

void hth_bell_ring(hth_bell *bell)
{
    if (!atomic_load(&bell->sleeping)) return;
    atomic_store(&bell->sleeping, 0);
    atomic_fetch_add(&bell->n_ring, 1);
    syscall(SYS_futex, &bell->n_ring, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
