/* Sorted token texts. Built by vocab.c; used by spm_vocab.c (which parts of a token are
 * tokens) and by special.c (which special token begins at a place of a text). Sorted by
 * own merge sort: qsort may allocate behind our back. */
#include "text/vocab_index.h"

#include "base/alloc.h"

#include <string.h>

static int compare(hth_str a, hth_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = memcmp(a.bytes, b.bytes, n);
    if (order != 0) return order;
    return a.n < b.n ? -1 : a.n > b.n;
}

/* Merges two sorted neighbours; equal texts stay in the order of their ids. */
static void merge_runs(const hth_text_token *token, const int32_t *from, size_t low, size_t mid, size_t high,
                       int32_t *to)
{
    size_t a = low, b = mid;
    for (size_t i = low; i < high; i++) {
        bool left = b >= high || (a < mid && compare(token[from[a]].entry, token[from[b]].entry) <= 0);
        to[i] = left ? from[a++] : from[b++];
    }
}

/* Sorts id[0..n) and returns where the result lies: id or scratch. */
static int32_t *sort_texts(const hth_text_token *token, int32_t *id, int32_t *scratch, size_t n)
{
    int32_t *from = id, *to = scratch;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t mid = low + width < n ? low + width : n;
            size_t high = mid + width < n ? mid + width : n;
            merge_runs(token, from, low, mid, high, to);
        }
        int32_t *t = from;
        from = to;
        to = t;
    }
    return from;
}

static void note_first_bytes(hth_vocab_index *lex, const hth_text_token *token)
{
    size_t i = 0;
    for (unsigned b = 0; b < 256; b++) {
        lex->first[b] = i;
        while (i < lex->n && (unsigned char)token[lex->id[i]].entry.bytes[0] == b) i++;
    }
    lex->first[256] = lex->n;
}

static bool belongs(const hth_text_token *t, unsigned kinds)
{
    return t->entry.n > 0 && (kinds >> t->kind & 1);
}

hearth_status hth_vocab_index_build(hth_vocab_index *lex, const hth_text_token *token, int32_t n_token,
                                     unsigned kinds, size_t *n_double, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    size_t n = 0, n_kept = 0;
    for (int32_t i = 0; i < n_token; i++) n += belongs(&token[i], kinds);
    *n_double = 0;
    if (n == 0) return HEARTH_OK; /* lex stays empty */
    int32_t *id = hth_alloc(n, sizeof *id), *scratch = hth_alloc(n, sizeof *scratch);
    if (!id || !scratch) {
        status = hth_fail_memory(err, 2 * n * sizeof *id, "sorted token texts");
        goto done;
    }
    n = 0;
    for (int32_t i = 0; i < n_token; i++)
        if (belongs(&token[i], kinds)) id[n++] = i;
    const int32_t *sorted = sort_texts(token, id, scratch, n);
    for (size_t i = 0; i < n; i++) {
        bool same = n_kept > 0 && compare(token[id[n_kept - 1]].entry, token[sorted[i]].entry) == 0;
        if (!same) id[n_kept++] = sorted[i]; /* n_kept <= i: also right where sorted is id */
    }
    *n_double = n - n_kept;
    lex->id = id;
    lex->n = n_kept;
    id = NULL;
    note_first_bytes(lex, token);
done:
    hth_free(scratch);
    hth_free(id);
    return status;
}

void hth_vocab_index_free(hth_vocab_index *lex)
{
    hth_free(lex->id);
    *lex = (hth_vocab_index){0};
}

int32_t hth_vocab_index_find(const hth_vocab_index *lex, const hth_text_token *token, const char *bytes,
                              size_t n)
{
    if (n == 0 || lex->n == 0) return -1;
    hth_str wanted = {bytes, n};
    const unsigned first = (unsigned char)bytes[0];
    size_t low = lex->first[first], high = lex->first[first + 1];
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = compare(wanted, token[lex->id[mid]].entry);
        if (order == 0) return lex->id[mid];
        if (order < 0) high = mid;
        else low = mid + 1;
    }
    return -1;
}

bool hth_prefix_iter_begin(hth_prefix_iter *walk, const hth_vocab_index *lex, unsigned char byte)
{
    *walk = (hth_prefix_iter){lex->first[byte], lex->first[byte + 1], 1};
    return walk->low < walk->high;
}

/* The first entry of [low, high) whose byte at the walk's depth is at least
 * `byte`; texts that end there come before all others. */
static size_t first_at_least(const hth_prefix_iter *walk, const hth_vocab_index *lex,
                             const hth_text_token *token, size_t low, unsigned byte)
{
    size_t high = walk->high;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        hth_str text = token[lex->id[mid]].entry;
        if (text.n <= walk->depth || (unsigned char)text.bytes[walk->depth] < byte) low = mid + 1;
        else high = mid;
    }
    return low;
}

bool hth_prefix_iter_next(hth_prefix_iter *walk, const hth_vocab_index *lex, const hth_text_token *token,
                        unsigned char byte)
{
    size_t low = first_at_least(walk, lex, token, walk->low, byte);
    size_t high = first_at_least(walk, lex, token, low, byte + 1u);
    *walk = (hth_prefix_iter){low, high, walk->depth + 1};
    return low < high;
}

int32_t hth_prefix_iter_token(const hth_prefix_iter *walk, const hth_vocab_index *lex,
                           const hth_text_token *token)
{
    int32_t id = lex->id[walk->low];
    return token[id].entry.n == walk->depth ? id : -1;
}
