/* JSON to values, for from_json and for variables from the caller. Exactly RFC 8259, with limited nesting. Texts
 * inside are never template text. */
#include "chat/jinja.h"

#include "text/utf8.h"

#include <string.h>

typedef struct reader {
    hth_jinja *j;
    const char *p, *end;
} reader;

static bool bad(reader *r, const char *what)
{
    return hth_jinja_fail(r->j, HEARTH_ERROR_FORMAT, "JSON: %s", what);
}

static char peek(const reader *r) { return r->p < r->end ? *r->p : '\0'; }

static void skip_blanks(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')) r->p++;
}

static bool read_hex(reader *r, uint32_t *cp)
{
    *cp = 0;
    for (int i = 0; i < 4; i++) {
        char c = peek(r);
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0) return bad(r, "\\u wants four digits");
        *cp = *cp << 4 | (uint32_t)digit;
        r->p++;
    }
    return true;
}

/* After \u: decodes one character, or U+FFFD for an unpaired surrogate. */
static bool read_unicode(reader *r, char *out, size_t *n)
{
    uint32_t cp, low;
    if (!read_hex(r, &cp)) return false;
    if (cp >= 0xD800 && cp < 0xDC00 && r->end - r->p >= 2 && r->p[0] == '\\' && r->p[1] == 'u') {
        const char *before = r->p;
        r->p += 2;
        if (!read_hex(r, &low)) return false;
        if (low >= 0xDC00 && low < 0xE000) cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        else r->p = before;
    }
    if (cp >= 0xD800 && cp < 0xE000) cp = 0xFFFD;
    *n += hth_text_utf8_encode(cp, out + *n);
    return true;
}

static bool read_text(reader *r, hth_jinja_value *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *end = ++r->p;
    size_t n = 0;
    while (end < r->end && *end != '"') end += *end == '\\' ? 2 : 1;
    if (end >= r->end) return bad(r, "a text is not closed");
    char *bytes =
        hth_jinja_alloc(r->j, (size_t)(end - r->p) + 4, 1); /* no escape is shorter than its character */
    if (!bytes) return false;
    while (r->p < end) {
        char c = *r->p++;
        if ((unsigned char)c < 0x20) return bad(r, "a control character in a text");
        if (c != '\\') {
            bytes[n++] = c;
            continue;
        }
        c = *r->p++;
        const char *at = c ? strchr(from, c) : NULL;
        if (at) bytes[n++] = to[at - from];
        else if (c != 'u') return bad(r, "an escape that is not known");
        else if (!read_unicode(r, bytes, &n)) return false;
    }
    r->p = end + 1;
    return hth_jinja_text_of(r->j, bytes, n, false, out);
}

static const char *digits_end(const reader *r, const char *p)
{
    while (p < r->end && *p >= '0' && *p <= '9') p++;
    return p;
}

static bool read_number(reader *r, hth_jinja_value *out)
{
    bool minus = peek(r) == '-', whole = true;
    const char *start = r->p += minus, *p = digits_end(r, start);
    if (p == start || (*start == '0' && p - start > 1)) return bad(r, "a value is not known");
    if (p < r->end && *p == '.') {
        const char *q = digits_end(r, p + 1);
        if (q == p + 1) return bad(r, "a number ends with its point");
        whole = false;
        p = q;
    }
    if (p < r->end && (*p | 32) == 'e') {
        const char *q = p + 1 + (p + 1 < r->end && (p[1] == '-' || p[1] == '+'));
        p = digits_end(r, q);
        if (p == q) return bad(r, "a number without its exponent");
        whole = false;
    }
    int64_t v = 0;
    for (const char *q = start; whole && q < p; q++)
        whole = !__builtin_mul_overflow(v, 10, &v) && !__builtin_sub_overflow(v, *q - '0', &v);
    if (whole && !minus) whole = !__builtin_sub_overflow(0, v, &v);
    *out = hth_jinja_integer(v);
    r->p = p;
    if (whole) return true;
    out->kind = JINJA_FLOAT;
    if (!hth_jinja_parse_float(start, (size_t)(p - start), &out->as.f))
        return bad(r, "a number is too large");
    if (minus) out->as.f = -out->as.f;
    return true;
}

static bool read_value(reader *r, hth_jinja_value *out);

static bool read_list(reader *r, hth_jinja_value *out)
{
    hth_jinja_value item;
    r->p++;
    if (!hth_jinja_new_list(r->j, JINJA_LIST, out)) return false;
    skip_blanks(r);
    if (peek(r) == ']') return r->p++ != NULL;
    for (;;) {
        if (!read_value(r, &item) || !hth_jinja_push(r->j, out->as.list, &item)) return false;
        if (peek(r) == ']') return r->p++ != NULL;
        if (peek(r) != ',') return bad(r, "expected ',' or ']' in a list");
        r->p++;
    }
}

static bool read_dict(reader *r, hth_jinja_value *out)
{
    hth_jinja_value key, item;
    r->p++;
    if (!hth_jinja_new_dict(r->j, JINJA_DICT, out)) return false;
    skip_blanks(r);
    if (peek(r) == '}') return r->p++ != NULL;
    for (;;) {
        skip_blanks(r);
        if (peek(r) != '"') return bad(r, "expected a key");
        if (!read_text(r, &key)) return false;
        skip_blanks(r);
        if (peek(r) != ':') return bad(r, "expected ':' behind a key");
        r->p++;
        if (!read_value(r, &item) || !hth_jinja_put(r->j, out->as.dict, &key, &item)) return false;
        if (peek(r) == '}') return r->p++ != NULL;
        if (peek(r) != ',') return bad(r, "expected ',' or '}' in an object");
        r->p++;
    }
}

static bool read_word(reader *r, const char *word, hth_jinja_value v, hth_jinja_value *out)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return bad(r, "a value is not known");
    r->p += n;
    *out = v;
    return true;
}

static bool read_bare(reader *r, hth_jinja_value *out)
{
    switch (peek(r)) {
    case '"': return read_text(r, out);
    case '[': return read_list(r, out);
    case '{': return read_dict(r, out);
    case 't': return read_word(r, "true", hth_jinja_bool(true), out);
    case 'f': return read_word(r, "false", hth_jinja_bool(false), out);
    case 'n': return read_word(r, "null", hth_jinja_none(), out);
    default: return read_number(r, out);
    }
}

/* One value and the white space around it. */
static bool read_value(reader *r, hth_jinja_value *out)
{
    if (!hth_jinja_count_steps(r->j, 1) || !hth_jinja_enter(r->j)) return false;
    skip_blanks(r);
    bool ok = read_bare(r, out);
    skip_blanks(r);
    hth_jinja_leave(r->j);
    return ok;
}

bool hth_jinja_from_json(hth_jinja *j, const char *p, size_t n, hth_jinja_value *out)
{
    reader r = {j, p, p + n};
    if (!hth_jinja_count_bytes(j, n) || !read_value(&r, out)) return false;
    return r.p == r.end || bad(&r, "something follows the value");
}
