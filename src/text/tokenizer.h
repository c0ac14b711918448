/* Text to token ids and back, by the vocabulary in a GGUF file. Immutable after opening; any number of threads may
 * use one tokenizer. */
#ifndef HTH_TEXT_TOKENIZER_H
#define HTH_TEXT_TOKENIZER_H

#include "file/gguf.h"

typedef struct hth_tokenizer hth_tokenizer;

/* Types of tokens, with the numbers of the format. */
typedef enum hth_token_kind {
    HTH_TOKEN_NORMAL = 1,
    HTH_TOKEN_UNKNOWN = 2,
    HTH_TOKEN_CONTROL = 3,
    HTH_TOKEN_USER = 4,
    HTH_TOKEN_UNUSED = 5,
    HTH_TOKEN_BYTE = 6,
} hth_token_kind;

/* Reads `tokenizer.ggml.*`. UNSUPPORTED names the tokenizer kind if it is not supported ("llama", "gpt2", "t5",
 * "bert", "gemma4" and "whitespace" are), or the unknown pre-tokenizer. FORMAT for anything malformed. file must
 * outlive the tokenizer. */
hearth_status hth_tokenizer_open(const hth_gguf *file, hth_tokenizer **out, hearth_error *err);
void hth_tokenizer_close(hth_tokenizer *tok);

int32_t hth_tokenizer_n_vocab(const hth_tokenizer *tok);
hth_token_kind hth_tokenizer_kind(const hth_tokenizer *tok, int32_t id);
/* The vocabulary entry as stored in the file. */
hth_str hth_tokenizer_entry(const hth_tokenizer *tok, int32_t id);
/* The kind, as in the file ("gpt2"), and in words ("byte-level BPE"). */
const char *hth_tokenizer_model(const hth_tokenizer *tok);
const char *hth_tokenizer_title(const hth_tokenizer *tok);
/* The type of the pre-tokenizer ("gpt-2"); engine receives the library that runs it ("PCRE2 10.42, Unicode
 * 14.0.0"). NULL for kinds that have no pre-tokenizer. */
const char *hth_tokenizer_pretok_name(const hth_tokenizer *tok, char *engine, size_t n_engine);
/* The first token whose entry is these bytes; -1: none. Looks at all. */
int32_t hth_tokenizer_find(const hth_tokenizer *tok, const char *bytes, size_t n);
enum { HTH_N_SPECIAL = HEARTH_SPECIAL_FIM_FILE + 1 };
/* -1 if the vocabulary has none. */
int32_t hth_tokenizer_special(const hth_tokenizer *tok, hearth_special_token which);
/* -1 if the file has none. */
int32_t hth_tokenizer_bos(const hth_tokenizer *tok);
int32_t hth_tokenizer_eos(const hth_tokenizer *tok);
/* The token that the vocabulary requires behind a text; -1: none. */
int32_t hth_tokenizer_end(const hth_tokenizer *tok);
/* True if the vocabulary requires BOS before a text. */
bool hth_tokenizer_adds_bos(const hth_tokenizer *tok);
/* True for end-of-generation tokens (eos, eot, eom, and similar). */
bool hth_tokenizer_is_eog(const hth_tokenizer *tok, int32_t id);

/* A growing list of ids. A zero-initialised list is empty. */
typedef struct hth_ids {
    int32_t *id;
    size_t n, capacity;
} hth_ids;
void hth_ids_free(hth_ids *ids);
hearth_status hth_ids_push(hth_ids *ids, int32_t id, hearth_error *err);

/* Appends the ids of n arbitrary bytes of text (NUL included). flags are those of hearth.h. *n_unencodable (may be
 * NULL) counts bytes that the vocabulary cannot encode: BPE drops each, the other kinds make the unknown token of
 * them. O(n log n). Errors: MEMORY; UNSUPPORTED if a pre-tokenizer reaches its limits. */
hearth_status hth_tokenize(const hth_tokenizer *tok, const char *text, size_t n, unsigned flags,
                           hth_ids *ids, size_t *n_unencodable, hearth_error *err);

/* A part of a conversation: template text, or the content of a message. */
typedef struct hth_text_part {
    const char *text; /* NULL only when n is 0 */
    size_t n;
    bool is_template;
} hth_text_part;

/* Appends the ids of the joined parts. Control tokens are recognised only in template text (adjacent template
 * parts count as one), so message content cannot produce one. User-defined tokens are recognised everywhere, as in
 * plain text. Boundaries between parts have no effect: if no part spells a control token outside template text,
 * the ids are those of the whole text with HEARTH_PARSE_SPECIAL. Of the flags only HEARTH_ADD_SPECIAL is used; a
 * BOS that the first template part writes itself is then not doubled. Otherwise as hth_tokenize. */
hearth_status hth_tokenize_parts(const hth_tokenizer *tok, const hth_text_part *parts,
                                 size_t n_part, unsigned flags, hth_ids *ids, size_t *n_unencodable,
                                 hearth_error *err);

/* The bytes that one token represents, regardless of its neighbours: a leading space stays. Control and unknown
 * tokens give nothing, or their text if show_special. *n bytes, valid as long as the tokenizer. */
const char *hth_token_piece(const hth_tokenizer *tok, int32_t id, bool show_special, size_t *n);

/* ---- streaming detokenizer ------------------------------------------------ */

/* Turns a stream of tokens into text and never splits a UTF-8 character: an incomplete one is held back until it
 * is complete or cannot be completed. */
typedef struct hth_detok {
    const hth_tokenizer *tok;
    bool show_special;
    bool strip_space; /* the next text is the first: strip one leading space */
    char pending[4];
    size_t n_pending;
} hth_detok;

/* at_start: the tokens start the text, so the space that the tokenizer inserts is stripped. False: they continue a
 * prompt. */
void hth_detok_init(hth_detok *d, const hth_tokenizer *tok, bool show_special, bool at_start);
/* out must hold hth_detok_max_bytes(tok) bytes. Returns the number of bytes written. */
size_t hth_detok_max_bytes(const hth_tokenizer *tok);
size_t hth_detok_push(hth_detok *d, int32_t id, char *out);
/* Writes the held-back bytes unchanged. At most 4 bytes. */
size_t hth_detok_flush(hth_detok *d, char *out);

#endif
