/* Contexts of several splits: the logits are the same however the rows come together, in
 * whole jobs or split by split, for every number of threads, level and type of cache. */
#include "support/engine.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

#define MODEL HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"
enum { N = 620, N_TAIL = 6, STORY_VOCAB = 2048 };

/* A model and the ids that are fed to it; expected are the logits of all of them. */
typedef struct fixture {
    const char *name;
    hearth_model *model;
    hearth_kv_type kv;
    int32_t ids[N];
    size_t n_vocab;
    float *expected; /* [N][n_vocab] */
} fixture;

static void open_fixture(fixture *f, hearth_kv_type kv, uint32_t n_vocab)
{
    const engine_setting plain = {.n_thread = 1, .n_batch = 256, .kv = kv};
    test_random r = {23};
    f->kv = kv, f->n_vocab = n_vocab;
    for (int i = 0; i < N; i++) f->ids[i] = (int32_t)test_random_below(&r, n_vocab);
    f->expected = engine_model_logits(f->model, &plain, f->ids, N);
}

static void expect_row(const fixture *f, const hearth_session *s, uint32_t n, const char *how)
{
    const float *logits = hearth_session_logits(s), *expected = f->expected + (n - 1) * f->n_vocab;
    if (!logits || hearth_session_position(s) != n || memcmp(logits, expected, f->n_vocab * sizeof *logits) != 0)
        test_fail(__FILE__, __LINE__, "%s, kv %d: other logits after %u tokens, %s", f->name, (int)f->kv, n, how);
}

static hearth_session *open_session(const fixture *f, uint32_t n_batch, uint32_t n_thread)
{
    return OPENED(hearth_session, f->model,
        &(hearth_session_options){.n_ctx = N, .n_batch = n_batch, .n_thread = n_thread, .kv = f->kv});
}

/* Batches around the sizes at which work is cut in another way, then token by token. */
static void check_cuts(const fixture *f)
{
    static const uint32_t batches[] = {16, 17, 600};
    for (uint32_t n_thread = 1; n_thread <= 3; n_thread++)
        for (size_t i = n_thread % 2; i < sizeof batches / sizeof *batches; i++) {
            CLOSED(hearth_session) *s = open_session(f, batches[i], n_thread);
            CHECK_OK(hearth_session_eval(s, f->ids, N - N_TAIL, err));
            expect_row(f, s, N - N_TAIL, "fed in batches");
            for (uint32_t n = N - N_TAIL; n < N; n++) {
                CHECK_OK(hearth_session_eval(s, f->ids + n, 1, err));
                expect_row(f, s, n + 1, "one by one");
            }
            /* what stood there before must leave no trace */
            CHECK_OK(hearth_session_truncate(s, 250, err));
            CHECK_OK(hearth_session_eval(s, f->ids + 250, 12, err));
            expect_row(f, s, 262, "after going back");
        }
}

/* Rows of sessions at different places in one step: up to 16 go split by split. */
static void check_parallel(const fixture *f)
{
    enum { N_SESSION = 5 };
    static const uint32_t starts[N_SESSION] = {3, 255, 256, 511, 600}, more[N_SESSION] = {2, 1, 4, 3, 1};
    for (uint32_t n_thread = 2; n_thread <= 3; n_thread++) {
        hearth_session *s[N_SESSION];
        CLOSED(hearth_batch) *b = OPENED(hearth_batch, f->model, 16, n_thread);
        for (int i = 0; i < N_SESSION; i++) {
            s[i] = open_session(f, 256, 1);
            CHECK_OK(hearth_session_eval(s[i], f->ids, starts[i], err));
        }
        for (int i = 0; i < N_SESSION; i++) CHECK_OK(hearth_batch_add(b, s[i], f->ids + starts[i], more[i], err));
        CHECK_OK(hearth_batch_run(b, err));
        for (int i = 0; i < N_SESSION; i++) {
            expect_row(f, s[i], starts[i] + more[i], "in company");
            hearth_session_close(s[i]);
        }
    }
}

static void check_tiny(const char *architecture, const char *window_key, hearth_kv_type kv)
{
    fixture f = {.name = architecture};
    tiny_model m = tiny_new();
    if (window_key) {
        tiny_become(&m, architecture);
        tiny_set_u32(&m, window_key, 270);
    }
    CLEANUP(gguf_free) gguf_bytes file = tiny_take(&m);
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny", NULL, &f.model, err));
    open_fixture(&f, kv, TINY_VOCAB);
    if (f.expected) {
        check_cuts(&f);
        check_parallel(&f);
    }
    free(f.expected);
    hearth_model_close(f.model);
}

TEST(long_contexts_do_not_depend_on_how_rows_come_together)
{
    check_tiny("llama", NULL, HEARTH_KV_F16);
    check_tiny("llama", NULL, HEARTH_KV_F32);
}

TEST(long_contexts_with_windows_and_caps_do_not_either)
{
    check_tiny("gemma2", "gemma2.attention.sliding_window", HEARTH_KV_F16);
    check_tiny("gemma2", "gemma2.attention.sliding_window", HEARTH_KV_F32);
}

/* 16 rows over five splits: more than there is space for at once, so two waves are merged. */
TEST(splits_in_several_waves_do_not_either)
{
    enum { N_FED = 69 * 16 };
    const engine_setting whole = {.n_thread = 2, .n_batch = 300}, split = {.n_thread = 2, .n_batch = 16};
    int32_t ids[N_FED];
    tiny_model m;
    test_random r = {31};
    tiny_begin(&m);
    CLEANUP(gguf_free) gguf_bytes file = tiny_take(&m);
    for (int i = 0; i < N_FED; i++) ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open_memory, hearth_model, file.data, file.n, "tiny", NULL);
    FREED float *expected = engine_last_logits(model, &whole, ids, N_FED);
    FREED float *logits = engine_last_logits(model, &split, ids, N_FED);
    if (expected && logits) CHECK_BYTES(logits, expected, TINY_VOCAB * sizeof *logits);
}

TEST(rounded_caches_do_not_either)
{
    fixture f = {.name = "storyteller"};
    CHECK_OK(hearth_model_open(MODEL, NULL, &f.model, err));
    open_fixture(&f, HEARTH_KV_Q8_0, STORY_VOCAB);
    if (f.expected) check_parallel(&f);
    hearth_session *s = open_session(&f, 64, 2);
    CHECK_OK(hearth_session_eval(s, f.ids, 300 - N_TAIL, err));
    for (uint32_t n = 300 - N_TAIL; n < 300; n++) {
        CHECK_OK(hearth_session_eval(s, f.ids + n, 1, err));
        expect_row(&f, s, n + 1, "one by one");
    }
    hearth_session_close(s);
    free(f.expected);
    hearth_model_close(f.model);
}

/* The logits of the last token, at every level; the types of cache must differ, or one of them was not used. */
TEST(levels_agree_on_every_type_of_cache)
{
    enum { N_FED = 262 };
    const char *levels[ENGINE_MAX_LEVELS];
    size_t n_level = engine_levels(levels);
    float *first[3] = {NULL};
    int32_t ids[N_FED];
    test_random r = {29};
    for (int i = 0; i < N_FED; i++) ids[i] = (int32_t)test_random_below(&r, STORY_VOCAB);
    for (size_t l = 0; l < n_level; l++) {
        engine_set_cpu(levels[l]);
        CLOSED(hearth_model) *model = OPENED(hearth_model, MODEL, NULL);
        engine_set_cpu(NULL);
        for (int kv = 0; kv < 3; kv++) {
            engine_setting s = {.n_thread = 2, .n_batch = 64, .kv = (hearth_kv_type)kv};
            float *logits = engine_last_logits(model, &s, ids, N_FED);
            if (l > 0 && logits && memcmp(logits, first[kv], STORY_VOCAB * sizeof *logits) != 0)
                test_fail(__FILE__, __LINE__, "kv %d at %s: other logits than at %s", kv, levels[l], levels[0]);
            if (l == 0) first[kv] = logits;
            else free(logits);
        }
    }
    for (int kv = 0; kv < 3; kv++)
        if (first[kv] && first[(kv + 1) % 3])
            CHECK(memcmp(first[kv], first[(kv + 1) % 3], STORY_VOCAB * sizeof **first) != 0);
    if (first[0] && first[2]) /* an approximation, but one of the same thing */
        CHECK(engine_rms_error(first[2], first[1], STORY_VOCAB) < 0.05);
    for (int kv = 0; kv < 3; kv++) free(first[kv]);
}

/* ---- refusals --------------------------------------------------------------------------------- */

TEST(a_cache_that_does_not_fit_the_heads_is_refused_with_what_to_do)
{
    tiny_model m; /* heads of 8 */
    hearth_error why = {0};
    hearth_session *s = NULL;
    tiny_begin(&m);
    CLEANUP(gguf_free) gguf_bytes file = tiny_take(&m);
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open_memory, hearth_model, file.data, file.n, "tiny", NULL);
    hearth_session_options o = {.n_ctx = 16, .n_batch = 4, .n_thread = 1, .kv = HEARTH_KV_Q8_0};
    CHECK_INT(hearth_session_open(model, &o, &s, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(strstr(why.message, "heads of 8") && strstr(why.message, "hearth_session_options.kv F16") &&
          !strchr(why.message, '\n'));
    CHECK_INT(hearth_session_bytes(model, &o), 0);
    o.kv = (hearth_kv_type)3;
    CHECK_FAILS(hearth_session_open(model, &o, &s, err), HEARTH_ERROR_ARGUMENT, "kv is 3");
    CHECK_INT(hearth_session_bytes(model, &o), 0);
    o.kv = HEARTH_KV_F16;
    CHECK(hearth_session_bytes(model, &o) > 0);
}

static bool count_calls(void *user, uint64_t done, uint64_t total)
{
    ++*(int *)user;
    return true;
}

/* Of 13 TB. */
TEST(a_context_without_memory_is_refused_before_weights_are_read)
{
    hearth_model *model = NULL;
    hearth_error why = {0};
    int n_call = 0;
    hearth_model_options o = {.n_thread = 1, .progress = count_calls, .progress_user = &n_call};
    o.gpu.n_ctx = UINT32_MAX / 2;
    hearth_status st = hearth_model_open(MODEL, &o, &model, &why);
    if (st == HEARTH_OK) { /* vm.overcommit_memory is 1 */
        hearth_model_close(model);
        test_skip("this machine grants memory that it does not have");
        return;
    }
    CHECK_INT(st, HEARTH_ERROR_MEMORY);
    CHECK(strstr(why.message, "for a context of 2147483647 positions, and this machine has ") != NULL);
    CHECK(strstr(why.message, "; the model was trained for 512: ask for less with n_ctx") != NULL);
    CHECK_INT(n_call, 0);
    o.gpu.n_ctx = 64;
    CHECK_OK(hearth_model_open(MODEL, &o, &model, err));
    CHECK(n_call > 0);
    hearth_model_close(model);
}
