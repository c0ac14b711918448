/* SentencePiece: which symbols can merge, derived from the words at load. Called once by hth_tokenizer_open; spm.c
 * then only looks pairs up. A part of a word is a word, or a single character without a word. No other symbol can
 * occur in a text, so the tables are complete. */
#include "text/internal.h"

#include "text/vocab_index.h"
#include "text/utf8.h"

static uint32_t char_symbol(const hth_tokenizer *tok, uint32_t cp)
{
    size_t low = 0, high = tok->n_char;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (tok->chars[mid].cp == cp) return tok->chars[mid].symbol;
        if (tok->chars[mid].cp < cp) low = mid + 1;
        else high = mid;
    }
    return HTH_TEXT_CHARS + cp;
}

uint32_t hth_text_symbol_at(const hth_tokenizer *tok, const char *bytes, size_t n, size_t *n_used)
{
    unsigned char first = (unsigned char)bytes[0];
    uint32_t cp;
    size_t length = hth_text_utf8_decode(bytes, n, &cp);
    *n_used = length > 0 ? length : 1;
    return length > 1 ? char_symbol(tok, cp) : tok->byte_symbol[first];
}

hearth_status hth_text_list_characters(hth_tokenizer *tok, hearth_error *err)
{
    for (uint32_t b = 0; b < 256; b++) {
        const char byte = (char)b;
        int32_t id = hth_vocab_index_find(&tok->words, tok->token, &byte, 1);
        tok->byte_symbol[b] = id >= 0   ? (uint32_t)id
                              : b < 128 ? HTH_TEXT_CHARS + b
                                        : HTH_TEXT_BYTES + b;
    }
    tok->chars = hth_alloc(tok->words.n, sizeof *tok->chars);
    if (!tok->chars) return hth_fail_memory(err, tok->words.n * sizeof *tok->chars, "characters");
    for (size_t i = 0; i < tok->words.n; i++) { /* bytes and code points have the same order */
        hth_str entry = tok->token[tok->words.id[i]].entry;
        uint32_t cp;
        size_t length = hth_text_utf8_decode(entry.bytes, entry.n, &cp);
        if (length > 1 && length == entry.n)
            tok->chars[tok->n_char++] = (hth_text_char){cp, (uint32_t)tok->words.id[i]};
    }
    tok->space = char_symbol(tok, 0x2581);
    return HEARTH_OK;
}

/* The symbol of n bytes of a word, or UINT32_MAX if they cannot be one. */
static uint32_t part_symbol(const hth_tokenizer *tok, const char *bytes, size_t n, int32_t word)
{
    if (word >= 0) return (uint32_t)word;
    size_t used;
    uint32_t symbol = hth_text_symbol_at(tok, bytes, n, &used);
    return used == n ? symbol : UINT32_MAX;
}

/* Adds every split of a word into two symbols. */
static hearth_status add_merges(hth_tokenizer *tok, int32_t word, hearth_error *err)
{
    hth_str text = tok->token[word].entry;
    hth_prefix_iter iter;
    hth_prefix_iter_begin(&iter, &tok->words, (unsigned char)text.bytes[0]);
    for (size_t cut = 1; cut < text.n; cut++) {
        int32_t id = hth_prefix_iter_token(&iter, &tok->words, tok->token);
        uint32_t left = part_symbol(tok, text.bytes, cut, id);
        if (left != UINT32_MAX) {
            const char *rest = text.bytes + cut;
            id = hth_vocab_index_find(&tok->words, tok->token, rest, text.n - cut);
            uint32_t right = part_symbol(tok, rest, text.n - cut, id);
            if (right != UINT32_MAX) {
                hearth_status status = hth_merge_table_put(&tok->merges, left, right, word, err);
                if (status != HEARTH_OK) return status;
            }
        }
        hth_prefix_iter_next(&iter, &tok->words, tok->token, (unsigned char)text.bytes[cut]);
    }
    return HEARTH_OK;
}

/* Adds the adjacent characters of a word. */
static hearth_status add_joins(hth_tokenizer *tok, int32_t word, hearth_error *err)
{
    hth_str text = tok->token[word].entry;
    size_t used;
    uint32_t left = hth_text_symbol_at(tok, text.bytes, text.n, &used);
    for (size_t i = used; i < text.n; i += used) {
        uint32_t right = hth_text_symbol_at(tok, text.bytes + i, text.n - i, &used);
        hearth_status status = hth_merge_table_put(&tok->joins, left, right, 0, err);
        if (status != HEARTH_OK) return status;
        left = right;
    }
    return HEARTH_OK;
}

hearth_status hth_text_build_merges(hth_tokenizer *tok, hearth_error *err)
{
    hearth_status status = hth_text_list_characters(tok, err);
    for (size_t i = 0; i < tok->words.n && status == HEARTH_OK; i++) {
        status = add_merges(tok, tok->words.id[i], err);
        if (status == HEARTH_OK) status = add_joins(tok, tok->words.id[i], err);
    }
    return status;
}
