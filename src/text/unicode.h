/* Properties, decompositions and lower case of characters, for WordPiece and for BPE that lowers case. Only
 * unicode_utf8proc.c uses utf8proc. In a build without it, unicode_none.c has none of them, and vocabularies that need
 * them are refused. */
#ifndef HTH_TEXT_UNICODE_H
#define HTH_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes "utf8proc 2.8.0, Unicode 15.0.0" to out. False in a build without utf8proc. */
bool hth_unicode_engine(char *out, size_t n_out);

/* All for scalar values: at most U+10FFFF, and no surrogates. */
bool hth_unicode_is_control(uint32_t cp);     /* categories Cc, Cf and Co */
bool hth_unicode_is_punctuation(uint32_t cp); /* categories P* */
bool hth_unicode_is_mark(uint32_t cp);        /* category Mn: marks without a width */

enum { HTH_UNICODE_MAX_DECOMPOSED = 18, HTH_UNICODE_MAX_LOWER = 2 };
/* The canonical decomposition (NFD) of a character alone. Returns its length. */
size_t hth_unicode_decompose(uint32_t cp, uint32_t out[HTH_UNICODE_MAX_DECOMPOSED]);
/* The lower case of a character, which is two characters for U+0130. Returns its length. */
size_t hth_unicode_lower(uint32_t cp, uint32_t out[HTH_UNICODE_MAX_LOWER]);

#endif
