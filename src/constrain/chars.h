/* Sets of bytes and of characters, as grammars use them. Characters are code points; surrogates are none. */
#ifndef HTH_CONSTRAIN_CHARS_H
#define HTH_CONSTRAIN_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTH_MAX_CODE_POINT = 0x10FFFF, HTH_MAX_CHAR_RANGES = 512 };

typedef struct hth_byte_set {
    uint64_t bits[4];
} hth_byte_set;

static inline bool hth_byte_set_has(const hth_byte_set *s, uint8_t byte)
{
    return s->bits[byte >> 6] >> (byte & 63) & 1;
}
void hth_byte_set_add(hth_byte_set *s, uint32_t first, uint32_t last);

typedef struct hth_char_range {
    uint32_t first, last;
} hth_char_range;

/* A set of characters. Zero-initialised it is empty. */
typedef struct hth_char_set {
    hth_char_range range[HTH_MAX_CHAR_RANGES];
    size_t n;
} hth_char_set;

/* False: the set has too many ranges. */
bool hth_char_set_add(hth_char_set *s, uint32_t first, uint32_t last);
/* Sorts the ranges and joins those that touch. Surrogates are taken out. */
void hth_char_set_normalise(hth_char_set *s);
/* All other characters. Both sets are normalised afterwards. False: too many ranges. */
bool hth_char_set_invert(hth_char_set *s);
/* Takes a range out of a normalised set. False: too many ranges. */
bool hth_char_set_remove(hth_char_set *s, uint32_t first, uint32_t last);
bool hth_char_set_has(const hth_char_set *s, uint32_t c);

/* A run of characters whose UTF-8 forms are all sequences of one byte of each range. */
typedef struct hth_utf8_run {
    uint8_t first[4], last[4];
    size_t n;
} hth_utf8_run;

/* Divides a range into runs: calls for each of them, in order. A range of 1 to 0x10FFFF has at most 16 of them. */
enum { HTH_MAX_UTF8_RUNS = 32 };
size_t hth_utf8_runs(hth_char_range range, hth_utf8_run runs[HTH_MAX_UTF8_RUNS]);

#endif
