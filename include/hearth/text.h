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

/* Converts a stream of tokens to text; never splits a UTF-8 character. Used by one thread at a time. */
typedef struct hearth_detokenizer hearth_detokenizer;

/* Opens a detokenizer. at_start: the tokens start a text (the leading space that the vocabulary implies is stripped);
 * false: they continue one. show_special: control tokens appear by name.
 * Errors: UNSUPPORTED: the vocabulary is not; MEMORY.
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
