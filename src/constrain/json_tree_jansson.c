/* Reads JSON by jansson, the only file of the library that calls it: its parser, then a copy of its tree in an arena,
 * made without recursion. */
#include "constrain/json_tree.h"

#include <jansson.h>
#include <string.h>

/* A bound for the stack of jansson's parser, which calls itself for each level. */
static bool is_deep(const char *text, size_t n)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string && c == '\\') i++;
        else if (c == '"') in_string = !in_string;
        else if (!in_string && (c == '{' || c == '[') && ++depth > HTH_JSON_MAX_DEPTH) return true;
        else if (!in_string && (c == '}' || c == ']') && depth > 0) depth--;
    }
    return false;
}

static hth_str keep(hth_arena *arena, const char *text, size_t n)
{
    return (hth_str){hth_arena_strndup(arena, text, n), n};
}

/* The fewest digits that give the same number again; jansson writes numbers in any locale with a point. */
static hth_str shortest(hth_arena *arena, const json_t *number)
{
    char text[64];
    size_t n = 0;
    for (size_t digits = 1; digits <= 17; digits++) {
        n = json_dumpb(number, text, sizeof text, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *again = n <= sizeof text ? json_loadb(text, n, JSON_DECODE_ANY, NULL) : NULL;
        double same = again ? json_real_value(again) : 0.0, wanted = json_real_value(number);
        json_decref(again);
        if (memcmp(&same, &wanted, sizeof same) == 0) break;
    }
    return keep(arena, text, n <= sizeof text ? n : 0);
}

static hth_json *new_value(hth_arena *arena, const json_t *from, hth_json *parent, uint32_t index)
{
    static const hth_json_kind kinds[] = {
        [JSON_OBJECT] = HTH_JSON_OBJECT,   [JSON_ARRAY] = HTH_JSON_ARRAY, [JSON_STRING] = HTH_JSON_TEXT,
        [JSON_INTEGER] = HTH_JSON_INTEGER, [JSON_REAL] = HTH_JSON_REAL,   [JSON_TRUE] = HTH_JSON_TRUE,
        [JSON_FALSE] = HTH_JSON_FALSE,     [JSON_NULL] = HTH_JSON_NULL};
    hth_json *v = hth_arena_alloc(arena, 1, sizeof *v, 16);
    if (!v) return NULL;
    *v = (hth_json){.kind = kinds[json_typeof(from)], .parent = parent, .index = index};
    if (v->kind == HTH_JSON_TEXT) v->text = keep(arena, json_string_value(from), json_string_length(from));
    if (v->kind == HTH_JSON_INTEGER) v->integer = json_integer_value(from);
    if (v->kind == HTH_JSON_REAL) v->text = shortest(arena, from);
    if (v->kind == HTH_JSON_INTEGER || v->kind == HTH_JSON_REAL) v->real = json_number_value(from);
    return v;
}

/* A list or object that is being copied. */
typedef struct level {
    json_t *from;
    void *iter; /* of an object */
    size_t i;
    hth_json *to, *last;
} level;

/* The next value of a level; NULL: it was the last one. */
static json_t *next_value(level *l)
{
    if (json_is_array(l->from)) return json_array_get(l->from, l->i);
    if (l->i > 0) l->iter = json_object_iter_next(l->from, l->iter);
    else l->iter = json_object_iter(l->from);
    return json_object_iter_value(l->iter);
}

static hth_json *copy(hth_arena *arena, json_t *document)
{
    level levels[HTH_JSON_MAX_DEPTH + 1] = {{0}};
    size_t n = 0;
    hth_json *root = new_value(arena, document, NULL, 0);
    if (json_is_array(document) || json_is_object(document))
        levels[n++] = (level){.from = document, .to = root};
    while (n > 0 && !arena->failed) {
        level *l = &levels[n - 1];
        json_t *from = next_value(l);
        if (!from) {
            n--;
            continue;
        }
        hth_json *v = new_value(arena, from, l->to, (uint32_t)l->i++);
        if (!v) break;
        if (l->iter)
            v->key = keep(arena, json_object_iter_key(l->iter), strlen(json_object_iter_key(l->iter)));
        if (l->last) l->last->next = v;
        else l->to->child = v;
        l->last = v;
        l->to->n++;
        if (json_is_array(from) || json_is_object(from)) levels[n++] = (level){.from = from, .to = v};
    }
    return root;
}

bool hth_json_is_read(void) { return true; }

hearth_status hth_json_read(hth_arena *arena, const char *text, size_t n, hth_json **out, hearth_error *err)
{
    json_error_t why;
    *out = NULL;
    if (is_deep(text, n))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "it is nested more than %d levels deep",
                        HTH_JSON_MAX_DEPTH);
    json_t *document = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!document)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "line %d column %d: no JSON: %s", why.line, why.column,
                        why.text);
    *out = copy(arena, document);
    json_decref(document);
    return arena->failed ? hth_fail_memory(err, n, "a JSON document") : HEARTH_OK;
}
