/* Which texts a model may generate. */
#ifndef HEARTH_CONSTRAINT_H
#define HEARTH_CONSTRAINT_H

#include <hearth/chat.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which texts a model may generate: JSON, JSON of a schema, one of several texts, or those of a grammar. It follows one
 * text, token by token:
 *     hearth_constraint_mask(c, logits); hearth_sampler_sample(...); hearth_constraint_accept(c, id);
 * until hearth_constraint_get_end says that it is complete. The text is that of a detokenizer which was opened with
 * at_start false. Used by one thread at a time; copies are independent of one another. */
typedef struct hearth_constraint hearth_constraint;

typedef enum hearth_constraint_kind {
    HEARTH_CONSTRAINT_JSON_OBJECT = 0, /* any JSON object */
    HEARTH_CONSTRAINT_JSON_SCHEMA,     /* JSON of a schema */
    HEARTH_CONSTRAINT_CHOICES,         /* one of several texts */
    HEARTH_CONSTRAINT_GRAMMAR,         /* a grammar as llama.cpp has them (GBNF), from its rule root */
    HEARTH_CONSTRAINT_CALLS,           /* calls of functions, as the template of a chat writes them */
} hearth_constraint_kind;

typedef struct hearth_constraint_options {
    size_t size;                /* of this struct: Versions in hearth.h */
    hearth_constraint_kind kind;
    bool one_call;              /* CALLS: exactly one; else one or more, where the template can write several */
    bool in_reasoning;          /* the text begins within reasoning of the chat (if it has none, this has no effect),
                                   which is free; the constraint holds behind it */
    const char *text;           /* of the schema, the grammar, or the functions (a JSON array in OpenAI's form): n bytes,
                                   at most 256 KiB */
    size_t n;
    const char *const *choices; /* [n_choice] texts, none of them empty */
    size_t n_choice;
    const hearth_chat *chat;    /* for CALLS and in_reasoning; NULL: as of a template that shows no functions */
    const char *schema;         /* CALLS: the text may be JSON of this schema instead, of n_schema bytes, at most 256 KiB
                                   together with text; NULL: it is calls */
    size_t n_schema;
} hearth_constraint_options;

/* Returns zeros, and size.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_constraint_options hearth_constraint_defaults(void);

/* Opens a constraint at the beginning of its text. docs/constrain.md lists what of JSON schema is supported. Messages
 * name the path in a schema, or the line and column in a grammar. The first constraint of a model indexes its
 * vocabulary (hearth_constraint_prepare).
 * Errors: FORMAT: the text is none of its kind; UNSUPPORTED: a keyword or construct that is not supported, a limit, or
 * the vocabulary of the model is not; ARGUMENT: an option, or it allows no text; MEMORY: also beyond the limit of the
 * model.
 * Ownership: *out is the caller's, until hearth_constraint_close, and keeps the model, not the chat.
 * Threads: any. */
HEARTH_API hearth_status hearth_constraint_open(const hearth_model *model, const hearth_constraint_options *options,
                                                hearth_constraint **out, hearth_error *err);

/* Indexes the vocabulary, unless that was done: some tenths of a second. So the first constraint does not wait for it.
 * Errors: UNSUPPORTED, FORMAT: the vocabulary is not supported, or none; MEMORY: also beyond the limit of the model.
 * Ownership: the model has the index, until it is freed.
 * Threads: any; others may use the model meanwhile. */
HEARTH_API hearth_status hearth_constraint_prepare(const hearth_model *model, hearth_error *err);

/* Makes a constraint at the same place of the same text. What it computes is shared.
 * Errors: MEMORY.
 * Ownership: *out is the caller's, until hearth_constraint_close; it does not need the other one.
 * Threads: one at a time, unchecked; another one may use a copy. */
HEARTH_API hearth_status hearth_constraint_copy(const hearth_constraint *constraint, hearth_constraint **out,
                                                hearth_error *err);

/* Closes a constraint. Copies stay, and a scheduler whose request uses it keeps it.
 * Errors: none.
 * Ownership: gives up the caller's reference.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_constraint_close(hearth_constraint *constraint);

/* Sets logits[n_vocab] of all tokens that cannot follow to -infinity, before they are sampled. Ends of generation can
 * follow where the text may end, and where it must, nothing else.
 * Errors: UNSUPPORTED: no token can follow, because of the vocabulary, or a limit; ARGUMENT: the text has ended;
 * MEMORY.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked; another one may use a copy. */
HEARTH_API hearth_status hearth_constraint_mask(hearth_constraint *constraint, float *logits, hearth_error *err);

/* Goes on with a token.
 * Errors: ARGUMENT: it cannot follow, nothing has changed; UNSUPPORTED: a limit; MEMORY.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked; another one may use a copy. */
HEARTH_API hearth_status hearth_constraint_accept(hearth_constraint *constraint, int32_t id, hearth_error *err);

/* Returns what of its schemas the constraint does not enforce, a line for each: the path in the schema, and what. Keywords
 * that are not supported are errors in a schema and in functions with "strict": true; other functions are compiled without
 * them. "": nothing, or NULL.
 * Errors: none.
 * Ownership: the constraint has the text, until it and all of its copies are closed.
 * Threads: any. */
HEARTH_API const char *hearth_constraint_get_notes(const hearth_constraint *constraint);

typedef enum hearth_constraint_end {
    HEARTH_CONSTRAINT_INCOMPLETE = 0, /* the text is not complete */
    HEARTH_CONSTRAINT_ACCEPTING,     /* it is, but more can follow */
    HEARTH_CONSTRAINT_COMPLETE,        /* it is, and nothing but an end of generation can follow */
} hearth_constraint_end;

/* Returns whether the text is complete. NULL: GOES_ON.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked; another one may use a copy. */
HEARTH_API hearth_constraint_end hearth_constraint_get_end(const hearth_constraint *constraint);

#ifdef __cplusplus
}
#endif
#endif
