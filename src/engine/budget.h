/* The limit of a model's memory, and what keeps within it: sessions, and a store of weights (streaming.c) that gives
 * way to them and to other needs of the system. */
#ifndef HTH_ENGINE_BUDGET_H
#define HTH_ENGINE_BUDGET_H

#include "base/status.h"
#include "base/system/system_memory.h"

#include <pthread.h>
#include <stdbool.h>

/* How much the store may have because of the system, by what the system told so far. */
typedef struct hth_budget_cap {
    bool is_auto;    /* leaves others more than a limit in bytes does */
    uint64_t min, max; /* least size of the store; its size when it was opened */
    uint64_t now;
    bool is_calm;    /* the system leaves more: since when, and the least of it */
    uint64_t calm_since, calm_left;
    uint64_t n_limit_event;
} hth_budget_cap;

typedef struct hth_budget {
    pthread_mutex_t lock; /* guards the members up to the next line */
    uint64_t limit;       /* limit of the process in bytes; 0: none, and nothing is counted */
    uint64_t base;        /* part of the limit for all but matrices, sessions and the store; 0: there was no limit */
    uint64_t device;      /* part of base for a device that shares this machine's memory */
    uint64_t fixed;       /* part of the limit for all but sessions and the store */
    uint64_t announced;   /* bytes announced for sessions */
    uint64_t sessions;    /* bytes of open sessions and batches */
    hth_budget_cap cap;
    uint64_t logged;      /* bytes of the store in the last line about it */
    bool was_written;     /* the file, and a line has said so */
    bool closing;

    pthread_cond_t wake;
    pthread_t thread;     /* which looks at the system from time to time */
    bool has_thread;
} hth_budget;

/* Bytes that the system leaves for more, beside a margin for others; below 0: so much less would do. */
int64_t hth_budget_headroom(const hth_system_memory *system, bool is_auto, bool pressed);
/* Updates the size that the store may have, from the memory that the system reports. touched: bytes of the store that
 * are in memory. When memory is short the store shrinks at once, until twice the margin is free; it grows again after
 * memory was free for 5 s. Returns nanoseconds until the next check. */
uint64_t hth_budget_follow(hth_budget_cap *cap, const hth_system_memory *system, uint64_t touched, uint64_t now_ns);

#endif
