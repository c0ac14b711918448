/* Sets of characters, and how they become sequences of bytes. The division into runs is that of Cox, "Regular
 * Expression Matching in the Wild" (2010): a range is cut where the length or a leading byte changes in its midst. */
#include "constrain/chars.h"

#include "text/utf8.h"

#include <string.h>

void hth_byte_set_add(hth_byte_set *s, uint32_t first, uint32_t last)
{
    for (uint32_t b = first; b <= last; b++) s->bits[b >> 6] |= UINT64_C(1) << (b & 63);
}

bool hth_char_set_add(hth_char_set *s, uint32_t first, uint32_t last)
{
    if (s->n == HTH_MAX_CHAR_RANGES) return false;
    s->range[s->n++] = (hth_char_range){first, last};
    return true;
}

static void sort(hth_char_set *s)
{
    for (size_t i = 1; i < s->n; i++) {
        hth_char_range r = s->range[i];
        size_t k = i;
        for (; k > 0 && s->range[k - 1].first > r.first; k--) s->range[k] = s->range[k - 1];
        s->range[k] = r;
    }
}

void hth_char_set_normalise(hth_char_set *s)
{
    sort(s);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        hth_char_range r = s->range[i];
        if (n > 0 && r.first <= s->range[n - 1].last + 1) {
            if (r.last > s->range[n - 1].last) s->range[n - 1].last = r.last;
        } else {
            s->range[n++] = r;
        }
    }
    s->n = n;
}

bool hth_char_set_invert(hth_char_set *s)
{
    hth_char_set other = {.n = 0};
    uint32_t from = 0;
    hth_char_set_normalise(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->range[i].first > from && !hth_char_set_add(&other, from, s->range[i].first - 1)) return false;
        from = s->range[i].last + 1;
    }
    if (from <= HTH_MAX_CODE_POINT && !hth_char_set_add(&other, from, HTH_MAX_CODE_POINT)) return false;
    *s = other;
    return true;
}

bool hth_char_set_remove(hth_char_set *s, uint32_t first, uint32_t last)
{
    return hth_char_set_invert(s) && hth_char_set_add(s, first, last) && hth_char_set_invert(s);
}

bool hth_char_set_has(const hth_char_set *s, uint32_t c)
{
    for (size_t i = 0; i < s->n; i++)
        if (c >= s->range[i].first && c <= s->range[i].last) return true;
    return false;
}

/* The last character of the first part into which a range is split for UTF-8; r.last: it is not split. add_runs splits
 * the part again until it forms one run of bytes. */
static uint32_t first_cut(hth_char_range r)
{
    static const uint32_t last_of_length[] = {0x7F, 0x7FF, 0xFFFF};
    for (size_t i = 0; i < 3; i++)
        if (r.first <= last_of_length[i] && r.last > last_of_length[i]) return last_of_length[i];
    if (r.last <= 0x7F) return r.last;
    for (unsigned bits = 6; bits <= 18; bits += 6) {
        uint32_t low = (UINT32_C(1) << bits) - 1;
        if ((r.first & ~low) == (r.last & ~low)) break;
        if ((r.first & low) != 0) return r.first | low;
        if ((r.last & low) != low) return (r.last & ~low) - 1;
    }
    return r.last;
}

static void add_runs(hth_char_range r, hth_utf8_run *runs, size_t *n)
{
    while (r.first <= r.last) {
        hth_char_range part = r;
        for (uint32_t cut; (cut = first_cut(part)) != part.last;) part.last = cut;
        hth_utf8_run *run = &runs[(*n)++];
        run->n = hth_text_utf8_encode(part.first, (char *)run->first);
        hth_text_utf8_encode(part.last, (char *)run->last);
        if (part.last == HTH_MAX_CODE_POINT) return;
        r.first = part.last + 1;
    }
}

size_t hth_utf8_runs(hth_char_range range, hth_utf8_run runs[HTH_MAX_UTF8_RUNS])
{
    size_t n = 0;
    hth_char_range below = range, above = range;
    if (below.last > 0xD7FF) below.last = 0xD7FF;
    if (above.first < 0xE000) above.first = 0xE000;
    if (below.first <= below.last) add_runs(below, runs, &n);
    if (above.first <= above.last) add_runs(above, runs, &n);
    return n;
}
