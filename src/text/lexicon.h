/* Token texts in the order of their bytes: looking one up, and walking down byte
 * by byte. No hash, so no vocabulary can be made to be slow. */
#ifndef HTH_TEXT_LEXICON_H
#define HTH_TEXT_LEXICON_H

#include "text/internal.h"

/* Fills in lex (zeroed) with the tokens whose kind is in the mask (bit 1 << kind) and
 * whose text is not empty, one per text: the lowest id. *n_double counts the
 * others. Errors: MEMORY. */
hearth_status hth_text_lexicon_build(hth_text_lexicon *lex, const hth_text_token *token,
                                     int32_t n_token, unsigned kinds, size_t *n_double,
                                     hearth_error *err);
void hth_text_lexicon_free(hth_text_lexicon *lex);

/* The token with this text, or -1. */
int32_t hth_text_lexicon_find(const hth_text_lexicon *lex, const hth_text_token *token,
                              const char *bytes, size_t n);

/* A walk: after k steps, entries [low, high) begin with the k bytes stepped. */
typedef struct hth_text_walk {
    size_t low, high, depth;
} hth_text_walk;

/* The first step. False when no text begins so. */
bool hth_text_walk_start(hth_text_walk *walk, const hth_text_lexicon *lex, unsigned char byte);
/* The next step; after false the walk is over. */
bool hth_text_walk_step(hth_text_walk *walk, const hth_text_lexicon *lex,
                        const hth_text_token *token, unsigned char byte);
/* The token whose text is exactly what was stepped, or -1. */
int32_t hth_text_walk_here(const hth_text_walk *walk, const hth_text_lexicon *lex,
                           const hth_text_token *token);

#endif
