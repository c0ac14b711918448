/* Grammars of calls of functions, as the formats of chat/call_format.h write them, and of what an answer has before
 * its constrained part. */
#include "chat/call_format.h"
#include "chat/functions.h"
#include "constrain/constraint.h"
#include "constrain/json_rules.h"

#include <string.h>

typedef struct calls_compiler {
    hth_grammar *g;
    hth_arena *names;
    const hth_token_trie *trie;
    const hth_call_format *format;
    hth_schema_notes *notes;
    hth_json_rules rules;
} calls_compiler;

/* ---- marks ------------------------------------------------------------------------------------------------- */

/* Whether a control token has exactly this name at the beginning of text; returns the bytes of the longest. */
static size_t mark_size(const hth_token_trie *t, const char *text, size_t n)
{
    size_t longest = 0;
    for (uint32_t i = t->all.n; i > 0; i--) { /* sorted by bytes: marks are the last ones */
        hth_str piece = t->piece[t->all.ids[i - 1]];
        if (piece.bytes[0] != HTH_MARK_OPEN) break;
        size_t size = piece.n > 2 ? piece.n - 2 : 0;
        if (size > longest && size <= n && memcmp(piece.bytes + 1, text, size) == 0) longest = size;
    }
    return longest;
}

/* A text, in which what spells a control token is that token. */
static uint32_t add_marked(calls_compiler *c, uint32_t tail, const char *text)
{
    static const char open = HTH_MARK_OPEN, close = HTH_MARK_CLOSE;
    for (size_t n = strlen(text); n > 0;) {
        size_t size = mark_size(c->trie, text, n);
        if (size > 0) tail = hth_grammar_text(c->g, tail, &open, 1);
        size_t part = size > 0 ? size : 1;
        tail = hth_grammar_text(c->g, tail, text, part);
        if (size > 0) tail = hth_grammar_text(c->g, tail, &close, 1);
        text += part;
        n -= part;
    }
    return tail;
}

/* ---- text up to a mark -------------------------------------------------------------------------------------- */

enum { MAX_MARK = 32 };

/* The bytes of mark of which a text that ends with its first n bytes and then `byte` has the beginning. */
static size_t next_state(const char *mark, size_t n, uint8_t byte)
{
    char text[MAX_MARK + 1];
    memcpy(text, mark, n);
    text[n] = (char)byte;
    size_t k = n + 1;
    while (k > 0 && memcmp(text + n + 1 - k, mark, k) != 0) k--;
    return k;
}

/* One state of the search for a plain mark: each byte leads to another one. */
static void add_state(calls_compiler *c, const uint32_t *states, const char *mark, size_t i,
                      const hth_char_set *others)
{
    hth_grammar_fork f = hth_grammar_fork_begin(c->g, states[i]);
    for (size_t to = 0; to <= i + 1; to++) {
        hth_byte_set set = {{0}};
        bool any = false;
        for (uint32_t byte = 1; byte < 0x80; byte++)
            if (next_state(mark, i, (uint8_t)byte) == to) hth_byte_set_add(&set, byte, byte), any = true;
        if (!any) continue;
        hth_grammar_link(c->g, hth_grammar_byte_set(c->g, hth_grammar_branch(c->g, &f), &set), states[to]);
    }
    hth_grammar_link(c->g, hth_grammar_char(c->g, hth_grammar_branch(c->g, &f), others), states[0]);
}

/* Any text, then the mark, of ASCII: the first one that comes. */
static uint32_t add_until(calls_compiler *c, uint32_t tail, const char *mark)
{
    hth_grammar *g = c->g;
    size_t n = strlen(mark);
    uint32_t states[MAX_MARK + 1];
    hth_char_set any = {.n = 0}, others = {.n = 0};
    (void)hth_char_set_add(&any, 1, HTH_MAX_CODE_POINT);
    (void)hth_char_set_add(&others, 0x80, HTH_MAX_CODE_POINT);
    hth_char_set_normalise(&any);
    hth_char_set_normalise(&others);
    if (mark_size(c->trie, mark, n) == n) { /* a token of its own */
        uint32_t head = hth_grammar_point(g, tail);
        tail = hth_grammar_repeat_since(g, head, hth_grammar_char(g, head, &any), 0, HTH_GRAMMAR_UNBOUNDED);
        return add_marked(c, tail, mark);
    }
    if (n > MAX_MARK) hth_grammar_fail(g, HEARTH_ERROR_UNSUPPORTED, "a mark of %zu bytes", n);
    for (size_t i = 0; i <= n && hth_grammar_ok(g); i++) states[i] = hth_grammar_rule(g, NULL);
    for (size_t i = 0; i < n && hth_grammar_ok(g); i++) add_state(c, states, mark, i, &others);
    if (!hth_grammar_ok(g)) return tail;
    hth_grammar_link(g, tail, states[0]);
    return states[n];
}

/* ---- arguments ------------------------------------------------------------------------------------------------ */

/* A value and what ends it. */
static uint32_t add_value(calls_compiler *c, uint32_t tail, const hth_json *parameters, const hth_json *schema,
                          const char *close)
{
    const hth_json *list = hth_json_member(hth_schema_target(parameters, schema), "enum");
    if (!hth_schema_takes_text(parameters, schema, NULL)) {
        uint32_t rule = hth_compile_schema_tree(c->g, c->names, parameters, schema, c->notes);
        return add_marked(c, hth_grammar_call(c->g, tail, rule), close);
    }
    if (!list || list->kind != HTH_JSON_ARRAY) return add_until(c, tail, close);
    hth_grammar_fork f = hth_grammar_fork_begin(c->g, tail);
    for (const hth_json *v = list->child; v; v = v->next)
        if (v->kind == HTH_JSON_TEXT)
            hth_grammar_end_branch(
                c->g, &f, hth_grammar_text(c->g, hth_grammar_branch(c->g, &f), v->text.bytes, v->text.n));
    return add_marked(c, hth_grammar_fork_end(c->g, &f), close);
}

static bool is_required(const hth_json *object, hth_str key)
{
    const hth_json *list = hth_json_member(object, "required");
    for (const hth_json *v = list && list->kind == HTH_JSON_ARRAY ? list->child : NULL; v; v = v->next)
        if (v->kind == HTH_JSON_TEXT && v->text.n == key.n && memcmp(v->text.bytes, key.bytes, key.n) == 0)
            return true;
    return false;
}

typedef struct argument_marks {
    const char *before_key, *after_key, *close;
} argument_marks;

/* The arguments as elements, in the order of the properties. */
static uint32_t add_elements(calls_compiler *c, uint32_t tail, const hth_json *parameters,
                             const argument_marks *m)
{
    const hth_json *object = hth_schema_target(parameters, parameters);
    const hth_json *properties = hth_json_member(object, "properties");
    for (const hth_json *p = properties && properties->kind == HTH_JSON_OBJECT ? properties->child : NULL; p;
         p = p->next) {
        if (memchr(p->key.bytes, '<', p->key.n) || memchr(p->key.bytes, '>', p->key.n))
            hth_grammar_fail(c->g, HEARTH_ERROR_UNSUPPORTED, "the name of an argument has '<' or '>'");
        uint32_t head = hth_grammar_point(c->g, tail);
        tail = add_marked(c, head, m->before_key);
        tail = hth_grammar_text(c->g, tail, p->key.bytes, p->key.n);
        tail = add_marked(c, tail, m->after_key);
        tail = add_value(c, tail, parameters, p, m->close);
        tail = hth_grammar_byte(c->g, tail, '\n');
        if (!is_required(object, p->key)) tail = hth_grammar_repeat_since(c->g, head, tail, 0, 1);
    }
    return tail;
}

/* JSON: an object, even if the schema would allow other values. */
static uint32_t add_object(calls_compiler *c, uint32_t tail, const hth_json *parameters)
{
    bool is_open = !parameters || parameters->kind != HTH_JSON_OBJECT || parameters->n == 0;
    uint32_t rule =
        is_open ? c->rules.object : hth_compile_schema_tree(c->g, c->names, parameters, parameters, c->notes);
    return hth_grammar_call(c->g, tail, rule);
}

/* ---- calls
 * ------------------------------------------------------------------------------------------------------ */

static uint32_t add_call(calls_compiler *c, uint32_t tail, hth_str name, const hth_json *parameters)
{
    static const argument_marks parameter = {"<parameter=", ">\n", "\n</parameter>"},
                                pair = {"<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"};
    const hth_call_format *f = c->format;
    hth_grammar *g = c->g;
    tail = add_marked(c, tail, f->open);
    switch (f->style) {
    case HTH_CALL_JSON:
        tail = hth_grammar_text(g, tail, "{\"name\": ", 9);
        tail = hth_json_quoted(g, tail, name.bytes, name.n);
        tail = hth_grammar_text(g, tail, ", \"", 3);
        tail = hth_grammar_text(g, tail, f->arguments, strlen(f->arguments));
        tail = hth_grammar_text(g, tail, "\": ", 3);
        tail = hth_grammar_byte(g, add_object(c, tail, parameters), '}');
        break;
    case HTH_CALL_NAMED:
    case HTH_CALL_HARMONY:
        tail = hth_grammar_text(g, tail, name.bytes, name.n);
        tail = add_object(c, add_marked(c, tail, f->name_end), parameters);
        break;
    case HTH_CALL_ELEMENTS:
        tail = add_marked(c, tail, "<function=");
        tail = hth_grammar_text(g, tail, name.bytes, name.n);
        tail = add_elements(c, add_marked(c, tail, ">\n"), parameters, &parameter);
        tail = add_marked(c, tail, "</function>");
        break;
    case HTH_CALL_PAIRS:
        tail = hth_grammar_text(g, tail, name.bytes, name.n);
        tail = add_elements(c, hth_grammar_byte(g, tail, '\n'), parameters, &pair);
        break;
    }
    return add_marked(c, tail, f->close);
}

/* One of the functions. */
static uint32_t add_any_call(calls_compiler *c, uint32_t tail, const hth_json *functions)
{
    hth_grammar_fork f = hth_grammar_fork_begin(c->g, tail);
    for (const hth_json *v = functions->child; v && hth_grammar_ok(c->g); v = v->next) {
        const hth_json *function = hth_json_member(v, "function");
        const hth_json *name = hth_json_member(function ? function : v, "name");
        if (!name || name->kind != HTH_JSON_TEXT || name->text.n == 0) {
            hth_grammar_fail(c->g, HEARTH_ERROR_FORMAT, "[%u]: a function has no name", v->index);
            continue;
        }
        const hth_json *parameters = hth_json_member(function ? function : v, "parameters");
        c->notes->drops = !hth_json_is_true(hth_json_member(function ? function : v, "strict"));
        hth_grammar_end_branch(c->g, &f, add_call(c, hth_grammar_branch(c->g, &f), name->text, parameters));
    }
    return hth_grammar_fork_end(c->g, &f);
}

/* The rule of calls of a list of functions. */
static uint32_t add_calls(calls_compiler *c, const hth_json *functions, bool one)
{
    hth_grammar *g = c->g;
    hth_json_rules_add(&c->rules, g);
    uint32_t call = hth_grammar_rule(g, NULL), start = hth_grammar_rule(g, NULL);
    hth_grammar_end_rule(g, add_any_call(c, call, functions));
    uint32_t tail = hth_grammar_call(g, add_marked(c, start, c->format->first), call);
    if (!one && !c->format->one) {
        uint32_t head = hth_grammar_point(g, tail);
        tail = hth_grammar_call(g, add_marked(c, head, c->format->between), call);
        tail = hth_grammar_repeat_since(g, head, tail, 0, HTH_GRAMMAR_UNBOUNDED);
    }
    hth_grammar_end_rule(g, add_marked(c, tail, c->format->last));
    return start;
}

uint32_t hth_compile_calls(hth_grammar *g, hth_arena *names, const hth_token_trie *trie,
                           const hth_call_format *format, bool one, const char *text, size_t n,
                           hth_schema_notes *notes)
{
    hth_arena tree = {0};
    hth_json *functions;
    hearth_error why;
    uint32_t start = HTH_GRAMMAR_NOTHING;
    calls_compiler c = {.g = g, .names = names, .trie = trie, .format = format, .notes = notes};
    if (hth_json_read(&tree, text, n, NULL, &functions, &why) != HEARTH_OK) {
        hth_grammar_fail(g, why.status, "%s", why.message);
    } else if (functions->kind != HTH_JSON_ARRAY || functions->n == 0) {
        hth_grammar_fail(g, HEARTH_ERROR_FORMAT, "a JSON array with a function is expected");
    } else {
        do { /* each time without the keywords that were dropped */
            if (notes->dropped) hth_grammar_clear(g);
            notes->dropped = false;
            start = add_calls(&c, functions, one);
        } while (notes->dropped && hth_grammar_ok(g));
    }
    notes->drops = false;
    hth_arena_free(&tree);
    return start;
}

/* ---- answers
 * ------------------------------------------------------------------------------------------------------ */

uint32_t hth_compile_answer(hth_grammar *g, const hth_token_trie *trie, const hth_reasoning_marks *marks,
                            const hth_call_format *format, uint32_t calls, uint32_t text)
{
    calls_compiler c = {.g = g, .trie = trie, .format = format};
    bool is_harmony = format && format->style == HTH_CALL_HARMONY;
    bool is_one = calls == HTH_GRAMMAR_NOTHING || text == HTH_GRAMMAR_NOTHING;
    if (is_one && !marks && !is_harmony) return calls == HTH_GRAMMAR_NOTHING ? text : calls;
    uint32_t first = hth_grammar_rule(g, NULL), tail = first;
    if (is_harmony) {
        uint32_t head = hth_grammar_point(g, tail);
        tail = add_until(&c, add_marked(&c, head, "<|channel|>analysis<|message|>"), "<|end|>");
        tail = hth_grammar_repeat_since(g, head, add_marked(&c, tail, "<|start|>assistant"), 0, 1);
    } else if (marks) {
        hth_char_set breaks = {.n = 0};
        (void)hth_char_set_add(&breaks, '\n', '\n');
        uint32_t head = hth_grammar_point(g, add_until(&c, tail, marks->close));
        tail = hth_grammar_repeat_since(g, head, hth_grammar_char(g, head, &breaks), 0, 2);
    }
    hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
    if (calls != HTH_GRAMMAR_NOTHING)
        hth_grammar_end_branch(g, &f, hth_grammar_call(g, hth_grammar_branch(g, &f), calls));
    if (text != HTH_GRAMMAR_NOTHING) {
        uint32_t at = hth_grammar_branch(g, &f);
        if (is_harmony) at = add_marked(&c, at, "<|channel|>final<|message|>");
        hth_grammar_end_branch(g, &f, hth_grammar_call(g, at, text));
    }
    hth_grammar_end_rule(g, hth_grammar_fork_end(g, &f));
    return first;
}
