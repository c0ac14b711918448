/* Reads prompts and tokenizes them. */
#include "serve/api/prompts.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

bool prompt_list_add(prompt_list *l, int32_t *ids, size_t n, const char *text, size_t n_text)
{
    prompt *more = realloc(l->at, (l->n + 1) * sizeof *more);
    if (!more) {
        hearth_free(ids);
        return false;
    }
    l->at = more;
    l->at[l->n++] = (prompt){.ids = ids, .n = n, .text = text, .n_text = n_text};
    return true;
}

void prompt_list_free(prompt_list *l)
{
    for (size_t i = 0; i < l->n; i++) hearth_free(l->at[i].ids);
    free(l->at);
    *l = (prompt_list){0};
}

/* The text of a prompt that is one, or llama.cpp's {"prompt_string": TEXT}. NULL: it is none. */
static const hth_str *text_of(const hth_json *v)
{
    const hth_json *media = hth_json_member(v, "multimodal_data"),
                   *text = v->kind == HTH_JSON_OBJECT ? hth_json_member(v, "prompt_string") : v;
    bool has_media = media && (media->kind != HTH_JSON_ARRAY || media->n > 0);
    return !has_media && hth_json_kind_of(text) == HTH_JSON_TEXT ? &text->text : NULL;
}

bool prompt_append(fields *f, prompt *to, const int32_t *ids, size_t n)
{
    if (to->n + n > to->capacity) {
        size_t wanted = 2 * to->capacity > to->n + n ? 2 * to->capacity : to->n + n;
        int32_t *longer = hth_realloc(to->ids, wanted, sizeof *longer);
        if (!longer) return fields_no_memory(f);
        to->ids = longer, to->capacity = wanted;
    }
    if (n > 0) memcpy(to->ids + to->n, ids, n * sizeof *ids);
    to->n += n;
    return true;
}

bool prompt_append_text(fields *f, const served_model *served, const char *text, size_t n_text, unsigned flags, prompt *to)
{
    hearth_error err;
    int32_t *ids;
    size_t n;
    if (hearth_tokenize(served->model, text, n_text, flags, &ids, &n, &err) != HEARTH_OK) {
        problem_of_error(f->problem, &err);
        return false;
    }
    bool ok = prompt_append(f, to, ids, n);
    hearth_free(ids);
    return ok;
}

static bool append_id(fields *f, const served_model *served, const char *name, const hth_json *v, prompt *to)
{
    uint32_t n_vocab = served->info.n_vocab;
    if (v->kind != HTH_JSON_INTEGER) return fields_fail(f, name, "[%u]: an id is expected, not %s", v->index, json_kind_words(v->kind));
    if (v->integer < 0 || v->integer >= (int64_t)n_vocab)
        return fields_fail(f, name, "[%u]: the vocabulary has the ids 0 to %u, not %lld", v->index, n_vocab - 1, (long long)v->integer);
    return prompt_append(f, to, &(int32_t){(int32_t)v->integer}, 1);
}

/* A text, or an array of ids, among which texts may be: only one that begins it has the tokens at the ends of texts. */
static bool add_one(fields *f, const served_model *served, const char *name, const hth_json *v, unsigned flags,
                    prompt_list *out)
{
    const hth_str *text = text_of(v);
    prompt made = {.text = text ? text->bytes : NULL, .n_text = text ? text->n : 0};
    bool ok = !text || prompt_append_text(f, served, text->bytes, text->n, flags, &made);
    for (const hth_json *one = text ? NULL : hth_json_first(v); ok && one; one = one->next) {
        unsigned within = one->index == 0 ? flags : flags & ~(unsigned)HEARTH_ADD_SPECIAL;
        ok = one->kind == HTH_JSON_TEXT ? prompt_append_text(f, served, one->text.bytes, one->text.n, within, &made)
                                        : append_id(f, served, name, one, &made);
    }
    if (ok) return prompt_list_add(out, made.ids, made.n, made.text, made.n_text) || fields_no_memory(f);
    hearth_free(made.ids);
    return false;
}

/* An array of prompts; false: of ids. */
static bool is_list(const hth_json *v)
{
    bool has_prompt = true;
    for (v = hth_json_first(v); v; v = v->next) has_prompt &= v->kind == HTH_JSON_ARRAY || v->kind == HTH_JSON_TEXT || v->kind == HTH_JSON_OBJECT;
    return has_prompt;
}

bool prompts_read(fields *f, const served_model *served, const char *name, size_t most, prompt_list *out)
{
    const hth_json *v = fields_value(f, name);
    hth_json_kind kind = hth_json_kind_of(v);
    size_t n = hth_json_count(v);
    bool parses = true;
    if (!fields_bool(f, "parse_special", &parses)) return false;
    unsigned flags = HEARTH_ADD_SPECIAL | (parses ? (unsigned)HEARTH_PARSE_SPECIAL : 0u);
    if (v && text_of(v)) return add_one(f, served, name, v, flags, out);
    if (kind != HTH_JSON_ARRAY || n == 0)
        return fields_fail(f, name, "a text, an array of ids, or an array of one of them is expected");
    if (!is_list(v)) return add_one(f, served, name, v, flags, out);
    if (n > most) return fields_fail(f, name, "%zu texts; at most %zu are taken", n, most);
    for (const hth_json *one = hth_json_first(v); one; one = one->next) {
        if (!text_of(one) && (one->kind != HTH_JSON_ARRAY || one->n == 0))
            return fields_fail(f, name, "[%u]: a text or an array of ids is expected", one->index);
        if (!add_one(f, served, name, one, flags, out)) return false;
    }
    return true;
}
