/* Token texts in the order of their bytes: looking one up, and walking down byte
 * by byte. No hash, so no vocabulary can be made to be slow. */
#ifndef HTH_TEXT_LEXICON_H
#define HTH_TEXT_LEXICON_H

#include "text/internal.h"

/* Fills in lex (zeroed) with the tokens whose kind is in the mask (bit 1 << kind) and
 * whose text is not empty, one per text: the lowest id. *n_double counts the
 * others. Errors: MEMORY. */
hearth_status hth_vocab_index_build(hth_vocab_index *lex, const hth_text_token *token,
                                     int32_t n_token, unsigned kinds, size_t *n_double,
                                     hearth_error *err);
void hth_vocab_index_free(hth_vocab_index *lex);

/* The token with this text, or -1. */
int32_t hth_vocab_index_find(const hth_vocab_index *lex, const hth_text_token *token,
                              const char *bytes, size_t n);

/* A walk: after k steps, entries [low, high) begin with the k bytes stepped. */
typedef struct hth_prefix_iter {
    size_t low, high, depth;
} hth_prefix_iter;

/* The first step. False when no text begins so. */
bool hth_prefix_iter_begin(hth_prefix_iter *walk, const hth_vocab_index *lex, unsigned char byte);
/* The next step; after false the walk is over. */
bool hth_prefix_iter_next(hth_prefix_iter *walk, const hth_vocab_index *lex,
                        const hth_text_token *token, unsigned char byte);
/* The token whose text is exactly what was stepped, or -1. */
int32_t hth_prefix_iter_token(const hth_prefix_iter *walk, const hth_vocab_index *lex,
                           const hth_text_token *token);

#endif
