/* A query and a document as the ids that a reranker reads (embed.h). Only the file's own template may name control tokens:
 * a document that names one cannot end its place. */
#include "base/fp_state.h"
#include "base/log.h"
#include "engine/engine.h"

#include <string.h>

enum { MAX_PLACES = 8, MAX_PARTS = 2 * MAX_PLACES + 1 };

static const char *const places[2] = {"{query}", "{document}"};

/* The first place in text from `from` on: *i says of which of the two. Returns text.n: there is none. */
static size_t find_place(hth_str text, size_t from, size_t *i)
{
    for (size_t at = from; at < text.n; at++)
        for (*i = 0; *i < 2; ++*i)
            if (hth_str_begins((hth_str){text.bytes + at, text.n - at}, places[*i])) return at;
    return text.n;
}

static hearth_status add_by_template(const hearth_model *m, hth_str text, const hth_str pair[2], hth_ids *ids,
                                     size_t *n_lost, hearth_error *err)
{
    hth_text_part parts[MAX_PARTS];
    size_t n_part = 0, n_place[2] = {0}, from = 0, i;
    for (size_t at; (at = find_place(text, from, &i)) < text.n && n_part + 2 < MAX_PARTS;
         from = at + strlen(places[i])) {
        parts[n_part++] = (hth_text_part){text.bytes + from, at - from, true};
        parts[n_part++] = (hth_text_part){pair[i].bytes, pair[i].n, false};
        n_place[i]++;
    }
    if (n_place[0] == 0 || n_place[1] == 0 || find_place(text, from, &i) < text.n)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: tokenizer.chat_template.rerank has %zu places for a {query} and %zu for a "
                        "{document}; one of each "
                        "is expected, and at most %d together",
                        hth_gguf_path(m->file), n_place[0], n_place[1], MAX_PLACES);
    parts[n_part++] = (hth_text_part){text.bytes + from, text.n - from, true};
    return hth_tokenize_parts(m->tokenizer, parts, n_part, 0, ids, n_lost, err);
}

/* [BOS] query [end] [separator] document [end]: tokens in brackets where the vocabulary adds them. */
static hearth_status add_by_vocabulary(const hearth_model *m, const hth_str pair[2], hth_ids *ids,
                                       size_t *n_lost, hearth_error *err)
{
    const hth_tokenizer *tok = m->tokenizer;
    bool adds_separator = false;
    size_t n_lost_too = 0;
    hearth_status st = hth_gguf_get_bool(m->file, "tokenizer.ggml.add_sep_token", &adds_separator, NULL, err);
    if (st != HEARTH_OK) return st;
    int32_t end = hth_tokenizer_end(tok),
            separator = adds_separator ? hth_tokenizer_special(tok, HEARTH_SPECIAL_SEPARATOR) : -1;
    if (end < 0 && separator < 0)
        return hth_fail(
            err, HEARTH_ERROR_UNSUPPORTED,
            "%s: tokenizer.chat_template.rerank is missing, and the vocabulary adds no token behind a text: "
            "nothing would stand between a query and a document",
            hth_gguf_path(m->file));
    st = hth_tokenize(tok, pair[0].bytes, pair[0].n, HEARTH_ADD_SPECIAL, ids, n_lost, err);
    if (st == HEARTH_OK && separator >= 0) st = hth_ids_push(ids, separator, err);
    if (st == HEARTH_OK) st = hth_tokenize(tok, pair[1].bytes, pair[1].n, 0, ids, &n_lost_too, err);
    if (st == HEARTH_OK && end >= 0) st = hth_ids_push(ids, end, err);
    *n_lost += n_lost_too;
    return st;
}

hearth_status hearth_tokenize_pair(const hearth_model *m, const char *query, size_t n_query,
                                   const char *document, size_t n_document, int32_t **ids, size_t *n_ids,
                                   hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!ids || !n_ids) return hth_fail_null(err, ids ? "n_ids" : "ids");
    *ids = NULL, *n_ids = 0;
    if (!m) return hth_fail_null(err, "model");
    if (!query && n_query > 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "query is NULL, but n_query is %zu", n_query);
    if (!document && n_document > 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "document is NULL, but n_document is %zu", n_document);
    hearth_status st = hth_engine_need_tokenizer(m, err);
    if (st != HEARTH_OK) return st;
    const hth_str pair[2] = {{query ? query : "", n_query}, {document ? document : "", n_document}};
    const hth_gguf_value *text = hth_gguf_find(m->file, "tokenizer.chat_template.rerank");
    hth_ids list = {0};
    size_t n_lost = 0;
    if (text && text->type == HTH_GGUF_TEXT)
        st = add_by_template(m, text->as.text, pair, &list, &n_lost, err);
    else st = add_by_vocabulary(m, pair, &list, &n_lost, err);
    if (st != HEARTH_OK) {
        hth_ids_free(&list);
        return st;
    }
    if (n_lost > 0) hth_log(HEARTH_LOG_WARN, "%zu bytes of the texts are not in the vocabulary", n_lost);
    *ids = list.id, *n_ids = list.n;
    return HEARTH_OK;
}
