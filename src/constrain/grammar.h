/* A grammar over bytes: what JSON schemas, choices and GBNF grammars are compiled to, and what the automaton runs.
 *
 * It is a network of nodes. A rule is its first node; it ends at HTH_GRAMMAR_END. Functions that add something take
 * the node behind which it comes (`tail`) and return the new tail. The first failure is kept: after it nothing is added
 * and hth_grammar_finish returns it. */
#ifndef HTH_CONSTRAIN_GRAMMAR_H
#define HTH_CONSTRAIN_GRAMMAR_H

#include "base/alloc.h"
#include "base/status.h"
#include "constrain/chars.h"

/* Limits: nodes of a grammar, sets of bytes, and frames of a stack (three for each level of nested JSON). */
enum { HTH_GRAMMAR_MAX_NODES = 1 << 19, HTH_GRAMMAR_MAX_SETS = 1 << 14, HTH_GRAMMAR_MAX_DEPTH = 512 };
/* A repetition without an upper bound, and the largest bound. */
#define HTH_GRAMMAR_UNBOUNDED UINT32_MAX
enum { HTH_GRAMMAR_MAX_COUNT = 1000000000 };
/* A part that can be empty may be repeated so often at most, unless it is unbounded. */
enum { HTH_GRAMMAR_MAX_EMPTY = 64 };

typedef enum hth_grammar_kind {
    HTH_NODE_NONE,   /* goes on at next */
    HTH_NODE_SPLIT,  /* goes on at next or at other */
    HTH_NODE_BYTES,  /* takes one byte of set, goes on at next */
    HTH_NODE_CALL,   /* the rule at other, then next */
    HTH_NODE_REPEAT, /* the rule at other min to max times, then next */
    HTH_NODE_END,    /* the end of a rule */
} hth_grammar_kind;

typedef struct hth_grammar_node {
    uint8_t kind;      /* hth_grammar_kind */
    bool can_be_empty; /* set by hth_grammar_finish: an end of the rule can be reached without a byte */
    uint16_t set;
    uint16_t
        need; /* set by hth_grammar_finish: frames that the rest of the rule needs; above the largest depth: it
                      allows nothing */
    uint32_t next, other, min, max;
} hth_grammar_node;

/* Node 0 ends every rule; node 1 allows nothing. */
enum { HTH_GRAMMAR_END = 0, HTH_GRAMMAR_NOTHING = 1 };

typedef struct hth_grammar_label {
    uint32_t rule;
    const char *name;
} hth_grammar_label;

typedef struct hth_grammar {
    hth_grammar_node *node;
    uint32_t n_node, node_capacity;
    hth_byte_set *set; /* 0: the empty one */
    uint32_t n_set, set_capacity;
    uint32_t *set_index; /* hash table of sets */
    hth_grammar_label *label;
    uint32_t n_label, label_capacity;
    const char *what;
    hearth_error error; /* the first failure */

    /* Set by hth_grammar_finish. Bytes that no set of the grammar tells apart are a class. */
    uint32_t start;
    uint8_t class_of[256], example[256]; /* the class of a byte; one byte of a class */
    uint32_t n_class;
    hth_byte_set *classes; /* [n_set] the classes in each set */
} hth_grammar;

/* what: "grammar" or the like, the first word of error messages. */
void hth_grammar_init(hth_grammar *g, const char *what);
void hth_grammar_free(hth_grammar *g);
/* Empties it, as after hth_grammar_init. */
void hth_grammar_clear(hth_grammar *g);
/* Keeps a failure, unless there is one already. */
void hth_grammar_fail(hth_grammar *g, hearth_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline bool hth_grammar_ok(const hth_grammar *g) { return g->error.status == HEARTH_OK; }

/* A new rule without content, which is its own tail. name, for messages, lives as long as the grammar; or NULL. */
uint32_t hth_grammar_rule(hth_grammar *g, const char *name);
/* Goes on behind tail at a node that exists. */
void hth_grammar_link(hth_grammar *g, uint32_t tail, uint32_t next);
void hth_grammar_end_rule(hth_grammar *g, uint32_t tail);

/* A node without content, behind tail. */
uint32_t hth_grammar_point(hth_grammar *g, uint32_t tail);
uint32_t hth_grammar_byte_set(hth_grammar *g, uint32_t tail, const hth_byte_set *set);
uint32_t hth_grammar_byte(hth_grammar *g, uint32_t tail, uint8_t byte);
uint32_t hth_grammar_text(hth_grammar *g, uint32_t tail, const char *text, size_t n);
/* A terminated text; one byte of a terminated text. */
uint32_t hth_grammar_words(hth_grammar *g, uint32_t tail, const char *words);
uint32_t hth_grammar_one_of(hth_grammar *g, uint32_t tail, const char *bytes);
/* One character of a normalised set, in UTF-8. */
uint32_t hth_grammar_char(hth_grammar *g, uint32_t tail, const hth_char_set *set);
uint32_t hth_grammar_call(hth_grammar *g, uint32_t tail, uint32_t rule);
/* min <= max; both at most HTH_GRAMMAR_MAX_COUNT, or max HTH_GRAMMAR_UNBOUNDED. */
uint32_t hth_grammar_repeat(hth_grammar *g, uint32_t tail, uint32_t rule, uint32_t min, uint32_t max);
/* Repeats what was added behind the point `head`. */
uint32_t hth_grammar_repeat_since(hth_grammar *g, uint32_t head, uint32_t tail, uint32_t min, uint32_t max);

/* Alternatives: begin; for each: a branch is a tail, and ends at one; then go on behind the tail that end returns.
 * Without a branch nothing is allowed. */
typedef struct hth_grammar_fork {
    uint32_t last, join;
    bool is_empty;
} hth_grammar_fork;
hth_grammar_fork hth_grammar_fork_begin(hth_grammar *g, uint32_t tail);
uint32_t hth_grammar_branch(hth_grammar *g, hth_grammar_fork *f);
void hth_grammar_end_branch(hth_grammar *g, const hth_grammar_fork *f, uint32_t tail);
uint32_t hth_grammar_fork_end(hth_grammar *g, hth_grammar_fork *f);

/* Checks the grammar and makes it ready for an automaton that starts at `start`. UNSUPPORTED: a rule
 * begins with itself, a limit; ARGUMENT: no text is possible; MEMORY. */
hearth_status hth_grammar_finish(hth_grammar *g, uint32_t start, hearth_error *err);

#endif
