/* The pre-tokenizer splits text into the words within which byte-level BPE merges. It consists of a type, which is
 * a list of regular expressions (pretok_regex.c), the compiled expressions (hth_pretokenizer), and an iterator
 * over a text (hth_pretok_iter). Only pretokenizer_pcre2.c uses PCRE2. In a build without it, pretokenizer_none.c
 * returns errors. */
#ifndef HTH_TEXT_PRETOKENIZER_H
#define HTH_TEXT_PRETOKENIZER_H

#include "base/status.h"
#include "file/gguf.h"

enum { HTH_TEXT_MAX_STAGE = 6 };

/* Stages of regular expressions. The first runs over the text, each later one over every chunk of the stage
 * before. Matches are chunks, and so are the gaps between them. A stage sees its chunk as a separate text. */
typedef struct hth_pretok_type {
    const char *name;
    const char *stage[HTH_TEXT_MAX_STAGE]; /* NULL after the last */
} hth_pretok_type;

/* Flags implied by a name in `tokenizer.ggml.pre`, as bits. */
enum {
    HTH_TEXT_WHOLE_WORDS = 1, /* a word that is a token is not merged */
    HTH_TEXT_BOS = 2,         /* add_bos_token defaults to true */
    HTH_TEXT_NO_BOS = 4,      /* no BOS, whatever the file states */
    HTH_TEXT_MASK_LSTRIP = 8,   /* "<mask>" strips the white space before it */
    HTH_TEXT_CHARACTERS = 16, /* characters are merged, not bytes that stand as characters */
    HTH_TEXT_ESCAPES = 32,    /* a space is U+2581 in the vocabulary */
    HTH_TEXT_WHOLE_LINES = 64, /* a run of line ends that is a token is not merged */
    HTH_TEXT_ALWAYS_BOS = 128, /* BOS, whatever the file states */
};

/* The type for a name in a file, or NULL. */
const hth_pretok_type *hth_pretok_type_find(hth_str name, unsigned *flags);
/* The i-th known name, those of the types first; NULL past the last. */
const char *hth_pretok_type_name(size_t i);

/* Compiled expressions: immutable, for any number of threads. */
typedef struct hth_pretokenizer hth_pretokenizer;

/* jit: compile to machine code if the system allows it; the words are the same. Errors: MEMORY; UNSUPPORTED
 * without PCRE2, or if PCRE2 rejects an expression. */
hearth_status hth_pretokenizer_open(const hth_pretok_type *pretok_type, bool jit, hth_pretokenizer **out,
                                   hearth_error *err);
void hth_pretokenizer_close(hth_pretokenizer *pretokenizer);
/* Writes "PCRE2 10.42, Unicode 14.0.0" to out. False in a build without PCRE2. */
bool hth_pretokenizer_engine(char *out, size_t n_out);

/* An iterator over the words of a text. Zero-initialised is unused. Its memory is reused from text to text. */
typedef struct hth_pretok_iter {
    const hth_pretokenizer *pretokenizer;
    const char *text;    /* the input */
    size_t n, at;        /* at: start of the next word in it */
    const char *subject; /* the input of the expressions: text, or copy */
    char *copy;          /* text with ill-formed bytes replaced by a character of no class */
    size_t capacity;
    struct hth_text_piece {
        size_t begin, end; /* the chunk that this stage splits */
        size_t at;         /* split up to here */
        size_t match_end;  /* above `at`: a match from `at` to here is already known */
    } piece[HTH_TEXT_MAX_STAGE];
    size_t depth;
    void *match, *limits; /* PCRE2 objects */
} hth_pretok_iter;

/* Starts with n arbitrary bytes, which must stay valid. Errors: MEMORY. */
hearth_status hth_pretok_iter_begin(hth_pretok_iter *iter, const hth_pretokenizer *pretokenizer,
                                    const char *text, size_t n, hearth_error *err);
/* The length of the next word in *n; 0 at the end. Words are contiguous. Errors: MEMORY; UNSUPPORTED, naming the
 * expression, if it would take too long. */
hearth_status hth_pretok_iter_next(hth_pretok_iter *iter, size_t *n, hearth_error *err);
void hth_pretok_iter_free(hth_pretok_iter *iter);

#endif
