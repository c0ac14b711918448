/* UTF-8, one character at a time. Called by the tokenizer for every character and by the detokenizer for every
 * token. The allowed second bytes (Unicode 15, table 3-7) exclude overlong forms, surrogates and code points past
 * U+10FFFF. Only lead_of defines them. */
#include "text/utf8.h"

typedef struct lead {
    size_t n;                 /* bytes of the sequence; 0: not a lead byte */
    unsigned char low, high;  /* range of the second byte */
} lead;

static lead lead_of(unsigned char b)
{
    if (b < 0x80) return (lead){1, 0, 0};
    if (b < 0xC2) return (lead){0, 0, 0};
    if (b < 0xE0) return (lead){2, 0x80, 0xBF};
    if (b < 0xF0) return (lead){3, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF};
    if (b < 0xF5) return (lead){4, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF};
    return (lead){0, 0, 0};
}

/* How many of the first n bytes match the sequence that the first one starts. */
static size_t count_agreeing(const unsigned char *p, size_t n, lead l)
{
    if (n < 2 || p[1] < l.low || p[1] > l.high) return 1;
    size_t i = 2;
    while (i < n && i < l.n && (p[i] & 0xC0) == 0x80) i++;
    return i;
}

size_t hth_text_utf8_decode(const char *bytes, size_t n, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)bytes;
    if (n == 0) return 0;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    lead l = lead_of(p[0]);
    if (l.n == 0 || n < l.n || count_agreeing(p, n, l) < l.n) return 0;
    uint32_t v = p[0] & (0x7Fu >> l.n);
    for (size_t i = 1; i < l.n; i++) v = v << 6 | (p[i] & 0x3Fu);
    *cp = v;
    return l.n;
}

bool hth_text_utf8_valid(const char *bytes, size_t n)
{
    uint32_t cp;
    for (size_t i = 0, step; i < n; i += step) {
        step = hth_text_utf8_decode(bytes + i, n - i, &cp);
        if (step == 0) return false;
    }
    return true;
}

size_t hth_text_utf8_tail(const char *bytes, size_t n)
{
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char *at = p + n - back;
        if ((*at & 0xC0) == 0x80) continue;
        lead l = lead_of(*at);
        return l.n > back && count_agreeing(at, back, l) == back ? back : 0;
    }
    return 0;
}

size_t hth_text_utf8_encode(uint32_t cp, char *out)
{
    static const unsigned char mark[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(n == 1 ? cp : (mark[n] | cp));
    return n;
}

bool hth_text_is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}
