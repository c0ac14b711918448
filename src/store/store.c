/* The cache: the state of each item, and which reads are started next. One lock guards everything; nothing waits or
 * reads while it is held. Items that are needed get a slot of their class in the order in which they were asked for;
 * guesses get one only where that evicts nothing of more use. */
#define _GNU_SOURCE
#include "store/store_int.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/format_bytes.h"
#include "base/hash.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Bytes that are read at once of items that will be needed, and of those that may be: what runs when their layer begins
 * delays what that layer needs. */
enum { SURE_SIZE = 8 << 20, GUESS_SIZE = 2 << 20 };

/* ---- queues ---------------------------------------------------------------------------------- */

static hth_item_list *needed_of(hth_store *s, uint32_t i_item)
{
    return &s->needed[s->slots.class_of[i_item]];
}

static void enqueue(hth_store *s, hth_item_list *q, uint32_t i_item)
{
    hth_item *i = &s->items[i_item];
    i->state = ITEM_QUEUED, i->queue = q;
    i->before = q->last, i->after = HTH_NO_ITEM;
    if (q->last == HTH_NO_ITEM) q->first = i_item;
    else s->items[q->last].after = i_item;
    q->last = i_item;
}

static void dequeue(hth_store *s, uint32_t i_item)
{
    hth_item *i = &s->items[i_item];
    hth_item_list *q = i->queue;
    if (i->before == HTH_NO_ITEM) q->first = i->after;
    else s->items[i->before].after = i->after;
    if (i->after == HTH_NO_ITEM) q->last = i->before;
    else s->items[i->after].before = i->before;
    i->state = ITEM_ABSENT;
}

static void empty_queue(hth_store *s, hth_item_list *q)
{
    while (q->first != HTH_NO_ITEM) dequeue(s, q->first);
}

/* ---- slots ------------------------------------------------------------------------------------- */

static hth_store_counters *counters_of(hth_store *s, const hth_item *i)
{
    return &s->groups[i->is.i_group].counters;
}

void hth_store_release_if_unused(hth_store *s, uint32_t i_item)
{
    hth_item *i = &s->items[i_item];
    hth_slot *slot = &s->slots.slots[i->i_slot];
    if (!hth_store_is_unused(i)) return;
    if (i->residence == HTH_STORE_STREAMED && !slot->unused_guess) {
        i->state = ITEM_ABSENT;
        hth_store_free_slot(s, i->i_slot);
    } else if (hth_slots_is_surplus(&s->slots, i->i_slot)) {
        hth_store_vacate(s, i->i_slot);
    } else if (i->residence != HTH_STORE_PINNED) {
        s->has_unused_guess |= slot->unused_guess;
        hth_slots_release(&s->slots, i->i_slot, hth_store_key(s, i));
    }
}

/* A slot for an item, or HTH_NO_SLOT. */
static uint32_t find_slot(hth_store *s, const hth_item *i, bool guess)
{
    uint32_t i_item = (uint32_t)(i - s->items), i_class = s->slots.class_of[i_item];
    uint32_t i_slot = hth_slots_take_free(&s->slots, i_class);
    if (i_slot != HTH_NO_SLOT) return i_slot;
    if ((i_slot = hth_slots_victim(&s->slots, i_class)) == HTH_NO_SLOT) return HTH_NO_SLOT;
    hth_slot *slot = &s->slots.slots[i_slot];
    if (guess && (slot->unused_guess || slot->key >= hth_store_guess_limit(s))) return HTH_NO_SLOT;
    hth_slots_hold(&s->slots, i_slot);
    s->items[slot->i_item].state = ITEM_ABSENT;
    return i_slot;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static void end_load(hth_load *load);

static void forget_guess(hth_store *s, uint32_t i_item)
{
    uint32_t k = 0;
    while (s->guessed[k] != i_item) k++;
    s->guessed[k] = s->guessed[--s->n_guessed];
}

static hth_load *make_load(hth_store *s, uint32_t i_item, uint32_t i_slot, bool guess)
{
    hth_item *i = &s->items[i_item];
    hth_slot *slot = &s->slots.slots[i_slot];
    hth_load *l = &s->loads[i_slot];
    i->state = ITEM_LOADING, i->i_slot = i_slot;
    slot->i_item = i_item, slot->unused_guess = guess;
    hth_slots_touch(&s->slots, i_slot);
    s->n_loading++;
    if (guess) s->guessed[s->n_guessed++] = i_item;
    *l = (hth_load){.n_extent = i->is.n_extent,
                    .to = slot->memory,
                    .guess_size = guess ? s->guess_size : 0,
                    .done = end_load,
                    .user = s};
    memcpy(l->extents, i->is.extents, sizeof l->extents);
    return l;
}

/* Appends loads for the items of a queue that get a slot. Guesses wait for slots of several classes. */
static void start_queue(hth_store *s, hth_item_list *q, hth_load ***last)
{
    bool guess = q == &s->guesses;
    for (uint32_t next, i = q->first; i != HTH_NO_ITEM; i = next) {
        next = s->items[i].after;
        if (guess && s->n_guessed == HTH_STORE_MAX_GUESS) return;
        uint32_t i_slot = find_slot(s, &s->items[i], guess);
        if (i_slot == HTH_NO_SLOT && guess) continue;
        if (i_slot == HTH_NO_SLOT) return;
        dequeue(s, i);
        **last = make_load(s, i, i_slot, guess);
        *last = &(**last)->next;
    }
}

/* The loads that can start now, linked. */
static hth_load *start_loads(hth_store *s)
{
    hth_load *first = NULL, **last = &first;
    bool waits = false;
    for (uint32_t i = 0; i < s->slots.n_class; i++) {
        start_queue(s, &s->needed[i], &last);
        waits = waits || s->needed[i].first != HTH_NO_ITEM;
    }
    if (!waits && hth_store_may_guess(s)) start_queue(s, &s->guesses, &last);
    return first;
}

void hth_store_unlock(hth_store *s)
{
    hth_load *loads = start_loads(s);
    pthread_mutex_unlock(&s->lock);
    if (loads) hth_reader_start(s->reader, loads);
}

static uint64_t size_of(const hth_item *i)
{
    uint64_t size = 0;
    for (uint32_t k = 0; k < i->is.n_extent; k++) size += i->is.extents[k].size;
    return size;
}

/* Whether the bytes of a load have their checksums; else it has failed. */
static bool is_intact(const hth_store *s, const hth_item *i, hth_load *load)
{
    for (uint32_t k = 0; k < i->is.n_extent && s->checksums; k++) {
        const hth_extent *e = &i->is.extents[k];
        const uint64_t *sums = s->checksums + i->is.checks[k].first;
        uint64_t unit = i->is.checks[k].unit_size;
        for (uint64_t at = 0; unit > 0 && at < e->size; at += unit) {
            uint64_t n = e->size - at < unit ? e->size - at : unit;
            if (hth_hash(load->data[k] + at, (size_t)n) == *sums++) continue;
            load->failed = true;
            load->failure = (hth_load_failure){EBADMSG, e->i_file, e->offset + at, true};
            return false;
        }
    }
    return true;
}

/* Called by the reader's thread. */
static void end_load(hth_load *load)
{
    hth_store *s = load->user;
    uint32_t i_slot = (uint32_t)(load - s->loads), i_item = s->slots.slots[i_slot].i_item;
    hth_item *i = &s->items[i_item];
    bool wrong = !load->failed && !i->checked && !is_intact(s, i, load);
    if (!load->failed) i->checked = true;
    pthread_mutex_lock(&s->lock);
    if (wrong && !load->again) {
        load->again = true, load->failed = false, load->next = NULL;
        counters_of(s, i)->n_wrong++;
        pthread_mutex_unlock(&s->lock);
        hth_reader_start(s->reader, load);
        return;
    }
    bool guess = s->slots.slots[i_slot].unused_guess;
    s->n_loading--;
    if (guess) forget_guess(s, i_item);
    if (!load->failed) counters_of(s, i)->read_size += size_of(i);
    if (!load->failed && guess && !load->dropped) hth_store_count_guess(s, i, true, false);
    if (load->failed) {
        i->failure = load->failure;
        i->state = i->n_need > 0 ? ITEM_FAILED : ITEM_ABSENT;
        hth_store_free_slot(s, i_slot);
        /* Asked for after it was dropped or guessed: only what is read from then on counts. */
        if (i->n_need > 0 && (load->dropped || load->guess_size > 0))
            enqueue(s, needed_of(s, i_item), i_item);
    } else {
        i->state = ITEM_READY;
        if (i->n_need > 0) s->slots.slots[i_slot].unused_guess = false;
        hth_store_release_if_unused(s, i_item);
    }
    pthread_cond_broadcast(&s->arrived);
    hth_store_unlock(s);
}

/* ---- asking ------------------------------------------------------------------------------------- */

static void ask_for(hth_store *s, uint32_t i_item)
{
    hth_item *i = &s->items[i_item];
    hth_store_counters *c = counters_of(s, i);
    i->n_need++;
    if (i->state == ITEM_READY) {
        hth_slot *slot = &s->slots.slots[i->i_slot];
        c->n_hit++;
        if (slot->unused_guess) hth_store_count_guess(s, i, false, true);
        slot->unused_guess = false;
        hth_slots_hold(&s->slots, i->i_slot);
        return;
    }
    if (i->n_need == 1) c->n_miss++;
    if (i->state == ITEM_LOADING && s->slots.slots[i->i_slot].unused_guess) {
        s->slots.slots[i->i_slot].unused_guess = false;
        forget_guess(s, i_item);
        hth_store_count_guess(s, i, !s->loads[i->i_slot].dropped, true);
        hth_reader_prioritize(s->reader, &s->loads[i->i_slot]);
    }
    if (i->state == ITEM_QUEUED && i->queue == &s->guesses) dequeue(s, i_item);
    if (i->state == ITEM_FAILED)
        i->state = ITEM_ABSENT; /* sessions that still need it wait for the new read */
    if (i->state == ITEM_ABSENT) enqueue(s, needed_of(s, i_item), i_item);
}

static bool has_arrived(const hth_store *s, uint32_t i_item)
{
    return s->items[i_item].state == ITEM_READY || s->items[i_item].state == ITEM_FAILED;
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t c = *a;
    *a = *b, *b = c;
}

/* Items that are in memory at the end, where hth_store_acquire looks first; before them the others, from the one that is
 * read last to the one that is read first. */
static void sort_asked(const hth_store *s, uint32_t *items, size_t n)
{
    size_t n_absent = 0;
    for (size_t i = 0; i < n / 2; i++) swap(&items[i], &items[n - 1 - i]);
    for (size_t i = 0; i < n; i++)
        if (!has_arrived(s, items[i])) swap(&items[i], &items[n_absent++]);
}

void hth_store_request(hth_store *s, uint32_t *items, size_t n)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++) hth_store_begin_group(s, &s->groups[s->items[items[i]].is.i_group]);
    for (size_t i = 0; i < n; i++) ask_for(s, items[i]);
    sort_asked(s, items, n);
    hth_store_unlock(s);
}

static void guess(hth_store *s, uint32_t i_item)
{
    if (s->items[i_item].state == ITEM_ABSENT) enqueue(s, &s->guesses, i_item);
}

/* A guess that is being read was wrong: what has not been read of it yet is dropped. */
static void drop_guess(hth_store *s, uint32_t i_item)
{
    hth_load *load = &s->loads[s->items[i_item].i_slot];
    if (load->dropped) return;
    hth_store_count_guess(s, &s->items[i_item], true, false);
    hth_reader_drop(s->reader, load);
}

static bool contains(const uint32_t *items, size_t n, uint32_t item)
{
    for (size_t i = 0; i < n; i++)
        if (items[i] == item) return true;
    return false;
}

void hth_store_prefetch(hth_store *s, const uint32_t *items, size_t n)
{
    pthread_mutex_lock(&s->lock);
    empty_queue(s, &s->guesses);
    s->guess_size = GUESS_SIZE;
    for (uint32_t i = 0; i < s->n_guessed; i++)
        if (!contains(items, n, s->guessed[i])) drop_guess(s, s->guessed[i]);
    for (size_t i = 0; i < n; i++) guess(s, items[i]);
    hth_store_unlock(s);
}

void hth_store_prefetch_next(hth_store *s, uint32_t first, uint32_t n)
{
    pthread_mutex_lock(&s->lock);
    empty_queue(s, &s->guesses);
    s->guess_size = SURE_SIZE;
    for (uint32_t i = 0; i < s->n_item && n > 0; i++) {
        uint32_t i_item = (first + i) % s->n_item;
        bool stays = s->items[i_item].residence == HTH_STORE_PINNED && s->items[i_item].state != ITEM_ABSENT;
        if (!stays && !s->items[i_item].on_device) guess(s, i_item), n--;
    }
    hth_store_unlock(s);
}

static void drop_need(hth_store *s, uint32_t i_item)
{
    hth_item *i = &s->items[i_item];
    assert(i->n_need > 0);
    if (--i->n_need > 0) return;
    if (i->state == ITEM_QUEUED) dequeue(s, i_item);
    if (i->state == ITEM_LOADING) hth_reader_drop(s->reader, &s->loads[i->i_slot]);
    if (i->state == ITEM_FAILED) i->state = ITEM_ABSENT;
    if (i->state == ITEM_READY) hth_store_release_if_unused(s, i_item);
}

void hth_store_cancel(hth_store *s, const uint32_t *items, size_t n)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++) drop_need(s, items[i]);
    hth_store_unlock(s);
}

/* ---- taking ------------------------------------------------------------------------------------- */

/* One behind the last of n items that is in memory or failed; 0: none. hth_store_request has sorted them so that this one
 * is near the end. */
static size_t find_arrived(const hth_store *s, const uint32_t *items, size_t n)
{
    while (n > 0 && !has_arrived(s, items[n - 1])) n--;
    return n;
}

static void wait_for_arrival(hth_store *s, hth_store_counters *c)
{
    uint64_t start = hth_clock_ns();
    hth_cond_wait_poll(&s->arrived, &s->lock);
    c->stall_ns += hth_clock_ns() - start;
}

static void hold(hth_store *s, uint32_t i_item, hth_store_view *view)
{
    hth_item *i = &s->items[i_item];
    i->n_hold++;
    view->i_item = i_item;
    memcpy(view->data, s->loads[i->i_slot].data, sizeof view->data);
}

static void take_ready(hth_store *s, uint32_t i_item, hth_store_view *view)
{
    s->items[i_item].n_need--;
    hth_store_count_use(s, i_item);
    hold(s, i_item, view);
}

bool hth_store_take_if_ready(hth_store *s, uint32_t i_item, hth_store_view *view)
{
    pthread_mutex_lock(&s->lock);
    bool is_ready = s->items[i_item].state == ITEM_READY;
    if (is_ready) {
        hth_slots_hold(&s->slots, s->items[i_item].i_slot);
        hold(s, i_item, view);
    }
    pthread_mutex_unlock(&s->lock);
    return is_ready;
}

/* Why an item could not be read. */
static hearth_status describe(const hth_store *s, uint32_t i_item, hearth_error *err)
{
    const hth_load_failure *f = &s->items[i_item].failure;
    uint32_t i_group = s->items[i_item].is.i_group, n_before = 0;
    if (!f->wrong) return hth_reader_describe(s->reader, f, err);
    while (n_before < i_item && s->items[i_item - n_before - 1].is.i_group == i_group) n_before++;
    return hth_fail(
        err, HEARTH_ERROR_IO,
        "%s: layer %u, cluster %u: the bytes from %" PRIu64
        " on have another checksum than the file says, also when they are read again: the file is damaged, "
        "pack the model again",
        hth_reader_path(s->reader, f->i_file), i_group, n_before, f->at);
}

hearth_status hth_store_acquire(hth_store *s, uint32_t *items, size_t *n, bool wait, hth_store_view *view,
                             hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&s->lock);
    size_t i = find_arrived(s, items, *n);
    if (i == 0 && wait && *n > 0) counters_of(s, &s->items[items[0]])->n_stall++;
    while (i == 0 && wait && *n > 0) {
        if (hth_is_cancelled(s->cancel)) {
            st = hth_fail_cancelled(err);
            break;
        }
        wait_for_arrival(s, counters_of(s, &s->items[items[0]]));
        i = find_arrived(s, items, *n);
    }
    if (i > 0 && st == HEARTH_OK) {
        uint32_t i_item = items[i - 1];
        items[i - 1] = items[--*n];
        if (s->items[i_item].state == ITEM_READY) {
            take_ready(s, i_item, view);
        } else {
            st = describe(s, i_item, err);
            drop_need(s, i_item);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void hth_store_release(hth_store *s, uint32_t i_item)
{
    pthread_mutex_lock(&s->lock);
    assert(s->items[i_item].n_hold > 0);
    s->items[i_item].n_hold--;
    hth_store_release_if_unused(s, i_item);
    hth_store_unlock(s);
}

/* ---- opening and closing -------------------------------------------------------------------------- */

/* Pinned items are read at once. */
static void start_pinned(hth_store *s)
{
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_item; i++)
        if (s->items[i].residence == HTH_STORE_PINNED) enqueue(s, needed_of(s, i), i);
    hth_store_unlock(s);
}

/* Items, classes, and slots for them. */
static hearth_status alloc_items(hth_store *s, const hth_store_options *o, hearth_error *err)
{
    uint64_t least;
    s->items = hth_alloc(o->n_item, sizeof *s->items);
    s->groups = hth_alloc(o->n_group, sizeof *s->groups);
    if (!s->items || !s->groups)
        return hth_fail_memory(err, o->n_item * sizeof *s->items, "items of a store");
    for (uint32_t i = 0; i < o->n_item; i++) {
        s->items[i] = (hth_item){.is = o->items[i],
                                 .residence = o->items[i].residence,
                                 .i_slot = HTH_NO_SLOT,
                                 .on_device = o->items[i].on_device,
                                 .uses = o->items[i].weight};
        s->n_streamed += o->items[i].residence == HTH_STORE_STREAMED && !o->items[i].on_device;
    }
    hearth_status st = hth_slots_sort(&s->slots, o->items, o->n_item, err);
    if (st != HEARTH_OK) return st;
    hth_slots_least(&s->slots, &least);
    if (o->memory < least)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s for weights that are read when they are needed; the least is %s",
                        hth_format_bytes(o->memory).text, hth_format_bytes(least).text);
    if (o->pins) hth_store_choose_pinned(s, o->memory, s->n_streamed);
    if ((st = hth_slots_open(&s->slots, o->memory, o->no_bytes, err)) != HEARTH_OK) return st;
    hth_store_note_memory(s);
    s->loads = hth_alloc(s->slots.n_slot, sizeof *s->loads);
    s->needed = hth_alloc(s->slots.n_class, sizeof *s->needed);
    const hth_item_list none = {HTH_NO_ITEM, HTH_NO_ITEM};
    for (uint32_t i = 0; s->needed && i < s->slots.n_class; i++) s->needed[i] = none;
    if (s->loads && s->needed) return HEARTH_OK;
    return hth_fail_memory(err, s->slots.n_slot * sizeof *s->loads, "loads of a store");
}

hearth_status hth_store_open(const hth_store_options *o, hth_store **out, hearth_error *err)
{
    *out = NULL;
    hth_store *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "a store");
    *s = (hth_store){.reader = o->reader,
                     .cancel = o->cancel,
                     .policy = o->policy,
                     .n_item = o->n_item,
                     .pins = o->pins,
                     .guesses = {HTH_NO_ITEM, HTH_NO_ITEM}};
    pthread_mutex_init(&s->lock, NULL);
    hth_cond_init(&s->arrived);
    hearth_status st = alloc_items(s, o, err);
    if (st != HEARTH_OK) {
        hth_store_close(s);
        return st;
    }
    hth_store_init_uses(s, o->n_half_life, o->n_group);
    s->checksums = o->checksums;
    start_pinned(s);
    *out = s;
    return HEARTH_OK;
}

void hth_store_close(hth_store *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; s->needed && i < s->slots.n_class; i++) empty_queue(s, &s->needed[i]);
    empty_queue(s, &s->guesses);
    if (s->n_loading > 0) hth_reader_cancel(s->reader);
    while (s->n_loading > 0) pthread_cond_wait(&s->arrived, &s->lock);
    pthread_mutex_unlock(&s->lock);
    hth_slots_close(&s->slots);
    hth_free(s->checksums);
    hth_free(s->needed);
    hth_free(s->loads);
    hth_free(s->groups);
    hth_free(s->items);
    pthread_cond_destroy(&s->arrived);
    pthread_mutex_destroy(&s->lock);
    hth_free(s);
}

bool hth_store_is_reading(hth_store *s, const uint32_t *items, size_t n)
{
    bool reads = false;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n && !reads; i++) reads = s->items[items[i]].state == ITEM_LOADING;
    pthread_mutex_unlock(&s->lock);
    return reads;
}

hth_store_counters hth_store_get_counters(hth_store *s, uint32_t i_group)
{
    pthread_mutex_lock(&s->lock);
    hth_store_counters c = s->groups[i_group].counters;
    pthread_mutex_unlock(&s->lock);
    return c;
}
