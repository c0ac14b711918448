/* Texts and tokens. */
#ifndef HEARTH_TEXT_H
#define HEARTH_TEXT_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hearth_tokenize_flags {
    HEARTH_ADD_SPECIAL = 1,   /* add begin- and end-of-text tokens as the vocabulary requires */
    HEARTH_PARSE_SPECIAL = 2, /* parse the texts of control tokens as these tokens: for trusted text only */
} hearth_tokenize_flags;

/* Converts n arbitrary bytes (text may be NULL if n is 0) into *n_ids ids: (*ids)[*n_ids]. flags:
 * hearth_tokenize_flags together. A warning counts the bytes that the vocabulary cannot encode.
 * Errors: UNSUPPORTED: the kind of the vocabulary is not (SentencePiece, BPE, Unigram and WordPiece are; BPE needs a
 * build with PCRE2, WordPiece one with utf8proc), or PCRE2 cannot divide the text; ARGUMENT: flags; MEMORY.
 * Ownership: *ids is the caller's, to be freed with hearth_free.
 * Threads: any. */
HEARTH_API hearth_status hearth_tokenize(const hearth_model *model, const char *text, size_t n,
                                         unsigned flags, int32_t **ids, size_t *n_ids,
                                         hearth_error *err);

/* Returns the token that begins a text; -1: the vocabulary has none, or is not supported.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API int32_t hearth_token_bos(const hearth_model *model);

/* Returns the token that ends a text; -1: as of hearth_token_bos.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API int32_t hearth_token_eos(const hearth_model *model);

/* Returns true if the token is an end of generation; false also for ids out of range.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API bool hearth_token_is_eog(const hearth_model *model, int32_t id);

/* ---- the vocabulary ---------------------------------------------------------- */

/* What a token is, as bits. */
typedef enum hearth_token_attributes {
    HEARTH_TOKEN_NORMAL = 1,
    HEARTH_TOKEN_UNKNOWN = 2,       /* stands for what the vocabulary lacks */
    HEARTH_TOKEN_CONTROL = 4,
    HEARTH_TOKEN_USER_DEFINED = 8,  /* is recognised in all texts */
    HEARTH_TOKEN_UNUSED = 16,
    HEARTH_TOKEN_BYTE = 32,         /* stands for one byte */
    HEARTH_TOKEN_END = 64,          /* ends a generation (hearth_token_is_eog) */
    HEARTH_TOKEN_PADDING = 128,     /* no token, but a row of the model behind the vocabulary */
} hearth_token_attributes;

/* Texts are valid as those of hearth_model_info, and end with no NUL. */
typedef struct hearth_token_info {
    size_t size;         /* set by the caller: Versions in hearth.h */
    const char *text;    /* n_text bytes: as in the vocabulary, where a space may be U+2581 or U+0120 */
    size_t n_text;
    const char *bytes;   /* n_bytes bytes that it stands for, with a leading space; of control tokens their text */
    size_t n_bytes;
    float score;         /* in the vocabulary; 0: it has none */
    unsigned attributes; /* hearth_token_attributes together */
} hearth_token_info;

/* Gives what the vocabulary says of a token.
 * Errors: ARGUMENT: there is no such row of the model, or info->size is too small; UNSUPPORTED, FORMAT: the vocabulary
 * is not supported (hearth_tokenize says why).
 * Ownership: texts are the model's.
 * Threads: any. */
HEARTH_API hearth_status hearth_model_get_token(const hearth_model *model, int32_t id, hearth_token_info *info);

/* Returns the first token whose text in the vocabulary is exactly text[n]; -1: there is none. It looks at each token.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API int32_t hearth_token_find(const hearth_model *model, const char *text, size_t n);

typedef enum hearth_special_token {
    HEARTH_SPECIAL_BOS = 0,
    HEARTH_SPECIAL_EOS,
    HEARTH_SPECIAL_EOT, /* ends a turn */
    HEARTH_SPECIAL_EOM, /* ends a message that calls a function */
    HEARTH_SPECIAL_UNKNOWN,
    HEARTH_SPECIAL_SEPARATOR,
    HEARTH_SPECIAL_CLASS,
    HEARTH_SPECIAL_PADDING,
    HEARTH_SPECIAL_MASK,
    HEARTH_SPECIAL_NEWLINE,    /* the line feed */
    HEARTH_SPECIAL_FIM_PREFIX, /* of code models: what is before the gap, behind it, and in it */
    HEARTH_SPECIAL_FIM_SUFFIX,
    HEARTH_SPECIAL_FIM_MIDDLE,
    HEARTH_SPECIAL_FIM_PADDING,
    HEARTH_SPECIAL_FIM_REPOSITORY, /* names of a repository and of a file */
    HEARTH_SPECIAL_FIM_FILE,
} hearth_special_token;

/* Returns the token of a kind, by the keys of the file, else by the texts that published vocabularies have; -1: there
 * is none, or no such kind, or the vocabulary is not supported.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API int32_t hearth_token_special(const hearth_model *model, hearth_special_token kind);

/* ---- streaming detokenizer --------------------------------------------------- */

/* Converts a stream of tokens to text; never splits a UTF-8 character. Used by one thread at a time. */
typedef struct hearth_detokenizer hearth_detokenizer;

/* Opens a detokenizer. at_start: the tokens start a text (the leading space that the vocabulary implies is stripped);
 * false: they continue one. show_special: control tokens appear by name.
 * Errors: UNSUPPORTED, FORMAT: the vocabulary is not supported, or none; MEMORY.
 * Ownership: *out is the caller's, until hearth_detokenizer_close, and keeps the model.
 * Threads: any. */
HEARTH_API hearth_status hearth_detokenizer_open(const hearth_model *model, bool at_start,
                                             bool show_special, hearth_detokenizer **out,
                                             hearth_error *err);

/* Closes a detokenizer.
 * Errors: none.
 * Ownership: gives it up, with the text that it gave.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_detokenizer_close(hearth_detokenizer *detokenizer);

/* Gives the bytes that id completes: (*text)[*n], without a NUL; none for a row of the model that pads the vocabulary.
 * Errors: ARGUMENT: id exceeds the rows.
 * Ownership: *text is the detokenizer's, valid until its next call.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_detokenizer_push(hearth_detokenizer *detokenizer, int32_t id, const char **text,
                                             size_t *n, hearth_error *err);

/* Gives the held-back bytes of an incomplete character: (*text)[*n].
 * Errors: none; nothing is given while it is in use.
 * Ownership: *text is the detokenizer's, valid until its next call.
 * Threads: one at a time. */
HEARTH_API void hearth_detokenizer_flush(hearth_detokenizer *detokenizer, const char **text, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
