/* Traces of experts: they have what the routers chose, whatever the threads and batches, of whole chunks only. */
#include "measure/expert_trace.h"

#include "base/alloc.h"
#include "engine/engine.h"
#include "measure/chunks.h"
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

enum { N_CTX = 32, N_TEXT = 600 };

static char text[N_TEXT];

static hearth_model *open_mixture(golden *g, const char *name)
{
    hearth_model_options options = {.n_thread = 3};
    for (size_t i = 0; i < N_TEXT; i++) text[i] = "abcdefgh ijk lmn."[i * i % 17];
    return golden_open_arch(g, name) ? OPENED_BY(hearth_model_open, hearth_model, g->model, &options) : NULL;
}

static hearth_session *open_session(const hearth_model *m, uint32_t n_thread, uint32_t n_batch)
{
    hearth_session_options s = hearth_session_defaults();
    s.n_thread = n_thread, s.n_ctx = N_CTX, s.n_batch = n_batch;
    return OPENED_BY(hearth_session_open, hearth_session, m, &s);
}

static hth_expert_trace_options options_of(uint32_t n_tok)
{
    return (hth_expert_trace_options){.out = test_scratch("out.trace"), .n_tok = n_tok, .settings = "kv f16"};
}

static hth_expert_trace *record(const hearth_model *m, uint32_t n_thread, uint32_t n_batch,
                                const hth_expert_trace_options *o)
{
    hth_expert_trace *t = NULL;
    CLOSED(hearth_session) *session = open_session(m, n_thread, n_batch);
    if (session) CHECK_OK(hth_measure_expert_trace(m, session, text, N_TEXT, o, &t, err));
    return t;
}

TEST(traces_depend_on_model_and_text_alone)
{
    static const struct {
        uint32_t n_thread, n_batch;
    } ways[] = {{1, 512}, {3, 512}, {2, 1}, {3, 5}};
    static const char *const names[] = {"dots1", "qwen3moe", "deepseek4"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        CLEANUP(golden_close) golden g = {0};
        CLOSED(hearth_model) *m = open_mixture(&g, names[n]);
        FREED char *first = NULL;
        size_t n_first = 0;
        for (size_t i = 0; m && i < sizeof ways / sizeof *ways; i++) {
            hth_expert_trace_options o = options_of(96);
            CLOSED(hth_expert_trace) *t = record(m, ways[i].n_thread, ways[i].n_batch, &o), *read = NULL;
            if (!t) return;
            CHECK(t->n_tok == 96 && t->n_ctx == N_CTX);
            CHECK_OK(hth_expert_trace_open(o.out, m->model, &read, err));
            size_t size;
            FREED char *bytes = test_read_file(o.out, &size);
            if (i == 0) {
                first = bytes, n_first = size, bytes = NULL;
            } else if (CHECK_INT(size, n_first)) {
                CHECK_BYTES(bytes, first, size);
            }
        }
    }
}

/* The first chunk with the experts of the trace in place of those that routers choose, from token `first` of it on. */
static float *logits_with(const hearth_model *m, hth_expert_trace *t, const int32_t *ids, uint32_t n_vocab)
{
    float *logits = calloc(n_vocab, sizeof *logits);
    CLOSED(hearth_session) *session = open_session(m, 2, 512);
    if (t) hth_step_set_route(hth_session_step(session), hth_expert_trace_get, t);
    CHECK_OK(hearth_session_eval(session, ids, N_CTX, err));
    memcpy(logits, hearth_session_logits(session), n_vocab * sizeof *logits);
    return logits;
}

TEST(a_model_that_uses_the_experts_of_its_trace_computes_the_same)
{
    CLEANUP(golden_close) golden g = {0};
    CLOSED(hearth_model) *m = open_mixture(&g, "qwen3moe");
    if (!m) return;
    hth_expert_trace_options o = options_of(64);
    CLOSED(hth_expert_trace) *t = record(m, 2, 512, &o);
    hth_chunks chunks;
    CHECK_OK(hth_chunks_open(&chunks, m, text, N_TEXT, N_CTX, err));
    int32_t ids[N_CTX];
    memcpy(ids, hth_chunks_at(&chunks, 0), sizeof ids);
    hth_chunks_close(&chunks);
    uint32_t n_vocab = m->model->hparams.n_vocab;
    FREED float *own = logits_with(m, NULL, ids, n_vocab), *same = logits_with(m, t, ids, n_vocab);
    CHECK_BYTES(own, same, n_vocab * sizeof *own);
    t->layers[0].chosen[0] = t->layers[0].chosen[0] == 0; /* the first token has another expert */
    FREED float *other = logits_with(m, t, ids, n_vocab);
    CHECK(memcmp(own, other, n_vocab * sizeof *own) != 0);
}

/* Stops after some calls. */
static bool stop_later(void *user, uint64_t done, uint64_t total)
{
    int *n = user;
    CHECK(done <= total && done % N_CTX == 0);
    return --*n > 0;
}

TEST(an_interrupted_trace_has_the_chunks_that_are_complete)
{
    CLEANUP(golden_close) golden g = {0};
    CLOSED(hearth_model) *m = open_mixture(&g, "dots1");
    if (!m) return;
    hth_expert_trace_options o = options_of(160);
    CLOSED(hth_expert_trace) *all = record(m, 1, 512, &o), *part = NULL, *read = NULL, *none = NULL;
    int n = 3;
    o.progress = stop_later, o.progress_user = &n;
    part = record(m, 1, 512, &o);
    CHECK(all->n_tok == 160 && part->n_tok == 64);
    CHECK_BYTES(all->layers[1].chosen, part->layers[1].chosen, 64 * part->layers[1].n_used * sizeof(uint16_t));
    CHECK_OK(hth_expert_trace_open(o.out, m->model, &read, err));
    if (read) CHECK_INT(read->n_tok, 64);
    CLOSED(hearth_session) *session = open_session(m, 1, 512);
    unlink(o.out);
    n = 1;
    CHECK_FAILS(hth_measure_expert_trace(m, session, text, N_TEXT, &o, &none, err), HEARTH_ERROR_CANCELLED, "nothing");
    CHECK(access(o.out, F_OK) != 0);
}

TEST(every_failed_allocation_is_an_error)
{
    CLEANUP(golden_close) golden g = {0};
    CLOSED(hearth_model) *m = open_mixture(&g, "dots1");
    if (!m) return;
    CLOSED(hearth_session) *session = open_session(m, 1, 512);
    hth_expert_trace_options o = options_of(64);
    hearth_status st = HEARTH_ERROR_MEMORY;
    uint64_t n = 0;
    for (; st != HEARTH_OK && n < 400; n++) {
        hth_expert_trace *t;
        hth_alloc_fail_at(n + 1, 0);
        st = hth_measure_expert_trace(m, session, text, N_TEXT, &o, &t, NULL);
        hth_alloc_fail_at(0, 0);
        CHECK((st == HEARTH_OK) == (t != NULL) && (t || st == HEARTH_ERROR_MEMORY));
        hth_expert_trace_close(t);
    }
    CHECK(n > 10 && st == HEARTH_OK);
}

TEST(texts_and_limits_below_a_chunk_are_refused)
{
    CLEANUP(golden_close) golden g = {0};
    CLOSED(hearth_model) *m = open_mixture(&g, "dots1");
    if (!m) return;
    CLOSED(hearth_session) *session = open_session(m, 1, 512);
    hth_expert_trace *none;
    hth_expert_trace_options o = options_of(31), gone = options_of(64);
    CHECK_FAILS(hth_measure_expert_trace(m, session, text, N_TEXT, &o, &none, err), HEARTH_ERROR_ARGUMENT, "a chunk of 32");
    CHECK_FAILS(hth_measure_expert_trace(m, session, text, 4, &gone, &none, err), HEARTH_ERROR_ARGUMENT, "text");
    gone.out = "/no/such/folder/x";
    CHECK_FAILS(hth_measure_expert_trace(m, session, text, N_TEXT, &gone, &none, err), HEARTH_ERROR_IO, "/no/such/folder");
}
