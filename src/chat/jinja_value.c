/* Values of the template language: limits, lists, dicts, truth, equality and order as in Python. Every function
 * that iterates over a value counts nodes and depth, because a template can build lists that contain themselves. */
#include "chat/jinja.h"

#include "base/decimal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- failures and limits ------------------------------------------------------------------ */

bool hth_jinja_fail(hth_jinja *j, hearth_status status, const char *format, ...)
{
    char line[400];
    va_list list;
    if (j->status != HEARTH_OK) return false; /* the first error is kept */
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (j->line > 0) j->status = hth_fail(j->err, status, "chat template, line %u: %s", j->line, line);
    else j->status = hth_fail(j->err, status, "chat template: %s", line); /* before its first line */
    return false;
}

void *hth_jinja_alloc(hth_jinja *j, size_t n, size_t size)
{
    void *p = NULL;
    if (size > 0 && n <= HTH_TEMPLATE_MAX_MEMORY / size &&
        j->arena->used <= HTH_TEMPLATE_MAX_MEMORY - n * size) {
        p = hth_arena_alloc(j->arena, n, size, 16);
        if (!p) j->status = hth_fail_memory(j->err, n * size, "a chat template");
    } else {
        hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "it needs more than %d MiB of memory",
                       HTH_TEMPLATE_MAX_MEMORY >> 20);
    }
    return p;
}

bool hth_jinja_count_steps(hth_jinja *j, size_t n)
{
    if (n <= HTH_TEMPLATE_MAX_NODES - (size_t)j->n_node) {
        j->n_node += (uint32_t)n;
        return true;
    }
    return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "more than %d nodes were evaluated: does it end?",
                          HTH_TEMPLATE_MAX_NODES);
}

bool hth_jinja_count_bytes(hth_jinja *j, size_t n) { return hth_jinja_count_steps(j, n / 256); }

bool hth_jinja_enter(hth_jinja *j)
{
    if (j->depth < JINJA_MAX_DEPTH) {
        j->depth++;
        return true;
    }
    return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "more than %d evaluations inside one another",
                          JINJA_MAX_DEPTH);
}

void hth_jinja_leave(hth_jinja *j) { j->depth--; }

/* ---- kinds -------------------------------------------------------------------------------------- */

const char *hth_jinja_kind_name(const hth_jinja_value *v)
{
    static const char *const names[] = {"undefined", "none", "bool",  "int",       "float", "int",
                                        "text",      "list", "tuple", "dict",      "namespace",
                                        "loop",      "macro", "function", "nothing"};
    return names[v->kind];
}

bool hth_jinja_is_true(const hth_jinja_value *v)
{
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
    case JINJA_MISSING: return false;
    case JINJA_BOOL: return v->as.b;
    case JINJA_INT: return v->as.i != 0;
    case JINJA_FLOAT: return v->as.f < 0.0 || v->as.f > 0.0 || v->as.f != v->as.f;
    case JINJA_TEXT: return v->as.text->n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE: return v->as.list->n > 0;
    case JINJA_DICT: return v->as.dict->n > 0;
    case JINJA_DIGITS:
    case JINJA_NAMESPACE:
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_FUNCTION: break;
    }
    return true;
}

bool hth_jinja_is_number(const hth_jinja_value *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT ||
           v->kind == JINJA_DIGITS;
}

double hth_jinja_number(const hth_jinja_value *v)
{
    if (v->kind == JINJA_FLOAT) return v->as.f;
    if (v->kind != JINJA_DIGITS) return v->kind == JINJA_INT ? (double)v->as.i : (double)v->as.b;
    hth_decimal d;
    return hth_decimal_read(v->as.digits, strlen(v->as.digits), &d) ? hth_decimal_double(&d) : 0.0;
}

bool hth_jinja_int(hth_jinja *j, const hth_jinja_value *v, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (v->kind == JINJA_INT) *out = v->as.i;
    else if (v->kind == JINJA_BOOL) *out = v->as.b;
    else if (v->kind != JINJA_MISSING && v->kind != JINJA_NONE)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "expected a whole number, not %s",
                              hth_jinja_kind_name(v));
    return true;
}

bool hth_jinja_undefined(hth_jinja *j, const char *name, size_t n, hth_jinja_value *out)
{
    *out = (hth_jinja_value){JINJA_UNDEFINED, {.text = NULL}};
    if (n == 0) return true;
    hth_jinja_value text;
    if (!hth_jinja_text_of(j, name, n, false, &text)) return false;
    out->as.text = text.as.text;
    return true;
}

/* ---- lists and dicts -------------------------------------------------------------------------------- */

bool hth_jinja_new_list(hth_jinja *j, hth_jinja_kind kind, hth_jinja_value *out)
{
    *out = (hth_jinja_value){kind, {.list = hth_jinja_alloc(j, 1, sizeof(hth_jinja_list))}};
    return out->as.list != NULL;
}

bool hth_jinja_push(hth_jinja *j, hth_jinja_list *list, const hth_jinja_value *v)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        hth_jinja_value *more = hth_jinja_alloc(j, capacity, sizeof *more);
        if (!more) return false;
        if (list->n) memcpy(more, list->v, list->n * sizeof *more);
        list->v = more; /* a running loop continues over the old array */
        list->capacity = capacity;
    }
    list->v[list->n++] = *v;
    return true;
}

bool hth_jinja_new_dict(hth_jinja *j, hth_jinja_kind kind, hth_jinja_value *out)
{
    *out = (hth_jinja_value){kind, {.dict = hth_jinja_alloc(j, 1, sizeof(hth_jinja_dict))}};
    return out->as.dict != NULL;
}

bool hth_jinja_find(hth_jinja *j, const hth_jinja_dict *dict, const hth_jinja_value *key, hth_jinja_pair **at)
{
    *at = NULL;
    if (!hth_jinja_count_steps(j, dict->n / 64))
        return false; /* linear search: dicts here are small */
    for (size_t i = 0; i < dict->n && !*at; i++) {
        bool equal;
        if (!hth_jinja_equal(j, &dict->v[i].key, key, &equal)) return false;
        if (equal) *at = &dict->v[i];
    }
    return true;
}

bool hth_jinja_put(hth_jinja *j, hth_jinja_dict *dict, const hth_jinja_value *key, const hth_jinja_value *v)
{
    hth_jinja_pair *at;
    if (key->kind == JINJA_LIST || key->kind == JINJA_DICT || key->kind == JINJA_UNDEFINED)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s cannot be a key", hth_jinja_kind_name(key));
    if (!hth_jinja_find(j, dict, key, &at)) return false;
    dict->source.n = 0;
    if (at) {
        at->value = *v;
        return true;
    }
    if (dict->n == dict->capacity) {
        size_t capacity = dict->capacity ? 2 * dict->capacity : 4;
        hth_jinja_pair *more = hth_jinja_alloc(j, capacity, sizeof *more);
        if (!more) return false;
        if (dict->n) memcpy(more, dict->v, dict->n * sizeof *more);
        dict->v = more;
        dict->capacity = capacity;
    }
    dict->v[dict->n++] = (hth_jinja_pair){*key, *v};
    return true;
}

static bool list_characters(hth_jinja *j, hth_jinja_text *t, hth_jinja_list *list)
{
    const char *p = hth_jinja_bytes(j, t);
    if (!p) return false;
    for (size_t at = 0, size; at < t->n; at += size) {
        hth_jinja_value c;
        size = hth_jinja_char_size(p + at, t->n - at);
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_cut(j, t, at, at + size, &c) ||
            !hth_jinja_push(j, list, &c))
            return false;
    }
    return true;
}

bool hth_jinja_items(hth_jinja *j, const hth_jinja_value *v, hth_jinja_list **out)
{
    hth_jinja_value made;
    if (v->kind == JINJA_LIST || v->kind == JINJA_TUPLE) {
        *out = v->as.list;
        return true;
    }
    if (v->kind != JINJA_DICT && v->kind != JINJA_TEXT && v->kind != JINJA_UNDEFINED)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s is nothing to loop over", hth_jinja_kind_name(v));
    if (!hth_jinja_new_list(j, JINJA_LIST, &made)) return false;
    *out = made.as.list;
    if (v->kind == JINJA_TEXT) return list_characters(j, v->as.text, *out);
    for (size_t i = 0; v->kind == JINJA_DICT && i < v->as.dict->n; i++)
        if (!hth_jinja_push(j, *out, &v->as.dict->v[i].key)) return false;
    return true;
}

/* ---- equality, order ------------------------------------------------------------------------------------ */

static bool equal_texts(hth_jinja *j, hth_jinja_text *a, hth_jinja_text *b, bool *equal)
{
    *equal = false;
    if (a->n != b->n) return true;
    const char *p = hth_jinja_bytes(j, a), *q = p ? hth_jinja_bytes(j, b) : NULL;
    if (!q || !hth_jinja_count_bytes(j, a->n)) return false;
    *equal = memcmp(p, q, a->n) == 0;
    return true;
}

static bool equal_lists(hth_jinja *j, const hth_jinja_list *a, const hth_jinja_list *b, bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++)
        if (!hth_jinja_count_steps(j, i % 16 == 15) || !hth_jinja_equal(j, &a->v[i], &b->v[i], equal)) return false;
    return true;
}

static bool equal_dicts(hth_jinja *j, const hth_jinja_dict *a, const hth_jinja_dict *b, bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++) {
        hth_jinja_pair *other;
        if (!hth_jinja_find(j, b, &a->v[i].key, &other)) return false;
        *equal = other != NULL;
        if (other && !hth_jinja_equal(j, &a->v[i].value, &other->value, equal)) return false;
    }
    return true;
}

bool hth_jinja_equal(hth_jinja *j, const hth_jinja_value *a, const hth_jinja_value *b, bool *equal)
{
    if (hth_jinja_is_number(a) && hth_jinja_is_number(b)) {
        if (a->kind == JINJA_INT && b->kind == JINJA_INT) *equal = a->as.i == b->as.i;
        else
            *equal = hth_jinja_number(a) >= hth_jinja_number(b) && hth_jinja_number(a) <= hth_jinja_number(b);
        return true;
    }
    *equal = false;
    if (a->kind != b->kind) return true;
    bool ok = true;
    switch (a->kind) {
    case JINJA_TEXT: return equal_texts(j, a->as.text, b->as.text, equal);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_enter(j)) return false;
        ok = a->kind == JINJA_DICT ? equal_dicts(j, a->as.dict, b->as.dict, equal)
                                   : equal_lists(j, a->as.list, b->as.list, equal);
        hth_jinja_leave(j);
        return ok;
    case JINJA_UNDEFINED:
    case JINJA_NONE: *equal = true; return true;
    default: *equal = a->as.dict == b->as.dict; return true; /* the same object */
    }
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static bool compare_texts(hth_jinja *j, hth_jinja_text *a, hth_jinja_text *b, bool fold, int *order)
{
    const char *p = hth_jinja_bytes(j, a), *q = p ? hth_jinja_bytes(j, b) : NULL;
    if (!q || !hth_jinja_count_bytes(j, a->n)) return false;
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        unsigned char x = (unsigned char)(fold ? lower(p[i]) : p[i]),
                      y = (unsigned char)(fold ? lower(q[i]) : q[i]);
        *order = x - y;
        if (x != y) return true;
    }
    *order = a->n < b->n ? -1 : a->n > b->n;
    return true;
}

static bool compare_lists(hth_jinja *j, const hth_jinja_list *a, const hth_jinja_list *b, bool fold,
                          int *order)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!hth_jinja_count_steps(j, i % 16 == 15) || !hth_jinja_compare(j, &a->v[i], &b->v[i], fold, order) || *order != 0)
            return j->status == HEARTH_OK;
    *order = a->n < b->n ? -1 : a->n > b->n;
    return true;
}

bool hth_jinja_compare(hth_jinja *j, const hth_jinja_value *a, const hth_jinja_value *b, bool fold,
                       int *order)
{
    if (a->kind == JINJA_INT && b->kind == JINJA_INT) {
        *order = a->as.i < b->as.i ? -1 : a->as.i > b->as.i;
        return true;
    }
    if (hth_jinja_is_number(a) && hth_jinja_is_number(b)) {
        double x = hth_jinja_number(a), y = hth_jinja_number(b);
        *order = x < y ? -1 : x > y;
        return true;
    }
    if (a->kind == JINJA_TEXT && b->kind == JINJA_TEXT)
        return compare_texts(j, a->as.text, b->as.text, fold, order);
    if (a->kind == b->kind && (a->kind == JINJA_LIST || a->kind == JINJA_TUPLE)) {
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_enter(j)) return false;
        bool ok = compare_lists(j, a->as.list, b->as.list, fold, order);
        hth_jinja_leave(j);
        return ok;
    }
    return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s and %s have no order", hth_jinja_kind_name(a),
                          hth_jinja_kind_name(b));
}

bool hth_jinja_contains(hth_jinja *j, const hth_jinja_value *item, const hth_jinja_value *container,
                        bool *found)
{
    hth_jinja_pair *at;
    *found = false;
    if (container->kind == JINJA_TEXT) {
        size_t ignored;
        if (item->kind != JINJA_TEXT)
            return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s cannot be in a text",
                                  hth_jinja_kind_name(item));
        return hth_jinja_search(j, container->as.text, item->as.text, 0, &ignored, found);
    }
    if (container->kind == JINJA_DICT || container->kind == JINJA_NAMESPACE) {
        if (!hth_jinja_find(j, container->as.dict, item, &at)) return false;
        *found = at != NULL;
        return true;
    }
    hth_jinja_list *list;
    if (!hth_jinja_items(j, container, &list) || !hth_jinja_count_steps(j, list->n / 64)) return false;
    for (size_t i = 0; i < list->n && !*found; i++)
        if (!hth_jinja_equal(j, &list->v[i], item, found)) return false;
    return true;
}
