/* The printable characters that represent bytes in byte-level vocabularies: a byte that prints in Latin-1
 * represents itself, the 68 others are U+0100 to U+0143 in order, so a space is U+0120. */
#ifndef HTH_TEXT_BYTE_MAP_H
#define HTH_TEXT_BYTE_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Writes the character of a byte as UTF-8 to out[2]; returns its length, 1 or 2. */
size_t hth_text_byte_char(unsigned char byte, char *out);

/* Writes the bytes that n bytes of vocabulary text represent to out (of n bytes, or NULL to count) and returns
 * their number. A character that represents no byte is copied unchanged. *n_other counts these (characters and
 * ill-formed bytes). */
size_t hth_text_unmap(const char *text, size_t n, char *out, size_t *n_other);

#endif
