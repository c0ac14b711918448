/* The parts of a tokenizer. Private to this folder. */
#ifndef HTH_TEXT_INTERNAL_H
#define HTH_TEXT_INTERNAL_H

#include "base/alloc.h"
#include "file/name_index.h"
#include "text/charsmap.h"
#include "text/pretokenizer.h"
#include "text/bpe/heap.h"
#include "text/bpe/merge_table.h"
#include "text/tokenizer.h"

/* Limits of a vocabulary. The longest published token text is 512 bytes; the largest vocabulary has 262,144
 * tokens. The product of both limits fits in 32 bits, which special.c uses. */
enum { HTH_TEXT_MAX_ENTRY = 1024, HTH_TEXT_MAX_VOCAB = 1 << 22 };

/* Kinds of tokens in a vocabulary index, as bits. */
enum {
    HTH_TEXT_WORDS = 1 << HTH_TOKEN_NORMAL | 1 << HTH_TOKEN_USER | 1 << HTH_TOKEN_UNUSED,
    HTH_TEXT_BYTE_WORDS = 1 << HTH_TOKEN_NORMAL | 1 << HTH_TOKEN_UNUSED, /* byte-level BPE */
    HTH_TEXT_PIECES = 1 << HTH_TOKEN_NORMAL | 1 << HTH_TOKEN_USER,       /* Unigram */
    HTH_TEXT_USERS = 1 << HTH_TOKEN_USER,
    HTH_TEXT_SPECIALS = 1 << HTH_TOKEN_UNKNOWN | 1 << HTH_TOKEN_CONTROL | 1 << HTH_TOKEN_USER,
};

/* How text becomes ids. */
typedef enum hth_text_algorithm {
    HTH_TEXT_SPM,     /* SentencePiece BPE: merges by score */
    HTH_TEXT_BPE,     /* words, merges by rank: of bytes that stand as characters, or of characters */
    HTH_TEXT_UNIGRAM, /* SentencePiece Unigram: the pieces with the highest sum of scores */
    HTH_TEXT_WORDPIECE, /* words, each from its start by the longest piece */
} hth_text_algorithm;

typedef struct hth_text_token {
    hth_str entry;     /* in the file */
    const char *piece;  /* decoded text: in the file or in the arena */
    uint32_t n_chunk;
    union {
        uint32_t rank; /* by score: a higher score is a lower rank, equal scores are equal ranks */
        float score;   /* Unigram */
    };
    uint8_t kind;       /* hth_token_kind */
    bool is_eog;          /* end of generation */
    bool rstrip;    /* strips the white space after it (special tokens only) */
    bool lstrip;   /* strips the white space before it */
} hth_text_token;

/* Token texts in byte order; see vocab_index.h. */
typedef struct hth_vocab_index {
    int32_t *id;
    size_t n;
    size_t first[257]; /* entries [first[b], first[b + 1]) start with byte b */
} hth_vocab_index;

/* Text consists of symbols before and during merging. A symbol is the id of a word, or, for a character without a
 * word, HTH_TEXT_CHARS plus its code point, or, for an ill-formed byte without a word, HTH_TEXT_BYTES plus the
 * byte. */
enum { HTH_TEXT_CHARS = HTH_TEXT_MAX_VOCAB, HTH_TEXT_BYTES = HTH_TEXT_CHARS + 0x110000 };

typedef struct hth_text_char {
    uint32_t cp, symbol;
} hth_text_char;

struct hth_tokenizer {
    const char *model; /* its kind in the file */
    hth_text_algorithm algorithm;
    int32_t n_vocab;
    hth_text_token *token;
    hth_vocab_index words;
    hth_vocab_index users, specials; /* matched in plain text; matched if special text is parsed */

    int32_t byte_id[256];       /* the byte token, or the word of that single byte, or -1 */
    uint32_t byte_symbol[256];  /* symbols of ASCII and of ill-formed bytes; BPE: of all bytes */
    hth_text_char *chars;       /* words of one non-ASCII character, by code point */
    size_t n_char;
    uint32_t space;             /* symbol of U+2581 */
    hth_merge_table merges;      /* two symbols -> the word that they form; BPE: the merge's rank */
    hth_merge_table joins;       /* two characters that are adjacent in some word */

    /* Unigram only */
    hth_charsmap charsmap;
    bool merges_spaces;  /* a run of spaces counts as one, and as none at either end of a fragment */
    bool has_all_bytes;  /* a character without a piece becomes byte tokens, not the unknown token */
    double unknown_score;

    bool lower_case;    /* WordPiece and BPE of "whitespace": before all else */
    bool strip_accents; /* WordPiece only */

    /* BPE only */
    bool drops_white;             /* white space is no part of the text */
    const hth_pretok_type *pretok_type;
    unsigned flags;               /* flags by the pre-tokenizer's name: HTH_TEXT_WHOLE_WORDS and so on */
    hth_pretokenizer *pretokenizer;
    hth_file_name_index word_index; /* words by text */
    int32_t *merge_id;             /* the word that the merge of a rank produces */

    int32_t special[HTH_N_SPECIAL]; /* by hearth_special_token, or -1 */
    int32_t bos, eos, unknown;  /* copies of entries of special */
    int32_t last;               /* added after a text: EOS, or the separator of WordPiece; or -1 */
    bool add_bos, add_space_prefix;
    bool drops_space;           /* a leading space of a decoded text is not in the text */
    size_t longest_piece;
    hth_arena arena;            /* pieces */
};

/* vocab.c: reads the arrays of the file into tok->token, words, specials, byte_id. */
hearth_status hth_text_read_vocab(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);

/* vocab_special.c: special ids, flags, end-of-generation tokens, flags implied by names. Must run before
 * hth_text_index, because it may turn tokens into control tokens. */
hearth_status hth_vocab_read_special(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);

/* vocab.c: vocabulary indices, byte tokens and pieces, after the kinds are final. */
hearth_status hth_text_index(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);

/* spm_vocab.c: symbols of characters and ill-formed bytes, from the words; and these, merges and joins. */
hearth_status hth_text_list_characters(hth_tokenizer *tok, hearth_error *err);
hearth_status hth_text_build_merges(hth_tokenizer *tok, hearth_error *err);

/* bpe_vocab.c, for BPE: the pre-tokenizer of this name, or that the file names if it is NULL (before vocab_special.c,
 * which reads its flags); then words, symbols and merges. */
hearth_status hth_text_read_pre(hth_tokenizer *tok, const hth_gguf *file, const char *name, hearth_error *err);
hearth_status hth_text_read_merges(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);
/* unigram_vocab.c: the normalisation, and what an unknown character costs. */
hearth_status hth_text_read_unigram(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);

/* wordpiece.c: what WordPiece does before splitting. UNSUPPORTED in a build without utf8proc. */
hearth_status hth_text_read_wordpiece(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err);

/* The symbol of the character, or ill-formed byte, at the start of n > 0 bytes. *n_used is its length. Does not
 * escape spaces. */
uint32_t hth_text_symbol_at(const hth_tokenizer *tok, const char *bytes, size_t n, size_t *n_used);

/* Scratch memory of one tokenization, reused from fragment to fragment. */
typedef struct hth_text_symbol {
    uint32_t id;         /* the symbol */
    uint32_t n;          /* bytes of escaped text; 0: merged into another symbol */
    uint32_t prev, next; /* UINT32_MAX: none */
} hth_text_symbol;

/* The best way to a place in a text of Unigram pieces. */
typedef struct hth_text_node {
    double score; /* sum of the scores of all pieces up to here */
    uint32_t n;   /* bytes of the last piece; 0: no way is known */
    int32_t id;   /* the last piece, or -1: a character without a piece */
} hth_text_node;

typedef struct hth_tokenize_scratch {
    hth_text_symbol *symbol;
    size_t n, capacity;
    hth_text_heap heap;
    hth_pretok_iter pretok;
    char *text; /* normalised */
    size_t n_text, text_capacity;
    hth_text_node *node;
    size_t n_node, node_capacity;
    bool after_unknown; /* the last id is the unknown token */
    size_t n_char_byte, n_word_byte; /* input bytes of this character, and of the word that is collected */
    size_t n_unencodable; /* bytes that the vocabulary cannot encode */
} hth_tokenize_scratch;
void hth_tokenize_scratch_free(hth_tokenize_scratch *work);

/* merge.c: symbols of n_byte bytes of escaped text, collected one by one, then merged as far as possible. Symbol 0
 * and its successors by `next` are the result. */
hearth_status hth_text_add_symbol(hth_tokenize_scratch *work, uint32_t id, size_t n_byte, hearth_error *err);
hearth_status hth_text_merge_symbols(const hth_tokenizer *tok, hth_tokenize_scratch *work, hearth_error *err);

/* spm.c: appends the ids of one raw fragment, with a space before it if the vocabulary requires one. */
hearth_status hth_text_spm_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                  size_t n, hth_ids *ids, hearth_error *err);
/* bpe.c: the same for byte-level BPE, without the space. */
hearth_status hth_text_bpe_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                  size_t n, hth_ids *ids, hearth_error *err);

/* unigram.c: the same for Unigram, with normalisation. */
hearth_status hth_text_unigram_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                      size_t n, hth_ids *ids, hearth_error *err);

/* wordpiece.c: the same for WordPiece. */
hearth_status hth_text_wordpiece_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                        size_t n, hth_ids *ids, hearth_error *err);

typedef struct hth_text_span {
    size_t from, end;
} hth_text_span;

/* special.c: special tokens in a text, ascending by position. */
typedef struct hth_text_match {
    size_t at, end; /* including the white space that the token strips */
    int32_t id;
} hth_text_match;

typedef struct hth_text_matches {
    hth_text_match *match;
    size_t n, capacity;
} hth_text_matches;

/* Finds user-defined tokens anywhere, and control and unknown tokens inside the template spans, which ascend and
 * do not touch. */
hearth_status hth_text_find_specials(const hth_tokenizer *tok, hth_str text,
                                     const hth_text_span *spans, size_t n_span,
                                     hth_text_matches *out, hearth_error *err);
void hth_text_matches_free(hth_text_matches *matches);

#endif
