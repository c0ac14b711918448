/* Compiles regular expressions to parts of a grammar, character by character with a stack of open groups. Lazy
 * quantifiers match the same texts as greedy ones; groups capture nothing. */
#include "constrain/pattern.h"

#include "text/utf8.h"

#include <string.h>

/* Open groups. */
enum { MAX_DEPTH = 200 };

typedef struct {
    uint32_t head; /* the point before it */
    hth_grammar_fork fork;
    hth_pattern_lengths before; /* lengths of the text before it in its alternative */
    hth_pattern_lengths all;    /* lengths of its finished alternatives; min > max: there are none */
} group;

typedef struct parser {
    hth_grammar *g;
    const char *text;
    size_t n, at;
    uint32_t tail;
    uint32_t head;                 /* the point before the last part */
    bool has_part;                 /* there is a last part, which can be repeated */
    hth_pattern_lengths part, run; /* lengths of the last part; of the alternative before it */
    group groups[MAX_DEPTH];
    size_t n_group;
    bool after_end; /* behind $ */
    uint32_t end;   /* a character that ends the texts; 0: they are JSON strings */
    bool needs_end; /* the expression asks for that character */
    hearth_error *err;
} parser;

static hearth_status bad(const parser *p, hearth_status status, const char *what)
{
    return hth_fail(p->err, status, "%s at character %zu of the pattern", what, p->at + 1);
}

static bool is_at(const parser *p, const char *words)
{
    size_t n = strlen(words);
    return p->n - p->at >= n && memcmp(p->text + p->at, words, n) == 0;
}

static bool take_literal(parser *p, const char *words)
{
    if (!is_at(p, words)) return false;
    p->at += strlen(words);
    return true;
}

/* A character as it is. */
static hearth_status take_char(parser *p, uint32_t *c)
{
    size_t length = hth_text_utf8_decode(p->text + p->at, p->n - p->at, c);
    p->at += length;
    return length > 0 ? HEARTH_OK : bad(p, HEARTH_ERROR_FORMAT, "no UTF-8");
}

/* ---- lengths ------------------------------------------------------------------------------------ */

static uint32_t add_lengths(uint32_t a, uint32_t b)
{
    return a > HTH_GRAMMAR_MAX_COUNT || b > HTH_GRAMMAR_MAX_COUNT || a + b > HTH_GRAMMAR_MAX_COUNT
               ? HTH_GRAMMAR_UNBOUNDED
               : a + b;
}

static uint32_t multiply_lengths(uint32_t a, uint32_t n)
{
    uint64_t all = (uint64_t)a * n;
    return all > HTH_GRAMMAR_MAX_COUNT ? HTH_GRAMMAR_UNBOUNDED : (uint32_t)all;
}

static void end_part(parser *p)
{
    p->run.min = add_lengths(p->run.min, p->part.min);
    p->run.max = add_lengths(p->run.max, p->part.max);
    p->part = (hth_pattern_lengths){0, 0};
    p->has_part = false;
}

/* A part of one character, or a group, begins. */
static void begin_part(parser *p)
{
    end_part(p);
    p->head = p->tail = hth_grammar_point(p->g, p->tail);
}

static void finish_part(parser *p, uint32_t tail, hth_pattern_lengths lengths)
{
    p->tail = tail;
    p->part = lengths;
    p->has_part = true;
}

/* ---- escapes and classes --------------------------------------------------------------------------- */

/* \d, \w, \s and their opposites. False: too many ranges. */
static bool add_named_class(hth_char_set *set, char name)
{
    static const hth_char_range digits[] = {{'0', '9'}},
                                words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                spaces[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},
                                            {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                            {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                            {0xFEFF, 0xFEFF}};
    char lower = (char)(name | 0x20);
    const hth_char_range *from = lower == 'd' ? digits : lower == 'w' ? words : spaces;
    size_t n = lower == 'd' ? 1 : lower == 'w' ? 4 : sizeof spaces / sizeof *spaces;
    hth_char_set class = {.n = 0};
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok &= hth_char_set_add(&class, from[i].first, from[i].last);
    if (name != lower) ok &= hth_char_set_invert(&class);
    for (size_t i = 0; i < class.n; i++)
        ok &= hth_char_set_add(set, class.range[i].first, class.range[i].last);
    return ok;
}

static int hex_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* n digits, or, with n 0, those up to a brace. False: they are none. */
static bool take_hex(parser *p, size_t n, uint32_t *c)
{
    size_t k = 0;
    for (*c = 0; p->at < p->n && (n == 0 || k < n) && hex_of(p->text[p->at]) >= 0 && *c <= HTH_MAX_CODE_POINT;
         k++)
        *c = *c << 4 | (uint32_t)hex_of(p->text[p->at++]);
    bool is_char = *c <= HTH_MAX_CODE_POINT && (*c < 0xD800 || *c > 0xDFFF);
    return k > 0 && is_char && (n == 0 ? take_literal(p, "}") : k == n);
}

/* Behind a backslash: one character, or a class that is added to set (*c UINT32_MAX). */
static hearth_status take_escape(parser *p, hth_char_set *set, uint32_t *c)
{
    static const char from[] = "tnrfv", to[] = "\t\n\r\f\v";
    char e = p->at < p->n ? p->text[p->at] : 0;
    const char *known = e ? strchr(from, e) : NULL;
    *c = UINT32_MAX;
    if (e && strchr("dDwWsS", e)) {
        p->at++;
        return add_named_class(set, e) ? HEARTH_OK
                                       : bad(p, HEARTH_ERROR_UNSUPPORTED, "a class with too many ranges");
    }
    if (known) *c = (uint8_t)to[known - from];
    else if (e == '0' && !(p->at + 1 < p->n && p->text[p->at + 1] >= '0' && p->text[p->at + 1] <= '9'))
        *c = 0;
    if (*c != UINT32_MAX) {
        p->at++;
        return HEARTH_OK;
    }
    if (take_literal(p, "x"))
        return take_hex(p, 2, c) ? HEARTH_OK : bad(p, HEARTH_ERROR_FORMAT, "\\x without two digits");
    if (take_literal(p, "u{"))
        return take_hex(p, 0, c) ? HEARTH_OK : bad(p, HEARTH_ERROR_FORMAT, "\\u{...} is no character");
    if (take_literal(p, "u"))
        return take_hex(p, 4, c) ? HEARTH_OK
                                 : bad(p, HEARTH_ERROR_FORMAT, "\\u without four digits of a character");
    if (e >= '1' && e <= '9') return bad(p, HEARTH_ERROR_UNSUPPORTED, "back references are not supported:");
    if (e == 'b' || e == 'B')
        return bad(p, HEARTH_ERROR_UNSUPPORTED, "ends of words (\\b) are not supported:");
    if (e == 'p' || e == 'P')
        return bad(p, HEARTH_ERROR_UNSUPPORTED, "properties of characters (\\p) are not supported:");
    if (e == 0 || (e >= '0' && e <= '9') || ((e | 0x20) >= 'a' && (e | 0x20) <= 'z'))
        return bad(p, HEARTH_ERROR_FORMAT, "an escape that is not known");
    return take_char(p, c);
}

/* In a class: as take_escape, or a character as it is. */
static hearth_status take_class_char(parser *p, hth_char_set *set, uint32_t *c)
{
    if (take_literal(p, "\\b")) {
        *c = '\b';
        return HEARTH_OK;
    }
    if (take_literal(p, "\\-")) {
        *c = '-';
        return HEARTH_OK;
    }
    if (take_literal(p, "\\")) return take_escape(p, set, c);
    if (p->at >= p->n) return bad(p, HEARTH_ERROR_FORMAT, "a class is not closed");
    return take_char(p, c);
}

/* Behind [. */
static hearth_status take_class(parser *p, hth_char_set *set)
{
    bool inverted = take_literal(p, "^"), ok = true;
    while (!take_literal(p, "]")) {
        uint32_t first, last;
        hearth_status st = take_class_char(p, set, &first);
        if (st != HEARTH_OK) return st;
        if (first == UINT32_MAX) continue;
        last = first;
        if (is_at(p, "-") && !is_at(p, "-]")) {
            p->at++;
            st = take_class_char(p, set, &last);
            if (st != HEARTH_OK) return st;
            if (last == UINT32_MAX || last < first)
                return bad(p, HEARTH_ERROR_FORMAT, "a range of a class is upside down");
        }
        ok &= hth_char_set_add(set, first, last);
    }
    hth_char_set_normalise(set);
    if (inverted) ok &= hth_char_set_invert(set);
    return ok ? HEARTH_OK : bad(p, HEARTH_ERROR_UNSUPPORTED, "a class with too many ranges");
}

static uint32_t one_of(parser *p, uint32_t tail, hth_char_set *set)
{
    if (p->end == 0) return hth_json_char(p->g, tail, set);
    (void)hth_char_set_remove(set, p->end, p->end);
    p->needs_end |= set->n == 0;
    return hth_grammar_char(p->g, tail, set);
}

static void add_set(parser *p, hth_char_set *set)
{
    hth_char_set_normalise(set);
    begin_part(p);
    finish_part(p, one_of(p, p->tail, set), (hth_pattern_lengths){1, 1});
}

static void add_char(parser *p, uint32_t c)
{
    hth_char_set set = {{{c, c}}, 1};
    add_set(p, &set);
}

/* ---- groups ------------------------------------------------------------------------------------------ */

/* Allows any text at this point, because an expression without ^ or $ may match anywhere. */
static void add_anything(parser *p)
{
    hth_char_set all = {{{0, HTH_MAX_CODE_POINT}}, 1};
    begin_part(p);
    uint32_t tail = one_of(p, p->head, &all);
    tail = hth_grammar_repeat_since(p->g, p->head, tail, 0, HTH_GRAMMAR_UNBOUNDED);
    finish_part(p, tail, (hth_pattern_lengths){0, HTH_GRAMMAR_UNBOUNDED});
    end_part(p);
}

static void begin_alternative(parser *p)
{
    group *top = &p->groups[p->n_group - 1];
    p->tail = hth_grammar_branch(p->g, &top->fork);
    p->run = p->part = (hth_pattern_lengths){0, 0};
    p->has_part = p->after_end = false;
    if (p->n_group == 1 && !take_literal(p, "^")) add_anything(p);
}

static void end_alternative(parser *p)
{
    group *top = &p->groups[p->n_group - 1];
    end_part(p);
    if (p->n_group == 1 && !p->after_end) add_anything(p);
    hth_grammar_end_branch(p->g, &top->fork, p->tail);
    if (top->all.min > p->run.min) top->all.min = p->run.min;
    if (top->all.max < p->run.max) top->all.max = p->run.max;
}

static hearth_status begin_group(parser *p)
{
    if (p->n_group == MAX_DEPTH) return bad(p, HEARTH_ERROR_UNSUPPORTED, "groups are nested too deeply");
    begin_part(p);
    p->groups[p->n_group++] = (group){.head = p->head,
                                      .fork = hth_grammar_fork_begin(p->g, p->tail),
                                      .before = p->run,
                                      .all = {HTH_GRAMMAR_UNBOUNDED, 0}};
    begin_alternative(p);
    return HEARTH_OK;
}

static hearth_status open_group(parser *p)
{
    if (is_at(p, "?=") || is_at(p, "?!") || is_at(p, "?<=") || is_at(p, "?<!"))
        return bad(p, HEARTH_ERROR_UNSUPPORTED, "look-around is not supported:");
    if (take_literal(p, "?<")) {
        while (p->at < p->n && p->text[p->at] != '>') p->at++;
        if (!take_literal(p, ">")) return bad(p, HEARTH_ERROR_FORMAT, "the name of a group is not closed");
    } else if (is_at(p, "?") && !take_literal(p, "?:")) {
        return bad(p, HEARTH_ERROR_UNSUPPORTED, "a group of an unknown kind");
    }
    return begin_group(p);
}

static hearth_status close_group(parser *p)
{
    if (p->n_group < 2) return bad(p, HEARTH_ERROR_FORMAT, "a ) without its (");
    end_alternative(p);
    group top = p->groups[--p->n_group];
    p->run = top.before;
    p->head = top.head;
    finish_part(p, hth_grammar_fork_end(p->g, &top.fork), top.all);
    return HEARTH_OK;
}

/* ---- quantifiers ---------------------------------------------------------------------------------------- */

static bool take_number(parser *p, uint32_t *n)
{
    size_t from = p->at;
    uint64_t value = 0;
    for (; p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++)
        if (value <= HTH_GRAMMAR_MAX_COUNT) value = value * 10 + (uint64_t)(p->text[p->at] - '0');
    *n = value > HTH_GRAMMAR_MAX_COUNT ? HTH_GRAMMAR_UNBOUNDED : (uint32_t)value;
    return p->at > from;
}

/* Behind {. */
static hearth_status take_bounds(parser *p, uint32_t *min, uint32_t *max)
{
    bool is_quantifier = take_number(p, min);
    *max = *min;
    if (!is_quantifier) return bad(p, HEARTH_ERROR_FORMAT, "a { that is no quantifier; \\{ is the character");
    bool is_open = take_literal(p, ",") && !take_number(p, max);
    if (!take_literal(p, "}")) return bad(p, HEARTH_ERROR_FORMAT, "a quantifier is not closed");
    if (*min == HTH_GRAMMAR_UNBOUNDED || (!is_open && *max == HTH_GRAMMAR_UNBOUNDED))
        return bad(p, HEARTH_ERROR_UNSUPPORTED, "a quantifier with too large a number");
    if (is_open) *max = HTH_GRAMMAR_UNBOUNDED;
    return *min <= *max ? HEARTH_OK : bad(p, HEARTH_ERROR_FORMAT, "a quantifier whose bounds are exchanged");
}

static hearth_status quantify(parser *p, uint32_t min, uint32_t max)
{
    if (!p->has_part) return bad(p, HEARTH_ERROR_FORMAT, "there is nothing to repeat");
    take_literal(p, "?"); /* lazy */
    p->tail = hth_grammar_repeat_since(p->g, p->head, p->tail, min, max);
    p->part.min = multiply_lengths(p->part.min, min);
    if (p->part.max > 0 && max == HTH_GRAMMAR_UNBOUNDED) p->part.max = HTH_GRAMMAR_UNBOUNDED;
    else p->part.max = multiply_lengths(p->part.max, max);
    end_part(p);
    return HEARTH_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------------- */

static hearth_status take_part(parser *p)
{
    static const hth_char_set line_ends = {{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}, 3};
    hth_char_set set = {.n = 0};
    uint32_t min, max, c;
    hearth_status st;
    if (p->after_end && !is_at(p, "|"))
        return bad(p, HEARTH_ERROR_UNSUPPORTED, "$ is supported only at the end:");
    if (take_literal(p, "(")) return open_group(p);
    if (take_literal(p, ")")) return close_group(p);
    if (take_literal(p, "|")) {
        end_alternative(p);
        begin_alternative(p);
        return HEARTH_OK;
    }
    if (take_literal(p, "*")) return quantify(p, 0, HTH_GRAMMAR_UNBOUNDED);
    if (take_literal(p, "+")) return quantify(p, 1, HTH_GRAMMAR_UNBOUNDED);
    if (take_literal(p, "?")) return quantify(p, 0, 1);
    if (take_literal(p, "{")) return (st = take_bounds(p, &min, &max)) == HEARTH_OK ? quantify(p, min, max) : st;
    if (is_at(p, "^")) return bad(p, HEARTH_ERROR_UNSUPPORTED, "^ is supported only at the beginning:");
    if (is_at(p, "$") && p->n_group > 1)
        return bad(p, HEARTH_ERROR_UNSUPPORTED, "$ in a group is not supported:");
    if (take_literal(p, "$")) {
        end_part(p);
        p->after_end = true;
        return HEARTH_OK;
    }
    if (take_literal(p, "[")) {
        if ((st = take_class(p, &set)) == HEARTH_OK) add_set(p, &set);
        return st;
    }
    if (take_literal(p, ".")) {
        set = line_ends;
        if (hth_char_set_invert(&set)) add_set(p, &set);
        return HEARTH_OK;
    }
    if (take_literal(p, "\\")) {
        if ((st = take_escape(p, &set, &c)) != HEARTH_OK) return st;
        if (c != UINT32_MAX) add_char(p, c);
        else add_set(p, &set);
        return HEARTH_OK;
    }
    if ((st = take_char(p, &c)) == HEARTH_OK) add_char(p, c);
    return st;
}

hearth_status hth_pattern_add(hth_grammar *g, uint32_t *tail, hth_str pattern, uint32_t end, hth_pattern_lengths *lengths,
                              hearth_error *err)
{
    parser *p = hth_alloc(1, sizeof *p);
    if (!p) return hth_fail_memory(err, sizeof *p, "a pattern");
    hearth_error why = {.status = HEARTH_OK};
    *p = (parser){.g = g, .text = pattern.bytes, .n = pattern.n, .tail = *tail, .end = end, .err = &why};
    hearth_status st = begin_group(p);
    while (st == HEARTH_OK && p->at < p->n && hth_grammar_ok(g)) {
        st = take_part(p);
        if (st == HEARTH_OK && p->needs_end)
            st = bad(p, HEARTH_ERROR_UNSUPPORTED, "the first character of the mark behind the text");
    }
    if (st == HEARTH_OK && p->n_group > 1) st = bad(p, HEARTH_ERROR_FORMAT, "a group is not closed");
    if (st == HEARTH_OK) {
        end_alternative(p);
        *tail = hth_grammar_fork_end(g, &p->groups[0].fork);
        *lengths = p->groups[0].all;
    } else if (err) {
        *err = why;
    }
    hth_free(p);
    return st;
}
