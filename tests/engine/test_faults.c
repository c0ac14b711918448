/* Every allocation, read and write that can fail does so, of a run, a batch, quantize and perplexity: an error with
 * a line for a person, nothing leaked, nothing half written. The other commands: test_fault_commands.c. */
#include "base/alloc.h"
#include "convert/quantize.h"
#include "engine/engine.h"
#include "file/gguf.h"
#include "file/imatrix.h"
#include "measure/perplexity.h"
#include "support/engine.h"
#include "support/faults.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

/* ---- what is put to the test ------------------------------------------------------------------ */

static hearth_status sample_and_decode(const hearth_model *model, hearth_session *session, hearth_error *err)
{
    CLOSED(hearth_sampler) *sampler = NULL;
    CLOSED(hearth_detokenizer) *decoder = NULL;
    const char *text;
    size_t n;
    int32_t id;
    hearth_sampler_options o = test_sampler_options();
    o.repeat_penalty = 1.1f;
    hearth_status st = hearth_sampler_open(model, &o, &sampler, err);
    if (st == HEARTH_OK) st = hearth_detokenizer_open(model, false, false, &decoder, err);
    for (int i = 0; st == HEARTH_OK && i < 3; i++) {
        st = hearth_sampler_sample(sampler, hearth_session_logits(session), &id, err);
        if (st == HEARTH_OK) st = hearth_detokenizer_push(decoder, id, &text, &n, err);
        if (st == HEARTH_OK) st = hearth_session_eval(session, &id, 1, err);
    }
    return st;
}

/* Open, tokenize, eval, sample, decode, close. */
static hearth_status run_model(const fault_paths *p, const hearth_model_options *o, hearth_error *err)
{
    static const char text[] = "abc ab\n";
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    hearth_session_options so = {.n_ctx = 32, .n_batch = 4, .n_thread = 2};
    hearth_status st = hearth_model_open(p->in, o, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = hearth_tokenize(model, text, strlen(text), HEARTH_ADD_SPECIAL, &ids, &n, err);
    if (st == HEARTH_OK) st = hearth_session_eval(session, ids, n, err);
    if (st == HEARTH_OK) st = sample_and_decode(model, session, err);
    hearth_free(ids);
    return st;
}

static hearth_status run_read(const fault_paths *p, hearth_error *err)
{
    return run_model(p, &(hearth_model_options){.n_thread = 2}, err);
}

static hearth_status run_mapped(const fault_paths *p, hearth_error *err)
{
    return run_model(p, &(hearth_model_options){.n_thread = 2, .mmap = true}, err);
}

static hearth_status run_streamed(const fault_paths *p, hearth_error *err)
{
    hth_engine_set_store_memory(8192);
    hearth_status st = run_model(p, &(hearth_model_options){.n_thread = 2, .ram = 1, .gpu = {.n_ctx = 32}}, err);
    hth_engine_set_store_memory(UINT64_MAX);
    return st;
}

static hearth_status quantize(const fault_paths *p, hearth_error *err)
{
    hth_quantize_options o = {.ftype = hth_ftype_find("q8_0"), .n_thread = 2};
    hth_quantize_result r;
    return hth_quantize(p->in, p->out, &o, &r, err);
}

/* A matrix of the columns of the model of fault_make_input. */
static const char *matrix_path;

static void write_matrix(void)
{
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.1.ffn_up.weight"};
    hth_imatrix *m = NULL;
    matrix_path = test_scratch("tiny.imatrix");
    CHECK_OK(hth_imatrix_new(16, &m, err));
    for (size_t i = 0; i < 2; i++) {
        hth_imatrix_entry *e = NULL;
        CHECK_OK(hth_imatrix_add(m, (hth_str){names[i], 19}, TINY_D_MODEL, 1, &e, err));
        for (size_t k = 0; k < TINY_D_MODEL; k++) e->sums[k] = (double)k;
        e->counts[0] = 3.0;
    }
    CHECK_OK(hth_imatrix_add_dataset(m, (hth_str){"text", 4}, err));
    CHECK_OK(hth_imatrix_write(m, matrix_path, err));
    hth_imatrix_close(m);
}

static hearth_status quantize_by(const fault_paths *p, hearth_error *err)
{
    hth_quantize_options o = {.ftype = hth_ftype_find("q4_0"), .n_thread = 2, .imatrix = matrix_path};
    hth_quantize_result r;
    return hth_quantize(p->in, p->out, &o, &r, err);
}

static hearth_status measure(const fault_paths *p, hearth_error *err)
{
    char text[200];
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hth_perplexity result;
    hearth_session_options o = {.n_ctx = 16, .n_batch = 8, .n_thread = 1};
    memset(text, 'c', sizeof text);
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &o, &session, err);
    if (st == HEARTH_OK) st = hth_measure_perplexity(model, session, text, sizeof text, 2, NULL, NULL, &result, err);
    return st;
}

static hearth_status step_batch(const fault_paths *p, hearth_error *err)
{
    static const int32_t ids[] = {1, 5, 9};
    CLOSED(hearth_model) *model = NULL;
    hearth_session *s[3] = {0};
    hearth_batch *b = NULL;
    hearth_session_options o = {.n_ctx = 8, .n_batch = HEARTH_BATCH_NONE};
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_batch_open(model, 8, 1, &b, err);
    for (int i = 0; st == HEARTH_OK && i < 3; i++) st = hearth_session_open(model, &o, &s[i], err);
    for (int i = 0; st == HEARTH_OK && i < 3; i++) st = hearth_batch_add(b, s[i], ids, (size_t)i % 2 + 1, err);
    if (st == HEARTH_OK) st = hearth_batch_run(b, err);
    hearth_batch_close(b);
    for (int i = 0; i < 3; i++) hearth_session_close(s[i]);
    return st;
}

/* ---- how it is put to the test: support/faults.h ------------------------------------------------- */

TEST(a_run_survives_every_allocation_that_fails)
{
    fault_survive("a run", run_read, 30, 0, 0);
    fault_survive("a mapped run", run_mapped, 30, 0, 0);
    fault_survive("a streamed run", run_streamed, 80, 0, 0);
}

TEST(a_batch_survives_every_allocation_that_fails) { fault_survive("a batch", step_batch, 30, 0, 0); }

TEST(quantize_survives_every_allocation_that_fails) { fault_survive("quantize", quantize, 30, 0, 0); }

TEST(quantize_by_importance_survives_everything_that_fails)
{
    write_matrix();
    fault_survive("quantize --imatrix", quantize_by, 40, 25, 2);
}

TEST(perplexity_survives_every_allocation_that_fails) { fault_survive("perplexity", measure, 30, 0, 0); }

TEST(a_run_survives_every_read_that_fails)
{
    fault_survive("a run", run_read, 0, 20, 0);
    fault_survive("a mapped run", run_mapped, 0, 5, 0);
    fault_survive("a streamed run", run_streamed, 0, 15, 0);
}

TEST(quantize_survives_every_read_that_fails) { fault_survive("quantize", quantize, 0, 20, 0); }

TEST(quantize_leaves_no_file_after_a_write_that_failed) { fault_survive("quantize", quantize, 0, 0, 2); }

/* Greedy ids after a prompt: what a fault that is none must not change. */
static void take_ids(const fault_paths *p, bool mmap, int32_t ids[8])
{
    static const int32_t prompt[] = {1, 60, 70, 80};
    hearth_model_options o = {.n_thread = 2, .mmap = mmap};
    const engine_setting setting = {.n_thread = 1, .n_batch = 4, .kv = HEARTH_KV_F32};
    memset(ids, 0xff, 8 * sizeof *ids);
    CLOSED(hearth_model) *model = OPENED(hearth_model, p->in, &o);
    if (model) engine_greedy(model, &setting, prompt, 4, ids, 8);
}

/* Neither a short read nor an interrupted one is a fault, and one that fails once is repeated. */
TEST(reads_that_recover_change_nothing)
{
    static const hth_read_fault faults[] = {HTH_READ_SHORT, HTH_READ_INTERRUPTED, HTH_READ_FAILS_ONCE};
    static const char *const names[] = {"cut short", "interrupted", "failed"};
    fault_paths p;
    int32_t want[8], got[8];
    fault_make_input(&p);
    test_log_start();
    for (int i = 0; i < 6; i++) {
        bool mmap = i >= 3;
        take_ids(&p, mmap, want);
        uint64_t n = 1, n_read;
        do {
            uint64_t before = hth_gguf_n_read();
            hth_gguf_fail_read_at(n, faults[i % 3]);
            take_ids(&p, mmap, got);
            hth_gguf_fail_read_at(0, faults[i % 3]);
            n_read = hth_gguf_n_read() - before;
            if (!CHECK_BYTES(got, want, sizeof want)) break;
        } while (n++ < n_read);
        CHECK(n > 5);
        printf("     %llu reads, each %s once\n", (unsigned long long)(n - 1), names[i % 3]);
    }
    CHECK(test_n_warning("; trying again") > 20);
    test_log_stop();
}

TEST(a_read_that_fails_for_ever_is_tried_three_times_again)
{
    fault_paths p;
    fault_make_input(&p);
    test_log_start();
    hth_gguf_fail_read_at(3, HTH_READ_FAILS_ALWAYS);
    CHECK_FAILS(run_read(&p, err), HEARTH_ERROR_IO, "in.gguf: cannot read at byte |Input/output error");
    hth_gguf_fail_read_at(0, HTH_READ_FAILS_ALWAYS);
    CHECK_INT(test_n_warning("trying again"), 3);
    test_log_stop();
}

TEST(a_missing_file_leaves_nothing)
{
    fault_paths p;
    fault_make_input(&p);
    remove(p.in);
    CHECK_FAILS(run_read(&p, err), HEARTH_ERROR_IO, p.in);
}

TEST(the_token_loop_allocates_nothing)
{
    fault_paths p;
    const char *text;
    size_t n;
    int32_t id = 1;
    fault_make_input(&p);
    CLOSED(hearth_model) *model = OPENED(hearth_model, p.in, NULL);
    CLOSED(hearth_session) *session = OPENED(hearth_session, model, NULL);
    CLOSED(hearth_sampler) *sampler = OPENED(hearth_sampler, model, NULL);
    CLOSED(hearth_detokenizer) *decoder = OPENED(hearth_detokenizer, model, true, false);
    uint64_t count = hth_alloc_count();
    for (int i = 0; i < TINY_CONTEXT; i++) {
        CHECK_OK(hearth_session_eval(session, &id, 1, err));
        CHECK_OK(hearth_sampler_sample(sampler, hearth_session_logits(session), &id, err));
        hearth_sampler_accept(sampler, id);
        CHECK_OK(hearth_detokenizer_push(decoder, id, &text, &n, err));
    }
    CHECK_INT(hth_alloc_count(), count);
}
