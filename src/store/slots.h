/* The memory of a store: slots in classes of about equal size, and which of them is evicted next. Called with the
 * store's lock held. */
#ifndef HTH_STORE_SLOTS_H
#define HTH_STORE_SLOTS_H

#include "store/store.h"

#define HTH_NO_SLOT UINT32_MAX
#define HTH_NO_ITEM UINT32_MAX

typedef struct hth_slot {
    uint8_t *memory;
    uint32_t i_class, i_item;
    uint32_t i_heap;  /* HTH_NO_SLOT: it cannot be evicted */
    bool unused_guess; /* was read as a guess, and not taken yet */
    bool touched, closed; /* it was written to; its memory was given back to the system */
    float key;        /* the smallest is evicted first */
} hth_slot;

/* Slots of one size, for cached items or for pinned and streamed ones. */
typedef struct hth_slot_class {
    size_t size;
    bool cached;
    uint32_t n_item, n_pinned; /* n_pinned: items that are pinned now, each of which may have a slot for ever */
    uint32_t n_on_device;      /* items that are not counted in n_item */
    uint32_t n_slot, first_slot;
    uint32_t n_open; /* slots that are used; those behind them are closed as soon as nothing needs their items */
    uint32_t *heap, n_heap; /* heap of slots, the smallest key first */
    uint32_t *free, n_free;
} hth_slot_class;

typedef struct hth_slots {
    uint8_t *memory;
    size_t size;
    hth_slot *slots;
    hth_slot_class *classes;
    uint32_t *class_of;    /* [n_item] */
    uint32_t *lists;       /* memory of heap and free */
    uint32_t n_slot, n_class;
    uint64_t open_size, touched_size; /* bytes of the slots that are not closed, and of those that were written to */
} hth_slots;

/* The classes of items. ARGUMENT: overflow; MEMORY. hth_slots_close frees them. */
hearth_status hth_slots_sort(hth_slots *s, const hth_store_item *items, uint32_t n_item, hearth_error *err);
/* The least memory with the items that are pinned now. False: overflow. */
bool hth_slots_least(const hth_slots *s, uint64_t *size);
/* Whether all classes have slots for the items that are pinned now, and for others. */
bool hth_slots_suffice(const hth_slots *s);
/* Whether all items that are not on a device have slots in so much memory, all streamed ones pinned. */
bool hth_slots_hold_all(const hth_slots *s, uint64_t memory);
/* Divides memory, at least hth_slots_least, among the slots, and allocates them; also addresses of slots for items that
 * are on a device now, which are closed. no_bytes: only addresses of all. MEMORY. */
hearth_status hth_slots_open(hth_slots *s, uint64_t memory, bool no_bytes, hearth_error *err);
void hth_slots_close(hth_slots *s);

/* Divides other memory, at least hth_slots_least, which is as much as when it was opened at most: sets n_open. */
void hth_slots_divide(hth_slots *s, uint64_t memory);
/* Whether a slot will be closed, or is. */
bool hth_slots_is_surplus(const hth_slots *s, uint32_t i_slot);
/* Gives the memory of a slot back, which has no item and is neither free nor can be evicted. */
void hth_slots_close_one(hth_slots *s, uint32_t i_slot);
/* A slot is written to. */
void hth_slots_touch(hth_slots *s, uint32_t i_slot);
/* Closes free slots that are surplus, and makes closed ones free that are not. */
void hth_slots_close_free(hth_slots *s);

/* A free slot of a class, or HTH_NO_SLOT. */
uint32_t hth_slots_take_free(hth_slots *s, uint32_t i_class);
void hth_slots_put_free(hth_slots *s, uint32_t i_slot);

/* The slot of a class that is evicted next, or HTH_NO_SLOT. */
uint32_t hth_slots_victim(const hth_slots *s, uint32_t i_class);
/* From now on the slot can be evicted, in the order of key; or cannot. */
void hth_slots_release(hth_slots *s, uint32_t i_slot, float key);
void hth_slots_hold(hth_slots *s, uint32_t i_slot);
/* Multiplies all keys. */
void hth_slots_scale(hth_slots *s, float factor);

#endif
