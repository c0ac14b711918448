/* Parses the statements of a template to a tree. Filters and tests are looked up here, so that opening a template
 * with an unknown one fails, not a later rendering. Called by template.c; expressions are in jinja_expr.c. */
#include "chat/jinja.h"
#include "text/utf8.h"

#include <string.h>

/* ---- shared by the parser's files ------------------------------------------------------------- */

bool hth_jinja_advance(hth_jinja_parser *p)
{
    p->now = p->ahead;
    p->j->line = p->now.line;
    if (p->now.kind == TOKEN_END) return true;
    return hth_jinja_next_token(&p->lex, &p->ahead);
}

bool hth_jinja_unexpected(hth_jinja_parser *p, const char *wanted)
{
    const hth_jinja_token *t = &p->now;
    int n = (int)(t->n < 60 ? t->n : 60);
    p->j->line = t->line;
    switch (t->kind) {
    case TOKEN_NAME:
    case TOKEN_SIGN:
        return hth_jinja_fail(p->j, HEARTH_ERROR_FORMAT, "expected %s, found '%.*s'", wanted, n, t->p);
    case TOKEN_TEXT:
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return hth_jinja_fail(p->j, HEARTH_ERROR_FORMAT, "expected %s, found a constant", wanted);
    default: return hth_jinja_fail(p->j, HEARTH_ERROR_FORMAT, "expected %s, found the end of the tag", wanted);
    }
}

bool hth_jinja_is_sign(const hth_jinja_parser *p, const char *sign)
{
    size_t n = strlen(sign);
    return p->now.kind == TOKEN_SIGN && p->now.n == n && memcmp(p->now.p, sign, n) == 0;
}

bool hth_jinja_is_word(const hth_jinja_parser *p, const char *word)
{
    size_t n = strlen(word);
    return p->now.kind == TOKEN_NAME && p->now.n == n && memcmp(p->now.p, word, n) == 0;
}

bool hth_jinja_expect(hth_jinja_parser *p, const char *sign)
{
    char wanted[8] = {'\'', sign[0], '\''};
    return hth_jinja_is_sign(p, sign) ? hth_jinja_advance(p) : hth_jinja_unexpected(p, wanted);
}

hth_jinja_node *hth_jinja_new_node(hth_jinja_parser *p, hth_jinja_node_kind kind)
{
    hth_jinja_node *node = hth_jinja_alloc(p->j, 1, sizeof *node);
    if (!node) return NULL;
    node->kind = (uint8_t)kind;
    node->line = p->now.line;
    return node;
}

bool hth_jinja_push_depth(hth_jinja_parser *p)
{
    if (p->depth++ < HTH_TEMPLATE_MAX_NESTING) return true;
    p->j->line = p->now.line;
    return hth_jinja_fail(p->j, HEARTH_ERROR_UNSUPPORTED, "more than %d levels of nesting",
                          HTH_TEMPLATE_MAX_NESTING);
}

/* ---- statements -------------------------------------------------------------------------------------- */

static bool close_statement(hth_jinja_parser *p)
{
    return p->now.kind == TOKEN_CLOSE_STATEMENT ? hth_jinja_advance(p)
                                                : hth_jinja_unexpected(p, "the end of the tag");
}

static bool parse_body(hth_jinja_parser *p, hth_jinja_node **first);

/* True at `{% word`, for one of the words, which are separated by '|'. */
static bool at_statement(const hth_jinja_parser *p, const char *words)
{
    if (p->now.kind != TOKEN_OPEN_STATEMENT || p->ahead.kind != TOKEN_NAME) return false;
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, "|");
        if (p->ahead.n == n && memcmp(p->ahead.p, w, n) == 0) return true;
        w += n + (w[n] == '|');
    }
    return false;
}

/* Parses the body of the statement `what` that started in `line`, up to `{% word`. */
static bool parse_until(hth_jinja_parser *p, const char *words, const char *what, uint32_t line,
                        hth_jinja_node **body)
{
    if (!parse_body(p, body)) return false;
    if (at_statement(p, words)) return true;
    p->j->line = p->now.kind == TOKEN_END ? line : p->now.line;
    if (p->now.kind == TOKEN_END)
        return hth_jinja_fail(p->j, HEARTH_ERROR_FORMAT, "the '%s' that begins here is not ended", what);
    return hth_jinja_fail(p->j, HEARTH_ERROR_FORMAT, "'%.*s' does not end the '%s' of line %u",
                          (int)(p->ahead.n < 60 ? p->ahead.n : 60), p->ahead.p, what, line);
}

/* Consumes `{% word`, which is next. */
static bool take_word(hth_jinja_parser *p) { return hth_jinja_advance(p) && hth_jinja_advance(p); }
static bool take_end(hth_jinja_parser *p) { return take_word(p) && close_statement(p); }

static bool parse_if(hth_jinja_parser *p, hth_jinja_node *node)
{
    bool conditional = true;
    for (hth_jinja_node **last = &node->a;; last = &(*last)->next) {
        hth_jinja_node *branch = hth_jinja_new_node(p, NODE_BRANCH);
        if (!branch) return false;
        *last = branch;
        if (conditional && !(branch->a = hth_jinja_parse_list(p))) return false;
        if (!close_statement(p)) return false;
        if (!parse_until(p, conditional ? "elif|else|endif" : "endif", "if", node->line, &branch->b))
            return false;
        if (at_statement(p, "endif")) return take_end(p);
        conditional = at_statement(p, "elif");
        if (!take_word(p)) return false;
    }
}

static bool parse_for(hth_jinja_parser *p, hth_jinja_node *node)
{
    if (!(node->a = hth_jinja_parse_targets(p))) return false;
    if (!hth_jinja_is_word(p, "in")) return hth_jinja_unexpected(p, "'in'");
    if (!hth_jinja_advance(p) || !(node->b = hth_jinja_parse_no_condition(p))) return false;
    if (hth_jinja_is_word(p, "if") && (!hth_jinja_advance(p) || !(node->c = hth_jinja_parse_expression(p))))
        return false;
    if (hth_jinja_is_word(p, "recursive"))
        return hth_jinja_fail(p->j, HEARTH_ERROR_UNSUPPORTED, "'for ... recursive' is not known");
    if (!close_statement(p)) return false;
    p->n_loop++;
    bool ok = parse_until(p, "else|endfor", "for", node->line, &node->d);
    p->n_loop--;
    if (!ok || at_statement(p, "endfor")) return ok && take_end(p);
    return take_end(p) && parse_until(p, "endfor", "for", node->line, &node->e) && take_end(p);
}

/* set a = x, set a, b = x, y, set ns.a = x, and set a | filter ... endset */
static bool parse_set(hth_jinja_parser *p, hth_jinja_node *node)
{
    if (!(node->a = hth_jinja_parse_targets(p))) return false;
    if (node->a->kind == NODE_NAME && hth_jinja_is_sign(p, ".")) {
        hth_jinja_node *member = hth_jinja_new_node(p, NODE_MEMBER);
        if (!member || !hth_jinja_advance(p)) return false;
        if (p->now.kind != TOKEN_NAME) return hth_jinja_unexpected(p, "a name");
        member->a = node->a;
        member->name = (hth_str){p->now.p, p->now.n};
        node->a = member;
        if (!hth_jinja_advance(p)) return false;
    }
    if (hth_jinja_is_sign(p, "="))
        return hth_jinja_advance(p) && (node->b = hth_jinja_parse_list(p)) != NULL && close_statement(p);
    hth_jinja_node *capture = hth_jinja_new_node(p, NODE_CAPTURE);
    if (!capture || !(node->b = hth_jinja_parse_filters(p, capture)) || !close_statement(p)) return false;
    return parse_until(p, "endset", "set", node->line, &capture->a) && take_end(p);
}

static bool parse_macro(hth_jinja_parser *p, hth_jinja_node *node)
{
    if (p->now.kind != TOKEN_NAME) return hth_jinja_unexpected(p, "a name");
    node->name = (hth_str){p->now.p, p->now.n};
    if (!hth_jinja_advance(p) || !hth_jinja_expect(p, "(")) return false;
    for (hth_jinja_node **last = &node->a; !hth_jinja_is_sign(p, ")"); last = &(*last)->next) {
        hth_jinja_node *param = hth_jinja_new_node(p, NODE_PARAM);
        if (!param) return false;
        if (p->now.kind != TOKEN_NAME) return hth_jinja_unexpected(p, "the name of a parameter");
        param->name = (hth_str){p->now.p, p->now.n};
        *last = param;
        if (!hth_jinja_advance(p)) return false;
        if (hth_jinja_is_sign(p, "=") &&
            (!hth_jinja_advance(p) || !(param->a = hth_jinja_parse_expression(p))))
            return false;
        if (!hth_jinja_is_sign(p, ")") && !hth_jinja_expect(p, ",")) return false;
    }
    if (!hth_jinja_advance(p) || !close_statement(p)) return false;
    unsigned n_loop = p->n_loop;
    p->n_loop = 0; /* a break inside a macro belongs to no loop outside */
    bool ok = parse_until(p, "endmacro", "macro", node->line, &node->b);
    p->n_loop = n_loop;
    return ok && take_end(p);
}

/* filter f | g ... endfilter: writes the filtered output of the body. */
static bool parse_filter_block(hth_jinja_parser *p, hth_jinja_node *node)
{
    hth_jinja_node *capture = hth_jinja_new_node(p, NODE_CAPTURE);
    if (!capture || p->now.kind != TOKEN_NAME)
        return capture && hth_jinja_unexpected(p, "the name of a filter");
    if (!(node->a = hth_jinja_parse_first_filter(p, capture)) || !close_statement(p)) return false;
    return parse_until(p, "endfilter", "filter", node->line, &capture->a) && take_end(p);
}

/* generation ... endgeneration marks model output for training: only the body is used. */
static bool parse_generation(hth_jinja_parser *p, hth_jinja_node *node)
{
    hth_jinja_node *branch = hth_jinja_new_node(p, NODE_BRANCH);
    node->a = branch;
    if (!branch || !close_statement(p)) return false;
    return parse_until(p, "endgeneration", "generation", node->line, &branch->b) && take_end(p);
}

static bool parse_jump(hth_jinja_parser *p, hth_jinja_node *node)
{
    (void)node;
    if (p->n_loop == 0)
        return hth_jinja_fail(p->j, HEARTH_ERROR_FORMAT, "'break' and 'continue' are allowed only inside a 'for'");
    return close_statement(p);
}

static const struct {
    const char *word;
    hth_jinja_node_kind kind;
    bool (*parse)(hth_jinja_parser *p, hth_jinja_node *node);
} statements[] = {
    {"if", NODE_IF, parse_if},
    {"for", NODE_FOR, parse_for},
    {"set", NODE_SET, parse_set},
    {"macro", NODE_MACRO, parse_macro},
    {"break", NODE_BREAK, parse_jump},
    {"filter", NODE_OUTPUT, parse_filter_block},
    {"continue", NODE_CONTINUE, parse_jump},
    {"generation", NODE_IF, parse_generation},
};

/* Parses a statement, starting at `{%`. */
static hth_jinja_node *parse_statement(hth_jinja_parser *p)
{
    if (!hth_jinja_advance(p)) return NULL;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!hth_jinja_is_word(p, statements[i].word)) continue;
        hth_jinja_node *node = hth_jinja_new_node(p, statements[i].kind);
        return node && hth_jinja_advance(p) && statements[i].parse(p, node) ? node : NULL;
    }
    if (p->now.kind == TOKEN_NAME)
        hth_jinja_fail(p->j, HEARTH_ERROR_UNSUPPORTED, "statement '%.*s' is not known",
                       (int)(p->now.n < 60 ? p->now.n : 60), p->now.p);
    else hth_jinja_unexpected(p, "a statement");
    return NULL;
}

static hth_jinja_node *parse_output(hth_jinja_parser *p)
{
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_OUTPUT);
    if (!node || !hth_jinja_advance(p) || !(node->a = hth_jinja_parse_list(p))) return NULL;
    if (p->now.kind == TOKEN_CLOSE_OUTPUT) return hth_jinja_advance(p) ? node : NULL;
    hth_jinja_unexpected(p, "'}}'");
    return NULL;
}

static hth_jinja_node *parse_data(hth_jinja_parser *p)
{
    hth_jinja_node *node = hth_jinja_new_node(p, NODE_DATA);
    if (!node || !hth_jinja_text_of(p->j, p->now.p, p->now.n, true, &node->value)) return NULL;
    return hth_jinja_advance(p) ? node : NULL;
}

/* Parses statements up to the end, or up to one that belongs to the enclosing statement. */
static bool parse_body(hth_jinja_parser *p, hth_jinja_node **first)
{
    if (!hth_jinja_push_depth(p)) return false;
    for (hth_jinja_node **last = first;; last = &(*last)->next) {
        if (p->now.kind == TOKEN_END ||
            at_statement(p, "elif|else|endif|endfor|endset|endmacro|endfilter|endgeneration"))
            break;
        if (p->now.kind == TOKEN_DATA) *last = parse_data(p);
        else if (p->now.kind == TOKEN_OPEN_OUTPUT) *last = parse_output(p);
        else *last = parse_statement(p);
        if (!*last) return false;
    }
    p->depth--;
    return true;
}

/* Copies the source with \n for every newline, and without one newline at the end, as in Jinja. */
static char *normalise(hth_jinja *j, const char *source, size_t *n)
{
    char *copy = hth_jinja_alloc(j, *n + 1, 1);
    size_t m = 0;
    for (size_t i = 0; copy && i < *n; i++) {
        if (source[i] == '\r' && i + 1 < *n && source[i + 1] == '\n') continue;
        copy[m++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (m > 0 && copy[m - 1] == '\n') m--;
    *n = m;
    return copy;
}

bool hth_jinja_parse(hth_jinja *j, const char *source, size_t n, hth_jinja_node **body)
{
    j->line = 1;
    if (n > HTH_TEMPLATE_MAX_SOURCE)
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "%zu bytes: at most %d MiB are read", n,
                              HTH_TEMPLATE_MAX_SOURCE >> 20);
    if (!hth_text_utf8_valid(source, n)) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "not UTF-8");
    char *copy = normalise(j, source, &n);
    if (!copy) return false;
    hth_jinja_parser p = {
        .j = j, .lex = {.j = j, .p = copy, .start = copy, .end = copy + n, .line = 1, .line_starts = true}};
    if (!hth_jinja_next_token(&p.lex, &p.ahead) || !hth_jinja_advance(&p) || !parse_body(&p, body))
        return false;
    if (p.now.kind == TOKEN_END) return true;
    j->line = p.now.line;
    return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'%.*s' ends nothing",
                          (int)(p.ahead.n < 60 ? p.ahead.n : 60), p.ahead.p);
}
