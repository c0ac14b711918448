/* The vocabulary index: token texts in byte order, for lookups and for iteration byte by byte. It uses no hash, so
 * no vocabulary can make it slow. */
#ifndef HTH_TEXT_VOCAB_INDEX_H
#define HTH_TEXT_VOCAB_INDEX_H

#include "text/internal.h"

/* Fills index (zeroed) with the tokens whose kind is in the mask (bit 1 << kind) and whose text is not empty, one
 * per text: the lowest id. *n_double counts the others. Errors: MEMORY. */
hearth_status hth_vocab_index_build(hth_vocab_index *index, const hth_text_token *token,
                                     int32_t n_token, unsigned kinds, size_t *n_double,
                                     hearth_error *err);
void hth_vocab_index_free(hth_vocab_index *index);

/* The token with this text, or -1. */
int32_t hth_vocab_index_find(const hth_vocab_index *index, const hth_text_token *token,
                              const char *bytes, size_t n);

/* A prefix iterator: after k steps, entries [low, high) start with the k bytes of the steps. */
typedef struct hth_prefix_iter {
    size_t low, high, depth;
} hth_prefix_iter;

/* The first step. False if no text starts with byte. */
bool hth_prefix_iter_begin(hth_prefix_iter *iter, const hth_vocab_index *index, unsigned char byte);
/* The next step. False ends the iteration. */
bool hth_prefix_iter_next(hth_prefix_iter *iter, const hth_vocab_index *index,
                        const hth_text_token *token, unsigned char byte);
/* The token whose text is exactly the bytes of the steps, or -1. */
int32_t hth_prefix_iter_token(const hth_prefix_iter *iter, const hth_vocab_index *index,
                           const hth_text_token *token);

#endif
