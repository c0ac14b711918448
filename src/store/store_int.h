/* The store, for the files that implement it: store.c, store_uses.c, store_memory.c. */
#ifndef HTH_STORE_STORE_INT_H
#define HTH_STORE_STORE_INT_H

#include "store/slots.h"
#include "store/use_weight.h"

#include <pthread.h>

typedef enum hth_item_state {
    ITEM_ABSENT,
    ITEM_QUEUED,  /* in a queue */
    ITEM_LOADING, /* has a slot */
    ITEM_READY,   /* has a slot */
    ITEM_FAILED,  /* until all that need it have seen it */
} hth_item_state;

/* Steps whose uses are remembered, more than have a gain (reuse.h). */
enum { HTH_STORE_REMEMBERED = 32 };
/* Guesses that are being read at once. */
enum { HTH_STORE_MAX_GUESS = 16 };

typedef struct hth_item_list {
    uint32_t first, last;
} hth_item_list;

typedef struct hth_item {
    hth_store_item is;
    hth_store_residence residence; /* now: streamed items are pinned as long as there is memory (hth_store_options) */
    hth_item_state state;
    hth_item_list *queue;    /* QUEUED */
    uint32_t before, after; /* in it */
    uint32_t i_slot;     /* LOADING, READY */
    bool on_device;
    uint32_t n_need, n_hold; /* asked for and not taken; taken and not given back */
    float uses;          /* weighted by age */
    uint64_t used_at;    /* the step of its group of the last use; 0: it is in no list of remembered uses */
    uint32_t used_before, used_after; /* in the list of that step */
    bool checked;        /* its checksums are right */
    hth_load_failure failure;
} hth_item;

/* Ages count the steps in which a group was asked for: an item that was not needed then is one step older, though the
 * other layers of the step follow. */
typedef struct hth_store_group {
    hth_store_counters counters;
    uint64_t i_step;   /* from 1 */
    uint64_t asked_at; /* the store's step of its last one */
    uint32_t used[HTH_STORE_REMEMBERED]; /* the first item of the lists of the last steps */
} hth_store_group;

struct hth_store {
    hth_reader *reader;
    const volatile int *cancel;
    hth_store_policy policy;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t arrived;
    hth_item *items;
    uint32_t n_item;
    bool pins;
    uint32_t n_streamed, n_pinned, max_pinned; /* items that were streamed when the store was opened, how many of them
                                                  are pinned, and were then; or when it was moved */
    uint64_t max_memory;   /* bytes of open slots then */
    uint32_t n_slot_then;
    hth_slots slots;
    hth_load *loads; /* [n_slot] */
    hth_item_list *needed; /* [n_class]: what waits for a slot of a class */
    hth_item_list guesses;
    uint32_t n_loading;
    uint32_t guessed[HTH_STORE_MAX_GUESS], n_guessed; /* items that are being read as guesses */
    uint32_t guess_size; /* bytes of the queued ones that are read at once */
    hth_use_weight weight; /* of `uses` of the items */
    uint64_t i_step;          /* from 1 */
    hth_reuse reuse;
    float n_guess, n_guess_used; /* recent guesses, and those that were used; both decay */
    bool has_unused_guess;       /* perhaps */
    hth_store_group *groups; /* [n_group] */
    uint64_t *checksums;
};

/* Nothing reads the item, or will: it may lose its slot. */
static inline bool hth_store_is_unused(const hth_item *i)
{
    return i->state == ITEM_READY && i->n_need == 0 && i->n_hold == 0;
}

/* Unlocks, and starts the reads that can start. */
void hth_store_unlock(hth_store *s);
/* With the lock held: what nothing needs can be evicted; what was streamed and used is. A slot that is surplus is
 * closed. */
void hth_store_release_if_unused(hth_store *s, uint32_t i_item);

/* ---- store_uses.c: with the lock held --------------------------------------------------------------------------- */

void hth_store_init_uses(hth_store *s, uint32_t n_half_life, uint32_t n_group);
/* Items of a group are asked for. */
void hth_store_begin_group(hth_store *s, hth_store_group *g);
void hth_store_count_use(hth_store *s, uint32_t i_item);
/* A guess was read, or turned out right. */
void hth_store_count_guess(hth_store *s, const hth_item *i, bool made, bool used);
/* Whether guesses turn out right often enough. */
bool hth_store_may_guess(const hth_store *s);
/* A guess evicts what is worth less. */
float hth_store_guess_limit(const hth_store *s);
/* The value of an item in a slot; the item with the least is evicted first. */
float hth_store_key(const hth_store *s, const hth_item *i);

/* ---- store_memory.c: with the lock held ------------------------------------------------------------------------- */

/* A slot has no item any more. */
void hth_store_free_slot(hth_store *s, uint32_t i_slot);
/* Closes a slot that is surplus, if nothing uses its item, which moves to the slot of one that is worth less. */
void hth_store_vacate(hth_store *s, uint32_t i_slot);
/* Notes the memory and the slots that are open now as the maximum. */
void hth_store_note_memory(hth_store *s);
/* Pins as many of the streamed items, max at most, as leave memory for reading ahead. */
void hth_store_choose_pinned(hth_store *s, uint64_t memory, uint32_t max);

#endif
