/* The normalisation that SentencePiece compiles into a model (`tokenizer.ggml.precompiled_charsmap`): a trie of byte
 * strings and what each of them is replaced by. */
#ifndef HTH_TEXT_CHARSMAP_H
#define HTH_TEXT_CHARSMAP_H

#include "file/gguf.h"

/* Both parts lie in the file. A zero-initialised map replaces nothing. */
typedef struct hth_charsmap {
    const char
        *units; /* the trie: a double array of n_unit 32-bit words, as the library darts-clone makes it */
    uint32_t n_unit;
    const char *texts; /* the replacements, each with a NUL at its end */
    size_t n_text;     /* bytes */
} hth_charsmap;

/* Reads and checks the map; an absent one replaces nothing. FORMAT, naming the place, unless every value lies
 * inside the array, no path leads back to itself, and every replacement ends inside of its part. */
hearth_status hth_charsmap_read(hth_charsmap *map, const hth_gguf *file, hearth_error *err);

/* The longest prefix of n bytes that is replaced: its length, and its replacement. 0 if there is none. */
size_t hth_charsmap_find(const hth_charsmap *map, const char *bytes, size_t n, hth_str *replacement);

#endif
