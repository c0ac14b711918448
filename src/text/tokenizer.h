/* Text to token ids and back, by the vocabulary in a GGUF file. Immutable after
 * opening; any number of threads may use one tokenizer. */
#ifndef HTH_TEXT_TOKENIZER_H
#define HTH_TEXT_TOKENIZER_H

#include "file/gguf.h"

typedef struct hth_tokenizer hth_tokenizer;

/* Types of tokens; the numbers are those of the format. */
typedef enum hth_token_kind {
    HTH_TOKEN_NORMAL = 1,
    HTH_TOKEN_UNKNOWN = 2,
    HTH_TOKEN_CONTROL = 3,
    HTH_TOKEN_USER = 4,
    HTH_TOKEN_UNUSED = 5,
    HTH_TOKEN_BYTE = 6,
} hth_token_kind;

/* Reads `tokenizer.ggml.*`. UNSUPPORTED names the tokenizer kind where it is not
 * one of ours ("llama", "gpt2"), and the pre-tokenizer where that is not known;
 * FORMAT for anything malformed. file must outlive it. */
hearth_status hth_tokenizer_open(const hth_gguf *file, hth_tokenizer **out, hearth_error *err);
void hth_tokenizer_close(hth_tokenizer *tok);

int32_t hth_tokenizer_n_vocab(const hth_tokenizer *tok);
hth_token_kind hth_tokenizer_kind(const hth_tokenizer *tok, int32_t id);
/* The vocabulary entry as it stands in the file. */
hth_str hth_tokenizer_entry(const hth_tokenizer *tok, int32_t id);
/* The family of expressions by which text is cut into words ("gpt-2"), and into engine
 * what runs them ("PCRE2 10.42, Unicode 14.0.0"); NULL for "llama", which cuts none. */
const char *hth_tokenizer_pretok_name(const hth_tokenizer *tok, char *engine, size_t n_engine);
/* -1 where the file has none. */
int32_t hth_tokenizer_bos(const hth_tokenizer *tok);
int32_t hth_tokenizer_eos(const hth_tokenizer *tok);
/* Whether the vocabulary wants BOS in front of a text. */
bool hth_tokenizer_adds_bos(const hth_tokenizer *tok);
/* Whether a generation ends with this token (eos, eot, eom, and the like). */
bool hth_tokenizer_is_eog(const hth_tokenizer *tok, int32_t id);

/* A growing list of ids; zero-initialised is empty. */
typedef struct hth_ids {
    int32_t *id;
    size_t n, capacity;
} hth_ids;
void hth_ids_free(hth_ids *ids);
hearth_status hth_ids_push(hth_ids *ids, int32_t id, hearth_error *err);

/* Appends the ids of n bytes of text (any bytes; NUL is one like others). flags
 * are those of hearth.h.
 * *n_unencodable (may be NULL) counts bytes that the vocabulary cannot hold: with "llama"
 * each became the unknown token, with "gpt2" it was left out. O(n log n). Errors:
 * MEMORY; UNSUPPORTED where a pre-tokenizer runs into its limits. */
hearth_status hth_tokenize(const hth_tokenizer *tok, const char *text, size_t n, unsigned flags,
                           hth_ids *ids, size_t *n_lost, hearth_error *err);

/* A piece of a conversation: the frame that its format writes, or what somebody
 * said. */
typedef struct hth_text_part {
    const char *text; /* NULL only when n is 0 */
    size_t n;
    bool is_template;
} hth_text_part;

/* Appends the ids of the parts laid side by side. Control tokens are recognised
 * inside frames only (neighbouring frames are one), so that nobody can write one;
 * user-defined tokens are recognised everywhere, as in plain text. A seam is no
 * seam: where no part spells a control token outside a frame, the ids are those of
 * the whole text with HEARTH_PARSE_SPECIAL. Of the flags only HEARTH_ADD_SPECIAL
 * counts, and with it a BOS that the first frame writes itself is not doubled.
 * Otherwise as hth_tokenize. */
hearth_status hth_tokenize_parts(const hth_tokenizer *tok, const hth_text_part *parts,
                                 size_t n_part, unsigned flags, hth_ids *ids, size_t *n_lost,
                                 hearth_error *err);

/* The bytes that one token stands for, without regard to its neighbours: a
 * leading space stays. Control and unknown tokens give nothing, or their text
 * when show_special. *n bytes, valid as long as the tokenizer. */
const char *hth_token_piece(const hth_tokenizer *tok, int32_t id, bool show_special, size_t *n);

/* ---- streams of text ------------------------------------------------------ */

/* Turns tokens into text as they come, and never cuts a UTF-8 character: an
 * incomplete one is held back until it is complete or cannot become so. */
typedef struct hth_detok {
    const hth_tokenizer *tok;
    bool show_special;
    bool strip_space; /* the next text starts the whole: drop one leading space */
    char pending[4];
    size_t n_pending;
} hth_detok;

/* at_start: the tokens begin the text, so that the space which the tokenizer
 * puts in front is dropped; false when they continue a prompt. */
void hth_detok_init(hth_detok *d, const hth_tokenizer *tok, bool show_special, bool at_start);
/* out must hold hth_detok_max_bytes(tok) bytes; returns the number written. */
size_t hth_detok_max_bytes(const hth_tokenizer *tok);
size_t hth_detok_push(hth_detok *d, int32_t id, char *out);
/* What is still held back, as it is. At most 4 bytes. */
size_t hth_detok_flush(hth_detok *d, char *out);

#endif
