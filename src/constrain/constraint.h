/* A constraint of hearth.h: a compiled grammar with its automaton, shared by all copies, and the state of one text. */
#ifndef HTH_CONSTRAIN_CONSTRAINT_H
#define HTH_CONSTRAIN_CONSTRAINT_H

#include "chat/call_format.h"
#include "constrain/grammar.h"
#include "text/json.h"
#include "constrain/token_trie.h"

/* Bytes of a JSON schema or a grammar, and of choices together. */
enum { HTH_CONSTRAINT_MAX_TEXT = 256 << 10 };

/* Compilers: each adds the rules of its kind and returns the first one. Failures are the grammar's. */
uint32_t hth_compile_json_object(hth_grammar *g);
uint32_t hth_compile_choices(hth_grammar *g, const char *const *choices, size_t n);
/* gbnf.c: UNSUPPORTED, FORMAT name line and column. names: of rules, for messages. */
uint32_t hth_compile_gbnf(hth_grammar *g, hth_arena *names, const char *text, size_t n);
/* The keywords of schemas that are not enforced, a line for each with its path. */
typedef struct hth_schema_notes {
    bool drops;   /* keywords that are not supported are noted, and are no error */
    bool dropped; /* set when one was: the rules that were added are of no use, and the next ones are without it */
    char *text;   /* owned, terminated; NULL: nothing is left out */
    size_t n;
} hth_schema_notes;
/* schema.c: UNSUPPORTED, FORMAT name the path in the schema. notes: or NULL. */
uint32_t hth_compile_schema(hth_grammar *g, hth_arena *names, const char *text, size_t n, hth_schema_notes *notes);

/* Compiles a schema of a tree; references in it begin at root. */
uint32_t hth_compile_schema_tree(hth_grammar *g, hth_arena *names, const hth_json *root, const hth_json *schema,
                                 hth_schema_notes *notes);
/* Adds a text with the length and the form that a schema itself names, as it stands between marks: without the
 * character `end`, with which the mark behind it begins. False: any characters may follow. */
bool hth_compile_text(hth_grammar *g, const hth_json *schema, uint32_t end, hth_schema_notes *notes, uint32_t *tail);

/* calls.c: calls of functions, which text lists in OpenAI's form, as a format writes them; one, or more where it can.
 * FORMAT, UNSUPPORTED; of functions that are not strict, keywords that are not supported are noted only, for which the
 * grammar may begin anew: it must be empty. Control tokens of the vocabulary are the marks that they spell. */
uint32_t hth_compile_calls(hth_grammar *g, hth_arena *names, const hth_token_trie *trie,
                           const hth_call_format *format, bool one, const char *text, size_t n,
                           hth_schema_notes *notes);
/* The rules of calls, of another text, or of one of both (the other one is HTH_GRAMMAR_NOTHING), behind what an answer
 * begins with: the rest of the reasoning (marks NULL: there is none), and with Harmony's format reasoning; a text stands
 * between the marks that its format has for texts. */
uint32_t hth_compile_answer(hth_grammar *g, const hth_token_trie *trie, const hth_reasoning_marks *marks,
                            const hth_call_format *format, uint32_t calls, uint32_t text);

/* Bytes that a memory limit counts for a constraint with all its copies: tables, masks, a grammar. */
enum { HTH_CONSTRAINT_BYTES = 24 << 20 };

/* The model's part of a constraint: `closed` is called when a constraint and all its copies are closed; `calls` and
 * `reasoning` are the formats of the chat. */
typedef struct hth_constraint_context {
    void (*closed)(void *user);
    void *user;
    const hth_call_format *calls;         /* NULL: the template shows no functions */
    const hth_reasoning_marks *reasoning; /* NULL: none */
} hth_constraint_context;

/* hearth_constraint_open for any vocabulary, which must outlive the constraint and its copies. context: copied, or
 * NULL; the chat of the options is not looked at. */
hearth_status hth_constraint_open(const hth_token_trie *trie, const hearth_constraint_options *options,
                                  const hth_constraint_context *context, hearth_constraint **out,
                                  hearth_error *err);
/* The trie with which the constraint was opened; NULL for NULL. */
const hth_token_trie *hth_constraint_trie(const hearth_constraint *c);
/* A reference for a request, which hearth_constraint_close gives up; NULL for NULL. */
hearth_constraint *hth_constraint_hold(hearth_constraint *c);
/* Bytes instead of a token, for tests. False: they cannot follow; the state is unchanged. */
bool hth_constraint_accept_bytes(hearth_constraint *c, const char *bytes, size_t n);
/* Masks that were computed, not found, by all copies. */
uint64_t hth_constraint_n_mask(const hearth_constraint *c);

#endif
