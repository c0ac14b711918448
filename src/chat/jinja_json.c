/* JSON to values, for from_json and for variables from the caller. Texts inside are never template text. */
#include "chat/jinja.h"

#include "text/json.h"

#include <string.h>

/* Numbers are those of Python: 8.0 is a float, and whole numbers have no end. */
static bool number_of(hth_jinja *j, const hth_json *v, hth_jinja_value *out)
{
    bool is_float = memchr(v->text.bytes, '.', v->text.n) || memchr(v->text.bytes, 'e', v->text.n) ||
                    memchr(v->text.bytes, 'E', v->text.n);
    *out = is_float ? hth_jinja_float(v->real) : hth_jinja_integer(v->integer);
    if (is_float ? v->real - v->real == 0.0 : v->kind == HTH_JSON_INTEGER) return true;
    char *digits = hth_jinja_alloc(j, v->text.n + 1, 1);
    if (digits) *out = (hth_jinja_value){JINJA_DIGITS, {.digits = memcpy(digits, v->text.bytes, v->text.n)}};
    return digits != NULL;
}

static bool list_of(hth_jinja *j, const hth_json *array, hth_jinja_value *out)
{
    hth_jinja_value item;
    if (!hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    for (const hth_json *v = array->child; v; v = v->next)
        if (!hth_jinja_from_tree(j, v, &item) || !hth_jinja_push(j, out->as.list, &item)) return false;
    return true;
}

static bool dict_of(hth_jinja *j, const hth_json *object, hth_jinja_value *out)
{
    hth_jinja_value key, item;
    if (!hth_jinja_new_dict(j, JINJA_DICT, out)) return false;
    for (const hth_json *v = object->child; v; v = v->next)
        if (!hth_jinja_text_of(j, v->key.bytes, v->key.n, false, &key) || !hth_jinja_from_tree(j, v, &item) ||
            !hth_jinja_put(j, out->as.dict, &key, &item))
            return false;
    return true;
}

/* Calls itself for each level, of which hth_json_read has few. */
bool hth_jinja_from_tree(hth_jinja *j, const hth_json *v, hth_jinja_value *out)
{
    if (!hth_jinja_count_steps(j, 1)) return false;
    switch (v->kind) {
    case HTH_JSON_BOOL: *out = hth_jinja_bool(v->integer); return true;
    case HTH_JSON_INTEGER:
    case HTH_JSON_REAL: return number_of(j, v, out);
    case HTH_JSON_TEXT: return hth_jinja_text_of(j, v->text.bytes, v->text.n, false, out);
    case HTH_JSON_ARRAY: return list_of(j, v, out);
    case HTH_JSON_OBJECT: return dict_of(j, v, out);
    default: *out = hth_jinja_none(); return true;
    }
}

bool hth_jinja_from_json(hth_jinja *j, const char *p, size_t n, hth_jinja_value *out)
{
    static const hth_json_limits limits = {.max_bytes = HTH_TEMPLATE_MAX_MEMORY};
    hth_json *v;
    hearth_error why;
    if (!hth_jinja_count_bytes(j, n)) return false;
    hearth_status st = hth_json_read(j->arena, p, n, &limits, &v, &why);
    return st == HEARTH_OK ? hth_jinja_from_tree(j, v, out) : hth_jinja_fail(j, st, "%s", why.message);
}
