/* Values as text: as {{ }} prints them (Python's str, and repr inside lists and dicts) and as JSON. Bytes of texts
 * keep their origin; brackets, quotation marks and escapes count as template text. */
#include "chat/jinja.h"

#include "base/decimal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---------------------------------------------------------------------------------- */

bool hth_jinja_parse_float(const char *p, size_t n, double *out)
{
    hth_decimal d;
    if (!hth_decimal_read(p, n, &d) || d.minus) return false;
    *out = hth_decimal_double(&d);
    return *out - *out == 0.0;
}

/* The fewest digits that parse back to f > 0, and the exponent of the first. */
static size_t shortest_digits(double f, char digits[24], int *exponent)
{
    char text[40];
    size_t n = 0;
    for (int precision = 0; precision < 17; precision++) {
        char again[48];
        double back;
        snprintf(text, sizeof text, "%.*e", precision, f);
        n = 0;
        char *e = strchr(text, 'e');
        for (const char *p = text; p < e; p++)
            if (*p >= '0' && *p <= '9') digits[n++] = *p;
        *exponent = (int)strtol(e + 1, NULL, 10);
        snprintf(again, sizeof again, "%.*se%d", (int)n, digits, *exponent - precision);
        back = strtod(again, NULL);
        if (back >= f && back <= f) break;
    }
    while (n > 1 && digits[n - 1] == '0') n--;
    return n;
}

void hth_jinja_format_float(double f, char *out)
{
    char digits[24];
    int e = 0;
    if (f - f != 0.0) {
        strcpy(out, f != f ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    if (__builtin_signbit(f)) *out++ = '-';
    if (f < 0) f = -f;
    size_t n = f > 0.0 ? shortest_digits(f, digits, &e) : 1;
    if (!(f > 0.0)) digits[0] = '0';
    int last = (int)n - 1;
    if (e < -4 || e >= 16) {
        sprintf(out, "%c%s%.*se%c%02d", digits[0], n > 1 ? "." : "", last, digits + 1, e < 0 ? '-' : '+',
                e < 0 ? -e : e);
    } else if (e < 0) {
        sprintf(out, "0.%.*s%.*s", -e - 1, "000", (int)n, digits);
    } else if (last <= e) {
        sprintf(out, "%.*s%.*s.0", (int)n, digits, e - last, "0000000000000000");
    } else {
        sprintf(out, "%.*s.%.*s", e + 1, digits, last - e, digits + e + 1);
    }
}

static bool put_word(hth_jinja *j, hth_jinja_strbuf *b, const char *word)
{
    return hth_jinja_strbuf_bytes(j, b, word, strlen(word), true);
}

static bool put_number(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_value *v)
{
    char text[48];
    if (v->kind == JINJA_DIGITS) return put_word(j, b, v->as.digits);
    if (v->kind == JINJA_INT) snprintf(text, sizeof text, "%lld", (long long)v->as.i);
    else hth_jinja_format_float(v->as.f, text);
    return put_word(j, b, text);
}

/* ---- Python's repr ------------------------------------------------------------------------------ */

/* Writes a text with escapes: plain runs are copied with their origin; escape() returns the replacement of a byte
 * (NULL: none). */
typedef const char *escape_fn(unsigned char c, char quote, char buffer[12]);

static bool put_escaped(hth_jinja *j, hth_jinja_strbuf *b, hth_jinja_text *t, char quote, escape_fn *escape)
{
    const char *p = hth_jinja_bytes(j, t);
    if (!p || !hth_jinja_count_bytes(j, t->n) || !hth_jinja_strbuf_bytes(j, b, &quote, 1, true)) return false;
    hth_jinja_cursor c = {0};
    for (size_t at = 0; at < t->n; at = c.until) {
        bool is_template = hth_jinja_origin(t, &c, at);
        for (size_t i = at; i < c.until; i++) {
            char buffer[12];
            const char *word = escape((unsigned char)p[i], quote, buffer);
            if (!word) continue;
            if (!hth_jinja_strbuf_bytes(j, b, p + at, i - at, is_template) ||
                !hth_jinja_strbuf_bytes(j, b, word, strlen(word), is_template))
                return false;
            at = i + 1;
        }
        if (!hth_jinja_strbuf_bytes(j, b, p + at, c.until - at, is_template)) return false;
    }
    return hth_jinja_strbuf_bytes(j, b, &quote, 1, true);
}

static const char *escape_python(unsigned char c, char quote, char buffer[12])
{
    if (c == (unsigned char)quote || c == '\\') snprintf(buffer, 12, "\\%c", c);
    else if (c == '\n') return "\\n";
    else if (c == '\t') return "\\t";
    else if (c == '\r') return "\\r";
    else if (c < 0x20 || c == 0x7f) snprintf(buffer, 12, "\\x%02x", c);
    else return NULL;
    return buffer;
}

static bool repr_list(hth_jinja *j, const hth_jinja_value *v, hth_jinja_strbuf *b)
{
    const hth_jinja_list *list = v->as.list;
    bool tuple = v->kind == JINJA_TUPLE;
    if (!put_word(j, b, tuple ? "(" : "[")) return false;
    for (size_t i = 0; i < list->n; i++)
        if ((i > 0 && !put_word(j, b, ", ")) || !hth_jinja_repr(j, &list->v[i], b)) return false;
    return put_word(j, b, tuple ? (list->n == 1 ? ",)" : ")") : "]");
}

static bool repr_dict(hth_jinja *j, const hth_jinja_dict *dict, hth_jinja_strbuf *b)
{
    if (!put_word(j, b, "{")) return false;
    for (size_t i = 0; i < dict->n; i++)
        if ((i > 0 && !put_word(j, b, ", ")) || !hth_jinja_repr(j, &dict->v[i].key, b) || !put_word(j, b, ": ") ||
            !hth_jinja_repr(j, &dict->v[i].value, b))
            return false;
    return put_word(j, b, "}");
}

bool hth_jinja_repr(hth_jinja *j, const hth_jinja_value *v, hth_jinja_strbuf *b)
{
    bool ok;
    if (!hth_jinja_count_steps(j, 1)) return false;
    switch (v->kind) {
    case JINJA_TEXT: {
        const char *p = hth_jinja_bytes(j, v->as.text);
        size_t n = v->as.text->n;
        bool double_quotes = p && memchr(p, '\'', n) && !memchr(p, '"', n);
        return p && put_escaped(j, b, v->as.text, double_quotes ? '"' : '\'', escape_python);
    }
    case JINJA_UNDEFINED: return put_word(j, b, "Undefined");
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        if (!hth_jinja_enter(j)) return false;
        ok = v->kind == JINJA_DICT ? repr_dict(j, v->as.dict, b) : repr_list(j, v, b);
        hth_jinja_leave(j);
        return ok;
    default: return hth_jinja_print(j, v, b);
    }
}

bool hth_jinja_print(hth_jinja *j, const hth_jinja_value *v, hth_jinja_strbuf *b)
{
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_MISSING: return true;
    case JINJA_NONE: return put_word(j, b, "None");
    case JINJA_BOOL: return put_word(j, b, v->as.b ? "True" : "False");
    case JINJA_INT:
    case JINJA_DIGITS:
    case JINJA_FLOAT: return put_number(j, b, v);
    case JINJA_TEXT: return hth_jinja_strbuf_text(j, b, v->as.text);
    case JINJA_DICT:
        if (v->as.dict->source.n > 0)
            return hth_jinja_strbuf_bytes(j, b, v->as.dict->source.bytes, v->as.dict->source.n, false);
        return hth_jinja_repr(j, v, b);
    case JINJA_LIST:
    case JINJA_TUPLE: return hth_jinja_repr(j, v, b);
    default: return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s cannot be printed", hth_jinja_kind_name(v));
    }
}

bool hth_jinja_to_text(hth_jinja *j, const hth_jinja_value *v, hth_jinja_value *out)
{
    hth_jinja_strbuf b = {0};
    if (v->kind == JINJA_TEXT) {
        *out = *v;
        return true;
    }
    return hth_jinja_print(j, v, &b) && hth_jinja_strbuf_value(j, &b, out);
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

typedef struct json_style {
    bool ascii, sorted, lines;
    hth_jinja_text *indent, *comma, *colon; /* NULL: the defaults */
} json_style;

static const char *escape_json(unsigned char c, char quote, char buffer[12])
{
    static const char from[] = "\b\t\n\f\r", to[] = "btnfr";
    const char *at = c ? strchr(from, c) : NULL;
    if (c == (unsigned char)quote || c == '\\') snprintf(buffer, 12, "\\%c", c);
    else if (at) snprintf(buffer, 12, "\\%c", to[at - from]);
    else if (c < 0x20) snprintf(buffer, 12, "\\u%04x", c);
    else return NULL;
    return buffer;
}

/* With ensure_ascii: \uXXXX, or a surrogate pair past U+FFFF. */
static bool json_ascii(hth_jinja *j, hth_jinja_strbuf *b, hth_jinja_text *t)
{
    hth_jinja_strbuf escaped = {0};
    hth_jinja_value v;
    const char *p = hth_jinja_bytes(j, t);
    if (!p) return false;
    hth_jinja_cursor c = {0};
    for (size_t at = 0, size; at < t->n; at += size) {
        uint32_t cp = 0;
        char word[16];
        bool is_template = hth_jinja_origin(t, &c, at);
        size = hth_jinja_char_size(p + at, t->n - at);
        if (size == 1 && p[at] != 0x7f) {
            if (!hth_jinja_strbuf_bytes(j, &escaped, p + at, 1, is_template)) return false;
            continue;
        }
        for (size_t i = 0; i < size; i++)
            cp = i == 0 ? (unsigned char)p[at] & (size > 1 ? 0x7Fu >> size : 0x7Fu)
                        : cp << 6 | ((unsigned char)p[at + i] & 0x3Fu);
        if (cp < 0x10000) snprintf(word, sizeof word, "\\u%04x", cp);
        else
            snprintf(word, sizeof word, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                     0xDC00 + (cp & 0x3FF));
        if (!hth_jinja_strbuf_bytes(j, &escaped, word, strlen(word), is_template)) return false;
    }
    return hth_jinja_strbuf_value(j, &escaped, &v) && hth_jinja_strbuf_text(j, b, v.as.text);
}

static bool json_text(hth_jinja *j, hth_jinja_strbuf *b, hth_jinja_text *t, const json_style *s)
{
    hth_jinja_strbuf quoted = {0};
    hth_jinja_value v;
    if (!s->ascii) return put_escaped(j, b, t, '"', escape_json);
    return put_escaped(j, &quoted, t, '"', escape_json) && hth_jinja_strbuf_value(j, &quoted, &v) &&
           json_ascii(j, b, v.as.text);
}

static bool json_value(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_value *v, const json_style *s,
                       unsigned depth);

static bool json_break(hth_jinja *j, hth_jinja_strbuf *b, const json_style *s, unsigned depth)
{
    if (!s->lines) return true;
    if (!put_word(j, b, "\n")) return false;
    for (unsigned i = 0; i < depth; i++)
        if (!hth_jinja_strbuf_text(j, b, s->indent)) return false;
    return true;
}

static bool json_comma(hth_jinja *j, hth_jinja_strbuf *b, const json_style *s)
{
    return s->comma ? hth_jinja_strbuf_text(j, b, s->comma) : put_word(j, b, s->lines ? "," : ", ");
}

static bool json_list(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_list *list, const json_style *s,
                      unsigned depth)
{
    if (list->n == 0) return put_word(j, b, "[]");
    if (!put_word(j, b, "[")) return false;
    for (size_t i = 0; i < list->n; i++)
        if ((i > 0 && !json_comma(j, b, s)) || !json_break(j, b, s, depth) ||
            !json_value(j, b, &list->v[i], s, depth))
            return false;
    return json_break(j, b, s, depth - 1) && put_word(j, b, "]");
}

/* A key is always a text: 1, None and True become "1", "null" and "true". */
static bool json_pair(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_pair *pair, const json_style *s,
                      unsigned depth)
{
    hth_jinja_strbuf name = {0};
    hth_jinja_value key = pair->key;
    if (key.kind != JINJA_TEXT &&
        (!json_value(j, &name, &pair->key, s, depth) || !hth_jinja_strbuf_value(j, &name, &key)))
        return false;
    if (!json_text(j, b, key.as.text, s)) return false;
    return (s->colon ? hth_jinja_strbuf_text(j, b, s->colon) : put_word(j, b, ": ")) &&
           json_value(j, b, &pair->value, s, depth);
}

static bool json_dict(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_dict *dict, const json_style *s,
                      unsigned depth)
{
    if (dict->n == 0) return put_word(j, b, "{}");
    if (dict->source.n > 0 && !s->lines && !s->sorted)
        return hth_jinja_strbuf_bytes(j, b, dict->source.bytes, dict->source.n, false);
    const hth_jinja_pair *pairs = dict->v;
    if (s->sorted && !(pairs = hth_jinja_sorted_pairs(j, dict))) return false;
    if (!put_word(j, b, "{")) return false;
    for (size_t i = 0; i < dict->n; i++)
        if ((i > 0 && !json_comma(j, b, s)) || !json_break(j, b, s, depth) ||
            !json_pair(j, b, &pairs[i], s, depth))
            return false;
    return json_break(j, b, s, depth - 1) && put_word(j, b, "}");
}

static bool json_value(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_value *v, const json_style *s,
                       unsigned depth)
{
    bool ok;
    if (!hth_jinja_count_steps(j, 1)) return false;
    switch (v->kind) {
    case JINJA_NONE: return put_word(j, b, "null");
    case JINJA_BOOL: return put_word(j, b, v->as.b ? "true" : "false");
    case JINJA_INT:
    case JINJA_DIGITS:
    case JINJA_FLOAT: return put_number(j, b, v);
    case JINJA_TEXT: return json_text(j, b, v->as.text, s);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        if (!hth_jinja_enter(j)) return false;
        ok = v->kind == JINJA_DICT ? json_dict(j, b, v->as.dict, s, depth + 1)
                                   : json_list(j, b, v->as.list, s, depth + 1);
        hth_jinja_leave(j);
        return ok;
    default:
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s cannot be written as JSON", hth_jinja_kind_name(v));
    }
}

static bool read_indent(hth_jinja *j, const hth_jinja_value *v, json_style *s)
{
    static const char spaces[] = "                                ";
    hth_jinja_value text;
    int64_t n;
    s->lines = v->kind != JINJA_MISSING && v->kind != JINJA_NONE;
    if (v->kind == JINJA_TEXT) s->indent = v->as.text;
    if (!s->lines || v->kind == JINJA_TEXT) return true;
    if (!hth_jinja_int(j, v, 0, &n)) return false;
    if (n > 32) return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "an indent of more than 32");
    if (!hth_jinja_text_of(j, spaces, n > 0 ? (size_t)n : 0, true, &text)) return false;
    s->indent = text.as.text;
    return true;
}

static bool read_separators(hth_jinja *j, const hth_jinja_value *v, json_style *s)
{
    if (v->kind == JINJA_MISSING || v->kind == JINJA_NONE) return true;
    bool pair = (v->kind == JINJA_TUPLE || v->kind == JINJA_LIST) && v->as.list->n == 2 &&
                v->as.list->v[0].kind == JINJA_TEXT && v->as.list->v[1].kind == JINJA_TEXT;
    if (!pair) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "separators are two texts");
    s->comma = v->as.list->v[0].as.text;
    s->colon = v->as.list->v[1].as.text;
    return true;
}

JINJA_FUNCTION(hth_jinja_to_json)
{
    json_style s = {.ascii = hth_jinja_is_true(&args->v[0]), .sorted = hth_jinja_is_true(&args->v[3])};
    hth_jinja_strbuf b = {0};
    if (!read_indent(j, &args->v[1], &s) || !read_separators(j, &args->v[2], &s)) return false;
    return json_value(j, &b, self, &s, 0) && hth_jinja_strbuf_value(j, &b, out);
}
