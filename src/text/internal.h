/* The parts of a tokenizer, for the files of this room only. */
#ifndef HTH_TEXT_INTERNAL_H
#define HTH_TEXT_INTERNAL_H

#include "base/alloc.h"
#include "file/name_index.h"
#include "text/pretokenizer.h"
#include "text/heap.h"
#include "text/merge_table.h"
#include "text/tokenizer.h"

/* Limits of a vocabulary. The longest published text is 512 bytes; the largest
 * vocabulary has 262,144 tokens. Both numbers together fit 32 bits, which
 * special.c uses. */
enum { HTH_TEXT_MAX_ENTRY = 1024, HTH_TEXT_MAX_VOCAB = 1 << 22 };

/* What a lexicon may hold, as bits. */
enum {
    HTH_TEXT_WORDS = 1 << HTH_TOKEN_NORMAL | 1 << HTH_TOKEN_USER | 1 << HTH_TOKEN_UNUSED,
    HTH_TEXT_BYTE_WORDS = 1 << HTH_TOKEN_NORMAL | 1 << HTH_TOKEN_UNUSED, /* of byte-level BPE */
    HTH_TEXT_USERS = 1 << HTH_TOKEN_USER,
    HTH_TEXT_SPECIALS = 1 << HTH_TOKEN_UNKNOWN | 1 << HTH_TOKEN_CONTROL | 1 << HTH_TOKEN_USER,
};

typedef struct hth_text_token {
    hth_str entry;     /* in the file */
    const char *piece;  /* what it decodes to: in the file or in the arena */
    uint32_t n_chunk;
    uint32_t rank;      /* by score: a higher score is a lower rank, equal ones are equal */
    uint8_t kind;       /* hth_token_kind */
    bool is_eog;          /* a generation ends with it */
    bool rstrip;    /* white space after it is dropped (only special ones) */
    bool lstrip;   /* white space before it is dropped */
} hth_text_token;

/* Token texts in the order of their bytes; see vocab_index.h. */
typedef struct hth_vocab_index {
    int32_t *id;
    size_t n;
    size_t first[257]; /* entries [first[b], first[b + 1]) begin with byte b */
} hth_vocab_index;

/* A symbol is what a text is made of before and while it is merged: the id of a
 * word, or, for a character that is no word, HTH_TEXT_CHARS plus its code point,
 * or, for an ill-formed byte that is none, HTH_TEXT_BYTES plus the byte. */
enum { HTH_TEXT_CHARS = HTH_TEXT_MAX_VOCAB, HTH_TEXT_BYTES = HTH_TEXT_CHARS + 0x110000 };

typedef struct hth_text_char {
    uint32_t cp, symbol;
} hth_text_char;

struct hth_tokenizer {
    int32_t n_vocab;
    hth_text_token *token;
    hth_vocab_index words;
    hth_vocab_index users, specials; /* matched in plain text; when special text is parsed */

    int32_t byte_id[256];       /* the byte token, or the word of that one byte, or -1 */
    uint32_t byte_symbol[256];  /* symbols of ASCII and of ill-formed bytes; BPE: of all bytes */
    hth_text_char *chars;       /* words of one character past ASCII, by code point */
    size_t n_char;
    uint32_t space;             /* the symbol of U+2581 */
    hth_merge_table merges;      /* two symbols -> the word that they make; BPE: the merge's rank */
    hth_merge_table joins;       /* two characters that lie side by side in some word */

    /* byte-level BPE only */
    bool is_bpe;
    const hth_pretok_type *pretok_type;
    unsigned flags;               /* of the family's name: HTH_TEXT_WHOLE_WORDS and so on */
    hth_pretokenizer *pretokenizer;
    hth_file_name_index word_index; /* words by their text */
    int32_t *merge_id;             /* the word that the merge of a rank makes */

    int32_t bos, eos, unknown;  /* or -1 */
    bool add_bos, add_eos, add_space_prefix;
    size_t longest_piece;
    hth_arena arena;            /* pieces */
};

/* vocab.c: the arrays of the file, into tok->token, words, specials, byte_id. */
hearth_status hth_text_read_vocab(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);

/* vocab_special.c: ids with a role, flags, ends of generation, names with habits. Comes
 * before hth_text_index: it may turn tokens into control tokens. */
hearth_status hth_vocab_read_special(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);

/* vocab.c: lexicons, byte tokens and pieces, once the kinds are settled. */
hearth_status hth_text_index(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);

/* spm_vocab.c: symbols, merges and joins, from the words. */
hearth_status hth_text_build_merges(hth_tokenizer *tok, hearth_error *err);

/* bpe_vocab.c, for byte-level BPE: the pre-tokenizer that the file names (before
 * vocab_special.c, which asks for its habits); then words, byte symbols and merges. */
hearth_status hth_text_read_pre(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);
hearth_status hth_text_read_merges(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);
/* The symbol of the character, or ill-formed byte, at the start of n > 0 bytes;
 * *n_used is its length. Spaces are not escaped here. */
uint32_t hth_text_symbol_at(const hth_tokenizer *tok, const char *bytes, size_t n, size_t *n_used);

/* Memory of one tokenization, kept from fragment to fragment. */
typedef struct hth_text_symbol {
    uint32_t id;         /* the symbol */
    uint32_t n;          /* bytes of escaped text; 0: merged into another */
    uint32_t prev, next; /* UINT32_MAX: none */
} hth_text_symbol;

typedef struct hth_tokenize_scratch {
    hth_text_symbol *symbol;
    size_t n, capacity;
    hth_text_heap heap;
    hth_pretok_iter pretok;
    size_t n_unencodable; /* bytes that the vocabulary cannot hold */
} hth_tokenize_scratch;
void hth_tokenize_scratch_free(hth_tokenize_scratch *work);

/* merge.c: symbols of n_byte bytes of escaped text, collected one by one, then merged
 * as far as it goes: symbol 0 and its followers by `next` are what is left. */
hearth_status hth_text_add_symbol(hth_tokenize_scratch *work, uint32_t id, size_t n_byte, hearth_error *err);
hearth_status hth_text_merge_symbols(const hth_tokenizer *tok, hth_tokenize_scratch *work, hearth_error *err);

/* spm.c: appends the ids of one raw fragment, with the space in front where the
 * vocabulary asks for it. */
hearth_status hth_text_spm_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                  size_t n, hth_ids *ids, hearth_error *err);
/* bpe.c: the same for byte-level BPE, which puts nothing in front. */
hearth_status hth_text_bpe_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                  size_t n, hth_ids *ids, hearth_error *err);

typedef struct hth_text_span {
    size_t from, end;
} hth_text_span;

/* special.c: where special tokens lie in a text, by ascending place. */
typedef struct hth_text_match {
    size_t at, end; /* with the white space that the token drops */
    int32_t id;
} hth_text_match;

typedef struct hth_text_matches {
    hth_text_match *match;
    size_t n, capacity;
} hth_text_matches;

/* User-defined tokens anywhere, control and unknown ones inside the frames, which
 * ascend and do not touch. */
hearth_status hth_text_find_specials(const hth_tokenizer *tok, hth_str text,
                                     const hth_text_span *frames, size_t n_frame,
                                     hth_text_matches *out, hearth_error *err);
void hth_text_matches_free(hth_text_matches *matches);

#endif
