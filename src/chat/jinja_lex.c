/* Tokens of a template's source, produced on demand for the parser. White space around tags is handled here:
 * trim_blocks (strips the newline after a statement or comment), lstrip_blocks (strips blanks between the start of
 * a line and a statement or comment), and the signs - and + inside tags. Newlines are \n, which hth_jinja_parse
 * ensures. */
#include "chat/jinja.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* MAX_NAME: every lookup of a variable compares names byte by byte. */
enum { MAX_NUMBER = 60, MAX_NAME = 255 };

static bool fail_at(hth_jinja_lexer *lex, const char *what)
{
    lex->j->line = lex->line;
    return hth_jinja_fail(lex->j, HEARTH_ERROR_FORMAT, "%s", what);
}

/* Moves to q and counts lines. */
static void move_to(hth_jinja_lexer *lex, const char *q)
{
    for (const char *p = lex->p; p < q; p++) lex->line += *p == '\n';
    lex->p = q;
}

static void skip_space(hth_jinja_lexer *lex)
{
    const char *q = lex->p;
    for (size_t size; q < lex->end && (size = hth_jinja_space_size(q, (size_t)(lex->end - q))) > 0;)
        q += size;
    move_to(lex, q);
}

/* ---- outside tags ---------------------------------------------------------------------------- */

static const char *find_tag(const hth_jinja_lexer *lex)
{
    for (const char *p = lex->p; p < lex->end; p++) {
        p = memchr(p, '{', (size_t)(lex->end - p));
        if (!p || lex->end - p < 2) return lex->end;
        if (p[1] == '{' || p[1] == '%' || p[1] == '#') return p;
    }
    return lex->end;
}

/* The end of the data before the tag at q, after stripping white space. */
static const char *trim_before(const hth_jinja_lexer *lex, const char *q)
{
    char sign = lex->end - q > 2 ? q[2] : '\0';
    const char *end = q;
    if (sign == '+' || (sign != '-' && q[1] == '{')) return q;
    while (end > lex->p && (sign == '-' || end[-1] != '\n')) {
        const char *at = end - 1;
        while (at > lex->p && ((unsigned char)*at & 0xC0) == 0x80) at--;
        if (hth_jinja_space_size(at, (size_t)(end - at)) != (size_t)(end - at)) break;
        end = at;
    }
    if (sign == '-') return end;
    bool at_line_start = end == lex->p ? lex->line_starts : end[-1] == '\n';
    return at_line_start ? end : q;
}

/* Strips the white space after a tag according to its sign. */
static void after_tag(hth_jinja_lexer *lex, char sign, bool trims_newline)
{
    const char *from = lex->p;
    if (sign == '-') skip_space(lex);
    else if (sign != '+' && trims_newline && lex->p < lex->end && *lex->p == '\n') move_to(lex, lex->p + 1);
    lex->line_starts = lex->p > from && lex->p[-1] == '\n';
}

static bool skip_comment(hth_jinja_lexer *lex)
{
    for (const char *q = lex->p + 2; q + 1 < lex->end; q++) {
        if (q[0] != '#' || q[1] != '}') continue;
        char sign = q > lex->p + 2 ? q[-1] : '\0';
        move_to(lex, q + 2);
        after_tag(lex, sign, true);
        return true;
    }
    return fail_at(lex, "a comment is not closed by #}");
}

static bool next_outside(hth_jinja_lexer *lex, hth_jinja_token *token)
{
    for (;;) {
        *token = (hth_jinja_token){.kind = TOKEN_END, .line = lex->line, .p = lex->p};
        const char *q = find_tag(lex);
        bool tag = q < lex->end;
        const char *end = tag ? trim_before(lex, q) : q;
        if (end > lex->p) {
            token->kind = TOKEN_DATA;
            token->n = (size_t)(end - lex->p);
            move_to(lex, q);
            return true;
        }
        move_to(lex, q);
        if (!tag) return true;
        if (q[1] == '#') {
            if (!skip_comment(lex)) return false;
            continue;
        }
        bool sign = lex->end - q > 2 && (q[2] == '-' || q[2] == '+');
        token->kind = q[1] == '{' ? TOKEN_OPEN_OUTPUT : TOKEN_OPEN_STATEMENT;
        token->line = lex->line;
        lex->closing = q[1] == '{' ? '}' : '%';
        lex->inside = true;
        lex->n_bracket = 0;
        lex->p = q + 2 + sign;
        return true;
    }
}

/* ---- texts and numbers ------------------------------------------------------------------------ */

static bool put_code_point(hth_jinja_lexer *lex, const char **p, int n_digit, char *out, size_t *n)
{
    uint32_t cp = 0;
    for (int i = 0; i < n_digit; i++) {
        char c = ++*p < lex->end ? **p : 'x';
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0 || cp > 0x10FFFF) return fail_at(lex, "a \\x or \\u in a text lacks digits");
        cp = cp << 4 | (uint32_t)digit;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return fail_at(lex, "a \\u in a text is no character");
    *n += hth_text_utf8_encode(cp, out + *n);
    return true;
}

/* Decodes the escape whose backslash is at *p, and moves *p to its last character. */
static bool unescape(hth_jinja_lexer *lex, const char **p, char *out, size_t *n)
{
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    char c = *++*p;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        out[(*n)++] = to[at - from];
    } else if (c == 'x' || c == 'u' || c == 'U') {
        return put_code_point(lex, p, c == 'x' ? 2 : c == 'u' ? 4 : 8, out, n);
    } else if (c >= '0' && c <= '7') {
        uint32_t cp = 0;
        int i = 0;
        for (; i < 3 && *p + i < lex->end && (*p)[i] >= '0' && (*p)[i] <= '7'; i++)
            cp = cp * 8 + (uint32_t)((*p)[i] - '0');
        *p += i - 1;
        *n += hth_text_utf8_encode(cp, out + *n);
    } else if (c != '\n') { /* as in Python: an unknown escape is copied */
        out[(*n)++] = '\\';
        out[(*n)++] = c;
    }
    return true;
}

static bool lex_text(hth_jinja_lexer *lex, hth_jinja_token *token)
{
    const char *p = lex->p + 1, *end = p;
    size_t n = 0;
    while (end < lex->end && *end != *lex->p) end += *end == '\\' && lex->end - end > 1 ? 2 : 1;
    if (end >= lex->end) return fail_at(lex, "a text is not closed by its quotation mark");
    char *out = hth_jinja_alloc(lex->j, (size_t)(end - p) + 1, 1);
    if (!out) return false;
    for (; p < end; p++) {
        if (*p != '\\') out[n++] = *p;
        else if (!unescape(lex, &p, out, &n)) return false;
    }
    token->kind = TOKEN_TEXT;
    move_to(lex, end + 1);
    return hth_jinja_text_of(lex->j, out, n, true, &token->value);
}

static bool is_digit(const hth_jinja_lexer *lex, const char *p)
{
    return p < lex->end && *p >= '0' && *p <= '9';
}

static const char *skip_digits(const hth_jinja_lexer *lex, const char *p)
{
    while (is_digit(lex, p) || (p < lex->end && *p == '_' && is_digit(lex, p + 1))) p++;
    return p;
}

static bool lex_number(hth_jinja_lexer *lex, hth_jinja_token *token)
{
    char digits[MAX_NUMBER + 1];
    size_t n = 0;
    const char *p = skip_digits(lex, lex->p);
    token->kind = TOKEN_INT;
    if (p < lex->end && *p == '.' && is_digit(lex, p + 1) && (lex->p == lex->start || lex->p[-1] != '.')) {
        token->kind = TOKEN_FLOAT;
        p = skip_digits(lex, p + 1);
    }
    if (p < lex->end && (*p | 32) == 'e') {
        const char *q = p + 1 + (p + 1 < lex->end && (p[1] == '-' || p[1] == '+'));
        if (is_digit(lex, q)) {
            token->kind = TOKEN_FLOAT;
            p = skip_digits(lex, q);
        }
    }
    if (p - lex->p > MAX_NUMBER) return fail_at(lex, "a number has more than 60 digits");
    for (const char *q = lex->p; q < p; q++)
        if (*q != '_') digits[n++] = *q;
    lex->p = p;
    if (token->kind == TOKEN_FLOAT) {
        double f;
        if (!hth_jinja_parse_float(digits, n, &f)) return fail_at(lex, "a number is too large");
        token->value = hth_jinja_float(f);
        return true;
    }
    int64_t v = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digits[i] - '0', &v))
            return fail_at(lex, "a number is too large");
    token->value = hth_jinja_integer(v);
    return true;
}

/* ---- inside tags --------------------------------------------------------------------------------- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

/* Consumes the end of the tag, if it is next: -%} +%} %} or -}} }}. */
static bool take_closing(hth_jinja_lexer *lex, hth_jinja_token *token)
{
    const char *p = lex->p;
    if (lex->n_bracket > 0) return false;
    char sign = *p == '-' || (*p == '+' && lex->closing == '%') ? *p++ : '\0';
    if (lex->end - p < 2 || p[0] != lex->closing || p[1] != '}') return false;
    token->kind = lex->closing == '%' ? TOKEN_CLOSE_STATEMENT : TOKEN_CLOSE_OUTPUT;
    lex->p = p + 2;
    lex->inside = false;
    after_tag(lex, sign, lex->closing == '%');
    return true;
}

static bool lex_sign(hth_jinja_lexer *lex, hth_jinja_token *token)
{
    static const char two[][3] = {"==", "!=", "<=", ">=", "//", "**"};
    char c = *lex->p;
    if (!c || !strchr("+-*/%~=<>!.,:;|()[]{}", c)) return fail_at(lex, "a character that no expression has");
    token->kind = TOKEN_SIGN;
    token->n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (lex->end - lex->p > 1 && memcmp(lex->p, two[i], 2) == 0) token->n = 2;
    if (strchr("([{", c)) lex->n_bracket++;
    if (strchr(")]}", c)) {
        if (lex->n_bracket == 0) return fail_at(lex, "a bracket is closed that was not opened");
        lex->n_bracket--;
    }
    lex->p += token->n;
    return true;
}

bool hth_jinja_next_token(hth_jinja_lexer *lex, hth_jinja_token *token)
{
    if (!lex->inside) return next_outside(lex, token);
    skip_space(lex);
    *token = (hth_jinja_token){.line = lex->line, .p = lex->p};
    if (lex->p == lex->end)
        return fail_at(lex, lex->closing == '%' ? "a tag is not closed by %}" : "a tag is not closed by }}");
    if (take_closing(lex, token)) return true;
    if (*lex->p == '"' || *lex->p == '\'') return lex_text(lex, token);
    if (is_digit(lex, lex->p)) return lex_number(lex, token);
    if (!is_letter(*lex->p)) return lex_sign(lex, token);
    const char *q = lex->p;
    while (q < lex->end && (is_letter(*q) || is_digit(lex, q))) q++;
    token->kind = TOKEN_NAME;
    token->n = (size_t)(q - lex->p);
    if (token->n > MAX_NAME) return fail_at(lex, "a name has more than 255 bytes");
    lex->p = q;
    return true;
}
