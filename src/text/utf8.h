/* UTF-8 by RFC 3629: no overlong forms, no surrogates, at most U+10FFFF. */
#ifndef HTH_TEXT_UTF8_H
#define HTH_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The well-formed sequence at the start of n bytes: its length (1..4) and its
 * code point. 0, with *cp untouched, where the first byte begins none. */
size_t hth_text_utf8_decode(const char *bytes, size_t n, uint32_t *cp);

/* Whether all n bytes are well formed. */
bool hth_text_utf8_valid(const char *bytes, size_t n);

/* How many bytes at the end (0..3) are a proper prefix of a well-formed
 * sequence: what more bytes could still make a character. */
size_t hth_text_utf8_tail(const char *bytes, size_t n);

/* Writes cp (no surrogate, at most U+10FFFF) to out[4]; returns the length. */
size_t hth_text_utf8_encode(uint32_t cp, char *out);

#endif
