/* Runs a grammar byte by byte. A state is the set of all places in the grammar where the text so far can be, each
 * with its stack; equal stacks and equal states exist once, and what follows from a state by a class of bytes is
 * computed once. So most bytes cost a look into a table. */
#ifndef HTH_CONSTRAIN_AUTOMATON_H
#define HTH_CONSTRAIN_AUTOMATON_H

#include "constrain/grammar.h"

/* Limits: places of a state; places that may be computed between two calls of hth_automaton_allow_work (about a
 * second); bytes above which hth_automaton_compact is due, and above which work ends with an error. */
enum { HTH_AUTOMATON_MAX_PLACES = 8192, HTH_AUTOMATON_WORK = 20000000 };
enum { HTH_AUTOMATON_SOFT_BYTES = 8 << 20, HTH_AUTOMATON_MAX_BYTES = 24 << 20 };

/* No text goes on from here; and: see the error of the automaton. */
enum { HTH_STATE_DEAD = 0 };
#define HTH_STATE_FAILED (UINT32_MAX - 1)
#define HTH_STATE_UNKNOWN UINT32_MAX

typedef struct hth_place {
    uint32_t node, stack;
} hth_place;

/* A stack frame: where the automaton continues when the current rule ends. count > 0: node is a repetition, of which
 * count rounds have begun. */
typedef struct hth_frame {
    uint32_t node, count, parent, depth;
} hth_frame;

typedef struct hth_state {
    uint32_t first, n; /* its places: all take a byte */
    uint32_t hash;
    bool may_end;
    uint32_t mask;       /* used by mask.c */
    uint32_t plain_next; /* used by mask.c; HTH_STATE_UNKNOWN: not computed */
    uint32_t far;        /* as hth_automaton_far; HTH_STATE_UNKNOWN: not computed */
} hth_state;

typedef struct hth_automaton {
    const hth_grammar *grammar;
    hth_frame *frame; /* 0: the empty stack */
    uint32_t n_frame, frame_capacity, *frame_index, n_frame_index;
    hth_place *place;
    uint32_t n_place, place_capacity;
    hth_state *state;
    uint32_t n_state, state_capacity, *state_index, n_state_index;
    uint32_t *next;         /* [n_state][n_class] */
    hth_place *list, *kept; /* [HTH_AUTOMATON_MAX_PLACES] while a state is computed */
    uint32_t n_list;
    uint64_t *seen; /* hash table of places, with the number of the state that was computed */
    uint32_t *seen_in, n_computed;
    uint64_t work;
    hearth_error error; /* the first failure since hth_automaton_allow_work */
} hth_automaton;

hearth_status hth_automaton_open(hth_automaton *a, const hth_grammar *grammar, hearth_error *err);
void hth_automaton_close(hth_automaton *a);
/* Clears the error and counts work from zero again. */
void hth_automaton_allow_work(hth_automaton *a);
/* The state before the first byte, or HTH_STATE_FAILED. */
uint32_t hth_automaton_start(hth_automaton *a);
/* Computes what follows, also if the table has it. */
uint32_t hth_automaton_compute(hth_automaton *a, uint32_t state, uint32_t class);

/* The state after one more byte of a class: DEAD, or FAILED. */
static inline uint32_t hth_automaton_next_class(hth_automaton *a, uint32_t state, uint32_t class)
{
    uint32_t next = a->next[(size_t)state * a->grammar->n_class + class];
    return next == HTH_STATE_UNKNOWN ? hth_automaton_compute(a, state, class) : next;
}

static inline uint32_t hth_automaton_next(hth_automaton *a, uint32_t state, uint8_t byte)
{
    return hth_automaton_next_class(a, state, a->grammar->class_of[byte]);
}

/* Whether the text may end in this state, and whether more may follow. */
static inline bool hth_automaton_may_end(const hth_automaton *a, uint32_t state)
{
    return a->state[state].may_end;
}
static inline bool hth_automaton_may_go_on(const hth_automaton *a, uint32_t state)
{
    return a->state[state].n > 0;
}

/* A state from which the same texts of at most n_byte bytes are possible: repetitions that are too far from their bounds
 * to reach one of them by such a text have begun equally often. FAILED. n_byte is always the same. */
uint32_t hth_automaton_far(hth_automaton *a, uint32_t state, uint32_t n_byte);

/* Bytes of what was computed. */
size_t hth_automaton_bytes(const hth_automaton *a);
/* Forgets all but n states, whose numbers change. MEMORY: nothing has changed. */
hearth_status hth_automaton_compact(hth_automaton *a, uint32_t *states, size_t n, hearth_error *err);

#endif
