/* BPE. Called by tokenize.c for every raw fragment: pretokenizer.h splits it into words, and the symbols of each word
 * are merged by rank (merge.c). In byte-level vocabularies a symbol is a byte. In the others it is a character; one
 * without a token becomes its byte tokens. Bytes without a token are dropped and counted. A word costs no
 * allocation. */
#include "text/bpe/byte_map.h"
#include "text/internal.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>

/* ---- bytes ------------------------------------------------------------------------------------------------ */

/* Bytes of vocabulary text for one byte of a word. */
static size_t mapped_length(unsigned char byte) { return byte >= 0x21 && byte <= 0x7E ? 1 : 2; }

static int32_t find_word(const hth_tokenizer *tok, const char *text, size_t n)
{
    uint32_t id = hth_file_name_find(&tok->word_index, tok->token, sizeof *tok->token, (hth_str){text, n});
    return id == HTH_FILE_NAME_NONE ? -1 : (int32_t)id;
}

/* The token whose text is exactly the word, or -1. */
static int32_t whole_word(const hth_tokenizer *tok, const char *word, size_t n)
{
    char mapped[HTH_TEXT_MAX_ENTRY + 2];
    size_t n_mapped = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_mapped >= HTH_TEXT_MAX_ENTRY) return -1;
        n_mapped += hth_text_byte_char((unsigned char)word[i], mapped + n_mapped);
    }
    return find_word(tok, mapped, n_mapped);
}

/* The id of a remaining symbol, or of its byte token. */
static hearth_status emit_byte(const hth_tokenizer *tok, hth_tokenize_scratch *work, uint32_t symbol,
                               hth_ids *ids, hearth_error *err)
{
    int32_t id = symbol < HTH_TEXT_CHARS ? (int32_t)symbol : tok->byte_id[symbol - HTH_TEXT_BYTES];
    if (id >= 0) return hth_ids_push(ids, id, err);
    work->n_unencodable++;
    return HEARTH_OK;
}

static hearth_status encode_bytes(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *word,
                                  size_t n, hth_ids *ids, hearth_error *err)
{
    if (tok->flags & HTH_TEXT_WHOLE_WORDS) {
        int32_t id = whole_word(tok, word, n);
        if (id >= 0) return hth_ids_push(ids, id, err);
    }
    hearth_status status = HEARTH_OK;
    work->n = 0;
    for (size_t i = 0; i < n && status == HEARTH_OK; i++) {
        unsigned char byte = (unsigned char)word[i];
        status = hth_text_add_symbol(work, tok->byte_symbol[byte], mapped_length(byte), err);
    }
    if (status == HEARTH_OK) status = hth_text_merge_symbols(tok, work, err);
    for (uint32_t i = 0; i != UINT32_MAX && status == HEARTH_OK; i = work->symbol[i].next)
        status = emit_byte(tok, work, work->symbol[i].id, ids, err);
    return status;
}

/* ---- characters ------------------------------------------------------------------------------------------- */

static hearth_status emit_character(const hth_tokenizer *tok, hth_tokenize_scratch *work, uint32_t symbol,
                                    hth_ids *ids, hearth_error *err)
{
    if (symbol < HTH_TEXT_CHARS) return hth_ids_push(ids, (int32_t)symbol, err);
    char bytes[4] = {(char)(symbol - HTH_TEXT_BYTES)};
    const size_t n = symbol < HTH_TEXT_BYTES ? hth_text_utf8_encode(symbol - HTH_TEXT_CHARS, bytes) : 1;
    bool known = true;
    for (size_t i = 0; i < n; i++) known = known && tok->byte_id[(unsigned char)bytes[i]] >= 0;
    hearth_status status = HEARTH_OK;
    for (size_t i = 0; i < n && known && status == HEARTH_OK; i++)
        status = hth_ids_push(ids, tok->byte_id[(unsigned char)bytes[i]], err);
    if (!known) work->n_unencodable += n;
    return status;
}

/* *word becomes its lower case, in the scratch memory. */
static hearth_status lower_word(hth_tokenize_scratch *work, const char **word, size_t *n, hearth_error *err)
{
    void *text = work->text;
    hearth_status status =
        hth_text_grow(&text, &work->text_capacity, *n * 2 + 8, 1, err); /* U+0130: 3 bytes of 2 */
    if (status != HEARTH_OK) return status;
    work->text = text;
    work->n_text = 0;
    for (size_t i = 0, used; i < *n; i += used) {
        uint32_t cp, lower[HTH_UNICODE_MAX_LOWER];
        used = hth_text_utf8_decode(*word + i, *n - i, &cp);
        if (used == 0) work->text[work->n_text++] = (*word)[i];
        const size_t n_lower = used > 0 ? hth_unicode_lower(cp, lower) : 0;
        for (size_t k = 0; k < n_lower; k++)
            work->n_text += hth_text_utf8_encode(lower[k], work->text + work->n_text);
        if (used == 0) used = 1;
    }
    *word = work->text;
    *n = work->n_text;
    return HEARTH_OK;
}

static bool is_white(const char *word, size_t n)
{
    uint32_t cp = 0;
    return hth_text_utf8_decode(word, n, &cp) > 0 && hth_text_is_space(cp);
}

static hearth_status encode_characters(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *word,
                                       size_t n, hth_ids *ids, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    if (tok->drops_white && is_white(word, n)) return HEARTH_OK;
    if (tok->lower_case) status = lower_word(work, &word, &n, err);
    if (tok->flags & HTH_TEXT_WHOLE_LINES && word[0] == '\n') {
        int32_t id = find_word(tok, word, n);
        if (id >= 0) return hth_ids_push(ids, id, err);
    }
    work->n = 0;
    for (size_t i = 0, used; i < n && status == HEARTH_OK; i += used) {
        uint32_t symbol = hth_text_symbol_at(tok, word + i, n - i, &used);
        const bool escaped = word[i] == ' ' && tok->flags & HTH_TEXT_ESCAPES;
        status = hth_text_add_symbol(work, escaped ? tok->space : symbol, escaped ? 3 : used, err);
    }
    if (status == HEARTH_OK) status = hth_text_merge_symbols(tok, work, err);
    for (uint32_t i = 0; i != UINT32_MAX && status == HEARTH_OK; i = work->symbol[i].next)
        status = emit_character(tok, work, work->symbol[i].id, ids, err);
    return status;
}

/* ---- words ------------------------------------------------------------------------------------------------- */

hearth_status hth_text_bpe_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                  size_t n, hth_ids *ids, hearth_error *err)
{
    if (n == 0) return HEARTH_OK;
    hearth_status status = hth_pretok_iter_begin(&work->pretok, tok->pretokenizer, text, n, err);
    for (size_t n_word; status == HEARTH_OK;) {
        status = hth_pretok_iter_next(&work->pretok, &n_word, err);
        if (status != HEARTH_OK || n_word == 0) break;
        status = tok->flags & HTH_TEXT_CHARACTERS ? encode_characters(tok, work, text, n_word, ids, err)
                                                  : encode_bytes(tok, work, text, n_word, ids, err);
        text += n_word;
    }
    return status;
}
