/* Reads JSON without recursion: a value knows its parent. Texts are decoded where they are, in a copy of the document
 * that the tree keeps: no escape is shorter than its character. */
#include "text/json.h"

#include "base/decimal.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    hth_arena *arena;
    hth_json_limits limits;
    char *start, *at, *end; /* the copy; behind it is a zero byte */
    const char *original;
    hth_json *parent; /* the array or object that is being read; NULL: none */
    hth_json *last;   /* the last of its values; NULL: none yet */
    hth_json *root;
    uint32_t depth;
    uint64_t n_byte; /* bytes of memory for values */
    hearth_status st;
    hearth_error *err;
} reader;

/* ---- failures ------------------------------------------------------------------------------------------ */

static bool fail_at(reader *r, const char *at, const char *what)
{
    size_t line = 1, column = 1;
    for (const char *p = r->original; p < r->original + (at - r->start); p++)
        if (*p == '\n') line++, column = 1;
        else if ((*p & 0xC0) != 0x80) column++;
    r->st = hth_fail(r->err, HEARTH_ERROR_FORMAT, "no JSON: line %zu column %zu: %s", line, column,
                     at < r->end ? what : "it ends too early");
    return false;
}

static bool fail(reader *r, const char *what) { return fail_at(r, r->at, what); }

static bool fail_memory(reader *r)
{
    r->st = hth_fail_memory(r->err, (size_t)(r->end - r->start), "a JSON document");
    return false;
}

/* ---- texts --------------------------------------------------------------------------------------------- */

/* The four digits at p, or -1. What is behind the document is no digit. */
static int32_t read_hex(const char *p)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int digit = p[i] >= '0' && p[i] <= '9'                 ? p[i] - '0'
                    : (p[i] | 32) >= 'a' && (p[i] | 32) <= 'f' ? (p[i] | 32) - 'a' + 10
                                                               : -1;
        if (digit < 0) return -1;
        v = v << 4 | digit;
    }
    return v;
}

static bool is_high(int32_t cp) { return cp >= 0xD800 && cp < 0xDC00; }
static bool is_low(int32_t cp) { return cp >= 0xDC00 && cp < 0xE000; }

/* The character of an escape, whose backslash is at r->at. */
static bool read_escape(reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *known = r->at[1] ? strchr(from, r->at[1]) : NULL;
    if (known) {
        *(*to)++ = meant[known - from];
        r->at += 2;
        return true;
    }
    if (r->at[1] != 'u') return fail_at(r, r->at + 1, "no escape begins so");
    int32_t cp = read_hex(r->at + 2);
    if (cp < 0) return fail_at(r, r->at + 2, "\\u and four hexadecimal digits are expected");
    r->at += 6;
    if (is_high(cp) && r->at[0] == '\\' && r->at[1] == 'u') {
        int32_t low = read_hex(r->at + 2);
        if (is_low(low)) cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00), r->at += 6;
    }
    *to += hth_text_utf8_encode(is_high(cp) || is_low(cp) ? 0xFFFD : (uint32_t)cp, *to);
    return true;
}

/* The text whose quotation mark is at r->at. */
static bool read_text(reader *r, hth_str *out)
{
    uint32_t cp;
    char *to = ++r->at;
    out->bytes = to;
    while (*r->at != '"') {
        if (*r->at == '\\') {
            if (!read_escape(r, &to)) return false;
            continue;
        }
        if ((unsigned char)*r->at < 0x20)
            return fail(r, "a control character in a text is written as an escape");
        size_t n = hth_text_utf8_decode(r->at, (size_t)(r->end - r->at), &cp);
        if (n == 0) return fail(r, "a text is no UTF-8");
        memmove(to, r->at, n);
        to += n, r->at += n;
    }
    r->at++;
    out->n = (size_t)(to - out->bytes);
    *to = '\0';
    return true;
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

/* Behind the digits at p, of which there is one at least; NULL: there is none. */
static char *behind_digits(char *p)
{
    char *from = p;
    while (*p >= '0' && *p <= '9') p++;
    return p > from ? p : NULL;
}

static bool read_number(reader *r, hth_json *v)
{
    static const char wanted[] = "a digit is expected";
    char *digits = r->at + (*r->at == '-');
    char *p = behind_digits(digits);
    if (!p) return fail_at(r, digits, *r->at == '-' ? wanted : "a value is expected");
    if (*digits == '0' && p > digits + 1) return fail_at(r, digits + 1, "a number does not begin with 0");
    if (*p == '.') {
        char *fraction = p + 1;
        if (!(p = behind_digits(fraction))) return fail_at(r, fraction, wanted);
    }
    if ((*p | 32) == 'e') {
        char *exponent = p + 1 + (p[1] == '-' || p[1] == '+');
        if (!(p = behind_digits(exponent))) return fail_at(r, exponent, wanted);
    }
    hth_decimal d;
    v->text = (hth_str){r->at, (size_t)(p - r->at)};
    r->at = p;
    hth_decimal_read(v->text.bytes, v->text.n, &d);
    v->kind = hth_decimal_integer(&d, &v->integer) ? HTH_JSON_INTEGER : HTH_JSON_REAL;
    v->real = hth_decimal_double(&d);
    return true;
}

/* ---- objects ------------------------------------------------------------------------------------------- */

/* A later member of the same name, which counts, gets the place of the first. */
static void replace(hth_json *first, const hth_json *later)
{
    hth_json *next = first->next;
    uint32_t index = first->index;
    *first = *later;
    first->next = next, first->index = index;
    for (hth_json *v = first->child; v; v = v->next) v->parent = first;
}

static int compare_members(const void *a, const void *b)
{
    const hth_json *x = *(hth_json *const *)a, *y = *(hth_json *const *)b;
    int order = hth_str_compare(x->key, y->key);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Leaves one member of each name. */
static bool merge_members(reader *r, hth_json *object)
{
    hth_json **sorted = hth_alloc(object->n, sizeof *sorted);
    uint32_t n = 0, n_kept = 0;
    if (!sorted) return fail_memory(r);
    for (hth_json *v = object->child; v; v = v->next) sorted[n++] = v;
    qsort(sorted, n, sizeof *sorted, compare_members);
    for (uint32_t i = 1, first = 0; i < n; i++) {
        if (hth_str_compare(sorted[i]->key, sorted[first]->key) != 0) first = i;
        else replace(sorted[first], sorted[i]), sorted[i]->kind = HTH_JSON_ABSENT;
    }
    hth_free(sorted);
    for (hth_json **at = &object->child; *at;) {
        if ((*at)->kind == HTH_JSON_ABSENT) *at = (*at)->next;
        else (*at)->index = n_kept++, at = &(*at)->next;
    }
    object->n = n_kept;
    return true;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static void skip_spaces(reader *r)
{
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r') r->at++;
}

static bool read_word(reader *r, hth_json *v, const char *word, hth_json_kind kind, bool is_true)
{
    size_t n = strlen(word);
    if (strncmp(r->at, word, n) != 0) return fail(r, "a value is expected");
    r->at += n;
    v->kind = kind, v->integer = is_true;
    return true;
}

/* An array or object without its values. */
static bool read_opening(reader *r, hth_json *v)
{
    v->kind = *r->at++ == '{' ? HTH_JSON_OBJECT : HTH_JSON_ARRAY;
    if (++r->depth > r->limits.max_depth) {
        r->st = hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "it is nested more than %u levels deep",
                         r->limits.max_depth);
        return false;
    }
    r->parent = v, r->last = NULL;
    return true;
}

static bool read_bare(reader *r, hth_json *v)
{
    switch (*r->at) {
    case '{':
    case '[': return read_opening(r, v);
    case '"': v->kind = HTH_JSON_TEXT; return read_text(r, &v->text);
    case 't': return read_word(r, v, "true", HTH_JSON_BOOL, true);
    case 'f': return read_word(r, v, "false", HTH_JSON_BOOL, false);
    case 'n': return read_word(r, v, "null", HTH_JSON_NULL, false);
    default: return read_number(r, v);
    }
}

static hth_json *add_value(reader *r)
{
    hth_json *v = hth_arena_alloc(r->arena, 1, sizeof *v, 16);
    r->n_byte += sizeof *v;
    if (!v) {
        fail_memory(r);
        return NULL;
    }
    if (r->n_byte > r->limits.max_bytes) {
        r->st = hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "it has too many values");
        return NULL;
    }
    v->parent = r->parent;
    if (r->last) r->last->next = v, v->index = r->last->index + 1;
    else if (r->parent) r->parent->child = v;
    else r->root = v;
    if (r->parent) r->parent->n++;
    r->last = v;
    return v;
}

/* A member's name and its colon. */
static bool read_key(reader *r, hth_str *key)
{
    skip_spaces(r);
    if (*r->at != '"') return fail(r, "a name in quotation marks is expected");
    if (!read_text(r, key)) return false;
    skip_spaces(r);
    if (*r->at != ':') return fail(r, "':' is expected");
    r->at++;
    return true;
}

static char closing(const hth_json *v) { return v->kind == HTH_JSON_OBJECT ? '}' : ']'; }

/* Behind a value, or the opening of an empty one: closes what ends there. */
static bool close_values(reader *r)
{
    for (skip_spaces(r); r->parent && *r->at == closing(r->parent); skip_spaces(r)) {
        hth_json *v = r->parent;
        r->at++;
        if (v->kind == HTH_JSON_OBJECT && v->n > 1 && !merge_members(r, v)) return false;
        r->last = v, r->parent = v->parent;
        r->depth--;
    }
    return true;
}

/* One value, with all that is in it up to the next one. */
static bool read_value(reader *r)
{
    hth_str key = {0};
    if (r->parent && r->parent->kind == HTH_JSON_OBJECT && !read_key(r, &key)) return false;
    skip_spaces(r);
    hth_json *v = add_value(r);
    if (!v) return false;
    v->key = key;
    if (!read_bare(r, v) || !close_values(r)) return false;
    if (!r->parent || !r->last) return true; /* the end, or the first value of what was opened */
    if (*r->at != ',')
        return fail(r, closing(r->parent) == '}' ? "',' or '}' is expected" : "',' or ']' is expected");
    r->at++;
    return true;
}

hearth_status hth_json_read(hth_arena *arena, const char *text, size_t n, const hth_json_limits *limits,
                            hth_json **out, hearth_error *err)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* U+FEFF, which some editors write before a text */
    reader r = {.arena = arena, .original = text, .err = err};
    *out = NULL;
    if (limits) r.limits = *limits;
    if (r.limits.max_depth == 0) r.limits.max_depth = HTH_JSON_MAX_DEPTH;
    if (r.limits.max_bytes == 0) r.limits.max_bytes = UINT64_MAX;
    r.start = r.at = hth_arena_strndup(arena, text, n);
    if (!r.start) return hth_fail_memory(err, n, "a JSON document");
    r.end = r.start + n;
    if (n >= 3 && memcmp(r.at, mark, 3) == 0) r.at += 3;
    do
        if (!read_value(&r)) return r.st;
    while (r.parent);
    if (r.at < r.end) fail(&r, "something follows the value");
    else *out = r.root;
    return r.st;
}

/* ---- documents of their own ---------------------------------------------------------------------------- */

typedef struct document {
    hth_json root; /* first: its address is the document's */
    hth_arena arena;
} document;

hth_json *hth_json_open(const char *text, size_t n, const hth_json_limits *limits, hearth_error *err)
{
    hth_json *root;
    document *d = hth_alloc(1, sizeof *d);
    if (!d) {
        hth_fail_memory(err, sizeof *d, "a JSON document");
        return NULL;
    }
    if (hth_json_read(&d->arena, text, n, limits, &root, err) != HEARTH_OK) {
        hth_json_close(&d->root);
        return NULL;
    }
    d->root = *root;
    for (hth_json *v = root->child; v; v = v->next) v->parent = &d->root;
    return &d->root;
}

void hth_json_close(hth_json *root)
{
    document *d = (document *)(void *)root;
    if (!d) return;
    hth_arena_free(&d->arena);
    hth_free(d);
}
