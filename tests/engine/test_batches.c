/* The logits do not depend on how a text is divided into calls or on the other sequences of the batch, and a session
 * keeps its position after every call that fails. */
#include "support/engine.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

enum { N = 48 };

static const engine_setting plain = {.n_thread = 1, .n_batch = 64, .kv = HEARTH_KV_F16};

typedef struct fixture {
    gguf_bytes file;
    hearth_model *model;
    int32_t ids[N];
    float *expected; /* [N][TINY_VOCAB] */
} fixture;

/* Attention alone, then each kind of recurrent layer. */
static const char *const architectures[] = {"llama",  "lfm2",      "qwen35", "mamba2", "falcon-h1", "nemotron_h",
                                            "jamba", "plamo2"};
enum { N_ARCHITECTURE = sizeof architectures / sizeof *architectures };

static fixture open_fixture_of(const char *architecture)
{
    fixture made = {0}, *f = &made;
    tiny_model m;
    test_random r = {7};
    tiny_begin(&m);
    if (strcmp(architecture, "llama") != 0) tiny_become(&m, architecture);
    f->file = tiny_take(&m);
    for (int i = 0; i < N; i++) f->ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    CHECK_OK(hearth_model_open_memory(f->file.data, f->file.n, "tiny", NULL, &f->model, err));
    f->expected = engine_model_logits(f->model, &plain, f->ids, N);
    return made;
}

static fixture open_fixture(void) { return open_fixture_of("llama"); }

static void close_fixture(fixture *f)
{
    free(f->expected);
    hearth_model_close(f->model);
    gguf_free(&f->file);
}

static hearth_session *open_session(const fixture *f, uint32_t n_ctx, uint32_t n_batch)
{
    return OPENED(hearth_session, f->model,
        &(hearth_session_options){.n_ctx = n_ctx, .n_batch = n_batch, .n_thread = 2});
}

/* The session stands behind the first n tokens with the logits that they give. */
static void expect_at(const fixture *f, const hearth_session *s, uint32_t n)
{
    if (!CHECK_INT(hearth_session_position(s), n) || !CHECK(hearth_session_logits(s) != NULL)) return;
    CHECK_BYTES(hearth_session_logits(s), f->expected + (n - 1) * TINY_VOCAB, TINY_VOCAB * sizeof(float));
}

/* ---- cutting ------------------------------------------------------------------------------ */

TEST(random_pieces_give_the_bits_of_the_whole)
{
    test_random r = {11};
    for (int round = 0; round < 20 * N_ARCHITECTURE; round++) {
        CLEANUP(close_fixture) fixture f = open_fixture_of(architectures[round % N_ARCHITECTURE]);
        CLOSED(hearth_session) *s = open_session(&f, N, 1 + test_random_below(&r, 12));
        for (uint32_t at = 0; at < N;) {
            uint32_t n = 1 + test_random_below(&r, N - at);
            CHECK_OK(hearth_session_eval(s, f.ids + at, n, err));
            expect_at(&f, s, at += n);
        }
    }
}

TEST(truncated_and_redone_gives_the_same_bits)
{
    test_random r = {13};
    CLEANUP(close_fixture) fixture f = open_fixture();
    CLOSED(hearth_session) *s = open_session(&f, N, 16);
    for (int round = 0; round < 20; round++) {
        uint32_t at = hearth_session_position(s), back = at ? test_random_below(&r, at + 1) : 0;
        CHECK_OK(hearth_session_truncate(s, back, err));
        if (back < at) CHECK(hearth_session_logits(s) == NULL);
        int32_t other[4] = {3, 1, 4, 1};
        uint32_t left = N - back;
        CHECK_OK(hearth_session_eval(s, other, left < 4 ? left : 4, err)); /* what must leave no trace */
        CHECK_OK(hearth_session_truncate(s, back, err));
        uint32_t n = 1 + test_random_below(&r, left ? left : 1);
        if (left == 0) continue;
        CHECK_OK(hearth_session_eval(s, f.ids + back, n, err));
        expect_at(&f, s, back + n);
    }
    CHECK_INT(hearth_session_truncate(s, hearth_session_position(s) + 1, NULL), HEARTH_ERROR_ARGUMENT);
}

static hearth_status stop_at_third(void *user, size_t i, const float *logits, hearth_error *err)
{
    *(size_t *)user = i;
    return i == 2 ? HEARTH_ERROR_CANCELLED : HEARTH_OK;
}

TEST(a_callback_that_ends_eval_each_leaves_the_position)
{
    size_t last = 0;
    CLEANUP(close_fixture) fixture f = open_fixture();
    CLOSED(hearth_session) *s = open_session(&f, N, 4);
    CHECK_OK(hearth_session_eval(s, f.ids, 5, err));
    CHECK_INT(hearth_session_eval_each(s, f.ids + 5, 10, stop_at_third, &last, NULL), HEARTH_ERROR_CANCELLED);
    CHECK_INT(last, 2);
    CHECK_INT(hearth_session_position(s), 5);
    CHECK_OK(hearth_session_eval(s, f.ids + 5, 1, err));
    expect_at(&f, s, 6);
}

/* ---- company -------------------------------------------------------------------------------- */

/* Five sessions over the same ids at different places: some get one token, some many. */
TEST(company_in_a_batch_changes_no_bit)
{
    enum { N_SESSION = 5 };
    test_random r = {17};
    for (uint32_t round = 0; round < 3 * N_ARCHITECTURE; round++) {
        uint32_t n_thread = 1 + round % 3;
        CLEANUP(close_fixture) fixture f = open_fixture_of(architectures[round / 3]);
        hearth_session *s[N_SESSION];
        CLOSED(hearth_batch) *b = OPENED(hearth_batch, f.model, 64, n_thread);
        for (int i = 0; i < N_SESSION; i++) s[i] = open_session(&f, N, HEARTH_BATCH_NONE);
        for (bool more = true; more;) {
            uint32_t to[N_SESSION];
            more = false;
            for (int i = 0; i < N_SESSION; i++) {
                uint32_t at = hearth_session_position(s[i]), left = N - at;
                uint32_t n = i % 2 ? 1 : 1 + test_random_below(&r, 12);
                to[i] = at + (n < left ? n : left);
                if (to[i] == at) continue;
                more = true;
                CHECK_OK(hearth_batch_add(b, s[i], f.ids + at, to[i] - at, err));
            }
            CHECK_OK(hearth_batch_run(b, err));
            for (int i = 0; i < N_SESSION; i++) expect_at(&f, s[i], to[i]);
        }
        for (int i = 0; i < N_SESSION; i++) hearth_session_close(s[i]);
    }
}

TEST(a_session_closed_while_it_waits_leaves_its_batch)
{
    CLEANUP(close_fixture) fixture f = open_fixture();
    CLOSED(hearth_session) *stays = open_session(&f, N, HEARTH_BATCH_NONE);
    hearth_session *goes = open_session(&f, N, HEARTH_BATCH_NONE);
    hearth_batch *batch = OPENED(hearth_batch, f.model, 16, 2);
    CHECK_OK(hearth_batch_add(batch, goes, f.ids, 5, err));
    CHECK_OK(hearth_batch_add(batch, stays, f.ids, 7, err));
    hearth_session_close(goes);
    CLOSED(hearth_session) *comes = open_session(&f, N, HEARTH_BATCH_NONE);
    CHECK_OK(hearth_batch_add(batch, comes, f.ids, 16 - 7, err)); /* all the room that is left */
    CHECK_OK(hearth_batch_run(batch, err));
    expect_at(&f, stays, 7);
    expect_at(&f, comes, 16 - 7);
    CLOSED(hearth_session) *again = open_session(&f, N, HEARTH_BATCH_NONE);
    CHECK_OK(hearth_batch_add(batch, again, f.ids, 5, err));
    hearth_batch_close(batch);
    CHECK_INT(hearth_session_position(again), 0);
}

TEST(a_batch_refuses_what_it_cannot_hold)
{
    CLEANUP(close_fixture) fixture f = open_fixture();
    hearth_session *a = open_session(&f, 8, 4), *c = open_session(&f, 64, 4);
    CLOSED(hearth_batch) *b = NULL;
    CHECK_INT(hearth_batch_open(f.model, 0, 1, &b, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_OK(hearth_batch_open(f.model, 10, 1, &b, err));
    CHECK_INT(hearth_batch_add(b, a, f.ids, 0, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_batch_add(b, a, f.ids, 9, NULL), HEARTH_ERROR_CONTEXT);
    CHECK_INT(hearth_batch_add(b, c, f.ids, 11, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_OK(hearth_batch_add(b, a, f.ids, 3, err));
    CHECK_INT(hearth_batch_add(b, a, f.ids, 1, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_session_eval(a, f.ids, 1, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_session_truncate(a, 0, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_OK(hearth_batch_run(b, err));
    expect_at(&f, a, 3);
    CHECK_OK(hearth_batch_run(b, err)); /* empty: nothing to do */
    hearth_session_close(a);
    hearth_session_close(c);
}

/* ---- refusals ----------------------------------------------------------------------------------- */

TEST(a_full_context_says_so_and_keeps_its_place)
{
    CLEANUP(close_fixture) fixture f = open_fixture();
    CLOSED(hearth_session) *s = open_session(&f, 16, 4);
    CHECK_OK(hearth_session_eval(s, f.ids, 10, err));
    CHECK_FAILS(hearth_session_eval(s, f.ids + 10, 7, err), HEARTH_ERROR_CONTEXT,
                "do not fit|a context of 16; raise n_ctx");
    expect_at(&f, s, 10);
    CHECK_OK(hearth_session_eval(s, f.ids + 10, 6, err));
    expect_at(&f, s, 16);
    CHECK_INT(hearth_session_eval(s, f.ids, 1, NULL), HEARTH_ERROR_CONTEXT);
    expect_at(&f, s, 16);
}

TEST(tokens_outside_the_vocabulary_are_refused_by_number)
{
    static const int32_t bad[] = {-1, TINY_VOCAB, INT32_MAX, INT32_MIN};
    CLEANUP(close_fixture) fixture f = open_fixture();
    CLOSED(hearth_session) *s = open_session(&f, 16, 4);
    CHECK_OK(hearth_session_eval(s, f.ids, 2, err));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t ids[] = {5, bad[i]};
        CHECK_FAILS(hearth_session_eval(s, ids, 2, err), HEARTH_ERROR_ARGUMENT, "tokens[1] is|0 to 266");
        expect_at(&f, s, 2);
    }
}

TEST(a_session_for_batches_does_not_step_itself)
{
    CLEANUP(close_fixture) fixture f = open_fixture();
    CLOSED(hearth_session) *s = open_session(&f, 16, HEARTH_BATCH_NONE);
    CHECK_INT(hearth_session_eval(s, f.ids, 1, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK(hearth_session_logits(s) == NULL);
}

/* ---- weights that are not finite ------------------------------------------------------------------- */

/* The tiny model with the first weight of a tensor replaced. */
static hearth_status open_spoiled(const char *tensor, uint32_t bits, gguf_bytes *file, hearth_model **model,
                                  hearth_error *why)
{
    tiny_model m = tiny_new();
    *file = tiny_write(&m);
    gguf_patch(file, tiny_data_at(&m, tensor), bits, 4);
    tiny_free(&m);
    return hearth_model_open_memory(file->data, file->n, "spoiled.gguf", NULL, model, why);
}

static const uint32_t not_finite[] = {0x7fc00000, 0x7f800000, 0xff800000}; /* NaN, +-infinity */

TEST(a_matrix_that_is_not_finite_ends_in_a_numeric_error)
{
    static const char *const tensors[] = {"token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_down.weight",
                                          "output.weight"};
    static const int32_t ids[] = {0, 5};
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++)
        for (size_t i = 0; i < 3; i++) {
            CLEANUP(gguf_free) gguf_bytes file;
            CLOSED(hearth_model) *model = NULL;
            hearth_error why = {0};
            CHECK_INT(open_spoiled(tensors[t], not_finite[i], &file, &model, &why), HEARTH_OK);
            CLOSED(hearth_session) *s = OPENED(hearth_session, model, NULL);
            if (hearth_session_eval(s, ids, 2, &why) != HEARTH_ERROR_NUMERIC)
                test_fail(__FILE__, __LINE__, "%s with %08x: no numeric error", tensors[t], not_finite[i]);
            CHECK(strstr(why.message, "spoiled.gguf") && strstr(why.message, "not finite"));
            CHECK_INT(hearth_session_position(s), 0);
        }
}
