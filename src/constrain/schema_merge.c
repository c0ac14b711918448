/* Combines the schemas of a set: references, allOf, types, bounds. Keywords that constrain a value but are not
 * supported are refused by name here. Annotations and unknown keywords are ignored. */
#include "constrain/schema.h"

#include "base/decimal.h"

#include <string.h>

/* ---- keywords ------------------------------------------------------------------------------------- */

static const char *const refused[] = {"multipleOf",
                                      "contains",
                                      "minContains",
                                      "maxContains",
                                      "patternProperties",
                                      "propertyNames",
                                      "dependentRequired",
                                      "dependentSchemas",
                                      "dependencies",
                                      "not",
                                      "if",
                                      "unevaluatedItems",
                                      "unevaluatedProperties",
                                      "$dynamicRef",
                                      "$recursiveRef",
                                      "extends",
                                      "disallow",
                                      "divisibleBy"};

/* Keywords that imply a type where `type` is missing. */
static const struct {
    const char *name;
    unsigned types;
} implied[] = {
    {"properties", HTH_TYPE_OBJECT},
    {"required", HTH_TYPE_OBJECT},
    {"additionalProperties", HTH_TYPE_OBJECT},
    {"minProperties", HTH_TYPE_OBJECT},
    {"maxProperties", HTH_TYPE_OBJECT},
    {"items", HTH_TYPE_ARRAY},
    {"prefixItems", HTH_TYPE_ARRAY},
    {"minItems", HTH_TYPE_ARRAY},
    {"maxItems", HTH_TYPE_ARRAY},
    {"minLength", HTH_TYPE_STRING},
    {"maxLength", HTH_TYPE_STRING},
    {"pattern", HTH_TYPE_STRING},
    {"minimum", HTH_TYPE_INTEGER | HTH_TYPE_FRACTION},
    {"maximum", HTH_TYPE_INTEGER | HTH_TYPE_FRACTION},
    {"exclusiveMinimum", HTH_TYPE_INTEGER | HTH_TYPE_FRACTION},
    {"exclusiveMaximum", HTH_TYPE_INTEGER | HTH_TYPE_FRACTION},
};

/* Whether a schema says nothing but that a value is a text, as all names are. */
static bool says_text(const hth_json *schema)
{
    static const char *const annotations[] = {"title", "description", "$comment", "examples", "$schema", "$id"};
    const hth_json *type = hth_json_member(schema, "type");
    for (const hth_json *v = hth_json_first(schema); v; v = v->next) {
        bool is_annotation = v == type;
        for (size_t i = 0; i < sizeof annotations / sizeof *annotations; i++)
            is_annotation |= hth_str_eq(v->key, annotations[i]);
        if (!is_annotation) return false;
    }
    return type && type->kind == HTH_JSON_TEXT && hth_str_eq(type->text, "string");
}

/* Values with which such a keyword asks for nothing. */
static bool asks_for_nothing(const hth_json *v)
{
    bool is_one = v->kind == HTH_JSON_INTEGER && v->integer == 1 && hth_str_eq(v->key, "multipleOf");
    bool is_off = v->kind == HTH_JSON_BOOL && !v->integer && hth_str_eq(v->key, "not");
    bool is_any = hth_json_is_true(v) && !hth_str_eq(v->key, "not");
    bool is_empty = v->kind == HTH_JSON_OBJECT && v->n == 0 && !hth_str_eq(v->key, "not") &&
                    !hth_str_eq(v->key, "contains");
    return is_one || is_off || is_any || is_empty || (hth_str_eq(v->key, "propertyNames") && says_text(v));
}

static void check_keywords(hth_schema_compiler *c, const hth_json *schema)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const hth_json *v = hth_json_member(schema, refused[i]);
        if (v && !asks_for_nothing(v)) hth_schema_drop(c, v, "the keyword %s is not supported", refused[i]);
    }
}

/* ---- references and allOf ------------------------------------------------------------------------------ */

/* The schema that a reference in this document names; NULL after a failure. */
static const hth_json *target_of(hth_schema_compiler *c, const hth_json *ref)
{
    if (ref->kind != HTH_JSON_TEXT || ref->text.n == 0 || ref->text.bytes[0] != '#' ||
        (ref->text.n > 1 && ref->text.bytes[1] != '/')) {
        hth_schema_drop(c, ref, "only references within the schema (#/...) are supported");
        return NULL;
    }
    const hth_json *at = hth_json_at(c->root, ref->text);
    if (!at)
        hth_schema_fail(c, HEARTH_ERROR_ARGUMENT, ref, "there is no %.*s in the schema",
                        hth_schema_clip(ref->text, 100), ref->text.bytes);
    return at;
}

void hth_schema_resolve(hth_schema_compiler *c, hth_schema_set *set)
{
    for (uint32_t i = 0; i < set->n && hth_grammar_ok(c->g); i++) {
        const hth_json *schema = set->entry[i].schema, *ref = hth_json_member(schema, "$ref");
        const hth_json *all = hth_json_member(schema, "allOf"), *target;
        check_keywords(c, schema);
        if (ref && !(set->entry[i].done & HTH_DONE_REF)) {
            set->entry[i].done |= HTH_DONE_REF;
            target = target_of(c, ref);
            if (target) hth_schema_join(c, set, target);
        }
        if (!all || set->entry[i].done & HTH_DONE_ALL_OF) continue;
        set->entry[i].done |= HTH_DONE_ALL_OF;
        if (all->kind != HTH_JSON_ARRAY)
            hth_schema_fail(c, HEARTH_ERROR_FORMAT, all, "a list of schemas is expected");
        for (const hth_json *v = all->child; v; v = v->next) hth_schema_join(c, set, v);
    }
}

/* ---- types -------------------------------------------------------------------------------------------------- */

static unsigned type_of_name(hth_schema_compiler *c, const hth_json *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } all[] = {{"null", HTH_TYPE_NULL},
               {"boolean", HTH_TYPE_BOOLEAN},
               {"integer", HTH_TYPE_INTEGER},
               {"string", HTH_TYPE_STRING},
               {"array", HTH_TYPE_ARRAY},
               {"object", HTH_TYPE_OBJECT},
               {"number", HTH_TYPE_INTEGER | HTH_TYPE_FRACTION},
               {"any", HTH_ALL_TYPES}};
    for (size_t i = 0; name->kind == HTH_JSON_TEXT && i < sizeof all / sizeof *all; i++)
        if (hth_str_eq(name->text, all[i].name)) return all[i].types;
    hth_schema_fail(c, HEARTH_ERROR_FORMAT, name,
                    "a type is null, boolean, integer, number, string, array or object");
    return 0;
}

static unsigned types_of(hth_schema_compiler *c, const hth_json *type)
{
    unsigned types = 0;
    if (type->kind != HTH_JSON_ARRAY) return type_of_name(c, type);
    for (const hth_json *v = type->child; v; v = v->next) types |= type_of_name(c, v);
    return types;
}

static unsigned implied_types(const hth_json *schema)
{
    unsigned types = 0;
    for (size_t i = 0; i < sizeof implied / sizeof *implied; i++)
        if (hth_json_member(schema, implied[i].name)) types |= implied[i].types;
    return types;
}

static unsigned types_of_set(hth_schema_compiler *c, const hth_schema_set *set)
{
    unsigned types = HTH_ALL_TYPES, hinted = 0;
    bool is_named = false;
    for (uint32_t i = 0; i < set->n; i++) {
        const hth_json *type = hth_json_member(set->entry[i].schema, "type");
        if (type) types &= types_of(c, type), is_named = true;
        else hinted |= implied_types(set->entry[i].schema);
        const hth_json *format = hth_json_member(set->entry[i].schema, "format");
        if (!type && format) hinted |= HTH_TYPE_STRING;
    }
    if (!is_named && hinted) types = hinted;
    return types & HTH_TYPE_FRACTION && !(types & HTH_TYPE_INTEGER) ? types & ~(unsigned)HTH_TYPE_FRACTION
                                                                    : types;
}

/* A double from 2^53 on has no fraction. */
static bool is_whole(const hth_json *v)
{
    return v->kind == HTH_JSON_INTEGER || v->real >= 0x1p53 || v->real <= -0x1p53;
}

bool hth_schema_has_type(const hth_json *v, unsigned types)
{
    static const unsigned of_kind[] = {
        [HTH_JSON_NULL] = HTH_TYPE_NULL,       [HTH_JSON_BOOL] = HTH_TYPE_BOOLEAN,
        [HTH_JSON_INTEGER] = HTH_TYPE_INTEGER, [HTH_JSON_REAL] = HTH_TYPE_FRACTION,
        [HTH_JSON_TEXT] = HTH_TYPE_STRING,     [HTH_JSON_ARRAY] = HTH_TYPE_ARRAY,
        [HTH_JSON_OBJECT] = HTH_TYPE_OBJECT};
    return types & (v->kind == HTH_JSON_REAL && is_whole(v) ? (unsigned)HTH_TYPE_INTEGER : of_kind[v->kind]);
}

static bool is_same_number(const hth_json *a, const hth_json *b)
{
    hth_decimal x, y;
    return hth_decimal_read(a->text.bytes, a->text.n, &x) && hth_decimal_read(b->text.bytes, b->text.n, &y) &&
           x.minus == y.minus && x.exponent == y.exponent && x.n == y.n && memcmp(x.digits, y.digits, x.n) == 0;
}

/* Whether two values are the same but for what is in them; objects whose members have another order are not. */
static bool is_alike(const hth_json *a, const hth_json *b, bool with_key)
{
    if (with_key && hth_str_compare(a->key, b->key) != 0) return false;
    if (a->kind == HTH_JSON_REAL && b->kind == HTH_JSON_REAL) return is_same_number(a, b);
    if (a->kind != b->kind || a->n != b->n || a->integer != b->integer) return false;
    return a->kind != HTH_JSON_TEXT || hth_str_compare(a->text, b->text) == 0;
}

bool hth_json_same(const hth_json *a, const hth_json *b)
{
    const hth_json *top = a;
    if (!is_alike(a, b, false)) return false;
    for (;;) { /* both trees have the same shape up to here */
        if (a->child) {
            a = a->child, b = b->child;
        } else {
            while (a != top && !a->next) a = a->parent, b = b->parent;
            if (a == top) return true;
            a = a->next, b = b->next;
        }
        if (!is_alike(a, b, a->parent->kind == HTH_JSON_OBJECT)) return false;
    }
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* A count of a keyword; UNBOUNDED: there is none. Larger ones than any text can have are cut. */
static uint32_t count_of(hth_schema_compiler *c, const hth_json *schema, const char *keyword)
{
    const hth_json *v = hth_json_member(schema, keyword);
    if (!v) return HTH_GRAMMAR_UNBOUNDED;
    if (!hth_json_is_number(v) || v->real < 0.0 || !is_whole(v)) {
        hth_schema_fail(c, HEARTH_ERROR_FORMAT, v, "a whole number from 0 is expected");
        return 0;
    }
    return v->real > (double)HTH_GRAMMAR_MAX_COUNT ? HTH_GRAMMAR_MAX_COUNT : (uint32_t)v->real;
}

static void raise_min(hth_schema_compiler *c, const hth_json *schema, const char *keyword, uint32_t *min)
{
    uint32_t n = count_of(c, schema, keyword);
    if (n != HTH_GRAMMAR_UNBOUNDED && n > *min) *min = n;
}

static void lower_max(hth_schema_compiler *c, const hth_json *schema, const char *keyword, uint32_t *max)
{
    uint32_t n = count_of(c, schema, keyword);
    if (n < *max) *max = n;
}

/* One bound of numbers. is_open: the number itself is excluded. Of several the tightest counts. */
static void bound(hth_schema_compiler *c, hth_schema_facts *f, const hth_json *v, bool is_min, bool is_open)
{
    hth_json_bound b, *known = is_min ? &f->range.min : &f->range.max;
    bool *has = is_min ? &f->has_min : &f->has_max;
    if (!hth_json_is_number(v)) {
        hth_schema_fail(c, HEARTH_ERROR_FORMAT, v, "a number is expected");
        return;
    }
    if (!hth_json_bound_read(v, is_open, &b)) {
        hth_schema_drop(c, v, "bounds with more than %d digits behind the point are not supported", HTH_JSON_DIGITS);
        return;
    }
    if (b.is_huge && b.minus != is_min) {
        hth_schema_drop(c, v, "numbers beyond %llu are not supported", (unsigned long long)UINT64_MAX);
        return;
    }
    int order = *has ? hth_json_bound_compare(&b, known) : 0;
    if (!*has || (is_min ? order > 0 : order < 0) || (order == 0 && is_open)) *known = b;
    *has = true;
}

/* Draft 4 has `exclusiveMinimum: true` beside `minimum`. */
static void bound_numbers(hth_schema_compiler *c, hth_schema_facts *f, const hth_json *schema)
{
    static const char *const names[2][2] = {{"maximum", "exclusiveMaximum"}, {"minimum", "exclusiveMinimum"}};
    for (int is_min = 0; is_min < 2; is_min++) {
        const hth_json *closed = hth_json_member(schema, names[is_min][0]),
                       *open = hth_json_member(schema, names[is_min][1]);
        bool is_flag = hth_json_kind_of(open) == HTH_JSON_BOOL;
        if (closed) bound(c, f, closed, is_min, hth_json_is_true(open));
        if (open && !is_flag) bound(c, f, open, is_min, true);
    }
}

/* An end that no schema names lies at the largest number of its type, or, if the other one is beyond it, as far as
 * bounds go. */
static void default_bounds(hth_schema_facts *f)
{
    const uint64_t usual = f->types & HTH_TYPE_FRACTION ? HTH_JSON_MAX_WHOLE : HTH_JSON_MAX_INTEGER;
    if (!f->has_min)
        f->range.min = (hth_json_bound){.minus = true, .whole = f->range.max.whole < usual ? usual : UINT64_MAX};
    if (!f->has_max) f->range.max = (hth_json_bound){.whole = f->range.min.whole < usual ? usual : UINT64_MAX};
}

static void set_text(hth_schema_compiler *c, const hth_json *schema, const char *keyword,
                     const hth_json **known)
{
    const hth_json *v = hth_json_member(schema, keyword);
    if (!v) return;
    if (v->kind != HTH_JSON_TEXT) hth_schema_fail(c, HEARTH_ERROR_FORMAT, v, "a text is expected");
    else if (*known && hth_str_compare((*known)->text, v->text) != 0)
        hth_schema_drop(c, v, "two different values of %s cannot be combined", keyword);
    else *known = v;
}

/* Literals are not checked against other keywords. */
static void set_values(hth_schema_compiler *c, const hth_json *schema, hth_schema_facts *f)
{
    const hth_json *list = hth_json_member(schema, "enum"), *one = hth_json_member(schema, "const");
    if (list && list->kind != HTH_JSON_ARRAY)
        hth_schema_fail(c, HEARTH_ERROR_FORMAT, list, "a list of values is expected");
    if (list && list->n == 0) hth_schema_fail(c, HEARTH_ERROR_ARGUMENT, list, "it allows nothing");
    if (!f->values) f->values = one ? one : list;
}

static void check_literals(hth_schema_compiler *c, const hth_schema_set *set)
{
    for (uint32_t i = 0; i < set->n; i++) {
        for (size_t k = 0; k < sizeof implied / sizeof *implied; k++) {
            const hth_json *v = hth_json_member(set->entry[i].schema, implied[k].name);
            if (v) hth_schema_drop(c, v, "%s beside enum or const is not supported", implied[k].name);
        }
    }
}

void hth_schema_get_facts(hth_schema_compiler *c, const hth_schema_set *set, hth_schema_facts *f)
{
    *f = (hth_schema_facts){.types = types_of_set(c, set),
                            .max_length = HTH_GRAMMAR_UNBOUNDED,
                            .max_items = HTH_GRAMMAR_UNBOUNDED,
                            .max_properties = HTH_GRAMMAR_UNBOUNDED};
    for (uint32_t i = 0; i < set->n; i++) {
        const hth_json *schema = set->entry[i].schema;
        raise_min(c, schema, "minLength", &f->min_length);
        lower_max(c, schema, "maxLength", &f->max_length);
        raise_min(c, schema, "minItems", &f->min_items);
        lower_max(c, schema, "maxItems", &f->max_items);
        raise_min(c, schema, "minProperties", &f->min_properties);
        lower_max(c, schema, "maxProperties", &f->max_properties);
        set_text(c, schema, "pattern", &f->pattern);
        set_text(c, schema, "format", &f->format);
        set_values(c, schema, f);
        bound_numbers(c, f, schema);
    }
    default_bounds(f);
    if (f->values) check_literals(c, set);
}
