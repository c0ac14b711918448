/* Cutting text into the words within which byte-level BPE merges: a family of
 * expressions (pretok_regex.c), compiled (a cutter), and walked over a text (a cut). The
 * library PCRE2 is known to pretokenizer_pcre2.c alone; built without it, pretokenizer_none.c refuses. */
#ifndef HTH_TEXT_CUT_H
#define HTH_TEXT_CUT_H

#include "base/status.h"
#include "file/gguf.h"

enum { HTH_TEXT_MAX_STAGE = 6 };

/* Stages of expressions. The first runs over a text, the next over each piece that it
 * leaves: matches are pieces, and so are the gaps between them. A stage sees its piece
 * as a whole text of its own. */
typedef struct hth_pretok_type {
    const char *name;
    const char *stage[HTH_TEXT_MAX_STAGE]; /* NULL after the last */
} hth_pretok_type;

/* What a name in `tokenizer.ggml.pre` says besides, as bits. */
enum {
    HTH_TEXT_WHOLE_WORDS = 1, /* a word that is a token is not merged */
    HTH_TEXT_BOS = 2,         /* add_bos_token is true unless stated */
    HTH_TEXT_NO_BOS = 4,      /* no BOS, whatever is stated */
    HTH_TEXT_MASK_LSTRIP = 8,   /* "<mask>" drops the white space before it */
};

/* The family that a name in a file stands for, or NULL. */
const hth_pretok_type *hth_pretok_type_find(hth_str name, unsigned *flags);
/* The i-th known name, the families' own ones first; NULL past the last. */
const char *hth_pretok_type_name(size_t i);

/* Compiled expressions: immutable, for any number of threads. */
typedef struct hth_pretokenizer hth_pretokenizer;

/* jit: compile to machine code where the system allows it; the words are the same.
 * Errors: MEMORY; UNSUPPORTED when built without PCRE2, or when it takes an
 * expression for wrong. */
hearth_status hth_pretokenizer_open(const hth_pretok_type *pretok_type, bool jit, hth_pretokenizer **out,
                                   hearth_error *err);
void hth_pretokenizer_close(hth_pretokenizer *pretokenizer);
/* "PCRE2 10.42, Unicode 14.0.0" into out; false when built without. */
bool hth_pretokenizer_engine(char *out, size_t n_out);

/* One walk over one text. Zero-initialised is unused; its memory is kept from text to
 * text. */
typedef struct hth_pretok_iter {
    const hth_pretokenizer *pretokenizer;
    const char *text;    /* as it was given */
    size_t n, at;        /* where the next word begins in it */
    const char *subject; /* what the expressions see: text, or copy */
    char *copy;          /* ill-formed bytes replaced by a character of no class */
    size_t capacity;
    struct hth_text_piece {
        size_t begin, end; /* the piece that this stage cuts */
        size_t at;         /* up to here it is cut */
        size_t match_end;  /* above `at`: a match from `at` to here was found already */
    } piece[HTH_TEXT_MAX_STAGE];
    size_t depth;
    void *match, *limits; /* of PCRE2 */
} hth_pretok_iter;

/* Begins with n bytes of any kind, which must stay. Errors: MEMORY. */
hearth_status hth_pretok_iter_begin(hth_pretok_iter *cut, const hth_pretokenizer *pretokenizer, const char *text, size_t n,
                                 hearth_error *err);
/* The length of the next word in *n; 0 at the end. The words lie side by side. Errors:
 * MEMORY; UNSUPPORTED, with the expression named, when it would take too long. */
hearth_status hth_pretok_iter_next(hth_pretok_iter *cut, size_t *n, hearth_error *err);
void hth_pretok_iter_free(hth_pretok_iter *cut);

#endif
