/* Traces of experts as files: what is written comes back, and what does not fit its model or itself is refused with its
 * place. The figures asked of one are counted by hand. */
#include "base/alloc.h"
#include "sparse/expert_trace.h"
#include "support/models/golden.h"
#include "support/test.h"

enum { N_TOK = 96, N_CTX = 32 };

/* A small mixture whose first layer is dense, or another one without such a layer. */
typedef struct opened {
    golden g;
    hth_gguf *file;
    hth_model *model;
} opened;

static bool open_mixture(opened *o, const char *name)
{
    *o = (opened){0};
    if (!golden_open_arch(&o->g, name)) return false;
    CHECK_OK(hth_gguf_open(o->g.model, &o->file, err));
    CHECK_OK(hth_model_open(o->file, &(hth_model_overrides){0}, &o->model, err));
    return true;
}

static void close_mixture(opened *o)
{
    hth_model_close(o->model);
    hth_gguf_close(o->file);
    golden_close(&o->g);
}

static const char *path_of(void) { return test_scratch("experts.trace"); }

static hth_expert_trace *make(const opened *o)
{
    test_random r = {3};
    hth_expert_trace *t = OPENED_BY(hth_expert_trace_new, hth_expert_trace, o->model, N_TOK);
    if (!t) return NULL;
    t->n_ctx = N_CTX, t->text_hash = 12345;
    CHECK_OK(hth_model_hash(o->file, &t->model_hash, err));
    snprintf(t->settings, sizeof t->settings, "kv f16");
    for (uint32_t i = 0; i < t->n_layer; i++) {
        const hth_expert_trace_layer *l = &t->layers[i];
        for (uint32_t k = 0; k < N_TOK * l->n_used; k++) {
            uint32_t at = k % l->n_used, least = at > 0 ? l->chosen[k - 1] + 1u : 0;
            l->chosen[k] = (uint16_t)(least + test_random_below(&r, l->n_expert - l->n_used + at + 1 - least));
        }
    }
    return t;
}

static void check_equal(const hth_expert_trace *a, const hth_expert_trace *b)
{
    CHECK(a->model_hash == b->model_hash && a->text_hash == b->text_hash);
    CHECK(a->n_tok == b->n_tok && a->n_ctx == b->n_ctx && a->n_layer == b->n_layer);
    CHECK_TEXT(a->settings, b->settings);
    for (uint32_t i = 0; i < a->n_layer; i++) {
        const hth_expert_trace_layer *x = &a->layers[i], *y = &b->layers[i];
        CHECK(x->n_expert == y->n_expert && x->n_used == y->n_used);
        if (x->n_used > 0) CHECK_BYTES(x->chosen, y->chosen, (size_t)a->n_tok * x->n_used * sizeof *x->chosen);
    }
}

/* ---- what is written comes back -------------------------------------------------------------- */

TEST(a_trace_comes_back_with_and_without_its_model)
{
    CLEANUP(close_mixture) opened o;
    if (!open_mixture(&o, "dots1")) return;
    CLOSED(hth_expert_trace) *t = make(&o), *with = NULL, *without = NULL;
    CHECK(t->layers[0].n_used == 0 && t->layers[1].n_used > 0);
    CHECK_OK(hth_expert_trace_write(t, path_of(), err));
    CHECK_OK(hth_expert_trace_open(path_of(), o.model, &with, err));
    CHECK_OK(hth_expert_trace_open(path_of(), NULL, &without, err));
    if (with) check_equal(t, with);
    if (without) check_equal(t, without);
    if (with) CHECK_OK(hth_expert_trace_check_shape(with, o.model, err));
}

TEST(every_failed_allocation_is_an_error)
{
    CLEANUP(close_mixture) opened o;
    if (!open_mixture(&o, "dots1")) return;
    CLOSED(hth_expert_trace) *t = make(&o);
    hearth_status st = HEARTH_ERROR_MEMORY;
    uint64_t n = 0;
    for (; st != HEARTH_OK && n < 200; n++) {
        hth_expert_trace *made = NULL, *read = NULL;
        hth_alloc_fail_at(n + 1, 0);
        st = hth_expert_trace_new(o.model, N_TOK, &made, NULL);
        if (st == HEARTH_OK) st = hth_expert_trace_write(t, path_of(), NULL);
        if (st == HEARTH_OK) st = hth_expert_trace_open(path_of(), o.model, &read, NULL);
        hth_expert_counts all, by_layer[8];
        hth_expert_habits habits;
        if (st == HEARTH_OK) st = hth_expert_trace_replay(t, 0.4, by_layer, &all, NULL);
        if (st == HEARTH_OK) st = hth_expert_trace_habits(t, 1, &habits, NULL);
        hth_alloc_fail_at(0, 0);
        CHECK(st == HEARTH_OK || st == HEARTH_ERROR_MEMORY);
        hth_expert_trace_close(made);
        hth_expert_trace_close(read);
    }
    CHECK(n > 15 && st == HEARTH_OK);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(const hth_model *model, hearth_status status, const char *words, int line)
{
    CLOSED(hth_expert_trace) *t = NULL;
    hearth_error why = {0};
    hearth_status st = hth_expert_trace_open(path_of(), model, &t, &why);
    if (st != status || t || !strstr(why.message, words))
        test_fail(__FILE__, line, "status '%s', '%s'; expected '%s'", hearth_status_name(st), why.message, words);
}

/* One value of a trace is wrong. */
#define EXPECT_WRONG(CHANGE, WORDS)                                                                          \
    do {                                                                                                     \
        CLOSED(hth_expert_trace) *t = make(&o);                                                              \
        CHANGE;                                                                                              \
        CHECK_OK(hth_expert_trace_write(t, path_of(), err));                                                 \
        expect_refused(NULL, HEARTH_ERROR_FORMAT, WORDS, __LINE__);                                          \
    } while (0)

TEST(values_that_do_not_fit_are_refused_with_their_place)
{
    CLEANUP(close_mixture) opened o;
    if (!open_mixture(&o, "dots1")) return;
    EXPECT_WRONG(t->n_ctx = 36, "not whole chunks of 36");
    EXPECT_WRONG(t->n_ctx = 0, "hearth.trace.context");
    EXPECT_WRONG(t->n_ctx = 97, "hearth.trace.context");
    EXPECT_WRONG(t->layers[1].chosen[4] = 8, "expert 8 is not below 8");
    EXPECT_WRONG(t->layers[2].chosen[0] = 7, "'blk.2.experts'");
    EXPECT_WRONG(t->layers[1].n_expert = 2, "layer 1 uses 3 of 2");
    EXPECT_WRONG(t->layers[1].n_expert = 5000, "layer 1 uses 3 of 5000");
    EXPECT_WRONG(t->layers[1].n_expert = 0, "layer 1 uses 3 of 0");
    EXPECT_WRONG(t->layers[1].n_used = 0, "layer 1 uses 0 of 8");
    EXPECT_WRONG((t->layers[1] = t->layers[2] = t->layers[0]), "no layer has experts");
}

/* Each byte of a file: the trace is refused, or the byte says nothing. */
TEST(a_damaged_file_is_refused)
{
    CLEANUP(close_mixture) opened o;
    size_t n, n_harmless = 0;
    if (!open_mixture(&o, "dots1")) return;
    CLOSED(hth_expert_trace) *t = make(&o);
    CHECK_OK(hth_expert_trace_write(t, path_of(), err));
    FREED char *bytes = test_read_file(path_of(), &n);
    for (size_t i = 0; bytes && i < n; i++) {
        CLOSED(hth_expert_trace) *read = NULL;
        hearth_error why = {0};
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
        CHECK(test_write_file(path_of(), bytes, n));
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
        hearth_status st = hth_expert_trace_open(path_of(), NULL, &read, &why);
        if (st == HEARTH_OK) n_harmless++, check_equal(t, read);
        else CHECK(strstr(why.message, "experts.trace") && st != HEARTH_ERROR_MEMORY);
    }
    test_note("%zu of %zu bytes say nothing", n_harmless, n);
    CHECK(n_harmless < n / 8);
    for (size_t size = 0; bytes && size < n; size += 7) {
        CHECK(test_write_file(path_of(), bytes, size));
        hth_expert_trace *read;
        CHECK(hth_expert_trace_open(path_of(), NULL, &read, NULL) != HEARTH_OK);
    }
}

TEST(traces_of_other_models_and_other_files_are_refused)
{
    CLEANUP(close_mixture) opened o = {0}, other = {0};
    if (!open_mixture(&o, "dots1") || !open_mixture(&other, "qwen3moe")) return;
    CLOSED(hth_expert_trace) *t = make(&o), *none = NULL;
    CHECK_OK(hth_expert_trace_write(t, path_of(), err));
    expect_refused(other.model, HEARTH_ERROR_ARGUMENT, "the trace of another model", __LINE__);
    CHECK_FAILS(hth_expert_trace_check_shape(t, other.model, err), HEARTH_ERROR_ARGUMENT, "3 layers|has 2");
    t->layers[1].n_expert++;
    CHECK_FAILS(hth_expert_trace_check_shape(t, o.model, err), HEARTH_ERROR_ARGUMENT, "layer 1 |3 of 9|3 of 8");
    t->model_hash++, t->layers[1].n_expert--;
    CHECK_OK(hth_expert_trace_write(t, path_of(), err));
    expect_refused(o.model, HEARTH_ERROR_ARGUMENT, "the trace of another model", __LINE__);
    CHECK_FAILS(hth_expert_trace_open(o.g.model, NULL, &none, err), HEARTH_ERROR_UNSUPPORTED, "not 'hearth.trace'");
    CHECK_FAILS(hth_expert_trace_open("/no/such/trace", NULL, &none, err), HEARTH_ERROR_IO, "/no/such/trace");
    CHECK_FAILS(hth_expert_trace_new(o.model, 0, &none, err), HEARTH_ERROR_ARGUMENT, "0 tokens");
    CHECK_FAILS(hth_expert_trace_new(o.model, HTH_EXPERT_TRACE_MAX_TOK + 1, &none, err), HEARTH_ERROR_ARGUMENT, "65537");
}

TEST(models_without_experts_have_no_trace)
{
    CLEANUP(close_mixture) opened o;
    hth_expert_trace *none;
    if (!open_mixture(&o, "arcee")) return;
    CHECK_FAILS(hth_expert_trace_new(o.model, 8, &none, err), HEARTH_ERROR_UNSUPPORTED, "no experts");
}

/* ---- figures ---------------------------------------------------------------------------------- */

/* Two chunks of four tokens. Expert 0: six times; 1, 2, 3, 4: 4, 2, 2, 2; the others never. */
static uint16_t few[8][2] = {{0, 1}, {0, 2}, {0, 1}, {3, 4}, {0, 1}, {0, 3}, {1, 2}, {0, 4}};

TEST(figures_are_those_that_one_counts)
{
    hth_expert_trace_layer layers[2] = {{0}, {10, 2, few[0]}};
    const hth_expert_trace t = {.n_tok = 8, .n_ctx = 4, .n_layer = 2, .layers = layers};
    hth_expert_habits h;
    uint32_t n_use[10], chosen[2];
    hth_expert_trace_count(&t, 1, n_use);
    CHECK(n_use[0] == 6 && n_use[1] == 4 && n_use[2] == 2 && n_use[3] == 2 && n_use[4] == 2 && n_use[9] == 0);
    CHECK_OK(hth_expert_trace_habits(&t, 1, &h, err));
    CHECK(fabs(h.cover_10 - 6 / 16.0) < 1e-9 && fabs(h.cover_20 - 10 / 16.0) < 1e-9 && fabs(h.cover_40 - 14 / 16.0) < 1e-9);
    /* 0 0 | 0, of six pairs of tokens: 1 + 1 + 0, 1 + 0 + 0 of 2 experts each. */
    CHECK(fabs(h.sticky - 3 / 12.0) < 1e-9);
    /* 0: 1 1 2 1 2, 1: 2 2 2, 2: 5, 3: 2, 4: 4 */
    CHECK(h.reuse_distance == 2.0);
    hth_expert_trace_get((void *)(uintptr_t)&t, 1, 8 + 3, false, chosen);
    CHECK(chosen[0] == 3 && chosen[1] == 4);
}

TEST(hits_are_those_of_the_policy)
{
    CLEANUP(close_mixture) opened o;
    hth_expert_counts by_layer[3], all;
    if (!open_mixture(&o, "dots1")) return;
    CLOSED(hth_expert_trace) *t = make(&o);
    CHECK_OK(hth_expert_trace_replay(t, 1.0, by_layer, &all, err));
    CHECK(by_layer[0].n_pair == 0 && by_layer[1].n_pair == by_layer[2].n_pair);
    CHECK_INT(by_layer[1].n_pair, (N_TOK - N_TOK / 4) * t->layers[1].n_used);
    CHECK(all.n_hit == all.n_pair && all.n_pair == 2 * by_layer[1].n_pair);
    CHECK_OK(hth_expert_trace_replay(t, 0.4, by_layer, &all, err));
    CHECK(all.n_hit > all.n_pair / 4 && all.n_hit < all.n_pair && all.n_hit == by_layer[1].n_hit + by_layer[2].n_hit);
}
