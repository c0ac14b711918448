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
    for (int k = 0; state && k < HTH_N_STATE; k++) f->model->layers[1].state_sizes[k] = STATE_SIZE;
    CHECK_OK(hth_kv_pool_open(f->model, HEARTH_KV_F16, &f->pool, err));
}

static void close_pool(fixture *f)
{
    for (int c = 0; c < HTH_N_PAGE_CLASS; c++) {
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

static hth_state state_of(const hth_sequence *s) { return hth_sequence_state(s, 1, HTH_STATE_STEP); }
static uint8_t value_of(const hth_sequence *s) { return ((const uint8_t *)state_of(s).now)[STATE_SIZE - 1]; }

/* A step of n tokens whose layers add `value` to the state. */
static void step(hth_sequence *s, uint32_t n, uint8_t value)
{
    hth_sequence_prepare(s, n);
    if (s->state_size > 0) {
        hth_state state = state_of(s);
        for (size_t i = 0; i < STATE_SIZE; i++)
            ((uint8_t *)state.next)[i] = (uint8_t)(((uint8_t *)state.now)[i] + value);
    }
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

/* ---- pages of a device ---------------------------------------------------------------------------------------- */

TEST(a_pool_does_not_exceed_the_pages_of_its_device)
{
    enum { N_PAGE = N_CTX / HTH_KV_PAGE };
    fixture f;
    hth_sequence a, b;
    hearth_error why;
    const hth_sequence_options o = {.n_ctx = N_CTX}, small = {.n_ctx = 33};
    open_pool(&f, NULL, false);
    hth_kv_pool_set_limit(f.pool, N_PAGE + 1, 0);
    CHECK_OK(hth_sequence_open(&a, f.pool, &o, err));
    CHECK_INT(hth_sequence_open(&b, f.pool, &small, &why), HEARTH_ERROR_MEMORY);
    CHECK_TEXT(why.message, "tiny: no room for 33 positions beside other sessions on its device: it was opened for "
                            "352 in all; open it with a larger gpu.n_ctx, or close a session");
    CHECK_INT(hth_sequence_fork(&a, &b, &why), HEARTH_ERROR_MEMORY);
    CHECK_INT(hth_kv_pool_usage(f.pool, HTH_KV_FULL).n_reserved, N_PAGE);
    hth_kv_pool_set_limit(f.pool, 0, 0);
    CHECK_OK(hth_sequence_fork(&a, &b, err));
    hth_sequence_close(&a);
    hth_sequence_close(&b);
    close_pool(&f);
}

enum { N_MEMBER = 6, N_DEVICE_PAGE = N_MEMBER * N_CTX / HTH_KV_PAGE };

/* What a device has of each page: a value per position. */
typedef struct fake_device {
    uint32_t values[HTH_N_KV_CLASS][N_DEVICE_PAGE][HTH_KV_PAGE];
} fake_device;

/* All copies that wait, or only the first. */
static void copy_on_device(hth_kv_pool *pool, fake_device *d, bool all)
{
    hth_kv_copy copy;
    for (int c = 0; c < HTH_N_KV_CLASS; c++)
        while (hth_kv_pool_next_copy(pool, (hth_kv_class)c, &copy)) {
            CHECK(copy.from != copy.to);
            memcpy(d->values[c][copy.to], d->values[c][copy.from], sizeof *d->values[c]);
            hth_kv_pool_copy_done(pool, (hth_kv_class)c);
            if (!all) break;
        }
}

/* Writes n_new prepared positions, with values that the sequence's own list has too. */
static void write_on_device(hth_sequence *s, fake_device *d, uint32_t n_new, uint32_t *values, test_random *r)
{
    for (uint32_t p = s->n_tok; p < s->n_tok + n_new; p++) {
        values[p] = test_random_below(r, UINT32_MAX);
        for (int c = 0; c < HTH_N_KV_CLASS; c++) {
            const hth_kv_page *page = s->tables[c].n_held > 0 ? s->tables[c].pages[p / HTH_KV_PAGE] : NULL;
            if (page) CHECK(page->index < N_DEVICE_PAGE && !hth_kv_page_is_shared(page));
            if (page) d->values[c][page->index][p % HTH_KV_PAGE] = values[p];
        }
    }
    hth_sequence_commit(s, n_new);
}

static void expect_on_device(const hth_sequence *s, const fake_device *d, const uint32_t *values)
{
    for (uint32_t p = 0; p < s->n_tok; p++)
        for (int c = 0; c < HTH_N_KV_CLASS; c++) {
            uint32_t first = c == HTH_KV_WINDOW ? s->first_window * HTH_KV_PAGE : 0;
            if (s->tables[c].n_held == 0 || p < first) continue;
            CHECK_INT(d->values[c][s->tables[c].pages[p / HTH_KV_PAGE]->index][p % HTH_KV_PAGE], values[p]);
        }
}

/* Steps that fail after they were prepared, and sequences that are copied and closed meanwhile, leave copies in the
 * queue; a page may then be source and target of several. */
static void check_queue(bool release, uint64_t seed)
{
    static fake_device device;
    static uint32_t values[N_MEMBER][N_CTX];
    hth_sequence members[N_MEMBER] = {0};
    fixture f;
    test_random r = {seed};
    open_pool(&f, "gemma2", false);
    hth_kv_pool_set_limit(f.pool, N_DEVICE_PAGE, 0);
    members[0] = open_sequence(&f, release);
    for (int i = 0; i < 3000 && test_n_failed() == 0; i++) {
        uint32_t k = test_random_below(&r, N_MEMBER), from = test_random_below(&r, N_MEMBER), n_new;
        hth_sequence *s = &members[k];
        if (!s->pool) {
            if (!members[from].pool) members[k] = open_sequence(&f, release);
            else CHECK_OK(hth_sequence_fork(&members[from], s, err));
            if (members[from].pool) memcpy(values[k], values[from], sizeof values[k]);
            continue;
        }
        switch (test_random_below(&r, 8)) {
        case 0: hth_sequence_close(s); break;
        case 1: hth_sequence_truncate(s, hth_sequence_reachable(s, test_random_below(&r, s->n_tok + 1))); break;
        case 2: copy_on_device(f.pool, &device, false); break;
        default:
            n_new = 1 + test_random_below(&r, 16);
            if (n_new > N_CTX - s->n_tok) continue;
            hth_sequence_prepare(s, n_new);
            if (test_random_below(&r, 2)) continue; /* the step fails */
            copy_on_device(f.pool, &device, true);
            write_on_device(s, &device, n_new, values[k], &r);
            for (int m = 0; m < N_MEMBER; m++)
                if (members[m].pool) expect_on_device(&members[m], &device, values[m]);
        }
    }
    for (int m = 0; m < N_MEMBER; m++) hth_sequence_close(&members[m]);
    close_pool(&f);
}

TEST(copies_on_a_device_have_the_contents_of_their_source)
{
    for (uint64_t seed = 1; seed <= 6; seed++) check_queue(seed % 2, seed);
}

/* ---- states --------------------------------------------------------------------------------------------------- */

TEST(a_step_that_failed_leaves_the_state)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false);
    step(&s, 1, 3);
    hth_sequence_prepare(&s, 1);
    memset(state_of(&s).next, 99, STATE_SIZE); /* not committed */
    CHECK_INT(value_of(&s), 3);
    step(&s, 1, 4);
    CHECK_INT(value_of(&s), 7);
    hth_sequence_close(&s);
    close_pool(&f);
}

/* Copies of the state of a chunk change places when a step reaches the next chunk, and not before. */
TEST(a_step_within_a_chunk_keeps_the_copy)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false);
    const void *first = hth_sequence_state(&s, 1, HTH_STATE_CHUNK).now;
    step(&s, HTH_CHUNK - 1, 1);
    CHECK(hth_sequence_state(&s, 1, HTH_STATE_CHUNK).now == first);
    step(&s, 1, 1);
    CHECK(hth_sequence_state(&s, 1, HTH_STATE_CHUNK).next == first);
    step(&s, 16, 1);
    CHECK(hth_sequence_state(&s, 1, HTH_STATE_CHUNK).next == first);
    step(&s, 2 * HTH_CHUNK, 1);
    CHECK(hth_sequence_state(&s, 1, HTH_STATE_CHUNK).now == first);
    hth_sequence_close(&s);
    close_pool(&f);
}

TEST(a_state_returns_only_to_checkpoints)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false), copy;
    for (uint8_t i = 1; i <= 6; i++) { /* states at 10, 20, ... 60; the last four are kept */
        step(&s, 10, i);
        hth_sequence_checkpoint(&s, HTH_CHECKPOINT_EXPLICIT);
    }
    step(&s, 1, 1); /* keeps none */
    CHECK_OK(hth_sequence_fork(&s, &copy, err));
    CHECK_INT(hth_sequence_reachable(&s, 60), 60);
    CHECK_INT(hth_sequence_reachable(&s, 49), 40);
    CHECK_INT(hth_sequence_reachable(&s, 29), 0);
    hth_sequence_truncate(&s, 40);
    CHECK_INT(value_of(&s), 1 + 2 + 3 + 4);
    CHECK_INT(hth_sequence_reachable(&s, 39), 30);
    step(&s, 1, 1); /* the checkpoint at 50 is of dropped tokens */
    CHECK_INT(value_of(&s), 11);
    hth_sequence_truncate(&s, 0);
    CHECK_INT(value_of(&s), 0);
    CHECK_INT(value_of(&copy), 22);
    hth_sequence_truncate(&copy, 50);
    CHECK_INT(value_of(&copy), 15);
    hth_sequence_close(&s);
    hth_sequence_close(&copy);
    close_pool(&f);
}

static uint32_t n_state_page(const fixture *f, hth_state_kind kind)
{
    return hth_kv_pool_usage(f->pool, (hth_kv_class)(HTH_KV_STATES + kind)).n_used;
}

TEST(a_checkpoint_and_a_copy_share_states_until_a_step_writes_them)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false), copy;
    step(&s, 10, 1);
    hth_sequence_checkpoint(&s, HTH_CHECKPOINT_EXPLICIT);
    CHECK_OK(hth_sequence_fork(&s, &copy, err));
    for (int k = 0; k < HTH_N_STATE; k++) CHECK_INT(n_state_page(&f, (hth_state_kind)k), 2);
    step(&copy, 1, 1); /* `next` is shared; a chunk is copied, as tokens are added to it */
    CHECK_INT(n_state_page(&f, HTH_STATE_STEP), 3);
    CHECK_INT(n_state_page(&f, HTH_STATE_CHUNK), 4);
    CHECK_INT(value_of(&s), 1);
    CHECK_INT(value_of(&copy), 2);
    hth_sequence_truncate(&copy, 10);
    CHECK_INT(value_of(&copy), 1);
    hth_sequence_truncate(&copy, 0);
    CHECK_INT(value_of(&copy), 0);
    CHECK_INT(value_of(&s), 1);
    hth_sequence_close(&copy);
    hth_sequence_close(&s);
    close_pool(&f);
}

/* A step of a token and a draft. The state counts tokens; `kept` gets those before each token of the draft. */
static void step_ahead(hth_sequence *s, uint32_t n_draft, uint8_t *kept)
{
    hth_state state = state_of(s);
    size_t size = s->states[HTH_STATE_STEP].size;
    hth_sequence_prepare(s, 1 + n_draft);
    for (uint32_t i = 0; i <= n_draft; i++)
        memset(i < n_draft ? kept + i * size : state.next, value_of(s) + 1 + (int)i, STATE_SIZE);
    hth_sequence_commit(s, 1 + n_draft);
    hth_sequence_set_ahead(s, n_draft, kept);
}

enum { N_DRAFT = 6 };

TEST(a_state_returns_to_any_token_of_a_draft)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false), copy;
    uint8_t *kept = calloc(N_DRAFT, 64);
    CHECK_INT(s.states[HTH_STATE_STEP].size, 64);
    step(&s, 1, 1);
    for (uint32_t n = 1; n < 60; n += 3) { /* from n on; some pass the end of a chunk */
        step_ahead(&s, N_DRAFT, kept);
        CHECK_INT(hth_sequence_reachable(&s, n), 0); /* that of the step's own token */
        for (uint32_t to = n + 1; to <= n + 1 + N_DRAFT; to++) {
            const bool ends_chunk = (n + 1 + N_DRAFT) / HTH_CHUNK != to / HTH_CHUNK;
            CHECK_INT(hth_sequence_reachable(&s, to), to);
            CHECK_OK(hth_sequence_fork(&s, &copy, err));
            uint8_t *chunks[] = {copy.states[HTH_STATE_CHUNK].now->data, copy.states[HTH_STATE_CHUNK].next->data};
            *chunks[0] = 1, *chunks[1] = 2;
            hth_sequence_truncate(&copy, to);
            CHECK_INT(copy.n_tok, to);
            CHECK_INT(value_of(&copy), to);
            CHECK_INT(*copy.states[HTH_STATE_CHUNK].now->data, 1 + ends_chunk);
            CHECK_INT(hth_sequence_reachable(&copy, to - 1), 0); /* the draft's states are gone */
            step(&copy, 1, 1);
            CHECK_INT(value_of(&copy), to + 1);
            hth_sequence_close(&copy);
        }
        hth_sequence_truncate(&s, n + 3);
        memset(kept, 99, N_DRAFT * 64);
    }
    step_ahead(&s, N_DRAFT, kept);
    hth_sequence_set_ahead(&s, 0, NULL); /* all of it was right */
    CHECK_INT(hth_sequence_reachable(&s, s.n_tok - 1), 0);
    hth_sequence_close(&s);
    free(kept);
    close_pool(&f);
}

/* A copy of a sequence that is ahead has the tokens of a chunk that the draft has ended. */
TEST(the_copy_of_a_chunk_that_a_draft_ends_is_copied_too)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false), copy;
    uint8_t *kept = calloc(N_DRAFT, 64);
    step(&s, HTH_CHUNK - 3, 1);
    hth_state chunk = hth_sequence_state(&s, 1, HTH_STATE_CHUNK);
    memset(chunk.now, 5, STATE_SIZE), memset(chunk.next, 6, STATE_SIZE);
    step_ahead(&s, N_DRAFT, kept);
    CHECK_OK(hth_sequence_fork(&s, &copy, err));
    CHECK_INT(*(uint8_t *)hth_sequence_state(&copy, 1, HTH_STATE_CHUNK).now, 6);
    hth_sequence_truncate(&copy, HTH_CHUNK - 1);
    CHECK_INT(*(uint8_t *)hth_sequence_state(&copy, 1, HTH_STATE_CHUNK).now, 5);
    hth_sequence_truncate(&s, HTH_CHUNK);
    CHECK_INT(*(uint8_t *)hth_sequence_state(&s, 1, HTH_STATE_CHUNK).now, 6);
    hth_sequence_close(&copy);
    hth_sequence_close(&s);
    free(kept);
    close_pool(&f);
}

enum { N_DEVICE_STATE = 4 * HTH_N_STATE_COPY_ON_DEVICE };

/* Makes the copies of states that wait; values: [N_DEVICE_STATE] what the device has of each page. Returns their number. */
static uint32_t copy_states(hth_kv_pool *pool, hth_state_kind kind, uint8_t *values)
{
    const hth_kv_class class = (hth_kv_class)(HTH_KV_STATES + kind);
    uint32_t n = 0;
    for (hth_kv_copy copy; hth_kv_pool_next_copy(pool, class, &copy); n++) {
        values[copy.to] = values[copy.from];
        hth_kv_pool_copy_done(pool, class);
    }
    return n;
}

/* Copies that return to a draft have states of their own on a device as well. If they are closed before a step, nothing
 * needs these, and only the first one, which may be under way, is made. */
TEST(closed_copies_of_a_sequence_with_a_draft_leave_the_queue)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_kv_pool_set_limit(f.pool, N_DEVICE_PAGE, N_DEVICE_STATE);
    hth_sequence s = open_sequence(&f, false), copy, next;
    uint8_t *kept = calloc(N_DRAFT, 64), values[HTH_N_STATE][N_DEVICE_STATE] = {{0}};
    step(&s, 1, 1);
    step_ahead(&s, N_DRAFT, kept);
    for (int i = 0; i < 500; i++) {
        CHECK_OK(hth_sequence_fork(&s, &copy, err));
        hth_sequence_truncate(&copy, s.n_tok - 1 - (uint32_t)i % N_DRAFT);
        hth_sequence_close(&copy);
    }
    for (int k = 0; k < HTH_N_STATE; k++) CHECK_INT(copy_states(f.pool, (hth_state_kind)k, values[k]), 1);
    /* A copy of the copy reads the states of one that is closed before they were made. */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hth_sequence_fork(&s, &copy, err));
        hth_sequence_truncate(&copy, s.n_tok - 2);
        CHECK_OK(hth_sequence_fork(&copy, &next, err));
        if (i == 1) hth_sequence_prepare(&next, 1);
        hth_sequence_close(&copy);
        if (i == 0) hth_sequence_close(&next);
    }
    uint8_t *chunks = values[HTH_STATE_CHUNK];
    chunks[s.states[HTH_STATE_CHUNK].now->index] = 7;
    CHECK_INT(copy_states(f.pool, HTH_STATE_CHUNK, chunks), 3);
    CHECK_INT(chunks[next.states[HTH_STATE_CHUNK].now->index], 7);
    hth_sequence_close(&next);
    hth_sequence_close(&s);
    free(kept);
    close_pool(&f);
}

TEST(a_checkpoint_of_a_draft_that_was_wrong_is_replaced_by_one_before_it)
{
    static const struct {
        uint32_t to, expected; /* the checkpoint */
    } cases[] = {{255, 0}, {256, 256}, {258, 258}, {259, 259}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        open_pool(&f, NULL, true);
        hth_sequence s = open_sequence(&f, false);
        uint8_t *kept = calloc(N_DRAFT, 64);
        for (int k = 0; k < 23; k++) step(&s, 11, 0); /* 253 */
        step_ahead(&s, N_DRAFT, kept);                /* 260 */
        CHECK_INT(hth_sequence_reachable(&s, 260), 260);
        hth_sequence_truncate(&s, cases[i].to);
        uint8_t value = value_of(&s);
        CHECK_INT(value, cases[i].to - 253);
        step(&s, 16, 3); /* the first one passes 256 itself, and keeps 271 */
        CHECK_INT(hth_sequence_reachable(&s, s.n_tok - 1), cases[i].expected);
        if (cases[i].expected > 0) {
            hth_sequence_truncate(&s, cases[i].expected);
            CHECK_INT(value_of(&s), value);
        }
        hth_sequence_close(&s);
        free(kept);
        close_pool(&f);
    }
}

TEST(a_checkpoint_that_was_asked_for_outlives_regular_ones_and_other_attempts)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false);
    for (uint8_t i = 0; i < 16; i++) step(&s, 16, 1); /* 256 positions: a regular one is there */
    hth_sequence_checkpoint(&s, HTH_CHECKPOINT_EXPLICIT);
    for (uint32_t i = 0; i < 2 * HTH_KEPT; i++) { /* each attempt leaves a checkpoint that is not valid any more */
        step(&s, 10, 1);
        hth_sequence_checkpoint(&s, HTH_CHECKPOINT_EXPLICIT);
        hth_sequence_truncate(&s, 256);
        CHECK_INT(value_of(&s), 16);
    }
    for (uint32_t i = 0; i < HTH_KEPT; i++) { /* the regular one at 256 is replaced */
        step(&s, 2, 1);
        hth_sequence_checkpoint(&s, HTH_CHECKPOINT_REGULAR);
    }
    CHECK_INT(hth_sequence_reachable(&s, 257), 256);
    hth_sequence_close(&s);
    close_pool(&f);
}

TEST(a_checkpoint_is_kept_where_a_step_reaches_a_multiple_of_its_distance)
{
    fixture f;
    open_pool(&f, NULL, true);
    hth_sequence s = open_sequence(&f, false);
    for (uint8_t i = 0; i < 17; i++) step(&s, 16, 1); /* 272 positions, 256 on the way */
    CHECK_INT(hth_sequence_reachable(&s, 271), HTH_CHECKPOINT_STEP);
    CHECK_INT(hth_sequence_reachable(&s, HTH_CHECKPOINT_STEP - 1), 0);
    for (uint8_t i = 0; i < HTH_KEPT + 1; i++) hth_sequence_checkpoint(&s, HTH_CHECKPOINT_EXPLICIT), step(&s, 1, 1);
    CHECK_INT(hth_sequence_reachable(&s, 271), HTH_CHECKPOINT_STEP); /* the other kind does not replace it */
    hth_sequence_truncate(&s, HTH_CHECKPOINT_STEP);
    CHECK_INT(value_of(&s), 16);
    hth_sequence_close(&s);
    close_pool(&f);
}

/* ---- budgets -------------------------------------------------------------------------------------------------- */

static uint32_t missing(const hth_sequence *s, uint32_t n, hth_kv_class class)
{
    uint32_t n_page[HTH_N_KV_CLASS] = {0};
    hth_sequence_count_missing(s, n, n_page);
    return n_page[class];
}

TEST(sequences_of_a_budget_hold_the_pages_of_their_tokens)
{
    fixture f;
    hth_kv_budget budget;
    hth_sequence a, b;
    open_pool(&f, NULL, false);
    CHECK(hth_kv_budget_open(&budget, f.pool, 100) == HTH_KV_RESERVED);
    CHECK_INT(budget.n_page[HTH_KV_FULL], 4);
    const hth_sequence_options o = {.n_ctx = N_CTX, .budget = &budget};
    CHECK_OK(hth_sequence_open(&a, f.pool, &o, err));
    CHECK_INT(budget.n_used[HTH_KV_FULL], 0);
    CHECK_INT(missing(&a, 40, HTH_KV_FULL), 2);
    step(&a, 40, 0);
    CHECK_INT(budget.n_used[HTH_KV_FULL], 2);
    CHECK_OK(hth_sequence_fork(&a, &b, err));
    CHECK_INT(budget.n_used[HTH_KV_FULL], 2); /* shared pages count once */
    CHECK_INT(missing(&b, 1, HTH_KV_FULL), 1);
    CHECK_INT(missing(&b, 40, HTH_KV_FULL), 2); /* a copy of the second one, and a third one */
    step(&b, 40, 0);
    CHECK_INT(budget.n_used[HTH_KV_FULL], 4);
    const uint32_t one[HTH_N_KV_CLASS] = {1};
    CHECK(!hth_kv_budget_has(&budget, one));
    hth_sequence_truncate(&b, 33);
    CHECK(hth_kv_budget_has(&budget, one));
    hth_sequence_close(&a);
    CHECK_INT(budget.n_used[HTH_KV_FULL], 2);
    hth_sequence_truncate(&b, 0);
    CHECK_INT(budget.n_used[HTH_KV_FULL], 0);
    hth_sequence_close(&b);
    hth_kv_budget_close(&budget);
    close_pool(&f);
}

TEST(pages_behind_a_window_go_back_to_the_budget)
{
    fixture f;
    hth_kv_budget budget;
    hth_sequence s;
    open_pool(&f, "gemma2", false);
    CHECK(hth_kv_budget_open(&budget, f.pool, N_CTX) == HTH_KV_RESERVED);
    const hth_sequence_options o = {.n_ctx = N_CTX, .release_window = true, .n_step = 16, .budget = &budget};
    CHECK_OK(hth_sequence_open(&s, f.pool, &o, err));
    for (int i = 0; i < 16; i++) step(&s, 16, 0);
    CHECK_INT(budget.n_used[HTH_KV_FULL], 8);
    CHECK_INT(budget.n_used[HTH_KV_WINDOW], 2); /* 40 positions before position 256 */
    hth_sequence_truncate(&s, 0);
    CHECK_INT(budget.n_used[HTH_KV_FULL] + budget.n_used[HTH_KV_WINDOW], 0);
    step(&s, 16, 0);
    hth_sequence_close(&s);
    hth_kv_budget_close(&budget);
    close_pool(&f);
}
