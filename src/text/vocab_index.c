/* Sorted token texts. Built by vocab.c; used by spm_vocab.c (which parts of a token are tokens) and by special.c
 * (which special token starts at a position). Uses its own merge sort, because qsort may allocate. */
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

/* Merges two adjacent sorted runs. Equal texts stay in the order of their ids. */
static void merge_runs(const hth_text_token *token, const int32_t *from, size_t low, size_t mid, size_t high,
                       int32_t *to)
{
    size_t a = low, b = mid;
    for (size_t i = low; i < high; i++) {
        bool left = b >= high || (a < mid && compare(token[from[a]].entry, token[from[b]].entry) <= 0);
        to[i] = left ? from[a++] : from[b++];
    }
}

/* Sorts id[0..n). Returns the buffer that holds the result: id or scratch. */
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

static void note_first_bytes(hth_vocab_index *index, const hth_text_token *token)
{
    size_t i = 0;
    for (unsigned b = 0; b < 256; b++) {
        index->first[b] = i;
        while (i < index->n && (unsigned char)token[index->id[i]].entry.bytes[0] == b) i++;
    }
    index->first[256] = index->n;
}

static bool belongs(const hth_text_token *t, unsigned kinds)
{
    return t->entry.n > 0 && (kinds >> t->kind & 1);
}

hearth_status hth_vocab_index_build(hth_vocab_index *index, const hth_text_token *token, int32_t n_token,
                                     unsigned kinds, size_t *n_double, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    size_t n = 0, n_kept = 0;
    for (int32_t i = 0; i < n_token; i++) n += belongs(&token[i], kinds);
    *n_double = 0;
    if (n == 0) return HEARTH_OK; /* the index stays empty */
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
        if (!same) id[n_kept++] = sorted[i]; /* n_kept <= i: also correct if sorted is id */
    }
    *n_double = n - n_kept;
    index->id = id;
    index->n = n_kept;
    id = NULL;
    note_first_bytes(index, token);
done:
    hth_free(scratch);
    hth_free(id);
    return status;
}

void hth_vocab_index_free(hth_vocab_index *index)
{
    hth_free(index->id);
    *index = (hth_vocab_index){0};
}

int32_t hth_vocab_index_find(const hth_vocab_index *index, const hth_text_token *token, const char *bytes,
                              size_t n)
{
    if (n == 0 || index->n == 0) return -1;
    hth_str wanted = {bytes, n};
    const unsigned first = (unsigned char)bytes[0];
    size_t low = index->first[first], high = index->first[first + 1];
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = compare(wanted, token[index->id[mid]].entry);
        if (order == 0) return index->id[mid];
        if (order < 0) high = mid;
        else low = mid + 1;
    }
    return -1;
}

bool hth_prefix_iter_begin(hth_prefix_iter *iter, const hth_vocab_index *index, unsigned char byte)
{
    *iter = (hth_prefix_iter){index->first[byte], index->first[byte + 1], 1};
    return iter->low < iter->high;
}

/* The first entry of [low, high) whose byte at the iterator's depth is at least `byte`. Texts that end there come
 * before all others. */
static size_t first_at_least(const hth_prefix_iter *iter, const hth_vocab_index *index,
                             const hth_text_token *token, size_t low, unsigned byte)
{
    size_t high = iter->high;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        hth_str text = token[index->id[mid]].entry;
        if (text.n <= iter->depth || (unsigned char)text.bytes[iter->depth] < byte) low = mid + 1;
        else high = mid;
    }
    return low;
}

bool hth_prefix_iter_next(hth_prefix_iter *iter, const hth_vocab_index *index, const hth_text_token *token,
                        unsigned char byte)
{
    size_t low = first_at_least(iter, index, token, iter->low, byte);
    size_t high = first_at_least(iter, index, token, low, byte + 1u);
    *iter = (hth_prefix_iter){low, high, iter->depth + 1};
    return low < high;
}

int32_t hth_prefix_iter_token(const hth_prefix_iter *iter, const hth_vocab_index *index,
                           const hth_text_token *token)
{
    int32_t id = index->id[iter->low];
    return token[id].entry.n == iter->depth ? id : -1;
}
