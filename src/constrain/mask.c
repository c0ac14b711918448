/* Walks the trie of the vocabulary through an automaton. Where any characters may follow, as in a JSON string, most
 * tokens are known beforehand (plain tokens), and only the others are walked. */
#include "constrain/mask.h"

#include <string.h>

hearth_status hth_masks_open(hth_masks *m, const hth_token_trie *trie, hearth_error *err)
{
    *m = (hth_masks){.trie = trie};
    size_t size = trie->n_word * sizeof(uint64_t), n = size > 0 ? HTH_MASK_BYTES / size : HTH_MASK_MIN;
    m->n_mask = (uint32_t)(n < HTH_MASK_MIN ? HTH_MASK_MIN : n > 1024 ? 1024 : n);
    m->mask = hth_arena_alloc(&m->arena, m->n_mask, sizeof *m->mask, 16);
    uint64_t *tokens = hth_arena_alloc(&m->arena, m->n_mask * trie->n_word, sizeof *tokens, 64);
    m->way = hth_arena_alloc(&m->arena, (size_t)trie->depth + 1, sizeof *m->way, 16);
    if (m->arena.failed) {
        hth_masks_close(m);
        return hth_fail_memory(err, m->n_mask * size, "masks of a constraint");
    }
    for (uint32_t i = 0; i < m->n_mask; i++) m->mask[i].tokens = tokens + i * trie->n_word;
    return HEARTH_OK;
}

void hth_masks_close(hth_masks *m)
{
    hth_arena_free(&m->arena);
    *m = (hth_masks){.trie = NULL};
}

void hth_masks_clear(hth_masks *m)
{
    for (uint32_t i = 0; i < m->n_mask; i++) m->mask[i].used = 0;
}

/* ---- plain characters ---------------------------------------------------------------------- */

/* First bytes of characters beyond ASCII, with the second bytes that they allow (Unicode 15, table 3-7). */
static const struct {
    uint8_t first, last, second_first, second_last, n_more;
} leads[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
             {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
             {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};

/* The state that any byte of a range leads to; DEAD: there are several, or none, or a failure. */
static uint32_t common_next(hth_automaton *a, uint32_t state, uint32_t first, uint32_t last)
{
    uint32_t common = HTH_STATE_UNKNOWN;
    hth_byte_set known = {{0}};
    for (uint32_t b = first; b <= last; b++) {
        uint8_t class = a->grammar->class_of[b];
        if (hth_byte_set_has(&known, class)) continue;
        hth_byte_set_add(&known, class, class);
        uint32_t next = hth_automaton_next_class(a, state, class);
        if (next == HTH_STATE_DEAD || next == HTH_STATE_FAILED ||
            (common != HTH_STATE_UNKNOWN && next != common))
            return HTH_STATE_DEAD;
        common = next;
    }
    return common;
}

static uint32_t find_plain_next(hth_automaton *a, uint32_t state)
{
    static const uint8_t ascii[][2] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}};
    uint32_t next = common_next(a, state, ascii[0][0], ascii[0][1]);
    for (size_t i = 1; i < 3 && next != HTH_STATE_DEAD; i++)
        if (common_next(a, state, ascii[i][0], ascii[i][1]) != next) return HTH_STATE_DEAD;
    for (size_t i = 0; i < sizeof leads / sizeof *leads && next != HTH_STATE_DEAD; i++) {
        uint32_t to = common_next(a, state, leads[i].first, leads[i].last);
        if (to != HTH_STATE_DEAD) to = common_next(a, to, leads[i].second_first, leads[i].second_last);
        for (uint32_t k = 0; k < leads[i].n_more && to != HTH_STATE_DEAD; k++)
            to = common_next(a, to, 0x80, 0xBF);
        if (to != next) return HTH_STATE_DEAD;
    }
    return next;
}

/* The state after any plain character, if it is the same for all; else DEAD. */
static uint32_t plain_next(hth_automaton *a, uint32_t state)
{
    if (a->state[state].plain_next == HTH_STATE_UNKNOWN) {
        uint32_t next = find_plain_next(a, state); /* which may move a->state */
        a->state[state].plain_next = next;
    }
    return a->state[state].plain_next;
}

static bool takes_plain(hth_automaton *a, uint32_t state)
{
    for (uint32_t b = 0x20; b <= 0xF4; b++) {
        bool is_plain = b != '"' && b != '\\' && (b < 0x7F || b >= 0xC2);
        if (is_plain && hth_automaton_next(a, state, (uint8_t)b) != HTH_STATE_DEAD) return true;
    }
    return false;
}

/* How many plain characters can follow, whatever they are, at most HTH_TRIE_MAX_PLAIN. *last: the state after them. */
static uint32_t count_plain(hth_automaton *a, uint32_t state, uint32_t *last)
{
    for (uint32_t n = 0; n < HTH_TRIE_MAX_PLAIN; n++) {
        uint32_t next = plain_next(a, state);
        *last = state;
        if (next == HTH_STATE_DEAD) return n;
        if (next == state) break;
        state = next;
    }
    return HTH_TRIE_MAX_PLAIN;
}

/* ---- walking -------------------------------------------------------------------------------- */

static bool walk(hth_masks *m, hth_automaton *a, const hth_trie *t, uint32_t state, uint64_t *tokens)
{
    m->way[0] = state;
    for (uint32_t i = 1; i < t->n_node;) {
        const hth_trie_node *n = &t->node[i];
        uint32_t next = hth_automaton_next(a, m->way[n->depth - 1], n->byte);
        if (next == HTH_STATE_FAILED) return false;
        if (next == HTH_STATE_DEAD) {
            i = n->after;
            continue;
        }
        m->way[n->depth] = next;
        for (uint32_t k = n->first; k < n[1].first; k++) hth_token_set_add(tokens, t->ids[k]);
        i++;
    }
    return true;
}

static bool compute(hth_masks *m, hth_automaton *a, uint32_t state, uint64_t *tokens)
{
    const hth_token_trie *t = m->trie;
    uint32_t last = state, n = count_plain(a, state, &last);
    if (a->error.status != HEARTH_OK) return false;
    bool knows_all = n == HTH_TRIE_MAX_PLAIN || (n > 0 && !takes_plain(a, last)); /* all plain tokens */
    if (knows_all) {
        memcpy(tokens, hth_token_trie_plain(t, n), t->n_word * sizeof *tokens);
        return walk(m, a, &t->rest, state, tokens);
    }
    memset(tokens, 0, t->n_word * sizeof *tokens);
    return walk(m, a, &t->all, state, tokens);
}

/* From the mask of a state that short tokens do not tell from this one. */
static bool compute_from(hth_masks *m, hth_automaton *a, const hth_mask *other, uint32_t state,
                         uint64_t *tokens)
{
    const hth_token_trie *t = m->trie;
    for (size_t i = 0; i < t->n_word; i++) tokens[i] = other->tokens[i] & ~t->longer_set[i];
    return walk(m, a, &t->longer, state, tokens);
}

/* The one that was not asked for longest. */
static hth_mask *oldest(hth_masks *m)
{
    hth_mask *found = &m->mask[0];
    for (uint32_t i = 1; i < m->n_mask && found->used > 0; i++)
        if (m->mask[i].used < found->used) found = &m->mask[i];
    return found;
}

/* A mask that is kept; NULL: there is none. */
static hth_mask *find(hth_masks *m, const hth_automaton *a, uint32_t state)
{
    uint32_t slot = a->state[state].mask;
    hth_mask *found = slot < m->n_mask ? &m->mask[slot] : NULL;
    if (!found || found->used == 0 || found->state != state) return NULL;
    found->used = ++m->clock;
    return found;
}

/* other: of the state that is far from the bounds (hth_automaton_far), or NULL. */
static hth_mask *make(hth_masks *m, hth_automaton *a, const hth_mask *other, uint32_t state)
{
    const hth_token_trie *t = m->trie;
    hth_mask *new = oldest(m);
    new->used = 0;
    bool ok = other ? compute_from(m, a, other, state, new->tokens) : compute(m, a, state, new->tokens);
    if (!ok) return NULL;
    new->n = 0;
    for (size_t i = 0; i < t->n_word; i++) {
        if (hth_automaton_may_end(a, state)) new->tokens[i] |= t->eog[i];
        new->n += (uint32_t)__builtin_popcountll(new->tokens[i]);
    }
    new->state = state;
    new->used = ++m->clock;
    m->n_computed += !other;
    a->state[state].mask = (uint32_t)(new - m->mask);
    return new;
}

const hth_mask *hth_masks_get(hth_masks *m, hth_automaton *a, uint32_t state)
{
    const hth_mask *found = find(m, a, state), *other = NULL;
    if (found) return found;
    uint32_t far = hth_automaton_far(a, state, HTH_TRIE_SHORT);
    if (far == HTH_STATE_FAILED) return NULL;
    if (far != state && !(other = find(m, a, far)) && !(other = make(m, a, NULL, far))) return NULL;
    return make(m, a, other, state);
}
