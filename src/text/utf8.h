/* UTF-8 according to RFC 3629: no overlong forms, no surrogates, at most U+10FFFF. */
#ifndef HTH_TEXT_UTF8_H
#define HTH_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the well-formed sequence at the start of n bytes: returns its length (1..4) and sets its code point. 0,
 * with *cp unchanged, if the first byte starts none. */
size_t hth_text_utf8_decode(const char *bytes, size_t n, uint32_t *cp);

/* True if all n bytes are well formed. */
bool hth_text_utf8_valid(const char *bytes, size_t n);

/* How many bytes at the end (0..3) are a proper prefix of a well-formed sequence, which more bytes could complete. */
size_t hth_text_utf8_tail(const char *bytes, size_t n);

/* Writes cp (not a surrogate, at most U+10FFFF) to out[4]. Returns the length. */
size_t hth_text_utf8_encode(uint32_t cp, char *out);

/* Unicode's White_Space. */
bool hth_text_is_space(uint32_t cp);

#endif
