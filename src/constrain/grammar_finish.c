/* Makes a grammar ready: skips nodes without content, finds rules that can be empty, refuses those that begin with
 * themselves, computes how many frames each node needs to reach its end (so that automata never go where no end is),
 * and divides bytes into classes. Without recursion, in time that grows with the number of nodes. */
#include "constrain/grammar.h"

#include <string.h>

static const uint32_t UNSET = UINT32_MAX;

/* Nodes by what they refer to: from[first[i]] to from[first[i + 1] - 1] refer to node i. */
typedef struct backwards {
    uint32_t *first, *from;
} backwards;

typedef struct work {
    hth_grammar *g;
    backwards back;
    uint32_t *list;           /* [n_node] nodes that are to be looked at, or a path */
    uint32_t *next_in_bucket; /* [n_node] */
    uint8_t *mark;            /* [n_node] */
} work;

static bool take_memory(work *w, hearth_error *err)
{
    const size_t n = w->g->n_node;
    w->back.first = hth_alloc(n + 2, sizeof *w->back.first);
    w->back.from = hth_alloc(2 * n, sizeof *w->back.from);
    w->list = hth_alloc(n + 1, sizeof *w->list);
    w->next_in_bucket = hth_alloc(n, sizeof *w->next_in_bucket);
    w->mark = hth_alloc(n, sizeof *w->mark);
    if (w->back.first && w->back.from && w->list && w->next_in_bucket && w->mark) return true;
    hth_fail_memory(err, 6 * n * sizeof *w->list, "a grammar");
    return false;
}

static void free_memory(work *w)
{
    hth_free(w->back.first);
    hth_free(w->back.from);
    hth_free(w->list);
    hth_free(w->next_in_bucket);
    hth_free(w->mark);
}

/* ---- nodes without content -------------------------------------------------------------------- */

/* Shortens the way of all nodes that it passes. A way that is a circle, or was never linked, allows nothing. */
static uint32_t skip_empty(hth_grammar *g, uint32_t from)
{
    uint32_t to = from, n = 0;
    while (to != UNSET && g->node[to].kind == HTH_NODE_NONE && n++ <= g->n_node) to = g->node[to].next;
    if (to == UNSET || g->node[to].kind == HTH_NODE_NONE) to = HTH_GRAMMAR_NOTHING;
    while (from != UNSET && from != to && g->node[from].kind == HTH_NODE_NONE) {
        uint32_t next = g->node[from].next;
        g->node[from].next = to;
        from = next;
    }
    return to;
}

static void skip_all(hth_grammar *g)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        hth_grammar_node *n = &g->node[i];
        bool has_other = n->kind == HTH_NODE_SPLIT || n->kind == HTH_NODE_CALL || n->kind == HTH_NODE_REPEAT;
        if (n->kind == HTH_NODE_END || n->kind == HTH_NODE_NONE) continue;
        n->next = i == HTH_GRAMMAR_NOTHING ? HTH_GRAMMAR_NOTHING : skip_empty(g, n->next);
        n->other = has_other ? skip_empty(g, n->other) : n->next;
    }
}

static bool is_real(const hth_grammar_node *n) { return n->kind != HTH_NODE_END && n->kind != HTH_NODE_NONE; }

static void list_backwards(work *w)
{
    const hth_grammar *g = w->g;
    uint32_t *first = w->back.first;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (is_real(&g->node[i])) first[g->node[i].next + 2]++, first[g->node[i].other + 2]++;
    for (uint32_t i = 2; i < g->n_node + 2; i++) first[i] += first[i - 1];
    for (uint32_t i = 0; i < g->n_node; i++) {
        if (!is_real(&g->node[i])) continue;
        w->back.from[first[g->node[i].next + 1]++] = i;
        w->back.from[first[g->node[i].other + 1]++] = i;
    }
}

/* ---- rules that can be empty --------------------------------------------------------------------- */

static bool becomes_empty(const hth_grammar *g, const hth_grammar_node *n)
{
    bool next = g->node[n->next].can_be_empty, other = g->node[n->other].can_be_empty;
    switch (n->kind) {
    case HTH_NODE_SPLIT: return next || other;
    case HTH_NODE_CALL: return next && other;
    case HTH_NODE_REPEAT: return next && (other || n->min == 0);
    default: return false;
    }
}

static void find_empty(work *w)
{
    hth_grammar *g = w->g;
    uint32_t n = 0;
    g->node[HTH_GRAMMAR_END].can_be_empty = true;
    w->list[n++] = HTH_GRAMMAR_END;
    while (n > 0) {
        uint32_t at = w->list[--n];
        for (uint32_t k = w->back.first[at]; k < w->back.first[at + 1]; k++) {
            hth_grammar_node *user = &g->node[w->back.from[k]];
            if (user->can_be_empty || !becomes_empty(g, user)) continue;
            user->can_be_empty = true;
            w->list[n++] = w->back.from[k];
        }
    }
}

/* An empty part counts as often as is wanted, so a least number of them asks for nothing. */
static bool settle_repeats(work *w)
{
    hth_grammar *g = w->g;
    for (uint32_t i = 0; i < g->n_node; i++) {
        hth_grammar_node *n = &g->node[i];
        if (n->kind != HTH_NODE_REPEAT || !g->node[n->other].can_be_empty) continue;
        n->min = 0;
        if (n->max == HTH_GRAMMAR_UNBOUNDED || n->max <= HTH_GRAMMAR_MAX_EMPTY) continue;
        hth_grammar_fail(g, HEARTH_ERROR_UNSUPPORTED,
                         "a part that can be empty is repeated up to %u times; %d is the limit", n->max,
                         HTH_GRAMMAR_MAX_EMPTY);
        return false;
    }
    return true;
}

/* ---- rules that begin with themselves -------------------------------------------------------------- */

/* The i-th node that can follow without a byte and without the end of a rule; UNSET: no more. */
static uint32_t follower(const hth_grammar *g, const hth_grammar_node *n, unsigned i)
{
    bool passes = g->node[n->other].can_be_empty || (n->kind == HTH_NODE_REPEAT && n->min == 0);
    switch (n->kind) {
    case HTH_NODE_SPLIT: return i == 0 ? n->next : i == 1 ? n->other : UNSET;
    case HTH_NODE_CALL:
    case HTH_NODE_REPEAT: return i == 0 ? n->other : i == 1 && passes ? n->next : UNSET;
    default: return UNSET;
    }
}

/* The name of a rule that is called on a circle; the last `n` nodes of the path are it. */
static const char *name_on_circle(const work *w, const uint32_t *path, uint32_t n)
{
    const hth_grammar *g = w->g;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < g->n_label; k++) {
            uint32_t rule = g->label[k].rule;
            if (g->node[rule].kind == HTH_NODE_NONE) rule = g->node[rule].next;
            if (rule == path[i]) return g->label[k].name;
        }
    }
    return "a rule";
}

/* mark: 0 new, 1 to 3 on the path (with the followers that were seen), 4 done. */
static bool refuse_left_recursion(work *w)
{
    hth_grammar *g = w->g;
    for (uint32_t i = 0; i < g->n_node; i++) {
        uint32_t n = 0;
        if (w->mark[i] || !is_real(&g->node[i])) continue;
        w->list[n++] = i;
        w->mark[i] = 1;
        while (n > 0) {
            uint32_t at = w->list[n - 1];
            uint32_t to = w->mark[at] < 3 ? follower(g, &g->node[at], w->mark[at] - 1u) : UNSET;
            w->mark[at]++;
            if (to == UNSET) {
                w->mark[at] = 4;
                n--;
            } else if (w->mark[to] == 0) {
                w->mark[to] = 1;
                w->list[n++] = to;
            } else if (w->mark[to] < 4) {
                uint32_t k = n;
                while (w->list[k - 1] != to) k--;
                hth_grammar_fail(g, HEARTH_ERROR_UNSUPPORTED,
                                 "%s begins with itself (left recursion); write it as a repetition",
                                 name_on_circle(w, w->list + k - 1, n - k + 1));
                return false;
            }
        }
    }
    return true;
}

/* ---- frames ------------------------------------------------------------------------------------------ */

enum { NO_END = UINT16_MAX };

/* NO_END: not known yet. */
static uint32_t need_of(const hth_grammar *g, const hth_grammar_node *n)
{
    uint32_t next = g->node[n->next].need, other = g->node[n->other].need;
    uint32_t below = other == NO_END ? NO_END : other + 1;
    switch (n->kind) {
    case HTH_NODE_SPLIT: return next < other ? next : other;
    case HTH_NODE_BYTES: return n->set == 0 ? NO_END : next;
    case HTH_NODE_CALL: /* the last call of a rule has no frame */
        if (n->next == HTH_GRAMMAR_END) return other;
        return next > below ? next : below;
    default: return n->min == 0 || next > below ? next : below;
    }
}

/* Least numbers first, as in Knuth, "A Generalization of Dijkstra's Algorithm" (1977). */
static void find_needs(work *w)
{
    hth_grammar *g = w->g;
    uint32_t bucket[HTH_GRAMMAR_MAX_DEPTH + 2];
    memset(bucket, 0xFF, sizeof bucket);
    memset(w->mark, 0, g->n_node);
    for (uint32_t i = 0; i < g->n_node; i++) g->node[i].need = NO_END;
    g->node[HTH_GRAMMAR_END].need = 0;
    w->next_in_bucket[HTH_GRAMMAR_END] = UNSET;
    bucket[0] = HTH_GRAMMAR_END;
    for (uint32_t depth = 0; depth <= HTH_GRAMMAR_MAX_DEPTH; depth++) {
        while (bucket[depth] != UNSET) {
            uint32_t at = bucket[depth];
            bucket[depth] = w->next_in_bucket[at];
            for (uint32_t k = w->back.first[at]; k < w->back.first[at + 1]; k++) {
                uint32_t user = w->back.from[k];
                if (g->node[user].need != NO_END) continue;
                uint32_t need = need_of(g, &g->node[user]);
                if (need > HTH_GRAMMAR_MAX_DEPTH) continue;
                g->node[user].need = (uint16_t)need;
                w->next_in_bucket[user] = bucket[need];
                bucket[need] = user;
            }
        }
    }
}

/* ---- classes of bytes ---------------------------------------------------------------------------------- */

static bool find_classes(hth_grammar *g, hearth_error *err)
{
    uint8_t *class_of = g->class_of;
    g->n_class = 1;
    memset(class_of, 0, 256);
    for (uint32_t s = 1; s < g->n_set && g->n_class < 256; s++) {
        int split[256]; /* the new class of those of a class that are in the set; -1: none yet */
        bool outside[256] = {false};
        uint32_t n = g->n_class;
        for (uint32_t b = 0; b < 256; b++)
            if (!hth_byte_set_has(&g->set[s], (uint8_t)b)) outside[class_of[b]] = true;
        for (uint32_t c = 0; c < n; c++) split[c] = -1;
        for (uint32_t b = 0; b < 256; b++) {
            uint8_t c = class_of[b];
            if (!hth_byte_set_has(&g->set[s], (uint8_t)b) || !outside[c]) continue;
            if (split[c] < 0) split[c] = (int)g->n_class++;
            class_of[b] = (uint8_t)split[c];
        }
    }
    for (uint32_t b = 256; b-- > 0;) g->example[class_of[b]] = (uint8_t)b;
    g->classes = hth_alloc(g->n_set, sizeof *g->classes);
    if (!g->classes) {
        hth_fail_memory(err, g->n_set * sizeof *g->classes, "a grammar");
        return false;
    }
    for (uint32_t s = 0; s < g->n_set; s++)
        for (uint32_t c = 0; c < g->n_class; c++)
            if (hth_byte_set_has(&g->set[s], g->example[c])) hth_byte_set_add(&g->classes[s], c, c);
    return true;
}

hearth_status hth_grammar_finish(hth_grammar *g, uint32_t start, hearth_error *err)
{
    work w = {.g = g};
    if (hth_grammar_ok(g) && !take_memory(&w, &g->error)) start = HTH_GRAMMAR_NOTHING;
    if (!hth_grammar_ok(g)) goto done;
    skip_all(g);
    list_backwards(&w);
    find_empty(&w);
    if (!settle_repeats(&w) || !refuse_left_recursion(&w)) goto done;
    find_needs(&w);
    g->start = skip_empty(g, start);
    if (g->node[g->start].need > HTH_GRAMMAR_MAX_DEPTH)
        hth_grammar_fail(g, HEARTH_ERROR_ARGUMENT,
                         "it allows no text, or only texts that are nested too deeply");
    else find_classes(g, &g->error);
done:
    free_memory(&w);
    if (err && !hth_grammar_ok(g)) *err = g->error;
    return g->error.status;
}
