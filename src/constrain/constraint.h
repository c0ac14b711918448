/* A constraint of hearth.h: a compiled grammar with its automaton, shared by all copies, and the state of one text. */
#ifndef HTH_CONSTRAIN_CONSTRAINT_H
#define HTH_CONSTRAIN_CONSTRAINT_H

#include "constrain/grammar.h"
#include "constrain/token_trie.h"

/* Bytes of a JSON schema or a grammar, and of choices together. */
enum { HTH_CONSTRAINT_MAX_TEXT = 256 << 10 };

/* Compilers: each adds the rules of its kind and returns the first one. Failures are the grammar's. */
uint32_t hth_compile_json_object(hth_grammar *g);
uint32_t hth_compile_choices(hth_grammar *g, const char *const *choices, size_t n);
/* gbnf.c: UNSUPPORTED, FORMAT name line and column. names: of rules, for messages. */
uint32_t hth_compile_gbnf(hth_grammar *g, hth_arena *names, const char *text, size_t n);
/* schema.c: UNSUPPORTED, FORMAT name the path in the schema. */
uint32_t hth_compile_schema(hth_grammar *g, hth_arena *names, const char *text, size_t n);

/* What a constraint with all its copies is counted with where memory is limited: tables, masks, a grammar. */
enum { HTH_CONSTRAINT_BYTES = 24 << 20 };

/* Called when an opened constraint and all its copies are closed. */
typedef struct hth_constraint_owner {
    void (*closed)(void *user);
    void *user;
} hth_constraint_owner;

/* hearth_constraint_open for any vocabulary, which must outlive the constraint and its copies. owner: copied, or
 * NULL. */
hearth_status hth_constraint_open(const hth_token_trie *trie, const hearth_constraint_options *options,
                                  const hth_constraint_owner *owner, hearth_constraint **out,
                                  hearth_error *err);
/* Bytes instead of a token, for tests. False: they cannot follow; the state is unchanged. */
bool hth_constraint_accept_bytes(hearth_constraint *c, const char *bytes, size_t n);
/* Masks that were computed, not found, by all copies. */
uint64_t hth_constraint_n_mask(const hearth_constraint *c);

#endif
