/* Filters on one value: texts, numbers, conversions. Filters over lists are in jinja_lists.c. A filter that
 * produces new bytes copies their origins. */
#include "chat/jinja.h"

#include <string.h>

const hth_jinja_function *hth_jinja_find_function(const hth_jinja_function *table, hth_str name)
{
    for (; table->name; table++)
        if (hth_str_eq(name, table->name)) return table;
    return NULL;
}

/* self as a text; other kinds are formatted first. */
static hth_jinja_text *text_of(hth_jinja *j, const hth_jinja_value *v)
{
    hth_jinja_value text;
    return hth_jinja_to_text(j, v, &text) ? text.as.text : NULL;
}

bool hth_jinja_text_argument(hth_jinja *j, const hth_jinja_value *v, hth_jinja_text **out)
{
    *out = NULL;
    if (v->kind == JINJA_MISSING || v->kind == JINJA_NONE) return true;
    if (v->kind != JINJA_TEXT)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "expected a text, not %s", hth_jinja_kind_name(v));
    *out = v->as.text;
    return true;
}

/* ---- texts ---------------------------------------------------------------------------------------- */

static bool is_letter(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static char to_upper(char c, int before) { return (void)before, c >= 'a' && c <= 'z' ? (char)(c - 32) : c; }
static char to_lower(char c, int before) { return (void)before, c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }
static char to_capital(char c, int before) { return before < 0 ? to_upper(c, 0) : to_lower(c, 0); }
/* Title case. The filter starts words after blanks and opening brackets, the method after every non-letter. A
 * letter of another script counts as a letter. */
static char to_title(char c, int before)
{
    return before < 0 || (before && strchr("- \t\n\v\f\r({[<", before)) ? to_upper(c, 0) : to_lower(c, 0);
}
static char to_title_method(char c, int before)
{
    return is_letter(before) || before >= 0x80 ? to_lower(c, 0) : to_upper(c, 0);
}

static bool map_text(hth_jinja *j, const hth_jinja_value *self, hth_jinja_map_fn *map, hth_jinja_value *out)
{
    hth_jinja_text *t = text_of(j, self);
    return t && hth_jinja_map_bytes(j, t, map, out);
}

JINJA_FUNCTION(hth_jinja_upper) { return map_text(j, self, to_upper, out); }
JINJA_FUNCTION(hth_jinja_lower) { return map_text(j, self, to_lower, out); }
JINJA_FUNCTION(hth_jinja_capitalize) { return map_text(j, self, to_capital, out); }
JINJA_FUNCTION(hth_jinja_title) { return map_text(j, self, to_title_method, out); }
static JINJA_FUNCTION(filter_title) { return map_text(j, self, to_title, out); }

static JINJA_FUNCTION(filter_trim)
{
    hth_jinja_text *t = text_of(j, self), *set;
    return t && hth_jinja_text_argument(j, &args->v[0], &set) && hth_jinja_strip(j, t, set, 3, out);
}

JINJA_FUNCTION(hth_jinja_replace)
{
    hth_jinja_text *t = text_of(j, self), *from = t ? text_of(j, &args->v[0]) : NULL,
                   *to = from ? text_of(j, &args->v[1]) : NULL;
    hth_jinja_strbuf b = {0};
    hth_jinja_value piece;
    int64_t left;
    size_t at = 0, hit;
    bool found;
    const char *p = to ? hth_jinja_bytes(j, t) : NULL;
    if (!p || !hth_jinja_int(j, &args->v[2], -1, &left)) return false;
    if (left < 0) left = -1; /* no limit: the value is counted down and must not wrap */
    for (; left != 0; left--) {
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_search(j, t, from, at, &hit, &found)) return false;
        if (!found) break;
        if (!hth_jinja_cut(j, t, at, hit, &piece) || !hth_jinja_strbuf_text(j, &b, piece.as.text) ||
            !hth_jinja_strbuf_text(j, &b, to))
            return false;
        at = hit + from->n;
        if (from->n > 0) continue;
        size_t size =
            hth_jinja_char_size(p + at, t->n - at); /* the empty text is found before each character */
        if (size == 0) return hth_jinja_strbuf_value(j, &b, out);
        if (!hth_jinja_cut(j, t, at, at + size, &piece) || !hth_jinja_strbuf_text(j, &b, piece.as.text))
            return false;
        at += size;
    }
    return hth_jinja_cut(j, t, at, t->n, &piece) && hth_jinja_strbuf_text(j, &b, piece.as.text) &&
           hth_jinja_strbuf_value(j, &b, out);
}

/* The width as spaces, or the text that is put before each line. */
static bool indent_text(hth_jinja *j, const hth_jinja_value *width, hth_jinja_value *out)
{
    static const char spaces[] = "                                                                ";
    int64_t n;
    *out = *width;
    if (width->kind == JINJA_TEXT) return true;
    if (!hth_jinja_int(j, width, 4, &n)) return false;
    if (n > (int64_t)sizeof spaces - 1)
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "an indent of more than %zu", sizeof spaces - 1);
    return hth_jinja_text_of(j, spaces, n > 0 ? (size_t)n : 0, true, out);
}

static JINJA_FUNCTION(filter_indent)
{
    hth_jinja_text *t = text_of(j, self);
    const char *p = t ? hth_jinja_bytes(j, t) : NULL;
    hth_jinja_value indent, line;
    hth_jinja_strbuf b = {0};
    bool first = hth_jinja_is_true(&args->v[1]), blank = hth_jinja_is_true(&args->v[2]);
    if (!p || !indent_text(j, &args->v[0], &indent)) return false;
    for (size_t at = 0, end; at <= t->n; at = end) {
        const char *newline = at < t->n ? memchr(p + at, '\n', t->n - at) : NULL;
        end = newline ? (size_t)(newline - p) + 1 : t->n;
        bool filled = end - at > (newline != NULL);
        if ((at > 0 || first) && (filled || blank || (at == 0 && first)) &&
            !hth_jinja_strbuf_text(j, &b, indent.as.text))
            return false;
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_cut(j, t, at, end, &line) ||
            !hth_jinja_strbuf_text(j, &b, line.as.text))
            return false;
        if (!newline) break;
    }
    return hth_jinja_strbuf_value(j, &b, out);
}

bool hth_jinja_escape(hth_jinja *j, hth_jinja_text *t, hth_jinja_value *out)
{
    static const char from[] = "&<>'\"", *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const char *p = hth_jinja_bytes(j, t);
    hth_jinja_strbuf b = {0};
    if (!p) return false;
    hth_jinja_cursor c = {0};
    for (size_t i = 0; i < t->n; i++) {
        bool is_template = hth_jinja_origin(t, &c, i);
        const char *at = p[i] ? strchr(from, p[i]) : NULL, *word = at ? to[at - from] : p + i;
        if (!hth_jinja_strbuf_bytes(j, &b, word, at ? strlen(word) : 1, is_template)) return false;
    }
    if (!hth_jinja_strbuf_value(j, &b, out)) return false;
    out->as.text->markup = true;
    return true;
}

static JINJA_FUNCTION(filter_forceescape)
{
    hth_jinja_text *t = text_of(j, self);
    return t && hth_jinja_escape(j, t, out);
}

static JINJA_FUNCTION(filter_escape)
{
    *out = *self;
    if (self->kind == JINJA_TEXT && self->as.text->markup) return true;
    return filter_forceescape(j, self, args, out);
}

static JINJA_FUNCTION(filter_string) { return hth_jinja_to_text(j, self, out); }

static JINJA_FUNCTION(filter_safe)
{
    hth_jinja_text *t = text_of(j, self);
    if (!t || !hth_jinja_cut(j, t, 0, t->n, out)) return false;
    out->as.text->markup = true;
    return true;
}

/* format(...): by % if there are values, as Python's filter has it. */
static JINJA_FUNCTION(filter_format)
{
    hth_jinja_text *t = text_of(j, self);
    hth_jinja_list list = {args->v, args->n, args->n};
    hth_jinja_value values = {JINJA_TUPLE, {.list = &list}};
    if (args->named.n > 0 && args->n > 0)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'format' takes values by position or by name, not both");
    if (args->named.n > 0) return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'format' with values by name");
    return t && hth_jinja_percent_format(j, t, &values, out);
}

static JINJA_FUNCTION(filter_wordcount)
{
    hth_jinja_text *t = text_of(j, self);
    const char *p = t ? hth_jinja_bytes(j, t) : NULL;
    int64_t n = 0;
    bool inside = false;
    if (!p || !hth_jinja_count_bytes(j, t->n)) return false;
    for (size_t at = 0, size; at < t->n; at += size) {
        size = hth_jinja_char_size(p + at, t->n - at);
        bool word = is_letter(p[at]) || (p[at] >= '0' && p[at] <= '9') || p[at] == '_' ||
                    (size > 1 && hth_jinja_space_size(p + at, size) == 0);
        n += word && !inside;
        inside = word;
    }
    *out = hth_jinja_integer(n);
    return true;
}

/* ---- numbers ------------------------------------------------------------------------------------------ */

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && hth_jinja_space_size(p, (size_t)(end - p)))
        p += hth_jinja_space_size(p, (size_t)(end - p));
    return p;
}

/* Parses a decimal number with sign and surrounding blanks. *whole: it has no point. */
static bool read_number(hth_jinja *j, hth_jinja_text *t, double *f, int64_t *i, bool *whole)
{
    const char *p = hth_jinja_bytes(j, t), *end = p ? p + t->n : NULL;
    *whole = false;
    if (!p || !hth_jinja_count_bytes(j, t->n)) return false;
    p = skip_blanks(p, end);
    while (end > p && (unsigned char)end[-1] <= ' ') end--;
    bool minus = p < end && *p == '-';
    p += p < end && (*p == '-' || *p == '+');
    if (p == end || !hth_jinja_parse_float(p, (size_t)(end - p), f)) return false;
    if (minus) *f = -*f;
    *i = 0;
    *whole = true;
    for (; p < end && *whole; p++)
        *whole = *p >= '0' && *p <= '9' && !__builtin_mul_overflow(*i, 10, i) &&
                 !__builtin_sub_overflow(*i, *p - '0', i);
    if (*whole && !minus) *whole = !__builtin_sub_overflow(0, *i, i);
    return true;
}

static JINJA_FUNCTION(filter_int)
{
    double f = 0.0;
    int64_t i = 0;
    bool whole = false;
    *out = args->v[0].kind == JINJA_MISSING ? hth_jinja_integer(0) : args->v[0];
    if (self->kind == JINJA_INT || self->kind == JINJA_BOOL)
        *out = hth_jinja_integer(self->kind == JINJA_INT ? self->as.i : self->as.b);
    else if (self->kind == JINJA_FLOAT) f = self->as.f;
    else if (self->kind == JINJA_DIGITS) *out = *self;
    if (self->kind == JINJA_TEXT && !read_number(j, self->as.text, &f, &i, &whole))
        return j->status == HEARTH_OK;
    if (self->kind == JINJA_TEXT && whole) *out = hth_jinja_integer(i);
    else if (self->kind == JINJA_TEXT || self->kind == JINJA_FLOAT)
        if (f > -9e18 && f < 9e18) *out = hth_jinja_integer((int64_t)f);
    return true;
}

static JINJA_FUNCTION(filter_float)
{
    double f = 0.0;
    int64_t i;
    bool whole;
    *out = args->v[0].kind == JINJA_MISSING ? hth_jinja_float(0.0) : args->v[0];
    if (hth_jinja_is_number(self)) *out = hth_jinja_float(hth_jinja_number(self));
    if (self->kind != JINJA_TEXT) return true;
    if (read_number(j, self->as.text, &f, &i, &whole)) *out = hth_jinja_float(f);
    return j->status == HEARTH_OK;
}

static JINJA_FUNCTION(filter_abs)
{
    if (!hth_jinja_is_number(self))
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'abs' of %s", hth_jinja_kind_name(self));
    hth_jinja_value zero = hth_jinja_integer(0);
    if (hth_jinja_number(self) < 0.0) return hth_jinja_operate(j, OP_SUB, &zero, self, out);
    return hth_jinja_operate(j, OP_ADD, &zero, self, out);
}

/* Rounds on the decimal digits: common (to nearest, ties to even), floor and ceil. */
static JINJA_FUNCTION(filter_round)
{
    int64_t precision;
    hth_jinja_text *method;
    bool up = false, down = false;
    if (!hth_jinja_is_number(self))
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'round' of %s", hth_jinja_kind_name(self));
    if (!hth_jinja_int(j, &args->v[0], 0, &precision) || !hth_jinja_text_argument(j, &args->v[1], &method))
        return false;
    if (method &&
        (!hth_jinja_text_is(j, method, "ceil", &up) || !hth_jinja_text_is(j, method, "floor", &down)))
        return false;
    if (precision < 0 || precision > 15)
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'round' to %lld digits", (long long)precision);
    *out = *self;
    if (self->kind != JINJA_FLOAT && !up && !down) return true; /* an integer stays an integer */
    double x = hth_jinja_number(self), scale = 1.0;
    for (int64_t i = 0; i < precision; i++) scale *= 10.0;
    double y = x * scale;
    *out = hth_jinja_float(x);
    if (!(y > -9e15 && y < 9e15)) return true;
    int64_t i = (int64_t)y;
    double rest = y - (double)i;
    if (up) i += rest > 0.0;
    else if (down) i -= rest < 0.0;
    else if (rest > 0.5 || (!(rest < 0.5) && i & 1)) i++;
    else if (rest < -0.5 || (!(rest > -0.5) && i & 1)) i--;
    *out = hth_jinja_float((double)i / scale);
    return true;
}

/* ---- any kind --------------------------------------------------------------------------------------------- */

static JINJA_FUNCTION(filter_length)
{
    const char *p = NULL;
    switch (self->kind) {
    case JINJA_TEXT:
        p = hth_jinja_bytes(j, self->as.text);
        if (!p || !hth_jinja_count_bytes(j, self->as.text->n)) return false;
        *out = hth_jinja_integer((int64_t)hth_jinja_n_char(p, self->as.text->n));
        return true;
    case JINJA_LIST:
    case JINJA_TUPLE: *out = hth_jinja_integer((int64_t)self->as.list->n); return true;
    case JINJA_DICT: *out = hth_jinja_integer((int64_t)self->as.dict->n); return true;
    case JINJA_UNDEFINED: *out = hth_jinja_integer(0); return true;
    default: return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s has no length", hth_jinja_kind_name(self));
    }
}

static JINJA_FUNCTION(filter_default)
{
    bool replace = self->kind == JINJA_UNDEFINED || (hth_jinja_is_true(&args->v[1]) && !hth_jinja_is_true(self));
    if (!replace) *out = *self;
    else if (args->v[0].kind == JINJA_MISSING) return hth_jinja_text_word(j, "", out);
    else *out = args->v[0];
    return true;
}

static JINJA_FUNCTION(filter_from_json)
{
    if (self->kind != JINJA_TEXT)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "JSON: expected a text, not %s",
                              hth_jinja_kind_name(self));
    const char *p = hth_jinja_bytes(j, self->as.text);
    return p && hth_jinja_from_json(j, p, self->as.text->n, out);
}

static JINJA_FUNCTION(filter_attr)
{
    hth_jinja_text *name;
    if (!hth_jinja_text_argument(j, &args->v[0], &name)) return false;
    const char *p = name ? hth_jinja_bytes(j, name) : "";
    return p && hth_jinja_member(j, self, (hth_str){p, name ? name->n : 0}, out);
}

const hth_jinja_function hth_jinja_filters[] = {
    {"abs", filter_abs, "", 0},
    {"attr", filter_attr, "name", 1},
    {"capitalize", hth_jinja_capitalize, "", 0},
    {"count", filter_length, "", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"e", filter_escape, "", 0},
    {"escape", filter_escape, "", 0},
    {"float", filter_float, "default", 0},
    {"forceescape", filter_forceescape, "", 0},
    {"format", filter_format, NULL, 0},
    {"from_json", filter_from_json, "", 0},
    {"fromjson", filter_from_json, "", 0},
    {"indent", filter_indent, "width first blank", 0},
    {"int", filter_int, "default", 0},
    {"length", filter_length, "", 0},
    {"lower", hth_jinja_lower, "", 0},
    {"replace", hth_jinja_replace, "old new count", 2},
    {"round", filter_round, "precision method", 0},
    {"safe", filter_safe, "", 0},
    {"string", filter_string, "", 0},
    {"title", filter_title, "", 0},
    {"tojson", hth_jinja_to_json, "ensure_ascii indent separators sort_keys", 0},
    {"trim", filter_trim, "chars", 0},
    {"upper", hth_jinja_upper, "", 0},
    {"wordcount", filter_wordcount, "", 0},
    {NULL, NULL, NULL, 0},
};

const hth_jinja_function *hth_jinja_filter(hth_str name)
{
    const hth_jinja_function *f = hth_jinja_find_function(hth_jinja_filters, name);
    return f ? f : hth_jinja_find_function(hth_jinja_list_filters, name);
}
