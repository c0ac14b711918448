/* Texts as vectors: of texts that mean something similar, the vectors are near. */
#ifndef HEARTH_EMBED_H
#define HEARTH_EMBED_H

#include <hearth/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes one vector of each text: what the last layer makes of its tokens (hearth_session_eval_hidden), pooled. Several
 * texts are evaluated at once: weights are read once for all tokens of a step. The bits of a vector do not depend on
 * the other texts, nor on how texts are divided into steps. Used by one thread at a time. */
typedef struct hearth_embedder hearth_embedder;

/* The values are those of the key ARCHITECTURE.pooling_type of files. AUTO: what the file says; LAST if it says 0
 * (none) or nothing. */
typedef enum hearth_pooling {
    HEARTH_POOLING_AUTO,
    HEARTH_POOLING_MEAN,  /* the mean of all tokens */
    HEARTH_POOLING_FIRST, /* the first token; in other programs: cls */
    HEARTH_POOLING_LAST,  /* the last token */
    HEARTH_POOLING_RANK,  /* of rerankers, for texts of hearth_tokenize_pair: the probabilities of the classes that the model
                             has a head for (ARCHITECTURE.classifier.output_labels), by the last token. The first one is
                             the score of the pair */
} hearth_pooling;

typedef struct hearth_embedder_options {
    size_t size;       /* of this struct: Versions in hearth.h */
    uint32_t n_ctx;    /* tokens of a text at most, as in hearth_session_options */
    uint32_t n_batch;  /* tokens of a step at most; 0: 256 */
    uint32_t n_text;   /* texts in a step at most; 0: 32 */
    uint32_t n_thread; /* 0: one per physical core */
    uint32_t n_dim;    /* numbers of a vector: the first ones of d_model, or of the classes; 0: all */
    bool no_pin;       /* worker threads may run on all cores: Threads in hearth.h */
    bool no_normalize; /* vectors keep their length; else it becomes 1, after numbers were left out (n_dim). Probabilities stay
                          as they are */
    hearth_kv_type kv; /* affects the result */
    hearth_pooling pooling;
} hearth_embedder_options;

/* Returns zeros, and size.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_embedder_options hearth_embedder_defaults(void);

/* Opens an embedder without texts, and reserves the memory of its cache.
 * Errors: ARGUMENT: an option; UNSUPPORTED: the model is on a device, which does not give what the last layer makes,
 * or pooling is RANK and the model has no head for it (cls.output.weight of qwen3 and qwen3vl); FORMAT: the file's pooling
 * is none of these; MEMORY: also beyond the limit of the model; IO: as of hearth_session_open.
 * Ownership: *out is the caller's, until hearth_embedder_close, and keeps the model.
 * Threads: any. */
HEARTH_API hearth_status hearth_embedder_open(const hearth_model *model,
                                              const hearth_embedder_options *options, hearth_embedder **out,
                                              hearth_error *err);

/* Closes an embedder; vectors of texts that are not finished are not written to any more.
 * Errors: none.
 * Ownership: gives it up.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_embedder_close(hearth_embedder *embedder);

/* Returns how an embedder pools: not AUTO, unless embedder is NULL.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_pooling hearth_embedder_pooling(const hearth_embedder *embedder);

/* Returns the n_ctx of an embedder, as chosen.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API uint32_t hearth_embedder_n_ctx(const hearth_embedder *embedder);

/* Returns the n_dim of an embedder, as chosen.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API uint32_t hearth_embedder_n_dim(const hearth_embedder *embedder);

/* Converts a query and a document into the ids that a reranker reads: by the file's tokenizer.chat_template.rerank, with
 * the two in place of {query} and {document}; without it one after the other, with the tokens that the vocabulary adds to
 * texts. Names of control tokens are plain text in both.
 * Errors: UNSUPPORTED: as of hearth_tokenize, or nothing would stand between the two; FORMAT: the template lacks one of
 * them, or has more than 8 places; ARGUMENT; MEMORY.
 * Ownership: *ids is the caller's, to be freed with hearth_free.
 * Threads: any. */
HEARTH_API hearth_status hearth_tokenize_pair(const hearth_model *model, const char *query, size_t n_query,
                                              const char *document, size_t n_document, int32_t **ids, size_t *n_ids,
                                              hearth_error *err);

/* The tokens of a text, as hearth_tokenize with HEARTH_ADD_SPECIAL gives them, or hearth_tokenize_pair: one at least. */
typedef struct hearth_embed_text {
    const int32_t *tokens; /* [n_token] */
    size_t n_token;
    uint64_t reserved[2];
} hearth_embed_text;

/* Writes the vectors of n texts, in their order: float[n][n_dim]. After errors other than those of hearth_embed_begin
 * the vectors are undefined. No texts are there afterwards.
 * Errors: as of hearth_embed_begin and hearth_embed_step.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_embed(hearth_embedder *embedder, const hearth_embed_text *texts, size_t n,
                                      float *vectors, hearth_error *err);

/* Begins what hearth_embed does in steps, between which the program can do something else. Texts that were begun before
 * are dropped; after an error none are there.
 * Errors: ARGUMENT: a text has no tokens, or one that the vocabulary does not have; CONTEXT: one is longer than n_ctx;
 * MEMORY.
 * Ownership: the tokens are copied; vectors, float[n][n_dim], must stay valid until no more steps follow, others are
 * begun, or hearth_embedder_close.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_embed_begin(hearth_embedder *embedder, const hearth_embed_text *texts,
                                            size_t n, float *vectors, hearth_error *err);

/* Evaluates up to n_batch tokens. *more: whether texts are left; more may be NULL. After an error all is as before:
 * call it again, or begin others.
 * Errors: CANCELLED; NUMERIC; IO; MEMORY: as of hearth_session_eval_hidden.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_embed_step(hearth_embedder *embedder, bool *more, hearth_error *err);

/* Returns how many tokens were evaluated of the texts that were begun last; at the end those of all of them.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API uint64_t hearth_embedder_n_evaluated(const hearth_embedder *embedder);

/* Changes the number of threads, as hearth_session_set_threads does; also between steps.
 * Errors: ARGUMENT: n_thread is above 256; MEMORY. The threads are as before then.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_embedder_set_threads(hearth_embedder *embedder, uint32_t n_thread, hearth_error *err);

/* Cancels hearth_embed or hearth_embed_step, as hearth_session_cancel does an evaluation.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any, also while the embedder is in use, and signal handlers; not during or after hearth_embedder_close. */
HEARTH_API void hearth_embedder_cancel(hearth_embedder *embedder);

#ifdef __cplusplus
}
#endif
#endif
