/* Filters over lists: first to unique, map and the four that select. Sorting is a stable merge sort, like
 * Python's. */
#include "chat/jinja.h"

#include <string.h>

/* ---- attributes --------------------------------------------------------------------------------- */

/* False: these n bytes are no whole number of at most nine digits. */
static bool read_index(const char *p, size_t n, int64_t *index)
{
    *index = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *index = *index * 10 + (p[i] - '0');
        if (i == 9) return false;
    }
    return n > 0;
}

/* "a.b.0": members of members. A whole number is an index. */
static bool attribute_of(hth_jinja *j, const hth_jinja_value *v, const hth_jinja_value *attribute,
                         hth_jinja_value *out)
{
    if (attribute->kind != JINJA_TEXT) return hth_jinja_index(j, v, attribute, out);
    const char *p = hth_jinja_bytes(j, attribute->as.text);
    size_t n = attribute->as.text->n;
    *out = *v;
    for (size_t at = 0; p && at <= n;) {
        const char *dot = at < n ? memchr(p + at, '.', n - at) : NULL;
        size_t end = dot ? (size_t)(dot - p) : n;
        hth_jinja_value key, object = *out;
        int64_t index;
        if (read_index(p + at, end - at, &index)) {
            key = hth_jinja_integer(index);
        } else if (!hth_jinja_cut(j, attribute->as.text, at, end, &key)) {
            return false;
        }
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_index(j, &object, &key, out)) return false;
        at = end + 1;
    }
    return p != NULL;
}

static bool maybe_attribute(hth_jinja *j, const hth_jinja_value *v, const hth_jinja_value *attribute,
                            hth_jinja_value *out)
{
    *out = *v;
    return attribute->kind == JINJA_MISSING || attribute->kind == JINJA_NONE ||
           attribute_of(j, v, attribute, out);
}

/* ---- ends, sums, joins ---------------------------------------------------------------------------- */

static JINJA_FUNCTION(filter_first)
{
    hth_jinja_list *list;
    if (!hth_jinja_items(j, self, &list)) return false;
    if (list->n == 0) return hth_jinja_undefined(j, NULL, 0, out);
    *out = list->v[0];
    return true;
}

static JINJA_FUNCTION(filter_last)
{
    hth_jinja_list *list;
    if (!hth_jinja_items(j, self, &list)) return false;
    if (list->n == 0) return hth_jinja_undefined(j, NULL, 0, out);
    *out = list->v[list->n - 1];
    return true;
}

static bool copy_list(hth_jinja *j, const hth_jinja_value *self, hth_jinja_value *out)
{
    hth_jinja_list *list;
    if (!hth_jinja_items(j, self, &list) || !hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    for (size_t i = 0; i < list->n; i++)
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_push(j, out->as.list, &list->v[i])) return false;
    return true;
}

static JINJA_FUNCTION(filter_list) { return copy_list(j, self, out); }

static JINJA_FUNCTION(filter_reverse)
{
    hth_jinja_value back = hth_jinja_integer(-1), none = hth_jinja_none(), list;
    if (self->kind == JINJA_TEXT) return hth_jinja_slice(j, self, &none, &none, &back, out);
    return copy_list(j, self, &list) && hth_jinja_slice(j, &list, &none, &none, &back, out);
}

static JINJA_FUNCTION(filter_join)
{
    hth_jinja_strbuf b = {0};
    hth_jinja_list *list;
    if (!hth_jinja_items(j, self, &list)) return false;
    for (size_t i = 0; i < list->n; i++) {
        hth_jinja_value v;
        if (!hth_jinja_count_steps(j, 1) || (i > 0 && !hth_jinja_print(j, &args->v[0], &b))) return false;
        if (!maybe_attribute(j, &list->v[i], &args->v[1], &v) || !hth_jinja_print(j, &v, &b)) return false;
    }
    return hth_jinja_strbuf_value(j, &b, out);
}

static JINJA_FUNCTION(filter_sum)
{
    hth_jinja_list *list;
    *out = args->v[1].kind == JINJA_MISSING ? hth_jinja_integer(0) : args->v[1];
    if (!hth_jinja_items(j, self, &list)) return false;
    for (size_t i = 0; i < list->n; i++) {
        hth_jinja_value v, sum = *out;
        if (!hth_jinja_count_steps(j, 1) || !maybe_attribute(j, &list->v[i], &args->v[0], &v) ||
            !hth_jinja_operate(j, OP_ADD, &sum, &v, out))
            return false;
    }
    return true;
}

bool hth_jinja_dict_items(hth_jinja *j, const hth_jinja_dict *dict, hth_jinja_value *out)
{
    if (!hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    for (size_t i = 0; i < dict->n; i++) {
        hth_jinja_value pair;
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_new_list(j, JINJA_TUPLE, &pair) ||
            !hth_jinja_push(j, pair.as.list, &dict->v[i].key) ||
            !hth_jinja_push(j, pair.as.list, &dict->v[i].value) || !hth_jinja_push(j, out->as.list, &pair))
            return false;
    }
    return true;
}

static JINJA_FUNCTION(filter_items)
{
    if (self->kind == JINJA_UNDEFINED) return hth_jinja_new_list(j, JINJA_LIST, out);
    if (self->kind != JINJA_DICT)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s has no items", hth_jinja_kind_name(self));
    return hth_jinja_dict_items(j, self->as.dict, out);
}

/* ---- order ------------------------------------------------------------------------------------------- */

typedef struct {
    hth_jinja_value key, value;
} entry;

/* Merges the sorted halves [a, m) and [m, z) of from into to. */
static bool merge(hth_jinja *j, const entry *from, entry *to, size_t a, size_t m, size_t z, bool fold)
{
    size_t x = a, y = m;
    for (size_t at = a; at < z; at++) {
        int order = -1;
        if (x < m && y < z && !hth_jinja_compare(j, &from[x].key, &from[y].key, fold, &order)) return false;
        to[at] = x < m && (y >= z || order <= 0) ? from[x++] : from[y++];
    }
    return hth_jinja_count_steps(j, z - a);
}

/* Sorts in place, stable. */
static bool sort(hth_jinja *j, entry *v, size_t n, bool fold)
{
    entry *other = hth_jinja_alloc(j, n, sizeof *other), *from = v, *to = other;
    if (!other) return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t a = 0; a < n; a += 2 * width) {
            size_t m = a + width < n ? a + width : n, z = m + width < n ? m + width : n;
            if (!merge(j, from, to, a, m, z, fold)) return false;
        }
        entry *swap = from;
        from = to;
        to = swap;
    }
    if (from != v) memcpy(v, from, n * sizeof *v);
    return true;
}

const hth_jinja_pair *hth_jinja_sorted_pairs(hth_jinja *j, const hth_jinja_dict *dict)
{
    entry *v = hth_jinja_alloc(j, dict->n, sizeof *v);
    hth_jinja_pair *pairs = v ? hth_jinja_alloc(j, dict->n, sizeof *pairs) : NULL;
    if (!pairs) return NULL;
    for (size_t i = 0; i < dict->n; i++) v[i] = (entry){dict->v[i].key, dict->v[i].value};
    if (!sort(j, v, dict->n, false)) return NULL;
    for (size_t i = 0; i < dict->n; i++) pairs[i] = (hth_jinja_pair){v[i].key, v[i].value};
    return pairs;
}

/* The list with its keys, sorted. With reverse, equal items keep their order. */
static bool sorted(hth_jinja *j, const hth_jinja_list *list, const hth_jinja_value *attribute, bool fold,
                   bool reverse, hth_jinja_value *out)
{
    size_t n = list->n;
    entry *v = hth_jinja_alloc(j, n, sizeof *v);
    if (!v || !hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    for (size_t i = 0; i < n; i++) {
        size_t at = reverse ? n - 1 - i : i;
        v[i].value = list->v[at];
        if (!maybe_attribute(j, &list->v[at], attribute, &v[i].key)) return false;
    }
    if (!sort(j, v, n, fold)) return false;
    for (size_t i = 0; i < n; i++)
        if (!hth_jinja_push(j, out->as.list, &v[reverse ? n - 1 - i : i].value)) return false;
    return true;
}

static JINJA_FUNCTION(filter_sort)
{
    hth_jinja_list *list;
    if (!hth_jinja_items(j, self, &list)) return false;
    return sorted(j, list, &args->v[2], !hth_jinja_is_true(&args->v[1]), hth_jinja_is_true(&args->v[0]), out);
}

static JINJA_FUNCTION(filter_dictsort)
{
    hth_jinja_value items, position = hth_jinja_integer(0);
    hth_jinja_text *by;
    bool by_value = false;
    if (self->kind != JINJA_DICT)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s has no items", hth_jinja_kind_name(self));
    if (!hth_jinja_text_argument(j, &args->v[1], &by) ||
        (by && !hth_jinja_text_is(j, by, "value", &by_value)))
        return false;
    if (by_value) position = hth_jinja_integer(1);
    if (!hth_jinja_dict_items(j, self->as.dict, &items)) return false;
    return sorted(j, items.as.list, &position, !hth_jinja_is_true(&args->v[0]), hth_jinja_is_true(&args->v[2]),
                  out);
}

static bool extreme(hth_jinja *j, const hth_jinja_value *self, const hth_jinja_args *args, bool largest,
                    hth_jinja_value *out)
{
    hth_jinja_list *list;
    hth_jinja_value best = hth_jinja_none();
    if (!hth_jinja_items(j, self, &list)) return false;
    if (list->n == 0) return hth_jinja_undefined(j, NULL, 0, out);
    for (size_t i = 0; i < list->n; i++) {
        hth_jinja_value key;
        int order = 1;
        if (!hth_jinja_count_steps(j, 1) || !maybe_attribute(j, &list->v[i], &args->v[1], &key)) return false;
        if (i > 0 && !hth_jinja_compare(j, &key, &best, !hth_jinja_is_true(&args->v[0]), &order)) return false;
        if (i > 0 && (largest ? order <= 0 : order >= 0)) continue;
        best = key;
        *out = list->v[i];
    }
    return true;
}

static JINJA_FUNCTION(filter_max) { return extreme(j, self, args, true, out); }
static JINJA_FUNCTION(filter_min) { return extreme(j, self, args, false, out); }

static JINJA_FUNCTION(filter_unique)
{
    hth_jinja_list *list, seen = {0};
    if (!hth_jinja_items(j, self, &list) || !hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    for (size_t i = 0; i < list->n; i++) {
        hth_jinja_value key;
        bool known = false;
        if (!maybe_attribute(j, &list->v[i], &args->v[1], &key)) return false;
        if (key.kind == JINJA_TEXT && !hth_jinja_is_true(&args->v[0]) && !hth_jinja_lower(j, &key, args, &key))
            return false;
        if (!hth_jinja_count_steps(j, 1 + seen.n / 64)) return false;
        for (size_t k = 0; k < seen.n && !known; k++)
            if (!hth_jinja_equal(j, &seen.v[k], &key, &known)) return false;
        if (!known && (!hth_jinja_push(j, &seen, &key) || !hth_jinja_push(j, out->as.list, &list->v[i])))
            return false;
    }
    return true;
}

/* ---- map and select ------------------------------------------------------------------------------------- */

static bool named_argument(hth_jinja *j, const hth_jinja_args *args, const char *name, hth_jinja_value *out)
{
    hth_jinja_pair *at = NULL;
    hth_jinja_value key;
    *out = (hth_jinja_value){JINJA_MISSING, {0}};
    if (args->named.n == 0) return true;
    if (!hth_jinja_text_word(j, name, &key) || !hth_jinja_find(j, &args->named, &key, &at)) return false;
    if (at) *out = at->value;
    return true;
}

/* The function named by the first of args; rest: the other arguments. */
static bool named_function(hth_jinja *j, const hth_jinja_args *args,
                           const hth_jinja_function *(*find)(hth_str name), const char *what,
                           const hth_jinja_function **f, hth_jinja_args *rest)
{
    hth_jinja_text *name = NULL;
    if (args->n == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "expected the name of a %s", what);
    if (!hth_jinja_text_argument(j, &args->v[0], &name)) return false;
    const char *p = name ? hth_jinja_bytes(j, name) : "";
    if (!p) return false;
    *f = find((hth_str){p, name ? name->n : 0});
    *rest = (hth_jinja_args){args->v + 1, args->n - 1, args->named};
    if (*f) return true;
    return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "%s '%.*s' is not known", what,
                          (int)(name && name->n < 60 ? name->n : 0), p);
}

static JINJA_FUNCTION(map_items)
{
    hth_jinja_list *list;
    hth_jinja_value attribute, fallback;
    const hth_jinja_function *f = NULL;
    hth_jinja_args rest;
    if (!hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    if (!named_argument(j, args, "attribute", &attribute) || !named_argument(j, args, "default", &fallback))
        return false;
    if (attribute.kind == JINJA_MISSING && !named_function(j, args, hth_jinja_filter, "filter", &f, &rest))
        return false;
    if (!hth_jinja_is_true(self)) return true;
    if (!hth_jinja_items(j, self, &list)) return false;
    for (size_t i = 0; i < list->n; i++) {
        hth_jinja_value v;
        if (!hth_jinja_count_steps(j, 1)) return false;
        if (f ? !hth_jinja_apply(j, f, &list->v[i], &rest, &v)
              : !attribute_of(j, &list->v[i], &attribute, &v))
            return false;
        if (v.kind == JINJA_UNDEFINED && fallback.kind != JINJA_MISSING) v = fallback;
        if (!hth_jinja_push(j, out->as.list, &v)) return false;
    }
    return true;
}

/* map('map', 'map', ...) calls itself without an expression between, so it counts depth too. */
static JINJA_FUNCTION(filter_map)
{
    if (!hth_jinja_enter(j)) return false;
    bool ok = map_items(j, self, args, out);
    hth_jinja_leave(j);
    return ok;
}

/* Keeps the items whose value passes the test, or, without a test, is true. */
static bool keep(hth_jinja *j, const hth_jinja_value *self, const hth_jinja_args *args,
                 const hth_jinja_value *attribute, bool wanted, hth_jinja_value *out)
{
    hth_jinja_list *list;
    const hth_jinja_function *f = NULL;
    hth_jinja_args rest;
    if (!hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    if (args->n > 0 && !named_function(j, args, hth_jinja_test, "test", &f, &rest)) return false;
    if (!hth_jinja_is_true(self)) return true; /* none gives an empty list */
    if (!hth_jinja_items(j, self, &list)) return false;
    for (size_t i = 0; i < list->n; i++) {
        hth_jinja_value v, passed;
        if (!hth_jinja_count_steps(j, 1) || !maybe_attribute(j, &list->v[i], attribute, &v)) return false;
        passed = v;
        if (f && !hth_jinja_apply(j, f, &v, &rest, &passed)) return false;
        if (hth_jinja_is_true(&passed) == wanted && !hth_jinja_push(j, out->as.list, &list->v[i])) return false;
    }
    return true;
}

static bool keep_by_attribute(hth_jinja *j, const hth_jinja_value *self, const hth_jinja_args *args,
                              bool wanted, hth_jinja_value *out)
{
    if (args->n == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "expected the name of an attribute");
    hth_jinja_args rest = {args->v + 1, args->n - 1, args->named};
    return keep(j, self, &rest, &args->v[0], wanted, out);
}

static const hth_jinja_value itself = {JINJA_MISSING, {0}};

static JINJA_FUNCTION(filter_select) { return keep(j, self, args, &itself, true, out); }
static JINJA_FUNCTION(filter_reject) { return keep(j, self, args, &itself, false, out); }
static JINJA_FUNCTION(filter_selectattr) { return keep_by_attribute(j, self, args, true, out); }
static JINJA_FUNCTION(filter_rejectattr) { return keep_by_attribute(j, self, args, false, out); }

const hth_jinja_function hth_jinja_list_filters[] = {
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"first", filter_first, "", 0},
    {"items", filter_items, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"last", filter_last, "", 0},
    {"list", filter_list, "", 0},
    {"map", filter_map, NULL, 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"reject", filter_reject, NULL, 0},
    {"rejectattr", filter_rejectattr, NULL, 0},
    {"reverse", filter_reverse, "", 0},
    {"select", filter_select, NULL, 0},
    {"selectattr", filter_selectattr, NULL, 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {NULL, NULL, NULL, 0},
};
