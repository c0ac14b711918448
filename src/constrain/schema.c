/* Compiles JSON schemas (draft 2020-12 and what drafts 4 to 7 write otherwise) to grammars. The unit of work is a set
 * of schemas that must all hold: one schema with its allOf and $ref, and one branch of each anyOf. Sets that were seen
 * have their rule already, so recursive schemas end, and no function calls itself for a part of a schema. */
#include "constrain/constraint.h"
#include "constrain/pattern.h"
#include "constrain/schema.h"

#include "base/hash.h"
#include "text/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { N_INDEX = 2 * HTH_SCHEMA_MAX_ITEMS };

/* ---- messages ---------------------------------------------------------------------------------- */

int hth_schema_clip(hth_str text, size_t max)
{
    return (int)(text.n <= max ? text.n : max - hth_text_utf8_tail(text.bytes, max));
}

/* "#/properties/name/items", with the middle of long ones left out. */
static void write_path(const hth_json *at, char *out, size_t size)
{
    const hth_json *way[HTH_JSON_MAX_DEPTH + 1];
    size_t n = 0, used = 1;
    for (; at && at->parent && n < HTH_JSON_MAX_DEPTH; at = at->parent) way[n++] = at;
    snprintf(out, size, "#");
    while (n > 0) {
        const hth_json *v = way[--n];
        char part[64];
        int length = v->parent->kind == HTH_JSON_OBJECT
                         ? snprintf(part, sizeof part, "/%.*s", hth_schema_clip(v->key, 50), v->key.bytes)
                         : snprintf(part, sizeof part, "/%u", v->index);
        if (used + (size_t)length + 4 >= size) {
            snprintf(out + used, size - used, "...");
            return;
        }
        memcpy(out + used, part, (size_t)length + 1);
        used += (size_t)length;
    }
}

void hth_schema_fail(hth_schema_compiler *c, hearth_status status, const hth_json *at, const char *format,
                     ...)
{
    char path[240], line[300];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    write_path(at, path, sizeof path);
    hth_grammar_fail(c->g, status, "%s: %s", path, line);
}

void hth_schema_note(hth_schema_compiler *c, const hth_json *at, const char *what)
{
    enum { MAX_NOTES = 16 << 10 };
    char path[240], line[600];
    hth_schema_notes *notes = c->notes;
    if (!notes) return;
    write_path(at, path, sizeof path);
    size_t n = (size_t)snprintf(line, sizeof line, "%s: %s\n", path, what);
    if ((notes->text && strstr(notes->text, line)) || notes->n + n > MAX_NOTES) return;
    char *longer = hth_realloc(notes->text, notes->n + n + 1, 1);
    if (!longer) {
        hth_grammar_fail(c->g, HEARTH_ERROR_MEMORY, "there is no memory for it");
        return;
    }
    memcpy(longer + notes->n, line, n + 1);
    notes->text = longer, notes->n += n;
}

void hth_schema_drop(hth_schema_compiler *c, const hth_json *at, const char *format, ...)
{
    char line[300];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (!c->notes || !c->notes->drops) {
        hth_schema_fail(c, HEARTH_ERROR_UNSUPPORTED, at, "%s", line);
        return;
    }
    hth_schema_note(c, at, line);
    ((hth_json *)(uintptr_t)at)->key = (hth_str){"", 0}; /* no keyword has that name */
    c->notes->dropped = true;
}

/* ---- sets of schemas -------------------------------------------------------------------------------- */

void hth_schema_join(hth_schema_compiler *c, hth_schema_set *set, const hth_json *schema)
{
    const hth_json *no = hth_json_member(schema, "not");
    bool is_never = schema->kind == HTH_JSON_BOOL || hth_json_is_true(no) ||
                    (hth_json_kind_of(no) == HTH_JSON_OBJECT && no->n == 0);
    for (uint32_t i = 0; i < set->n; i++)
        if (set->entry[i].schema == schema) return;
    if (hth_json_is_true(schema)) return;
    if (is_never) {
        set->never = true;
    } else if (schema->kind != HTH_JSON_OBJECT) {
        hth_schema_fail(c, HEARTH_ERROR_FORMAT, schema, "a schema is an object, true or false");
    } else if (set->n == HTH_SCHEMA_MAX_JOINED) {
        hth_schema_fail(c, HEARTH_ERROR_UNSUPPORTED, schema,
                        "more than %d schemas would have to hold at once", HTH_SCHEMA_MAX_JOINED);
    } else {
        set->entry[set->n++] = (hth_schema_entry){schema, 0};
    }
}

static uint32_t hash_of(const hth_schema_set *set)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        const uint64_t words[] = {(uint64_t)(uintptr_t)set->entry[i].schema, set->entry[i].done};
        h = hth_hash_more(h, words, sizeof words);
    }
    return (uint32_t)h;
}

static bool is_item(const hth_schema_compiler *c, const hth_schema_item *item, const hth_schema_set *set)
{
    bool same = item->n == set->n;
    for (uint32_t i = 0; same && i < set->n; i++) {
        const hth_schema_entry *a = &c->entry[item->first + i], *b = &set->entry[i];
        same = a->schema == b->schema && a->done == b->done;
    }
    return same;
}

/* Room for one more item. */
static bool take_room(hth_schema_compiler *c, const hth_schema_set *set)
{
    if (c->n_item == HTH_SCHEMA_MAX_ITEMS) {
        hth_schema_fail(c, HEARTH_ERROR_UNSUPPORTED, set->n > 0 ? set->entry[0].schema : c->root,
                        "the schema has more than %d parts when alternatives are combined",
                        HTH_SCHEMA_MAX_ITEMS);
        return false;
    }
    if (c->n_item == c->item_capacity) {
        uint32_t capacity = c->item_capacity ? 2 * c->item_capacity : 64;
        hth_schema_item *bigger = hth_realloc(c->item, capacity, sizeof *bigger);
        if (!bigger) goto no_memory;
        c->item = bigger;
        c->item_capacity = capacity;
    }
    if (c->entry_capacity - c->n_entry < HTH_SCHEMA_MAX_JOINED) {
        uint32_t capacity = c->entry_capacity ? 2 * c->entry_capacity : 4 * HTH_SCHEMA_MAX_JOINED;
        hth_schema_entry *bigger = hth_realloc(c->entry, capacity, sizeof *bigger);
        if (!bigger) goto no_memory;
        c->entry = bigger;
        c->entry_capacity = capacity;
    }
    return true;
no_memory:
    hth_grammar_fail(c->g, HEARTH_ERROR_MEMORY, "there is no memory for it");
    return false;
}

uint32_t hth_schema_rule(hth_schema_compiler *c, const hth_schema_set *set)
{
    if (set->never) return HTH_GRAMMAR_NOTHING;
    if (set->n == 0) return c->rules.value;
    uint32_t hash = hash_of(set), at = hash & (N_INDEX - 1);
    for (; c->index[at]; at = (at + 1) & (N_INDEX - 1)) {
        const hth_schema_item *item = &c->item[c->index[at] - 1];
        if (item->hash == hash && is_item(c, item, set)) return item->rule;
    }
    if (!hth_grammar_ok(c->g) || !take_room(c, set)) return HTH_GRAMMAR_NOTHING;
    char path[240];
    write_path(set->entry[0].schema, path, sizeof path);
    uint32_t rule = hth_grammar_rule(c->g, hth_arena_strndup(c->names, path, strlen(path)));
    memcpy(c->entry + c->n_entry, set->entry, set->n * sizeof *set->entry);
    c->item[c->n_item++] = (hth_schema_item){.first = c->n_entry, .n = set->n, .rule = rule, .hash = hash};
    c->n_entry += set->n;
    c->index[at] = c->n_item;
    return rule;
}

/* ---- alternatives ---------------------------------------------------------------------------------------- */

/* anyOf, or oneOf, which is taken as anyOf: an entry whose branches were not chosen. NULL: there is none. */
static const hth_json *next_choice(const hth_schema_set *set, uint32_t *i_entry, unsigned *done)
{
    static const struct {
        const char *name;
        unsigned done;
    } kinds[] = {{"anyOf", HTH_DONE_ANY_OF}, {"oneOf", HTH_DONE_ONE_OF}};
    for (uint32_t i = 0; i < set->n; i++) {
        for (size_t k = 0; k < 2; k++) {
            const hth_json *list = hth_json_member(set->entry[i].schema, kinds[k].name);
            if (!list || set->entry[i].done & kinds[k].done) continue;
            *i_entry = i;
            *done = kinds[k].done;
            return list;
        }
    }
    return NULL;
}

/* A rule for each branch together with the rest of the set. */
static uint32_t add_choice(hth_schema_compiler *c, uint32_t tail, hth_schema_set *set, const hth_json *list,
                           uint32_t i_entry, unsigned done)
{
    hth_grammar_fork f = hth_grammar_fork_begin(c->g, tail);
    if (list->kind != HTH_JSON_ARRAY || list->n == 0)
        hth_schema_fail(c, HEARTH_ERROR_FORMAT, list, "a list of schemas is expected");
    set->entry[i_entry].done |= done;
    for (const hth_json *branch = list->child; branch && hth_grammar_ok(c->g); branch = branch->next) {
        hth_schema_set with = *set;
        hth_schema_join(c, &with, branch);
        hth_grammar_end_branch(
            c->g, &f, hth_grammar_call(c->g, hth_grammar_branch(c->g, &f), hth_schema_rule(c, &with)));
    }
    return hth_grammar_fork_end(c->g, &f);
}

/* ---- values ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name, *pattern;
} formats[] = {
#define HOURS "([01][0-9]|2[0-3])"
#define TIME HOURS ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]" HOURS ":[0-5][0-9])"
#define YEAR "[0-9]{4}-"
#define FOURTH "(0[48]|[2468][048]|[13579][26])" /* two digits that 4 divides, but 00 */
#define LEAP_YEAR "([0-9]{2}" FOURTH "|(" FOURTH "|00)00)"
#define DATE                                                                                                 \
    "(" YEAR "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|" YEAR "(0[469]|11)-(0[1-9]|[12][0-9]|30)|" YEAR     \
    "02-(0[1-9]|1[0-9]|2[0-8])|" LEAP_YEAR "-02-29)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"email", "^[A-Za-z0-9_%+-]{1,32}(\\.[A-Za-z0-9_%+-]{1,32})?@" LABEL "(\\." LABEL "){1,3}$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,3}$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
};

/* The expression that strings match; n 0: any. */
static hth_str expression_of(const hth_schema_facts *facts)
{
    if (facts->pattern) return facts->pattern->text;
    for (size_t i = 0; facts->format && i < sizeof formats / sizeof *formats; i++)
        if (hth_str_eq(facts->format->text, formats[i].name))
            return (hth_str){formats[i].pattern, strlen(formats[i].pattern)};
    return (hth_str){"", 0};
}

/* The texts of an expression: hth_pattern_add. */
static uint32_t add_expression(hth_schema_compiler *c, uint32_t tail, const hth_schema_facts *facts, uint32_t end)
{
    hth_pattern_lengths lengths;
    hearth_error why;
    const hth_json *at = facts->pattern ? facts->pattern : facts->format;
    hearth_status st = hth_pattern_add(c->g, &tail, expression_of(facts), end, &lengths, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED) hth_schema_drop(c, at, "%s", why.message);
    else if (st != HEARTH_OK) hth_schema_fail(c, st, at, "%s", why.message);
    else if (lengths.min < facts->min_length || lengths.max > facts->max_length)
        hth_schema_drop(
            c, at, "minLength or maxLength beside it is supported only where all its texts have such a length");
    return tail;
}

static uint32_t add_string(hth_schema_compiler *c, uint32_t tail, const hth_schema_facts *facts)
{
    if (facts->min_length > facts->max_length) return HTH_GRAMMAR_NOTHING;
    if (expression_of(facts).n == 0) return hth_json_string(&c->rules, tail, facts->min_length, facts->max_length);
    tail = add_expression(c, hth_grammar_byte(c->g, tail, '"'), facts, 0);
    return hth_grammar_byte(c->g, tail, '"');
}

/* From min to max characters, none of which is `end`. */
static uint32_t add_characters(hth_grammar *g, uint32_t tail, uint32_t end, uint32_t min, uint32_t max)
{
    hth_char_set set = {{{1, HTH_MAX_CODE_POINT}}, 1};
    (void)hth_char_set_remove(&set, end, end);
    uint32_t head = hth_grammar_point(g, tail);
    return hth_grammar_repeat_since(g, head, hth_grammar_char(g, head, &set), min, max);
}

bool hth_compile_text(hth_grammar *g, const hth_json *schema, uint32_t end, hth_schema_notes *notes, uint32_t *tail)
{
    enum { MAX_COUNTED = 256 }; /* longer ones may be programs or pages, which have the character */
    hth_schema_compiler c = {.g = g, .notes = notes, .root = schema};
    hth_schema_set set = {.entry = {{schema, 0}}, .n = 1};
    hth_schema_facts facts;
    if (hth_json_kind_of(schema) != HTH_JSON_OBJECT) return false;
    hth_schema_get_facts(&c, &set, &facts);
    if (expression_of(&facts).n > 0) {
        *tail = add_expression(&c, *tail, &facts, end);
        return true;
    }
    bool is_short = facts.max_length <= MAX_COUNTED;
    if (!is_short && facts.max_length != HTH_GRAMMAR_UNBOUNDED)
        hth_schema_note(&c, schema, "maxLength above 256 is not enforced where the model writes the text between marks");
    const uint32_t min = facts.min_length > MAX_COUNTED ? MAX_COUNTED : facts.min_length;
    if (facts.min_length > facts.max_length) *tail = HTH_GRAMMAR_NOTHING;
    else if (is_short || min > 0) *tail = add_characters(g, *tail, end, min, is_short ? facts.max_length : min);
    return is_short;
}

static uint32_t add_number(hth_schema_compiler *c, uint32_t tail, const hth_schema_facts *facts)
{
    bool is_whole = !(facts->types & HTH_TYPE_FRACTION);
    if (!facts->has_min && !facts->has_max)
        return hth_grammar_call(c->g, tail, is_whole ? c->rules.integer : c->rules.number);
    return is_whole ? hth_json_integers(&c->rules, tail, &facts->range)
                    : hth_json_numbers(&c->rules, tail, &facts->range);
}

const hth_json *hth_schema_next_literal(const hth_schema_set *set, const hth_schema_facts *facts, const hth_json *v)
{
    bool is_enum = facts->values && hth_str_eq(facts->values->key, "enum");
    if (v) v = is_enum ? v->next : NULL;
    else v = is_enum ? facts->values->child : facts->values;
    for (; v; v = is_enum ? v->next : NULL) {
        bool fits = hth_schema_has_type(v, facts->types);
        for (uint32_t i = 0; i < set->n && fits; i++) {
            const hth_json *list = hth_json_member(set->entry[i].schema, "enum");
            const hth_json *one = hth_json_member(set->entry[i].schema, "const");
            const hth_json *other = list ? list->child : NULL;
            while (other && !hth_json_same(other, v)) other = other->next;
            fits = (!list || other) && (!one || hth_json_same(one, v));
        }
        if (fits) return v;
    }
    return NULL;
}

static uint32_t add_literals(hth_schema_compiler *c, uint32_t tail, const hth_schema_set *set,
                             const hth_schema_facts *facts)
{
    hth_grammar_fork f = hth_grammar_fork_begin(c->g, tail);
    for (const hth_json *v = NULL; hth_grammar_ok(c->g) && (v = hth_schema_next_literal(set, facts, v));)
        hth_grammar_end_branch(c->g, &f, hth_json_literal(c->g, hth_grammar_branch(c->g, &f), v));
    return hth_grammar_fork_end(c->g, &f);
}

static uint32_t add_value(hth_schema_compiler *c, uint32_t tail, const hth_schema_set *set)
{
    hth_schema_facts facts;
    hth_grammar *g = c->g;
    hth_schema_get_facts(c, set, &facts);
    if (!hth_grammar_ok(g)) return tail;
    if (facts.values) return add_literals(c, tail, set, &facts);
    hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
    for (unsigned type = 1; type <= HTH_TYPE_OBJECT; type <<= 1) {
        if (!(facts.types & type) || type == HTH_TYPE_FRACTION) continue;
        uint32_t at = hth_grammar_branch(g, &f);
        switch (type) {
        case HTH_TYPE_NULL: at = hth_grammar_text(g, at, "null", 4); break;
        case HTH_TYPE_BOOLEAN: {
            hth_grammar_fork both = hth_grammar_fork_begin(g, at);
            hth_grammar_end_branch(g, &both, hth_grammar_text(g, hth_grammar_branch(g, &both), "true", 4));
            hth_grammar_end_branch(g, &both, hth_grammar_text(g, hth_grammar_branch(g, &both), "false", 5));
            at = hth_grammar_fork_end(g, &both);
            break;
        }
        case HTH_TYPE_INTEGER: at = add_number(c, at, &facts); break;
        case HTH_TYPE_STRING: at = add_string(c, at, &facts); break;
        case HTH_TYPE_ARRAY: at = hth_schema_array(c, at, set, &facts); break;
        default: at = hth_schema_object(c, at, set, &facts); break;
        }
        hth_grammar_end_branch(g, &f, at);
    }
    return hth_grammar_fork_end(g, &f);
}

static void compile_item(hth_schema_compiler *c, uint32_t i)
{
    hth_schema_item item = c->item[i];
    hth_schema_set set = {.n = item.n};
    uint32_t i_entry, tail = item.rule;
    unsigned done;
    memcpy(set.entry, c->entry + item.first, item.n * sizeof *set.entry);
    hth_schema_resolve(c, &set);
    const hth_json *choice = set.never ? NULL : next_choice(&set, &i_entry, &done);
    if (!hth_grammar_ok(c->g)) return;
    if (set.never) hth_grammar_link(c->g, tail, HTH_GRAMMAR_NOTHING);
    else if (choice) hth_grammar_end_rule(c->g, add_choice(c, tail, &set, choice, i_entry, done));
    else if (set.n == 0) hth_grammar_end_rule(c->g, hth_grammar_call(c->g, tail, c->rules.value));
    else hth_grammar_end_rule(c->g, add_value(c, tail, &set));
}

uint32_t hth_compile_schema_tree(hth_grammar *g, hth_arena *names, const hth_json *root, const hth_json *schema,
                                 hth_schema_notes *notes)
{
    hth_schema_compiler *c = hth_alloc(1, sizeof *c);
    uint32_t start = HTH_GRAMMAR_NOTHING;
    hth_schema_set set = {.n = 0};
    if (c) c->index = hth_alloc(N_INDEX, sizeof *c->index);
    if (!c || !c->index) {
        hth_grammar_fail(g, HEARTH_ERROR_MEMORY, "there is no memory for it");
        hth_free(c);
        return start;
    }
    c->g = g;
    c->names = names;
    c->notes = notes;
    c->root = root;
    hth_json_rules_add(&c->rules, g);
    hth_schema_join(c, &set, schema);
    start = hth_schema_rule(c, &set);
    while (c->n_done < c->n_item && hth_grammar_ok(g)) compile_item(c, c->n_done++);
    if (names->failed) hth_grammar_fail(g, HEARTH_ERROR_MEMORY, "there is no memory for it");
    hth_free(c->item);
    hth_free(c->entry);
    hth_free(c->index);
    hth_free(c);
    return start;
}

uint32_t hth_compile_schema(hth_grammar *g, hth_arena *names, const char *text, size_t n, hth_schema_notes *notes)
{
    hth_arena tree = {0};
    hth_json *root;
    hearth_error why;
    uint32_t start = HTH_GRAMMAR_NOTHING;
    if (hth_json_read(&tree, text, n, NULL, &root, &why) == HEARTH_OK)
        start = hth_compile_schema_tree(g, names, root, root, notes);
    else hth_grammar_fail(g, why.status, "%s", why.message);
    hth_arena_free(&tree);
    return start;
}
