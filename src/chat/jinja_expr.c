/* Parses expressions to trees, by precedence. Each level of brackets costs four stack frames, and their number is
 * limited. Chains (a + b + c, a and b and c) are one node with a list, so that long ones need no depth. Called by
 * jinja_parse.c. */
#include "chat/jinja.h"

#include <string.h>

/* Words that end an expression where an operand could follow. */
static bool is_operator_word(const hth_jinja_parser *p)
{
    static const char *const words[] = {"and", "or", "not", "in", "is", "if", "else"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (hth_jinja_is_word(p, words[i])) return true;
    return false;
}

/* ---- primaries ------------------------------------------------------------------------------ */

static hth_jinja_node *take_name(hth_jinja_parser *p, hth_jinja_node_kind kind)
{
    if (p->now.kind != TOKEN_NAME) {
        hth_jinja_unexpected(p, "a name");
        return NULL;
    }
    hth_jinja_node *node = hth_jinja_new_node(p, kind);
    if (!node) return NULL;
    node->name = (hth_str){p->now.p, p->now.n};
    return hth_jinja_advance(p) ? node : NULL;
}

static hth_jinja_node *parse_name(hth_jinja_parser *p)
{
    static const struct {
        const char *word;
        hth_jinja_value value;
    } constants[] = {
        {"true", {JINJA_BOOL, {.b = true}}},   {"True", {JINJA_BOOL, {.b = true}}},
        {"false", {JINJA_BOOL, {.b = false}}}, {"False", {JINJA_BOOL, {.b = false}}},
        {"none", {JINJA_NONE, {0}}},           {"None", {JINJA_NONE, {0}}},
    };
    if (is_operator_word(p)) {
        hth_jinja_unexpected(p, "an expression");
        return NULL;
    }
    hth_jinja_node *node = take_name(p, NODE_NAME);
    for (size_t i = 0; node && i < sizeof constants / sizeof *constants; i++) {
        if (!hth_str_eq(node->name, constants[i].word)) continue;
        node->kind = NODE_CONST;
        node->value = constants[i].value;
    }
    return node;
}

static hth_jinja_node *parse_constant(hth_jinja_parser *p)
{
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_CONST);
    bool text = p->now.kind == TOKEN_TEXT, joined = false;
    if (!node) return NULL;
    node->value = p->now.value;
    if (!hth_jinja_advance(p)) return NULL;
    for (; text && p->now.kind == TOKEN_TEXT; joined = true) { /* "a" "b" is one text */
        if (!hth_jinja_concat(p->j, node->value.as.text, p->now.value.as.text, &node->value) ||
            !hth_jinja_advance(p))
            return NULL;
    }
    if (!joined) return node;
    /* One span, so that hth_jinja_bytes never writes to a text of the tree later. */
    const char *bytes = hth_jinja_bytes(p->j, node->value.as.text);
    size_t n = node->value.as.text->n;
    return bytes && hth_jinja_text_of(p->j, bytes, n, true, &node->value) ? node : NULL;
}

/* Items with commas, up to and including the closing sign. */
static bool parse_items(hth_jinja_parser *p, const char *closing, hth_jinja_node **first)
{
    hth_jinja_node **last = first;
    while (!hth_jinja_is_sign(p, closing)) {
        if (!(*last = hth_jinja_parse_expression(p))) return false;
        last = &(*last)->next;
        if (hth_jinja_is_sign(p, closing)) break;
        if (!hth_jinja_expect(p, ",")) return false;
    }
    return hth_jinja_advance(p);
}

static hth_jinja_node *parse_brackets(hth_jinja_parser *p)
{
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_LIST);
    return node && hth_jinja_advance(p) && parse_items(p, "]", &node->a) ? node : NULL;
}

static hth_jinja_node *parse_parentheses(hth_jinja_parser *p)
{
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_TUPLE);
    if (!node || !hth_jinja_advance(p)) return NULL;
    if (!hth_jinja_is_sign(p, ")")) {
        hth_jinja_node *one = hth_jinja_parse_expression(p);
        if (!one) return NULL;
        if (hth_jinja_is_sign(p, ")")) return hth_jinja_advance(p) ? one : NULL;
        if (!hth_jinja_expect(p, ",")) return NULL;
        node->a = one;
        return parse_items(p, ")", &one->next) ? node : NULL;
    }
    return hth_jinja_advance(p) ? node : NULL;
}

static hth_jinja_node *parse_dict(hth_jinja_parser *p)
{
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_DICT);
    if (!node || !hth_jinja_advance(p)) return NULL;
    for (hth_jinja_node **last = &node->a; !hth_jinja_is_sign(p, "}"); last = &(*last)->next) {
        hth_jinja_node *pair = hth_jinja_new_node(p, NODE_PAIR);
        if (!pair || !(pair->a = hth_jinja_parse_expression(p)) || !hth_jinja_expect(p, ":")) return NULL;
        if (!(pair->b = hth_jinja_parse_expression(p))) return NULL;
        *last = pair;
        if (!hth_jinja_is_sign(p, "}") && !hth_jinja_expect(p, ",")) return NULL;
    }
    return hth_jinja_advance(p) ? node : NULL;
}

static hth_jinja_node *parse_primary(hth_jinja_parser *p)
{
    switch (p->now.kind) {
    case TOKEN_TEXT:
    case TOKEN_INT:
    case TOKEN_FLOAT: return parse_constant(p);
    case TOKEN_NAME: return parse_name(p);
    default: break;
    }
    if (hth_jinja_is_sign(p, "(")) return parse_parentheses(p);
    if (hth_jinja_is_sign(p, "[")) return parse_brackets(p);
    if (hth_jinja_is_sign(p, "{")) return parse_dict(p);
    hth_jinja_unexpected(p, "an expression");
    return NULL;
}

/* ---- postfix operators ------------------------------------------------------------------------ */

/* Arguments up to and including the closing parenthesis, after the opening one. */
static bool parse_arguments(hth_jinja_parser *p, hth_jinja_node **first)
{
    hth_jinja_node **last = first;
    bool named = false;
    while (!hth_jinja_is_sign(p, ")")) {
        hth_jinja_node *arg = hth_jinja_new_node(p, NODE_ARG);
        if (!arg) return false;
        bool keyword =
            p->now.kind == TOKEN_NAME && p->ahead.kind == TOKEN_SIGN && p->ahead.n == 1 && *p->ahead.p == '=';
        if (keyword) {
            arg->name = (hth_str){p->now.p, p->now.n};
            if (!hth_jinja_advance(p) || !hth_jinja_advance(p)) return false;
        } else if (named) {
            return hth_jinja_unexpected(p, "an argument with a name, as those before");
        }
        named = named || keyword;
        if (!(arg->a = hth_jinja_parse_expression(p))) return false;
        *last = arg;
        last = &arg->next;
        if (hth_jinja_is_sign(p, ")")) break;
        if (!hth_jinja_expect(p, ",")) return false;
    }
    return hth_jinja_advance(p);
}

static hth_jinja_node *parse_member(hth_jinja_parser *p, hth_jinja_node *a)
{
    if (!hth_jinja_advance(p)) return NULL;
    if (p->now.kind == TOKEN_INT) { /* a.0 is a[0] */
        hth_jinja_node *index = hth_jinja_new_node(p, NODE_INDEX);
        if (!index) return NULL;
        index->a = a;
        index->b = parse_constant(p);
        return index->b ? index : NULL;
    }
    hth_jinja_node *node = take_name(p, NODE_MEMBER);
    if (node) node->a = a;
    return node;
}

/* One part of a slice, which may be empty. */
static bool parse_place(hth_jinja_parser *p, hth_jinja_node **place)
{
    if (hth_jinja_is_sign(p, ":") || hth_jinja_is_sign(p, "]")) return true;
    return (*place = hth_jinja_parse_expression(p)) != NULL;
}

static hth_jinja_node *parse_index(hth_jinja_parser *p, hth_jinja_node *a)
{
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_INDEX);
    if (!node || !hth_jinja_advance(p)) return NULL;
    node->a = a;
    if (hth_jinja_is_sign(p, "]")) {
        hth_jinja_unexpected(p, "an index");
        return NULL;
    }
    if (!parse_place(p, &node->b)) return NULL;
    if (hth_jinja_is_sign(p, ":")) {
        node->kind = NODE_SLICE;
        if (!hth_jinja_advance(p) || !parse_place(p, &node->c)) return NULL;
        if (hth_jinja_is_sign(p, ":") && (!hth_jinja_advance(p) || !parse_place(p, &node->d))) return NULL;
    }
    return hth_jinja_expect(p, "]") ? node : NULL;
}

static hth_jinja_node *parse_call(hth_jinja_parser *p, hth_jinja_node *a)
{
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_CALL);
    if (!node || !hth_jinja_advance(p)) return NULL;
    node->a = a;
    return parse_arguments(p, &node->b) ? node : NULL;
}

static hth_jinja_node *parse_postfix(hth_jinja_parser *p, hth_jinja_node *a)
{
    while (a) {
        if (hth_jinja_is_sign(p, ".")) a = parse_member(p, a);
        else if (hth_jinja_is_sign(p, "[")) a = parse_index(p, a);
        else if (hth_jinja_is_sign(p, "(")) a = parse_call(p, a);
        else return a;
    }
    return NULL;
}

static hth_jinja_node *unknown(hth_jinja_parser *p, const char *what, hth_str name)
{
    p->j->line = p->now.line;
    hth_jinja_fail(p->j, HEARTH_ERROR_UNSUPPORTED, "%s '%.*s' is not known", what,
                   (int)(name.n < 60 ? name.n : 60), name.bytes);
    return NULL;
}

static hth_jinja_node *parse_filter(hth_jinja_parser *p, hth_jinja_node *a)
{
    hth_jinja_node *node = take_name(p, NODE_FILTER);
    if (!node) return NULL;
    node->a = a;
    node->function = hth_jinja_filter(node->name);
    if (!node->function) return unknown(p, "filter", node->name);
    if (hth_jinja_is_sign(p, "(") && (!hth_jinja_advance(p) || !parse_arguments(p, &node->b))) return NULL;
    return node;
}

hth_jinja_node *hth_jinja_parse_filters(hth_jinja_parser *p, hth_jinja_node *a)
{
    while (a && hth_jinja_is_sign(p, "|")) a = hth_jinja_advance(p) ? parse_filter(p, a) : NULL;
    return a;
}

hth_jinja_node *hth_jinja_parse_first_filter(hth_jinja_parser *p, hth_jinja_node *a)
{
    return hth_jinja_parse_filters(p, parse_filter(p, a));
}

/* An argument without parentheses: `is divisibleby 3`. */
static bool parse_bare_argument(hth_jinja_parser *p, hth_jinja_node *test)
{
    bool begins = p->now.kind == TOKEN_NAME
                      ? !is_operator_word(p)
                      : p->now.kind == TOKEN_TEXT || p->now.kind == TOKEN_INT || p->now.kind == TOKEN_FLOAT ||
                            hth_jinja_is_sign(p, "[") || hth_jinja_is_sign(p, "{");
    if (!begins) return true;
    test->b = hth_jinja_new_node(p, NODE_ARG);
    return test->b && (test->b->a = parse_postfix(p, parse_primary(p))) != NULL;
}

static hth_jinja_node *parse_test(hth_jinja_parser *p, hth_jinja_node *a)
{
    if (!hth_jinja_advance(p)) return NULL;
    bool negated = hth_jinja_is_word(p, "not");
    if (negated && !hth_jinja_advance(p)) return NULL;
    hth_jinja_node *node = take_name(p, NODE_TEST);
    if (!node) return NULL;
    node->a = a;
    node->negated = negated;
    node->function = hth_jinja_test(node->name);
    if (!node->function) return unknown(p, "test", node->name);
    if (hth_jinja_is_sign(p, "(")) return hth_jinja_advance(p) && parse_arguments(p, &node->b) ? node : NULL;
    return parse_bare_argument(p, node) ? node : NULL;
}

/* Signs bind tighter than filters: -1 | abs is (-1) | abs. */
static hth_jinja_node *parse_unary(hth_jinja_parser *p)
{
    hth_jinja_node *first = NULL, *inner = NULL, *a;
    while (hth_jinja_is_sign(p, "-") || hth_jinja_is_sign(p, "+")) {
        hth_jinja_node *sign = hth_jinja_new_node(p, *p->now.p == '-' ? NODE_NEGATE : NODE_PLUS);
        if (!sign || !hth_jinja_advance(p)) return NULL;
        if (inner) inner->a = sign;
        else first = sign;
        inner = sign;
    }
    if (!(a = parse_postfix(p, parse_primary(p)))) return NULL;
    if (inner) inner->a = a;
    a = first ? first : a;
    while (a) {
        if (hth_jinja_is_sign(p, "|")) a = hth_jinja_advance(p) ? parse_filter(p, a) : NULL;
        else if (hth_jinja_is_word(p, "is")) a = parse_test(p, a);
        else if (hth_jinja_is_sign(p, "(")) a = parse_call(p, a);
        else return a;
    }
    return NULL;
}

/* ---- operators ------------------------------------------------------------------------------------ */

/* From the lowest precedence: or, and, not, comparisons, + and -, ~, * / // %, **. */
enum {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_JOIN,
    LEVEL_PRODUCT,
    LEVEL_POWER,
    LEVEL_UNARY
};

static const struct {
    const char *sign;
    uint8_t level, op;
} operators[] = {
    {"==", LEVEL_COMPARE, OP_EQ}, {"!=", LEVEL_COMPARE, OP_NE}, {"<", LEVEL_COMPARE, OP_LT},
    {"<=", LEVEL_COMPARE, OP_LE}, {">", LEVEL_COMPARE, OP_GT},  {">=", LEVEL_COMPARE, OP_GE},
    {"+", LEVEL_SUM, OP_ADD},     {"-", LEVEL_SUM, OP_SUB},     {"~", LEVEL_JOIN, OP_JOIN},
    {"*", LEVEL_PRODUCT, OP_MUL}, {"/", LEVEL_PRODUCT, OP_DIV}, {"//", LEVEL_PRODUCT, OP_FLOOR},
    {"%", LEVEL_PRODUCT, OP_MOD}, {"**", LEVEL_POWER, OP_POW},
};

/* The operator of that level at the current token, or -1. *n_token: its number of tokens. */
static int operator_at(const hth_jinja_parser *p, int level, int *n_token)
{
    *n_token = 1;
    if (level == LEVEL_COMPARE && hth_jinja_is_word(p, "in")) return OP_IN;
    if (level == LEVEL_COMPARE && hth_jinja_is_word(p, "not") && p->ahead.kind == TOKEN_NAME &&
        p->ahead.n == 2 && memcmp(p->ahead.p, "in", 2) == 0) {
        *n_token = 2;
        return OP_NOT_IN;
    }
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (operators[i].level == level && hth_jinja_is_sign(p, operators[i].sign)) return operators[i].op;
    return -1;
}

static hth_jinja_node *parse_level(hth_jinja_parser *p, int level);

/* a op b op c ... of one level, as one node. */
static hth_jinja_node *parse_operands(hth_jinja_parser *p, int level, hth_jinja_node *a)
{
    hth_jinja_node *node = NULL, **last = NULL;
    int n_token, op;
    while ((op = operator_at(p, level, &n_token)) >= 0) {
        if (!node) {
            if (!(node = hth_jinja_new_node(p, level == LEVEL_COMPARE ? NODE_COMPARE : NODE_CHAIN)))
                return NULL;
            node->a = a;
            last = &node->b;
        }
        hth_jinja_node *operand = hth_jinja_new_node(p, NODE_OPERAND);
        if (!operand || !hth_jinja_advance(p) || (n_token == 2 && !hth_jinja_advance(p))) return NULL;
        operand->op = (uint8_t)op;
        if (!(operand->a = parse_level(p, level + 1))) return NULL;
        *last = operand;
        last = &operand->next;
    }
    return node ? node : a;
}

static hth_jinja_node *parse_logic(hth_jinja_parser *p, int level)
{
    hth_jinja_node *a = parse_level(p, level + 1), *node = NULL, **last;
    const char *word = level == LEVEL_OR ? "or" : "and";
    if (!a || !hth_jinja_is_word(p, word)) return a;
    if (!(node = hth_jinja_new_node(p, level == LEVEL_OR ? NODE_OR : NODE_AND))) return NULL;
    node->a = a;
    last = &a->next;
    while (hth_jinja_is_word(p, word)) {
        if (!hth_jinja_advance(p) || !(*last = parse_level(p, level + 1))) return NULL;
        last = &(*last)->next;
    }
    return node;
}

/* A loop, not recursion, passes over levels without an operator. */
static hth_jinja_node *parse_level(hth_jinja_parser *p, int level)
{
    if (level <= LEVEL_AND) return parse_logic(p, level);
    hth_jinja_node *first = NULL, *inner = NULL, *a;
    while (level == LEVEL_NOT && hth_jinja_is_word(p, "not")) {
        hth_jinja_node *node = hth_jinja_new_node(p, NODE_NOT);
        if (!node || !hth_jinja_advance(p)) return NULL;
        if (inner) inner->a = node;
        else first = node;
        inner = node;
    }
    a = parse_unary(p);
    for (int l = LEVEL_POWER; a && l >= level && l >= LEVEL_COMPARE; l--) a = parse_operands(p, l, a);
    if (!a || !inner) return a;
    inner->a = a;
    return first;
}

hth_jinja_node *hth_jinja_parse_no_condition(hth_jinja_parser *p)
{
    if (!hth_jinja_push_depth(p)) return NULL;
    hth_jinja_node *a = parse_level(p, LEVEL_OR);
    p->depth--;
    return a;
}

hth_jinja_node *hth_jinja_parse_expression(hth_jinja_parser *p)
{
    if (!hth_jinja_push_depth(p)) return NULL;
    hth_jinja_node *a = parse_level(p, LEVEL_OR);
    while (a && hth_jinja_is_word(p, "if")) { /* a if b else c */
        hth_jinja_node *node = hth_jinja_new_node(p, NODE_COND);
        if (!node || !hth_jinja_advance(p)) return NULL;
        node->b = a;
        if (!(node->a = parse_level(p, LEVEL_OR))) return NULL;
        if (hth_jinja_is_word(p, "else")) {
            if (!hth_jinja_advance(p) || !(node->c = hth_jinja_parse_expression(p))) return NULL;
        }
        a = node;
    }
    p->depth--;
    return a;
}

hth_jinja_node *hth_jinja_parse_list(hth_jinja_parser *p)
{
    hth_jinja_node *a = hth_jinja_parse_expression(p);
    if (!a || !hth_jinja_is_sign(p, ",")) return a;
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_TUPLE), **last = &a->next;
    if (!node) return NULL;
    node->a = a;
    while (hth_jinja_is_sign(p, ",")) {
        if (!hth_jinja_advance(p)) return NULL;
        if (p->now.kind == TOKEN_CLOSE_OUTPUT || p->now.kind == TOKEN_CLOSE_STATEMENT) break; /* (a,) */
        if (!(*last = hth_jinja_parse_expression(p))) return NULL;
        last = &(*last)->next;
    }
    return node;
}

hth_jinja_node *hth_jinja_parse_targets(hth_jinja_parser *p)
{
    bool bracket = hth_jinja_is_sign(p, "(");
    if (bracket && !hth_jinja_advance(p)) return NULL;
    hth_jinja_node *a = take_name(p, NODE_NAME), *node = a, **last;
    if (a && hth_jinja_is_sign(p, ",")) {
        if (!(node = hth_jinja_new_node(p, NODE_TUPLE))) return NULL;
        node->a = a;
        last = &a->next;
        while (hth_jinja_is_sign(p, ",")) {
            if (!hth_jinja_advance(p)) return NULL;
            if (p->now.kind != TOKEN_NAME) break;
            if (!(*last = take_name(p, NODE_NAME))) return NULL;
            last = &(*last)->next;
        }
    }
    return node && (!bracket || hth_jinja_expect(p, ")")) ? node : NULL;
}
