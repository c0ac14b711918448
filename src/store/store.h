/* A cache of items: bytes of files that are computed with together, at most three extents each (the gate, up and
 * down of an expert). A caller asks for the items that it needs, and takes each as soon as it is in memory, in any
 * order; what it holds or has asked for is never evicted. A guess brings an item that may be needed; it never
 * changes a result.
 *
 * Items lie in slots: memory that stays mapped, at the same address, as long as the store is open. An item that nothing
 * uses may move to another slot, or be evicted: who gives an item back has finished all reads of it, those of
 * stragglers (base/pool.h) too.
 *
 * All functions may be called from any thread. */
#ifndef HTH_STORE_STORE_H
#define HTH_STORE_STORE_H

#include "store/reader.h"

/* The order of eviction. */
typedef enum hth_store_policy {
    /* the least likely to be needed: by frequency, where a use counts half after n_half_life tokens, and by the time
     * since the last use (reuse.h) */
    HTH_STORE_LEARNED,
    HTH_STORE_LRU,       /* the least recently used */
    HTH_STORE_STATIC,    /* the smallest initial weight */
    HTH_N_STORE_POLICY,
} hth_store_policy;

/* How long an item stays in memory. */
typedef enum hth_store_residence {
    HTH_STORE_CACHED,   /* until the policy evicts it */
    HTH_STORE_PINNED,   /* always */
    HTH_STORE_STREAMED, /* until it was used; a store that pins keeps those that fit */
} hth_store_residence;

/* Checksums of an extent (hth_hash), one for each unit_size bytes of it; the last unit may be shorter. */
typedef struct hth_store_check {
    uint32_t first;     /* in hth_store_options.checksums */
    uint64_t unit_size; /* 0: there are none */
} hth_store_check;

typedef struct hth_store_item {
    hth_extent extents[HTH_MAX_EXTENT];
    hth_store_check checks[HTH_MAX_EXTENT]; /* when it is read for the first time */
    uint32_t n_extent;
    uint32_t i_group; /* index of its group of counters: the layer */
    float weight;     /* uses before the first token, as a profile expects them */
    bool on_device;   /* it is not needed now, so no memory is meant for it: hth_store_move, hth_store_set_on_device; not if
                         it is pinned */
    hth_store_residence residence;
} hth_store_item;

typedef struct hth_store_options {
    const hth_store_item *items; /* [n_item], copied */
    uint32_t n_item, n_group;
    uint64_t memory;  /* bytes for slots */
    bool no_bytes;    /* slots have addresses, and no memory: the reader's disk brings nothing (hth_disk_open_timer) */
    bool pins;        /* as many streamed items as leave memory for reading ahead are pinned, spread evenly */
    hth_store_policy policy;
    uint32_t n_half_life; /* 0: 128 */
    uint64_t *checksums; /* allocated by hth_alloc: the store's, if it is opened; NULL: there are none */
    hth_reader *reader; /* must outlive the store */
    const volatile int *cancel; /* while it is not 0, hth_store_acquire does not wait; NULL: none */
} hth_store_options;

typedef struct hth_store_counters {
    uint64_t n_hit, n_miss; /* items that were in memory, or were not, when they were asked for */
    uint64_t read_size;     /* bytes of items that were read */
    uint64_t n_guess, n_guess_used; /* guesses that were read, and of those the ones that were then asked for */
    uint64_t n_stall, stall_ns;     /* waits of hth_store_acquire */
    uint64_t n_wrong;               /* items that had wrong checksums, and were read again */
} hth_store_counters;

typedef struct hth_store hth_store;

/* The least memory with which hth_store_open succeeds. False: overflow, or no memory to compute it. */
bool hth_store_min_memory(const hth_store_item *items, uint32_t n_item, uint64_t *size);

/* ARGUMENT: too little memory. MEMORY. */
hearth_status hth_store_open(const hth_store_options *options, hth_store **out, hearth_error *err);
/* Nothing is held. NULL is allowed. */
void hth_store_close(hth_store *store);

/* n_tok tokens have passed: uses before them count less. */
void hth_store_advance(hth_store *store, uint32_t n_tok);

/* Asks for items, which are then taken or dropped, and sorts them as hth_store_acquire looks for them. Does not wait. An
 * item may be asked for several times. */
void hth_store_request(hth_store *store, uint32_t *items, size_t n);
/* Reads items while nothing else is to be read; what is not among them is not guessed any more. May be ignored. */
void hth_store_prefetch(hth_store *store, const uint32_t *items, size_t n);
/* Reads the next n items from `first` on, behind the last one from 0 on, that are not pinned, ahead of their use. */
void hth_store_prefetch_next(hth_store *store, uint32_t first, uint32_t n);

/* Bytes of an item. */
typedef struct hth_store_view {
    uint32_t i_item;
    const uint8_t *data[HTH_MAX_EXTENT];
} hth_store_view;

/* Takes one of the *n items, which were asked for, and removes it from the array. wait false: *n stays the same if none
 * is in memory. The caller computes with what it holds, and gives it back, before it waits: others may need the memory.
 * IO: an item cannot be read, or has a wrong checksum, also when it is read again; it is removed too. CANCELLED. */
hearth_status hth_store_acquire(hth_store *store, uint32_t *items, size_t *n, bool wait, hth_store_view *view,
                             hearth_error *err);
void hth_store_release(hth_store *store, uint32_t i_item);
/* Takes an item that is in memory now, whether it was asked for or not, and counts no use. False: it is not. */
bool hth_store_take_if_ready(hth_store *store, uint32_t i_item, hth_store_view *view);
/* Takes back that n items were asked for; those that are not being read yet are not. */
void hth_store_cancel(hth_store *store, const uint32_t *items, size_t n);

/* Whether any of n items is being read now. */
bool hth_store_is_reading(hth_store *store, const uint32_t *items, size_t n);

hth_store_counters hth_store_get_counters(hth_store *store, uint32_t i_group);
/* Slots with all memory that the store was opened, or moved, with. */
uint32_t hth_store_n_slot(hth_store *store);

/* From now on the slots have other memory: at least the least, at most as much as when the store was opened. What was
 * used least goes; what is in use goes when it is given back. */
void hth_store_set_memory(hth_store *store, uint64_t memory);
/* Which items are on a device from now on, [n_item], with other memory as by hth_store_set_memory, also more than the
 * store was opened with. */
void hth_store_move(hth_store *store, const uint8_t *on_device, uint64_t memory);
/* An item of those that the policy evicts comes to a device, or leaves it; the memory stays the same. What is there is
 * evicted before all others. */
void hth_store_set_on_device(hth_store *store, uint32_t i_item, bool on_device);
/* Bytes of the slots now, and of those that were written to, which alone take memory of the system. */
uint64_t hth_store_memory(hth_store *store);
uint64_t hth_store_touched(hth_store *store);
/* Bytes of the slots when the store was opened, or moved. */
uint64_t hth_store_max_memory(hth_store *store);

#endif
