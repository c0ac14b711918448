/* The memory of a store: slots in classes of about equal size, and which of them is evicted next. Called with the
 * store's lock held. */
#ifndef HTH_STORE_SLOTS_H
#define HTH_STORE_SLOTS_H

#include "store/store.h"

#define HTH_NO_SLOT UINT32_MAX

typedef struct hth_slot {
    uint8_t *memory;
    uint32_t i_class, i_item;
    uint32_t i_heap;  /* HTH_NO_SLOT: it cannot be evicted */
    bool unused_guess; /* was read as a guess, and not taken yet */
    float key;        /* the smallest is evicted first */
} hth_slot;

/* Slots of one size. Pinned items have slots of their own, which belong to no class. */
typedef struct hth_slot_class {
    size_t size;
    bool streamed;
    uint32_t n_item, n_slot, first_slot;
    uint32_t *heap, n_heap; /* of slots, the smallest key first */
    uint32_t *free, n_free;
} hth_slot_class;

typedef struct hth_slots {
    uint8_t *memory;
    size_t size;
    hth_slot *slots;
    hth_slot_class *classes;
    uint32_t *class_of;    /* [n_item]; HTH_NO_SLOT: pinned */
    uint32_t *lists;       /* memory of heap and free */
    uint32_t n_slot, n_class;
} hth_slots;

/* Divides memory, at least hth_store_min_memory, among classes. The slots of pinned items are the first ones, in
 * their order. ARGUMENT, MEMORY. */
hearth_status hth_slots_open(hth_slots *s, const hth_store_item *items, uint32_t n_item, uint64_t memory,
                             hearth_error *err);
void hth_slots_close(hth_slots *s);

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
