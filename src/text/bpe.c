/* Byte-level BPE. Called by tokenize.c for every raw fragment: pretokenizer.h splits it into words, and the bytes
 * of each word are merged by rank (merge.c). Bytes without a symbol in the vocabulary are dropped and counted. A
 * word costs no allocation. */
#include "text/byte_map.h"
#include "text/internal.h"

/* Bytes of vocabulary text for one byte of a word. */
static size_t mapped_length(unsigned char byte) { return byte >= 0x21 && byte <= 0x7E ? 1 : 2; }

/* The token whose text is exactly the word, or -1. */
static int32_t whole_word(const hth_tokenizer *tok, const char *word, size_t n)
{
    char mapped[HTH_TEXT_MAX_ENTRY + 2];
    size_t n_mapped = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_mapped >= HTH_TEXT_MAX_ENTRY) return -1;
        n_mapped += hth_text_byte_char((unsigned char)word[i], mapped + n_mapped);
    }
    uint32_t id =
        hth_file_name_find(&tok->word_index, tok->token, sizeof *tok->token, (hth_str){mapped, n_mapped});
    return id == HTH_FILE_NAME_NONE ? -1 : (int32_t)id;
}

/* The id of a remaining symbol, or of its byte token. */
static hearth_status emit(const hth_tokenizer *tok, hth_tokenize_scratch *work, uint32_t symbol, hth_ids *ids,
                          hearth_error *err)
{
    int32_t id = symbol < HTH_TEXT_CHARS ? (int32_t)symbol : tok->byte_id[symbol - HTH_TEXT_BYTES];
    if (id >= 0) return hth_ids_push(ids, id, err);
    work->n_unencodable++;
    return HEARTH_OK;
}

static hearth_status encode_word(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *word, size_t n,
                                 hth_ids *ids, hearth_error *err)
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
        status = emit(tok, work, work->symbol[i].id, ids, err);
    return status;
}

hearth_status hth_text_bpe_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text, size_t n,
                                  hth_ids *ids, hearth_error *err)
{
    if (n == 0) return HEARTH_OK;
    hearth_status status = hth_pretok_iter_begin(&work->pretok, tok->pretokenizer, text, n, err);
    for (size_t n_word; status == HEARTH_OK;) {
        status = hth_pretok_iter_next(&work->pretok, &n_word, err);
        if (status != HEARTH_OK || n_word == 0) break;
        status = encode_word(tok, work, text, n_word, ids, err);
        text += n_word;
    }
    return status;
}
