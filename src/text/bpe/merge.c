/* The merge algorithm for both kinds of vocabularies: the best adjacent pair becomes one symbol, the leftmost
 * among equals, until no pair is a merge. Called by spm.c for a run of characters and by bpe.c for a word. n
 * symbols produce at most 3 n candidates, so the time is O(n log n) for any text. */
#include "text/internal.h"

hearth_status hth_text_add_symbol(hth_tokenize_scratch *work, uint32_t id, size_t n_byte, hearth_error *err)
{
    if (work->n >= UINT32_MAX - 1)
        return hth_fail_memory(err, SIZE_MAX, "a run of more than 4,294,967,294 characters");
    void *symbols = work->symbol;
    hearth_status status = hth_text_grow(&symbols, &work->capacity, work->n + 1, sizeof *work->symbol, err);
    if (status != HEARTH_OK) return status;
    work->symbol = symbols;
    uint32_t at = (uint32_t)work->n++;
    work->symbol[at] = (hth_text_symbol){id, (uint32_t)n_byte, at - 1, UINT32_MAX};
    if (at > 0) work->symbol[at - 1].next = at;
    return HEARTH_OK;
}

/* Queues the word that a symbol and its right neighbour form, if any. */
static hearth_status queue_pair(const hth_tokenizer *tok, hth_tokenize_scratch *work, uint32_t left,
                                hearth_error *err)
{
    uint32_t right = left == UINT32_MAX ? UINT32_MAX : work->symbol[left].next;
    if (right == UINT32_MAX) return HEARTH_OK;
    int32_t merge = hth_merge_table_get(&tok->merges, work->symbol[left].id, work->symbol[right].id);
    if (merge < 0) return HEARTH_OK;
    const int32_t id = tok->merge_id ? tok->merge_id[merge] : merge;
    const uint32_t rank = tok->merge_id ? (uint32_t)merge : tok->token[id].rank;
    const hth_text_candidate c = {.at = left, .rank = rank, .id = id};
    return hth_text_heap_push(&work->heap, c, err);
}

/* A candidate is stale once either side was merged: the lengths then do not add up to the word's length. */
static bool is_stale(const hth_tokenizer *tok, const hth_tokenize_scratch *work, hth_text_candidate c)
{
    const hth_text_symbol *left = &work->symbol[c.at];
    if (left->n == 0 || left->next == UINT32_MAX) return true;
    return (size_t)left->n + work->symbol[left->next].n != tok->token[c.id].entry.n;
}

static void merge_right(hth_tokenize_scratch *work, uint32_t at, int32_t id)
{
    hth_text_symbol *left = &work->symbol[at], *right = &work->symbol[left->next];
    left->id = (uint32_t)id;
    left->n += right->n;
    left->next = right->next;
    right->n = 0;
    if (left->next != UINT32_MAX) work->symbol[left->next].prev = at;
}

hearth_status hth_text_merge_symbols(const hth_tokenizer *tok, hth_tokenize_scratch *work, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    for (uint32_t i = 0; i + 1 < work->n && status == HEARTH_OK; i++) status = queue_pair(tok, work, i, err);
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

void hth_tokenize_scratch_free(hth_tokenize_scratch *work)
{
    hth_pretok_iter_free(&work->pretok);
    hth_free(work->symbol);
    hth_free(work->text);
    hth_free(work->node);
    hth_text_heap_free(&work->heap);
    *work = (hth_tokenize_scratch){0};
}
