/* Stacks, states and what follows from them. No function here calls itself: the depth of a text or of a grammar is
 * memory, and limited (HTH_GRAMMAR_MAX_DEPTH). */
#include "constrain/automaton.h"

#include "base/hash.h"

#include <string.h>

enum { N_SEEN = 4 * HTH_AUTOMATON_MAX_PLACES, N_INDEX_MIN = 256 };

static uint64_t key_of(hth_place p) { return (uint64_t)p.node << 32 | p.stack; }

/* splitmix64's finish. */
static uint32_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(x ^ x >> 31);
}

static void fail_memory(hth_automaton *a, size_t size)
{
    if (a->error.status == HEARTH_OK) hth_fail_memory(&a->error, size, "a constraint");
}

static void fail_limit(hth_automaton *a, const char *what)
{
    if (a->error.status == HEARTH_OK)
        hth_fail(&a->error, HEARTH_ERROR_UNSUPPORTED, "the constraint is too complex: %s; simplify it", what);
}

/* Room for one more element. */
static bool grow(hth_automaton *a, void **array, uint32_t n, uint32_t *capacity, size_t size)
{
    if (n < *capacity) return true;
    uint32_t more = *capacity ? 2 * *capacity : 64;
    void *bigger = hth_realloc(*array, more, size);
    if (!bigger) {
        fail_memory(a, more * size);
        return false;
    }
    *array = bigger;
    *capacity = more;
    return true;
}

size_t hth_automaton_bytes(const hth_automaton *a)
{
    return a->n_frame * sizeof *a->frame + a->n_place * sizeof *a->place +
           a->n_state * (sizeof *a->state + a->grammar->n_class * sizeof *a->next);
}

/* ---- stacks ------------------------------------------------------------------------------ */

static uint32_t hash_of_frame(hth_frame f)
{
    return mix(((uint64_t)f.node << 32 | f.parent) + f.count * UINT64_C(0x9E3779B97F4A7C15));
}

static bool widen_frames(hth_automaton *a)
{
    uint32_t n = 2 * a->n_frame_index;
    uint32_t *index = hth_alloc(n, sizeof *index);
    if (!index) {
        fail_memory(a, n * sizeof *index);
        return false;
    }
    for (uint32_t i = 1; i < a->n_frame; i++) {
        uint32_t at = hash_of_frame(a->frame[i]) & (n - 1);
        while (index[at]) at = (at + 1) & (n - 1);
        index[at] = i;
    }
    hth_free(a->frame_index);
    a->frame_index = index;
    a->n_frame_index = n;
    return true;
}

/* The stack with this frame on top; 0 after a failure. */
static uint32_t push_frame(hth_automaton *a, uint32_t node, uint32_t count, uint32_t parent)
{
    hth_frame f = {node, count, parent, a->frame[parent].depth + 1};
    if (2 * a->n_frame >= a->n_frame_index && !widen_frames(a)) return 0;
    uint32_t at = hash_of_frame(f) & (a->n_frame_index - 1);
    for (; a->frame_index[at]; at = (at + 1) & (a->n_frame_index - 1)) {
        const hth_frame *g = &a->frame[a->frame_index[at]];
        if (g->node == node && g->count == count && g->parent == parent) return a->frame_index[at];
    }
    if (!grow(a, (void **)&a->frame, a->n_frame, &a->frame_capacity, sizeof *a->frame)) return 0;
    a->frame[a->n_frame] = f;
    a->frame_index[at] = a->n_frame;
    return a->n_frame++;
}

/* ---- places that are reached without a byte ------------------------------------------------- */

/* Only places from which an end can be reached within the depth. */
static void add_place(hth_automaton *a, uint32_t node, uint32_t stack)
{
    if (a->error.status != HEARTH_OK) return;
    if (a->frame[stack].depth + a->grammar->node[node].need > HTH_GRAMMAR_MAX_DEPTH) return;
    hth_place p = {node, stack};
    uint64_t key = key_of(p);
    uint32_t at = mix(key) & (N_SEEN - 1);
    for (; a->seen_in[at] == a->n_computed; at = (at + 1) & (N_SEEN - 1))
        if (a->seen[at] == key) return;
    if (a->n_list == HTH_AUTOMATON_MAX_PLACES) {
        fail_limit(a, "a text can be at too many places of it at once");
        return;
    }
    a->seen[at] = key;
    a->seen_in[at] = a->n_computed;
    a->list[a->n_list++] = p;
}

/* `count` parts have begun and ended. */
static void go_on_repeating(hth_automaton *a, uint32_t node, uint32_t count, uint32_t stack)
{
    const hth_grammar_node *n = &a->grammar->node[node];
    if (count < n->max) { /* an unbounded repetition is counted only up to its minimum */
        uint32_t begun = count + 1, enough = n->min > 0 ? n->min : 1;
        if (n->max == HTH_GRAMMAR_UNBOUNDED && begun > enough) begun = enough;
        if (a->grammar->node[n->other].need < HTH_GRAMMAR_MAX_DEPTH) {
            uint32_t inside = push_frame(a, node, begun, stack);
            if (inside) add_place(a, n->other, inside);
        }
    }
    if (count >= n->min) add_place(a, n->next, stack);
}

static void end_rule(hth_automaton *a, uint32_t stack, bool *may_end)
{
    if (stack == 0) {
        *may_end = true;
        return;
    }
    hth_frame f = a->frame[stack];
    if (f.count > 0) go_on_repeating(a, f.node, f.count, f.parent);
    else add_place(a, f.node, f.parent);
}

static void call_rule(hth_automaton *a, const hth_grammar_node *n, uint32_t stack)
{
    uint32_t inside = stack;
    if (n->next != HTH_GRAMMAR_END) inside = push_frame(a, n->next, 0, stack);
    if (a->error.status == HEARTH_OK) add_place(a, n->other, inside);
}

/* Follows a->list; leaves the places that take a byte in a->kept. */
static uint32_t close_list(hth_automaton *a, bool *may_end)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < a->n_list && a->error.status == HEARTH_OK; i++) {
        hth_place p = a->list[i];
        const hth_grammar_node *n = &a->grammar->node[p.node];
        switch (n->kind) {
        case HTH_NODE_BYTES: a->kept[n_kept++] = p; break;
        case HTH_NODE_SPLIT:
            add_place(a, n->next, p.stack);
            add_place(a, n->other, p.stack);
            break;
        case HTH_NODE_CALL: call_rule(a, n, p.stack); break;
        case HTH_NODE_REPEAT: go_on_repeating(a, p.node, 0, p.stack); break;
        default: end_rule(a, p.stack, may_end); break;
        }
    }
    a->work += a->n_list;
    if (a->work > HTH_AUTOMATON_WORK) fail_limit(a, "a token takes too long");
    return n_kept;
}

/* ---- states ----------------------------------------------------------------------------------- */

/* Heap sort: states are equal if their sorted places are. */
static void sift(hth_place *p, size_t i, size_t n)
{
    hth_place top = p[i];
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && key_of(p[k + 1]) > key_of(p[k])) k++;
        if (key_of(p[k]) <= key_of(top)) break;
        p[i] = p[k];
    }
    p[i] = top;
}

static void sort_places(hth_place *p, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) sift(p, i, n);
    for (size_t i = n; i-- > 1;) {
        hth_place last = p[i];
        p[i] = p[0];
        p[0] = last;
        sift(p, 0, i);
    }
}

static bool widen_states(hth_automaton *a)
{
    uint32_t n = 2 * a->n_state_index;
    uint32_t *index = hth_alloc(n, sizeof *index);
    if (!index) {
        fail_memory(a, n * sizeof *index);
        return false;
    }
    for (uint32_t i = 1; i < a->n_state; i++) {
        uint32_t at = a->state[i].hash & (n - 1);
        while (index[at]) at = (at + 1) & (n - 1);
        index[at] = i;
    }
    hth_free(a->state_index);
    a->state_index = index;
    a->n_state_index = n;
    return true;
}

/* Room for one more state of n places, with its row of the table. */
static bool take_room(hth_automaton *a, uint32_t n)
{
    const size_t n_class = a->grammar->n_class;
    if (hth_automaton_bytes(a) > HTH_AUTOMATON_MAX_BYTES) {
        fail_limit(a, "a token takes too much memory");
        return false;
    }
    if (2 * a->n_state >= a->n_state_index && !widen_states(a)) return false;
    while (a->place_capacity - a->n_place <= n) { /* never an array without memory */
        uint32_t capacity = a->place_capacity;
        if (!grow(a, (void **)&a->place, capacity, &a->place_capacity, sizeof *a->place)) return false;
    }
    if (a->n_state < a->state_capacity) return true;
    uint32_t more = 2 * a->state_capacity;
    uint32_t *next = hth_realloc(a->next, more, n_class * sizeof *next);
    if (!next) {
        fail_memory(a, more * n_class * sizeof *next);
        return false;
    }
    a->next = next;
    return grow(a, (void **)&a->state, a->n_state, &a->state_capacity, sizeof *a->state);
}

/* The state of these places. */
static uint32_t state_of(hth_automaton *a, hth_place *places, uint32_t n, bool may_end)
{
    if (n == 0 && !may_end) return HTH_STATE_DEAD;
    sort_places(places, n);
    for (uint32_t i = 1; i < n;) { /* a place counts once */
        if (key_of(places[i - 1]) == key_of(places[i]))
            memmove(places + i, places + i + 1, (--n - i) * sizeof *places);
        else i++;
    }
    uint32_t hash = (uint32_t)hth_hash(places, n * sizeof *places) + may_end;
    uint32_t at = hash & (a->n_state_index - 1);
    for (; a->state_index[at]; at = (at + 1) & (a->n_state_index - 1)) {
        const hth_state *s = &a->state[a->state_index[at]];
        if (s->hash == hash && s->n == n && s->may_end == may_end &&
            memcmp(a->place + s->first, places, n * sizeof *places) == 0)
            return a->state_index[at];
    }
    if (!take_room(a, n)) return HTH_STATE_FAILED;
    for (at = hash & (a->n_state_index - 1); a->state_index[at];) at = (at + 1) & (a->n_state_index - 1);
    uint32_t i = a->n_state++;
    a->state[i] = (hth_state){a->n_place,
                              n,
                              hash,
                              may_end,
                              .mask = UINT32_MAX,
                              .plain_next = HTH_STATE_UNKNOWN,
                              .far = HTH_STATE_UNKNOWN};
    memcpy(a->place + a->n_place, places, n * sizeof *places);
    a->n_place += n;
    a->state_index[at] = i;
    memset(a->next + (size_t)i * a->grammar->n_class, 0xFF, a->grammar->n_class * sizeof *a->next);
    return i;
}

static void begin_list(hth_automaton *a)
{
    a->n_list = 0;
    if (++a->n_computed == 0) {
        memset(a->seen_in, 0, N_SEEN * sizeof *a->seen_in);
        a->n_computed = 1;
    }
}

static uint32_t finish_list(hth_automaton *a)
{
    bool may_end = false;
    uint32_t n = close_list(a, &may_end);
    return a->error.status == HEARTH_OK ? state_of(a, a->kept, n, may_end) : HTH_STATE_FAILED;
}

uint32_t hth_automaton_compute(hth_automaton *a, uint32_t state, uint32_t class)
{
    const hth_grammar *g = a->grammar;
    if (a->error.status != HEARTH_OK) return HTH_STATE_FAILED;
    hth_state s = a->state[state];
    begin_list(a);
    for (uint32_t i = 0; i < s.n; i++) {
        hth_place p = a->place[s.first + i];
        const hth_grammar_node *n = &g->node[p.node];
        if (hth_byte_set_has(&g->classes[n->set], (uint8_t) class)) add_place(a, n->next, p.stack);
    }
    a->work += s.n;
    uint32_t next = finish_list(a);
    if (next != HTH_STATE_FAILED) a->next[(size_t)state * g->n_class + class] = next;
    return next;
}

uint32_t hth_automaton_start(hth_automaton *a)
{
    begin_list(a);
    add_place(a, a->grammar->start, 0);
    return finish_list(a);
}

/* ---- equal states ------------------------------------------------------------------------------ */

/* Each part of a repetition takes a byte, so n_byte bytes end as many of them at most. */
static uint32_t far_count(const hth_grammar *g, const hth_frame *f, uint32_t n_byte)
{
    const hth_grammar_node *n = &g->node[f->node];
    uint32_t least = n->min > 0 ? n->min : 1;
    if (f->count == 0 || g->node[n->other].can_be_empty) return f->count;
    if (f->count < n->min) return n->min - f->count > n_byte ? 1 : f->count;
    bool is_far = n->max == HTH_GRAMMAR_UNBOUNDED || n->max - f->count >= n_byte;
    return is_far ? least : f->count;
}

static uint32_t far_stack(hth_automaton *a, uint32_t stack, uint32_t n_byte)
{
    uint32_t path[HTH_GRAMMAR_MAX_DEPTH + 2], n = 0, other = 0;
    for (; stack; stack = a->frame[stack].parent) path[n++] = stack;
    while (n > 0 && a->error.status == HEARTH_OK) {
        hth_frame f = a->frame[path[--n]];
        uint32_t count = far_count(a->grammar, &f, n_byte);
        other = count == f.count && other == f.parent ? path[n] : push_frame(a, f.node, count, other);
    }
    return other;
}

uint32_t hth_automaton_far(hth_automaton *a, uint32_t state, uint32_t n_byte)
{
    hth_state s = a->state[state];
    bool changes = false;
    if (s.far != HTH_STATE_UNKNOWN) return s.far;
    for (uint32_t i = 0; i < s.n; i++) {
        hth_place p = a->place[s.first + i];
        a->kept[i] = (hth_place){p.node, far_stack(a, p.stack, n_byte)};
        changes |= a->kept[i].stack != p.stack;
    }
    if (a->error.status != HEARTH_OK) return HTH_STATE_FAILED;
    uint32_t far = changes ? state_of(a, a->kept, s.n, s.may_end) : state;
    if (far != HTH_STATE_FAILED) a->state[state].far = far;
    return far;
}

/* ---- opening, forgetting -------------------------------------------------------------------------- */

/* Everything that grows, with the empty stack and the dead state. */
static bool take_tables(hth_automaton *a)
{
    const size_t n_class = a->grammar->n_class;
    a->frame_capacity = a->state_capacity = N_INDEX_MIN / 2;
    a->n_frame_index = a->n_state_index = N_INDEX_MIN;
    a->frame = hth_alloc(a->frame_capacity, sizeof *a->frame);
    a->frame_index = hth_alloc(a->n_frame_index, sizeof *a->frame_index);
    a->state = hth_alloc(a->state_capacity, sizeof *a->state);
    a->state_index = hth_alloc(a->n_state_index, sizeof *a->state_index);
    a->next = hth_alloc(a->state_capacity, n_class * sizeof *a->next);
    a->n_frame = a->n_state = 1;
    if (!a->frame || !a->frame_index || !a->state || !a->state_index || !a->next) return false;
    a->state[HTH_STATE_DEAD] = (hth_state){.mask = UINT32_MAX};
    return true;
}

static void free_tables(hth_automaton *a)
{
    hth_free(a->frame);
    hth_free(a->frame_index);
    hth_free(a->place);
    hth_free(a->state);
    hth_free(a->state_index);
    hth_free(a->next);
}

hearth_status hth_automaton_open(hth_automaton *a, const hth_grammar *grammar, hearth_error *err)
{
    *a = (hth_automaton){.grammar = grammar};
    a->list = hth_alloc(HTH_AUTOMATON_MAX_PLACES, sizeof *a->list);
    a->kept = hth_alloc(HTH_AUTOMATON_MAX_PLACES, sizeof *a->kept);
    a->seen = hth_alloc(N_SEEN, sizeof *a->seen);
    a->seen_in = hth_alloc(N_SEEN, sizeof *a->seen_in);
    if (take_tables(a) && a->list && a->kept && a->seen && a->seen_in) return HEARTH_OK;
    hth_automaton_close(a);
    return hth_fail_memory(err, N_SEEN * sizeof *a->seen, "a constraint");
}

void hth_automaton_close(hth_automaton *a)
{
    free_tables(a);
    hth_free(a->list);
    hth_free(a->kept);
    hth_free(a->seen);
    hth_free(a->seen_in);
    *a = (hth_automaton){.grammar = NULL};
}

void hth_automaton_allow_work(hth_automaton *a)
{
    a->work = 0;
    a->error.status = HEARTH_OK;
}

/* The same stack in another automaton. */
static uint32_t copy_stack(hth_automaton *to, const hth_automaton *from, uint32_t stack)
{
    uint32_t path[HTH_GRAMMAR_MAX_DEPTH + 2], n = 0, copy = 0;
    for (; stack; stack = from->frame[stack].parent) path[n++] = stack;
    while (n > 0) {
        hth_frame f = from->frame[path[--n]];
        copy = push_frame(to, f.node, f.count, copy);
    }
    return copy;
}

hearth_status hth_automaton_compact(hth_automaton *a, uint32_t *states, size_t n, hearth_error *err)
{
    hth_automaton fresh = *a;
    fresh.place = NULL;
    fresh.n_place = fresh.place_capacity = 0;
    if (!take_tables(&fresh)) fail_memory(&fresh, HTH_AUTOMATON_SOFT_BYTES);
    uint32_t *renamed = hth_alloc(n, sizeof *renamed);
    if (!renamed) fail_memory(&fresh, n * sizeof *renamed);
    for (size_t i = 0; i < n && fresh.error.status == HEARTH_OK; i++) {
        hth_state s = a->state[states[i]];
        for (uint32_t k = 0; k < s.n; k++) {
            hth_place p = a->place[s.first + k];
            fresh.kept[k] = (hth_place){p.node, copy_stack(&fresh, a, p.stack)};
        }
        if (fresh.error.status == HEARTH_OK) renamed[i] = state_of(&fresh, fresh.kept, s.n, s.may_end);
    }
    hearth_status st = fresh.error.status;
    if (st == HEARTH_OK) {
        for (size_t i = 0; i < n; i++) states[i] = renamed[i];
        free_tables(a);
        *a = fresh;
    } else {
        if (err) *err = fresh.error;
        free_tables(&fresh);
    }
    hth_free(renamed);
    return st;
}
