/* Methods of texts, lists, dicts and of the variable `loop`. A template can access no other member of a value:
 * Python's object attributes do not exist. */
#include "chat/jinja.h"

#include <string.h>

/* ---- texts: splitting ---------------------------------------------------------------------------- */

static bool push_cut(hth_jinja *j, hth_jinja_text *t, size_t from, size_t to, hth_jinja_list *list)
{
    hth_jinja_value piece;
    return hth_jinja_count_steps(j, 1) && hth_jinja_cut(j, t, from, to, &piece) && hth_jinja_push(j, list, &piece);
}

static size_t skip_space(const char *p, size_t n, size_t at)
{
    for (size_t size; at < n && (size = hth_jinja_space_size(p + at, n - at)) > 0;) at += size;
    return at;
}

/* split() without a separator: words separated by white space. */
static bool split_words(hth_jinja *j, hth_jinja_text *t, int64_t limit, hth_jinja_list *list)
{
    const char *p = hth_jinja_bytes(j, t);
    if (!p || !hth_jinja_count_bytes(j, t->n)) return false;
    for (size_t at = skip_space(p, t->n, 0); at < t->n;) {
        size_t end = at;
        if (limit-- == 0) return push_cut(j, t, at, t->n, list);
        while (end < t->n && hth_jinja_space_size(p + end, t->n - end) == 0)
            end += hth_jinja_char_size(p + end, t->n - end);
        if (!push_cut(j, t, at, end, list)) return false;
        at = skip_space(p, t->n, end);
    }
    return true;
}

static bool split_at(hth_jinja *j, hth_jinja_text *t, hth_jinja_text *sep, int64_t limit,
                     hth_jinja_list *list)
{
    size_t at = 0, hit;
    bool found = true;
    if (sep->n == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'split' by an empty text");
    for (; limit != 0; limit--, at = hit + sep->n) {
        if (!hth_jinja_search(j, t, sep, at, &hit, &found)) return false;
        if (!found) break;
        if (!push_cut(j, t, at, hit, list)) return false;
    }
    return push_cut(j, t, at, t->n, list);
}

static JINJA_FUNCTION(method_split)
{
    hth_jinja_text *sep;
    int64_t limit;
    if (!hth_jinja_text_argument(j, &args->v[0], &sep) || !hth_jinja_int(j, &args->v[1], -1, &limit))
        return false;
    if (limit < 0) limit = -1; /* no limit: the value is counted down and must not wrap */
    if (!hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    return sep ? split_at(j, self->as.text, sep, limit, out->as.list)
               : split_words(j, self->as.text, limit, out->as.list);
}

/* As split, but a limit counts from the right: the first parts are joined again. */
static JINJA_FUNCTION(method_rsplit)
{
    hth_jinja_text *sep, *t = self->as.text;
    hth_jinja_value none[2] = {args->v[0], hth_jinja_none()};
    hth_jinja_args all = {.v = none, .n = 2};
    int64_t limit;
    if (!hth_jinja_text_argument(j, &args->v[0], &sep) || !hth_jinja_int(j, &args->v[1], -1, &limit))
        return false;
    if (!method_split(j, self, &all, out)) return false;
    hth_jinja_list *list = out->as.list;
    if (limit < 0 || (size_t)limit + 1 >= list->n) return true;
    if (!sep) return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'rsplit' at white space with a limit");
    size_t n_front = list->n - (size_t)limit, end = (n_front - 1) * sep->n;
    for (size_t i = 0; i < n_front; i++) end += list->v[i].as.text->n;
    if (!hth_jinja_cut(j, t, 0, end, &list->v[0])) return false;
    memmove(list->v + 1, list->v + n_front, (size_t)limit * sizeof *list->v);
    list->n = (size_t)limit + 1;
    return true;
}

static JINJA_FUNCTION(method_splitlines)
{
    hth_jinja_text *t = self->as.text;
    const char *p = hth_jinja_bytes(j, t);
    bool keep = hth_jinja_is_true(&args->v[0]);
    if (!p || !hth_jinja_count_bytes(j, t->n) || !hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    for (size_t at = 0; at < t->n;) {
        size_t end = at;
        while (end < t->n && p[end] != '\n' && p[end] != '\r') end++;
        size_t next = end + (end < t->n) + (end + 1 < t->n && p[end] == '\r' && p[end + 1] == '\n');
        if (!push_cut(j, t, at, keep ? next : end, out->as.list)) return false;
        at = next;
    }
    return true;
}

/* (before, sep, after) */
static JINJA_FUNCTION(method_partition)
{
    hth_jinja_text *t = self->as.text, *sep;
    size_t hit;
    bool found;
    if (!hth_jinja_text_argument(j, &args->v[0], &sep)) return false;
    if (!sep || sep->n == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'partition' by an empty text");
    if (!hth_jinja_search(j, t, sep, 0, &hit, &found) || !hth_jinja_new_list(j, JINJA_TUPLE, out))
        return false;
    size_t end = found ? hit + sep->n : t->n;
    return push_cut(j, t, 0, hit, out->as.list) && push_cut(j, t, hit, end, out->as.list) &&
           push_cut(j, t, end, t->n, out->as.list);
}

static bool strip(hth_jinja *j, const hth_jinja_value *self, const hth_jinja_args *args, int sides,
                  hth_jinja_value *out)
{
    hth_jinja_text *set;
    return hth_jinja_text_argument(j, &args->v[0], &set) &&
           hth_jinja_strip(j, self->as.text, set, sides, out);
}

static JINJA_FUNCTION(method_strip) { return strip(j, self, args, 3, out); }
static JINJA_FUNCTION(method_lstrip) { return strip(j, self, args, 1, out); }
static JINJA_FUNCTION(method_rstrip) { return strip(j, self, args, 2, out); }

/* ---- texts: tests and searches ------------------------------------------------------------------------ */

static bool has_end(hth_jinja *j, hth_jinja_text *t, const hth_jinja_value *word, bool at_start, bool *is)
{
    *is = false;
    if (word->kind != JINJA_TEXT)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "expected a text, not %s", hth_jinja_kind_name(word));
    size_t n = word->as.text->n;
    const char *p = hth_jinja_bytes(j, t), *w = p ? hth_jinja_bytes(j, word->as.text) : NULL;
    if (!w) return false;
    *is = n <= t->n && memcmp(at_start ? p : p + (t->n - n), w, n) == 0;
    return hth_jinja_count_bytes(j, n);
}

/* One text, or a tuple of them. */
static bool has_any_end(hth_jinja *j, const hth_jinja_value *self, const hth_jinja_value *words,
                        bool at_start, hth_jinja_value *out)
{
    bool is = false;
    if (words->kind == JINJA_TUPLE) {
        for (size_t i = 0; i < words->as.list->n && !is; i++)
            if (!hth_jinja_count_steps(j, 1) || !has_end(j, self->as.text, &words->as.list->v[i], at_start, &is))
                return false;
    } else if (!has_end(j, self->as.text, words, at_start, &is)) {
        return false;
    }
    *out = hth_jinja_bool(is);
    return true;
}

static JINJA_FUNCTION(method_startswith) { return has_any_end(j, self, &args->v[0], true, out); }
static JINJA_FUNCTION(method_endswith) { return has_any_end(j, self, &args->v[0], false, out); }

static bool remove_end(hth_jinja *j, const hth_jinja_value *self, const hth_jinja_args *args, bool at_start,
                       hth_jinja_value *out)
{
    bool is;
    hth_jinja_text *t = self->as.text;
    if (!has_end(j, t, &args->v[0], at_start, &is)) return false;
    size_t n = is ? args->v[0].as.text->n : 0;
    return hth_jinja_cut(j, t, at_start ? n : 0, at_start ? t->n : t->n - n, out);
}

static JINJA_FUNCTION(method_removeprefix) { return remove_end(j, self, args, true, out); }
static JINJA_FUNCTION(method_removesuffix) { return remove_end(j, self, args, false, out); }

/* Position in characters, or -1 if absent. */
static JINJA_FUNCTION(method_find)
{
    hth_jinja_text *t = self->as.text, *word;
    size_t hit;
    bool found;
    if (!hth_jinja_text_argument(j, &args->v[0], &word)) return false;
    if (!word)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "expected a text, not %s",
                              hth_jinja_kind_name(&args->v[0]));
    const char *p = hth_jinja_bytes(j, t);
    if (!p || !hth_jinja_search(j, t, word, 0, &hit, &found)) return false;
    *out = hth_jinja_integer(found ? (int64_t)hth_jinja_n_char(p, hit) : -1);
    return true;
}

static JINJA_FUNCTION(method_index_of_text)
{
    if (!method_find(j, self, args, out)) return false;
    return out->as.i >= 0 || hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'index': the text is not there");
}

static JINJA_FUNCTION(method_count_text)
{
    hth_jinja_text *t = self->as.text, *word;
    size_t at = 0, hit;
    int64_t n = 0;
    bool found = true;
    if (!hth_jinja_text_argument(j, &args->v[0], &word)) return false;
    if (!word || word->n == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'count' of an empty text");
    for (; found; at = hit + word->n) {
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_search(j, t, word, at, &hit, &found)) return false;
        if (!found) break;
        n++;
    }
    *out = hth_jinja_integer(n);
    return true;
}

/* True if the text is not empty and all characters are in the class. Non-ASCII bytes count as letters. */
static bool all_are(hth_jinja *j, const hth_jinja_value *self, bool (*is)(unsigned char c),
                    hth_jinja_value *out)
{
    hth_jinja_text *t = self->as.text;
    const char *p = hth_jinja_bytes(j, t);
    bool all = t->n > 0;
    if (!p || !hth_jinja_count_bytes(j, t->n)) return false;
    for (size_t i = 0; i < t->n && all; i++) all = is((unsigned char)p[i]);
    *out = hth_jinja_bool(all);
    return true;
}

static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }
static bool is_alpha(unsigned char c) { return c >= 0x80 || ((c | 32) >= 'a' && (c | 32) <= 'z'); }
static bool is_alnum(unsigned char c) { return is_digit(c) || is_alpha(c); }

static JINJA_FUNCTION(method_isdigit) { return all_are(j, self, is_digit, out); }
static JINJA_FUNCTION(method_isalpha) { return all_are(j, self, is_alpha, out); }
static JINJA_FUNCTION(method_isalnum) { return all_are(j, self, is_alnum, out); }

static JINJA_FUNCTION(method_isspace)
{
    const char *p = hth_jinja_bytes(j, self->as.text);
    size_t n = self->as.text->n;
    if (!p || !hth_jinja_count_bytes(j, n)) return false;
    *out = hth_jinja_bool(n > 0 && skip_space(p, n, 0) == n);
    return true;
}

static JINJA_FUNCTION(method_join)
{
    hth_jinja_strbuf b = {0};
    hth_jinja_list *list;
    if (!hth_jinja_items(j, &args->v[0], &list)) return false;
    for (size_t i = 0; i < list->n; i++) {
        if (list->v[i].kind != JINJA_TEXT)
            return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'join' of %s", hth_jinja_kind_name(&list->v[i]));
        if (!hth_jinja_count_steps(j, 1) || (i > 0 && !hth_jinja_strbuf_text(j, &b, self->as.text)) ||
            !hth_jinja_strbuf_text(j, &b, list->v[i].as.text))
            return false;
    }
    return hth_jinja_strbuf_value(j, &b, out);
}

static const hth_jinja_function text_methods[] = {
    {"capitalize", hth_jinja_capitalize, "", 0},
    {"count", method_count_text, "sub", 1},
    {"endswith", method_endswith, "suffix", 1},
    {"find", method_find, "sub", 1},
    {"format", hth_jinja_str_format, NULL, 0},
    {"index", method_index_of_text, "sub", 1},
    {"isalnum", method_isalnum, "", 0},
    {"isalpha", method_isalpha, "", 0},
    {"isdigit", method_isdigit, "", 0},
    {"islower", hth_jinja_is_lower, "", 0},
    {"isspace", method_isspace, "", 0},
    {"isupper", hth_jinja_is_upper, "", 0},
    {"join", method_join, "iterable", 1},
    {"lower", hth_jinja_lower, "", 0},
    {"lstrip", method_lstrip, "chars", 0},
    {"partition", method_partition, "sep", 1},
    {"removeprefix", method_removeprefix, "prefix", 1},
    {"removesuffix", method_removesuffix, "suffix", 1},
    {"replace", hth_jinja_replace, "old new count", 2},
    {"rsplit", method_rsplit, "sep maxsplit", 0},
    {"rstrip", method_rstrip, "chars", 0},
    {"split", method_split, "sep maxsplit", 0},
    {"splitlines", method_splitlines, "keepends", 0},
    {"startswith", method_startswith, "prefix", 1},
    {"strip", method_strip, "chars", 0},
    {"title", hth_jinja_title, "", 0},
    {"upper", hth_jinja_upper, "", 0},
    {NULL, NULL, NULL, 0},
};

/* ---- lists ------------------------------------------------------------------------------------------- */

static JINJA_FUNCTION(method_append)
{
    *out = hth_jinja_none();
    return hth_jinja_push(j, self->as.list, &args->v[0]);
}

static JINJA_FUNCTION(method_extend)
{
    hth_jinja_list *more;
    *out = hth_jinja_none();
    if (!hth_jinja_items(j, &args->v[0], &more)) return false;
    for (size_t i = 0, n = more->n; i < n; i++)
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_push(j, self->as.list, &more->v[i])) return false;
    return true;
}

/* The index of item i of n. False, with an error, if there is none. */
static bool index_of(hth_jinja *j, const hth_jinja_value *v, size_t n, int64_t fallback, size_t *at)
{
    int64_t i;
    if (!hth_jinja_int(j, v, fallback, &i)) return false;
    if (i < 0) i += (int64_t)n;
    if (i < 0 || i >= (int64_t)n)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'pop': the list has no such item");
    *at = (size_t)i;
    return true;
}

static JINJA_FUNCTION(method_pop_item)
{
    hth_jinja_list *list = self->as.list;
    size_t at = 0;
    if (!index_of(j, &args->v[0], list->n, -1, &at) || !hth_jinja_count_steps(j, list->n / 64)) return false;
    *out = list->v[at];
    list->n--;
    memmove(list->v + at, list->v + at + 1, (list->n - at) * sizeof *list->v);
    return true;
}

static JINJA_FUNCTION(method_insert)
{
    hth_jinja_list *list = self->as.list;
    int64_t i, n = (int64_t)list->n;
    *out = hth_jinja_none();
    if (!hth_jinja_int(j, &args->v[0], 0, &i) || !hth_jinja_push(j, list, &args->v[1]) ||
        !hth_jinja_count_steps(j, list->n / 64))
        return false;
    i = i < -n ? 0 : i < 0 ? i + n : i > n ? n : i;
    memmove(list->v + i + 1, list->v + i, (size_t)(n - i) * sizeof *list->v);
    list->v[i] = args->v[1];
    return true;
}

static bool count_equal(hth_jinja *j, const hth_jinja_list *list, const hth_jinja_value *v, size_t *n,
                        size_t *first)
{
    *n = 0;
    *first = list->n;
    if (!hth_jinja_count_steps(j, list->n / 64)) return false;
    for (size_t i = 0; i < list->n; i++) {
        bool equal;
        if (!hth_jinja_equal(j, &list->v[i], v, &equal)) return false;
        if (equal && (*n)++ == 0) *first = i;
    }
    return true;
}

static JINJA_FUNCTION(method_index_of_item)
{
    size_t n, first;
    if (!count_equal(j, self->as.list, &args->v[0], &n, &first)) return false;
    if (n == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'index': the item is not there");
    *out = hth_jinja_integer((int64_t)first);
    return true;
}

static JINJA_FUNCTION(method_count_items)
{
    size_t n, first;
    if (!count_equal(j, self->as.list, &args->v[0], &n, &first)) return false;
    *out = hth_jinja_integer((int64_t)n);
    return true;
}

static const hth_jinja_function list_methods[] = {
    {"append", method_append, "object", 1},
    {"count", method_count_items, "value", 1},
    {"extend", method_extend, "iterable", 1},
    {"index", method_index_of_item, "value", 1},
    {"insert", method_insert, "index object", 2},
    {"pop", method_pop_item, "index", 0},
    {NULL, NULL, NULL, 0},
};

static const hth_jinja_function tuple_methods[] = {
    {"count", method_count_items, "value", 1},
    {"index", method_index_of_item, "value", 1},
    {NULL, NULL, NULL, 0},
};

/* ---- dicts --------------------------------------------------------------------------------------------- */

static JINJA_FUNCTION(method_get)
{
    hth_jinja_pair *at;
    if (!hth_jinja_find(j, self->as.dict, &args->v[0], &at)) return false;
    *out = at ? at->value : args->v[1].kind == JINJA_MISSING ? hth_jinja_none() : args->v[1];
    return true;
}

static JINJA_FUNCTION(method_items) { return hth_jinja_dict_items(j, self->as.dict, out); }

static JINJA_FUNCTION(method_keys)
{
    hth_jinja_list *keys;
    if (!hth_jinja_items(j, self, &keys)) return false;
    *out = (hth_jinja_value){JINJA_LIST, {.list = keys}};
    return true;
}

static JINJA_FUNCTION(method_values)
{
    if (!hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    for (size_t i = 0; i < self->as.dict->n; i++)
        if (!hth_jinja_push(j, out->as.list, &self->as.dict->v[i].value)) return false;
    return true;
}

static JINJA_FUNCTION(method_pop_key)
{
    hth_jinja_dict *dict = self->as.dict;
    hth_jinja_pair *at;
    if (!hth_jinja_find(j, dict, &args->v[0], &at)) return false;
    *out = at ? at->value : args->v[1];
    if (!at)
        return out->kind != JINJA_MISSING ||
               hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'pop': the key is not there");
    dict->n--;
    memmove(at, at + 1, (size_t)(dict->v + dict->n - at) * sizeof *at);
    return true;
}

static bool put_all(hth_jinja *j, hth_jinja_dict *dict, const hth_jinja_dict *more)
{
    for (size_t i = 0; i < more->n; i++)
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_put(j, dict, &more->v[i].key, &more->v[i].value))
            return false;
    return true;
}

static JINJA_FUNCTION(method_update)
{
    *out = hth_jinja_none();
    if (args->n > 1 || (args->n == 1 && args->v[0].kind != JINJA_DICT))
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'update' takes a dict");
    if (args->n == 1 && args->v[0].as.dict != self->as.dict && !put_all(j, self->as.dict, args->v[0].as.dict))
        return false;
    return put_all(j, self->as.dict, &args->named);
}

static JINJA_FUNCTION(method_setdefault)
{
    if (!method_get(j, self, args, out)) return false;
    hth_jinja_pair *at = NULL;
    return hth_jinja_find(j, self->as.dict, &args->v[0], &at) &&
           (at || hth_jinja_put(j, self->as.dict, &args->v[0], out));
}

static JINJA_FUNCTION(method_copy)
{
    return hth_jinja_new_dict(j, JINJA_DICT, out) && put_all(j, out->as.dict, self->as.dict);
}

static const hth_jinja_function dict_methods[] = {
    {"copy", method_copy, "", 0},
    {"get", method_get, "key default", 1},
    {"items", method_items, "", 0},
    {"keys", method_keys, "", 0},
    {"pop", method_pop_key, "key default", 1},
    {"setdefault", method_setdefault, "key default", 1},
    {"update", method_update, NULL, 0},
    {"values", method_values, "", 0},
    {NULL, NULL, NULL, 0},
};

/* ---- the variable loop ----------------------------------------------------------------------------------- */

static JINJA_FUNCTION(method_cycle)
{
    if (args->n == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'cycle' of nothing");
    *out = args->v[self->as.loop->i % args->n];
    return true;
}

static JINJA_FUNCTION(method_changed)
{
    hth_jinja_loop *loop = self->as.loop;
    hth_jinja_value now;
    bool same = false;
    if (!hth_jinja_new_list(j, JINJA_TUPLE, &now)) return false;
    for (size_t i = 0; i < args->n; i++)
        if (!hth_jinja_push(j, now.as.list, &args->v[i])) return false;
    if (loop->changed.kind != JINJA_MISSING && !hth_jinja_equal(j, &loop->changed, &now, &same)) return false;
    loop->changed = now;
    *out = hth_jinja_bool(!same);
    return true;
}

static const hth_jinja_function loop_methods[] = {
    {"changed", method_changed, NULL, 0},
    {"cycle", method_cycle, NULL, 0},
    {NULL, NULL, NULL, 0},
};

const hth_jinja_function *hth_jinja_method(const hth_jinja_value *v, hth_str name)
{
    switch (v->kind) {
    case JINJA_TEXT: return hth_jinja_find_function(text_methods, name);
    case JINJA_LIST: return hth_jinja_find_function(list_methods, name);
    case JINJA_TUPLE: return hth_jinja_find_function(tuple_methods, name);
    case JINJA_DICT: return hth_jinja_find_function(dict_methods, name);
    case JINJA_LOOP: return hth_jinja_find_function(loop_methods, name);
    default: return NULL;
    }
}
