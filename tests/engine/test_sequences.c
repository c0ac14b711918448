/* Sessions that are copied, cut, saved and restored give the bits of a session that evaluated the same tokens from
 * the start; files of sessions that were damaged or do not fit are refused and change nothing. */
#include "base/alloc.h"
#include "base/hash.h"
#include "engine/engine.h"
#include "support/engine.h"
#include "support/faults.h"
#include "support/models/tiny_model.h"
#include "support/test.h"


enum { N = 160, MORE = 20, WINDOW = 40, N_BATCH = 8 };

/* All layers of a model see everything, or some have a window or blocks, or are recurrent or latent; dense, or mixtures
 * of experts. */
typedef enum model_kind {
    PLAIN,
    WINDOWED,
    MIXTURE,
    WINDOWED_MIXTURE,
    CONVOLUTION,
    DELTA_NET,
    LATENT,
    SHARED_KV,
    BLOCKS, /* over a window of 20 positions */
    SSM_ALONE,    /* without keys and values */
    SSM_BESIDE,   /* attention */
    SSM_CHANNELS,
    SSM_LOW,
    N_KIND,
} model_kind;
typedef struct fixture {
    gguf_bytes file;
    hearth_model *model;
    int32_t ids[N + MORE], other[N + MORE];
} fixture;

static void open_model(fixture *f, model_kind k)
{
    static const char *const architectures[] = {
        [WINDOWED] = "gemma2",   [MIXTURE] = "qwen2moe",  [WINDOWED_MIXTURE] = "gpt-oss",
        [CONVOLUTION] = "lfm2",  [DELTA_NET] = "qwen35",   [LATENT] = "deepseek2", [SHARED_KV] = "gemma4",
        [BLOCKS] = "deepseek4",
        [SSM_ALONE] = "mamba2",  [SSM_BESIDE] = "falcon-h1",
        [SSM_CHANNELS] = "jamba", [SSM_LOW] = "plamo2"};
    tiny_model m;
    test_random r = {11};
    tiny_begin(&m);
    if (k != PLAIN) tiny_become(&m, architectures[k]);
    if (k == WINDOWED) tiny_set_u32(&m, "gemma2.attention.sliding_window", WINDOW);
    if (k == WINDOWED_MIXTURE) tiny_set_u32(&m, "gpt-oss.attention.sliding_window", WINDOW);
    f->file = tiny_write(&m);
    tiny_free(&m);
    for (int i = 0; i < N + MORE; i++) f->ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    for (int i = 0; i < N + MORE; i++) f->other[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    CHECK_OK(hearth_model_open_memory(f->file.data, f->file.n, "tiny", NULL, &f->model, err));
}

static void close_model(fixture *f)
{
    hearth_model_close(f->model);
    gguf_free(&f->file);
}

typedef struct setting {
    uint32_t n_thread, n_ctx;
    hearth_kv_type kv;
    bool release;
} setting;

static hearth_session *open_session(const fixture *f, const setting *s)
{
    hearth_session *out = NULL;
    hearth_session_options o = {.n_ctx = s->n_ctx ? s->n_ctx : 2 * N,
                                .n_batch = N_BATCH,
                                .n_thread = s->n_thread ? s->n_thread : 1,
                                .kv = s->kv,
                                .release_window = s->release};
    CHECK_OK(hearth_session_open(f->model, &o, &out, err));
    return out;
}

static void feed(hearth_session *s, const int32_t *ids, size_t n) { CHECK_OK(hearth_session_eval(s, ids, n, err)); }

/* The logits after n_a of a, then n_b of b, by a session of its own. */
static void expect(const fixture *f, const setting *how, const hearth_session *s, const int32_t *a, size_t n_a,
                   const int32_t *b, size_t n_b)
{
    hearth_session *fresh = open_session(f, how);
    feed(fresh, a, n_a);
    feed(fresh, b, n_b);
    const float *want = hearth_session_logits(fresh), *got = hearth_session_logits(s);
    if (CHECK_INT(hearth_session_position(s), n_a + n_b) && CHECK(want && got))
        CHECK_BYTES(got, want, TINY_VOCAB * sizeof *want);
    hearth_session_close(fresh);
}

static const size_t cuts[] = {1, 31, 32, 33, 63, 64, 65, 100, 128, 150};
enum { N_CUT = sizeof cuts / sizeof *cuts };

/* Calls fn for models, caches, threads and levels. Without $HEARTH_LONG each model has one level, the next model the next
 * one, and each type of cache one number of threads. */
static void for_all(void (*fn)(const fixture *f, const setting *s))
{
    const char *levels[ENGINE_MAX_LEVELS];
    size_t n_level = engine_levels(levels);
    for (model_kind k = PLAIN; k < N_KIND; k++)
        for (size_t l = 0; l < n_level; l++) {
            if (l != k % n_level && !test_is_long()) continue;
            fixture f;
            bool windowed = k == WINDOWED || k == WINDOWED_MIXTURE;
            engine_set_cpu(levels[l]);
            open_model(&f, k);
            for (int kv = 0; kv < (windowed ? 1 : 2); kv++)
                for (uint32_t n_thread = 1; n_thread <= 3; n_thread += 2) {
                    bool is_turn = (k / n_level + (size_t)kv + n_thread / 2) % 2 == 0;
                    for (int release = 0; release <= windowed && (is_turn || test_is_long()); release++)
                        fn(&f, &(setting){.n_thread = n_thread, .kv = (hearth_kv_type)kv, .release = release});
                }
            close_model(&f);
        }
    engine_set_cpu(NULL);
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

static void fork_everywhere(const fixture *f, const setting *how)
{
    for (size_t i = 0; i < N_CUT; i++) {
        hearth_session *a = open_session(f, how), *b = NULL, *c = NULL;
        feed(a, f->ids, cuts[i]);
        CHECK_OK(hearth_session_fork(a, &b, err));
        CHECK_OK(hearth_session_fork(b, &c, err));
        expect(f, how, b, f->ids, cuts[i], NULL, 0);
        feed(b, f->other, 20);
        feed(a, f->ids + cuts[i], 12);
        feed(c, f->other, 7);
        feed(a, f->ids + cuts[i] + 12, 8); /* reads what it wrote before the others wrote */
        expect(f, how, a, f->ids, cuts[i] + 20, NULL, 0);
        hearth_session_close(a); /* the copies go on without it */
        feed(c, f->other + 7, 13);
        feed(b, f->other + 20, 3);
        expect(f, how, b, f->ids, cuts[i], f->other, 23);
        expect(f, how, c, f->ids, cuts[i], f->other, 20);
        hearth_session_close(b);
        hearth_session_close(c);
    }
}

TEST(a_copy_and_its_source_give_the_bits_of_fresh_sessions) { for_all(fork_everywhere); }

static void truncate_everywhere(const fixture *f, const setting *how)
{
    for (size_t i = 0; i < N_CUT; i++) {
        hearth_session *a = open_session(f, how), *b = NULL;
        feed(a, f->ids, 33); /* texts, at whose ends a state is kept */
        feed(a, f->ids + 33, 47);
        feed(a, f->ids + 80, N - 80);
        CHECK_OK(hearth_session_fork(a, &b, err));
        CHECK_OK(hearth_session_truncate(b, (uint32_t)cuts[i], err));
        CHECK_INT(hearth_session_position(b), cuts[i]);
        CHECK(hearth_session_logits(b) == NULL || cuts[i] == N);
        feed(b, f->other, 9);
        expect(f, how, b, f->ids, cuts[i], f->other, 9);
        feed(a, f->other, 5);
        expect(f, how, a, f->ids, N, f->other, 5);
        hearth_session_close(a);
        hearth_session_close(b);
    }
}

TEST(a_session_that_was_cut_gives_the_bits_of_a_fresh_one) { for_all(truncate_everywhere); }

TEST(the_tokens_of_a_session_and_those_in_its_cache_are_known)
{
    static const struct {
        model_kind kind;
        bool release;
        uint32_t n_cached; /* after a return from 100 to 50, with texts of 33 and 67 tokens */
    } cases[] = {{PLAIN, false, 50}, {DELTA_NET, false, 33}, {SSM_ALONE, false, 33}, {WINDOWED, true, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        open_model(&f, cases[i].kind);
        hearth_session *s = open_session(&f, &(setting){.release = cases[i].release});
        CHECK_INT(hearth_session_n_cached(s), 0);
        feed(s, f.ids, 33);
        feed(s, f.ids + 33, 67);
        CHECK_INT(hearth_session_n_cached(s), 100);
        CHECK_BYTES(hearth_session_tokens(s), f.ids, 100 * sizeof *f.ids);
        CHECK_OK(hearth_session_truncate(s, 50, err));
        CHECK_INT(hearth_session_n_cached(s), cases[i].n_cached);
        feed(s, f.other, 9);
        CHECK_INT(hearth_session_n_cached(s), 59);
        CHECK_BYTES(hearth_session_tokens(s), f.ids, 50 * sizeof *f.ids);
        CHECK_BYTES(hearth_session_tokens(s) + 50, f.other, 9 * sizeof *f.other);
        hearth_session_close(s);
        close_model(&f);
    }
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

static void save_everywhere(const fixture *f, const setting *how)
{
    char *file[2];
    size_t n[2];
    for (size_t i = 0; i < N_CUT; i++) {
        hearth_session *a = open_session(f, how), *b = NULL, *c = open_session(f, how);
        const char *path = test_scratch("session"), *again = test_scratch("session-again");
        feed(c, f->other, 77);
        feed(a, f->ids, N);
        CHECK_OK(hearth_session_truncate(a, (uint32_t)cuts[i], err));
        feed(a, f->ids + cuts[i], 3);
        CHECK_OK(hearth_session_save(a, path, err));
        CHECK_OK(hearth_session_restore(c, path, err));
        expect(f, how, c, f->ids, cuts[i] + 3, NULL, 0);
        CHECK_OK(hearth_session_fork(c, &b, err));
        CHECK_OK(hearth_session_save(b, again, err));
        file[0] = test_read_file(path, &n[0]), file[1] = test_read_file(again, &n[1]);
        if (CHECK_INT(n[0], n[1])) CHECK_BYTES(file[0], file[1], n[0]); /* nothing of other texts is in it */
        free(file[0]), free(file[1]);
        feed(c, f->other, 11);
        expect(f, how, c, f->ids, cuts[i] + 3, f->other, 11);
        feed(a, f->other, 2);
        expect(f, how, a, f->ids, cuts[i] + 3, f->other, 2);
        hearth_session_close(a);
        hearth_session_close(b);
        hearth_session_close(c);
    }
}

TEST(a_restored_session_gives_the_bits_of_the_saved_one) { for_all(save_everywhere); }

TEST(a_session_is_restored_at_other_levels_and_thread_counts)
{
    const char *levels[ENGINE_MAX_LEVELS], *path = test_scratch("session");
    size_t n_level = engine_levels(levels);
    for (size_t from = 0; from < n_level; from++)
        for (size_t to = 0; to < n_level; to++) {
            fixture f;
            engine_set_cpu(levels[from]);
            open_model(&f, PLAIN);
            hearth_session *s = open_session(&f, &(setting){.n_thread = 1});
            feed(s, f.ids, 70);
            CHECK_OK(hearth_session_save(s, path, err));
            hearth_session_close(s);
            close_model(&f);
            engine_set_cpu(levels[to]);
            open_model(&f, PLAIN);
            s = open_session(&f, &(setting){.n_thread = 3});
            CHECK_OK(hearth_session_restore(s, path, err));
            feed(s, f.other, 30);
            expect(&f, &(setting){.n_thread = 2}, s, f.ids, 70, f.other, 30);
            hearth_session_close(s);
            close_model(&f);
        }
    engine_set_cpu(NULL);
}

/* Restoring fails with that status and these words, and the session stays as it is. */
static void expect_refused(hearth_session *s, const char *path, hearth_status status, const char *words)
{
    hearth_error why = {0};
    uint32_t n = hearth_session_position(s);
    CHECK_INT(hearth_session_restore(s, path, &why), status);
    if (!CHECK(strstr(why.message, words) != NULL)) test_fail(__FILE__, __LINE__, "%s", why.message);
    CHECK_INT(hearth_session_position(s), n);
}

TEST(files_of_other_models_and_options_are_refused)
{
    fixture f, other;
    const char *path = test_scratch("session");
    open_model(&f, PLAIN);
    open_model(&other, WINDOWED);
    hearth_session *s = open_session(&f, &(setting){0});
    feed(s, f.ids, 50);
    CHECK_OK(hearth_session_save(s, path, err));
    const struct {
        const fixture *f;
        setting how;
        hearth_status status;
        const char *words;
    } cases[] = {{&other, {0}, HEARTH_ERROR_ARGUMENT, "another model"},
                 {&f, {.kv = HEARTH_KV_F32}, HEARTH_ERROR_ARGUMENT, "another type of KV cache"},
                 {&f, {.n_ctx = 49}, HEARTH_ERROR_CONTEXT, "do not fit into a context of 49"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_session *t = open_session(cases[i].f, &cases[i].how);
        feed(t, f.other, 12);
        expect_refused(t, path, cases[i].status, cases[i].words);
        hearth_session_close(t);
    }
    expect_refused(s, test_scratch("absent"), HEARTH_ERROR_IO, "No such file");
    hearth_session_close(s);
    close_model(&f);
    close_model(&other);
}

/* The checksum at the end of a file, as docs of session_file.c state it. */
static void seal(uint8_t *file, size_t n)
{
    uint64_t hash = 0;
    for (size_t at = 0; at < n - 8; at += 1 << 16)
        hash = hth_hash_more(hash, file + at, n - 8 - at < 1 << 16 ? n - 8 - at : 1 << 16);
    memcpy(file + n - 8, &hash, 8);
}

TEST(files_with_hostile_fields_and_a_right_checksum_are_refused)
{
    enum { END_WINDOW = 76, FIRST_WINDOW = 60, END_FULL = 72, FIRST_FULL = 56, N_TOK = 52, TOKENS = 128 };
    enum { FILE_SIZE = 16, PAGE_FULL = 88 };
    static const struct {
        size_t at;
        uint32_t value;
    } changes[] = {{END_FULL, 0},     {END_WINDOW, 0},        {FIRST_WINDOW, 2}, {FIRST_FULL, 1}, {N_TOK, 0xffffffffu},
                   {N_TOK, 31},       {TOKENS + 40, 0xfffffffbu}, {TOKENS, TINY_VOCAB}, {48, 7}, {88, 1}};
    fixture f;
    const char *path = test_scratch("session"), *changed = test_scratch("changed");
    open_model(&f, WINDOWED);
    hearth_session *s = open_session(&f, &(setting){0}), *t = open_session(&f, &(setting){.release = true});
    feed(s, f.ids, 60);
    feed(t, f.other, 9);
    CHECK_OK(hearth_session_save(s, path, err));
    size_t n;
    char *file = test_read_file(path, &n), *copy = malloc(n);
    memcpy(copy, file, n), seal((uint8_t *)copy, n);
    CHECK_BYTES(copy, file, n);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(copy, file, n);
        memcpy(copy + changes[i].at, &changes[i].value, 4);
        seal((uint8_t *)copy, n);
        CHECK(test_write_file(changed, copy, n));
        if (hearth_session_restore(t, changed, NULL) == HEARTH_OK)
            test_fail(__FILE__, __LINE__, "change %zu was not refused", i);
        expect(&f, &(setting){.release = true}, t, f.other, 9, NULL, 0);
    }
    uint64_t page, size;
    memcpy(&page, file + PAGE_FULL, 8); /* a file that says that it lacks its first page, and does */
    memcpy(copy, file, n);
    size = n - page, copy[FIRST_FULL] = 1;
    memcpy(copy + FILE_SIZE, &size, 8);
    seal((uint8_t *)copy, size);
    CHECK(page > 0 && test_write_file(changed, copy, size));
    CHECK_FAILS(hearth_session_restore(t, changed, err), HEARTH_ERROR_FORMAT, "its head contradicts itself");
    expect(&f, &(setting){.release = true}, t, f.other, 9, NULL, 0);
    free(file), free(copy);
    hearth_session_close(s), hearth_session_close(t);
    close_model(&f);
}

/* n_ctx and n_batch of the session that restores differ from those of the saved one. */
TEST(a_released_window_stays_released_in_another_session)
{
    fixture f;
    const char *path = test_scratch("session");
    open_model(&f, WINDOWED);
    hearth_session *s = open_session(&f, &(setting){.release = true, .n_ctx = 640}), *t = NULL, *copy = NULL;
    const hearth_session_options o = {.n_ctx = 200, .n_batch = 256, .n_thread = 1, .release_window = true};
    CHECK_OK(hearth_session_open(f.model, &o, &t, err));
    feed(s, f.ids, 140);
    CHECK_OK(hearth_session_save(s, path, err));
    CHECK_OK(hearth_session_restore(t, path, err));
    CHECK_OK(hearth_session_fork(s, &copy, err));
    hearth_session *const both[] = {t, copy};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hearth_session_truncate(both[i], 60, err)); /* its window is not there: computed again */
        feed(both[i], f.other, 9);
        expect(&f, &(setting){0}, both[i], f.ids, 60, f.other, 9);
    }
    hearth_session_close(s), hearth_session_close(t), hearth_session_close(copy);
    close_model(&f);
}

TEST(an_error_while_a_cache_is_computed_again_leaves_the_position)
{
    fixture f;
    const setting how = {.release = true, .n_ctx = 640};
    open_model(&f, WINDOWED);
    hearth_session *s = open_session(&f, &how);
    feed(s, f.ids, 140);
    CHECK_OK(hearth_session_truncate(s, 60, err));
    for (int i = 0; i < 2; i++) {
        hth_alloc_fail_at(1, 0);
        CHECK_FAILS(hearth_session_eval(s, f.other, 3, err), HEARTH_ERROR_MEMORY, "a batch");
        hth_alloc_fail_at(0, 0);
        CHECK_INT(hearth_session_position(s), 60);
    }
    feed(s, f.other, 9);
    expect(&f, &how, s, f.ids, 60, f.other, 9);
    hearth_session_close(s);
    close_model(&f);
}

/* At this length the part before the checksum is whole blocks. */
TEST(a_file_of_whole_blocks_is_restored)
{
    enum { LONG = 8917 };
    fixture f;
    const char *path = test_scratch("session");
    const setting how = {.n_ctx = LONG + MORE};
    open_model(&f, PLAIN);
    hearth_session *s = open_session(&f, &how), *t = open_session(&f, &how);
    for (uint32_t at = 0; at < LONG; at += N) feed(s, f.ids, LONG - at < N ? LONG - at : N);
    CHECK_OK(hearth_session_save(s, path, err));
    size_t n;
    free(test_read_file(path, &n));
    CHECK_INT((n - 8) % 65536, 0);
    CHECK_OK(hearth_session_restore(t, path, err));
    CHECK_BYTES(hearth_session_logits(t), hearth_session_logits(s), TINY_VOCAB * sizeof(float));
    hearth_session_close(s), hearth_session_close(t);
    close_model(&f);
}

static void refuse_other_metadata(const char *key, float value)
{
    fixture f;
    tiny_model m;
    const char *path = test_scratch("session");
    open_model(&f, PLAIN);
    hearth_session *s = open_session(&f, &(setting){0}), *t;
    feed(s, f.ids, 5);
    CHECK_OK(hearth_session_save(s, path, err));
    hearth_session_close(s);
    close_model(&f);
    tiny_begin(&m);
    tiny_set_f32(&m, key, value);
    f.file = tiny_write(&m);
    tiny_free(&m);
    CHECK_OK(hearth_model_open_memory(f.file.data, f.file.n, "tiny", NULL, &f.model, err));
    t = open_session(&f, &(setting){0});
    expect_refused(t, path, HEARTH_ERROR_ARGUMENT, "other metadata");
    hearth_session_close(t);
    close_model(&f);
}

TEST(a_model_with_other_metadata_is_another_one)
{
    refuse_other_metadata("llama.rope.freq_base", 20000.0f);
    refuse_other_metadata("llama.rope.scaling.yarn_beta_fast", 16.0f); /* any key, read or not */
}

/* Changes a byte, several, or the length. False: the file is as it was. */
static bool mutate(test_random *r, const char *file, size_t n, char *out, size_t *n_out)
{
    memcpy(out, file, n);
    *n_out = n;
    uint32_t kind = test_random_below(r, 8), at = test_random_below(r, (uint32_t)n);
    if (kind == 0) *n_out = at;
    if (kind == 1) *n_out = n + 1 + test_random_below(r, 63), memset(out + n, (int)at, *n_out - n);
    if (kind == 2) memmove(out + at, file + test_random_below(r, at + 1), n - at);
    for (uint32_t i = 0; kind > 2 && i < kind - 2; i++)
        out[kind == 3 ? test_random_below(r, 128) : test_random_below(r, (uint32_t)n)] ^= (char)(1 << test_random_below(r, 8));
    return *n_out != n || memcmp(out, file, n) != 0;
}

TEST(damaged_files_of_sessions_are_refused)
{
    enum { N_MUTATION = 10000 };
    fixture f;
    const char *path = test_scratch("session"), *damaged = test_scratch("damaged");
    test_random r = {5};
    open_model(&f, PLAIN);
    hearth_session *s = open_session(&f, &(setting){0}), *t = open_session(&f, &(setting){0});
    feed(s, f.ids, 40);
    feed(t, f.other, 9);
    CHECK_OK(hearth_session_save(s, path, err));
    size_t n, n_out;
    char *file = test_read_file(path, &n), *out = malloc(n + 64);
    uint32_t n_done = 0;
    for (; n_done < N_MUTATION && test_n_failed() == 0;) {
        hearth_error why;
        if (!mutate(&r, file, n, out, &n_out)) continue;
        n_done++;
        if (!CHECK(test_write_file(damaged, out, n_out))) break;
        if (hearth_session_restore(t, damaged, &why) == HEARTH_OK)
            test_fail(__FILE__, __LINE__, "mutation %u was not refused", n_done);
    }
    CHECK_INT(n_done, N_MUTATION);
    expect(&f, &(setting){0}, t, f.other, 9, NULL, 0);
    free(file), free(out);
    hearth_session_close(s);
    hearth_session_close(t);
    close_model(&f);
}

/* ---- many sessions -------------------------------------------------------------------------------------------- */

enum { MAX_SESSION = 64, LENGTH = 2 * N };

typedef struct member {
    hearth_session *s; /* NULL: free */
    int32_t ids[LENGTH];
    uint32_t n;
} member;

static void check_member(const fixture *f, const member *m)
{
    hearth_session *fresh = open_session(f, &(setting){0});
    feed(fresh, m->ids, m->n);
    if (CHECK(hearth_session_logits(m->s) && m->n > 0))
        CHECK_BYTES(hearth_session_logits(m->s), hearth_session_logits(fresh), TINY_VOCAB * sizeof(float));
    hearth_session_close(fresh);
}

static void random_operation(const fixture *f, test_random *r, member *members, const char *path)
{
    member *m = &members[test_random_below(r, MAX_SESSION)], *from = &members[test_random_below(r, MAX_SESSION)];
    uint32_t what = test_random_below(r, 6);
    if (!m->s && from->s && what < 4) {
        CHECK_OK(hearth_session_fork(from->s, &m->s, err));
        memcpy(m->ids, from->ids, sizeof m->ids), m->n = from->n;
    } else if (!m->s) {
        hearth_session_options o = {.n_ctx = LENGTH, .n_batch = HEARTH_BATCH_NONE}; /* for batches */
        CHECK_OK(hearth_session_open(f->model, &o, &m->s, err));
        m->n = 0;
    } else if (what == 0) {
        hearth_session_close(m->s), m->s = NULL;
    } else if (what == 1) {
        m->n = test_random_below(r, m->n + 1);
        CHECK_OK(hearth_session_truncate(m->s, m->n, err));
    } else if (what == 2 && from->s) {
        CHECK_OK(hearth_session_save(from->s, path, err));
        CHECK_OK(hearth_session_restore(m->s, path, err));
        memcpy(m->ids, from->ids, sizeof m->ids), m->n = from->n;
    }
}

/* A batch with new tokens of some of the sessions. */
static void random_batch(test_random *r, member *members, hearth_batch *b, bool *in_batch)
{
    for (uint32_t k = 0; k < 6; k++) {
        uint32_t i = test_random_below(r, MAX_SESSION), n = 1 + test_random_below(r, 40);
        member *m = &members[i];
        if (!m->s || in_batch[i] || m->n + n > LENGTH) continue;
        for (uint32_t j = 0; j < n; j++) m->ids[m->n + j] = (int32_t)test_random_below(r, TINY_VOCAB);
        CHECK_OK(hearth_batch_add(b, m->s, m->ids + m->n, n, err));
        m->n += n, in_batch[i] = true;
    }
    CHECK_OK(hearth_batch_run(b, err));
}

TEST(random_schedules_of_64_sessions_give_the_bits_of_fresh_ones)
{
    static member members[MAX_SESSION];
    fixture f;
    hearth_batch *b = NULL;
    test_random r = {77};
    open_model(&f, PLAIN);
    CHECK_OK(hearth_batch_open(f.model, 256, 2, &b, err));
    for (int round = 0; round < 400 && test_n_failed() == 0; round++) {
        bool in_batch[MAX_SESSION] = {false};
        for (int i = 0; i < 8; i++) random_operation(&f, &r, members, test_scratch("session"));
        random_batch(&r, members, b, in_batch);
        for (uint32_t i = 0; i < MAX_SESSION; i++)
            if (in_batch[i] && (round % 8 == 0 || i % 8 == 0)) check_member(&f, &members[i]);
    }
    hearth_batch_close(b);
    for (int i = 0; i < MAX_SESSION; i++) hearth_session_close(members[i].s), members[i].s = NULL;
    hth_kv_usage u = hth_kv_pool_usage(f.model->kv_pools[HEARTH_KV_F16], HTH_KV_FULL);
    CHECK_INT(u.n_used + u.n_reserved + u.n_page, 0);
    close_model(&f);
}

TEST(a_batch_takes_the_tokens_that_a_released_window_allows)
{
    fixture f;
    hearth_batch *b = NULL;
    open_model(&f, WINDOWED);
    hearth_session *s = open_session(&f, &(setting){.release = true});
    CHECK_OK(hearth_batch_open(f.model, 64, 1, &b, err));
    CHECK_INT(hearth_batch_add(b, s, f.ids, N_BATCH + 1, NULL), HEARTH_ERROR_ARGUMENT);
    for (int i = 0; i < N; i += N_BATCH) {
        CHECK_OK(hearth_batch_add(b, s, f.ids + i, N_BATCH, err));
        CHECK_OK(hearth_batch_run(b, err));
    }
    expect(&f, &(setting){0}, s, f.ids, N, NULL, 0);
    hearth_batch_close(b);
    hearth_session_close(s);
    close_model(&f);
}

/* ---- faults --------------------------------------------------------------------------------------------------- */

static hearth_status save_task(const fault_paths *p, hearth_error *err)
{
    hearth_model *m = NULL;
    hearth_session *s = NULL, *t = NULL;
    const int32_t ids[] = {5, 6, 7, 8};
    const hearth_session_options o = {.n_ctx = 64, .n_batch = 8, .n_thread = 1};
    hearth_status st = hearth_model_open(p->in, NULL, &m, err);
    if (st == HEARTH_OK) st = hearth_session_open(m, &o, &s, err);
    if (st == HEARTH_OK) st = hearth_session_eval(s, ids, 4, err);
    if (st == HEARTH_OK) st = hearth_session_fork(s, &t, err);
    if (st == HEARTH_OK) st = hearth_session_eval(t, ids, 4, err);
    if (st == HEARTH_OK) st = hearth_session_save(t, p->out, err);
    bool saved = st == HEARTH_OK;
    if (st == HEARTH_OK) st = hearth_session_restore(s, p->out, err);
    if (saved && st != HEARTH_OK) remove(p->out); /* the file was complete */
    hearth_session_close(s), hearth_session_close(t);
    hearth_model_close(m);
    return st;
}

TEST(copies_and_files_survive_failed_allocations_and_writes) { fault_survive("sessions", save_task, 40, 0, 3); }
