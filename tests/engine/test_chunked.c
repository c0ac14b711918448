/* Attention in chunks: a token sees the positions of its chunk, as with a window that reaches back to its start. */
#include "engine/engine.h"
#include "support/engine.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

enum { CHUNK = 256, N = 600, WIDE = 1000 };

typedef struct fixture {
    gguf_bytes file;
    hearth_model *model;
    hearth_session *session;
} fixture;

/* window > 0: of all layers. */
static void open_session(fixture *f, uint32_t window, uint32_t n_batch, uint32_t n_thread)
{
    tiny_model m;
    tiny_begin(&m);
    if (window > 0) tiny_become(&m, "phi3");
    if (window > 0) tiny_set_u32(&m, "phi3.attention.sliding_window", window);
    f->file = tiny_write(&m);
    tiny_free(&m);
    CHECK_OK(hearth_model_open_memory(f->file.data, f->file.n, "tiny", NULL, &f->model, err));
    hearth_session_options o = {.n_ctx = N, .n_batch = n_batch, .n_thread = n_thread};
    CHECK_OK(hearth_session_open(f->model, &o, &f->session, err));
}

static void close_all(fixture *f)
{
    hearth_session_close(f->session);
    hearth_model_close(f->model);
    gguf_free(&f->file);
}

static void set(fixture *f, uint32_t window, uint32_t chunk)
{
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        hth_attention *a = &f->model->model->layers[i].attn;
        if (a->window > 0) a->window = window;
        a->chunk = chunk;
    }
}

TEST(a_chunk_is_a_window_that_reaches_back_to_its_start)
{
    static const struct {
        uint32_t n_batch, n_thread;
    } ways[] = {{1, 1}, {37, 3}, {256, 2}};
    test_random r = {3};
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    fixture by_window;
    open_session(&by_window, WIDE, 1, 1);
    for (uint32_t i = 0; i < N; i++) {
        set(&by_window, i % CHUNK + 1, 0);
        CHECK_OK(hearth_session_eval(by_window.session, ids + i, 1, err));
    }
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        fixture chunked;
        open_session(&chunked, WIDE, ways[w].n_batch, ways[w].n_thread);
        set(&chunked, WIDE, CHUNK);
        CHECK_OK(hearth_session_eval(chunked.session, ids, N, err));
        const float *want = hearth_session_logits(by_window.session), *got = hearth_session_logits(chunked.session);
        if (CHECK(want && got)) CHECK_BYTES(got, want, TINY_VOCAB * sizeof *want);
        close_all(&chunked);
    }
    close_all(&by_window);
}
