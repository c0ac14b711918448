/* Where special tokens lie in a text. Called by tokenize.c before anything else.
 * The rule (llama.cpp's): the longest token takes all its places first, from left
 * to right, then the next longest, among equals the lower id. Done in one pass
 * and a queue: each place offers its longest token, and a shorter one only once
 * the longer was lost to a neighbour. */
#include "text/internal.h"

#include "text/vocab_index.h"

typedef struct search {
    const hth_tokenizer *tok;
    const char *text;
    size_t n;
    const hth_text_span *frames; /* where control tokens count */
    size_t n_frame;
    hth_text_heap heap;
    unsigned char *taken; /* a bit per byte of the text */
    hearth_error *err;
} search;

/* The longest token of a lexicon at a place that fits into `room` bytes, or -1. */
static int32_t longest_in(const search *s, const hth_vocab_index *lex, size_t at, size_t capacity)
{
    if (lex->n == 0 || capacity == 0) return -1;
    const hth_text_token *token = s->tok->token;
    int32_t best = -1;
    hth_prefix_iter walk;
    bool on = hth_prefix_iter_begin(&walk, lex, (unsigned char)s->text[at]);
    while (on) {
        int32_t id = hth_prefix_iter_token(&walk, lex, token);
        if (id >= 0) best = id;
        on = walk.depth < capacity &&
             hth_prefix_iter_next(&walk, lex, token, (unsigned char)s->text[at + walk.depth]);
    }
    return best;
}

/* How many bytes of a frame there are from a place on; 0 outside of frames. */
static size_t frame_room(const search *s, size_t at)
{
    size_t low = 0, high = s->n_frame;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->frames[mid].end <= at) low = mid + 1;
        else high = mid;
    }
    return low < s->n_frame && s->frames[low].from <= at ? s->frames[low].end - at : 0;
}

/* The longest token that counts at a place. User-defined ones are looked for
 * apart, because they may reach past the end of a frame. */
static int32_t longest_at(const search *s, size_t at, size_t capacity)
{
    size_t frame = frame_room(s, at);
    int32_t special = longest_in(s, &s->tok->specials, at, frame < capacity ? frame : capacity);
    if (frame >= capacity) return special; /* these hold the user-defined ones too */
    int32_t user = longest_in(s, &s->tok->users, at, capacity);
    if (user < 0 || special < 0) return user < 0 ? special : user;
    const hth_text_token *token = s->tok->token;
    return token[user].entry.n > token[special].entry.n ? user : special;
}

static hearth_status queue_longest(search *s, size_t at, size_t capacity)
{
    int32_t id = longest_at(s, at, capacity);
    if (id < 0) return HEARTH_OK;
    /* longer before shorter, then by id; a text has at most HTH_TEXT_MAX_ENTRY bytes */
    uint32_t shorter = (uint32_t)(HTH_TEXT_MAX_ENTRY - s->tok->token[id].entry.n);
    hth_text_candidate c = {at, shorter * HTH_TEXT_MAX_VOCAB + (uint32_t)id, id};
    return hth_text_heap_push(&s->heap, c, s->err);
}

static bool is_taken(const search *s, size_t at) { return s->taken[at / 8] >> (at % 8) & 1; }

static void take(search *s, size_t at) { s->taken[at / 8] |= (unsigned char)(1u << (at % 8)); }

/* As C's isspace in the "C" locale. */
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* How many bytes from a place on are free, at most `limit`. */
static size_t free_room(const search *s, size_t at, size_t limit)
{
    size_t capacity = 0;
    while (capacity < limit && !is_taken(s, at + capacity)) capacity++;
    return capacity;
}

/* Gives a token its place, and the white space around it that it drops. */
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

/* By place; a heap sort, in place. */
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
        size_t capacity = free_room(s, at, length);
        if (capacity == length) {
            status = add_match(out, take_match(s, at, c.id), s->err);
        } else if (capacity > 0) {
            status = queue_longest(s, at, capacity);
        }
    }
    return status;
}

hearth_status hth_text_find_specials(const hth_tokenizer *tok, hth_str text, const hth_text_span *frames,
                                     size_t n_frame, hth_text_matches *out, hearth_error *err)
{
    if (tok->users.n == 0 && (n_frame == 0 || tok->specials.n == 0)) return HEARTH_OK;
    search s = {
        .tok = tok, .text = text.bytes, .n = text.n, .frames = frames, .n_frame = n_frame, .err = err};
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
