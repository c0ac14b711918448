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

/* Converts n arbitrary bytes (text may be NULL if n is 0) into *n_ids ids in *ids, to be freed with hearth_free.
 * flags: hearth_tokenize_flags together. A warning counts the bytes that the vocabulary cannot encode. UNSUPPORTED if the
 * kind of the vocabulary is not supported (SentencePiece, BPE, Unigram and WordPiece are; BPE needs a build with PCRE2,
 * WordPiece one with utf8proc). */
HEARTH_API hearth_status hearth_tokenize(const hearth_model *model, const char *text, size_t n,
                                         unsigned flags, int32_t **ids, size_t *n_ids,
                                         hearth_error *err);

/* -1 if the vocabulary has none, or is not supported. */
HEARTH_API int32_t hearth_token_bos(const hearth_model *model);
/* The same for the end of a text. */
HEARTH_API int32_t hearth_token_eos(const hearth_model *model);
/* True if the token is an end of generation. */
HEARTH_API bool hearth_token_is_eog(const hearth_model *model, int32_t id);

/* Converts a stream of tokens to text; never splits a UTF-8 character. Used by one thread at a time. */
typedef struct hearth_detokenizer hearth_detokenizer;

/* at_start: the tokens start a text (the leading space that the vocabulary implies is stripped); false: they
 * continue one. show_special: control tokens appear by name. UNSUPPORTED: the vocabulary is not; MEMORY. */
HEARTH_API hearth_status hearth_detokenizer_open(const hearth_model *model, bool at_start,
                                             bool show_special, hearth_detokenizer **out,
                                             hearth_error *err);
/* Ends the use of what it gave. */
HEARTH_API void hearth_detokenizer_close(hearth_detokenizer *detokenizer);
/* The bytes that id completes: *n of them, valid until the next call; none for a row of the model that pads the
 * vocabulary. ARGUMENT if id exceeds the rows. */
HEARTH_API hearth_status hearth_detokenizer_push(hearth_detokenizer *detokenizer, int32_t id, const char **text,
                                             size_t *n, hearth_error *err);
/* The held-back bytes of an incomplete character, valid as those of a push. */
HEARTH_API void hearth_detokenizer_flush(hearth_detokenizer *detokenizer, const char **text, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
