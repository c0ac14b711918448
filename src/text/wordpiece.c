/* WordPiece: a text is normalised as BERT has it (control characters dropped; accents and capitals too where the file
 * says so) and split into words at white space, punctuation and Chinese characters. Each word is written from its start
 * by the longest piece; a word with a place where no piece fits is the unknown token. Called by tokenize.c for every
 * raw fragment; hth_text_read_wordpiece once at opening.
 *
 * In the vocabulary a piece that starts a word begins with U+2581, so a word is looked up with it in front. */
#include "text/internal.h"

#include "text/unicode.h"
#include "text/utf8.h"
#include "text/vocab_index.h"

#include <string.h>

/* A longer word is unknown, as in the models' own tokenizers. */
enum { MAX_WORD_CHARACTERS = 100 };

static const char mark[] = "\xE2\x96\x81";

hearth_status hth_text_read_wordpiece(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    char engine[100];
    if (!hth_unicode_engine(engine, sizeof engine))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: tokenizer.ggml.model is \"bert\", which needs utf8proc, and this program was "
                        "built without it",
                        hth_gguf_path(file));
    if (tok->unknown < 0)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: tokenizer.ggml.unknown_token_id states no token, and %d tokens have no token "
                        "100; the tokenizer of "
                        "kind \"bert\" needs one",
                        hth_gguf_path(file), (int)tok->n_vocab);
    if (tok->words.first[(unsigned char)mark[0] + 1] == tok->words.first[(unsigned char)mark[0]])
        return hth_fail(
            err, HEARTH_ERROR_FORMAT,
            "%s: tokenizer.ggml.tokens: no token of type 1 starts a word: each would begin with U+2581",
            hth_gguf_path(file));
    tok->lower_case = true;
    hearth_status status =
        hth_gguf_get_bool(file, "tokenizer.ggml.normalizer.lowercase", &tok->lower_case, NULL, err);
    tok->strip_accents = tok->lower_case;
    if (status == HEARTH_OK)
        status = hth_gguf_get_bool(file, "tokenizer.ggml.normalizer.strip_accents", &tok->strip_accents, NULL,
                                   err);
    return status;
}

/* ---- words ------------------------------------------------------------------------------------------- */

/* The longest piece at the start of n bytes, or -1; *length is its length, or 0. */
static int32_t longest_piece(const hth_tokenizer *tok, const char *bytes, size_t n, size_t *length)
{
    int32_t best = -1;
    hth_prefix_iter iter;
    bool on = hth_prefix_iter_begin(&iter, &tok->words, (unsigned char)bytes[0]);
    *length = 0;
    while (on) {
        const int32_t id = hth_prefix_iter_token(&iter, &tok->words, tok->token);
        if (id >= 0) {
            best = id;
            *length = iter.depth;
        }
        on = iter.depth < n &&
             hth_prefix_iter_next(&iter, &tok->words, tok->token, (unsigned char)bytes[iter.depth]);
    }
    return best;
}

static bool starts_word(const hth_tokenizer *tok, int32_t id)
{
    const hth_str entry = tok->token[id].entry;
    return entry.n >= sizeof mark - 1 && memcmp(entry.bytes, mark, sizeof mark - 1) == 0;
}

static hearth_status put_unknown(const hth_tokenizer *tok, hth_tokenize_scratch *work, hth_ids *ids,
                                 hearth_error *err)
{
    work->n_unencodable += work->n_word_byte;
    return hth_ids_push(ids, tok->unknown, err);
}

/* Appends the ids of the collected word, whose symbols are its characters, and clears it. */
static hearth_status finish_word(const hth_tokenizer *tok, hth_tokenize_scratch *work, hth_ids *ids,
                                 hearth_error *err)
{
    const size_t n_before = ids->n;
    hearth_status status = HEARTH_OK;
    if (work->n == 0) return HEARTH_OK;
    bool known = work->n <= MAX_WORD_CHARACTERS;
    for (size_t at = 0, length; at < work->n_text && known && status == HEARTH_OK; at += length) {
        const int32_t id = longest_piece(tok, work->text + at, work->n_text - at, &length);
        known = id >= 0 && (at == 0 || !starts_word(tok, id));
        if (known) status = hth_ids_push(ids, id, err);
    }
    if (!known) {
        ids->n = n_before;
        if (status == HEARTH_OK) status = put_unknown(tok, work, ids, err);
    }
    work->n = work->n_text = work->n_word_byte = 0;
    return status;
}

static hearth_status add_character(hth_tokenize_scratch *work, uint32_t cp, hearth_error *err)
{
    char bytes[4];
    const size_t n = hth_text_utf8_encode(cp, bytes), n_mark = work->n == 0 ? sizeof mark - 1 : 0;
    work->n++;
    work->n_word_byte += work->n_char_byte;
    work->n_char_byte = 0;
    if (work->n > MAX_WORD_CHARACTERS) return HEARTH_OK; /* counted only */
    void *text = work->text;
    hearth_status status = hth_text_grow(&text, &work->text_capacity, work->n_text + n_mark + n, 1, err);
    if (status != HEARTH_OK) return status;
    work->text = text;
    memcpy(work->text + work->n_text, mark, n_mark);
    memcpy(work->text + work->n_text + n_mark, bytes, n);
    work->n_text += n_mark + n;
    return HEARTH_OK;
}

/* ---- characters ------------------------------------------------------------------------------------------ */

static bool is_chinese(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B73F) ||
           (cp >= 0x2B740 && cp <= 0x2B81F) ||
           (cp >= 0x2B920 && cp <= 0x2CEAF) || /* so in the models' own tokenizers, for U+2B820 */
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

/* ASCII symbols count as punctuation, too. */
static bool is_punctuation(uint32_t cp)
{
    return cp < 0x80 ? cp > 0x20 && cp < 0x7F && !(cp >= '0' && cp <= '9') &&
                           !((cp | 32) >= 'a' && (cp | 32) <= 'z')
                     : hth_unicode_is_punctuation(cp);
}

static bool is_dropped(uint32_t cp)
{
    return cp == 0 || cp == 0xFFFD || (cp != '\t' && cp != '\n' && cp != '\r' && hth_unicode_is_control(cp));
}

/* One character of a word, or a word of its own. */
static hearth_status add_normalised(const hth_tokenizer *tok, hth_tokenize_scratch *work, uint32_t cp,
                                    bool alone, hth_ids *ids, hearth_error *err)
{
    uint32_t lower[HTH_UNICODE_MAX_LOWER] = {cp};
    const size_t n = tok->lower_case ? hth_unicode_lower(cp, lower) : 1;
    hearth_status status = HEARTH_OK;
    for (size_t i = 0; i < n && status == HEARTH_OK; i++) {
        if (tok->strip_accents && hth_unicode_is_mark(cp)) continue;
        const bool single = alone || is_punctuation(lower[i]);
        if (single) status = finish_word(tok, work, ids, err);
        if (status == HEARTH_OK) status = add_character(work, lower[i], err);
        if (single && status == HEARTH_OK) status = finish_word(tok, work, ids, err);
    }
    return status;
}

static hearth_status add(const hth_tokenizer *tok, hth_tokenize_scratch *work, uint32_t cp, hth_ids *ids,
                         hearth_error *err)
{
    if (is_dropped(cp)) return HEARTH_OK;
    if (hth_text_is_space(cp)) return finish_word(tok, work, ids, err);
    uint32_t part[HTH_UNICODE_MAX_DECOMPOSED] = {cp};
    const size_t n = tok->strip_accents ? hth_unicode_decompose(cp, part) : 1;
    hearth_status status = HEARTH_OK;
    for (size_t i = 0; i < n && status == HEARTH_OK; i++)
        status = add_normalised(tok, work, part[i], is_chinese(cp), ids, err);
    return status;
}

hearth_status hth_text_wordpiece_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work,
                                        const char *text, size_t n, hth_ids *ids, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    work->n = work->n_text = work->n_word_byte = 0;
    for (size_t i = 0, used; i < n && status == HEARTH_OK; i += used) {
        uint32_t cp = 0xFFFD;
        used = hth_text_utf8_decode(text + i, n - i, &cp);
        if (used == 0) used = 1;
        work->n_char_byte = used;
        status = add(tok, work, cp, ids, err);
    }
    return status == HEARTH_OK ? finish_word(tok, work, ids, err) : status;
}
