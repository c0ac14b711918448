/* Compiles llama.cpp's GBNF grammars. The text begins at the rule `root`. Rules are named before or after they are
 * used; a character class or a text is UTF-8. Groups are a stack, not recursion. */
#include "constrain/constraint.h"

#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

/* Open groups, and rules. */
enum { MAX_DEPTH = 200, MAX_RULES = 1 << 16, N_INDEX = 2 * MAX_RULES };

typedef struct rule {
    const char *name;
    size_t n, at; /* bytes of the name; where it is used first */
    uint32_t node;
    bool is_defined;
} rule;

typedef struct {
    uint32_t head; /* the point before it */
    hth_grammar_fork fork;
    size_t at;
} group;

typedef struct parser {
    hth_grammar *g;
    hth_arena *names;
    const char *text;
    size_t n, at;
    uint32_t tail, head; /* the point before the last part */
    bool has_part;       /* there is a part before this point, which can be repeated */
    group groups[MAX_DEPTH + 1];
    size_t n_group;
    rule *rule;
    uint32_t n_rule, rule_capacity, *index;
} parser;

/* Keeps a failure with its line and column. False. */
static bool bad_at(parser *p, size_t at, hearth_status status, const char *what)
{
    size_t line = 1, begin = 0;
    for (size_t i = 0; i < at; i++)
        if (p->text[i] == '\n') line++, begin = i + 1;
    hth_grammar_fail(p->g, status, "line %zu column %zu: %s", line, at - begin + 1, what);
    return false;
}

static bool bad(parser *p, const char *what) { return bad_at(p, p->at, HEARTH_ERROR_FORMAT, what); }

static char peek(const parser *p) { return p->at < p->n ? p->text[p->at] : 0; }

static bool take_symbol(parser *p, const char *words)
{
    size_t n = strlen(words);
    if (p->n - p->at < n || memcmp(p->text + p->at, words, n) != 0) return false;
    p->at += n;
    return true;
}

/* White space and comments. lines: line ends too. */
static void skip(parser *p, bool lines)
{
    while (p->at < p->n) {
        char c = p->text[p->at];
        if (c == '#') {
            while (p->at < p->n && p->text[p->at] != '\n' && p->text[p->at] != '\r') p->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            return;
        }
    }
}

/* ---- rules ------------------------------------------------------------------------------------------ */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static bool add_rule(parser *p, const char *name, size_t n)
{
    if (p->n_rule == MAX_RULES) return bad_at(p, p->at, HEARTH_ERROR_UNSUPPORTED, "too many rules");
    if (p->n_rule == p->rule_capacity) {
        uint32_t capacity = p->rule_capacity ? 2 * p->rule_capacity : 64;
        rule *bigger = hth_realloc(p->rule, capacity, sizeof *bigger);
        if (!bigger) {
            hth_grammar_fail(p->g, HEARTH_ERROR_MEMORY, "there is no memory for it");
            return false;
        }
        p->rule = bigger;
        p->rule_capacity = capacity;
    }
    const char *label = hth_arena_strndup(p->names, name, n < 60 ? n : 60);
    p->rule[p->n_rule++] = (rule){.name = name, .n = n, .at = p->at, .node = hth_grammar_rule(p->g, label)};
    return true;
}

/* The rule of the name at the place of the parser, which goes behind it. NULL after a failure. */
static rule *take_name(parser *p)
{
    const char *name = p->text + p->at;
    size_t n = 0;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; p->at + n < p->n && is_name_char(name[n]); n++) hash = (hash ^ (uint8_t)name[n]) * 1099511628211u;
    uint32_t at = (uint32_t)(hash ^ hash >> 32) & (N_INDEX - 1);
    for (; p->index[at]; at = (at + 1) & (N_INDEX - 1)) {
        rule *known = &p->rule[p->index[at] - 1];
        if (known->n != n || memcmp(known->name, name, n) != 0) continue;
        p->at += n;
        return known;
    }
    if (!add_rule(p, name, n)) return NULL;
    p->index[at] = p->n_rule;
    p->at += n;
    return &p->rule[p->n_rule - 1];
}

/* ---- characters ------------------------------------------------------------------------------------------ */

static bool take_hex(parser *p, size_t n, uint32_t *c)
{
    *c = 0;
    for (; n > 0; n--, p->at++) {
        char h = (char)(peek(p) | 0x20);
        bool is_digit = h >= '0' && h <= '9' && peek(p) >= '0', is_letter = h >= 'a' && h <= 'f';
        if ((!is_digit && !is_letter) || *c > HTH_MAX_CODE_POINT)
            return bad(p, "an escape without its hexadecimal digits");
        *c = *c << 4 | (uint32_t)(is_digit ? h - '0' : h - 'a' + 10);
    }
    return *c <= HTH_MAX_CODE_POINT && (*c < 0xD800 || *c > 0xDFFF)
               ? true
               : bad(p, "an escape that is no character");
}

static bool take_char(parser *p, uint32_t *c)
{
    static const char from[] = "trn\\\"[]-^", to[] = "\t\r\n\\\"[]-^";
    if (take_symbol(p, "\\")) {
        char e = peek(p);
        const char *known = e ? strchr(from, e) : NULL;
        if (!known && e != 'x' && e != 'u' && e != 'U') return bad(p, "an escape that is not known");
        p->at++;
        if (known) *c = (uint8_t)to[known - from];
        return known ? true : take_hex(p, e == 'x' ? 2 : e == 'u' ? 4 : 8, c);
    }
    size_t length = hth_text_utf8_decode(p->text + p->at, p->n - p->at, c);
    if (length == 0) return bad(p, p->at < p->n ? "no UTF-8" : "the grammar ends in the midst of a text");
    p->at += length;
    return true;
}

/* ---- parts ------------------------------------------------------------------------------------------------ */

static void begin_part(parser *p)
{
    p->head = p->tail = hth_grammar_point(p->g, p->tail);
    p->has_part = true;
}

/* A quantifier repeats the whole text, as in llama.cpp. */
static bool take_text(parser *p)
{
    begin_part(p);
    while (!take_symbol(p, "\"")) {
        uint32_t c;
        char bytes[4];
        if (!take_char(p, &c)) return false;
        p->tail = hth_grammar_text(p->g, p->tail, bytes, hth_text_utf8_encode(c, bytes));
    }
    return true;
}

static bool take_class(parser *p)
{
    hth_char_set set = {.n = 0};
    bool inverted = take_symbol(p, "^"), fits = true;
    begin_part(p);
    while (!take_symbol(p, "]")) {
        uint32_t first, last;
        if (!take_char(p, &first)) return false;
        last = first;
        if (peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            if (!take_char(p, &last)) return false;
            if (last < first) return bad(p, "a range of a class is upside down");
        }
        fits &= hth_char_set_add(&set, first, last);
    }
    hth_char_set_normalise(&set);
    if (inverted) fits &= hth_char_set_invert(&set);
    if (!fits) return bad_at(p, p->at, HEARTH_ERROR_UNSUPPORTED, "a class with too many ranges");
    p->tail = hth_grammar_char(p->g, p->tail, &set);
    return true;
}

static bool take_reference(parser *p)
{
    begin_part(p);
    rule *called = take_name(p);
    if (!called) return false;
    p->tail = hth_grammar_call(p->g, p->tail, called->node);
    return true;
}

static void begin_group(parser *p, uint32_t tail)
{
    p->groups[p->n_group++] =
        (group){.head = p->head, .fork = hth_grammar_fork_begin(p->g, tail), .at = p->at};
    p->tail = hth_grammar_branch(p->g, &p->groups[p->n_group - 1].fork);
    p->has_part = false;
}

static void next_alternative(parser *p)
{
    group *top = &p->groups[p->n_group - 1];
    hth_grammar_end_branch(p->g, &top->fork, p->tail);
    p->tail = hth_grammar_branch(p->g, &top->fork);
    p->has_part = false;
}

static void end_group(parser *p)
{
    group *top = &p->groups[--p->n_group];
    hth_grammar_end_branch(p->g, &top->fork, p->tail);
    p->tail = hth_grammar_fork_end(p->g, &top->fork);
    p->head = top->head;
    p->has_part = true;
}

static bool take_number(parser *p, uint32_t *n)
{
    uint64_t value = 0;
    size_t from = p->at;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        if (value <= HTH_GRAMMAR_MAX_COUNT) value = value * 10 + (uint64_t)(peek(p) - '0');
    if (p->at == from) return bad(p, "a number of repetitions is expected");
    if (value > HTH_GRAMMAR_MAX_COUNT) return bad(p, "too many repetitions");
    *n = (uint32_t)value;
    return true;
}

/* Behind {. */
static bool take_bounds(parser *p, uint32_t *min, uint32_t *max)
{
    skip(p, true);
    if (!take_number(p, min)) return false;
    *max = *min;
    skip(p, true);
    if (take_symbol(p, ",")) {
        skip(p, true);
        *max = HTH_GRAMMAR_UNBOUNDED;
        if (peek(p) != '}' && !take_number(p, max)) return false;
        skip(p, true);
    }
    if (!take_symbol(p, "}")) return bad(p, "} is expected");
    return *min <= *max ? true : bad(p, "the numbers of repetitions are exchanged");
}

static bool repeat(parser *p, uint32_t min, uint32_t max)
{
    if (!p->has_part) return bad(p, "there is nothing to repeat");
    p->tail = hth_grammar_repeat_since(p->g, p->head, p->tail, min, max);
    p->has_part = false;
    return true;
}

/* One part of an alternative, a quantifier, a bracket or a bar. *ends: none of them, the rule ends here. */
static bool take_part(parser *p, bool *ends)
{
    uint32_t min, max;
    if (take_symbol(p, "\"")) return take_text(p);
    if (take_symbol(p, "[")) return take_class(p);
    if (take_symbol(p, "*")) return repeat(p, 0, HTH_GRAMMAR_UNBOUNDED);
    if (take_symbol(p, "+")) return repeat(p, 1, HTH_GRAMMAR_UNBOUNDED);
    if (take_symbol(p, "?")) return repeat(p, 0, 1);
    if (take_symbol(p, "{")) return take_bounds(p, &min, &max) && repeat(p, min, max);
    if (take_symbol(p, ".")) {
        static const hth_char_set all = {{{0, HTH_MAX_CODE_POINT}}, 1};
        begin_part(p);
        p->tail = hth_grammar_char(p->g, p->tail, &all);
        return true;
    }
    if (take_symbol(p, "(")) {
        if (p->n_group > MAX_DEPTH - 1)
            return bad_at(p, p->at, HEARTH_ERROR_UNSUPPORTED, "groups are nested too deeply");
        begin_part(p);
        begin_group(p, p->tail);
        skip(p, true);
        return true;
    }
    if (p->n_group > 1 && take_symbol(p, ")")) {
        end_group(p);
        return true;
    }
    if (take_symbol(p, "|")) {
        next_alternative(p);
        skip(p, true);
        return true;
    }
    if (peek(p) == '<' || peek(p) == '!')
        return bad_at(p, p->at, HEARTH_ERROR_UNSUPPORTED,
                      "tokens in grammars are not supported; write their text");
    if (is_name_char(peek(p))) return take_reference(p);
    *ends = true;
    return true;
}

/* name ::= alternatives, to the end of the line that is in no group. */
static bool take_rule(parser *p)
{
    bool ends = false;
    size_t at = p->at;
    if (!is_name_char(peek(p))) return bad(p, "the name of a rule is expected");
    rule *r = take_name(p);
    if (!r) return false;
    skip(p, false);
    if (!take_symbol(p, "::=")) return bad(p, "::= is expected");
    if (r->is_defined) return bad_at(p, at, HEARTH_ERROR_FORMAT, "this rule is defined twice");
    r->is_defined = true;
    p->n_group = 0;
    begin_group(p, r->node);
    skip(p, true);
    while (!ends && hth_grammar_ok(p->g)) {
        if (!take_part(p, &ends)) return false;
        if (!ends) skip(p, p->n_group > 1);
    }
    if (p->n_group > 1) return bad(p, ") is expected");
    if (p->at < p->n && peek(p) != '\n' && peek(p) != '\r') return bad(p, "an unexpected character");
    end_group(p);
    hth_grammar_end_rule(p->g, p->tail);
    skip(p, true);
    return hth_grammar_ok(p->g);
}

static uint32_t check_rules(parser *p)
{
    uint32_t start = HTH_GRAMMAR_NOTHING;
    char line[120];
    for (uint32_t i = 0; i < p->n_rule && hth_grammar_ok(p->g); i++) {
        const rule *r = &p->rule[i];
        if (r->n == 4 && memcmp(r->name, "root", 4) == 0) start = r->node;
        if (r->is_defined) continue;
        snprintf(line, sizeof line, "there is no rule %.*s", r->n < 60 ? (int)r->n : 60, r->name);
        bad_at(p, r->at, HEARTH_ERROR_FORMAT, line);
    }
    if (start == HTH_GRAMMAR_NOTHING)
        hth_grammar_fail(p->g, HEARTH_ERROR_FORMAT, "there is no rule root, at which texts begin");
    return start;
}

uint32_t hth_compile_gbnf(hth_grammar *g, hth_arena *names, const char *text, size_t n)
{
    uint32_t start = HTH_GRAMMAR_NOTHING;
    parser *p = hth_alloc(1, sizeof *p);
    if (p) p->index = hth_alloc(N_INDEX, sizeof *p->index);
    if (p && p->index) {
        p->g = g;
        p->names = names;
        p->text = text;
        p->n = n;
        skip(p, true);
        while (p->at < p->n && take_rule(p)) continue;
        if (hth_grammar_ok(g)) start = check_rules(p);
    }
    if (!p || !p->index || names->failed)
        hth_grammar_fail(g, HEARTH_ERROR_MEMORY, "there is no memory for it");
    if (p) {
        hth_free(p->rule);
        hth_free(p->index);
    }
    hth_free(p);
    return start;
}
