/* The cache: the state of each item, and which reads are started next. One lock guards everything; nothing waits or
 * reads while it is held. Items that are needed get a slot of their class in the order in which they were asked for;
 * guesses get one only where that evicts nothing of more use. */
#define _GNU_SOURCE
#include "store/store.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "store/reuse.h"
#include "store/slots.h"

#include <assert.h>
#include <string.h>

/* Guesses that are being read at once. How often a waiting thread looks at the flag that cancels. */
enum { MAX_GUESS = 16, HALF_LIFE = 128, POLL_NS = 50000000 };
/* Steps whose uses are remembered, more than have a gain (reuse.h). */
enum { N_REMEMBERED = 32 };
/* Guesses are read while at least this part of them turns out right: wrong ones delay what is needed. One evicts what is
 * needed with less than that part of the probability that it is right. */
#define GUESS_PART 0.5f
/* In a step, of what is known of guesses. */
#define GUESS_DECAY 0.99f
/* Keys are scaled down when a use weighs more: keys keep their precision, and sums do not overflow. */
#define MAX_USE_WEIGHT 1e18f

typedef enum item_state {
    ITEM_ABSENT,
    ITEM_QUEUED,  /* in a queue */
    ITEM_LOADING, /* has a slot */
    ITEM_READY,   /* has a slot */
    ITEM_FAILED,  /* until all that need it have seen it */
} item_state;

#define NO_ITEM UINT32_MAX

typedef struct item_queue {
    uint32_t first, last;
} item_queue;

typedef struct item {
    hth_store_item is;
    item_state state;
    item_queue *queue;   /* QUEUED */
    uint32_t before, after; /* in it */
    uint32_t i_slot;     /* LOADING, READY */
    uint32_t n_need, n_hold; /* asked for and not taken; taken and not given back */
    float uses;          /* weighted by age */
    uint64_t used_at;    /* the step of the last use; 0: it is in no list of remembered uses */
    uint32_t used_before, used_after; /* in the list of that step */
    hth_load_failure failure;
} item;

struct hth_store {
    hth_reader *reader;
    const volatile int *cancel;
    hth_store_policy policy;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t arrived;
    item *items;
    uint32_t n_item;
    hth_slots slots;
    hth_load *loads; /* [n_slot] */
    item_queue *needed; /* [n_class + 1]: what waits for a slot of a class; the last one: for its own slot */
    item_queue guesses;
    uint32_t n_loading, n_guess_loading;
    float use_weight, growth; /* of a use now; in one token */
    float all_uses;           /* what `uses` is of an item that every step used */
    uint64_t i_step;          /* from 1 */
    uint32_t used[N_REMEMBERED]; /* the first item of the lists of the last steps */
    hth_reuse reuse;
    float n_guess, n_guess_used; /* of late */
    bool has_unused_guess;       /* perhaps */
    hth_store_counters *counters; /* [n_group] */
};

/* ---- queues ---------------------------------------------------------------------------------- */

static item_queue *needed_of(hth_store *s, uint32_t i_item)
{
    uint32_t i_class = s->slots.class_of[i_item];
    return &s->needed[i_class == HTH_NO_SLOT ? s->slots.n_class : i_class];
}

static void enqueue(hth_store *s, item_queue *q, uint32_t i_item)
{
    item *i = &s->items[i_item];
    i->state = ITEM_QUEUED, i->queue = q;
    i->before = q->last, i->after = NO_ITEM;
    if (q->last == NO_ITEM) q->first = i_item;
    else s->items[q->last].after = i_item;
    q->last = i_item;
}

static void dequeue(hth_store *s, uint32_t i_item)
{
    item *i = &s->items[i_item];
    item_queue *q = i->queue;
    if (i->before == NO_ITEM) q->first = i->after;
    else s->items[i->before].after = i->after;
    if (i->after == NO_ITEM) q->last = i->before;
    else s->items[i->after].before = i->before;
    i->state = ITEM_ABSENT;
}

static void empty_queue(hth_store *s, item_queue *q)
{
    while (q->first != NO_ITEM) dequeue(s, q->first);
}

/* ---- slots ------------------------------------------------------------------------------------- */

static hth_store_counters *counters_of(hth_store *s, const item *i) { return &s->counters[i->is.i_group]; }

static float guess_probability(const hth_store *s) { return (s->n_guess_used + 1.0f) / (s->n_guess + 2.0f); }

/* In units of all_uses: the probability that an item is needed in the next step. */
static float key_of(const hth_store *s, const item *i)
{
    if (i->is.residence == HTH_STORE_STREAMED) return 0.0f;
    if (s->policy == HTH_STORE_LRU) return s->use_weight;
    if (s->policy == HTH_STORE_STATIC) return i->is.weight;
    if (i->used_at == 0) return i->uses;
    return i->uses + s->all_uses * hth_reuse_gain(&s->reuse, (uint32_t)(s->i_step - i->used_at));
}

static float key_of_guess(const hth_store *s)
{
    return s->policy == HTH_STORE_LEARNED ? s->all_uses * guess_probability(s) : s->use_weight;
}

/* What nothing needs can be evicted; what was streamed and used is. */
static void release_if_unused(hth_store *s, uint32_t i_item)
{
    item *i = &s->items[i_item];
    hth_slot *slot = &s->slots.slots[i->i_slot];
    if (i->state != ITEM_READY || i->n_need > 0 || i->n_hold > 0) return;
    if (i->is.residence == HTH_STORE_STREAMED && !slot->unused_guess) {
        i->state = ITEM_ABSENT;
        hth_slots_put_free(&s->slots, i->i_slot);
    } else {
        s->has_unused_guess |= slot->unused_guess;
        hth_slots_release(&s->slots, i->i_slot, slot->unused_guess ? key_of_guess(s) : key_of(s, i));
    }
}

/* A slot for an item, or HTH_NO_SLOT. */
static uint32_t find_slot(hth_store *s, const item *i, bool guess)
{
    uint32_t i_item = (uint32_t)(i - s->items), i_class = s->slots.class_of[i_item];
    if (i_class == HTH_NO_SLOT) return i->i_slot; /* pinned */
    uint32_t i_slot = hth_slots_take_free(&s->slots, i_class);
    if (i_slot != HTH_NO_SLOT) return i_slot;
    if ((i_slot = hth_slots_victim(&s->slots, i_class)) == HTH_NO_SLOT) return HTH_NO_SLOT;
    hth_slot *slot = &s->slots.slots[i_slot];
    float limit = s->policy == HTH_STORE_LEARNED ? GUESS_PART * key_of_guess(s) : s->use_weight;
    if (guess && (slot->unused_guess || slot->key >= limit)) return HTH_NO_SLOT;
    hth_slots_hold(&s->slots, i_slot);
    s->items[slot->i_item].state = ITEM_ABSENT;
    return i_slot;
}

static void count_guess(hth_store *s, const item *i, bool made, bool used)
{
    counters_of(s, i)->n_guess += made, counters_of(s, i)->n_guess_used += used;
    s->n_guess += made, s->n_guess_used += used;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static void end_load(hth_load *load);

static hth_load *make_load(hth_store *s, uint32_t i_item, uint32_t i_slot, bool guess)
{
    item *i = &s->items[i_item];
    hth_slot *slot = &s->slots.slots[i_slot];
    hth_load *l = &s->loads[i_slot];
    i->state = ITEM_LOADING, i->i_slot = i_slot;
    slot->i_item = i_item, slot->unused_guess = guess;
    s->n_loading++, s->n_guess_loading += guess;
    *l = (hth_load){.n_extent = i->is.n_extent, .to = slot->memory, .guess = guess, .done = end_load, .user = s};
    memcpy(l->extents, i->is.extents, sizeof l->extents);
    return l;
}

/* Appends loads for the items of a queue that get a slot. Guesses wait for slots of several classes. */
static void start_queue(hth_store *s, item_queue *q, hth_load ***last)
{
    bool guess = q == &s->guesses;
    for (uint32_t next, i = q->first; i != NO_ITEM; i = next) {
        next = s->items[i].after;
        if (guess && s->n_guess_loading >= MAX_GUESS) return;
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
    for (uint32_t i = 0; i <= s->slots.n_class; i++) {
        start_queue(s, &s->needed[i], &last);
        waits = waits || s->needed[i].first != NO_ITEM;
    }
    if (!waits && guess_probability(s) >= GUESS_PART) start_queue(s, &s->guesses, &last);
    return first;
}

static void unlock_and_start(hth_store *s)
{
    hth_load *loads = start_loads(s);
    pthread_mutex_unlock(&s->lock);
    if (loads) hth_reader_start(s->reader, loads);
}

static uint64_t size_of(const item *i)
{
    uint64_t size = 0;
    for (uint32_t k = 0; k < i->is.n_extent; k++) size += i->is.extents[k].size;
    return size;
}

/* Called by the reader's thread. */
static void end_load(hth_load *load)
{
    hth_store *s = load->user;
    pthread_mutex_lock(&s->lock);
    uint32_t i_slot = (uint32_t)(load - s->loads), i_item = s->slots.slots[i_slot].i_item;
    item *i = &s->items[i_item];
    bool guess = s->slots.slots[i_slot].unused_guess;
    s->n_loading--, s->n_guess_loading -= guess;
    if (!load->failed) counters_of(s, i)->read_size += size_of(i);
    if (!load->failed && guess) count_guess(s, i, true, false);
    if (load->failed) {
        i->failure = load->failure;
        i->state = i->n_need > 0 ? ITEM_FAILED : ITEM_ABSENT;
        if (i->is.residence != HTH_STORE_PINNED) hth_slots_put_free(&s->slots, i_slot);
        /* Asked for after it was dropped or guessed: only what is read from then on counts. */
        if (i->n_need > 0 && (load->dropped || load->guess)) enqueue(s, needed_of(s, i_item), i_item);
    } else {
        i->state = ITEM_READY;
        if (i->n_need > 0) s->slots.slots[i_slot].unused_guess = false;
        release_if_unused(s, i_item);
    }
    pthread_cond_broadcast(&s->arrived);
    unlock_and_start(s);
}

/* ---- asking ------------------------------------------------------------------------------------- */

static void ask_for(hth_store *s, uint32_t i_item)
{
    item *i = &s->items[i_item];
    hth_store_counters *c = counters_of(s, i);
    i->n_need++;
    if (i->state == ITEM_READY) {
        hth_slot *slot = &s->slots.slots[i->i_slot];
        c->n_hit++;
        if (slot->unused_guess) count_guess(s, i, false, true);
        slot->unused_guess = false;
        hth_slots_hold(&s->slots, i->i_slot);
        return;
    }
    if (i->n_need == 1) c->n_miss++;
    if (i->state == ITEM_LOADING && s->slots.slots[i->i_slot].unused_guess) {
        s->slots.slots[i->i_slot].unused_guess = false;
        s->n_guess_loading--;
        count_guess(s, i, true, true);
        hth_reader_hurry(s->reader, &s->loads[i->i_slot]);
    }
    if (i->state == ITEM_QUEUED && i->queue == &s->guesses) dequeue(s, i_item);
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

/* Items that are in memory at the end, where hth_store_take looks first; before them the others, from the one that is
 * read last to the one that is read first. */
static void sort_asked(const hth_store *s, uint32_t *items, size_t n)
{
    size_t n_absent = 0;
    for (size_t i = 0; i < n / 2; i++) swap(&items[i], &items[n - 1 - i]);
    for (size_t i = 0; i < n; i++)
        if (!has_arrived(s, items[i])) swap(&items[i], &items[n_absent++]);
}

void hth_store_ask(hth_store *s, uint32_t *items, size_t n)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++) ask_for(s, items[i]);
    sort_asked(s, items, n);
    unlock_and_start(s);
}

void hth_store_guess(hth_store *s, const uint32_t *items, size_t n)
{
    pthread_mutex_lock(&s->lock);
    empty_queue(s, &s->guesses);
    for (size_t i = 0; i < n; i++)
        if (s->items[items[i]].state == ITEM_ABSENT) enqueue(s, &s->guesses, items[i]);
    unlock_and_start(s);
}

static void drop_need(hth_store *s, uint32_t i_item)
{
    item *i = &s->items[i_item];
    assert(i->n_need > 0);
    if (--i->n_need > 0) return;
    if (i->state == ITEM_QUEUED) dequeue(s, i_item);
    if (i->state == ITEM_LOADING) hth_reader_drop(s->reader, &s->loads[i->i_slot]);
    if (i->state == ITEM_FAILED) i->state = ITEM_ABSENT;
    if (i->state == ITEM_READY) release_if_unused(s, i_item);
}

void hth_store_drop(hth_store *s, const uint32_t *items, size_t n)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++) drop_need(s, items[i]);
    unlock_and_start(s);
}

/* ---- uses --------------------------------------------------------------------------------------- */

static void forget_use(hth_store *s, uint32_t i_item)
{
    item *i = &s->items[i_item];
    if (i->used_before == NO_ITEM) s->used[i->used_at % N_REMEMBERED] = i->used_after;
    else s->items[i->used_before].used_after = i->used_after;
    if (i->used_after != NO_ITEM) s->items[i->used_after].used_before = i->used_before;
    i->used_at = 0;
}

static void count_use(hth_store *s, uint32_t i_item)
{
    item *i = &s->items[i_item];
    uint32_t *first = &s->used[s->i_step % N_REMEMBERED], age = UINT32_MAX;
    float before = i->uses;
    i->uses += s->use_weight;
    if (s->policy != HTH_STORE_LEARNED || i->is.residence != HTH_STORE_CACHED || i->used_at == s->i_step) return;
    if (i->used_at > 0) age = (uint32_t)(s->i_step - i->used_at), forget_use(s, i_item);
    hth_reuse_add(&s->reuse, i->uses / s->all_uses, age, before / s->all_uses);
    i->used_at = s->i_step;
    i->used_before = NO_ITEM, i->used_after = *first;
    if (*first != NO_ITEM) s->items[*first].used_before = i_item;
    *first = i_item;
}

/* Gives the items of an age another key: their class begins with it, or the gain ends. */
static void renew_keys(hth_store *s, uint32_t age, bool forget)
{
    if (age >= s->i_step) return;
    for (uint32_t next, k = s->used[(s->i_step - age) % N_REMEMBERED]; k != NO_ITEM; k = next) {
        item *i = &s->items[k];
        next = i->used_after;
        if (forget) forget_use(s, k);
        if (i->state == ITEM_READY) release_if_unused(s, k);
    }
}

/* What was guessed for the step that ended, and was not needed, is worth no more than others. */
static void release_guesses(hth_store *s)
{
    for (uint32_t k = 0; s->has_unused_guess && k < s->slots.n_slot; k++) {
        hth_slot *slot = &s->slots.slots[k];
        if (!slot->unused_guess || slot->i_heap == HTH_NO_SLOT || s->items[slot->i_item].is.residence == HTH_STORE_STREAMED)
            continue;
        slot->unused_guess = false;
        release_if_unused(s, slot->i_item);
    }
    s->has_unused_guess = false;
}

/* ---- taking ------------------------------------------------------------------------------------- */

/* One behind the last of n items that is in memory or failed; 0: none. hth_store_ask has sorted them so that this one
 * is near the end. */
static size_t find_arrived(const hth_store *s, const uint32_t *items, size_t n)
{
    while (n > 0 && !has_arrived(s, items[n - 1])) n--;
    return n;
}

static void wait_for_arrival(hth_store *s, hth_store_counters *c)
{
    uint64_t start = hth_clock_ns();
    hth_cond_wait_until(&s->arrived, &s->lock, start + POLL_NS);
    c->stall_ns += hth_clock_ns() - start;
}

static void take_ready(hth_store *s, uint32_t i_item, hth_store_view *view)
{
    item *i = &s->items[i_item];
    i->n_need--, i->n_hold++;
    count_use(s, i_item);
    view->i_item = i_item;
    memcpy(view->data, s->loads[i->i_slot].data, sizeof view->data);
}

hearth_status hth_store_take(hth_store *s, uint32_t *items, size_t *n, bool wait, hth_store_view *view,
                             hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&s->lock);
    size_t i = find_arrived(s, items, *n);
    if (i == 0 && wait && *n > 0) s->counters[s->items[items[0]].is.i_group].n_stall++;
    while (i == 0 && wait && *n > 0) {
        if (s->cancel && *s->cancel) {
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
            st = hth_reader_describe(s->reader, &s->items[i_item].failure, err);
            drop_need(s, i_item);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void hth_store_give(hth_store *s, uint32_t i_item)
{
    pthread_mutex_lock(&s->lock);
    assert(s->items[i_item].n_hold > 0);
    s->items[i_item].n_hold--;
    release_if_unused(s, i_item);
    unlock_and_start(s);
}

static void age_uses(hth_store *s, uint32_t n_tok)
{
    for (uint32_t i = 0; i < n_tok; i++) {
        s->use_weight *= s->growth;
        if (s->use_weight < MAX_USE_WEIGHT) continue;
        float factor = 1.0f / s->use_weight;
        s->use_weight = 1.0f;
        s->all_uses *= factor;
        for (uint32_t k = 0; k < s->n_item; k++) s->items[k].uses *= factor;
        if (s->policy != HTH_STORE_STATIC) hth_slots_scale(&s->slots, factor);
    }
}

void hth_store_advance(hth_store *s, uint32_t n_tok)
{
    pthread_mutex_lock(&s->lock);
    s->all_uses += s->use_weight;
    age_uses(s, n_tok);
    s->i_step++;
    s->n_guess *= GUESS_DECAY, s->n_guess_used *= GUESS_DECAY;
    hth_reuse_advance(&s->reuse);
    for (uint32_t c = 0; c <= HTH_REUSE_CLASSES && s->policy == HTH_STORE_LEARNED; c++)
        renew_keys(s, hth_reuse_first_age(c), c == HTH_REUSE_CLASSES);
    release_guesses(s);
    pthread_mutex_unlock(&s->lock);
}

/* ---- opening and closing -------------------------------------------------------------------------- */

/* The factor whose n-th power is 2: by bisection, since the library has no libm. */
static float growth_of(uint32_t n_half_life)
{
    double low = 1.0, high = 2.0;
    for (int k = 0; k < 60; k++) {
        double mid = (low + high) / 2.0, power = 1.0, base = mid;
        for (uint32_t n = n_half_life; n > 0; n /= 2, base = base < 1e100 ? base * base : base)
            if (n % 2) power *= base;
        if (power > 2.0) high = mid;
        else low = mid;
    }
    return (float)low;
}

/* Pinned items are read at once. */
static void start_pinned(hth_store *s)
{
    uint32_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_item; i++) {
        if (s->items[i].is.residence != HTH_STORE_PINNED) continue;
        s->items[i].i_slot = n++;
        enqueue(s, needed_of(s, i), i);
    }
    unlock_and_start(s);
}

hearth_status hth_store_open(const hth_store_options *o, hth_store **out, hearth_error *err)
{
    *out = NULL;
    hth_store *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "a store");
    *s = (hth_store){.reader = o->reader, .cancel = o->cancel, .policy = o->policy, .n_item = o->n_item,
                     .use_weight = 1.0f, .all_uses = 1.0f, .i_step = 1, .guesses = {NO_ITEM, NO_ITEM}};
    memset(s->used, 0xff, sizeof s->used);
    s->growth = growth_of(o->n_half_life ? o->n_half_life : HALF_LIFE);
    pthread_mutex_init(&s->lock, NULL);
    hth_cond_init(&s->arrived);
    s->items = hth_alloc(o->n_item, sizeof *s->items);
    s->counters = hth_alloc(o->n_group, sizeof *s->counters);
    hearth_status st = s->items && s->counters ? hth_slots_open(&s->slots, o->items, o->n_item, o->memory, err)
                                               : hth_fail_memory(err, o->n_item * sizeof *s->items, "items of a store");
    if (st == HEARTH_OK) {
        s->loads = hth_alloc(s->slots.n_slot, sizeof *s->loads);
        s->needed = hth_alloc(s->slots.n_class + 1, sizeof *s->needed);
        for (uint32_t i = 0; s->needed && i <= s->slots.n_class; i++) s->needed[i] = (item_queue){NO_ITEM, NO_ITEM};
        if (!s->loads || !s->needed) st = hth_fail_memory(err, s->slots.n_slot * sizeof *s->loads, "loads of a store");
    }
    if (st != HEARTH_OK) {
        hth_store_close(s);
        return st;
    }
    for (uint32_t i = 0; i < o->n_item; i++)
        s->items[i] = (item){.is = o->items[i], .i_slot = HTH_NO_SLOT, .uses = o->items[i].weight};
    start_pinned(s);
    *out = s;
    return HEARTH_OK;
}

void hth_store_close(hth_store *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; s->needed && i <= s->slots.n_class; i++) empty_queue(s, &s->needed[i]);
    empty_queue(s, &s->guesses);
    if (s->n_loading > 0) hth_reader_cancel(s->reader);
    while (s->n_loading > 0) pthread_cond_wait(&s->arrived, &s->lock);
    pthread_mutex_unlock(&s->lock);
    hth_slots_close(&s->slots);
    hth_free(s->needed);
    hth_free(s->loads);
    hth_free(s->counters);
    hth_free(s->items);
    pthread_cond_destroy(&s->arrived);
    pthread_mutex_destroy(&s->lock);
    hth_free(s);
}

hth_store_counters hth_store_get_counters(hth_store *s, uint32_t i_group)
{
    pthread_mutex_lock(&s->lock);
    hth_store_counters c = s->counters[i_group];
    pthread_mutex_unlock(&s->lock);
    return c;
}

uint32_t hth_store_n_slot(const hth_store *s) { return s->slots.n_slot; }
