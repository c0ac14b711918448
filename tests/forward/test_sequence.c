/* forward/kv_pool.c and sequence.c alone: pages are shared, copied and given back, by several threads too; states of
 * recurrent layers return to checkpoints. */
#include "forward/sequence.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <hearth/hearth.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N_CTX = 320, STATE_SIZE = 24 };

typedef struct fixture {
    gguf_bytes bytes;
    hth_gguf *file;
    hth_model *model;
    hth_kv_pool *pool;
} fixture;

/* state: layer 1 has a state, as a recurrent mixer would. */
static void open_pool(fixture *f, const char *architecture, bool state)
{
    tiny_model m;
    tiny_begin(&m);
    if (architecture) tiny_become(&m, architecture);
    if (architecture) tiny_set_u32(&m, "gemma2.attention.sliding_window", 40);
    f->bytes = tiny_write(&m);
    tiny_free(&m);
    CHECK_OK(hth_gguf_open_memory(f->bytes.data, f->bytes.n, "tiny", &f->file, err));
    CHECK_OK(hth_model_open(f->file, &(hth_model_overrides){0}, &f->model, err));
    if (state) f->model->layers[1].state_size = STATE_SIZE;
    CHECK_OK(hth_kv_pool_open(f->model, HEARTH_KV_F16, &f->pool, err));
}

static void close_pool(fixture *f)
{
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        hth_kv_usage u = hth_kv_pool_usage(f->pool, (hth_kv_class)c);
        CHECK_INT(u.n_used + u.n_reserved + u.n_page, 0);
    }
    hth_kv_pool_close(f->pool);
    hth_model_close(f->model);
    hth_gguf_close(f->file);
    gguf_free(&f->bytes);
}

static hth_sequence open_sequence(fixture *f, bool release)
{
    hth_sequence s;
    const hth_sequence_options o = {.n_ctx = N_CTX, .release_window = release, .n_step = 16};
    CHECK_OK(hth_sequence_open(&s, f->pool, &o, err));
    return s;
}

/* A step of n tokens whose layers write `value` for the state. */
static void step(hth_sequence *s, uint32_t n, uint8_t value)
{
    hth_sequence_prepare(s, n);
    for (size_t i = 0; i < s->state_size; i++) s->next[i] = (uint8_t)(s->now[i] + value);
    hth_sequence_commit(s, n);
}

/* ---- pages ---------------------------------------------------------------------------------------------------- */

TEST(a_copy_shares_pages_until_one_side_writes)
{
    fixture f;
    open_pool(&f, NULL, false);
    hth_sequence a = open_sequence(&f, false), b;
    step(&a, 40, 0);
    uint32_t own = hth_kv_pool_usage(f.pool, HTH_KV_FULL).n_used;
    CHECK_OK(hth_sequence_fork(&a, &b, err));
    CHECK_INT(hth_kv_pool_usage(f.pool, HTH_KV_FULL).n_used, 2 * own - 2);
    CHECK(a.tables[0].pages[1] == b.tables[0].pages[1]);
    memset(a.tables[0].pages[1]->data, 7, hth_kv_pool_page_size(f.pool, HTH_KV_FULL));
    step(&b, 1, 0);
    CHECK(a.tables[0].pages[0] == b.tables[0].pages[0] && a.tables[0].pages[1] != b.tables[0].pages[1]);
    CHECK_BYTES(a.tables[0].data[1], b.tables[0].data[1], hth_kv_pool_page_size(f.pool, HTH_KV_FULL));
    const uint8_t *before = a.tables[0].data[1];
    step(&a, 1, 0);
    CHECK(a.tables[0].data[1] == before); /* held by one sequence: written in place */
    hth_sequence_close(&a);
    hth_sequence_close(&b);
    close_pool(&f);
}

TEST(pages_behind_a_window_are_reused)
{
    fixture f;
    open_pool(&f, "gemma2", false);
    hth_sequence s = open_sequence(&f, true);
    uint32_t held = hth_kv_pool_usage(f.pool, HTH_KV_WINDOW).n_used;
    CHECK(held < s.n_page); /* (40 + 16) / 32 + 2 pages */
    for (uint32_t n; s.n_tok < N_CTX; step(&s, n, 0)) {
        n = N_CTX - s.n_tok < 16 ? N_CTX - s.n_tok : 16;
        for (uint32_t p = s.n_tok + 1 > 40 ? s.n_tok + 1 - 40 : 0; p < s.n_tok; p++)
            CHECK(s.tables[HTH_KV_WINDOW].data[p / HTH_KV_PAGE] != NULL);
    }
    CHECK_INT(hth_kv_pool_usage(f.pool, HTH_KV_WINDOW).n_used, held);
    CHECK_INT(hth_sequence_reachable(&s, 100), 0);
    hth_sequence_truncate(&s, 0);
    step(&s, 16, 0);
    CHECK_INT(hth_sequence_reachable(&s, 5), 5);
    hth_sequence_close(&s);
    close_pool(&f);
}

/* Copies, steps and closes sequences that other threads copy from the same source. */
static void *use_pool(void *arg)
{
    const hth_sequence *source = arg;
    test_random r = {(uint64_t)(uintptr_t)&r};
    for (int i = 0; i < 300; i++) {
        hth_sequence s;
        hearth_error why;
        if (hth_sequence_fork(source, &s, &why) != HEARTH_OK) return arg;
        for (int k = 0; k < 4; k++) {
            uint32_t n = 1 + test_random_below(&r, 40);
            hth_sequence_prepare(&s, n);
            for (uint32_t p = s.n_tok / HTH_KV_PAGE; p < hth_kv_n_page(s.n_tok + n); p++)
                s.tables[0].pages[p]->data[0] = (uint8_t)i;
            hth_sequence_commit(&s, n);
        }
        hth_sequence_truncate(&s, test_random_below(&r, s.n_tok + 1));
        hth_sequence_close(&s);
    }
    return NULL;
}

TEST(threads_share_a_pool)
{
    enum { N_THREAD = 4 };
    fixture f;
    pthread_t threads[N_THREAD];
    open_pool(&f, NULL, false);
    hth_sequence source = open_sequence(&f, false);
    step(&source, 16, 0), step(&source, 16, 0), step(&source, 13, 0);
    for (int i = 0; i < N_THREAD; i++) CHECK_INT(pthread_create(&threads[i], NULL, use_pool, &source), 0);
    for (int i = 0; i < N_THREAD; i++) {
        void *failed;
        CHECK_INT(pthread_join(threads[i], &failed), 0);
        CHECK(failed == NULL);
    }
    hth_sequence_close(&source);
    close_pool(&f);
}

typedef struct writer {
    hth_sequence *s;
    pthread_barrier_t *start;
} writer;

static void *write_shared(void *arg)
{
    writer *w = arg;
    pthread_barrier_wait(w->start);
    hth_sequence_prepare(w->s, 1);
    w->s->tables[0].pages[0]->data[0]++;
    return NULL;
}

/* The pool has no page beyond those that both hold. */
TEST(two_holders_write_to_a_shared_page_at_once)
{
    fixture f;
    pthread_barrier_t start;
    open_pool(&f, NULL, false);
    pthread_barrier_init(&start, NULL, 2);
    for (int i = 0; i < 500; i++) {
        hth_sequence a, b;
        const hth_sequence_options o = {.n_ctx = 32};
        CHECK_OK(hth_sequence_open(&a, f.pool, &o, err));
        step(&a, 7, 0);
        CHECK_OK(hth_sequence_fork(&a, &b, err));
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, write_shared, &(writer){&b, &start}), 0);
        write_shared(&(writer){&a, &start});
        CHECK_INT(pthread_join(thread, NULL), 0);
        CHECK(a.tables[0].pages[0] != b.tables[0].pages[0]);
        hth_sequence_close(&a);
        hth_sequence_close(&b);
    }
    pthread_barrier_destroy(&start);
    close_pool(&f);
}

/* ---- states --------------------------------------------------------------------------------------------------- */

TEST(a_step_that_failed_leaves_the_state)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false);
    step(&s, 1, 3);
    hth_sequence_prepare(&s, 1);
    memset(s.next, 99, s.state_size); /* not committed */
    CHECK_INT(s.now[0], 3);
    step(&s, 1, 4);
    CHECK_INT(s.now[STATE_SIZE - 1], 7);
    hth_sequence_close(&s);
    close_pool(&f);
}

TEST(a_state_returns_only_to_checkpoints)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false), copy;
    for (uint8_t i = 1; i <= 6; i++) {
        step(&s, 10, i);
        hth_sequence_checkpoint(&s); /* at 10, 20, ... 60; the last four are kept */
    }
    step(&s, 5, 1);
    CHECK_OK(hth_sequence_fork(&s, &copy, err));
    CHECK_INT(hth_sequence_reachable(&s, 64), 60);
    CHECK_INT(hth_sequence_reachable(&s, 49), 40);
    CHECK_INT(hth_sequence_reachable(&s, 29), 0);
    hth_sequence_truncate(&s, 40);
    CHECK_INT(s.now[0], 1 + 2 + 3 + 4);
    CHECK_INT(hth_sequence_reachable(&s, 39), 30);
    step(&s, 1, 1); /* the checkpoint at 50 is of dropped tokens */
    CHECK_INT(s.now[0], 11);
    hth_sequence_truncate(&s, 0);
    CHECK_INT(s.now[0], 0);
    CHECK_INT(copy.now[0], 22);
    hth_sequence_truncate(&copy, 50);
    CHECK_INT(copy.now[0], 15);
    hth_sequence_close(&s);
    hth_sequence_close(&copy);
    close_pool(&f);
}

