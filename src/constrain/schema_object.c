/* Objects and arrays of JSON schemas. Members come in the order of `properties`; optional ones may be left out. Other
 * members come behind them, if additionalProperties asks for them or no property is named. */
#include "constrain/schema.h"

#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

enum { MAX_UNIQUE = 8 }; /* items of an array in which each comes once */

static uint32_t separator(hth_schema_compiler *c, uint32_t tail)
{
    return hth_grammar_call(c->g, hth_grammar_byte(c->g, tail, ','), c->rules.space);
}

static uint32_t opened(hth_schema_compiler *c, uint32_t tail, char bracket)
{
    return hth_grammar_call(c->g, hth_grammar_byte(c->g, tail, (uint8_t)bracket), c->rules.space);
}

static uint32_t colon_and_value(hth_schema_compiler *c, uint32_t tail, uint32_t rule)
{
    tail = hth_grammar_call(c->g, hth_grammar_byte(c->g, tail, ':'), c->rules.gap);
    return hth_grammar_call(c->g, tail, rule);
}

/* A rule: a separator and an item. */
static uint32_t one_more(hth_schema_compiler *c, uint32_t item)
{
    uint32_t rule = hth_grammar_rule(c->g, NULL);
    hth_grammar_end_rule(c->g, hth_grammar_call(c->g, separator(c, rule), item));
    return rule;
}

/* ---- properties ----------------------------------------------------------------------------------- */

typedef struct property {
    hth_str name;
    bool is_required, is_forbidden;
    uint32_t rule;
} property;

typedef struct object {
    property *property; /* [n] */
    uint32_t n, capacity, n_required;
    bool takes_others;
    uint32_t other; /* rule of their values */
} object;

static property *find_property(object *o, hth_str name)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (o->property[i].name.n == name.n && memcmp(o->property[i].name.bytes, name.bytes, name.n) == 0)
            return &o->property[i];
    return NULL;
}

static property *add_property(hth_schema_compiler *c, object *o, const hth_json *at, hth_str name)
{
    property *known = find_property(o, name);
    if (known) return known;
    if (o->n == HTH_SCHEMA_MAX_PROPERTIES) {
        hth_schema_fail(c, HEARTH_ERROR_UNSUPPORTED, at, "an object has more than %d properties",
                        HTH_SCHEMA_MAX_PROPERTIES);
        return NULL;
    }
    if (o->n == o->capacity) {
        uint32_t capacity = o->capacity ? 2 * o->capacity : 16;
        property *bigger = hth_realloc(o->property, capacity, sizeof *bigger);
        if (!bigger) {
            hth_grammar_fail(c->g, HEARTH_ERROR_MEMORY, "there is no memory for it");
            return NULL;
        }
        o->property = bigger;
        o->capacity = capacity;
    }
    o->property[o->n] = (property){.name = name};
    return &o->property[o->n++];
}

static void list_properties(hth_schema_compiler *c, object *o, const hth_schema_set *set)
{
    for (uint32_t i = 0; i < set->n && hth_grammar_ok(c->g); i++) {
        const hth_json *list = hth_json_member(set->entry[i].schema, "properties");
        if (list && list->kind != HTH_JSON_OBJECT)
            hth_schema_fail(c, HEARTH_ERROR_FORMAT, list, "an object of schemas is expected");
        for (const hth_json *v = list ? list->child : NULL; v && hth_grammar_ok(c->g); v = v->next)
            add_property(c, o, v, v->key);
    }
    for (uint32_t i = 0; i < set->n && hth_grammar_ok(c->g); i++) {
        const hth_json *list = hth_json_member(set->entry[i].schema, "required");
        bool is_flag = hth_json_kind_of(list) == HTH_JSON_BOOL; /* draft 3 has required: true in a property */
        if (list && list->kind != HTH_JSON_ARRAY && !is_flag)
            hth_schema_fail(c, HEARTH_ERROR_FORMAT, list, "a list of names is expected");
        for (const hth_json *v = list ? list->child : NULL; v && hth_grammar_ok(c->g); v = v->next) {
            if (v->kind != HTH_JSON_TEXT) hth_schema_fail(c, HEARTH_ERROR_FORMAT, v, "a name is expected");
            property *p = hth_grammar_ok(c->g) ? add_property(c, o, v, v->text) : NULL;
            if (!p || p->is_required) continue;
            p->is_required = true;
            o->n_required++;
        }
    }
}

static const hth_json *member_called(const hth_json *list, hth_str name)
{
    const hth_json *v = list && list->kind == HTH_JSON_OBJECT ? list->child : NULL;
    while (v && !(v->key.n == name.n && memcmp(v->key.bytes, name.bytes, name.n) == 0)) v = v->next;
    return v;
}

/* Compiles the rule of a property. A schema that does not name the property constrains it by its
 * additionalProperties. */
static void set_rule(hth_schema_compiler *c, property *p, const hth_schema_set *set)
{
    hth_schema_set value = {.n = 0};
    for (uint32_t i = 0; i < set->n; i++) {
        const hth_json *schema = set->entry[i].schema;
        const hth_json *named = member_called(hth_json_member(schema, "properties"), p->name);
        const hth_json *other = hth_json_member(schema, "additionalProperties");
        if (named) hth_schema_join(c, &value, named);
        else if (other) hth_schema_join(c, &value, other);
    }
    p->rule = hth_schema_rule(c, &value);
    p->is_forbidden = value.never;
}

static void set_others(hth_schema_compiler *c, object *o, const hth_schema_set *set)
{
    hth_schema_set value = {.n = 0};
    o->takes_others = o->n == 0;
    for (uint32_t i = 0; i < set->n; i++) {
        const hth_json *other = hth_json_member(set->entry[i].schema, "additionalProperties");
        if (!other) continue;
        o->takes_others = true;
        hth_schema_join(c, &value, other);
    }
    if (value.never) o->takes_others = false;
    o->other = hth_schema_rule(c, &value);
}

/* ---- names of other members ------------------------------------------------------------------------- */

/* Names that begin with the same `at` bytes, which the nodes up to `tail` have taken. */
typedef struct branching {
    uint32_t first, end, tail;
    size_t at;
} branching;

static void sort_names(property *p, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        property moved = p[i];
        uint32_t k = i;
        for (; k > 0 && hth_str_compare(p[k - 1].name, moved.name) > 0; k--) p[k] = p[k - 1];
        p[k] = moved;
    }
}

/* One step: closes the name where none of the list ends, leaves the list by a character that none of it has, or goes on
 * with those that have it. Until it has left the list a name has no escapes, so it cannot be one of the list. */
static void branch_names(hth_schema_compiler *c, const property *sorted, branching b, uint32_t end,
                         branching *more, size_t *n_more)
{
    hth_grammar *g = c->g;
    hth_char_set others = {{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, HTH_MAX_CODE_POINT}}, 3};
    hth_grammar_fork f = hth_grammar_fork_begin(g, b.tail);
    bool fits = true;
    if (sorted[b.first].name.n == b.at) b.first++;
    else hth_grammar_link(g, hth_grammar_byte(g, hth_grammar_branch(g, &f), '"'), end);
    for (uint32_t i = b.first; i < b.end && hth_grammar_ok(g);) {
        hth_str name = sorted[i].name;
        uint32_t last = i, code = 0;
        size_t length = hth_text_utf8_decode(name.bytes + b.at, name.n - b.at, &code);
        if (length == 0) length = 1;
        while (last < b.end && sorted[last].name.n >= b.at + length &&
               memcmp(sorted[last].name.bytes + b.at, name.bytes + b.at, length) == 0)
            last++;
        fits &= hth_char_set_remove(&others, code, code);
        if (code >= 0x20 && code != '"' && code != '\\') {
            uint32_t tail = hth_grammar_text(g, hth_grammar_branch(g, &f), name.bytes + b.at, length);
            more[(*n_more)++] = (branching){i, last, tail, b.at + length};
        }
        i = last;
    }
    if (!fits)
        hth_schema_fail(c, HEARTH_ERROR_UNSUPPORTED, c->root,
                        "too many different names beside additionalProperties");
    uint32_t tail = hth_grammar_char(g, hth_grammar_branch(g, &f), &others);
    tail = hth_grammar_repeat(g, tail, c->rules.character, 0, HTH_GRAMMAR_UNBOUNDED);
    hth_grammar_link(g, hth_grammar_byte(g, tail, '"'), end);
}

/* A string that is none of the names. */
static uint32_t other_name(hth_schema_compiler *c, uint32_t tail, object *o)
{
    size_t n_byte = 1, n = 0;
    if (o->n == 0) return hth_grammar_call(c->g, tail, c->rules.string);
    property *sorted = hth_alloc(o->n, sizeof *sorted);
    for (uint32_t i = 0; i < o->n; i++) n_byte += o->property[i].name.n;
    branching *more = hth_alloc(n_byte, sizeof *more);
    uint32_t end = hth_grammar_rule(c->g, NULL);
    if (sorted && more) {
        memcpy(sorted, o->property, o->n * sizeof *sorted);
        sort_names(sorted, o->n);
        more[n++] = (branching){0, o->n, hth_grammar_byte(c->g, tail, '"'), 0};
        while (n > 0 && hth_grammar_ok(c->g)) {
            branching b = more[--n];
            branch_names(c, sorted, b, end, more, &n);
        }
    } else {
        hth_grammar_fail(c->g, HEARTH_ERROR_MEMORY, "there is no memory for it");
    }
    hth_free(sorted);
    hth_free(more);
    return end;
}

/* ---- objects -------------------------------------------------------------------------------------------- */

static void drop_all(hth_schema_compiler *c, const hth_schema_set *set, const char *keyword, const char *what)
{
    for (uint32_t i = 0; i < set->n; i++) {
        const hth_json *v = hth_json_member(set->entry[i].schema, keyword);
        if (v) hth_schema_drop(c, v, "%s", what);
    }
}

static void check_counts(hth_schema_compiler *c, const object *o, const hth_schema_set *set,
                         const hth_schema_facts *facts)
{
    if (o->n == 0) return;
    if (facts->min_properties > 1 && facts->min_properties > o->n_required)
        drop_all(c, set, "minProperties", "minProperties is supported up to the number of required ones");
    if (facts->max_properties < o->n || (o->takes_others && facts->max_properties != HTH_GRAMMAR_UNBOUNDED))
        drop_all(c, set, "maxProperties", "maxProperties beside named properties is not supported");
}

/* Any members: min to max of them. */
static void add_others(hth_schema_compiler *c, object *o, uint32_t first, uint32_t behind, uint32_t close,
                       const hth_schema_facts *facts)
{
    hth_grammar *g = c->g;
    uint32_t min = facts->min_properties, max = facts->max_properties;
    if (first != HTH_GRAMMAR_NOTHING && min == 0) {
        hth_grammar_fork f = hth_grammar_fork_begin(g, first);
        hth_grammar_link(g, hth_grammar_branch(g, &f), close);
        first = hth_grammar_branch(g, &f);
    }
    uint32_t last = hth_grammar_rule(g, NULL);
    if (o->takes_others && max > 0) {
        uint32_t member = hth_grammar_rule(g, NULL), before = hth_grammar_rule(g, NULL);
        hth_grammar_end_rule(g, colon_and_value(c, other_name(c, member, o), o->other));
        if (first != HTH_GRAMMAR_NOTHING) hth_grammar_link(g, hth_grammar_call(g, first, member), before);
        hth_grammar_link(g, behind, before);
        uint32_t from = o->n == 0 && min > 0 ? min - 1 : 0,
                 to = o->n == 0 && max != HTH_GRAMMAR_UNBOUNDED ? max - 1 : max;
        if (from <= to)
            hth_grammar_link(g, hth_grammar_repeat(g, before, one_more(c, member), from, to), last);
    } else {
        hth_grammar_link(g, behind, last);
    }
    hth_grammar_link(g, hth_grammar_call(g, last, c->rules.space), close);
}

/* `first` is where no member was written yet, `behind` where one was; each property goes on from both. */
static uint32_t add_members(hth_schema_compiler *c, uint32_t first, object *o, const hth_schema_facts *facts)
{
    hth_grammar *g = c->g;
    uint32_t behind = HTH_GRAMMAR_NOTHING, close = hth_grammar_rule(g, NULL);
    for (uint32_t i = 0; i < o->n && hth_grammar_ok(g); i++) {
        const property *p = &o->property[i];
        if (p->is_forbidden && !p->is_required) continue;
        uint32_t member = hth_grammar_rule(g, NULL), next = hth_grammar_rule(g, NULL);
        uint32_t tail = hth_json_quoted(g, member, p->name.bytes, p->name.n);
        hth_grammar_link(g, colon_and_value(c, tail, p->rule), next);
        if (behind != HTH_GRAMMAR_NOTHING) {
            hth_grammar_fork f = hth_grammar_fork_begin(g, behind);
            hth_grammar_link(g, separator(c, hth_grammar_branch(g, &f)), member);
            if (!p->is_required) hth_grammar_link(g, hth_grammar_branch(g, &f), next);
        }
        if (first != HTH_GRAMMAR_NOTHING) {
            hth_grammar_fork f = hth_grammar_fork_begin(g, first);
            hth_grammar_link(g, hth_grammar_branch(g, &f), member);
            first = p->is_required ? HTH_GRAMMAR_NOTHING : hth_grammar_branch(g, &f);
        }
        behind = next;
    }
    add_others(c, o, first, behind, close, facts);
    return hth_grammar_byte(g, close, '}');
}

uint32_t hth_schema_object(hth_schema_compiler *c, uint32_t tail, const hth_schema_set *set,
                           const hth_schema_facts *facts)
{
    object o = {.n = 0};
    list_properties(c, &o, set);
    for (uint32_t i = 0; i < o.n && hth_grammar_ok(c->g); i++) set_rule(c, &o.property[i], set);
    set_others(c, &o, set);
    check_counts(c, &o, set, facts);
    tail = facts->min_properties <= facts->max_properties ? add_members(c, opened(c, tail, '{'), &o, facts)
                                                          : HTH_GRAMMAR_NOTHING;
    hth_free(o.property);
    return tail;
}

/* ---- arrays ----------------------------------------------------------------------------------------------- */

/* prefixItems, or, before draft 2020-12, a list in items. */
static const hth_json *prefix_of(const hth_json *schema, const hth_json **rest)
{
    const hth_json *items = hth_json_member(schema, "items"),
                   *prefix = hth_json_member(schema, "prefixItems");
    bool is_old = items && items->kind == HTH_JSON_ARRAY;
    *rest = is_old ? hth_json_member(schema, "additionalItems") : items;
    return is_old ? items : prefix;
}

/* The rule of the i-th item. *is_last_kind: all behind it have the same. never: there is none. */
static uint32_t item_rule(hth_schema_compiler *c, const hth_schema_set *set, uint32_t i, bool *is_last_kind,
                          bool *never)
{
    hth_schema_set value = {.n = 0};
    *is_last_kind = true;
    for (uint32_t k = 0; k < set->n; k++) {
        const hth_json *rest, *prefix = prefix_of(set->entry[k].schema, &rest),
                              *v = prefix ? prefix->child : NULL;
        if (prefix && prefix->kind != HTH_JSON_ARRAY)
            hth_schema_fail(c, HEARTH_ERROR_FORMAT, prefix, "a list of schemas is expected");
        if (prefix && prefix->n > HTH_SCHEMA_MAX_PROPERTIES)
            hth_schema_fail(c, HEARTH_ERROR_UNSUPPORTED, prefix, "it has more than %d schemas",
                            HTH_SCHEMA_MAX_PROPERTIES);
        while (v && v->index != i) v = v->next;
        if (v) hth_schema_join(c, &value, v);
        else if (rest) hth_schema_join(c, &value, rest);
        *is_last_kind &= v == NULL;
    }
    *never = value.never;
    return hth_schema_rule(c, &value);
}

/* Arrays of which no item comes twice, where the items are listed: a node for each set of those that came. */
static uint32_t add_unique(hth_schema_compiler *c, uint32_t tail, const hth_json *const *values, uint32_t n,
                           const hth_schema_facts *facts)
{
    hth_grammar *g = c->g;
    uint32_t close = hth_grammar_rule(g, NULL), last = hth_grammar_rule(g, NULL), states[1 << MAX_UNIQUE];
    for (uint32_t seen = 1; seen < 1u << n; seen++) states[seen] = hth_grammar_rule(g, NULL);
    states[0] = opened(c, tail, '[');
    for (uint32_t seen = 0; seen < 1u << n && hth_grammar_ok(g); seen++) {
        uint32_t n_seen = (uint32_t)__builtin_popcount(seen);
        hth_grammar_fork f = hth_grammar_fork_begin(g, states[seen]);
        if (n_seen >= facts->min_items) hth_grammar_link(g, hth_grammar_branch(g, &f), seen ? last : close);
        for (uint32_t i = 0; i < n && n_seen < facts->max_items; i++) {
            if (seen >> i & 1) continue;
            uint32_t at = hth_grammar_branch(g, &f);
            if (seen) at = separator(c, at);
            hth_grammar_link(g, hth_json_literal(g, at, values[i]), states[seen | 1u << i]);
        }
    }
    hth_grammar_link(g, hth_grammar_call(g, last, c->rules.space), close);
    return hth_grammar_byte(g, close, ']');
}

/* The listed values that all items have; their number, or 0 if they are not so listed, or too many. */
static uint32_t listed_items(hth_schema_compiler *c, const hth_schema_set *set, const hth_json *values[MAX_UNIQUE])
{
    hth_schema_set items = {.n = 0};
    hth_schema_facts facts;
    uint32_t n = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        const hth_json *rest, *prefix = prefix_of(set->entry[i].schema, &rest);
        if (prefix) return 0;
        if (rest) hth_schema_join(c, &items, rest);
    }
    hth_schema_resolve(c, &items);
    hth_schema_get_facts(c, &items, &facts);
    for (uint32_t i = 0; i < items.n; i++)
        if (hth_json_member(items.entry[i].schema, "anyOf") || hth_json_member(items.entry[i].schema, "oneOf")) return 0;
    for (const hth_json *v = NULL; !items.never && (v = hth_schema_next_literal(&items, &facts, v));) {
        bool is_new = true;
        for (uint32_t i = 0; i < n; i++) is_new &= !hth_json_same(values[i], v);
        if (is_new && n == MAX_UNIQUE) return 0;
        if (is_new) values[n++] = v;
    }
    return n;
}

/* uniqueItems: true of one of the schemas; NULL: none has it, or no item can come twice. */
static const hth_json *asked_unique(const hth_schema_set *set, const hth_schema_facts *facts)
{
    for (uint32_t i = 0; i < set->n && facts->max_items > 1; i++) {
        const hth_json *v = hth_json_member(set->entry[i].schema, "uniqueItems");
        if (hth_json_is_true(v)) return v;
    }
    return NULL;
}

uint32_t hth_schema_array(hth_schema_compiler *c, uint32_t tail, const hth_schema_set *set,
                          const hth_schema_facts *facts)
{
    hth_grammar *g = c->g;
    uint32_t min = facts->min_items, max = facts->max_items, close = hth_grammar_rule(g, NULL),
             last = hth_grammar_rule(g, NULL);
    uint32_t i = 0;
    bool is_last_kind = false, never = false;
    if (min > max) return HTH_GRAMMAR_NOTHING;
    const hth_json *unique = asked_unique(set, facts), *values[MAX_UNIQUE];
    uint32_t n_value = unique ? listed_items(c, set, values) : 0;
    if (n_value > 0) return add_unique(c, tail, values, n_value, facts);
    if (unique) hth_schema_note(c, unique, "uniqueItems is enforced only where the items are listed in an enum of at most 8");
    tail = opened(c, tail, '[');
    for (; i < max && !is_last_kind && hth_grammar_ok(g); i++) {
        uint32_t rule = item_rule(c, set, i, &is_last_kind, &never);
        if (never) max = i;
        if (never) break;
        if (i >= min) { /* it may end before */
            hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
            hth_grammar_link(g, hth_grammar_branch(g, &f), i > 0 ? last : close);
            tail = hth_grammar_branch(g, &f);
        }
        if (i > 0 && is_last_kind) { /* all that follow */
            uint32_t least = min > i ? min - i : 1, most = max == HTH_GRAMMAR_UNBOUNDED ? max : max - i;
            tail = hth_grammar_repeat(g, tail, one_more(c, rule), least, most);
        } else if (i == 0 && is_last_kind) {
            uint32_t least = min > 1 ? min - 1 : 0, most = max == HTH_GRAMMAR_UNBOUNDED ? max : max - 1;
            tail = hth_grammar_repeat(g, hth_grammar_call(g, tail, rule), one_more(c, rule), least, most);
        } else {
            tail = hth_grammar_call(g, i > 0 ? separator(c, tail) : tail, rule);
        }
    }
    if (min > max) return HTH_GRAMMAR_NOTHING;
    hth_grammar_link(g, tail, i > 0 ? last : close);
    hth_grammar_link(g, hth_grammar_call(g, last, c->rules.space), close);
    return hth_grammar_byte(g, close, ']');
}
