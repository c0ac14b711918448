/* Reads prompts and tokenizes them. */
#include "serve/api/prompts.h"

#include "base/alloc.h"

#include <stdlib.h>

bool prompt_list_add(prompt_list *l, int32_t *ids, size_t n, const char *text, size_t n_text)
{
    prompt *more = realloc(l->at, (l->n + 1) * sizeof *more);
    if (!more) {
        hearth_free(ids);
        return false;
    }
    l->at = more;
    l->at[l->n++] = (prompt){ids, n, text, n_text};
    return true;
}

void prompt_list_free(prompt_list *l)
{
    for (size_t i = 0; i < l->n; i++) hearth_free(l->at[i].ids);
    free(l->at);
    *l = (prompt_list){0};
}

static bool add_ids(fields *f, const served_model *served, const char *name, const hth_json *array,
                    prompt_list *out)
{
    uint32_t n_vocab = served->info.n_vocab;
    size_t n = hth_json_count(array);
    int32_t *ids = hth_alloc(n, sizeof *ids);
    if (!ids) return fields_no_memory(f);
    for (const hth_json *v = hth_json_first(array); v; v = v->next) {
        bool is_id = v->kind == HTH_JSON_INTEGER && v->integer >= 0 && v->integer < (int64_t)n_vocab;
        if (!is_id) {
            hearth_free(ids);
            if (v->kind != HTH_JSON_INTEGER) return fields_fail(f, name, "[%u]: an id is expected, not %s", v->index, json_kind_words(v->kind));
            return fields_fail(f, name, "[%u]: the vocabulary has the ids 0 to %u, not %lld", v->index, n_vocab - 1, (long long)v->integer);
        }
        ids[v->index] = (int32_t)v->integer;
    }
    return prompt_list_add(out, ids, n, NULL, 0) || fields_no_memory(f);
}

static bool add_text(fields *f, const served_model *served, const hth_json *value, unsigned flags, prompt_list *out)
{
    hearth_error err;
    int32_t *ids;
    size_t n_text = value->text.n, n;
    const char *text = value->text.bytes;
    if (hearth_tokenize(served->model, text, n_text, flags, &ids, &n, &err) == HEARTH_OK)
        return prompt_list_add(out, ids, n, text, n_text) || fields_no_memory(f);
    problem_of_error(f->problem, &err);
    return false;
}

bool prompts_read(fields *f, const served_model *served, const char *name, size_t most, prompt_list *out)
{
    const hth_json *v = fields_value(f, name);
    hth_json_kind kind = hth_json_kind_of(v), first = hth_json_kind_of(hth_json_first(v));
    size_t n = hth_json_count(v);
    bool parses = true;
    if (!fields_bool(f, "parse_special", &parses)) return false;
    unsigned flags = HEARTH_ADD_SPECIAL | (parses ? (unsigned)HEARTH_PARSE_SPECIAL : 0u);
    if (kind == HTH_JSON_TEXT) return add_text(f, served, v, flags, out);
    if (kind != HTH_JSON_ARRAY || n == 0)
        return fields_fail(f, name, "a text, an array of ids, or an array of one of them is expected");
    if (first != HTH_JSON_TEXT && first != HTH_JSON_ARRAY) return add_ids(f, served, name, v, out);
    if (n > most) return fields_fail(f, name, "%zu texts; at most %zu are taken", n, most);
    for (const hth_json *one = hth_json_first(v); one; one = one->next) {
        bool is_text = one->kind == HTH_JSON_TEXT, is_ids = one->kind == HTH_JSON_ARRAY && one->n > 0;
        if (!is_text && !is_ids)
            return fields_fail(f, name, "[%u]: a text or an array of ids is expected", one->index);
        if (!(is_text ? add_text(f, served, one, flags, out) : add_ids(f, served, name, one, out))) return false;
    }
    return true;
}
