/* Texts with the origin of each byte, for all of jinja_*.c. A text is a list of spans that point at bytes owned
 * elsewhere. Concatenating and slicing copy spans, never bytes. Every operation that produces new bytes must copy
 * the origins: a byte that came from a message must never end up in a template span. */
#define _GNU_SOURCE
#include "chat/jinja.h"

#include "text/utf8.h"

#include <string.h>

static hth_jinja_spans *new_spans(hth_jinja *j, size_t capacity)
{
    if (capacity > HTH_TEMPLATE_MAX_MEMORY) capacity = HTH_TEMPLATE_MAX_MEMORY; /* more fails below */
    hth_jinja_spans *s = hth_jinja_alloc(j, 1, sizeof *s + capacity * sizeof s->span[0]);
    if (s) s->capacity = capacity;
    return s;
}

static hth_jinja_text *new_text(hth_jinja *j, hth_jinja_spans *spans, size_t n_span, size_t n)
{
    hth_jinja_text *t = hth_jinja_alloc(j, 1, sizeof *t);
    if (t) *t = (hth_jinja_text){.spans = spans, .n_span = n_span, .n = n, .flat = n_span <= 1};
    return t;
}

static bool check_size(hth_jinja *j, size_t a, size_t b)
{
    if (a <= HTH_TEMPLATE_MAX_OUTPUT && b <= HTH_TEMPLATE_MAX_OUTPUT - a) return true;
    return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "a text of more than %d MiB",
                          HTH_TEMPLATE_MAX_OUTPUT >> 20);
}

bool hth_jinja_text_of(hth_jinja *j, const char *p, size_t n, bool is_template, hth_jinja_value *out)
{
    if (!check_size(j, n, 0)) return false;
    hth_jinja_spans *s = new_spans(j, n > 0);
    hth_jinja_text *t = s ? new_text(j, s, n > 0, n) : NULL;
    if (!t) return false;
    if (n > 0) s->span[0] = (hth_jinja_span){p, n, is_template};
    s->used = n > 0;
    *out = (hth_jinja_value){JINJA_TEXT, {.text = t}};
    return true;
}

bool hth_jinja_text_word(hth_jinja *j, const char *word, hth_jinja_value *out)
{
    return hth_jinja_text_of(j, word, strlen(word), true, out);
}

/* ---- reading bytes ----------------------------------------------------------------------- */

static bool is_contiguous(const hth_jinja_text *t)
{
    for (size_t i = 1; i < t->n_span; i++)
        if (t->spans->span[i - 1].p + t->spans->span[i - 1].n != t->spans->span[i].p) return false;
    return true;
}

/* Keeps the contiguous copy, so that the next call costs nothing. Texts of several spans belong to one rendering,
 * so no other thread sees the change. */
const char *hth_jinja_bytes(hth_jinja *j, hth_jinja_text *t)
{
    if (t->n == 0) return "";
    if (t->flat) return t->spans->span[0].p;
    if (is_contiguous(t)) {
        t->flat = true;
        return t->spans->span[0].p;
    }
    if (!hth_jinja_count_bytes(j, t->n)) return NULL;
    char *copy = hth_jinja_alloc(j, t->n, 1);
    hth_jinja_spans *s = copy ? new_spans(j, t->n_span) : NULL;
    if (!s) return NULL;
    size_t at = 0;
    for (size_t i = 0; i < t->n_span; i++) {
        const hth_jinja_span *from = &t->spans->span[i];
        memcpy(copy + at, from->p, from->n);
        if (s->used > 0 && s->span[s->used - 1].is_template == from->is_template)
            s->span[s->used - 1].n += from->n;
        else s->span[s->used++] = (hth_jinja_span){copy + at, from->n, from->is_template};
        at += from->n;
    }
    t->spans = s;
    t->n_span = s->used;
    t->flat = true;
    return copy;
}

bool hth_jinja_text_is(hth_jinja *j, hth_jinja_text *t, const char *word, bool *is)
{
    size_t n = strlen(word);
    *is = false;
    if (t->n != n) return true;
    const char *p = hth_jinja_bytes(j, t);
    if (!p) return false;
    *is = memcmp(p, word, n) == 0;
    return true;
}

bool hth_jinja_search(hth_jinja *j, hth_jinja_text *t, hth_jinja_text *word, size_t from, size_t *at,
                      bool *found)
{
    const char *p = hth_jinja_bytes(j, t), *w = p ? hth_jinja_bytes(j, word) : NULL;
    if (!w) return false;
    const char *hit = memmem(p + from, t->n - from, w, word->n);
    *found = hit != NULL;
    *at = hit ? (size_t)(hit - p) : t->n;
    return hth_jinja_count_bytes(j, *at - from + word->n); /* counts the bytes read, not all remaining bytes */
}

bool hth_jinja_origin(const hth_jinja_text *t, hth_jinja_cursor *c, size_t at)
{
    if (c->until == 0 && t->n_span > 0) c->until = t->spans->span[0].n;
    while (at >= c->until && c->i_span + 1 < t->n_span) c->until += t->spans->span[++c->i_span].n;
    return t->n_span > 0 && t->spans->span[c->i_span].is_template;
}

/* ---- concatenating and slicing ---------------------------------------------------------------- */

/* Appends spans to those of *t, in place if *t is their last user. */
static bool append_spans(hth_jinja *j, hth_jinja_text *t, const hth_jinja_span *span, size_t n)
{
    if (n == 0) return true; /* so that spans which the tree may own are not written */
    if (!hth_jinja_count_bytes(j, n * sizeof *span)) return false;
    if (!t->spans || t->spans->used != t->n_span || t->spans->capacity - t->spans->used < n) {
        hth_jinja_spans *s = new_spans(j, 2 * (t->n_span + n));
        if (!s) return false;
        if (t->n_span) memcpy(s->span, t->spans->span, t->n_span * sizeof *span);
        s->used = t->n_span;
        t->spans = s;
    }
    memcpy(t->spans->span + t->n_span, span, n * sizeof *span);
    t->n_span += n;
    t->spans->used = t->n_span;
    return true;
}

bool hth_jinja_concat(hth_jinja *j, const hth_jinja_text *a, const hth_jinja_text *b, hth_jinja_value *out)
{
    if (!check_size(j, a->n, b->n)) return false;
    hth_jinja_text *t = new_text(j, a->spans, a->n_span, a->n + b->n);
    if (!t || !append_spans(j, t, b->spans->span, b->n_span)) return false;
    t->flat = t->n_span <= 1;
    *out = (hth_jinja_value){JINJA_TEXT, {.text = t}};
    return true;
}

bool hth_jinja_cut(hth_jinja *j, hth_jinja_text *t, size_t from, size_t to, hth_jinja_value *out)
{
    size_t first = 0, before = 0, n = to > from ? to - from : 0;
    while (first < t->n_span && before + t->spans->span[first].n <= from) before += t->spans->span[first++].n;
    size_t last = first, end = before;
    while (last < t->n_span && end < to) end += t->spans->span[last++].n;
    hth_jinja_spans *s = hth_jinja_count_steps(j, last / 16) ? new_spans(j, n > 0 ? last - first : 0) : NULL;
    if (!s) return false;
    for (size_t i = first, at = before; i < last && n > 0; at += t->spans->span[i++].n) {
        hth_jinja_span span = t->spans->span[i];
        size_t skip = from > at ? from - at : 0, stop = to - at < span.n ? to - at : span.n;
        s->span[s->used++] = (hth_jinja_span){span.p + skip, stop - skip, span.is_template};
    }
    hth_jinja_text *cut = new_text(j, s, s->used, n);
    if (!cut) return false;
    cut->markup = t->markup;
    *out = (hth_jinja_value){JINJA_TEXT, {.text = cut}};
    return true;
}

bool hth_jinja_map_bytes(hth_jinja *j, hth_jinja_text *t, hth_jinja_map_fn *map, hth_jinja_value *out)
{
    const char *p = hth_jinja_bytes(j, t);
    if (!p || !hth_jinja_count_bytes(j, t->n)) return false;
    char *copy = hth_jinja_alloc(j, t->n + 1, 1);
    hth_jinja_spans *s = copy ? new_spans(j, t->n_span) : NULL;
    if (!s) return false;
    for (size_t i = 0; i < t->n; i++) copy[i] = map(p[i], i > 0 ? (unsigned char)p[i - 1] : -1);
    for (size_t i = 0, at = 0; i < t->n_span; at += t->spans->span[i++].n)
        s->span[i] = (hth_jinja_span){copy + at, t->spans->span[i].n, t->spans->span[i].is_template};
    s->used = t->n_span;
    hth_jinja_text *mapped = new_text(j, s, t->n_span, t->n);
    if (!mapped) return false;
    mapped->markup = t->markup;
    *out = (hth_jinja_value){JINJA_TEXT, {.text = mapped}};
    return true;
}

/* ---- building ---------------------------------------------------------------------------------- */

/* Ensures capacity for n more bytes, which the builder copies. */
static bool reserve(hth_jinja *j, hth_jinja_strbuf *b, size_t n)
{
    if ((size_t)(b->end - b->at) >= n) return true;
    size_t capacity = n > b->text.n ? n : b->text.n;
    if (capacity > 4096 && capacity > n) capacity = n > 4096 ? n : 4096;
    if (capacity < 128) capacity = 128;
    b->at = hth_jinja_alloc(j, capacity, 1);
    b->end = b->at ? b->at + capacity : NULL;
    return b->at != NULL;
}

bool hth_jinja_strbuf_bytes(hth_jinja *j, hth_jinja_strbuf *b, const char *p, size_t n, bool is_template)
{
    if (n == 0) return true;
    if (!check_size(j, b->text.n, n) || !hth_jinja_count_bytes(j, n) || !reserve(j, b, n)) return false;
    memcpy(b->at, p, n);
    hth_jinja_text *t = &b->text;
    hth_jinja_span *last = t->n_span ? &t->spans->span[t->n_span - 1] : NULL;
    hth_jinja_span span = {b->at, n, is_template};
    b->at += n;
    t->n += n;
    if (!last || last->is_template != is_template || last->p + last->n != span.p)
        return append_spans(j, t, &span, 1);
    last->n += n;
    return true;
}

bool hth_jinja_strbuf_text(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_text *t)
{
    if (t->n == 0) return true;
    if (!check_size(j, b->text.n, t->n) || !append_spans(j, &b->text, t->spans->span, t->n_span))
        return false;
    b->text.n += t->n;
    return true;
}

bool hth_jinja_strbuf_value(hth_jinja *j, hth_jinja_strbuf *b, hth_jinja_value *out)
{
    if (!b->text.spans) return hth_jinja_text_of(j, "", 0, true, out);
    b->text.spans->capacity = b->text.spans->used; /* the builder may still extend the last span */
    hth_jinja_text *t = new_text(j, b->text.spans, b->text.n_span, b->text.n);
    *out = (hth_jinja_value){JINJA_TEXT, {.text = t}};
    *b = (hth_jinja_strbuf){0};
    return t != NULL;
}

/* ---- characters ------------------------------------------------------------------------------------ */

size_t hth_jinja_char_size(const char *p, size_t n)
{
    uint32_t ignored;
    if (n == 0) return 0;
    size_t size = (unsigned char)*p < 0x80 ? 1 : hth_text_utf8_decode(p, n, &ignored);
    return size ? size : 1;
}

size_t hth_jinja_n_char(const char *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i += hth_jinja_char_size(p + i, n - i)) count++;
    return count;
}

size_t hth_jinja_char_at(const char *p, size_t n, size_t i)
{
    size_t at = 0;
    while (i-- > 0 && at < n) at += hth_jinja_char_size(p + at, n - at);
    return at;
}

size_t hth_jinja_space_size(const char *p, size_t n)
{
    uint32_t c = n > 0 ? (unsigned char)*p : 0;
    size_t size = c < 0x80 ? 1 : hth_text_utf8_decode(p, n, &c);
    bool space = (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
                 c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
                 c == 0x205F || c == 0x3000;
    return space ? size : 0;
}

/* Size of the character at p if it is to be stripped, else 0. */
static size_t strip_size(const char *p, size_t n, const char *set, size_t n_set)
{
    if (!set) return hth_jinja_space_size(p, n);
    size_t size = hth_jinja_char_size(p, n);
    for (size_t i = 0, k; i < n_set; i += k) {
        k = hth_jinja_char_size(set + i, n_set - i);
        if (k == size && memcmp(set + i, p, k) == 0) return size;
    }
    return 0;
}

/* Start of the character that ends at `end`. */
static size_t char_before(const char *p, size_t end)
{
    for (size_t k = 2; k <= 4 && k <= end; k++)
        if (hth_jinja_char_size(p + end - k, k) == k) return end - k;
    return end - 1;
}

/* Counts work on n more bytes; *work holds the rest that is not a whole step yet. */
static bool count_work(hth_jinja *j, size_t *work, size_t n)
{
    *work += n;
    bool ok = hth_jinja_count_bytes(j, *work);
    *work %= 256;
    return ok;
}

/* Each character may be compared with the whole set, so the work is counted during the loop. */
bool hth_jinja_strip(hth_jinja *j, hth_jinja_text *t, hth_jinja_text *set, int sides, hth_jinja_value *out)
{
    const char *p = hth_jinja_bytes(j, t), *chars = NULL;
    if (!p) return false;
    if (set && (chars = hth_jinja_bytes(j, set)) == NULL) return false;
    size_t from = 0, to = t->n, work = 0, n_set = set ? set->n : 0;
    const size_t cost = 2 + 4 * n_set; /* a step in the set takes longer than a byte */
    while (sides & 1 && from < to) {
        if (!count_work(j, &work, cost)) return false;
        size_t size = strip_size(p + from, to - from, chars, n_set);
        if (size == 0) break;
        from += size;
    }
    while (sides & 2 && from < to) {
        size_t at = char_before(p, to);
        if (!count_work(j, &work, cost)) return false;
        if (at < from || strip_size(p + at, to - at, chars, n_set) != to - at) break;
        to = at;
    }
    return hth_jinja_cut(j, t, from, to, out);
}
