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

static bool add_ids(fields *f, const served_model *served, const char *name, const json_in *array,
                    prompt_list *out)
{
    uint32_t n_vocab = served->info.n_vocab;
    size_t n = json_in_count(array);
    int32_t *ids = hth_alloc(n, sizeof *ids);
    if (!ids) return fields_no_memory(f);
    for (size_t i = 0; i < n; i++) {
        const json_in *v = json_in_at(array, i);
        int64_t id = json_in_kind_of(v) == JSON_IN_INTEGER ? json_in_integer(v) : -1;
        if (id < 0 || id >= (int64_t)n_vocab) {
            hearth_free(ids);
            return fields_fail(f, name, "[%zu] is no id from 0 to %u", i, n_vocab - 1);
        }
        ids[i] = (int32_t)id;
    }
    return prompt_list_add(out, ids, n, NULL, 0) || fields_no_memory(f);
}

static bool add_text(fields *f, const served_model *served, const json_in *value, prompt_list *out)
{
    hearth_error err;
    int32_t *ids;
    size_t n_text, n;
    const char *text = json_in_bytes(value, &n_text);
    if (hearth_tokenize(served->model, text, n_text, HEARTH_ADD_SPECIAL, &ids, &n, &err) == HEARTH_OK)
        return prompt_list_add(out, ids, n, text, n_text) || fields_no_memory(f);
    problem_of_error(f->problem, &err);
    return false;
}

bool prompts_read(fields *f, const served_model *served, const char *name, size_t most, prompt_list *out)
{
    const json_in *v = fields_value(f, name);
    json_in_kind kind = json_in_kind_of(v), first = json_in_kind_of(json_in_at(v, 0));
    size_t n = json_in_count(v);
    if (!fields_ok(f)) return false;
    if (kind == JSON_IN_TEXT) return add_text(f, served, v, out);
    if (kind != JSON_IN_ARRAY || n == 0)
        return fields_fail(f, name, "a text, an array of ids, or an array of one of them is expected");
    if (first != JSON_IN_TEXT && first != JSON_IN_ARRAY) return add_ids(f, served, name, v, out);
    if (n > most) return fields_fail(f, name, "%zu texts; at most %zu are taken", n, most);
    for (size_t i = 0; i < n; i++) {
        const json_in *one = json_in_at(v, i);
        bool is_text = json_in_kind_of(one) == JSON_IN_TEXT, is_ids = json_in_count(one) > 0;
        if (!is_text && !is_ids)
            return fields_fail(f, name, "[%zu]: a text or an array of ids is expected", i);
        if (!(is_text ? add_text(f, served, one, out) : add_ids(f, served, name, one, out))) return false;
    }
    return true;
}
