/* Finds special tokens in a text. Called by tokenize.c before anything else. The rule is that of llama.cpp: the
 * longest token takes all its positions first, from left to right, then the next longest, among equals the lower
 * id. One pass and a queue: each position offers its longest token, and a shorter one only if the longer one lost
 * its bytes to a neighbour. */
#include "text/internal.h"

#include "text/vocab_index.h"

typedef struct search {
    const hth_tokenizer *tok;
    const char *text;
    size_t n;
    const hth_text_span *spans; /* [n_span] parts of the text in which control tokens are recognised */
    size_t n_span;
    hth_text_heap heap;
    unsigned char *taken; /* one bit per byte of the text */
    hearth_error *err;
} search;

/* The longest token of an index at a position that fits into `capacity` bytes, or -1. */
static int32_t longest_in(const search *s, const hth_vocab_index *index, size_t at, size_t capacity)
{
    if (index->n == 0 || capacity == 0) return -1;
    const hth_text_token *token = s->tok->token;
    int32_t best = -1;
    hth_prefix_iter iter;
    bool on = hth_prefix_iter_begin(&iter, index, (unsigned char)s->text[at]);
    while (on) {
        int32_t id = hth_prefix_iter_token(&iter, index, token);
        if (id >= 0) best = id;
        on = iter.depth < capacity &&
             hth_prefix_iter_next(&iter, index, token, (unsigned char)s->text[at + iter.depth]);
    }
    return best;
}

/* Bytes of template text from a position on; 0 outside of template text. */
static size_t template_bytes_at(const search *s, size_t at)
{
    size_t low = 0, high = s->n_span;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->spans[mid].end <= at) low = mid + 1;
        else high = mid;
    }
    return low < s->n_span && s->spans[low].from <= at ? s->spans[low].end - at : 0;
}

/* The longest token at a position. User-defined tokens are searched separately, because they may reach past the
 * end of template text. */
static int32_t longest_at(const search *s, size_t at, size_t capacity)
{
    size_t n_template = template_bytes_at(s, at);
    int32_t special = longest_in(s, &s->tok->specials, at, n_template < capacity ? n_template : capacity);
    if (n_template >= capacity) return special; /* specials contain the user-defined ones too */
    int32_t user = longest_in(s, &s->tok->users, at, capacity);
    if (user < 0 || special < 0) return user < 0 ? special : user;
    const hth_text_token *token = s->tok->token;
    return token[user].entry.n > token[special].entry.n ? user : special;
}

static hearth_status queue_longest(search *s, size_t at, size_t capacity)
{
    int32_t id = longest_at(s, at, capacity);
    if (id < 0) return HEARTH_OK;
    /* longer before shorter, then by id; a token has at most HTH_TEXT_MAX_ENTRY bytes */
    uint32_t shorter = (uint32_t)(HTH_TEXT_MAX_ENTRY - s->tok->token[id].entry.n);
    hth_text_candidate c = {at, shorter * HTH_TEXT_MAX_VOCAB + (uint32_t)id, id};
    return hth_text_heap_push(&s->heap, c, s->err);
}

static bool is_taken(const search *s, size_t at) { return s->taken[at / 8] >> (at % 8) & 1; }

static void take(search *s, size_t at) { s->taken[at / 8] |= (unsigned char)(1u << (at % 8)); }

/* isspace of the "C" locale. */
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Number of free bytes from a position on, at most `limit`. */
static size_t n_free_bytes(const search *s, size_t at, size_t limit)
{
    size_t capacity = 0;
    while (capacity < limit && !is_taken(s, at + capacity)) capacity++;
    return capacity;
}

/* Takes the bytes of a token, and the white space that it strips. */
static hth_text_match take_match(search *s, size_t at, int32_t id)
{
    const hth_text_token *t = &s->tok->token[id];
    hth_text_match m = {at, at + t->entry.n, id};
    for (size_t i = at; i < m.end; i++) take(s, i);
    if (t->rstrip)
        for (; m.end < s->n && is_space(s->text[m.end]) && !is_taken(s, m.end); m.end++) take(s, m.end);
    if (t->lstrip)
        for (; m.at > 0 && is_space(s->text[m.at - 1]) && !is_taken(s, m.at - 1); m.at--) take(s, m.at - 1);
    return m;
}

static hearth_status add_match(hth_text_matches *out, hth_text_match m, hearth_error *err)
{
    void *matches = out->match;
    hearth_status status = hth_text_grow(&matches, &out->capacity, out->n + 1, sizeof m, err);
    if (status != HEARTH_OK) return status;
    out->match = matches;
    out->match[out->n++] = m;
    return HEARTH_OK;
}

/* Sorts by position: an in-place heapsort. */
static void sort_matches(hth_text_match *m, size_t n)
{
    for (size_t unsorted = n, root = n / 2; unsorted > 1;) {
        if (root > 0) {
            root--;
        } else {
            hth_text_match last = m[--unsorted];
            m[unsorted] = m[0];
            m[0] = last;
        }
        hth_text_match moved = m[root];
        size_t i = root;
        for (size_t child; (child = 2 * i + 1) < unsorted; i = child) {
            if (child + 1 < unsorted && m[child + 1].at > m[child].at) child++;
            if (m[child].at <= moved.at) break;
            m[i] = m[child];
        }
        m[i] = moved;
    }
}

static hearth_status assign_places(search *s, hth_text_matches *out)
{
    hearth_status status = HEARTH_OK;
    hth_text_candidate c;
    while (status == HEARTH_OK && hth_text_heap_pop(&s->heap, &c)) {
        size_t at = (size_t)c.at, length = s->tok->token[c.id].entry.n;
        size_t capacity = n_free_bytes(s, at, length);
        if (capacity == length) {
            status = add_match(out, take_match(s, at, c.id), s->err);
        } else if (capacity > 0) {
            status = queue_longest(s, at, capacity);
        }
    }
    return status;
}

hearth_status hth_text_find_specials(const hth_tokenizer *tok, hth_str text, const hth_text_span *spans,
                                     size_t n_span, hth_text_matches *out, hearth_error *err)
{
    if (tok->users.n == 0 && (n_span == 0 || tok->specials.n == 0)) return HEARTH_OK;
    search s = {
        .tok = tok, .text = text.bytes, .n = text.n, .spans = spans, .n_span = n_span, .err = err};
    const size_t n = text.n;
    hearth_status status = HEARTH_OK;
    for (size_t at = 0; at < n && status == HEARTH_OK; at++) status = queue_longest(&s, at, n - at);
    if (status != HEARTH_OK || s.heap.n == 0) goto done;

    s.taken = hth_alloc(n / 8 + 1, 1);
    if (!s.taken) {
        status = hth_fail_memory(err, n / 8 + 1, "special tokens");
        goto done;
    }
    status = assign_places(&s, out);
    if (status == HEARTH_OK) sort_matches(out->match, out->n);
done:
    hth_free(s.taken);
    hth_text_heap_free(&s.heap);
    return status;
}

void hth_text_matches_free(hth_text_matches *matches)
{
    hth_free(matches->match);
    *matches = (hth_text_matches){0};
}
