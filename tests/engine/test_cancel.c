/* Evaluations that a flag ends: the session stays where it was, and goes on with the bits of one that was never
 * cancelled. */
#include "engine/engine.h"
#include "forward/forward_int.h"
#include "support/device/hybrid.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

enum { N = 12, N_BEFORE = 5 };
static const int32_t ids[N] = {1, 60, 70, 80, 90, 100, 110, 120, 61, 71, 81, 91};
static volatile int cancel;

/* architecture NULL: llama */
static hearth_model *open_tiny(const char *architecture, gguf_bytes *file)
{
    hearth_model_options o = hearth_model_defaults();
    o.cancel = &cancel;
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    if (architecture) tiny_become(&m, architecture);
    *file = tiny_write(&m);
    hearth_model *model = OPENED_BY(hearth_model_open_memory, hearth_model, file->data, file->n, "tiny.gguf", &o);
    return model;
}

static hearth_session *open_session(const hearth_model *model, uint32_t n_thread)
{
    return OPENED(hearth_session, model,
        &(hearth_session_options){.n_ctx = 16, .n_batch = 4, .n_thread = n_thread, .kv = HEARTH_KV_F16});
}

static hearth_status cancel_at_6(void *user, size_t i, const float *logits, hearth_error *err)
{
    size_t *n_given = user;
    *n_given = i + 1;
    if (i == 6) cancel = 1;
    return HEARTH_OK;
}

TEST(a_cancelled_evaluation_leaves_the_session_as_it_was)
{
    gguf_bytes file;
    hearth_model *model = open_tiny(NULL, &file);
    float expected[TINY_VOCAB];
    for (uint32_t n_thread = 1; model && n_thread <= 3; n_thread++) {
        hearth_error why = {0};
        size_t n_given = 0;
        hearth_session *plain = open_session(model, n_thread), *s = open_session(model, n_thread);
        if (!plain || !s) return;
        CHECK_OK(hearth_session_eval(plain, ids, N, err));
        memcpy(expected, hearth_session_logits(plain), sizeof expected);
        CHECK_OK(hearth_session_eval(s, ids, N_BEFORE, err));
        cancel = 1;
        CHECK_FAILS(hearth_session_eval(s, ids + N_BEFORE, N - N_BEFORE, err), HEARTH_ERROR_CANCELLED, "interrupted");
        CHECK_INT(hearth_session_position(s), N_BEFORE);
        cancel = 0;
        CHECK_OK(hearth_session_truncate(s, 0, err)); /* in the midst of a text: none of it counts */
        CHECK_INT(hearth_session_eval_each(s, ids, N, cancel_at_6, &n_given, &why), HEARTH_ERROR_CANCELLED);
        CHECK_INT(n_given, 8); /* the batch that was under way was given */
        CHECK_INT(hearth_session_position(s), 0);
        cancel = 0;
        CHECK_OK(hearth_session_eval(s, ids, N, err));
        CHECK_BYTES(hearth_session_logits(s), expected, sizeof expected);
        hearth_session_close(plain);
        hearth_session_close(s);
    }
    hearth_model_close(model);
    gguf_free(&file);
}

/* ---- within a product ----------------------------------------------------------------------------------------- */

/* Kernels whose n-th call of an axpy, or of a kernel of experts, sets the flag. */
static const hth_kernels *whole;
static uint32_t n_call, cancel_call;

static void count_call(void)
{
    if (__atomic_add_fetch(&n_call, 1, __ATOMIC_RELAXED) == cancel_call) __atomic_store_n(&cancel, 1, __ATOMIC_RELAXED);
}

static void axpy_f16(const hth_axpy_job *job) { count_call(), whole->axpy[HTH_TYPE_F16](job); }
static void axpy_q4_0(const hth_axpy_job *job) { count_call(), whole->axpy[HTH_TYPE_Q4_0](job); }

/* Of routers and gates of shared experts, of the choice, of an expert's activation, of the sums over experts. */
static void dot_rows(const float *w, size_t n_row, size_t n_col, const float *x, float *y)
{
    count_call(), whole->dot_rows(w, n_row, n_col, x, y);
}
static void softmax(float *x, size_t n) { count_call(), whole->softmax(x, n); }
static void activate(const float *gate, const float *up, size_t n, float *y)
{
    count_call(), whole->activate[HTH_ACTIVATION_SILU](gate, up, n, y);
}
static bool flush_chain(size_t n, float *chain, int64_t *sums)
{
    return count_call(), whole->axpy_flush_chain(n, chain, sums);
}

/* A step of n_tok tokens that ends at every call of such a kernel, then whole. */
static void cancel_everywhere(const hearth_model *model, uint32_t n_thread, uint32_t n_tok, const float *expected)
{
    hth_kernels counting;
    bool was_cancelled = true;
    CLOSED(hearth_session) *s = open_session(model, n_thread);
    if (!s) return;
    hth_step *step = hth_session_step(s);
    whole = step->k, counting = *whole;
    counting.axpy[HTH_TYPE_F16] = axpy_f16, counting.axpy[HTH_TYPE_Q4_0] = axpy_q4_0;
    if (!hth_model_is_dense(model->model)) {
        counting.dot_rows = dot_rows, counting.softmax = softmax, counting.axpy_flush_chain = flush_chain;
        counting.activate[HTH_ACTIVATION_SILU] = activate;
    }
    step->k = &counting, cancel_call = 0;
    CHECK_OK(hearth_session_eval(s, ids, N - n_tok, err));
    for (cancel_call = 1; was_cancelled && cancel_call < 1000; cancel_call++) {
        hearth_error why;
        n_call = 0;
        was_cancelled = hearth_session_eval(s, ids + N - n_tok, n_tok, &why) != HEARTH_OK;
        if (was_cancelled) CHECK_INT(hearth_session_position(s), N - n_tok);
        cancel = 0;
    }
    CHECK(cancel_call > 2);
    CHECK_BYTES(hearth_session_logits(s), expected, test_model_info(model).n_vocab * sizeof *expected);
    step->k = whole;
}

static void check_packed(const char *path)
{
    const hearth_model_options o = {.n_thread = 2, .cancel = &cancel};
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    CLOSED(hearth_session) *plain = model ? open_session(model, 1) : NULL;
    if (!plain) return;
    CHECK_OK(hearth_session_eval(plain, ids, N, err));
    for (uint32_t n_thread = 1; n_thread <= 3; n_thread++)
        for (uint32_t n_tok = 1; n_tok <= 4; n_tok += 3)
            cancel_everywhere(model, n_thread, n_tok, hearth_session_logits(plain));
}

TEST(a_step_that_is_cancelled_within_a_transposed_down_leaves_no_sums)
{
    const char *quantised = test_scratch("quantised.gguf"), *floats = test_scratch("floats.gguf");
    if (hybrid_pack_storyteller("Q4_0", quantised)) check_packed(quantised);
    if (hybrid_pack_floats("bamboo", floats)) check_packed(floats);
}

/* qwen2moe has a shared expert with a gate, dots1 a dense layer before its experts. */
TEST(a_step_that_is_cancelled_within_experts_can_be_repeated)
{
    static const char *const architectures[] = {"qwen2moe", "dots1"};
    for (int i = 0; i < 2; i++) {
        CLEANUP(gguf_free) gguf_bytes file = {0};
        CLOSED(hearth_model) *model = open_tiny(architectures[i], &file);
        CLOSED(hearth_session) *plain = model ? open_session(model, 1) : NULL;
        if (!plain) return;
        CHECK_OK(hearth_session_eval(plain, ids, N, err));
        for (uint32_t n_thread = 1; n_thread <= 3; n_thread++)
            for (uint32_t n_tok = 1; n_tok <= 4; n_tok += 3)
                cancel_everywhere(model, n_thread, n_tok, hearth_session_logits(plain));
    }
}

/* The file of a session whose step of three tokens was cancelled at a call of an activation (0: there was none), and
 * that went on with one token. */
static char *save_after_cancel(const hearth_model *model, uint32_t call, size_t *n, bool *was_cancelled)
{
    const char *path = test_scratch("session");
    hth_kernels counting;
    hearth_error why;
    CLOSED(hearth_session) *s = open_session(model, 1);
    if (!s) return NULL;
    hth_step *step = hth_session_step(s);
    whole = step->k, counting = *whole;
    counting.activate[HTH_ACTIVATION_SILU] = activate;
    CHECK_OK(hearth_session_eval(s, ids, N_BEFORE, err));
    step->k = &counting, n_call = 0, cancel_call = call;
    *was_cancelled = call > 0 && hearth_session_eval(s, ids + N_BEFORE, 3, &why) != HEARTH_OK;
    step->k = whole, cancel = 0;
    CHECK_OK(hearth_session_truncate(s, N_BEFORE, err));
    CHECK_OK(hearth_session_eval(s, ids + N_BEFORE, 1, err));
    CHECK_OK(hearth_session_save(s, path, err));
    return test_read_file(path, n);
}

TEST(a_saved_session_has_nothing_of_a_cancelled_step)
{
    CLEANUP(gguf_free) gguf_bytes file = {0};
    CLOSED(hearth_model) *model = open_tiny("qwen35", &file);
    size_t n[2];
    bool was_cancelled = false;
    FREED char *plain = model ? save_after_cancel(model, 0, &n[0], &was_cancelled) : NULL;
    if (!plain) return;
    was_cancelled = true;
    uint32_t call = 1;
    for (; was_cancelled && call < 1000; call++) {
        FREED char *saved = save_after_cancel(model, call, &n[1], &was_cancelled);
        if (CHECK_INT(n[0], n[1])) CHECK_BYTES(plain, saved, n[0]);
    }
    CHECK(call > 4);
}
