/* Formatting of values into texts: Python's str.format, its `text % values` and the filter `format`. Bytes of the
 * format and of texts keep their origins; numbers and padding with spaces and zeros are template text. */
#include "chat/jinja.h"

#include <stdio.h>
#include <string.h>

/* A format specification: [[fill]align][sign][#][0][width][,][.precision][type]. */
typedef struct spec {
    char pad;                 /* ' ' or '0' */
    hth_jinja_text *fill;     /* one character of the format in place of pad, or NULL */
    char align;               /* '<' '>' '^' '=', 0: the default of the value's kind */
    char sign;                /* '+' or ' ': before a number that is not negative, else 0 */
    bool prefix;              /* 0x and the like */
    bool empty;               /* nothing was specified */
    char group;               /* between groups of three digits, or 0 */
    int64_t width, precision; /* precision: -1 if absent */
    char type;                /* 0 if absent */
} spec;

enum { MAX_DIGITS = 400, MAX_PRECISION = 60 };

static bool malformed(hth_jinja *j, const char *what)
{
    return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'format': %s", what);
}

static bool put_piece(hth_jinja *j, hth_jinja_strbuf *b, const char *p, size_t n)
{
    return hth_jinja_strbuf_bytes(j, b, p, n, true);
}

/* ---- padding ------------------------------------------------------------------------------------- */

static bool put_fill(hth_jinja *j, hth_jinja_strbuf *b, const spec *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (s->fill ? !hth_jinja_strbuf_text(j, b, s->fill) : !put_piece(j, b, &s->pad, 1)) return false;
    return true;
}

/* Writes `lead` (sign and prefix of a number), then body, padded to the width. */
static bool put_padded(hth_jinja *j, hth_jinja_strbuf *b, const spec *s, const char *lead,
                       hth_jinja_text *body, char align)
{
    const char *p = hth_jinja_bytes(j, body);
    if (!p || !hth_jinja_count_bytes(j, body->n)) return false;
    int64_t n = (int64_t)(strlen(lead) + hth_jinja_n_char(p, body->n));
    int64_t pad = s->width > n ? s->width - n : 0;
    int64_t before = align == '>' ? pad : align == '^' ? pad / 2 : 0, inside = align == '=' ? pad : 0;
    return put_fill(j, b, s, before) && put_piece(j, b, lead, strlen(lead)) && put_fill(j, b, s, inside) &&
           hth_jinja_strbuf_text(j, b, body) && put_fill(j, b, s, pad - before - inside);
}

/* ---- numbers --------------------------------------------------------------------------------------- */

/* Digits of value in a base of 2, 8, 10 or 16; returns their number. */
static size_t digits_of(uint64_t value, unsigned base, bool upper, char *out)
{
    char reversed[64];
    size_t n = 0;
    do {
        reversed[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % base];
        value /= base;
    } while (value > 0);
    for (size_t i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    out[n] = '\0';
    return n;
}

/* Inserts the separator between groups of three digits before the point. */
static void group_digits(char *digits, char group)
{
    size_t n = strlen(digits), n_whole = strspn(digits, "0123456789");
    for (size_t left = n_whole; left > 3; left -= 3, n++) {
        memmove(digits + left - 2, digits + left - 3, n - left + 4);
        digits[left - 3] = group;
    }
}

/* printf writes the decimal point of the caller's locale. */
static void use_point(char *digits)
{
    char *from = digits + strspn(digits, "0123456789");
    size_t n = strcspn(from, "0123456789eE");
    if (n == 0 || *from == '\0') return;
    *from = '.';
    memmove(from + 1, from + n, strlen(from + n) + 1);
}

/* Digits of |f|. */
static bool float_digits(hth_jinja *j, double f, const spec *s, char *out)
{
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    if (s->precision > MAX_PRECISION)
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'format' with a precision of more than %d",
                              MAX_PRECISION);
    if (s->prefix) return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'format' of a float with '#'");
    if (s->type == 0 && s->precision >= 0)
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED,
                              "'format' of a float with a precision, but no type");
    if (f < 0) f = -f;
    if (s->type == '%') f *= 100.0;
    bool upper = s->type == 'E' || s->type == 'F' || s->type == 'G';
    if (f - f != 0.0) {
        strcpy(out, f != f ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
    } else {
        switch (s->type) {
        case 'e': snprintf(out, MAX_DIGITS, "%.*e", precision, f); break;
        case 'E': snprintf(out, MAX_DIGITS, "%.*E", precision, f); break;
        case 'g': snprintf(out, MAX_DIGITS, "%.*g", precision, f); break;
        case 'G': snprintf(out, MAX_DIGITS, "%.*G", precision, f); break;
        case 0: hth_jinja_format_float(f, out); break;
        default: snprintf(out, MAX_DIGITS, "%.*f", precision, f);
        }
        use_point(out);
    }
    if (s->type == '%') strcat(out, "%");
    return true;
}

static bool put_number(hth_jinja *j, hth_jinja_strbuf *b, const spec *s, bool negative, const char *prefix,
                       char *digits)
{
    char lead[4] = "";
    hth_jinja_value body;
    size_t n = 0;
    if (negative || s->sign) lead[n++] = negative ? '-' : s->sign;
    strcpy(lead + n, s->prefix ? prefix : "");
    if (s->group) {
        if (s->align == '=' && s->width > 0)
            return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED,
                                  "'format' of grouped digits filled with zeros");
        group_digits(digits, s->group);
    }
    return hth_jinja_text_of(j, digits, strlen(digits), true, &body) &&
           put_padded(j, b, s, lead, body.as.text, s->align ? s->align : '>');
}

static bool format_float(hth_jinja *j, hth_jinja_strbuf *b, double f, const spec *s)
{
    char *digits = hth_jinja_alloc(j, MAX_DIGITS * 2, 1);
    return digits && float_digits(j, f, s, digits) && put_number(j, b, s, __builtin_signbit(f), "", digits);
}

static bool format_integer(hth_jinja *j, hth_jinja_strbuf *b, int64_t i, const spec *s)
{
    static const struct {
        char type;
        unsigned base;
        const char *prefix;
    } bases[] = {{0, 10, ""},     {'d', 10, ""},  {'x', 16, "0x"},
                 {'X', 16, "0X"}, {'o', 8, "0o"}, {'b', 2, "0b"}};
    if (s->type && strchr("eEfFgG%", s->type)) return format_float(j, b, (double)i, s);
    if (s->precision >= 0) return malformed(j, "a whole number takes no precision");
    for (size_t k = 0; k < sizeof bases / sizeof *bases; k++) {
        if (bases[k].type != s->type) continue;
        char *digits = hth_jinja_alloc(j, 128, 1);
        if (!digits) return false;
        digits_of(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, bases[k].base, s->type == 'X', digits);
        return put_number(j, b, s, i < 0, bases[k].prefix, digits);
    }
    return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'format' of a whole number as '%c'", s->type);
}

/* ---- values ------------------------------------------------------------------------------------------ */

/* A text; `markup`: escaped, unless it is markup itself. */
static bool format_text(hth_jinja *j, hth_jinja_strbuf *b, hth_jinja_text *t, const spec *s, bool markup,
                        char align)
{
    hth_jinja_value v = {JINJA_TEXT, {.text = t}};
    if (markup && !t->markup && !hth_jinja_escape(j, t, &v)) return false;
    const char *p = hth_jinja_bytes(j, v.as.text);
    if (!p) return false;
    if (s->precision >= 0 &&
        !hth_jinja_cut(j, v.as.text, 0, hth_jinja_char_at(p, v.as.text->n, (size_t)s->precision), &v))
        return false;
    return put_padded(j, b, s, "", v.as.text, s->align ? s->align : align);
}

/* format(v, spec) of Python. */
static bool format_value(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_value *v, const spec *s,
                         bool markup)
{
    hth_jinja_value text;
    if (v->kind == JINJA_TEXT || s->empty) {
        if (s->sign || s->prefix || s->group || s->align == '=')
            return malformed(j, "a text takes no such specification");
        if (s->type && s->type != 's') return malformed(j, "a text is formatted as 's'");
        return hth_jinja_to_text(j, v, &text) && format_text(j, b, text.as.text, s, markup, '<');
    }
    if (v->kind == JINJA_FLOAT) {
        if (s->type && !strchr("eEfFgG%", s->type))
            return malformed(j, "a float is formatted as e, f, g or %");
        return format_float(j, b, v->as.f, s);
    }
    if (v->kind == JINJA_INT || v->kind == JINJA_BOOL)
        return format_integer(j, b, v->kind == JINJA_INT ? v->as.i : v->as.b, s);
    return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'format': %s takes no specification",
                          hth_jinja_kind_name(v));
}

static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

/* A decimal number of at most 8 digits. False if it is longer. */
static bool read_number(const char **p, const char *end, int64_t *out)
{
    *out = 0;
    for (int n = 0; *p < end && **p >= '0' && **p <= '9'; (*p)++, n++) {
        if (n == 8) return false;
        *out = *out * 10 + (**p - '0');
    }
    return true;
}

/* The bytes of a text from p to end. */
static bool read_spec(hth_jinja *j, hth_jinja_text *text, const char *p, const char *end, spec *s)
{
    *s = (spec){.pad = ' ', .precision = -1, .empty = p == end};
    if (p == end) return true;
    size_t n_fill = hth_jinja_char_size(p, (size_t)(end - p));
    if (p + n_fill < end && is_align(p[n_fill])) {
        const size_t at = (size_t)(p - hth_jinja_bytes(j, text));
        hth_jinja_value fill;
        if (!hth_jinja_cut(j, text, at, at + n_fill, &fill)) return false; /* keeps its origin */
        s->fill = fill.as.text;
        s->align = p[n_fill];
        p += n_fill + 1;
    } else if (is_align(*p)) {
        s->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) s->sign = *p++;
    if (s->sign == '-') s->sign = 0;
    if (p < end && *p == '#') s->prefix = *p++ != 0;
    if (p < end && *p == '0') {
        if (!s->align) s->pad = '0';
        if (!s->align) s->align = '0'; /* decided by the value's kind */
        p++;
    }
    if (!read_number(&p, end, &s->width)) return malformed(j, "the width is too large");
    if (p < end && (*p == ',' || *p == '_')) s->group = *p++;
    if (p < end && *p == '.') {
        p++;
        if (p == end || *p < '0' || *p > '9') return malformed(j, "digits are missing after '.'");
        if (!read_number(&p, end, &s->precision)) return malformed(j, "the precision is too large");
    }
    if (p < end) s->type = *p++;
    return p == end || malformed(j, "the specification is not understood");
}

/* ---- str.format ------------------------------------------------------------------------------------------ */

typedef struct formatter {
    hth_jinja *j;
    hth_jinja_text *format;
    const hth_jinja_args *args;
    hth_jinja_strbuf b;
    bool markup;
    bool numbers, automatic; /* fields with numbers, and without */
    size_t next;             /* argument of the next automatic field */
} formatter;

/* "name" or "3" or "": the value of the argument. */
static bool first_value(formatter *f, const char *p, size_t n, hth_jinja_value *out)
{
    const char *at = p;
    int64_t i = (int64_t)f->next;
    bool named = n > 0 && (*p < '0' || *p > '9');
    if (named) {
        hth_jinja_value key;
        hth_jinja_pair *pair;
        if (!hth_jinja_text_of(f->j, p, n, true, &key) || !hth_jinja_find(f->j, &f->args->named, &key, &pair))
            return false;
        if (!pair) return malformed(f->j, "a named value is missing");
        *out = pair->value;
        return true;
    }
    if (n > 0 && (!read_number(&at, p + n, &i) || at != p + n))
        return malformed(f->j, "a field name is not understood");
    f->automatic |= n == 0;
    f->numbers |= n > 0;
    if (f->automatic && f->numbers) return malformed(f->j, "fields with numbers and without cannot be mixed");
    if (i >= (int64_t)f->args->n) return malformed(f->j, "a value is missing");
    f->next += n == 0;
    *out = f->args->v[i];
    return true;
}

/* The value of "name.member[key]". */
static bool field_value(formatter *f, const char *p, const char *end, hth_jinja_value *out)
{
    const char *at = p;
    while (at < end && *at != '.' && *at != '[') at++;
    if (!first_value(f, p, (size_t)(at - p), out)) return false;
    while (at < end) {
        hth_jinja_value object = *out, key;
        bool member = *at++ == '.';
        const char *from = at;
        while (at < end && (member ? *at != '.' && *at != '[' : *at != ']')) at++;
        if (at == from || (!member && at == end)) return malformed(f->j, "a field name is not understood");
        if (member) {
            if (!hth_jinja_member(f->j, &object, (hth_str){from, (size_t)(at - from)}, out)) return false;
            continue;
        }
        const char *digits = from;
        int64_t i;
        bool whole = read_number(&digits, at, &i) && digits == at;
        if (whole) key = hth_jinja_integer(i);
        else if (!hth_jinja_text_of(f->j, from, (size_t)(at - from), true, &key)) return false;
        if (!hth_jinja_index(f->j, &object, &key, out)) return false;
        at++;
        if (at < end && *at != '.' && *at != '[') return malformed(f->j, "a field name is not understood");
    }
    return true;
}

/* One field: the bytes between { and }. */
static bool put_field(formatter *f, const char *p, const char *end)
{
    const char *colon = memchr(p, ':', (size_t)(end - p)), *name_end = colon ? colon : end;
    const char *mark = memchr(p, '!', (size_t)(name_end - p));
    hth_jinja_value v;
    hth_jinja_strbuf b = {0};
    spec s;
    char conversion = 0;
    if (memchr(p, '{', (size_t)(end - p)))
        return hth_jinja_fail(f->j, HEARTH_ERROR_UNSUPPORTED, "'format' with fields inside a specification");
    if (mark) {
        if (name_end - mark != 2 || (mark[1] != 's' && mark[1] != 'r'))
            return malformed(f->j, "a conversion is !s or !r");
        conversion = mark[1];
        name_end = mark;
    }
    if (!field_value(f, p, name_end, &v) || !read_spec(f->j, f->format, colon ? colon + 1 : end, end, &s))
        return false;
    if (conversion == 's' && !hth_jinja_to_text(f->j, &v, &v)) return false;
    if (conversion == 'r' && (!hth_jinja_repr(f->j, &v, &b) || !hth_jinja_strbuf_value(f->j, &b, &v)))
        return false;
    if (s.align == '0') s.align = v.kind == JINJA_TEXT ? '<' : '=';
    return format_value(f->j, &f->b, &v, &s, f->markup);
}

JINJA_FUNCTION(hth_jinja_str_format)
{
    hth_jinja_text *t = self->as.text;
    formatter f = {.j = j, .format = t, .args = args, .markup = t->markup};
    const char *p = hth_jinja_bytes(j, t);
    if (!p || !hth_jinja_count_bytes(j, t->n)) return false;
    hth_jinja_value plain;
    for (size_t at = 0, end; at < t->n; at = end) {
        for (end = at; end < t->n && p[end] != '{' && p[end] != '}'; end++) continue;
        bool doubled = end + 1 < t->n && p[end + 1] == p[end];
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_cut(j, t, at, end + doubled, &plain) ||
            !hth_jinja_strbuf_text(j, &f.b, plain.as.text))
            return false;
        if (end == t->n) break;
        if (doubled) {
            end += 2;
            continue;
        }
        const char *close = p[end] == '{' ? memchr(p + end, '}', t->n - end) : NULL;
        if (!close) return malformed(j, "a single '{' or '}'");
        if (!put_field(&f, p + end + 1, close)) return false;
        end = (size_t)(close - p) + 1;
    }
    if (!hth_jinja_strbuf_value(j, &f.b, out)) return false;
    out->as.text->markup = t->markup;
    return true;
}

/* ---- text % values --------------------------------------------------------------------------------------- */

static bool read_percent(hth_jinja *j, const char **at, const char *end, spec *s)
{
    const char *p = *at;
    *s = (spec){.pad = ' ', .precision = -1, .align = '>'};
    bool left = false;
    for (; p < end && strchr("-+ #0", *p) && *p; p++) {
        if (*p == '-') left = true;
        else if (*p == '#') s->prefix = true;
        else if (*p == '0') s->align = '=';
        else if (s->sign != '+') s->sign = *p;
    }
    if (left) s->align = '<';
    if (s->align == '=') s->pad = '0';
    if (!read_number(&p, end, &s->width)) return malformed(j, "the width is too large");
    if (p < end && *p == '.') {
        p++;
        if (!read_number(&p, end, &s->precision)) return malformed(j, "the precision is too large");
    }
    if (p == end) return malformed(j, "a '%' without a type");
    s->type = *p++;
    *at = p;
    return true;
}

static bool put_percent(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_value *v, spec *s, bool markup)
{
    hth_jinja_value text;
    hth_jinja_strbuf repr = {0};
    if (s->type == 's' || s->type == 'r') {
        bool ok = s->type == 's' ? hth_jinja_to_text(j, v, &text)
                                 : hth_jinja_repr(j, v, &repr) && hth_jinja_strbuf_value(j, &repr, &text);
        if (s->align == '=')
            *s = (spec){.pad = ' ', .align = '>', .width = s->width, .precision = s->precision};
        return ok && format_text(j, b, text.as.text, s, markup, '>');
    }
    if (!hth_jinja_is_number(v))
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'%%%c' of %s", s->type, hth_jinja_kind_name(v));
    if (strchr("eEfFgG", s->type)) return format_float(j, b, hth_jinja_number(v), s);
    if (s->type == 'i' || s->type == 'u') s->type = 'd';
    if (!strchr("dxXo", s->type))
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'%%' with type '%c'", s->type);
    if (v->kind == JINJA_FLOAT || v->kind == JINJA_DIGITS) {
        double f = hth_jinja_number(v);
        if (s->type != 'd') return malformed(j, "a float has no such digits");
        if (!(f > -9e18 && f < 9e18))
            return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "a number is too large");
        return format_integer(j, b, (int64_t)f, s);
    }
    return format_integer(j, b, v->kind == JINJA_BOOL ? v->as.b : v->as.i, s);
}

bool hth_jinja_percent_format(hth_jinja *j, hth_jinja_text *t, const hth_jinja_value *values,
                              hth_jinja_value *out)
{
    const bool tuple = values->kind == JINJA_TUPLE;
    const hth_jinja_value *v = tuple ? values->as.list->v : values;
    const size_t n = tuple ? values->as.list->n : 1;
    size_t next = 0;
    hth_jinja_strbuf b = {0};
    hth_jinja_value plain;
    const char *p = hth_jinja_bytes(j, t);
    if (!p || !hth_jinja_count_bytes(j, t->n)) return false;
    const char *end = p + t->n;
    for (const char *at = p; at < end;) {
        const char *mark = memchr(at, '%', (size_t)(end - at)), *stop = mark ? mark : end;
        bool doubled = mark && mark + 1 < end && mark[1] == '%';
        spec s;
        if (!hth_jinja_count_steps(j, 1) ||
            !hth_jinja_cut(j, t, (size_t)(at - p), (size_t)(stop - p) + doubled, &plain) ||
            !hth_jinja_strbuf_text(j, &b, plain.as.text))
            return false;
        if (!mark) break;
        at = mark + 1 + doubled;
        if (doubled) continue;
        if (at < end && *at == '(')
            return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'%%' with values by name");
        if (!read_percent(j, &at, end, &s)) return false;
        if (next == n) return malformed(j, "a value is missing");
        if (!put_percent(j, &b, &v[next++], &s, t->markup)) return false;
    }
    if (next < n && (tuple || (values->kind != JINJA_LIST && values->kind != JINJA_DICT)))
        return malformed(j, "more values than fields");
    if (!hth_jinja_strbuf_value(j, &b, out)) return false;
    out->as.text->markup = t->markup;
    return true;
}
