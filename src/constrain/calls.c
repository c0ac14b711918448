/* Grammars of calls of functions, as the formats of chat/call_format.h write them, and of what an answer has before
 * its constrained part. */
#include "chat/call_format.h"
#include "chat/functions.h"
#include "constrain/constraint.h"
#include "constrain/schema.h"
#include "text/utf8.h"

#include <stdio.h>
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

/* The number of a call. */
static uint32_t add_number(calls_compiler *c, uint32_t tail)
{
    hth_byte_set digits = {{0}};
    hth_byte_set_add(&digits, '0', '9');
    uint32_t head = hth_grammar_point(c->g, tail);
    return hth_grammar_repeat_since(c->g, head, hth_grammar_byte_set(c->g, head, &digits), 1, 3);
}

/* A mark, in which what spells a control token is that token. */
static uint32_t add_marked(calls_compiler *c, uint32_t tail, const char *text)
{
    static const char open = HTH_MARK_OPEN, close = HTH_MARK_CLOSE;
    for (size_t n = strlen(text); n > 0;) {
        if (*text == '#') {
            tail = add_number(c, tail);
            text++, n--;
            continue;
        }
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

enum { MAX_MARK = 48 };

/* A mark as characters, each of which begins at a byte of the text. */
typedef struct mark_text {
    const char *text;
    uint32_t at[MAX_MARK];
    size_t n, byte[MAX_MARK];
} mark_text;

static mark_text read_mark(calls_compiler *c, const char *text)
{
    mark_text m = {.text = text};
    size_t n = strlen(text), i = 0;
    for (size_t size; i < n && m.n < MAX_MARK; i += size) {
        m.byte[m.n] = i;
        size = hth_text_utf8_decode(text + i, n - i, &m.at[m.n++]);
    }
    if (i < n) hth_grammar_fail(c->g, HEARTH_ERROR_UNSUPPORTED, "a mark of %zu bytes", n);
    return m;
}

/* Whether the first k characters of a mark are the last ones of its first n. */
static bool is_border(const mark_text *m, size_t n, size_t k)
{
    return memcmp(m->at, m->at + n - k, k * sizeof *m->at) == 0;
}

/* The characters of a mark of which a text that ends with its first n and then another one has the beginning. */
static size_t next_state(const mark_text *m, size_t n, uint32_t character)
{
    size_t k = n + 1;
    while (k > 0 && (m->at[k - 1] != character || !is_border(m, n, k - 1))) k--;
    return k;
}

/* One state of the search for a mark: each character leads to another one, a control token in the mark to its rest. */
static void add_state(calls_compiler *c, const uint32_t *states, const mark_text *m, size_t i)
{
    hth_char_set others = {.n = 0};
    hth_grammar_fork f = hth_grammar_fork_begin(c->g, states[i]);
    (void)hth_char_set_add(&others, 1, HTH_MAX_CODE_POINT);
    hth_char_set_normalise(&others);
    for (size_t to = 1; to <= i + 1; to++) {
        uint32_t character = m->at[to - 1];
        if (next_state(m, i, character) != to) continue;
        hth_char_set one = {.n = 0};
        (void)hth_char_set_add(&one, character, character);
        hth_char_set_normalise(&one);
        (void)hth_char_set_remove(&others, character, character);
        hth_grammar_link(c->g, hth_grammar_char(c->g, hth_grammar_branch(c->g, &f), &one), states[to]);
    }
    for (size_t k = 0; k <= i; k++) {
        const char *rest = m->text + m->byte[k];
        if (is_border(m, i, k) && mark_size(c->trie, rest, strlen(rest)) > 0)
            hth_grammar_link(c->g, add_marked(c, hth_grammar_branch(c->g, &f), rest), states[m->n]);
    }
    hth_grammar_link(c->g, hth_grammar_char(c->g, hth_grammar_branch(c->g, &f), &others), states[0]);
}

/* Any text, then the mark: the first one that comes. */
static uint32_t add_until(calls_compiler *c, uint32_t tail, const char *mark)
{
    hth_grammar *g = c->g;
    const mark_text m = read_mark(c, mark);
    uint32_t states[MAX_MARK + 1];
    for (size_t i = 0; i <= m.n && hth_grammar_ok(g); i++) states[i] = hth_grammar_rule(g, NULL);
    for (size_t i = 0; i < m.n && hth_grammar_ok(g); i++) add_state(c, states, &m, i);
    if (!hth_grammar_ok(g)) return tail;
    hth_grammar_link(g, tail, states[0]);
    return states[m.n];
}

/* ---- arguments ------------------------------------------------------------------------------------------------ */

/* The texts of const or enum between marks, of a form or of a length, or any text up to the second one. */
static uint32_t add_text(calls_compiler *c, uint32_t tail, const hth_json *parameters, const hth_json *schema,
                         const char *open, const char *close)
{
    const hth_json *target = hth_schema_target(parameters, schema), *list = hth_json_member(target, "enum");
    const hth_json *only = hth_json_member(target, "const");
    tail = add_marked(c, tail, open);
    if (hth_json_kind_of(only) == HTH_JSON_TEXT)
        return add_marked(c, hth_grammar_text(c->g, tail, only->text.bytes, only->text.n), close);
    if (!list || list->kind != HTH_JSON_ARRAY) {
        const char *mark = close + (*close == '\n');
        bool is_whole = hth_compile_text(c->g, target, (unsigned char)*mark, c->notes, &tail);
        return is_whole ? add_marked(c, tail, close) : add_until(c, tail, close);
    }
    hth_grammar_fork f = hth_grammar_fork_begin(c->g, tail);
    for (const hth_json *v = list->child; v; v = v->next)
        if (v->kind == HTH_JSON_TEXT)
            hth_grammar_end_branch(
                c->g, &f, hth_grammar_text(c->g, hth_grammar_branch(c->g, &f), v->text.bytes, v->text.n));
    return add_marked(c, hth_grammar_fork_end(c->g, &f), close);
}

static uint32_t add_json(calls_compiler *c, uint32_t tail, const hth_json *parameters, const hth_json *schema)
{
    return hth_grammar_call(c->g, tail, hth_compile_schema_tree(c->g, c->names, parameters, schema, c->notes));
}

static bool is_required(const hth_json *object, hth_str key)
{
    const hth_json *list = hth_json_member(object, "required");
    for (const hth_json *v = list && list->kind == HTH_JSON_ARRAY ? list->child : NULL; v; v = v->next)
        if (v->kind == HTH_JSON_TEXT && v->text.n == key.n && memcmp(v->text.bytes, key.bytes, key.n) == 0)
            return true;
    return false;
}

static unsigned char lower(char c) { return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

/* By name, as the filter dictsort of templates sorts: without case, in any locale. */
static bool is_before(const hth_json *a, const hth_json *b)
{
    const hth_str x = a->key, y = b->key;
    for (size_t i = 0; i < x.n && i < y.n; i++)
        if (lower(x.bytes[i]) != lower(y.bytes[i])) return lower(x.bytes[i]) < lower(y.bytes[i]);
    return x.n != y.n ? x.n < y.n : hth_str_compare(x, y) < 0;
}

/* The property of an object behind another one (NULL: the first), in the order in which the format has them. */
static const hth_json *next_property(const calls_compiler *c, const hth_json *object, const hth_json *after)
{
    const hth_json *first = hth_json_first(hth_json_member(object, "properties")), *next = NULL;
    if (!c->format->is_sorted) return after ? after->next : first;
    for (const hth_json *p = first; p; p = p->next)
        if ((!after || is_before(after, p)) && (!next || is_before(p, next))) next = p;
    return next;
}

/* Whether the name of a property has none of the bytes that end names, and no spaces at its ends, where literals may have
 * some. One that nothing requires is left out, and noted. */
static bool can_write(calls_compiler *c, const hth_json *object, const hth_json *p)
{
    const bool is_literal = c->format->style == HTH_CALL_LITERALS;
    const char *ends = is_literal ? "=:,(){}[]<>'\"" : "<>\"";
    const hth_str key = p->key;
    bool has_end = is_literal && key.n > 0 && (key.bytes[0] == ' ' || key.bytes[key.n - 1] == ' ');
    for (size_t i = 0; i < key.n; i++) has_end |= strchr(ends, key.bytes[i]) != NULL;
    if (!has_end) return true;
    if (is_required(object, key))
        hth_grammar_fail(c->g, HEARTH_ERROR_UNSUPPORTED,
                         "the name of the argument '%.*s' has one of %s, or a space at an end, which end names in this model's form "
                         "of calls",
                         hth_schema_clip(key, 60), key.bytes, ends);
    else hth_schema_note(&(hth_schema_compiler){.g = c->g, .notes = c->notes}, p, "in this model's form of calls this name cannot be written");
    return false;
}

/* An argument as an element. */
static uint32_t add_element(calls_compiler *c, uint32_t tail, const hth_json *parameters, const hth_json *p)
{
    const hth_element_marks *m = &c->format->elements;
    const char *line = m->in_lines ? "\n" : "";
    char close[sizeof m->value_close + 1];
    bool is_text = hth_schema_takes_text(parameters, p, NULL);
    snprintf(close, sizeof close, "%s%s", line, m->value_close);
    tail = hth_grammar_text(c->g, add_marked(c, tail, m->key_open), p->key.bytes, p->key.n);
    tail = add_marked(c, add_marked(c, tail, m->key_close), m->key_gap);
    if (m->is_typed) tail = add_marked(c, tail, is_text ? " string=\"true\"" : " string=\"false\"");
    tail = add_marked(c, add_marked(c, tail, m->value_open), line);
    tail = is_text ? add_text(c, tail, parameters, p, "", close) : add_marked(c, add_json(c, tail, parameters, p), close);
    return add_marked(c, tail, m->gap);
}

/* The arguments in the order of the properties. */
static uint32_t add_elements(calls_compiler *c, uint32_t tail, const hth_json *parameters)
{
    const hth_json *object = hth_schema_target(parameters, parameters);
    for (const hth_json *p = NULL; (p = next_property(c, object, p)) != NULL;) {
        if (!can_write(c, object, p)) continue;
        uint32_t head = hth_grammar_point(c->g, tail);
        tail = add_element(c, head, parameters, p);
        if (!is_required(object, p->key)) tail = hth_grammar_repeat_since(c->g, head, tail, 0, 1);
    }
    return tail;
}

/* A text as it is between apostrophes, without one and without a backslash. */
static uint32_t add_plain_text(calls_compiler *c, uint32_t tail)
{
    hth_char_set plain = {.n = 0};
    (void)hth_char_set_add(&plain, ' ', HTH_MAX_CODE_POINT);
    hth_char_set_normalise(&plain);
    (void)(hth_char_set_remove(&plain, '\'', '\'') && hth_char_set_remove(&plain, '\\', '\\'));
    uint32_t head = hth_grammar_point(c->g, hth_grammar_byte(c->g, tail, '\''));
    tail = hth_grammar_repeat_since(c->g, head, hth_grammar_char(c->g, head, &plain), 0, HTH_GRAMMAR_UNBOUNDED);
    return hth_grammar_byte(c->g, tail, '\'');
}

static void add_word(calls_compiler *c, hth_grammar_fork *f, const char *word)
{
    hth_grammar_end_branch(c->g, f, add_marked(c, hth_grammar_branch(c->g, f), word));
}

/* Whether a schema says no more than these keywords can. */
static bool has_only(const hth_json *schema, const char *type, const char *const *keywords)
{
    static const char *const notes[] = {"type", "title", "description", "default", "examples", NULL};
    if (hth_json_kind_of(schema) != HTH_JSON_OBJECT || !hth_json_is_word(hth_json_member(schema, "type"), type)) return false;
    for (const hth_json *v = schema->child; v; v = v->next) {
        bool is_known = false;
        for (const char *const *k = notes; *k; k++) is_known |= hth_str_eq(v->key, *k);
        for (const char *const *k = keywords; *k; k++) is_known |= hth_str_eq(v->key, *k);
        if (!is_known) return false;
    }
    return true;
}

static uint32_t add_literals(calls_compiler *c, uint32_t tail, const hth_json *root, const hth_json *object);
static uint32_t add_literal(calls_compiler *c, uint32_t tail, const hth_json *root, const hth_json *schema);

static uint32_t add_literal_list(calls_compiler *c, uint32_t tail, const hth_json *root, const hth_json *items)
{
    hth_grammar *g = c->g;
    uint32_t item = hth_grammar_rule(g, NULL), more = hth_grammar_rule(g, NULL);
    hth_grammar_end_rule(g, add_literal(c, item, root, items));
    hth_grammar_end_rule(g, hth_grammar_call(g, add_marked(c, more, c->format->between_arguments), item));
    uint32_t head = hth_grammar_point(g, hth_grammar_byte(g, tail, '['));
    tail = hth_grammar_repeat(g, hth_grammar_call(g, head, item), more, 0, HTH_GRAMMAR_UNBOUNDED);
    return hth_grammar_byte(g, hth_grammar_repeat_since(g, head, tail, 0, 1), ']');
}

/* A literal. In families with a quote of their own, lists and objects have it too, and keys none, where their schemas are
 * plain ones; in those of Python's quotes JSON is a literal, and apostrophes and Python's words stand beside it. */
static uint32_t add_literal(calls_compiler *c, uint32_t tail, const hth_json *root, const hth_json *schema)
{
    static const char *const of_list[] = {"items", NULL}, *const of_object[] = {"properties", "required", "additionalProperties", NULL};
    static const char *const forms[] = {"minLength", "maxLength", "pattern", "format"};
    const char *quote = c->format->quote;
    bool is_text = hth_schema_takes_text(root, schema, NULL), is_python = !quote[1];
    const hth_json *target = hth_schema_target(root, schema), *items = hth_json_member(schema, "items");
    bool has_values = hth_json_member(target, "enum") || hth_json_member(target, "const"), has_form = has_values;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) has_form |= hth_json_member(target, forms[i]) != NULL;
    if (is_text && !is_python) return add_text(c, tail, root, schema, quote, quote);
    if (!is_python && items && has_only(schema, "array", of_list)) return add_literal_list(c, tail, root, items);
    if (!is_python && hth_json_member(schema, "properties") && has_only(schema, "object", of_object))
        return hth_grammar_byte(c->g, add_literals(c, hth_grammar_byte(c->g, tail, '{'), root, schema), '}');
    hth_grammar_fork f = hth_grammar_fork_begin(c->g, tail);
    hth_grammar_end_branch(c->g, &f, add_json(c, hth_grammar_branch(c->g, &f), root, schema));
    if (is_text && has_values) hth_grammar_end_branch(c->g, &f, add_text(c, hth_grammar_branch(c->g, &f), root, schema, quote, quote));
    if (is_text && !has_form) hth_grammar_end_branch(c->g, &f, add_plain_text(c, hth_grammar_branch(c->g, &f)));
    if (is_python && !has_values && hth_json_is_word(hth_json_member(target, "type"), "boolean"))
        add_word(c, &f, "True"), add_word(c, &f, "False");
    return hth_grammar_fork_end(c->g, &f);
}

static uint32_t add_literal_member(calls_compiler *c, uint32_t tail, const hth_json *root, const hth_json *p)
{
    tail = hth_grammar_text(c->g, tail, p->key.bytes, p->key.n);
    return add_literal(c, add_marked(c, tail, c->format->key_end), root, p);
}

/* The members of an object; `none` is the state before the first one. */
static uint32_t add_literals(calls_compiler *c, uint32_t tail, const hth_json *root, const hth_json *object)
{
    hth_grammar *g = c->g;
    uint32_t none = tail, some = HTH_GRAMMAR_NOTHING;
    for (const hth_json *p = NULL; (p = next_property(c, object, p)) != NULL && hth_grammar_ok(g);) {
        if (!can_write(c, object, p)) continue;
        bool may_lack = !is_required(object, p->key);
        uint32_t next = hth_grammar_rule(g, NULL), member = hth_grammar_rule(g, NULL);
        hth_grammar_end_rule(g, add_literal_member(c, member, root, p));
        if (some != HTH_GRAMMAR_NOTHING) {
            hth_grammar_fork f = hth_grammar_fork_begin(g, some);
            uint32_t at = add_marked(c, hth_grammar_branch(g, &f), c->format->between_arguments);
            hth_grammar_link(g, hth_grammar_call(g, at, member), next);
            if (may_lack) hth_grammar_link(g, hth_grammar_branch(g, &f), next);
        }
        if (none != HTH_GRAMMAR_NOTHING) {
            hth_grammar_fork f = hth_grammar_fork_begin(g, none);
            hth_grammar_link(g, hth_grammar_call(g, hth_grammar_branch(g, &f), member), next);
            none = may_lack ? hth_grammar_branch(g, &f) : HTH_GRAMMAR_NOTHING;
        }
        some = next;
    }
    if (some == HTH_GRAMMAR_NOTHING) return none;
    uint32_t end = hth_grammar_rule(g, NULL);
    hth_grammar_link(g, some, end);
    if (none != HTH_GRAMMAR_NOTHING) hth_grammar_link(g, none, end);
    return end;
}

/* Notes the keywords that a format with separate arguments ignores. Such a format writes only the properties of the
 * object to which the references of `parameters` lead. */
static void note_unwritten(calls_compiler *c, const hth_json *parameters)
{
    static const char *const others[] = {"allOf", "anyOf", "oneOf", "properties", "required"};
    const hth_json *object = hth_schema_target(parameters, parameters), *schema = object ? parameters : NULL;
    hth_schema_compiler notes = {.g = c->g, .notes = c->notes};
    while (schema) {
        const size_t n = schema == object ? 3 : sizeof others / sizeof *others;
        for (size_t i = 0; i < n; i++) {
            const hth_json *v = hth_json_member(schema, others[i]);
            if (v) hth_schema_note(&notes, v, "in this model's form of calls only the object's own properties are written");
        }
        schema = schema == object ? NULL : hth_json_at(parameters, hth_json_member(schema, "$ref")->text);
    }
    for (const hth_json *v = hth_json_first(hth_json_member(object, "required")); v; v = v->next) {
        const hth_json *p = hth_json_first(hth_json_member(object, "properties"));
        while (p && hth_str_compare(p->key, v->text) != 0) p = p->next;
        if (!p && v->kind == HTH_JSON_TEXT) hth_schema_note(&notes, v, "in this model's form of calls an argument without a property is not written");
    }
}

/* JSON: an object, even if the schema would allow other values. A function without parameters has no arguments. */
static uint32_t add_object(calls_compiler *c, uint32_t tail, const hth_json *parameters)
{
    if (!parameters || parameters->kind == HTH_JSON_NULL) return hth_grammar_text(c->g, tail, "{}", 2);
    bool is_open = parameters->kind != HTH_JSON_OBJECT || parameters->n == 0;
    uint32_t rule =
        is_open ? c->rules.object : hth_compile_schema_tree(c->g, c->names, parameters, parameters, c->notes);
    return hth_grammar_call(c->g, tail, rule);
}

/* ---- calls
 * ------------------------------------------------------------------------------------------------------ */

static uint32_t add_call(calls_compiler *c, uint32_t tail, hth_str name, const hth_json *parameters)
{
    const hth_call_format *f = c->format;
    const hth_element_marks *m = &f->elements;
    hth_grammar *g = c->g;
    bool is_quoted = f->style == HTH_CALL_JSON || f->style == HTH_CALL_KEYED;
    tail = add_marked(c, add_marked(c, tail, f->open), m->call_open);
    tail = is_quoted ? hth_json_quoted(g, tail, name.bytes, name.n) : hth_grammar_text(g, tail, name.bytes, name.n);
    if (f->style == HTH_CALL_ELEMENTS || f->style == HTH_CALL_LITERALS)
        note_unwritten(c, parameters);
    switch (f->style) {
    case HTH_CALL_ELEMENTS:
        tail = add_marked(c, add_marked(c, tail, m->name_close), m->gap);
        tail = add_marked(c, add_elements(c, tail, parameters), m->call_close);
        break;
    case HTH_CALL_LITERALS:
        tail = add_literals(c, add_marked(c, tail, f->name_end), parameters, hth_schema_target(parameters, parameters));
        break;
    default: tail = add_object(c, add_marked(c, tail, f->name_end), parameters); break;
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
    bool frames_text = format && *format->text_open;
    if (is_one && !marks && !frames_text) return calls == HTH_GRAMMAR_NOTHING ? text : calls;
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
        if (frames_text) at = add_marked(&c, at, format->text_open);
        at = hth_grammar_call(g, at, text);
        hth_grammar_end_branch(g, &f, frames_text ? add_marked(&c, at, format->text_close) : at);
    }
    hth_grammar_end_rule(g, hth_grammar_fork_end(g, &f));
    return first;
}
