/* Reads and checks the vocabulary arrays of a GGUF file. Called by hth_tokenizer_open: first the raw arrays
 * (hth_text_read_vocab), then, after vocab_special.c has determined the kind of each token, sorted texts, byte
 * tokens and pieces (hth_text_index). No other file reads raw arrays. */
#include "text/internal.h"

#include "base/log.h"
#include "text/bpe/byte_map.h"
#include "text/vocab_index.h"

#include <stdio.h>
#include <string.h>

/* ---- the arrays ------------------------------------------------------------- */

static hearth_status read_texts(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    static const char key[] = "tokenizer.ggml.tokens";
    const hth_gguf_value *array = NULL;
    hearth_status status = hth_gguf_get_array(file, key, HTH_GGUF_TEXT, 0, &array, err);
    if (status != HEARTH_OK) return status;
    if (!array) return hth_gguf_missing(file, key, "the tokenizer", err);
    if (array->n_element < 2 || array->n_element > HTH_TEXT_MAX_VOCAB)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: %llu tokens; a vocabulary has 2 to %d",
                        hth_gguf_path(file), key, (unsigned long long)array->offset,
                        (unsigned long long)array->n_element, HTH_TEXT_MAX_VOCAB);
    tok->n_vocab = (int32_t)array->n_element;
    tok->token = hth_alloc((size_t)tok->n_vocab, sizeof *tok->token);
    if (!tok->token)
        return hth_fail_memory(err, (size_t)tok->n_vocab * sizeof *tok->token, "the vocabulary");

    const hth_str *text = array->elements;
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        if (text[i].n > HTH_TEXT_MAX_ENTRY)
            return hth_fail(err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: token %d has %zu bytes; at most %d are taken",
                            hth_gguf_path(file), key, (unsigned long long)array->offset, (int)i,
                            text[i].n, HTH_TEXT_MAX_ENTRY);
        tok->token[i].entry = text[i];
    }
    return HEARTH_OK;
}

/* The bits of a finite float, mapped so that a higher score is a lower rank. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = bits >> 31 ? ~bits : bits | UINT32_C(0x80000000);
    return ~ascending;
}

/* Scores are floats; some files have whole numbers. */
static hearth_status read_scores(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    const hth_gguf_value *array = hth_gguf_find(file, key);
    const bool whole = array && array->type == HTH_GGUF_ARRAY && array->element_type == HTH_GGUF_I32;
    hearth_status status = hth_gguf_get_array(file, key, whole ? HTH_GGUF_I32 : HTH_GGUF_F32, (uint64_t)tok->n_vocab,
                                              &array, err);
    if (status != HEARTH_OK) return status;
    if (!array) return hth_gguf_missing(file, key, "tokenizers of kinds \"llama\" and \"t5\"", err);
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        double score = hth_gguf_element_float(array, (uint64_t)i);
        if (!(score - score == 0.0))
            return hth_fail(err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: the score of token %d is not finite",
                            hth_gguf_path(file), key, (unsigned long long)array->offset, (int)i);
        if (tok->algorithm == HTH_TEXT_UNIGRAM) tok->token[i].score = (float)score;
        else tok->token[i].rank = rank_of((float)score);
    }
    return HEARTH_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The byte of "<0xHH>"; false for any other text. */
static bool byte_of(hth_str t, uint8_t *byte)
{
    if (t.n != 6 || memcmp(t.bytes, "<0x", 3) != 0 || t.bytes[5] != '>') return false;
    int high = hex_digit(t.bytes[3]), low = hex_digit(t.bytes[4]);
    if (high < 0 || low < 0) return false;
    *byte = (uint8_t)(16 * high + low);
    return true;
}

/* Without types, byte tokens are told by their texts; vocab_special.c tells special ones. */
static hearth_status read_kinds(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    static const char key[] = "tokenizer.ggml.token_type";
    const hth_gguf_value *array = NULL;
    hearth_status status =
        hth_gguf_get_array(file, key, HTH_GGUF_I32, (uint64_t)tok->n_vocab, &array, err);
    if (status != HEARTH_OK) return status;
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        uint8_t byte;
        int64_t without = byte_of(tok->token[i].entry, &byte) ? HTH_TOKEN_BYTE : HTH_TOKEN_NORMAL;
        int64_t kind = array ? hth_gguf_element_int(array, (uint64_t)i) : without;
        if (kind < HTH_TOKEN_NORMAL || kind > HTH_TOKEN_BYTE)
            return hth_fail(err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: token %d has type %lld; types are 1 to 6",
                            hth_gguf_path(file), key, (unsigned long long)array->offset, (int)i,
                            (long long)kind);
        tok->token[i].kind = (uint8_t)kind;
    }
    return HEARTH_OK;
}

/* Empty tokens get the name that llama.cpp gives them, so that each can be told from the others. */
static hearth_status name_empty_texts(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    size_t n_empty = 0;
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        enum { MAX_NAME = 20 };
        if (tok->token[i].entry.n > 0) continue;
        char *name = hth_arena_alloc(&tok->arena, MAX_NAME, 1, 1);
        if (!name) return hth_fail_memory(err, MAX_NAME, "the vocabulary");
        tok->token[i].entry = (hth_str){name, (size_t)snprintf(name, MAX_NAME, "[EMPTY_%d]", (int)i)};
        n_empty++;
    }
    if (n_empty > 0)
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.tokens: %zu tokens are empty; they are named [EMPTY_id]",
                hth_gguf_path(file), n_empty);
    return HEARTH_OK;
}

hearth_status hth_text_read_vocab(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    hearth_status status = read_texts(tok, file, err);
    if (status == HEARTH_OK && (tok->algorithm == HTH_TEXT_SPM || tok->algorithm == HTH_TEXT_UNIGRAM))
        status = read_scores(tok, file, err);
    if (status == HEARTH_OK) status = read_kinds(tok, file, err);
    if (status == HEARTH_OK) status = name_empty_texts(tok, file, err);
    return status;
}

/* ---- byte tokens and pieces -------------------------------------------------- */

static void find_byte_tokens(hth_tokenizer *tok, const hth_gguf *file)
{
    size_t n_odd = 0, n_missing = 0;
    for (int b = 0; b < 256; b++) tok->byte_id[b] = -1;
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        if (tok->token[i].kind != HTH_TOKEN_BYTE) continue;
        uint8_t b = 0;
        if (byte_of(tok->token[i].entry, &b) && tok->byte_id[b] < 0) tok->byte_id[b] = i;
        else n_odd++;
    }
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        if (tok->byte_id[b] < 0)
            tok->byte_id[b] = hth_vocab_index_find(&tok->words, tok->token, &byte, 1);
        if (tok->byte_id[b] < 0) n_missing++;
    }
    tok->has_all_bytes = n_missing == 0 && tok->algorithm == HTH_TEXT_UNIGRAM;
    if (tok->algorithm != HTH_TEXT_SPM) n_missing = 0; /* bpe_vocab.c counts them: there a byte is a word */
    if (n_odd > 0)
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.tokens: %zu byte tokens are not of the form "
                "<0xHH> or repeat one; text never becomes these", hth_gguf_path(file), n_odd);
    if (n_missing > 0)
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.tokens: %zu of 256 byte tokens are missing; "
                "text outside the vocabulary with these bytes becomes the unknown token",
                hth_gguf_path(file), n_missing);
}

/* Writes t with every U+2581 replaced by a space to out, or only counts if out is NULL. Returns the length. */
static size_t unescape(hth_str t, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < t.n; n++) {
        bool space = t.n - i >= 3 && memcmp(t.bytes + i, "\xE2\x96\x81", 3) == 0;
        if (out) out[n] = space ? ' ' : t.bytes[i];
        i += space ? 3 : 1;
    }
    return n;
}

static const char all_bytes[256] = {
#define ROW(H) \
    (char)(H), (char)(H + 1), (char)(H + 2), (char)(H + 3), (char)(H + 4), (char)(H + 5), \
    (char)(H + 6), (char)(H + 7), (char)(H + 8), (char)(H + 9), (char)(H + 10), (char)(H + 11), \
    (char)(H + 12), (char)(H + 13), (char)(H + 14), (char)(H + 15)
    ROW(0x00), ROW(0x10), ROW(0x20), ROW(0x30), ROW(0x40), ROW(0x50), ROW(0x60), ROW(0x70),
    ROW(0x80), ROW(0x90), ROW(0xA0), ROW(0xB0), ROW(0xC0), ROW(0xD0), ROW(0xE0), ROW(0xF0),
#undef ROW
};

/* Writes the bytes that a word represents to out, or only counts. *n_other counts characters outside the byte map. */
static size_t decode(const hth_tokenizer *tok, hth_str t, char *out, size_t *n_other)
{
    *n_other = 0;
    if (tok->algorithm != HTH_TEXT_BPE || tok->flags & HTH_TEXT_ESCAPES) return unescape(t, out);
    if (!(tok->flags & HTH_TEXT_CHARACTERS)) return hth_text_unmap(t.bytes, t.n, out, n_other);
    if (out) memcpy(out, t.bytes, t.n);
    return t.n;
}

static hearth_status make_piece(hth_tokenizer *tok, hth_text_token *t, size_t *n_other,
                                hearth_error *err)
{
    uint8_t byte = 0;
    bool is_byte = t->kind == HTH_TOKEN_BYTE && byte_of(t->entry, &byte);
    bool escaped = t->kind == HTH_TOKEN_NORMAL || t->kind == HTH_TOKEN_UNUSED ||
                   (t->kind == HTH_TOKEN_BYTE && !is_byte);
    t->piece = is_byte ? &all_bytes[byte] : t->entry.bytes;
    t->n_chunk = is_byte ? 1 : (uint32_t)t->entry.n;
    size_t n = t->n_chunk;
    *n_other = 0;
    if (escaped) n = decode(tok, t->entry, NULL, n_other);
    if (n < t->n_chunk) {
        char *piece = hth_arena_alloc(&tok->arena, n, 1, 1);
        if (!piece) return hth_fail_memory(err, n, "the vocabulary");
        decode(tok, t->entry, piece, n_other);
        t->piece = piece;
        t->n_chunk = (uint32_t)n;
    }
    if (n > tok->longest_piece) tok->longest_piece = n;
    return HEARTH_OK;
}

static void warn_of_doubles(const hth_gguf *file, size_t n, const char *what)
{
    if (n > 0)
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.tokens: %zu %s repeat the text of another; "
                "text becomes the one with the lowest id", hth_gguf_path(file), n, what);
}

hearth_status hth_text_index(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    size_t n_word = 0, n_user = 0, n_special = 0;
    hearth_status status = HEARTH_OK;
    const unsigned words = tok->algorithm == HTH_TEXT_UNIGRAM ? HTH_TEXT_PIECES : HTH_TEXT_WORDS;
    if (tok->algorithm != HTH_TEXT_BPE || tok->flags & HTH_TEXT_CHARACTERS) /* byte-level BPE finds words by hash */
        status = hth_vocab_index_build(&tok->words, tok->token, tok->n_vocab, words, &n_word, err);
    if (status == HEARTH_OK)
        status = hth_vocab_index_build(&tok->users, tok->token, tok->n_vocab, HTH_TEXT_USERS,
                                        &n_user, err);
    if (status == HEARTH_OK)
        status = hth_vocab_index_build(&tok->specials, tok->token, tok->n_vocab,
                                        HTH_TEXT_SPECIALS, &n_special, err);
    if (status != HEARTH_OK) return status;
    if (tok->algorithm != HTH_TEXT_BPE) warn_of_doubles(file, n_word, "words"); /* bpe_vocab.c counts its own */
    warn_of_doubles(file, n_special, "special tokens");
    find_byte_tokens(tok, file);
    size_t n_odd = 0, n_other;
    for (int32_t i = 0; i < tok->n_vocab && status == HEARTH_OK; i++) {
        status = make_piece(tok, &tok->token[i], &n_other, err);
        n_odd += n_other > 0;
    }
    if (n_odd > 0)
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.tokens: %zu words hold characters that stand "
                "for no byte; text never becomes these", hth_gguf_path(file), n_odd);
    return status;
}
