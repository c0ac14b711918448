/* Models whose layers have states go back to any token of a draft. Every golden one, with drafts of 1 to 15 tokens of
 * which 0 to all are right: each token has the logits that it has without drafts, to the bit, and so has a session that
 * is copied, saved or shortened on the way. */
#include "convert/quantize.h"
#include "engine/session_int.h"
#include "forward/forward_int.h"
#include "support/models/golden.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

enum { N_PROMPT = 3, N_RECURRENT = 16 };

typedef struct text {
    golden g;
    hearth_model *model;
    float *logits; /* [n][n_vocab] without drafts */
    uint32_t n_vocab;
} text;

static bool has_state(const hearth_model *m) { return hth_sequence_state_size(m->model) > 0; }

static bool open_text(text *t, const char *name)
{
    *t = (text){0};
    if (golden_open_arch(&t->g, name)) t->model = OPENED(hearth_model, t->g.model, NULL);
    if (!t->model || !has_state(t->model)) return false;
    t->logits = golden_logits(&t->g, HEARTH_KV_F16);
    t->n_vocab = test_model_info(t->model).n_vocab;
    return t->logits != NULL;
}

static void close_text(text *t)
{
    free(t->logits);
    hearth_model_close(t->model);
    golden_close(&t->g);
}

static hearth_session *open_session(const text *t, uint32_t n_thread)
{
    const hearth_session_options o = {
        .n_ctx = (uint32_t)t->g.n + HTH_DRAFT_MAX, .n_batch = 32, .n_thread = n_thread};
    return OPENED(hearth_session, t->model, &o);
}

static void use_drafts(hearth_session *s)
{
    CHECK_OK(hearth_session_use_drafts(s, &(hearth_draft_options){.n_draft = HTH_DRAFT_MAX}, NULL, err));
}

static bool expect_logits(const text *t, const hearth_session *s, const char *what)
{
    uint32_t at = hearth_session_position(s);
    const float *got = hearth_session_logits(s), *want = t->logits + (size_t)(at - 1) * t->n_vocab;
    if (got && memcmp(got, want, t->n_vocab * sizeof *got) == 0) return true;
    test_fail(__FILE__, __LINE__, "%s: other logits at position %u %s", t->g.model, at, what);
    return false;
}

/* Evaluates the next token of the text and a draft of n tokens behind it, of which the first n_right are right. */
static hearth_status step_with_draft(const text *t, hearth_session *s, uint32_t n, uint32_t n_right,
                                     hearth_error *err)
{
    int32_t draft[HTH_DRAFT_MAX];
    uint32_t at = hearth_session_position(s);
    for (uint32_t i = 0; i < n; i++) {
        size_t k = at + 1 + i;
        draft[i] = k < t->g.n ? t->g.ids[k] : 0;
        if (i >= n_right) draft[i] = (int32_t)(((uint32_t)draft[i] + 1 + i) % t->n_vocab);
    }
    hearth_status st = hth_batch_add(s->own, s, &t->g.ids[at], 1, true, err);
    if (st != HEARTH_OK) return st;
    hth_batch_add_draft(s->own, draft, n, s->drafts->drafter, 0);
    st = hearth_batch_run(s->own, err);
    if (st != HEARTH_OK) hearth_batch_clear(s->own);
    return st;
}

/* A copy of a session that is ahead goes on without drafts. */
static void go_on_with_copy(const text *t, const hearth_session *s)
{
    hearth_session *copy = OPENED_BY(hearth_session_fork, hearth_session, s);
    for (int i = 0; copy && i < 3 && hearth_session_position(copy) < t->g.n; i++) {
        CHECK_OK(hearth_session_eval(copy, &t->g.ids[hearth_session_position(copy)], 1, err));
        expect_logits(t, copy, "of a copy");
    }
    hearth_session_close(copy);
}

/* A step with such a draft, then its right tokens, then the next one, which was not drafted. */
static bool go_on(const text *t, hearth_session *s, uint32_t n, uint32_t n_right, bool copies)
{
    char what[60];
    snprintf(what, sizeof what, "after %u of %u drafted from %u", n_right, n, hearth_session_position(s));
    CHECK_OK(step_with_draft(t, s, n, n_right, err));
    if (!expect_logits(t, s, what)) return false;
    for (uint32_t i = 0; i < n_right; i++) {
        if (copies && i == n_right / 2) go_on_with_copy(t, s);
        if (!CHECK(hth_session_advance(s, t->g.ids[hearth_session_position(s)])) ||
            !expect_logits(t, s, what))
            return false;
    }
    if (copies && n_right < n) go_on_with_copy(t, s);
    uint32_t at = hearth_session_position(s);
    CHECK(at == t->g.n || !hth_session_advance(s, t->g.ids[at]));
    return true;
}

static void for_each_recurrent(void (*fn)(const text *t))
{
    int n = 0;
    for (size_t i = 0; golden_arch(i); i++) {
        text t;
        if (open_text(&t, golden_arch(i))) fn(&t), n++;
        close_text(&t);
    }
    CHECK_INT(n, N_RECURRENT);
}

/* ---- every draft ---------------------------------------------------------------------------------------------- */

/* All pairs of a number of tokens and of right ones, along the text again and again. */
static void draft_everything(const text *t)
{
    for (uint32_t n_thread = 1; n_thread <= 3; n_thread++) {
        hearth_session *s = open_session(t, n_thread);
        if (!s) return;
        use_drafts(s);
        CHECK_OK(hearth_session_eval(s, t->g.ids, N_PROMPT + n_thread, err));
        for (uint32_t n = 1; n <= HTH_DRAFT_MAX; n++)
            for (uint32_t n_right = 0; n_right <= n; n_right++) {
                if (hearth_session_position(s) + n_right + 1 > t->g.n)
                    CHECK_OK(hearth_session_truncate(s, N_PROMPT + n_thread, err));
                if (!go_on(t, s, n, n_right, (n + n_right) % 4 == 0)) n = n_right = HTH_DRAFT_MAX;
            }
        hearth_session_close(s);
    }
}

TEST(each_token_of_every_golden_model_has_the_logits_that_it_has_without_drafts)
{
    for_each_recurrent(draft_everything);
}

typedef struct progress {
    const text *t;
    uint32_t first;
    bool is_right;
} progress;

static hearth_status compare_next(void *user, size_t i, const float *logits, hearth_error *err)
{
    progress *p = user;
    const float *want = p->t->logits + (p->first + i) * p->t->n_vocab;
    p->is_right = p->is_right && memcmp(logits, want, p->t->n_vocab * sizeof *want) == 0;
    return HEARTH_OK;
}

/* Longest drafts from positions before the end of a chunk, or of a block, so that it ends at each of their tokens, and
 * each of these is the last right one. */
static void draft_across_chunks(const text *t)
{
    for (uint32_t start = 17; start <= 33; start++) {
        hearth_session *s = open_session(t, 1 + start % 3);
        if (!s) return;
        CHECK_OK(hearth_session_eval(s, t->g.ids, start, err));
        for (uint32_t n_right = 0; n_right <= HTH_DRAFT_MAX; n_right += 1 + n_right % 2) {
            hearth_session *copy = OPENED_BY(hearth_session_fork, hearth_session, s);
            if (!copy) break;
            use_drafts(copy);
            if (go_on(t, copy, HTH_DRAFT_MAX, n_right, false)) (void)go_on(t, copy, 4, start % 5, false);
            CHECK_OK(hearth_session_use_drafts(copy, &(hearth_draft_options){.n_draft = HEARTH_DRAFT_NONE},
                                               NULL, err));
            uint32_t at = hearth_session_position(copy); /* its chunk, or the next one, ends */
            progress p = {t, at, true};
            CHECK_OK(hearth_session_eval_each(copy, t->g.ids + at, 70 - at, compare_next, &p, err));
            CHECK(p.is_right);
            hearth_session_close(copy);
        }
        hearth_session_close(s);
    }
}

TEST(a_draft_may_end_at_every_token_of_a_chunk) { for_each_recurrent(draft_across_chunks); }

/* ---- on a device ---------------------------------------------------------------------------------------------- */

/* A model of quantised weights, whose layers all lie on the null device; the logits are the CPU's. */
static bool open_text_on_device(text *t, const char *name)
{
    const hth_quantize_options to_q8_0 = {.ftype = hth_ftype_find("q8_0"), .pure = true, .n_thread = 2};
    hth_quantize_result result;
    *t = (text){0};
    if (!golden_open_arch(&t->g, name)) return false;
    const char *path = test_scratch("drafts.gguf");
    CHECK_OK(hth_quantize(t->g.model, path, &to_q8_0, &result, err));
    t->g.model = path;
    t->logits = golden_logits(&t->g, HEARTH_KV_F16);
    const hearth_model_options o = {.n_thread = 2, .gpu = {.device = "null", .n_ctx = 1024, .n_batch = 32}};
    t->model = OPENED(hearth_model, path, &o);
    remove(path);
    if (!t->logits || !t->model) return false;
    hearth_model_info info = test_model_info(t->model);
    t->n_vocab = info.n_vocab;
    return CHECK_INT(info.gpu_n_layer, info.n_layer) && CHECK(info.gpu_bit_exact);
}

/* Drafts of all lengths, of which copies return to some tokens and the session to others. */
TEST(drafts_on_a_device_that_has_the_states_give_the_logits_of_the_cpu)
{
    static const char *const names[] = {"qwen35", "lfm2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CLEANUP(close_text) text t;
        if (!open_text_on_device(&t, names[i])) continue;
        CLOSED(hearth_session) *s = open_session(&t, 2);
        if (!s) continue;
        use_drafts(s);
        CHECK_OK(hearth_session_eval(s, t.g.ids, N_PROMPT, err));
        for (uint32_t n = 1; n <= HTH_DRAFT_MAX; n += 2)
            for (uint32_t n_right = 0; n_right <= n; n_right += 1 + n_right % 3) {
                if (hearth_session_position(s) + n_right + 1 > t.g.n)
                    CHECK_OK(hearth_session_truncate(s, N_PROMPT, err));
                if (!go_on(&t, s, n, n_right, true)) n = n_right = HTH_DRAFT_MAX;
            }
        CHECK(!test_model_info(t.model).gpu_note[0]);
    }
}

/* The states of others change with every token, and a device keeps none of those between. */
TEST(a_device_with_states_of_every_token_has_no_drafts)
{
    CLEANUP(close_text) text t;
    if (!open_text_on_device(&t, "mamba2")) return;
    CLOSED(hearth_session) *s = open_session(&t, 2);
    test_log_start();
    CHECK_OK(hearth_session_use_drafts(s, &(hearth_draft_options){.n_draft = 3}, NULL, err));
    CHECK_INT(test_n_warning("no drafts: the GPU keeps no states of their tokens"), 1);
    test_log_stop();
    CHECK(s->drafts == NULL);
    CHECK_OK(hearth_session_eval(s, t.g.ids, N_PROMPT, err));
    expect_logits(&t, s, "without drafts");
}

/* ---- sessions that are ahead ---------------------------------------------------------------------------------- */

static void expect_same_file(const hearth_session *a, const hearth_session *b)
{
    const char *paths[2] = {test_scratch("plain"), test_scratch("drafted")};
    size_t n[2];
    CHECK_OK(hearth_session_save(a, paths[0], err));
    CHECK_OK(hearth_session_save(b, paths[1], err));
    FREED char *want = test_read_file(paths[0], &n[0]), *got = test_read_file(paths[1], &n[1]);
    if (want && got && CHECK_INT(n[1], n[0])) CHECK_BYTES(got, want, n[0]);
}

/* What is saved has nothing of the draft, and goes on elsewhere. */
static void save_ahead(const text *t)
{
    hearth_session *plain = open_session(t, 1), *s = open_session(t, 2), *other = open_session(t, 1);
    if (!plain || !s || !other) return;
    use_drafts(s);
    CHECK_OK(hearth_session_eval(plain, t->g.ids, N_PROMPT, err));
    CHECK_OK(hearth_session_eval(s, t->g.ids, N_PROMPT, err));
    for (uint32_t i = 1; hearth_session_position(s) + HTH_DRAFT_MAX < t->g.n; i++) {
        CHECK_OK(step_with_draft(t, s, 4 + 5 * (i % 3), i % 5, err));
        for (uint32_t k = 0; k < i % 5 && k < i % 3; k++)
            CHECK(hth_session_advance(s, t->g.ids[hearth_session_position(s)]));
        while (hearth_session_position(plain) < hearth_session_position(s))
            CHECK_OK(hearth_session_eval(plain, &t->g.ids[hearth_session_position(plain)], 1, err));
        expect_same_file(plain, s);
        expect_logits(t, s, "after it was saved");
    }
    uint32_t at = hearth_session_position(s);
    CHECK_OK(hearth_session_restore(other, test_scratch("drafted"), err));
    CHECK_OK(hearth_session_eval(other, &t->g.ids[at], 1, err));
    expect_logits(t, other, "after it was restored");
    CHECK_OK(step_with_draft(t, s, 5, 2, err));
    CHECK_OK(hearth_session_restore(s, test_scratch("plain"), err)); /* drops what is ahead */
    CHECK_INT(hearth_session_position(s), at);
    CHECK(!hth_session_advance(s, t->g.ids[at]));
    CHECK_OK(step_with_draft(t, s, 3, 1, err));
    expect_logits(t, s, "after it was restored");
    hearth_session_close(plain), hearth_session_close(s), hearth_session_close(other);
}

TEST(a_session_that_is_ahead_saves_the_file_of_one_without_drafts) { for_each_recurrent(save_ahead); }

/* To a token before the draft, to one of it that was taken already, and to an earlier text. */
static void shorten_ahead(const text *t)
{
    hearth_session *s = open_session(t, 1);
    if (!s) return;
    use_drafts(s);
    for (uint32_t back = 0; back <= 8; back++) {
        CHECK_OK(hearth_session_truncate(s, 0, err));
        CHECK_OK(hearth_session_eval(s, t->g.ids, 25, err));
        CHECK_OK(step_with_draft(t, s, 12, 12, err)); /* 26 to 38 */
        for (int i = 0; i < 6; i++) CHECK(hth_session_advance(s, t->g.ids[hearth_session_position(s)]));
        CHECK_OK(hearth_session_truncate(s, 32 - back, err));
        /* The states before the tokens of the draft are there, and that at the end of the text. */
        CHECK_INT(hearth_session_n_cached(s), back <= 6 ? 32 - back : back == 7 ? 25 : 0);
        CHECK(back == 0 || hearth_session_logits(s) == NULL);
        CHECK_OK(step_with_draft(t, s, 3, 2, err));
        expect_logits(t, s, "after it was shortened");
        CHECK(hth_session_advance(s, t->g.ids[hearth_session_position(s)]));
        expect_logits(t, s, "after it was shortened");
    }
    /* Once all of a draft was taken, its states are gone: others may have their place. */
    CHECK_OK(hearth_session_truncate(s, 0, err));
    CHECK_OK(hearth_session_eval(s, t->g.ids, 25, err));
    CHECK_OK(step_with_draft(t, s, 5, 5, err));
    for (int i = 0; i < 5; i++) CHECK(hth_session_advance(s, t->g.ids[hearth_session_position(s)]));
    CHECK_OK(step_with_draft(t, s, 0, 0, err));
    CHECK_OK(hearth_session_truncate(s, 30, err));
    CHECK_INT(hearth_session_n_cached(s), 25);
    CHECK_OK(step_with_draft(t, s, 3, 1, err));
    expect_logits(t, s, "after it was shortened");
    hearth_session_close(s);
}

TEST(a_session_that_is_ahead_is_shortened_to_any_token) { for_each_recurrent(shorten_ahead); }

/* ---- faults --------------------------------------------------------------------------------------------------- */

static volatile int cancel;
static const hth_kernels *whole;
static uint32_t n_call, cancel_call;

static void count_call(void)
{
    if (__atomic_add_fetch(&n_call, 1, __ATOMIC_RELAXED) == cancel_call)
        __atomic_store_n(&cancel, 1, __ATOMIC_RELAXED);
}

/* Of mixers, and norms before them and within. */
static void conv(const float *const *rows, const float *taps, size_t d_conv, size_t n, float *y)
{
    whole->conv(rows, taps, d_conv, n, y), count_call();
}
static void rms_norm(const float *x, const float *w, size_t n, float inv_n, float eps, float *y)
{
    whole->rms_norm(x, w, n, inv_n, eps, y), count_call();
}
static void ssm_scan(const hth_ssm_scan *job) { whole->ssm_scan(job), count_call(); }
static void gemm(const hth_gemm *g) { whole->gemm(g), count_call(); }

/* A step with a draft that fails at each of its kernels, and is done again. */
static void fail_everywhere(const text *t)
{
    hth_kernels counting;
    const hearth_model_options o = {.n_thread = 1, .cancel = &cancel};
    text own = *t;
    own.model = OPENED(hearth_model, t->g.model, &o);
    hearth_session *s = own.model ? open_session(&own, 1) : NULL;
    if (!s) return;
    use_drafts(s);
    hth_step *step = hth_session_step(s);
    whole = step->k, counting = *whole;
    counting.conv = conv, counting.ssm_scan = ssm_scan, counting.gemm = gemm, counting.rms_norm = rms_norm;
    step->k = &counting, cancel_call = 0;
    CHECK_OK(hearth_session_eval(s, t->g.ids, 28, err));
    uint32_t n_failed = 0;
    for (uint32_t call = 1; call < 4000; call += 1 + call / 8) {
        hearth_error why;
        bool failed;
        CHECK_OK(hearth_session_truncate(s, 28, err));
        n_call = 0, cancel_call = call;
        failed = step_with_draft(&own, s, 9, 7, &why) != HEARTH_OK; /* 29 to 38 */
        cancel = 0, cancel_call = 0;
        if (failed) {
            n_failed++;
            CHECK_INT(why.status, HEARTH_ERROR_CANCELLED);
            CHECK_INT(hearth_session_position(s), 28);
            CHECK_OK(step_with_draft(&own, s, 9, 7, err));
        }
        if (!expect_logits(&own, s, "after a step that failed")) break;
        for (int i = 0; i < 5; i++) CHECK(hth_session_advance(s, t->g.ids[hearth_session_position(s)]));
        CHECK_OK(step_with_draft(&own, s, 2, 0, err));
        if (!expect_logits(&own, s, "after a step that failed")) break;
    }
    CHECK(n_failed > 3);
    step->k = whole;
    hearth_session_close(s);
    hearth_model_close(own.model);
}

TEST(a_step_with_a_draft_that_failed_can_be_done_again) { for_each_recurrent(fail_everywhere); }

/* ---- memory --------------------------------------------------------------------------------------------------- */

static hearth_status use_with_limit(hearth_session *s, uint32_t n_draft, uint64_t room, hearth_error *err)
{
    hth_budget *b = &hth_engine_mutable(s->model)->budget;
    b->limit = b->sessions + b->fixed + b->cap.min + room;
    hearth_status st = hearth_session_use_drafts(s, &(hearth_draft_options){.n_draft = n_draft}, NULL, err);
    b->limit = 0;
    return st;
}

TEST(states_of_drafts_count_in_the_limit_of_memory)
{
    CLEANUP(close_text) text t;
    if (!CHECK(open_text(&t, "mamba2"))) return;
    hearth_session *s = open_session(&t, 1);
    hth_budget *b = &hth_engine_mutable(t.model)->budget;
    uint64_t before = b->sessions, rows = HTH_DRAFT_MAX * t.n_vocab * sizeof(float),
             states = hth_pages_size(HTH_DRAFT_MAX * hth_kv_state_size(t.model->model, HTH_STATE_STEP));
    CHECK_FAILS(use_with_limit(s, 3, rows + states - 1, err), HEARTH_ERROR_MEMORY, "exceeds the limit");
    CHECK(s->drafts == NULL && b->sessions == before);
    CHECK_OK(use_with_limit(s, HEARTH_DRAFT_AUTO, rows + states - 1, err)); /* there are none */
    CHECK(s->drafts == NULL && b->sessions == before);
    CHECK_OK(use_with_limit(s, 3, rows + states, err));
    CHECK(s->drafts != NULL && b->sessions == before + rows + states);
    hearth_session_close(s);
}

TEST(sessions_without_drafts_have_no_memory_for_their_states)
{
    CLEANUP(close_text) text t;
    if (!CHECK(open_text(&t, "jamba"))) return;
    hearth_session *s = open_session(&t, 1);
    uint64_t before = hth_alloc_in_use(),
             size = HTH_DRAFT_MAX * hth_kv_state_size(t.model->model, HTH_STATE_STEP);
    use_drafts(s);
    CHECK(hth_alloc_in_use() >= before + size);
    CHECK_OK(hearth_session_use_drafts(s, &(hearth_draft_options){.n_draft = HEARTH_DRAFT_NONE}, NULL, err));
    CHECK_INT(hth_alloc_in_use(), before);
    hearth_session_close(s);
}
