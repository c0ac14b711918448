/* The number of threads of open sessions, batches and schedulers changes, and no bit with it. */
#include "base/pool.h"
#include "engine/batch_int.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

enum { N = 30, N_PART = 5, N_CTX = 64 };

static gguf_bytes file;
static hearth_model *model;
static int32_t ids[N];

static bool open_model(void)
{
    test_random r = {8};
    tiny_model m = tiny_new();
    tiny_pack(&m); /* a workspace with sums for each thread */
    file = tiny_take(&m);
    for (int i = 0; i < N; i++) ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, &model, err));
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

static hearth_session *open_session(uint32_t n_batch)
{
    return OPENED(hearth_session, model,
                  &(hearth_session_options){.n_ctx = N_CTX, .n_batch = n_batch, .n_thread = 1});
}

static void check_logits(const hearth_session *s)
{
    CLOSED(hearth_session) *fresh = open_session(8);
    CHECK_OK(hearth_session_eval(fresh, ids, N, err));
    if (CHECK(hearth_session_logits(s) != NULL))
        CHECK_BYTES(hearth_session_logits(s), hearth_session_logits(fresh), TINY_VOCAB * sizeof(float));
}

static const uint32_t numbers[] = {3, 1, 2, 2, 0, 4};

TEST(a_session_has_other_threads_and_the_same_bits)
{
    CLOSED(hearth_session) *s = open_session(8), *copy = NULL;
    for (int i = 0; i < N / N_PART; i++) {
        CHECK_OK(hearth_session_set_threads(s, numbers[i], err));
        CHECK_INT(hearth_session_n_thread(s), hth_pool_default_threads(numbers[i]));
        CHECK_INT(hearth_session_position(s), i * N_PART);
        CHECK_OK(hearth_session_eval(s, ids + i * N_PART, N_PART, err));
    }
    check_logits(s);
    CHECK_OK(hearth_session_set_threads(s, 3, err));
    check_logits(s);
    CHECK_OK(hearth_session_fork(s, &copy, err));
    CHECK_INT(hearth_session_n_thread(copy), 3);
}

TEST(numbers_that_are_not_possible_leave_the_threads)
{
    CLOSED(hearth_session) *s = open_session(8), *none = open_session(HEARTH_BATCH_NONE);
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, 8, 1);
    CHECK_FAILS(hearth_session_set_threads(s, 257, err), HEARTH_ERROR_ARGUMENT, "n_thread is 257");
    CHECK_FAILS(hearth_batch_set_threads(b, 257, err), HEARTH_ERROR_ARGUMENT, "n_thread is 257");
    CHECK_FAILS(hearth_session_set_threads(none, 2, err), HEARTH_ERROR_ARGUMENT, "HEARTH_BATCH_NONE");
    CHECK_INT(hearth_session_n_thread(s), 1);
    CHECK_INT(hearth_session_n_thread(none), 0);
    CHECK_INT(hth_pool_n_thread(b->pool), 1);
    for (uint64_t n = 1; n < 100; n++) { /* each allocation fails */
        hth_alloc_fail_at(n, 0);
        hearth_status st = hearth_session_set_threads(s, 2, NULL);
        hth_alloc_fail_at(0, 0);
        CHECK_INT(hearth_session_n_thread(s), st == HEARTH_OK ? 2 : 1);
        if (st == HEARTH_OK) {
            CHECK(n > 2);
            break;
        }
        CHECK_INT(st, HEARTH_ERROR_MEMORY);
    }
    CHECK_OK(hearth_session_eval(s, ids, N, err));
    check_logits(s);
}

TEST(a_batch_keeps_its_sessions)
{
    CLOSED(hearth_session) *s = open_session(HEARTH_BATCH_NONE);
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, N, 1);
    CHECK_OK(hearth_batch_add(b, s, ids, N, err));
    CHECK_OK(hearth_batch_set_threads(b, 3, err));
    CHECK_INT(hth_pool_n_thread(b->pool), 3);
    CHECK_OK(hearth_batch_run(b, err));
    check_logits(s);
}

TEST(probes_and_cancellation_stay)
{
    double share[TINY_LAYERS];
    CLOSED(hearth_session) *s = open_session(8);
    hearth_session_enable_sparsity_stats(s, true);
    CHECK_OK(hearth_session_set_threads(s, 2, err));
    hearth_session_cancel(s);
    CHECK_INT(hearth_session_eval(s, ids, N, NULL), HEARTH_ERROR_CANCELLED);
    CHECK_OK(hearth_session_eval(s, ids, N, err));
    CHECK(hearth_session_sparsity_stats(s, share) >= N);
    check_logits(s);
}

TEST(what_is_counted_of_a_limit_of_memory_is_given_back)
{
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, 8, 1);
    CLOSED(hearth_session) *s = open_session(8);
    uint64_t with_one = model->budget.sessions;
    CHECK_OK(hearth_session_set_threads(s, 4, err));
    CHECK_OK(hearth_batch_set_threads(b, 4, err));
    CHECK(model->budget.sessions > with_one);
    const hearth_session_options four = {.n_ctx = N_CTX, .n_batch = 8, .n_thread = 4};
    CHECK_INT(s->size, hearth_session_bytes(model, &four));
    CHECK_OK(hearth_session_set_threads(s, 1, err));
    CHECK_OK(hearth_batch_set_threads(b, 1, err));
    CHECK_INT(model->budget.sessions, with_one);
    hearth_session_close(s), s = NULL;
    hearth_batch_close(b), b = NULL;
    CHECK_INT(model->budget.sessions, 0);
}

/* ---- drafts and requests ------------------------------------------------------------------------------------ */

typedef struct text {
    int32_t tokens[40];
    uint32_t n;
    hearth_scheduler *within; /* where its function tries to change threads */
    hearth_status tried;
} text;

static bool note_token(void *user, const hearth_request_event *event)
{
    text *t = user;
    if (event->state == HEARTH_REQUEST_TOKEN && t->n < 40) t->tokens[t->n++] = event->token;
    if (t->within) t->tried = hearth_scheduler_set_threads(t->within, 2, NULL);
    return true;
}

/* Tokens of a request, with other threads before each step. */
static text generate(bool changes)
{
    text t = {0};
    hearth_scheduler *s = NULL;
    uint64_t id;
    const hearth_draft_options draft = {.n_draft = 4, .model = model};
    CHECK_OK(hearth_scheduler_open(
        model, &(hearth_scheduler_options){.n_ctx = N_CTX, .n_thread = 1, .draft = draft}, &s, err));
    const hearth_request r = {
        .tokens = ids, .n_token = 10, .max_token = 20, .ignore_end = true, .fn = note_token, .user = &t};
    CHECK_OK(hearth_scheduler_add(s, &r, &id, err));
    t.within = changes ? s : NULL;
    for (int i = 0; test_step(s); i++)
        if (changes) CHECK_OK(hearth_scheduler_set_threads(s, numbers[i % 6], err));
    if (changes) CHECK_INT(t.tried, HEARTH_ERROR_ARGUMENT);
    hearth_scheduler_close(s);
    t.within = NULL;
    return t;
}

TEST(a_scheduler_has_other_threads_and_the_same_texts)
{
    text a = generate(false), b = generate(true);
    CHECK_INT(a.n, 20);
    if (CHECK_INT(b.n, a.n)) CHECK_BYTES(a.tokens, b.tokens, sizeof a.tokens);
}

TEST(a_model_of_drafts_gets_the_threads_too)
{
    CLOSED(hearth_session) *s = open_session(8);
    CHECK_OK(hearth_session_use_drafts(s, &(hearth_draft_options){.n_draft = 4, .model = model}, NULL, err));
    const hearth_batch *drafts = s->drafts->drafter->batch;
    CHECK_INT(hth_pool_n_thread(drafts->pool), 1);
    CHECK_OK(hearth_session_set_threads(s, 3, err));
    CHECK_INT(hth_pool_n_thread(drafts->pool), 3);
    for (int i = 0; i < N; i++) CHECK_OK(hearth_session_eval(s, ids + i, 1, err));
    check_logits(s);
}
