/* Vectors of texts: what they are made of, and that nothing else changes a bit of them. */
#include "base/alloc.h"
#include "support/faults.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

enum { N_TEXT = 9, LONGEST = 60, D = TINY_D_MODEL };

static gguf_bytes file;
static hearth_model *model;
static volatile int cancel;
static int32_t ids[N_TEXT][LONGEST];
static const size_t lengths[N_TEXT] = {7, 1, 60, 2, 33, 32, 31, 1, 17};
static hearth_embed_text texts[N_TEXT];
enum { N_TOKEN = 184 }; /* of all */

/* pooling -1: the file does not say. architecture NULL: llama. */
static hearth_model *open_tiny(const char *architecture, int pooling, gguf_bytes *bytes)
{
    char key[64];
    const hearth_model_options o = {.cancel = &cancel, .n_thread = 1};
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    if (architecture) tiny_become(&m, architecture);
    snprintf(key, sizeof key, "%s.pooling_type", architecture ? architecture : "llama");
    if (pooling >= 0) tiny_set_u32(&m, key, (uint32_t)pooling);
    *bytes = tiny_write(&m);
    hearth_model *opened =
        OPENED_BY(hearth_model_open_memory, hearth_model, bytes->data, bytes->n, "tiny.gguf", &o);
    return opened;
}

static bool open_model(void)
{
    test_random r = {4};
    cancel = 0;
    for (size_t i = 0; i < N_TEXT; i++) {
        for (int k = 0; k < LONGEST; k++) ids[i][k] = (int32_t)test_random_below(&r, TINY_VOCAB);
        texts[i] = (hearth_embed_text){.tokens = ids[i], .n_token = lengths[i]};
    }
    model = open_tiny(NULL, -1, &file);
    return model != NULL;
}

static void close_model(void)
{
    hearth_model_close(model);
    gguf_free(&file);
}

__attribute__((constructor)) static void set_fixture(void)
{
    test_before_each = open_model, test_after_each = close_model;
}

/* ---- what a vector is --------------------------------------------------------------------------------------- */

typedef struct rows {
    float row[LONGEST][D];
} rows;

static hearth_status keep_row(void *user, size_t i, const float *row, hearth_error *err)
{
    rows *r = user;
    memcpy(r->row[i], row, sizeof r->row[i]);
    return HEARTH_OK;
}

/* What the last layer makes of text i, by a session, in a call for all tokens. */
static void rows_of(const hearth_model *m, size_t i, rows *r)
{
    CLOSED(hearth_session) *s =
        OPENED(hearth_session, m, &(hearth_session_options){.n_ctx = 64, .n_thread = 1});
    CHECK_OK(hearth_session_eval_hidden(s, ids[i], lengths[i], keep_row, r, err));
}

/* By the definition, with n_dim numbers. */
static void pooled(const rows *r, size_t n, hearth_pooling pooling, bool normalize, uint32_t n_dim, float *v)
{
    double sum[D] = {0}, square = 0;
    for (size_t t = 0; t < n; t++) {
        bool counts = pooling == HEARTH_POOLING_MEAN || t == (pooling == HEARTH_POOLING_FIRST ? 0 : n - 1);
        for (uint32_t k = 0; counts && k < D; k++) sum[k] += (double)r->row[t][k];
    }
    for (uint32_t k = 0; k < n_dim; k++) square += sum[k] * sum[k];
    for (uint32_t k = 0; k < n_dim; k++)
        v[k] = (float)(normalize                        ? sum[k] * (1.0 / sqrt(square))
                       : pooling == HEARTH_POOLING_MEAN ? sum[k] / (double)n
                                                        : sum[k]);
}

static void check_vectors(const hearth_model *m, hearth_pooling pooling, bool normalize, uint32_t n_dim,
                          const float *vectors)
{
    for (size_t i = 0; i < N_TEXT; i++) {
        rows r;
        float expected[D];
        rows_of(m, i, &r);
        pooled(&r, lengths[i], pooling, normalize, n_dim, expected);
        CHECK_BYTES(vectors + i * n_dim, expected, n_dim * sizeof *expected);
    }
}

static hearth_embedder *open_embedder(const hearth_model *m, hearth_embedder_options o)
{
    if (o.n_ctx == 0) o.n_ctx = 64;
    if (o.n_thread == 0) o.n_thread = 1;
    return OPENED(hearth_embedder, m, &o);
}

TEST(vectors_are_pooled_rows)
{
    for (int pooling = HEARTH_POOLING_MEAN; pooling <= HEARTH_POOLING_LAST; pooling++)
        for (int plain = 0; plain < 2; plain++)
            for (uint32_t n_dim = D; n_dim > 0; n_dim = n_dim == D ? 5 : 0) {
                float vectors[N_TEXT][D];
                const hearth_embedder_options o = {
                    .pooling = (hearth_pooling)pooling, .no_normalize = plain, .n_dim = n_dim};
                CLOSED(hearth_embedder) *e = open_embedder(model, o);
                CHECK_INT(hearth_embedder_pooling(e), pooling);
                CHECK_INT(hearth_embedder_n_dim(e), n_dim);
                CHECK_INT(hearth_embedder_n_ctx(e), 64);
                CHECK_OK(hearth_embed(e, texts, N_TEXT, *vectors, err));
                CHECK_INT(hearth_embedder_n_evaluated(e), N_TOKEN);
                check_vectors(model, (hearth_pooling)pooling, !plain, n_dim, *vectors);
            }
}

TEST(the_file_says_how_unless_the_options_do)
{
    for (int said = -1; said <= 3; said++) {
        gguf_bytes bytes;
        float vectors[N_TEXT][D];
        CLOSED(hearth_model) *m = open_tiny(NULL, said, &bytes);
        hearth_pooling expected = said > 0 ? (hearth_pooling)said : HEARTH_POOLING_LAST;
        CLOSED(hearth_embedder) *e = open_embedder(m, (hearth_embedder_options){0});
        CHECK_INT(hearth_embedder_pooling(e), expected);
        CHECK_OK(hearth_embed(e, texts, N_TEXT, *vectors, err));
        check_vectors(m, expected, true, D, *vectors);
        CLOSED(hearth_embedder) *other =
            open_embedder(m, (hearth_embedder_options){.pooling = HEARTH_POOLING_FIRST});
        CHECK_INT(hearth_embedder_pooling(other), HEARTH_POOLING_FIRST);
        hearth_embedder_close(e), e = NULL;
        hearth_embedder_close(other), other = NULL;
        hearth_model_close(m), m = NULL;
        gguf_free(&bytes);
    }
}

TEST(ranks_and_what_is_no_pooling_are_refused)
{
    static const struct {
        int said;
        hearth_status status;
        const char *words;
    } cases[] = {{4, HEARTH_ERROR_UNSUPPORTED, "llama.pooling_type is 4 (rank), but the file has no head"},
                 {5, HEARTH_ERROR_FORMAT, "llama.pooling_type"}};
    for (int i = 0; i < 2; i++) {
        gguf_bytes bytes;
        CLOSED(hearth_model) *m = open_tiny(NULL, cases[i].said, &bytes);
        hearth_embedder *e = NULL;
        CHECK_FAILS(hearth_embedder_open(m, NULL, &e, err), cases[i].status, cases[i].words);
        CHECK(e == NULL);
        CLOSED(hearth_embedder) *mean =
            open_embedder(m, (hearth_embedder_options){.pooling = HEARTH_POOLING_MEAN});
        CHECK(mean != NULL);
        hearth_embedder_close(mean), mean = NULL;
        hearth_model_close(m), m = NULL;
        gguf_free(&bytes);
    }
}

TEST(a_model_on_a_device_is_refused)
{
    CLOSED(hearth_model) *m = NULL;
    hearth_embedder *e = NULL;
    const hearth_model_options o = {.gpu = {.device = "null", .n_ctx = 64}, .n_thread = 1};
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", &o, &m, err));
    CHECK_FAILS(hearth_embedder_open(m, NULL, &e, err), HEARTH_ERROR_UNSUPPORTED, "with a GPU");
}

/* ---- rerankers ---------------------------------------------------------------------------------------------- */

enum { N_CLASS = 3 };
static const char rerank_key[] = "tokenizer.chat_template.rerank";

/* Weights of cls.output go to head, if it is not NULL. text NULL: there is no template. */
static hearth_model *open_reranker(const char *text, float head[N_CLASS][D], gguf_bytes *bytes)
{
    const hearth_model_options o = {.n_thread = 1};
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_become(&m, "qwen3");
    tiny_set_u32(&m, "qwen3.pooling_type", HEARTH_POOLING_RANK);
    tiny_add_tensor(&m, "cls.output.weight", 0, 2, D, N_CLASS);
    if (text) tiny_set_text(&m, rerank_key, text);
    *bytes = tiny_write(&m);
    if (head) memcpy(head, bytes->data + tiny_data_at(&m, "cls.output.weight"), N_CLASS * sizeof *head);
    return OPENED_BY(hearth_model_open_memory, hearth_model, bytes->data, bytes->n, "tiny.gguf", &o);
}

/* By the definition, of the rows of text i. */
static void classes_of(const hearth_model *m, size_t i, float head[N_CLASS][D], double expected[N_CLASS])
{
    rows r;
    double all = 0.0;
    rows_of(m, i, &r);
    for (int c = 0; c < N_CLASS; c++) {
        double logit = 0.0;
        for (int k = 0; k < D; k++) logit += (double)head[c][k] * (double)r.row[lengths[i] - 1][k];
        all += expected[c] = exp(logit);
    }
    for (int c = 0; c < N_CLASS; c++) expected[c] /= all;
}

TEST(scores_are_the_softmax_of_the_head_for_the_last_token)
{
    gguf_bytes bytes;
    float head[N_CLASS][D], vectors[N_TEXT][N_CLASS], scores[N_TEXT];
    CLOSED(hearth_model) *m = open_reranker(NULL, head, &bytes);
    CLOSED(hearth_embedder) *e = open_embedder(m, (hearth_embedder_options){0});
    CLOSED(hearth_embedder) *first =
        open_embedder(m, (hearth_embedder_options){.pooling = HEARTH_POOLING_RANK, .n_dim = 1, .n_batch = 5});
    CHECK_INT(hearth_embedder_pooling(e), HEARTH_POOLING_RANK);
    CHECK_INT(hearth_embedder_n_dim(e), N_CLASS);
    CHECK_OK(hearth_embed(e, texts, N_TEXT, *vectors, err));
    CHECK_OK(hearth_embed(first, texts, N_TEXT, scores, err));
    float least = 1.0f, most = 0.0f;
    for (size_t i = 0; i < N_TEXT; i++) {
        double expected[N_CLASS];
        classes_of(m, i, head, expected);
        for (int c = 0; c < N_CLASS; c++) CHECK(fabs((double)vectors[i][c] - expected[c]) < 1e-7);
        CHECK_BYTES(&scores[i], vectors[i], sizeof *scores);
        least = fminf(least, scores[i]), most = fmaxf(most, scores[i]);
    }
    CHECK(most - least > 0.05f); /* else the check says little */
    hearth_embedder_close(e), e = NULL;
    hearth_embedder_close(first), first = NULL;
    hearth_model_close(m), m = NULL;
    gguf_free(&bytes);
}

TEST(vectors_of_a_reranker_are_there_for_those_who_name_a_pooling)
{
    gguf_bytes bytes;
    float vectors[N_TEXT][D];
    CLOSED(hearth_model) *m = open_reranker(NULL, NULL, &bytes);
    CLOSED(hearth_embedder) *e = open_embedder(m, (hearth_embedder_options){.pooling = HEARTH_POOLING_LAST});
    CHECK_OK(hearth_embed(e, texts, N_TEXT, *vectors, err));
    check_vectors(m, HEARTH_POOLING_LAST, true, D, *vectors);
    hearth_embedder *wide = NULL;
    CHECK_FAILS(hearth_embedder_open(m, &(hearth_embedder_options){.n_dim = N_CLASS + 1}, &wide, err),
                HEARTH_ERROR_ARGUMENT, "n_dim is 4; the model's vectors have 3 numbers");
    hearth_embedder_close(e), e = NULL;
    hearth_model_close(m), m = NULL;
    gguf_free(&bytes);
    CHECK_FAILS(hearth_embedder_open(model, &(hearth_embedder_options){.pooling = HEARTH_POOLING_RANK}, &wide, err),
                HEARTH_ERROR_UNSUPPORTED, "hearth_embedder_options.pooling is 4 (rank), but the file has no head");
}

typedef struct id_list {
    int32_t *at;
    size_t n;
} id_list;
static void free_ids(id_list *l) { hearth_free(l->at); }

static id_list pair_of(const hearth_model *m, const char *query, const char *document)
{
    id_list l = {0};
    CHECK_OK(hearth_tokenize_pair(m, query, strlen(query), document, strlen(document), &l.at, &l.n, err));
    return l;
}

/* The ids of a text in which the names of control tokens are these, if that is wanted. */
static bool is_text(id_list l, const hearth_model *m, const char *text, unsigned flags)
{
    id_list whole = {0};
    CHECK_OK(hearth_tokenize(m, text, strlen(text), flags, &whole.at, &whole.n, err));
    bool same = l.n > 0 && l.n == whole.n && memcmp(l.at, whole.at, l.n * sizeof *l.at) == 0;
    free_ids(&whole);
    return same;
}

static size_t n_of(id_list l, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < l.n; i++) n += l.at[i] == id;
    return n;
}

TEST(pairs_are_read_by_the_template_of_the_file)
{
    enum { EOS = 2 };
    gguf_bytes bytes;
    CLOSED(hearth_model) *m = open_reranker("<s>a {query}c{document}</s>b{query}", NULL, &bytes);
    CLEANUP(free_ids) id_list plain = pair_of(m, "ab", "bc"), other = pair_of(m, "{document}", "a");
    CLEANUP(free_ids) id_list named = pair_of(m, "</s>", "a</s>"), empty = pair_of(m, "", "");
    CHECK(is_text(plain, m, "<s>a abcbc</s>bab", HEARTH_PARSE_SPECIAL));
    CHECK(is_text(empty, m, "<s>a c</s>b", HEARTH_PARSE_SPECIAL));
    CHECK(is_text(other, m, "<s>a {document}ca</s>b{document}", HEARTH_PARSE_SPECIAL)); /* no place in a text */
    CHECK_INT(n_of(named, EOS), 1); /* the template's */
    CHECK(named.n > plain.n);
    hearth_model_close(m), m = NULL;
    gguf_free(&bytes);
}

TEST(templates_without_both_places_are_refused)
{
    static const char *const texts_of[] = {
        "a{query}b", "a{document}", "", "{query}{query}{query}{query}{document}{document}{document}{document}{query}"};
    for (size_t i = 0; i < sizeof texts_of / sizeof *texts_of; i++) {
        gguf_bytes bytes;
        id_list l = {0};
        CLOSED(hearth_model) *m = open_reranker(texts_of[i], NULL, &bytes);
        CHECK_FAILS(hearth_tokenize_pair(m, "a", 1, "b", 1, &l.at, &l.n, err), HEARTH_ERROR_FORMAT,
                    "tiny.gguf: tokenizer.chat_template.rerank has ");
        CHECK(l.at == NULL && l.n == 0);
        hearth_model_close(m), m = NULL;
        gguf_free(&bytes);
    }
}

/* tokenizer.ggml.add_eos_token and add_sep_token, and what stands between a and b then. */
TEST(pairs_without_a_template_have_the_tokens_of_the_vocabulary)
{
    static const struct {
        const char *overrides[3];
        int32_t ids[7];
        size_t n;
    } cases[] = {
        {{"tokenizer.ggml.add_eos_token=bool:true"}, {1, 264, 2, 259, 265, 2}, 6},
        {{"tokenizer.ggml.add_sep_token=bool:true", "tokenizer.ggml.seperator_token_id=int:9"}, {1, 264, 9, 259, 265}, 5},
        {{"tokenizer.ggml.add_sep_token=bool:true", "tokenizer.ggml.seperator_token_id=int:9",
          "tokenizer.ggml.add_eos_token=bool:true"}, {1, 264, 2, 9, 259, 265, 2}, 7},
        {{NULL}, {0}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_model_options o = hearth_model_defaults();
        CLOSED(hearth_model) *m = NULL;
        CLEANUP(free_ids) id_list l = {0};
        o.overrides = cases[i].overrides;
        while (o.n_override < 3 && o.overrides[o.n_override]) o.n_override++;
        CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", &o, &m, err));
        if (cases[i].n == 0)
            CHECK_FAILS(hearth_tokenize_pair(m, "a", 1, "a b", 3, &l.at, &l.n, err), HEARTH_ERROR_UNSUPPORTED,
                        "nothing would stand between a query and a document");
        else CHECK_OK(hearth_tokenize_pair(m, "a", 1, "bc", 2, &l.at, &l.n, err));
        if (CHECK_INT(l.n, cases[i].n) && l.n > 0) CHECK_BYTES(l.at, cases[i].ids, l.n * sizeof *l.at);
        hearth_model_close(m), m = NULL;
    }
}

/* ---- what changes no bit ------------------------------------------------------------------------------------ */

static void same_however_divided(const char *architecture)
{
    static const hearth_embedder_options all[] = {{.n_batch = 1},
                                                  {.n_batch = 5, .n_thread = 2},
                                                  {.n_batch = 32, .n_text = 1},
                                                  {.n_batch = 64, .n_text = 3}};
    gguf_bytes bytes;
    CLOSED(hearth_model) *m = open_tiny(architecture, -1, &bytes);
    uint32_t d = test_model_info(m).d_model;
    FREED float *alone = calloc(N_TEXT * d, sizeof *alone), *vectors = calloc(N_TEXT * d, sizeof *vectors);
    CLOSED(hearth_embedder) *one =
        open_embedder(m, (hearth_embedder_options){.pooling = HEARTH_POOLING_MEAN});
    for (size_t i = 0; i < N_TEXT; i++) CHECK_OK(hearth_embed(one, &texts[i], 1, alone + i * d, err));
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        hearth_embedder_options o = all[k];
        o.pooling = HEARTH_POOLING_MEAN;
        CLOSED(hearth_embedder) *e = open_embedder(m, o);
        for (int round = 0; round < 2; round++) { /* the second one finds used sequences */
            memset(vectors, 0, N_TEXT * d * sizeof *vectors);
            CHECK_OK(hearth_embed(e, texts, N_TEXT, vectors, err));
            CHECK_BYTES(vectors, alone, N_TEXT * d * sizeof *vectors);
        }
    }
    hearth_embedder_close(one), one = NULL;
    hearth_model_close(m), m = NULL;
    gguf_free(&bytes);
}

TEST(other_texts_and_steps_change_no_bit) { same_however_divided(NULL); }
TEST(nor_in_models_with_windows) { same_however_divided("gemma2"); }
TEST(nor_in_models_with_states) { same_however_divided("falcon-h1"); }
TEST(nor_in_models_with_experts) { same_however_divided("qwen2moe"); }

TEST(texts_share_steps)
{
    float vectors[N_TEXT][D];
    CLOSED(hearth_embedder) *e = open_embedder(model, (hearth_embedder_options){.n_ctx = 512, .n_batch = 64});
    bool more = true;
    int n_step = 0;
    CHECK_OK(hearth_embed_begin(e, texts, N_TEXT, *vectors, err));
    for (uint64_t before = 0; more; n_step++, before = hearth_embedder_n_evaluated(e)) {
        CHECK_OK(hearth_embed_step(e, &more, err));
        CHECK(hearth_embedder_n_evaluated(e) > before && hearth_embedder_n_evaluated(e) - before <= 64);
    }
    CHECK_INT(n_step, 3); /* pages are free for all texts: steps are full */
    check_vectors(model, HEARTH_POOLING_LAST, true, D, *vectors);
    CHECK_OK(hearth_embed_step(e, NULL, err)); /* nothing is left */
    CHECK_INT(hearth_embedder_n_evaluated(e), N_TOKEN);
}

TEST(texts_wait_while_pages_are_few)
{
    enum { N_SHORT = 40 };
    static float vectors[N_SHORT][D], one[D];
    hearth_embed_text many[N_SHORT];
    CLOSED(hearth_embedder) *e = open_embedder(model, (hearth_embedder_options){.n_batch = 16, .n_text = 16});
    for (int i = 0; i < N_SHORT; i++) many[i] = (hearth_embed_text){.tokens = ids[0] + i % 7, .n_token = 1};
    CHECK_OK(hearth_embed(e, many, N_SHORT, *vectors, err)); /* a page each: 96 positions have three */
    for (int i = 0; i < 7; i++) {
        CHECK_OK(hearth_embed(e, &many[i], 1, one, err));
        for (int k = i; k < N_SHORT; k += 7) CHECK_BYTES(vectors[k], one, sizeof one);
    }
    const hearth_embed_text full = {.tokens = ids[2], .n_token = 60};
    CHECK_OK(hearth_embed(e, &full, 1, one, err));
}

TEST(nothing_is_there_without_texts)
{
    bool more = true;
    CLOSED(hearth_embedder) *e = open_embedder(model, (hearth_embedder_options){0});
    CHECK_OK(hearth_embed(e, NULL, 0, NULL, err));
    CHECK_OK(hearth_embed_step(e, &more, err));
    CHECK(!more);
    CHECK_INT(hearth_embedder_n_evaluated(e), 0);
}

/* ---- texts that are refused, steps that fail ---------------------------------------------------------------- */

TEST(texts_are_refused_before_any_is_evaluated)
{
    static const int32_t outside[] = {1, TINY_VOCAB};
    static int32_t too_many[65];
    float vectors[2 * D];
    static const struct {
        hearth_embed_text text;
        hearth_status status;
        const char *words;
    } cases[] = {
        {{.tokens = outside}, HEARTH_ERROR_ARGUMENT, "texts[1].n_token is 0"},
        {{.n_token = 3}, HEARTH_ERROR_ARGUMENT, "texts[1].tokens is NULL"},
        {{.tokens = outside, .n_token = 2}, HEARTH_ERROR_ARGUMENT, "texts[1].tokens[1] is 267"},
        {{.tokens = too_many, .n_token = 65},
         HEARTH_ERROR_CONTEXT,
         "texts[1] has 65 tokens: a text can have 64"},
        {{.tokens = outside, .n_token = 1, .reserved = {0, 1}}, HEARTH_ERROR_ARGUMENT, "texts[1].reserved"}};
    CLOSED(hearth_embedder) *e = open_embedder(model, (hearth_embedder_options){0});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool more = true;
        const hearth_embed_text two[] = {texts[0], cases[i].text};
        CHECK_FAILS(hearth_embed(e, two, 2, vectors, err), cases[i].status, cases[i].words);
        CHECK_FAILS(hearth_embed_begin(e, two, 2, vectors, err), cases[i].status, cases[i].words);
        CHECK_OK(hearth_embed_step(e, &more, err));
        CHECK(!more);
        CHECK_INT(hearth_embedder_n_evaluated(e), 0);
    }
}

TEST(a_cancelled_step_is_done_again)
{
    float vectors[N_TEXT][D];
    for (int way = 0; way < 2; way++)
        for (int at = 0; at < 7; at++) {
            CLOSED(hearth_embedder) *e = open_embedder(
                model, (hearth_embedder_options){.n_batch = 32, .pooling = HEARTH_POOLING_MEAN});
            bool more = true;
            CHECK_OK(hearth_embed_begin(e, texts, N_TEXT, *vectors, err));
            for (int i = 0; more; i++) {
                uint64_t before = hearth_embedder_n_evaluated(e);
                if (i == at && way == 0) cancel = 1;
                if (i == at && way == 1) hearth_embedder_cancel(e);
                hearth_status st = hearth_embed_step(e, &more, NULL);
                CHECK_INT(st, i == at ? HEARTH_ERROR_CANCELLED : HEARTH_OK);
                if (st != HEARTH_OK) CHECK(more && hearth_embedder_n_evaluated(e) == before);
                cancel = 0;
            }
            check_vectors(model, HEARTH_POOLING_MEAN, true, D, *vectors);
        }
}

/* What a step that failed has taken does not stay: a text of n_ctx tokens needs almost all pages. */
TEST(texts_may_be_dropped_at_any_step)
{
    float vectors[N_TEXT][D];
    static int32_t full[64];
    const hearth_embed_text whole = {.tokens = full, .n_token = 64};
    for (int at = 0; at < 6; at++) {
        CLOSED(hearth_embedder) *e = open_embedder(model, (hearth_embedder_options){.n_batch = 32});
        CHECK_OK(hearth_embed_begin(e, texts, N_TEXT, *vectors, err));
        for (int i = 0; i < at; i++) CHECK_OK(hearth_embed_step(e, NULL, err));
        hearth_embedder_cancel(e);
        CHECK_INT(hearth_embed_step(e, NULL, NULL), HEARTH_ERROR_CANCELLED);
        CHECK_OK(hearth_embed(e, &whole, 1, *vectors, err));
        CHECK_OK(hearth_embed(e, texts, N_TEXT, *vectors, err));
        check_vectors(model, HEARTH_POOLING_LAST, true, D, *vectors);
    }
}

TEST(rows_that_are_not_finite_are_numeric)
{
    gguf_bytes bytes;
    float vectors[N_TEXT][D];
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    bytes = tiny_write(&m);
    const float largest = 3.4e38f; /* of a norm, whose products overflow */
    for (size_t i = 0; i < D; i++)
        memcpy(bytes.data + tiny_data_at(&m, "output_norm.weight") + i * sizeof largest, &largest,
               sizeof largest);
    CLOSED(hearth_model) *broken =
        OPENED_BY(hearth_model_open_memory, hearth_model, bytes.data, bytes.n, "tiny.gguf", NULL);
    CLOSED(hearth_embedder) *e = open_embedder(broken, (hearth_embedder_options){0});
    CHECK_FAILS(hearth_embed(e, texts, N_TEXT, *vectors, err), HEARTH_ERROR_NUMERIC, "not finite");
    hearth_embedder_close(e), e = NULL;
    hearth_model_close(broken), broken = NULL;
    gguf_free(&bytes);
}

TEST(the_model_may_be_closed_before)
{
    gguf_bytes bytes;
    float vectors[N_TEXT][D];
    hearth_model *m = open_tiny(NULL, -1, &bytes);
    CLOSED(hearth_embedder) *e = open_embedder(m, (hearth_embedder_options){0});
    hearth_model_close(m);
    CHECK_OK(hearth_embed(e, texts, N_TEXT, *vectors, err));
    hearth_embedder_close(e), e = NULL;
    gguf_free(&bytes);
    check_vectors(model, HEARTH_POOLING_LAST, true, D, *vectors);
}

/* ---- faults ------------------------------------------------------------------------------------------------- */

static hearth_status embed_task(const fault_paths *p, hearth_error *err)
{
    hearth_model *m = NULL;
    hearth_embedder *e = NULL;
    static float vectors[N_TEXT * 4096];
    const hearth_embedder_options o = {.n_ctx = 64, .n_batch = 32, .n_thread = 1};
    hearth_embed_text three[3];
    for (int i = 0; i < 3; i++) three[i] = (hearth_embed_text){.tokens = ids[0] + i, .n_token = 1};
    hearth_status st = hearth_model_open(p->in, NULL, &m, err);
    if (st == HEARTH_OK) st = hearth_embedder_open(m, &o, &e, err);
    if (st == HEARTH_OK) st = hearth_embed(e, three, 3, vectors, err);
    hearth_embedder_close(e);
    hearth_model_close(m);
    return st;
}

TEST(embedders_survive_failed_allocations) { fault_survive("embedders", embed_task, 30, 0, 0); }
