/* How often items are used, and how long ago, from which follows what an item in a slot is worth. */
#include "store/store_int.h"

#include <string.h>

/* Guesses are read while at least this part of them turns out right: wrong ones delay what is needed. One evicts what
 * is needed with less than that part of the probability that it is right. */
#define GUESS_PART 0.5f
/* Factor on the counts of guesses, per step. */
#define GUESS_DECAY 0.99f

void hth_store_init_uses(hth_store *s, uint32_t n_half_life, uint32_t n_group)
{
    hth_use_weight_open(&s->weight, n_half_life);
    s->i_step = 1;
    for (uint32_t i = 0; i < n_group; i++) memset(s->groups[i].used, 0xff, sizeof s->groups[i].used);
}

/* ---- guesses ------------------------------------------------------------------------------------- */

static float guess_probability(const hth_store *s) { return (s->n_guess_used + 1.0f) / (s->n_guess + 2.0f); }

bool hth_store_may_guess(const hth_store *s) { return guess_probability(s) >= GUESS_PART; }

static float key_of_guess(const hth_store *s)
{
    return s->policy == HTH_STORE_LEARNED ? s->weight.all * guess_probability(s) : s->weight.now;
}

float hth_store_guess_limit(const hth_store *s)
{
    return s->policy == HTH_STORE_LEARNED ? GUESS_PART * key_of_guess(s) : s->weight.now;
}

void hth_store_count_guess(hth_store *s, const hth_item *i, bool made, bool used)
{
    hth_store_counters *c = &s->groups[i->is.i_group].counters;
    c->n_guess += made, c->n_guess_used += used;
    s->n_guess += made, s->n_guess_used += used;
}

/* ---- keys ---------------------------------------------------------------------------------------- */

/* In units of weight.all: the probability that an item is needed in the next step of its group. Below that of all others
 * is that of one on a device: it is needed here once it has left it. */
static float key_of_cached(const hth_store *s, const hth_item *i)
{
    if (i->on_device) return -1.0f;
    if (s->policy == HTH_STORE_LRU) return s->weight.now;
    if (s->policy == HTH_STORE_STATIC) return i->is.weight;
    if (i->used_at == 0) return i->uses;
    uint64_t next_step = s->groups[i->is.i_group].i_step + 1;
    return hth_use_weight_key(&s->weight, &s->reuse, i->uses, (uint32_t)(next_step - i->used_at));
}

float hth_store_key(const hth_store *s, const hth_item *i)
{
    if (i->residence == HTH_STORE_PINNED) return __builtin_inff();
    if (s->slots.slots[i->i_slot].unused_guess) return key_of_guess(s);
    return i->residence == HTH_STORE_STREAMED ? 0.0f : key_of_cached(s, i);
}

/* ---- uses --------------------------------------------------------------------------------------- */

static void forget_use(hth_store *s, uint32_t i_item)
{
    hth_item *i = &s->items[i_item];
    uint32_t *first = &s->groups[i->is.i_group].used[i->used_at % HTH_STORE_REMEMBERED];
    if (i->used_before == HTH_NO_ITEM) *first = i->used_after;
    else s->items[i->used_before].used_after = i->used_after;
    if (i->used_after != HTH_NO_ITEM) s->items[i->used_after].used_before = i->used_before;
    i->used_at = 0;
}

void hth_store_count_use(hth_store *s, uint32_t i_item)
{
    hth_item *i = &s->items[i_item];
    hth_store_group *g = &s->groups[i->is.i_group];
    uint32_t *first = &g->used[g->i_step % HTH_STORE_REMEMBERED], age = UINT32_MAX;
    float before = i->uses;
    i->uses += s->weight.now;
    if (s->policy != HTH_STORE_LEARNED || i->is.residence != HTH_STORE_CACHED || i->used_at == g->i_step) return;
    if (i->used_at > 0) age = (uint32_t)(g->i_step - i->used_at), forget_use(s, i_item);
    hth_reuse_add(&s->reuse, i->uses / s->weight.all, age, before / s->weight.all);
    i->used_at = g->i_step;
    i->used_before = HTH_NO_ITEM, i->used_after = *first;
    if (*first != HTH_NO_ITEM) s->items[*first].used_before = i_item;
    *first = i_item;
}

/* Gives the items that will have an age in the group's next step another key: their class begins with it, or the gain
 * ends. */
static void renew_keys(hth_store *s, const hth_store_group *g, uint32_t age, bool forget)
{
    if (age > g->i_step) return;
    for (uint32_t next, k = g->used[(g->i_step + 1 - age) % HTH_STORE_REMEMBERED]; k != HTH_NO_ITEM; k = next) {
        hth_item *i = &s->items[k];
        next = i->used_after;
        if (forget) forget_use(s, k);
        if (i->state == ITEM_READY) hth_store_release_if_unused(s, k);
    }
}

void hth_store_begin_group(hth_store *s, hth_store_group *g)
{
    if (g->asked_at == s->i_step) return;
    g->asked_at = s->i_step;
    g->i_step++;
    for (uint32_t c = 0; c <= HTH_REUSE_CLASSES && s->policy == HTH_STORE_LEARNED; c++)
        renew_keys(s, g, hth_reuse_first_age(c), c == HTH_REUSE_CLASSES);
}

/* Ends the preference of items that were guessed for the last step and not needed. */
static void release_guesses(hth_store *s)
{
    for (uint32_t k = 0; s->has_unused_guess && k < s->slots.n_slot; k++) {
        hth_slot *slot = &s->slots.slots[k];
        if (!slot->unused_guess || slot->i_heap == HTH_NO_SLOT) continue;
        if (s->items[slot->i_item].is.residence == HTH_STORE_STREAMED) continue;
        slot->unused_guess = false;
        hth_store_release_if_unused(s, slot->i_item);
    }
    s->has_unused_guess = false;
}

/* Multiplies the sums of all items. */
static void scale_uses(hth_store *s, float factor)
{
    for (uint32_t k = 0; k < s->n_item; k++) s->items[k].uses *= factor;
    if (s->policy != HTH_STORE_STATIC) hth_slots_scale(&s->slots, factor);
}

void hth_store_advance(hth_store *s, uint32_t n_tok)
{
    pthread_mutex_lock(&s->lock);
    float factor = hth_use_weight_advance(&s->weight, n_tok);
    if (factor != 1.0f) scale_uses(s, factor);
    s->i_step++;
    s->n_guess *= GUESS_DECAY, s->n_guess_used *= GUESS_DECAY;
    hth_reuse_advance(&s->reuse);
    release_guesses(s);
    pthread_mutex_unlock(&s->lock);
}
