/* Merges by score, like sentencepiece's BPE with byte fallback. Called by tokenize.c for every raw fragment. Runs
 * of spaces all have one score, so the tie rule of merge.c determines how indented code is split.
 *
 * The text is processed in runs. A run ends where no word contains the two characters on either side: no merge can
 * cross such a position, so the ids are those of the whole text and the heap stays small. */
#include "text/internal.h"

#include "text/utf8.h"

enum { NONE = -1 };

static hearth_status emit_byte(const hth_tokenizer *tok, hth_tokenize_scratch *work, unsigned char byte,
                               hth_ids *ids, hearth_error *err)
{
    int32_t id = tok->byte_id[byte];
    if (id == NONE) {
        work->n_unencodable++;
        id = tok->unknown;
    }
    return id == NONE ? HEARTH_OK : hth_ids_push(ids, id, err);
}

static hearth_status emit_symbol(const hth_tokenizer *tok, hth_tokenize_scratch *work, uint32_t symbol,
                                 hth_ids *ids, hearth_error *err)
{
    if (symbol < HTH_TEXT_CHARS) return hth_ids_push(ids, (int32_t)symbol, err);
    if (symbol >= HTH_TEXT_BYTES)
        return emit_byte(tok, work, (unsigned char)(symbol - HTH_TEXT_BYTES), ids, err);
    char bytes[4];
    size_t n = hth_text_utf8_encode(symbol - HTH_TEXT_CHARS, bytes);
    hearth_status status = HEARTH_OK;
    for (size_t i = 0; i < n && status == HEARTH_OK; i++)
        status = emit_byte(tok, work, (unsigned char)bytes[i], ids, err);
    return status;
}

/* Merges the collected run, appends its ids and clears it. */
static hearth_status emit_merged_run(const hth_tokenizer *tok, hth_tokenize_scratch *work, hth_ids *ids,
                                     hearth_error *err)
{
    if (work->n == 0) return HEARTH_OK;
    hearth_status status = hth_text_merge_symbols(tok, work, err);
    for (uint32_t i = 0; i != UINT32_MAX && status == HEARTH_OK; i = work->symbol[i].next)
        status = emit_symbol(tok, work, work->symbol[i].id, ids, err);
    work->n = 0;
    return status;
}

hearth_status hth_text_spm_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                  size_t n, hth_ids *ids, hearth_error *err)
{
    if (n == 0) return HEARTH_OK;
    hearth_status status = HEARTH_OK;
    if (tok->add_space_prefix) status = hth_text_add_symbol(work, tok->space, 3, err);
    for (size_t i = 0, used; i < n && status == HEARTH_OK; i += used) {
        uint32_t symbol = hth_text_symbol_at(tok, text + i, n - i, &used);
        bool space = text[i] == ' ';
        if (space) symbol = tok->space;
        if (work->n > 0 &&
            hth_merge_table_get(&tok->joins, work->symbol[work->n - 1].id, symbol) == NONE)
            status = emit_merged_run(tok, work, ids, err);
        if (status == HEARTH_OK) status = hth_text_add_symbol(work, symbol, space ? 3 : used, err);
    }
    if (status == HEARTH_OK) status = emit_merged_run(tok, work, ids, err);
    return status;
}
