/* Importance matrices of models: their sums are those of double precision, and neither threads nor batches nor an
 * interruption change a bit. */
#include "measure/imatrix.h"
#include "engine/engine.h"
#include "kernels/panel/panel.h"
#include "support/engine.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

static void close_at(hth_imatrix **m) { hth_imatrix_close(*m); }
#define CLOSED_MATRIX CLEANUP(close_at) hth_imatrix

enum { N_CTX = 24 }; /* of tests/data/imatrix.py */

static const char *const names[] = {"llama-gqa", "falcon",  "mixtral",     "qwen35moe", "qwen3next",
                                    "lfm2moe",   "deepseek2", "bailingmoe2", "gpt-oss",   "joined"};
enum { N_NAME = sizeof names / sizeof *names };

static hth_imatrix *new_matrix(void) { return OPENED_BY(hth_imatrix_new, hth_imatrix, N_CTX); }

static hearth_session *open_session(const hearth_model *model, uint32_t n_thread, uint32_t n_batch)
{
    hearth_session_options o = {.n_ctx = N_CTX, .n_thread = n_thread, .n_batch = n_batch, .kv = HEARTH_KV_F32,
                                .selector = HEARTH_SELECTOR_DENSE};
    return OPENED(hearth_session, model, &o);
}

static hearth_status measure(const hearth_model *model, uint32_t n_thread, uint32_t n_batch, const char *text, size_t n,
                             const hth_imatrix_options *o, hth_imatrix *m, uint64_t *n_done, hearth_error *err)
{
    CLOSED(hearth_session) *session = open_session(model, n_thread, n_batch);
    return session ? hth_measure_imatrix(model, session, text, n, o, m, n_done, err) : HEARTH_ERROR_MEMORY;
}

/* A model of golden/imatrix, its text and what double precision says. */
typedef struct golden_matrix {
    hearth_model *model;
    char *text;
    size_t n;
    hth_imatrix *truth;
} golden_matrix;

static void golden_matrix_close(golden_matrix *g)
{
    hearth_model_close(g->model);
    free(g->text);
    hth_imatrix_close(g->truth);
}

/* The ids of the text are those that the truth was computed of. */
static void check_ids(const golden_matrix *g, const char *path)
{
    int32_t *ids = NULL;
    size_t n = 0, n_expected = 0;
    FREED int32_t *expected = engine_read_ids(path, &n_expected);
    CHECK_OK(hearth_tokenize(g->model, g->text, g->n, HEARTH_ADD_SPECIAL, &ids, &n, err));
    if (expected && CHECK_INT(n, n_expected)) CHECK_BYTES(ids, expected, n * sizeof *ids);
    hearth_free(ids);
}

static golden_matrix open_golden(const char *name)
{
    char path[80];
    golden_matrix g = {0};
    if (strcmp(name, "joined") == 0) snprintf(path, sizeof path, "golden/imatrix/joined.model.gguf");
    else snprintf(path, sizeof path, "golden/arch/%s.gguf", name);
    const char *model = test_data(path);
    if (model) g.model = OPENED(hearth_model, model, NULL);
    snprintf(path, sizeof path, "golden/imatrix/%s.txt", name);
    const char *text = test_data(path);
    if (text) g.text = test_read_file(text, &g.n);
    snprintf(path, sizeof path, "golden/imatrix/%s.gguf", name);
    const char *truth = test_data(path);
    if (truth) CHECK_OK(hth_imatrix_open(truth, &g.truth, err));
    snprintf(path, sizeof path, "golden/imatrix/%s.ids", name);
    const char *ids = test_data(path);
    if (g.model && g.text && ids) check_ids(&g, ids);
    return g;
}

/* ---- double precision ------------------------------------------------------------------------------- */

static void check_entry(const char *model, const hth_imatrix_entry *e, const hth_imatrix_entry *truth)
{
    double worst = 0.0, largest = 0.0;
    if (!truth || !CHECK_INT(e->n_value, truth->n_value) || !CHECK_INT(e->n_count, truth->n_count)) {
        test_fail(__FILE__, __LINE__, "%s: tensor %s is not that of the truth", model, e->name.bytes);
        return;
    }
    for (size_t i = 0; i < e->n_value; i++) largest = truth->sums[i] > largest ? truth->sums[i] : largest;
    for (size_t i = 0; i < e->n_value; i++) {
        double error = fabs(e->sums[i] - truth->sums[i]) / (truth->sums[i] + 0.01 * largest);
        worst = error > worst ? error : worst;
    }
    if (!CHECK(worst < 1e-5)) printf("     %s: %s: %g\n", model, e->name.bytes, worst);
    for (uint32_t i = 0; i < e->n_count; i++) CHECK_INT(e->counts[i], truth->counts[i]);
}

TEST(sums_are_those_of_double_precision)
{
    for (size_t i = 0; i < N_NAME; i++) {
        CLEANUP(golden_matrix_close) golden_matrix g = open_golden(names[i]);
        CLOSED_MATRIX *m = new_matrix();
        hth_imatrix_options o = {.with_output = true};
        uint64_t n_done = 0;
        if (!g.model || !g.text || !g.truth) return;
        CHECK_OK(measure(g.model, 2, 16, g.text, g.n, &o, m, &n_done, err));
        CHECK_INT(n_done, 3);
        CHECK_INT(m->n_chunk, 3);
        CHECK_INT(m->n_entry, g.truth->n_entry);
        for (size_t k = 0; k < m->n_entry; k++)
            check_entry(names[i], &m->entries[k], hth_imatrix_find(g.truth, m->entries[k].name));
    }
}

/* DeepSeek V4 may store the groups of an output matrix in two dimensions: one entry has the sums of all. */
TEST(groups_in_two_dimensions_are_summed_up)
{
    static const char text[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char name[] = "blk.0.attn_output_a.weight";
    tiny_model tiny = tiny_new();
    tiny_become(&tiny, "deepseek4");
    uint64_t width = tiny_find(&tiny, name)->dim[0];
    CLEANUP(gguf_free) gguf_bytes file = tiny_take(&tiny);
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open_memory, hearth_model, file.data, file.n, "tiny", NULL);
    CLOSED_MATRIX *m = new_matrix();
    hth_imatrix_options o = {.n_chunk = 1};
    uint64_t n_done = 0;
    if (!model) return;
    CHECK_OK(measure(model, 2, 16, text, sizeof text - 1, &o, m, &n_done, err));
    const hth_imatrix_entry *e = hth_imatrix_find(m, (hth_str){name, sizeof name - 1});
    if (!CHECK(e)) return;
    CHECK_INT(e->n_value, width);
    CHECK_INT(e->counts[0], N_CTX * (TINY_D_MODEL / width));
}

/* ---- what must not matter ------------------------------------------------------------------------------ */

static void check_same(const hth_imatrix *a, const hth_imatrix *b)
{
    if (!CHECK_INT(a->n_entry, b->n_entry)) return;
    for (size_t i = 0; i < a->n_entry; i++) {
        const hth_imatrix_entry *x = &a->entries[i], *y = &b->entries[i];
        CHECK_TEXT(x->name.bytes, y->name.bytes);
        if (CHECK_INT(x->n_value, y->n_value)) CHECK_BYTES(x->sums, y->sums, x->n_value * sizeof *x->sums);
        if (CHECK_INT(x->n_count, y->n_count)) CHECK_BYTES(x->counts, y->counts, x->n_count * sizeof *x->counts);
    }
}

TEST(threads_and_batches_change_no_bit)
{
    static const uint32_t settings[][2] = {{1, 1}, {3, 5}, {2, 24}, {4, 13}};
    for (size_t i = 0; i < N_NAME; i++) {
        CLEANUP(golden_matrix_close) golden_matrix g = open_golden(names[i]);
        CLOSED_MATRIX *expected = new_matrix();
        hth_imatrix_options o = {.with_output = true};
        uint64_t n_done;
        if (!g.model || !g.text) return;
        CHECK_OK(measure(g.model, 1, 24, g.text, g.n, &o, expected, &n_done, err));
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
            CLOSED_MATRIX *m = new_matrix();
            CHECK_OK(measure(g.model, settings[k][0], settings[k][1], g.text, g.n, &o, m, &n_done, err));
            check_same(m, expected);
        }
    }
}

/* Stops at the n-th call. */
static bool stop_at(void *user, uint64_t done, uint64_t total)
{
    int *left = user;
    return --*left > 0;
}

TEST(whole_chunks_count_and_go_on)
{
    CLEANUP(golden_matrix_close) golden_matrix g = open_golden("mixtral");
    CLOSED_MATRIX *all = new_matrix(), *stopped = new_matrix(), *two = new_matrix(), *none = new_matrix();
    int left = 3, at_once = 1;
    uint64_t n_done;
    if (!g.model || !g.text) return;
    hth_imatrix_options o = {0}, stops = {.progress = stop_at, .progress_user = &left}, first = {.n_chunk = 2},
                        last = {.first_chunk = 2}, ends = {.progress = stop_at, .progress_user = &at_once};
    CHECK_OK(measure(g.model, 2, 16, g.text, g.n, &o, all, &n_done, err));
    CHECK_OK(measure(g.model, 2, 16, g.text, g.n, &stops, stopped, &n_done, err));
    CHECK_INT(n_done, 2);
    CHECK_OK(measure(g.model, 2, 16, g.text, g.n, &first, two, &n_done, err));
    check_same(stopped, two);
    CHECK_OK(measure(g.model, 2, 16, g.text, g.n, &last, two, &n_done, err));
    CHECK_INT(n_done, 1);
    check_same(all, two);
    CHECK_OK(measure(g.model, 2, 16, g.text, g.n, &ends, none, &n_done, err));
    CHECK_INT(n_done, 0);
}

/* Cancelled within a chunk: it does not count. */
TEST(chunk_that_was_cancelled_does_not_count)
{
    static volatile int cancel;
    hearth_model_options mo = hearth_model_defaults();
    mo.cancel = &cancel;
    CLEANUP(golden_matrix_close) golden_matrix g = open_golden("mixtral");
    const char *path = test_data("golden/arch/mixtral.gguf");
    CLOSED(hearth_model) *model = path ? OPENED(hearth_model, path, &mo) : NULL;
    CLOSED_MATRIX *m = new_matrix();
    uint64_t n_done = 9;
    if (!model || !g.text) return;
    cancel = 1;
    CHECK_OK(measure(model, 2, 16, g.text, g.n, &(hth_imatrix_options){0}, m, &n_done, err));
    cancel = 0;
    CHECK_INT(n_done, 0);
    for (size_t i = 0; i < m->n_entry; i++) CHECK(m->entries[i].counts[0] == 0.0);
}

/* ---- refusals -------------------------------------------------------------------------------------------- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ";

static hearth_status measure_tiny(tiny_model *t, const char *tensor, float weight, const hth_imatrix_options *o,
                                  hth_imatrix *m, hearth_error *err)
{
    uint64_t n_done;
    size_t at = tiny_data_at(t, tensor);
    CLEANUP(gguf_free) gguf_bytes b = tiny_take(t);
    CLOSED(hearth_model) *model = NULL;
    memcpy(b.data + at, &weight, sizeof weight);
    hearth_status st = hearth_model_open_memory(b.data, b.n, "tiny.gguf", NULL, &model, err);
    return st == HEARTH_OK ? measure(model, 2, 16, letters, strlen(letters), o, m, &n_done, err) : st;
}

TEST(inputs_that_are_not_finite_are_refused)
{
    static const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < 2; i++) {
        CLOSED_MATRIX *m = new_matrix();
        CLEANUP(tiny_free) tiny_model t = tiny_new();
        CHECK_FAILS(measure_tiny(&t, "blk.1.attn_v.weight", bad[i], &(hth_imatrix_options){0}, m, err),
                    HEARTH_ERROR_NUMERIC, "tiny.gguf: |'blk.1.attn_output.weight'|not finite");
    }
}

TEST(packed_models_are_refused)
{
    CLOSED_MATRIX *m = new_matrix();
    CLEANUP(tiny_free) tiny_model t = tiny_new();
    tiny_pack(&t);
    CHECK_FAILS(measure_tiny(&t, "output_norm.weight", 1.0f, &(hth_imatrix_options){0}, m, err),
                HEARTH_ERROR_UNSUPPORTED, "tiny.gguf: |packed");
}

TEST(matrices_of_another_model_are_refused_before_the_text)
{
    int left = 5;
    hth_imatrix_options o = {.progress = stop_at, .progress_user = &left};
    CLOSED_MATRIX *m = new_matrix();
    CLEANUP(tiny_free) tiny_model t = tiny_new();
    hth_imatrix_entry *e;
    CHECK_OK(hth_imatrix_add(m, (hth_str){"blk.1.ffn_down.weight", 21}, 128, 1, &e, err));
    CHECK_FAILS(measure_tiny(&t, "output_norm.weight", 1.0f, &o, m, err), HEARTH_ERROR_ARGUMENT,
                "tiny.gguf: |'blk.1.ffn_down.weight'|64|128");
    CHECK_INT(left, 5);
}

TEST(texts_that_are_too_short_are_refused)
{
    CLOSED_MATRIX *m = new_matrix();
    CLEANUP(tiny_free) tiny_model t = tiny_new();
    CHECK_FAILS(measure_tiny(&t, "output_norm.weight", 1.0f, &(hth_imatrix_options){.first_chunk = 2}, m, err),
                HEARTH_ERROR_ARGUMENT, "2 chunks|first 2");
}
