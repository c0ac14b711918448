/* The rules of JSON as parts of a grammar; numbers are in json_numbers.c. */
#include "constrain/json_rules.h"

#include <stdio.h>
#include <string.h>

enum { MAX_INDENT = 24 };

/* ---- parts ---------------------------------------------------------------------------------- */

static uint32_t between(hth_grammar *g, uint32_t tail, char first, char last)
{
    hth_byte_set set = {{0}};
    hth_byte_set_add(&set, (uint8_t)first, (uint8_t)last);
    return hth_grammar_byte_set(g, tail, &set);
}

static void branch_text(hth_grammar *g, hth_grammar_fork *f, const char *words)
{
    hth_grammar_end_branch(g, f, hth_grammar_words(g, hth_grammar_branch(g, f), words));
}

static void add_space(hth_json_rules *r)
{
    hth_grammar *g = r->g;
    r->indent = hth_grammar_rule(g, NULL);
    hth_grammar_end_rule(g, hth_grammar_one_of(g, r->indent, " \t"));
    r->space = hth_grammar_rule(g, NULL);
    hth_grammar_fork f = hth_grammar_fork_begin(g, r->space);
    branch_text(g, &f, "");
    branch_text(g, &f, " ");
    uint32_t line = hth_grammar_words(g, hth_grammar_branch(g, &f), "\n");
    hth_grammar_end_branch(g, &f, hth_grammar_repeat(g, line, r->indent, 0, MAX_INDENT));
    hth_grammar_end_rule(g, hth_grammar_fork_end(g, &f));
    r->gap = hth_grammar_rule(g, NULL);
    uint32_t head = hth_grammar_point(g, r->gap);
    hth_grammar_end_rule(g, hth_grammar_repeat_since(g, head, hth_grammar_words(g, head, " "), 0, 1));
}

/* ---- strings --------------------------------------------------------------------------------- */

static const char HEX[] = "0123456789abcdefABCDEF";

static uint32_t hex_digits(hth_grammar *g, uint32_t tail, int n)
{
    for (; n > 0; n--) tail = hth_grammar_one_of(g, tail, HEX);
    return tail;
}

/* After \u: a character but U+0000, a pair of surrogates for those beyond U+FFFF. */
static uint32_t add_code(hth_grammar *g, uint32_t tail)
{
    const char *nonzero = HEX + 1;
    hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
    for (int zeros = 1; zeros <= 3; zeros++) {
        uint32_t at = hth_grammar_words(g, hth_grammar_branch(g, &f), &"000"[3 - zeros]);
        hth_grammar_end_branch(g, &f, hex_digits(g, hth_grammar_one_of(g, at, nonzero), 3 - zeros));
    }
    uint32_t at = hth_grammar_one_of(g, hth_grammar_branch(g, &f), "123456789abcefABCEF");
    hth_grammar_end_branch(g, &f, hex_digits(g, at, 3));
    at = hth_grammar_one_of(g, hth_grammar_branch(g, &f), "dD");
    hth_grammar_end_branch(g, &f, hex_digits(g, between(g, at, '0', '7'), 2));
    at = hth_grammar_one_of(g, hth_grammar_one_of(g, hth_grammar_branch(g, &f), "dD"), "89abAB");
    at = hth_grammar_words(g, hex_digits(g, at, 2), "\\u");
    at = hth_grammar_one_of(g, hth_grammar_one_of(g, at, "dD"), "cdefCDEF");
    hth_grammar_end_branch(g, &f, hex_digits(g, at, 2));
    return hth_grammar_fork_end(g, &f);
}

static void add_character(hth_json_rules *r)
{
    hth_grammar *g = r->g;
    static const hth_char_set plain = {{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, HTH_MAX_CODE_POINT}}, 3};
    r->character = hth_grammar_rule(g, NULL);
    hth_grammar_fork f = hth_grammar_fork_begin(g, r->character);
    hth_grammar_end_branch(g, &f, hth_grammar_char(g, hth_grammar_branch(g, &f), &plain));
    uint32_t escape = hth_grammar_words(g, hth_grammar_branch(g, &f), "\\");
    hth_grammar_fork kinds = hth_grammar_fork_begin(g, escape);
    hth_grammar_end_branch(g, &kinds, hth_grammar_one_of(g, hth_grammar_branch(g, &kinds), "\"\\/bfnrt"));
    hth_grammar_end_branch(g, &kinds, add_code(g, hth_grammar_words(g, hth_grammar_branch(g, &kinds), "u")));
    hth_grammar_end_branch(g, &f, hth_grammar_fork_end(g, &kinds));
    hth_grammar_end_rule(g, hth_grammar_fork_end(g, &f));
}

uint32_t hth_json_string(hth_json_rules *r, uint32_t tail, uint32_t min, uint32_t max)
{
    tail = hth_grammar_repeat(r->g, hth_grammar_words(r->g, tail, "\""), r->character, min, max);
    return hth_grammar_words(r->g, tail, "\"");
}

/* The escape of a character that must have one; NULL: it needs none. */
static const char *escape_of(uint32_t c, char out[8])
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = c > 0 && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (at) snprintf(out, 8, "\\%c", to[at - from]);
    else if (c < 0x20) snprintf(out, 8, "\\u%04x", (unsigned)c);
    return at || c < 0x20 ? out : NULL;
}

uint32_t hth_json_char(hth_grammar *g, uint32_t tail, const hth_char_set *set)
{
    static const uint8_t special[] = "\"\\";
    hth_char_set plain = *set;
    char escape[8];
    hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
    for (uint32_t c = 0; c < 0x20 + 2; c++) {
        uint32_t which = c < 0x20 ? c : special[c - 0x20];
        if (hth_char_set_has(set, which)) branch_text(g, &f, escape_of(which, escape));
    }
    bool fits = hth_char_set_remove(&plain, 0, 0x1F) && hth_char_set_remove(&plain, '"', '"') &&
                hth_char_set_remove(&plain, '\\', '\\');
    if (!fits)
        hth_grammar_fail(g, HEARTH_ERROR_UNSUPPORTED, "a class has more than %d ranges", HTH_MAX_CHAR_RANGES);
    if (plain.n > 0) hth_grammar_end_branch(g, &f, hth_grammar_char(g, hth_grammar_branch(g, &f), &plain));
    return hth_grammar_fork_end(g, &f);
}

uint32_t hth_json_escaped(hth_grammar *g, uint32_t tail, const char *words, size_t n)
{
    char escape[8];
    for (size_t i = 0; i < n; i++) {
        const char *escaped = escape_of((uint8_t)words[i], escape);
        tail = escaped ? hth_grammar_words(g, tail, escaped) : hth_grammar_byte(g, tail, (uint8_t)words[i]);
    }
    return tail;
}

uint32_t hth_json_quoted(hth_grammar *g, uint32_t tail, const char *words, size_t n)
{
    return hth_grammar_words(g, hth_json_escaped(g, hth_grammar_words(g, tail, "\""), words, n), "\"");
}

/* ---- values ---------------------------------------------------------------------------------------- */

/* begin item (, item)* end, or nothing between. */
static void add_list(hth_json_rules *r, uint32_t rule, uint32_t item, const char *begin, const char *end)
{
    hth_grammar *g = r->g;
    uint32_t more = hth_grammar_rule(g, NULL);
    uint32_t tail = hth_grammar_call(g, hth_grammar_words(g, more, ","), r->space);
    hth_grammar_end_rule(g, hth_grammar_call(g, tail, item));
    tail = hth_grammar_call(g, hth_grammar_words(g, rule, begin), r->space);
    hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
    branch_text(g, &f, "");
    tail = hth_grammar_call(g, hth_grammar_branch(g, &f), item);
    tail = hth_grammar_repeat(g, tail, more, 0, HTH_GRAMMAR_UNBOUNDED);
    hth_grammar_end_branch(g, &f, hth_grammar_call(g, tail, r->space));
    hth_grammar_end_rule(g, hth_grammar_words(g, hth_grammar_fork_end(g, &f), end));
}

static void add_values(hth_json_rules *r)
{
    hth_grammar *g = r->g;
    r->value = hth_grammar_rule(g, NULL);
    r->object = hth_grammar_rule(g, NULL);
    r->array = hth_grammar_rule(g, NULL);
    uint32_t member = hth_grammar_rule(g, NULL);
    uint32_t tail = hth_grammar_words(g, hth_grammar_call(g, member, r->string), ":");
    hth_grammar_end_rule(g, hth_grammar_call(g, hth_grammar_call(g, tail, r->gap), r->value));
    add_list(r, r->object, member, "{", "}");
    add_list(r, r->array, r->value, "[", "]");
    hth_grammar_fork f = hth_grammar_fork_begin(g, r->value);
    const uint32_t rules[] = {r->object, r->array, r->string, r->number};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        hth_grammar_end_branch(g, &f, hth_grammar_call(g, hth_grammar_branch(g, &f), rules[i]));
    branch_text(g, &f, "true");
    branch_text(g, &f, "false");
    branch_text(g, &f, "null");
    hth_grammar_end_rule(g, hth_grammar_fork_end(g, &f));
}

void hth_json_rules_add(hth_json_rules *r, hth_grammar *g)
{
    *r = (hth_json_rules){.g = g};
    add_space(r);
    add_character(r);
    hth_json_numbers_add(r);
    r->string = hth_grammar_rule(g, NULL);
    hth_grammar_end_rule(g, hth_json_string(r, r->string, 0, HTH_GRAMMAR_UNBOUNDED));
    add_values(r);
}

/* Without recursion: values know their parents. */
uint32_t hth_json_literal(hth_grammar *g, uint32_t tail, const hth_json *root)
{
    char number[32];
    for (const hth_json *v = root;;) {
        if (v->parent && v != root && v->parent->kind == HTH_JSON_OBJECT)
            tail = hth_grammar_words(g, hth_json_quoted(g, tail, v->key.bytes, v->key.n), ":");
        switch (v->kind) {
        case HTH_JSON_NULL: tail = hth_grammar_words(g, tail, "null"); break;
        case HTH_JSON_BOOL: tail = hth_grammar_words(g, tail, v->integer ? "true" : "false"); break;
        case HTH_JSON_INTEGER:
            snprintf(number, sizeof number, "%lld", (long long)v->integer);
            tail = hth_grammar_words(g, tail, number);
            break;
        case HTH_JSON_REAL: tail = hth_grammar_text(g, tail, v->text.bytes, v->text.n); break;
        case HTH_JSON_TEXT: tail = hth_json_quoted(g, tail, v->text.bytes, v->text.n); break;
        default: tail = hth_grammar_words(g, tail, v->kind == HTH_JSON_ARRAY ? "[" : "{"); break;
        }
        bool is_list = v->kind == HTH_JSON_ARRAY || v->kind == HTH_JSON_OBJECT;
        if (is_list && v->child) {
            v = v->child;
            continue;
        }
        if (is_list) tail = hth_grammar_words(g, tail, v->kind == HTH_JSON_ARRAY ? "]" : "}");
        for (; v != root && !v->next; tail = hth_grammar_words(g, tail, v->kind == HTH_JSON_ARRAY ? "]" : "}"))
            v = v->parent;
        if (v == root || !hth_grammar_ok(g)) return tail;
        tail = hth_grammar_words(g, tail, ",");
        v = v->next;
    }
}
