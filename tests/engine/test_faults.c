/* Every allocation, read and write that can fail does so once: an error with a line
 * for a person, nothing leaked, nothing half written. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
#include "convert/quantize.h"
#include "file/gguf.h"
#include "file/gguf_write.h"
#include "measure/perplexity.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what is put to the test ------------------------------------------------------------------ */

typedef struct paths {
    const char *in, *out;
} paths;
typedef hearth_status task(const paths *p, hearth_error *err);

static hearth_status sample_and_decode(const hearth_model *model, hearth_session *session, hearth_error *err)
{
    hearth_sampler *sampler = NULL;
    hearth_decoder *decoder = NULL;
    const char *text;
    size_t n;
    int32_t id;
    hearth_sampler_options o = hearth_sampler_defaults();
    o.repeat_penalty = 1.1f;
    hearth_status st = hearth_sampler_open(model, &o, &sampler, err);
    if (st == HEARTH_OK) st = hearth_decoder_open(model, false, false, &decoder, err);
    for (int i = 0; st == HEARTH_OK && i < 3; i++) {
        st = hearth_sampler_pick(sampler, hearth_session_logits(session), &id, err);
        if (st == HEARTH_OK) st = hearth_decoder_push(decoder, id, &text, &n, err);
        if (st == HEARTH_OK) st = hearth_session_eval(session, &id, 1, err);
    }
    hearth_decoder_close(decoder);
    hearth_sampler_close(sampler);
    return st;
}

/* Open, tokenize, eval, sample, decode, close. */
static hearth_status run_model(const paths *p, bool mmap, hearth_error *err)
{
    static const char text[] = "abc ab\n";
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    hearth_model_options o = {.n_thread = 2, .mmap = mmap};
    hearth_session_options so = {.n_ctx = 32, .n_batch = 4, .n_thread = 2};
    hearth_status st = hearth_model_open(p->in, &o, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = hearth_tokenize(model, text, strlen(text), HEARTH_ADD_SPECIAL, &ids, &n, err);
    if (st == HEARTH_OK) st = hearth_session_eval(session, ids, n, err);
    if (st == HEARTH_OK) st = sample_and_decode(model, session, err);
    hearth_free(ids);
    hearth_session_close(session);
    hearth_model_close(model);
    return st;
}

static hearth_status run_read(const paths *p, hearth_error *err) { return run_model(p, false, err); }
static hearth_status run_mapped(const paths *p, hearth_error *err) { return run_model(p, true, err); }

static hearth_status quantize(const paths *p, hearth_error *err)
{
    hth_quantize_options o = {.mix = hth_mix_find("q8_0"), .n_thread = 2};
    hth_quantize_result r;
    return hth_quantize(p->in, p->out, &o, &r, err);
}

static hearth_status measure(const paths *p, hearth_error *err)
{
    char text[200];
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    hth_perplexity result;
    hearth_session_options o = {.n_ctx = 16, .n_batch = 8, .n_thread = 1};
    memset(text, 'c', sizeof text);
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &o, &session, err);
    if (st == HEARTH_OK) st = hth_measure_perplexity(model, session, text, sizeof text, 2, NULL, NULL, &result, err);
    hearth_session_close(session);
    hearth_model_close(model);
    return st;
}

static hearth_status step_batch(const paths *p, hearth_error *err)
{
    static const int32_t ids[] = {1, 5, 9};
    hearth_model *model = NULL;
    hearth_session *s[3] = {0};
    hearth_batch *b = NULL;
    hearth_session_options o = {.n_ctx = 8};
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_batch_open(model, 8, 1, &b, err);
    for (int i = 0; st == HEARTH_OK && i < 3; i++) st = hearth_session_open(model, &o, &s[i], err);
    for (int i = 0; st == HEARTH_OK && i < 3; i++) st = hearth_batch_add(b, s[i], ids, (size_t)i % 2 + 1, err);
    if (st == HEARTH_OK) st = hearth_batch_run(b, err);
    hearth_batch_close(b);
    for (int i = 0; i < 3; i++) hearth_session_close(s[i]);
    hearth_model_close(model);
    return st;
}

/* ---- how it is put to the test ------------------------------------------------------------------ */

static void make_input(paths *p)
{
    tiny_model m;
    tiny_begin(&m);
    gguf_bytes b = tiny_write(&m);
    *p = (paths){test_scratch("in.gguf"), test_scratch("out.gguf")};
    CHECK(test_write_file(p->in, b.data, b.n));
    gguf_free(&b);
    tiny_free(&m);
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* Nothing under either name of the output; when only the sync of its folder failed,
 * it is there and whole. */
static bool nothing_half_written(const paths *p, const hearth_error *why)
{
    char part[1100];
    hearth_model *model = NULL;
    snprintf(part, sizeof part, "%s.part", p->out);
    if (exists(part)) return false;
    if (!strstr(why->message, "cannot sync the folder")) return !exists(p->out);
    bool whole = hearth_model_open(p->out, NULL, &model, NULL) == HEARTH_OK;
    hearth_model_close(model);
    remove(p->out);
    return whole;
}

typedef void inject(uint64_t n);
static void one_allocation(uint64_t n) { hth_alloc_fail_at(n, 0); }
static void allocations_from(uint64_t n) { hth_alloc_fail_at(n, n != 0); }
static void one_read(uint64_t n) { hth_gguf_fail_read_at(n, false); }
static void one_write(uint64_t n) { hth_gguf_fail_write_at(n); }

/* Makes fault 1, 2, ... happen until the task succeeds in spite of it. */
static void fail_each(task *run, inject *fault, hearth_status status, uint64_t n_least)
{
    paths p;
    make_input(&p);
    uint64_t held = hth_alloc_held(), n = 1;
    for (hearth_status st = status; st != HEARTH_OK && n < 5000; n++) {
        hearth_error why = {0};
        fault(n);
        st = run(&p, &why);
        fault(0);
        if (!CHECK_INT(hth_alloc_held(), held)) break;
        if (st == HEARTH_OK) break;
        bool clean = nothing_half_written(&p, &why);
        if (st != status || !why.message[0] || why.status != st || !clean)
            test_fail(__FILE__, __LINE__, "fault %llu: status '%s', message '%s'%s", (unsigned long long)n,
                      hearth_status_name(st), why.message, clean ? "" : ", output left behind");
    }
    if (n <= n_least || n == 5000) test_fail(__FILE__, __LINE__, "the task ended after %llu faults", (unsigned long long)n);
    remove(p.in);
    remove(p.out);
}

TEST(a_run_survives_every_allocation_that_fails)
{
    fail_each(run_read, one_allocation, HEARTH_ERROR_MEMORY, 30);
    fail_each(run_read, allocations_from, HEARTH_ERROR_MEMORY, 30);
    fail_each(run_mapped, one_allocation, HEARTH_ERROR_MEMORY, 30);
    fail_each(run_mapped, allocations_from, HEARTH_ERROR_MEMORY, 30);
}

TEST(a_batch_survives_every_allocation_that_fails)
{
    fail_each(step_batch, one_allocation, HEARTH_ERROR_MEMORY, 30);
    fail_each(step_batch, allocations_from, HEARTH_ERROR_MEMORY, 30);
}

TEST(quantize_survives_every_allocation_that_fails)
{
    fail_each(quantize, one_allocation, HEARTH_ERROR_MEMORY, 30);
    fail_each(quantize, allocations_from, HEARTH_ERROR_MEMORY, 30);
}

TEST(perplexity_survives_every_allocation_that_fails)
{
    fail_each(measure, one_allocation, HEARTH_ERROR_MEMORY, 30);
    fail_each(measure, allocations_from, HEARTH_ERROR_MEMORY, 30);
}

TEST(a_run_survives_every_read_that_fails)
{
    fail_each(run_read, one_read, HEARTH_ERROR_IO, 20);
    fail_each(run_mapped, one_read, HEARTH_ERROR_IO, 5);
}

TEST(quantize_survives_every_read_that_fails) { fail_each(quantize, one_read, HEARTH_ERROR_IO, 20); }

TEST(quantize_leaves_no_file_after_a_write_that_failed) { fail_each(quantize, one_write, HEARTH_ERROR_IO, 2); }

/* A short read is no fault: the rest comes with the next. */
TEST(short_reads_change_nothing)
{
    paths p;
    make_input(&p);
    for (uint64_t n = 1; n < 60; n++) {
        hth_gguf_fail_read_at(n, true);
        CHECK_OK(run_read(&p, err));
        hth_gguf_fail_read_at(0, true);
    }
    remove(p.in);
}

TEST(a_missing_file_leaves_nothing)
{
    paths p;
    make_input(&p);
    remove(p.in);
    uint64_t held = hth_alloc_held();
    hearth_error why = {0};
    CHECK_INT(run_read(&p, &why), HEARTH_ERROR_IO);
    CHECK(strstr(why.message, p.in) != NULL);
    CHECK_INT(hth_alloc_held(), held);
}

/* ---- the resident loop ------------------------------------------------------------------------------ */

TEST(the_token_loop_allocates_nothing)
{
    paths p;
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    hearth_sampler *sampler = NULL;
    hearth_decoder *decoder = NULL;
    const char *text;
    size_t n;
    int32_t id = 1;
    make_input(&p);
    CHECK_OK(hearth_model_open(p.in, NULL, &model, err));
    CHECK_OK(hearth_session_open(model, NULL, &session, err));
    CHECK_OK(hearth_sampler_open(model, NULL, &sampler, err));
    CHECK_OK(hearth_decoder_open(model, true, false, &decoder, err));
    uint64_t count = hth_alloc_count();
    for (int i = 0; i < TINY_CONTEXT; i++) {
        CHECK_OK(hearth_session_eval(session, &id, 1, err));
        CHECK_OK(hearth_sampler_pick(sampler, hearth_session_logits(session), &id, err));
        hearth_sampler_accept(sampler, id);
        CHECK_OK(hearth_decoder_push(decoder, id, &text, &n, err));
    }
    CHECK_INT(hth_alloc_count(), count);
    hearth_decoder_close(decoder);
    hearth_sampler_close(sampler);
    hearth_session_close(session);
    hearth_model_close(model);
    remove(p.in);
}

TEST_MAIN
