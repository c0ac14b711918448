/* Merging by score, as sentencepiece's BPE with byte fallback does it. Called by
 * tokenizer.c for every raw fragment. The best pair is merged first, the leftmost
 * among equals: runs of spaces all have one score, so the tie rule decides how
 * indented code is cut.
 *
 * The text is taken in runs that end where no word holds the two characters on
 * either side: no merge can cross such a place, so the ids are those of the whole
 * and the heap stays small. */
#include "text/internal.h"

#include "text/utf8.h"

enum { NONE = -1 };

static hearth_status add_symbol(hth_text_work *work, uint32_t id, size_t n_byte, hearth_error *err)
{
    if (work->n >= UINT32_MAX - 1)
        return hth_fail_memory(err, SIZE_MAX, "a run of more than 4,294,967,294 characters");
    void *symbols = work->symbol;
    hearth_status status =
        hth_text_grow(&symbols, &work->capacity, work->n + 1, sizeof *work->symbol, err);
    if (status != HEARTH_OK) return status;
    work->symbol = symbols;
    uint32_t at = (uint32_t)work->n++;
    work->symbol[at] = (hth_text_symbol){id, (uint32_t)n_byte, at - 1, UINT32_MAX};
    if (at > 0) work->symbol[at - 1].next = at;
    return HEARTH_OK;
}

/* Queues the word that a symbol and its right neighbour make, if any. */
static hearth_status queue_pair(const hth_tokenizer *tok, hth_text_work *work, uint32_t left,
                                hearth_error *err)
{
    uint32_t right = left == UINT32_MAX ? UINT32_MAX : work->symbol[left].next;
    if (right == UINT32_MAX) return HEARTH_OK;
    int32_t id = hth_text_pairs_get(&tok->merges, work->symbol[left].id, work->symbol[right].id);
    if (id == NONE) return HEARTH_OK;
    hth_text_candidate c = {.at = left, .rank = tok->token[id].rank, .id = id};
    return hth_text_heap_push(&work->heap, c, err);
}

/* A candidate is stale once either side was merged: the lengths no longer add up
 * to the word's. */
static bool is_stale(const hth_tokenizer *tok, const hth_text_work *work, hth_text_candidate c)
{
    const hth_text_symbol *left = &work->symbol[c.at];
    if (left->n == 0 || left->next == UINT32_MAX) return true;
    return (size_t)left->n + work->symbol[left->next].n != tok->token[c.id].entry.n;
}

static void merge_right(hth_text_work *work, uint32_t at, int32_t id)
{
    hth_text_symbol *left = &work->symbol[at], *right = &work->symbol[left->next];
    left->id = (uint32_t)id;
    left->n += right->n;
    left->next = right->next;
    right->n = 0;
    if (left->next != UINT32_MAX) work->symbol[left->next].prev = at;
}

static hearth_status merge_run(const hth_tokenizer *tok, hth_text_work *work, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    for (uint32_t i = 0; i + 1 < work->n && status == HEARTH_OK; i++)
        status = queue_pair(tok, work, i, err);
    hth_text_candidate c;
    while (status == HEARTH_OK && hth_text_heap_pop(&work->heap, &c)) {
        if (is_stale(tok, work, c)) continue;
        uint32_t at = (uint32_t)c.at;
        merge_right(work, at, c.id);
        status = queue_pair(tok, work, work->symbol[at].prev, err);
        if (status == HEARTH_OK) status = queue_pair(tok, work, at, err);
    }
    return status;
}

static hearth_status emit_byte(const hth_tokenizer *tok, hth_text_work *work, unsigned char byte,
                               hth_ids *ids, hearth_error *err)
{
    int32_t id = tok->byte_id[byte];
    if (id == NONE) {
        work->n_lost++;
        id = tok->unknown;
    }
    return id == NONE ? HEARTH_OK : hth_ids_push(ids, id, err);
}

static hearth_status emit_symbol(const hth_tokenizer *tok, hth_text_work *work, uint32_t symbol,
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

/* Merges the run that was collected, appends its ids and forgets it. */
static hearth_status finish_run(const hth_tokenizer *tok, hth_text_work *work, hth_ids *ids,
                                hearth_error *err)
{
    if (work->n == 0) return HEARTH_OK;
    hearth_status status = merge_run(tok, work, err);
    for (uint32_t i = 0; i != UINT32_MAX && status == HEARTH_OK; i = work->symbol[i].next)
        status = emit_symbol(tok, work, work->symbol[i].id, ids, err);
    work->n = 0;
    return status;
}

hearth_status hth_text_spm_encode(const hth_tokenizer *tok, hth_text_work *work, const char *text,
                                  size_t n, hth_ids *ids, hearth_error *err)
{
    if (n == 0) return HEARTH_OK;
    hearth_status status = HEARTH_OK;
    if (tok->add_space_prefix) status = add_symbol(work, tok->space, 3, err);
    for (size_t i = 0, used; i < n && status == HEARTH_OK; i += used) {
        uint32_t symbol = hth_text_symbol_at(tok, text + i, n - i, &used);
        bool space = text[i] == ' ';
        if (space) symbol = tok->space;
        if (work->n > 0 &&
            hth_text_pairs_get(&tok->joins, work->symbol[work->n - 1].id, symbol) == NONE)
            status = finish_run(tok, work, ids, err);
        if (status == HEARTH_OK) status = add_symbol(work, symbol, space ? 3 : used, err);
    }
    if (status == HEARTH_OK) status = finish_run(tok, work, ids, err);
    return status;
}

void hth_text_work_free(hth_text_work *work)
{
    hth_free(work->symbol);
    hth_text_heap_free(&work->heap);
    *work = (hth_text_work){0};
}
