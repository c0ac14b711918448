/* The memory of a store, which other needs of the process and of the system change while it runs. Slots are closed from
 * the end of their class, so that whole large pages become free; what they hold moves to slots of items that are worth
 * less. What is in use stays until it is given back. */
#include "store/store_int.h"

#include <string.h>

/* Memory that reading ahead gets: this part of all, and this size at most. */
enum { AHEAD_PART = 16, MAX_AHEAD_SIZE = 64 << 20 };

/* ---- pinned items --------------------------------------------------------------------------- */

/* Pins n of the streamed items, spread evenly. */
static void pin(hth_store *s, uint32_t n)
{
    uint64_t k = 0, all = s->n_streamed;
    s->n_pinned = n;
    for (uint32_t i = 0; i < s->n_item; i++) {
        hth_item *item = &s->items[i];
        hth_slot_class *c = &s->slots.classes[s->slots.class_of[i]];
        if (item->is.residence != HTH_STORE_STREAMED) continue;
        bool here = !item->on_device, was = item->residence == HTH_STORE_PINNED;
        bool pinned = here && (k + 1) * n / all > k * n / all;
        item->residence = pinned ? HTH_STORE_PINNED : HTH_STORE_STREAMED;
        c->n_pinned += pinned, c->n_pinned -= was;
        k += here;
    }
}

/* Whether the pinned items leave `ahead` of the memory, and slots for others. */
static bool fits(const hth_store *s, uint64_t memory, uint64_t ahead)
{
    uint64_t least;
    if (s->slots.slots && !hth_slots_suffice(&s->slots)) return false;
    return hth_slots_least(&s->slots, &least) && least <= memory && ahead <= memory - least;
}

void hth_store_choose_pinned(hth_store *s, uint64_t memory, uint32_t max)
{
    uint32_t low = 0, high = max;
    uint64_t ahead = memory / AHEAD_PART < MAX_AHEAD_SIZE ? memory / AHEAD_PART : MAX_AHEAD_SIZE;
    pin(s, max);
    if (max == s->n_streamed && hth_slots_hold_all(&s->slots, memory)) return; /* nothing is read ahead */
    while (low < high) {
        uint32_t n = low + (high - low + 1) / 2;
        pin(s, n);
        if (fits(s, memory, ahead)) low = n;
        else high = n - 1;
    }
    pin(s, low);
}

/* ---- slots ---------------------------------------------------------------------------------- */

void hth_store_free_slot(hth_store *s, uint32_t i_slot)
{
    if (hth_slots_is_surplus(&s->slots, i_slot)) hth_slots_close_one(&s->slots, i_slot);
    else hth_slots_put_free(&s->slots, i_slot);
}

/* A slot that stays, for an item of that worth: a free one, or that of an item of less worth; or HTH_NO_SLOT. */
static uint32_t find_place(hth_store *s, uint32_t i_class, float key)
{
    uint32_t i_slot = hth_slots_take_free(&s->slots, i_class);
    while (i_slot == HTH_NO_SLOT) {
        uint32_t victim = hth_slots_victim(&s->slots, i_class);
        if (victim == HTH_NO_SLOT || s->slots.slots[victim].key >= key) return HTH_NO_SLOT;
        hth_slots_hold(&s->slots, victim);
        s->items[s->slots.slots[victim].i_item].state = ITEM_ABSENT;
        if (hth_slots_is_surplus(&s->slots, victim)) hth_slots_close_one(&s->slots, victim);
        else i_slot = victim;
    }
    return i_slot;
}

static void move_item(hth_store *s, uint32_t from, uint32_t to)
{
    hth_slot *old = &s->slots.slots[from], *new = &s->slots.slots[to];
    hth_item *i = &s->items[old->i_item];
    hth_slots_touch(&s->slots, to);
    memcpy(new->memory, old->memory, s->slots.classes[old->i_class].size);
    for (uint32_t k = 0; k < i->is.n_extent; k++)
        s->loads[to].data[k] = new->memory + (s->loads[from].data[k] - old->memory);
    new->i_item = old->i_item, new->unused_guess = old->unused_guess;
    i->i_slot = to;
    if (i->residence != HTH_STORE_PINNED) hth_slots_release(&s->slots, to, hth_store_key(s, i));
}

void hth_store_vacate(hth_store *s, uint32_t i_slot)
{
    hth_slot *slot = &s->slots.slots[i_slot];
    hth_item *i = &s->items[slot->i_item];
    if (!hth_store_is_unused(i)) return;
    hth_slots_hold(&s->slots, i_slot);
    uint32_t to = find_place(s, slot->i_class, hth_store_key(s, i));
    if (to == HTH_NO_SLOT) i->state = ITEM_ABSENT;
    else move_item(s, i_slot, to);
    hth_slots_close_one(&s->slots, i_slot);
}

/* ---- other memory --------------------------------------------------------------------------- */

/* Holds the slots of pinned items, and releases those of items that are not pinned any more, if nothing uses them now.
 * Items in use leave their slots after that use, as streamed items do. */
static void release_unpinned(hth_store *s)
{
    for (uint32_t i = 0; i < s->n_item; i++) {
        hth_item *item = &s->items[i];
        if (item->is.residence != HTH_STORE_STREAMED || !hth_store_is_unused(item)) continue;
        if (item->residence == HTH_STORE_PINNED) {
            hth_slots_hold(&s->slots, item->i_slot);
        } else {
            hth_store_release_if_unused(s, i);
        }
    }
}

/* Closes what can be closed now. The lock is released between two slots: each may take a copy. */
static void vacate_surplus(hth_store *s)
{
    for (uint32_t i = s->slots.n_slot; i-- > 0;) {
        pthread_mutex_lock(&s->lock);
        const hth_slot *slot = &s->slots.slots[i];
        if (hth_slots_is_surplus(&s->slots, i) && slot->i_item != HTH_NO_ITEM) hth_store_vacate(s, i);
        hth_store_unlock(s);
    }
}

/* Called with the lock held. */
static void divide(hth_store *s, uint64_t memory, uint32_t max_pinned)
{
    if (s->pins) hth_store_choose_pinned(s, memory, max_pinned);
    hth_slots_divide(&s->slots, memory);
    hth_slots_close_free(&s->slots);
    if (s->pins) release_unpinned(s);
}

void hth_store_set_memory(hth_store *s, uint64_t memory)
{
    pthread_mutex_lock(&s->lock);
    divide(s, memory, s->max_pinned);
    hth_store_unlock(s);
    vacate_surplus(s);
}

/* ---- items that come and go ------------------------------------------------------------------- */

void hth_store_note_memory(hth_store *s)
{
    s->max_pinned = s->n_pinned;
    s->max_memory = 0, s->n_slot_then = 0;
    for (uint32_t i = 0; i < s->slots.n_class; i++) {
        s->n_slot_then += s->slots.classes[i].n_open;
        s->max_memory += (uint64_t)s->slots.classes[i].n_open * s->slots.classes[i].size;
    }
}

static void set_on_device(hth_store *s, uint32_t i_item, bool on_device)
{
    hth_item *item = &s->items[i_item];
    hth_slot_class *c = &s->slots.classes[s->slots.class_of[i_item]];
    if (item->on_device == on_device) return;
    item->on_device = on_device;
    c->n_item += on_device ? -1u : 1u, c->n_on_device += on_device ? 1u : -1u;
    if (item->is.residence == HTH_STORE_STREAMED) s->n_streamed += on_device ? -1u : 1u;
    if (item->state == ITEM_READY && item->residence == HTH_STORE_CACHED) hth_store_release_if_unused(s, i_item);
}

void hth_store_set_on_device(hth_store *s, uint32_t i_item, bool on_device)
{
    pthread_mutex_lock(&s->lock);
    set_on_device(s, i_item, on_device);
    hth_store_unlock(s);
}

void hth_store_move(hth_store *s, const uint8_t *on_device, uint64_t memory)
{
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_item; i++) set_on_device(s, i, on_device[i]);
    divide(s, memory, s->n_streamed);
    hth_store_note_memory(s);
    hth_store_unlock(s);
    vacate_surplus(s);
}

/* ---- figures ---------------------------------------------------------------------------------- */

static uint64_t read_size(hth_store *s, const uint64_t *size)
{
    pthread_mutex_lock(&s->lock);
    uint64_t now = *size;
    pthread_mutex_unlock(&s->lock);
    return now;
}

uint64_t hth_store_memory(hth_store *s) { return read_size(s, &s->slots.open_size); }
uint64_t hth_store_touched(hth_store *s) { return read_size(s, &s->slots.touched_size); }
uint64_t hth_store_max_memory(hth_store *s) { return read_size(s, &s->max_memory); }

uint32_t hth_store_n_slot(hth_store *s)
{
    pthread_mutex_lock(&s->lock);
    uint32_t n = s->n_slot_then;
    pthread_mutex_unlock(&s->lock);
    return n;
}
