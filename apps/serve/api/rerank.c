/* POST /v1/rerank: documents by their scores for a query, in Jina's form; with `texts` in the form of Hugging Face's TEI. */
#define _GNU_SOURCE
#include "serve/api/embedding.h"

#include <stdlib.h>
#include <string.h>

typedef struct rerank {
    embedding base;
    size_t top_n;
    bool with_texts; /* the document of the call is kept for them */
} rerank;

typedef struct ranked {
    size_t index;
    float score;
} ranked;

/* The highest first; of equal scores the first document. */
static int compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void write_jina_text(json *j, const prompt *document)
{
    json_open_compact(j, "document", '{');
    json_text(j, "text", document->text, document->n_text);
    json_close(j, '}');
}

static void write_ranked(json *j, const rerank *r, const ranked *one)
{
    const prompt *document = &r->base.inputs.at[one->index];
    bool is_tei = r->base.is_array;
    json_open_compact(j, NULL, '{');
    json_uint(j, "index", one->index);
    json_float(j, is_tei ? "score" : "relevance_score", (double)one->score, 9);
    if (r->with_texts && is_tei) json_text(j, "text", document->text, document->n_text);
    else if (r->with_texts) write_jina_text(j, document);
    json_close(j, '}');
}

static void write_sorted(json *j, const embedding *m)
{
    const rerank *r = (const rerank *)m;
    ranked *all = calloc(m->inputs.n, sizeof *all);
    if (!all) j->failed = true; /* 503 */
    for (size_t i = 0; all && i < m->inputs.n; i++) all[i] = (ranked){i, m->vectors[i]};
    if (all) qsort(all, m->inputs.n, sizeof *all, compare);
    for (size_t i = 0; all && i < r->top_n && i < m->inputs.n; i++) write_ranked(j, r, &all[i]);
    free(all);
}

static void write_jina(json *j, const embedding *m)
{
    json_word(j, "model", m->served->id);
    json_word(j, "object", "list");
    json_open_compact(j, "usage", '{');
    json_uint(j, "prompt_tokens", hearth_embedder_n_evaluated(m->embedder));
    json_uint(j, "total_tokens", hearth_embedder_n_evaluated(m->embedder));
    json_close(j, '}');
    json_open_compact(j, "results", '[');
    write_sorted(j, m);
    json_close(j, ']');
}

/* ---- requests -------------------------------------------------------------------------------------------- */

/* Bytes of the query with all documents: it is evaluated with each of them, so that it counts as often. */
enum { MAX_QUERIES = 16 << 20 };

/* A document is a text, or an object with one. */
static bool read_document(fields *f, const char *name, const hth_json *v, const char **text, size_t *n)
{
    fields one = {.object = v, .problem = f->problem};
    if (v->kind == HTH_JSON_TEXT) {
        *text = v->text.bytes, *n = v->text.n;
        return true;
    }
    if (v->kind != HTH_JSON_OBJECT)
        return fields_fail(f, name, "[%u]: a text, or an object with a text, is expected", v->index);
    snprintf(one.path, sizeof one.path, "%s[%u]", name, v->index);
    return fields_need_text(&one, "text", text, n);
}

static bool read_documents(fields *f, rerank *r, const char *name)
{
    const char *query, *text;
    size_t n_query, n_text, n;
    const hth_json *list;
    int32_t *ids;
    hearth_error err;
    if (!fields_need_text(f, "query", &query, &n_query) || !fields_need_array(f, name, &list)) return false;
    if (hth_json_count(list) < 1 || hth_json_count(list) > MAX_INPUTS)
        return fields_fail(f, name, "%zu documents; 1 to %d are taken", hth_json_count(list), MAX_INPUTS);
    if (n_query > MAX_QUERIES / hth_json_count(list))
        return fields_fail(f, "query", "%zu bytes, for each of %zu documents; %d MiB together are taken: send fewer documents", n_query,
                           hth_json_count(list), MAX_QUERIES >> 20);
    for (const hth_json *v = hth_json_first(list); v; v = v->next) {
        if (!read_document(f, name, v, &text, &n_text)) return false;
        if (hearth_tokenize_pair(r->base.served->model, query, n_query, text, n_text, &ids, &n, &err) !=
            HEARTH_OK) {
            problem_of_error(f->problem, &err);
            return false;
        }
        if (!prompt_list_add(&r->base.inputs, ids, n, text, n_text)) return fields_no_memory(f);
        if (!embedding_check_input(f, &r->base, name, r->base.inputs.n - 1)) return false;
    }
    return true;
}

static bool refuse_others(fields *f)
{
    static const char *const others[] = {"truncate_prompt_tokens", "max_tokens_per_doc",
                                         "max_chunks_per_doc"};
    bool raw = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (fields_value(f, others[i]))
            return fields_fail(f, others[i], "documents are not cut; leave the field out");
    if (!fields_bool(f, "raw_scores", &raw)) return false;
    return !raw || fields_fail(f, "raw_scores", "scores are probabilities; leave the field out");
}

static bool read_all(fields *f, rerank *r)
{
    int64_t top_n = MAX_INPUTS;
    const char *name = r->base.is_array ? "texts" : "documents";
    if (!served_model_is_reranker(r->base.served)) {
        problem_set(f->problem, 400, "",
                    "this model is no reranker: its file has no head that scores pairs of texts (docs/serving.md)");
        return false;
    }
    if (r->base.is_array && fields_value(f, "documents"))
        return fields_fail(f, "documents", "texts are there, too: send one of them");
    if (!refuse_others(f) || !fields_int(f, "top_n", 1, INT32_MAX, &top_n) ||
        !fields_bool(f, r->base.is_array ? "return_text" : "return_documents", &r->with_texts) ||
        !read_documents(f, r, name))
        return false;
    r->top_n = (size_t)top_n;
    return true;
}

void rerank_run(void *user, call *c)
{
    fields f;
    problem p;
    rerank *r = (rerank *)embedding_make(user, c, sizeof *r, &f, &p);
    if (!r) return;
    r->base.is_array = fields_value(&f, "texts") != NULL;
    r->base.write = r->base.is_array ? write_sorted : write_jina;
    r->base.n_dim = 1;
    bool ok = read_all(&f, r);
    if (ok && !r->with_texts) call_drop_document(c);
    embedding_start(&r->base, ok, &p);
}
