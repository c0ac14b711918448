/* Builds grammars: nodes, sets of bytes, alternatives, repetitions. Called by all compilers of this folder. */
#include "constrain/grammar.h"

#include "base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Larger than all sets; a power of two. */
enum { N_INDEX = 2 * HTH_GRAMMAR_MAX_SETS };
static const uint32_t UNSET = UINT32_MAX;

void hth_grammar_fail(hth_grammar *g, hearth_status status, const char *format, ...)
{
    char line[sizeof g->error.message];
    va_list list;
    if (g->error.status != HEARTH_OK) return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    hth_fail(&g->error, status, "%s: %s", g->what, line);
}

static void fail_memory(hth_grammar *g, size_t size)
{
    if (g->error.status == HEARTH_OK) hth_fail_memory(&g->error, size, "a grammar");
}

/* ---- nodes ------------------------------------------------------------------------------ */

/* After a failure: the node that allows nothing. */
static uint32_t new_node(hth_grammar *g, hth_grammar_node node)
{
    if (!hth_grammar_ok(g)) return HTH_GRAMMAR_NOTHING;
    if (g->n_node == HTH_GRAMMAR_MAX_NODES) {
        hth_grammar_fail(g, HEARTH_ERROR_UNSUPPORTED, "it has more than %d parts when it is written out",
                         HTH_GRAMMAR_MAX_NODES);
        return HTH_GRAMMAR_NOTHING;
    }
    if (g->n_node == g->node_capacity) {
        uint32_t capacity = g->node_capacity ? 2 * g->node_capacity : 256;
        hth_grammar_node *bigger = hth_realloc(g->node, capacity, sizeof *bigger);
        if (!bigger) {
            fail_memory(g, capacity * sizeof *bigger);
            return HTH_GRAMMAR_NOTHING;
        }
        g->node = bigger;
        g->node_capacity = capacity;
    }
    g->node[g->n_node] = node;
    return g->n_node++;
}

/* The ends of rules and what failed keep what they are. */
void hth_grammar_link(hth_grammar *g, uint32_t tail, uint32_t next)
{
    if (hth_grammar_ok(g) && tail > HTH_GRAMMAR_NOTHING) g->node[tail].next = next;
}

static uint32_t append(hth_grammar *g, uint32_t tail, hth_grammar_node node)
{
    node.next = UNSET;
    uint32_t i = new_node(g, node);
    hth_grammar_link(g, tail, i);
    return i;
}

void hth_grammar_init(hth_grammar *g, const char *what)
{
    *g = (hth_grammar){.what = what};
    g->set_index = hth_alloc(N_INDEX, sizeof *g->set_index);
    g->set = hth_alloc(64, sizeof *g->set);
    g->set_capacity = 64;
    if (!g->set_index || !g->set) fail_memory(g, N_INDEX * sizeof *g->set_index);
    g->n_set = 1;
    new_node(g, (hth_grammar_node){.kind = HTH_NODE_END});
    new_node(g, (hth_grammar_node){.kind = HTH_NODE_BYTES});
}

void hth_grammar_free(hth_grammar *g)
{
    hth_free(g->node);
    hth_free(g->set);
    hth_free(g->set_index);
    hth_free(g->label);
    hth_free(g->classes);
    *g = (hth_grammar){.n_set = 0};
}

void hth_grammar_clear(hth_grammar *g)
{
    const char *what = g->what;
    hth_grammar_free(g);
    hth_grammar_init(g, what);
}

static void add_label(hth_grammar *g, uint32_t rule, const char *name)
{
    if (g->n_label == g->label_capacity) {
        uint32_t capacity = g->label_capacity ? 2 * g->label_capacity : 32;
        hth_grammar_label *bigger = hth_realloc(g->label, capacity, sizeof *bigger);
        if (!bigger) {
            fail_memory(g, capacity * sizeof *bigger);
            return;
        }
        g->label = bigger;
        g->label_capacity = capacity;
    }
    g->label[g->n_label++] = (hth_grammar_label){rule, name};
}

uint32_t hth_grammar_rule(hth_grammar *g, const char *name)
{
    uint32_t rule = new_node(g, (hth_grammar_node){.kind = HTH_NODE_NONE, .next = UNSET});
    if (name && hth_grammar_ok(g)) add_label(g, rule, name);
    return rule;
}

void hth_grammar_end_rule(hth_grammar *g, uint32_t tail) { hth_grammar_link(g, tail, HTH_GRAMMAR_END); }

uint32_t hth_grammar_point(hth_grammar *g, uint32_t tail)
{
    return append(g, tail, (hth_grammar_node){.kind = HTH_NODE_NONE});
}

/* ---- bytes and characters ------------------------------------------------------------------ */

static uint16_t index_of_set(hth_grammar *g, const hth_byte_set *set)
{
    if (!hth_grammar_ok(g)) return 0;
    uint32_t at = (uint32_t)hth_hash(set, sizeof *set) & (N_INDEX - 1);
    for (; g->set_index[at]; at = (at + 1) & (N_INDEX - 1))
        if (memcmp(&g->set[g->set_index[at]], set, sizeof *set) == 0) return (uint16_t)g->set_index[at];
    if (g->n_set == HTH_GRAMMAR_MAX_SETS) {
        hth_grammar_fail(g, HEARTH_ERROR_UNSUPPORTED, "it has more than %d sets of characters",
                         HTH_GRAMMAR_MAX_SETS);
        return 0;
    }
    if (g->n_set == g->set_capacity) {
        hth_byte_set *bigger = hth_realloc(g->set, 2 * g->set_capacity, sizeof *bigger);
        if (!bigger) {
            fail_memory(g, 2 * g->set_capacity * sizeof *bigger);
            return 0;
        }
        g->set = bigger;
        g->set_capacity *= 2;
    }
    g->set[g->n_set] = *set;
    g->set_index[at] = g->n_set;
    return (uint16_t)g->n_set++;
}

uint32_t hth_grammar_byte_set(hth_grammar *g, uint32_t tail, const hth_byte_set *set)
{
    return append(g, tail, (hth_grammar_node){.kind = HTH_NODE_BYTES, .set = index_of_set(g, set)});
}

static uint32_t add_bytes(hth_grammar *g, uint32_t tail, uint8_t first, uint8_t last)
{
    hth_byte_set set = {{0}};
    hth_byte_set_add(&set, first, last);
    return hth_grammar_byte_set(g, tail, &set);
}

uint32_t hth_grammar_byte(hth_grammar *g, uint32_t tail, uint8_t byte)
{
    return add_bytes(g, tail, byte, byte);
}

uint32_t hth_grammar_text(hth_grammar *g, uint32_t tail, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) tail = hth_grammar_byte(g, tail, (uint8_t)text[i]);
    return tail;
}

uint32_t hth_grammar_words(hth_grammar *g, uint32_t tail, const char *words)
{
    return hth_grammar_text(g, tail, words, strlen(words));
}

uint32_t hth_grammar_one_of(hth_grammar *g, uint32_t tail, const char *bytes)
{
    hth_byte_set set = {{0}};
    for (; *bytes; bytes++) hth_byte_set_add(&set, (uint8_t)*bytes, (uint8_t)*bytes);
    return hth_grammar_byte_set(g, tail, &set);
}

uint32_t hth_grammar_char(hth_grammar *g, uint32_t tail, const hth_char_set *set)
{
    hth_byte_set ascii = {{0}};
    bool has_ascii = false;
    hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
    for (size_t i = 0; i < set->n; i++) {
        hth_utf8_run runs[HTH_MAX_UTF8_RUNS];
        size_t n = hth_utf8_runs(set->range[i], runs);
        for (size_t k = 0; k < n; k++) {
            if (runs[k].n == 1) {
                hth_byte_set_add(&ascii, runs[k].first[0], runs[k].last[0]);
                has_ascii = true;
                continue;
            }
            uint32_t at = hth_grammar_branch(g, &f);
            for (size_t b = 0; b < runs[k].n; b++) at = add_bytes(g, at, runs[k].first[b], runs[k].last[b]);
            hth_grammar_end_branch(g, &f, at);
        }
    }
    if (has_ascii) hth_grammar_end_branch(g, &f, hth_grammar_byte_set(g, hth_grammar_branch(g, &f), &ascii));
    return hth_grammar_fork_end(g, &f);
}

/* ---- rules in rules -------------------------------------------------------------------------- */

uint32_t hth_grammar_call(hth_grammar *g, uint32_t tail, uint32_t rule)
{
    return append(g, tail, (hth_grammar_node){.kind = HTH_NODE_CALL, .other = rule});
}

uint32_t hth_grammar_repeat(hth_grammar *g, uint32_t tail, uint32_t rule, uint32_t min, uint32_t max)
{
    return append(g, tail,
                  (hth_grammar_node){.kind = HTH_NODE_REPEAT, .other = rule, .min = min, .max = max});
}

uint32_t hth_grammar_repeat_since(hth_grammar *g, uint32_t head, uint32_t tail, uint32_t min, uint32_t max)
{
    if (!hth_grammar_ok(g)) return tail;
    hth_grammar_node *n = &g->node[head];
    if (min == 0 && max == 1) {
        uint32_t join = hth_grammar_point(g, tail);
        if (!hth_grammar_ok(g)) return tail;
        n = &g->node[head];
        n->kind = HTH_NODE_SPLIT;
        n->other = join;
        return join;
    }
    uint32_t body = head == tail ? HTH_GRAMMAR_END : n->next;
    hth_grammar_link(g, tail, HTH_GRAMMAR_END);
    *n = (hth_grammar_node){.kind = HTH_NODE_REPEAT, .other = body, .min = min, .max = max, .next = UNSET};
    return head;
}

hth_grammar_fork hth_grammar_fork_begin(hth_grammar *g, uint32_t tail)
{
    hth_grammar_fork f = {.is_empty = true};
    f.last = hth_grammar_point(g, tail);
    f.join = new_node(g, (hth_grammar_node){.kind = HTH_NODE_NONE, .next = UNSET});
    return f;
}

uint32_t hth_grammar_branch(hth_grammar *g, hth_grammar_fork *f)
{
    uint32_t split =
        new_node(g, (hth_grammar_node){.kind = HTH_NODE_SPLIT, .next = UNSET, .other = HTH_GRAMMAR_NOTHING});
    if (!hth_grammar_ok(g)) return HTH_GRAMMAR_NOTHING;
    if (f->is_empty) hth_grammar_link(g, f->last, split);
    else g->node[f->last].other = split;
    f->last = split;
    f->is_empty = false;
    return hth_grammar_point(g, split);
}

void hth_grammar_end_branch(hth_grammar *g, const hth_grammar_fork *f, uint32_t tail)
{
    hth_grammar_link(g, tail, f->join);
}

uint32_t hth_grammar_fork_end(hth_grammar *g, hth_grammar_fork *f)
{
    if (f->is_empty) hth_grammar_link(g, f->last, HTH_GRAMMAR_NOTHING);
    return f->join;
}
