/* Sessions that are saved to files, to functions of the program and to memory: the same bytes, and what is damaged,
 * foreign or cut is refused. */
#include "support/faults.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

enum { N = 40, N_OTHER = 9, HEAD = 128 };

static gguf_bytes file;
static hearth_model *model;
static int32_t ids[N];

static hearth_model *open_tiny(const char *architecture, gguf_bytes *bytes)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    if (architecture) tiny_become(&m, architecture);
    *bytes = tiny_write(&m);
    hearth_model *opened =
        OPENED_BY(hearth_model_open_memory, hearth_model, bytes->data, bytes->n, "tiny.gguf", NULL);
    return opened;
}

static bool open_model(void)
{
    test_random r = {3};
    for (int i = 0; i < N; i++) ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    model = open_tiny(NULL, &file);
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

/* With the first n tokens. */
static hearth_session *session_with(const hearth_model *m, size_t n)
{
    hearth_session *s =
        OPENED(hearth_session, m, &(hearth_session_options){.n_ctx = 64, .n_batch = 16, .n_thread = 1});
    CHECK_OK(hearth_session_eval(s, ids, n, err));
    return s;
}

/* Position, tokens and logits are those of a session with the first n tokens. */
static void check_tokens(const hearth_session *s, size_t n)
{
    CLOSED(hearth_session) *fresh = session_with(model, n);
    if (!CHECK_INT(hearth_session_position(s), n) || !CHECK(hearth_session_logits(s) != NULL)) return;
    CHECK_BYTES(hearth_session_tokens(s), ids, n * sizeof *ids);
    CHECK_BYTES(hearth_session_logits(s), hearth_session_logits(fresh), TINY_VOCAB * sizeof(float));
}

/* ---- functions ---------------------------------------------------------------------------------------------- */

/* Bytes that a function wrote or reads, and how it ends. */
typedef struct stream {
    uint8_t *data;
    size_t n, at, most; /* most: bytes of one call */
    size_t fail_at;     /* the call that ends with `status`; 0: none does */
    size_t n_call;
    hearth_status status;
    bool has_words;
} stream;

static hearth_status end_call(stream *t, size_t n, hearth_error *err)
{
    if (n > t->most) t->most = n;
    if (++t->n_call != t->fail_at) return HEARTH_OK;
    if (t->has_words) strcpy(err->message, "no more of it");
    return t->status;
}

static hearth_status write_stream(void *user, const void *data, size_t n, hearth_error *err)
{
    stream *t = user;
    t->data = realloc(t->data, t->n + n);
    memcpy(t->data + t->n, data, n);
    t->n += n;
    return end_call(t, n, err);
}

static hearth_status read_stream(void *user, void *data, size_t n, hearth_error *err)
{
    stream *t = user;
    if (n > t->n - t->at) {
        strcpy(err->message, "the stream ends");
        return HEARTH_ERROR_IO;
    }
    memcpy(data, t->data + t->at, n);
    t->at += n;
    return end_call(t, n, err);
}

static void same_bytes(const char *architecture)
{
    gguf_bytes bytes;
    CLOSED(hearth_model) *m = open_tiny(architecture, &bytes);
    CLOSED(hearth_session) *s = session_with(m, N);
    const char *path = test_scratch("session");
    const int32_t next = 7;
    stream t = {0};
    void *data = NULL;
    size_t n = 0, n_file = 0;
    CHECK_OK(hearth_session_save(s, path, err));
    CHECK_OK(hearth_session_save_to(s, write_stream, &t, err));
    CHECK_OK(hearth_session_save_memory(s, &data, &n, err));
    FREED char *in_file = test_read_file(path, &n_file);
    if (CHECK_INT(n, n_file)) CHECK_BYTES(data, in_file, n);
    if (CHECK_INT(t.n, n)) CHECK_BYTES(t.data, data, n);
    CHECK(t.most <= 65536);
    CHECK_OK(hearth_session_eval(s, &next, 1, err));
    t.data = realloc(t.data, n + 5); /* what follows is not read */
    t.n = n + 5;
    for (int end = 0; end < 3; end++) {
        CLOSED(hearth_session) *to = session_with(m, N_OTHER);
        if (end == 0) CHECK_OK(hearth_session_restore(to, path, err));
        if (end == 1) CHECK_OK(hearth_session_restore_from(to, read_stream, &t, err));
        if (end == 2) CHECK_OK(hearth_session_restore_memory(to, data, n, err));
        CHECK_OK(hearth_session_eval(to, &next, 1, err));
        CHECK_BYTES(hearth_session_logits(to), hearth_session_logits(s),
                    test_model_info(m).n_vocab * sizeof(float));
    }
    CHECK_INT(t.at, n);
    CHECK(t.most <= 65536);
    hearth_free(data);
    free(t.data);
    gguf_free(&bytes);
}

TEST(files_functions_and_memory_have_the_same_bytes) { same_bytes(NULL); }
TEST(states_of_recurrent_layers_are_in_all_of_them) { same_bytes("falcon-h1"); }

TEST(a_session_without_tokens_is_saved_too)
{
    CLOSED(hearth_session) *s = session_with(model, 0), *to = session_with(model, N_OTHER);
    void *data;
    size_t n;
    CHECK_OK(hearth_session_save_memory(s, &data, &n, err));
    CHECK_OK(hearth_session_restore_memory(to, data, n, err));
    CHECK_INT(hearth_session_position(to), 0);
    CHECK(hearth_session_logits(to) == NULL);
    hearth_free(data);
}

static const hearth_status no_status[] = {(hearth_status)777, (hearth_status)-1, (hearth_status)10};

/* What a function returns is returned, in whichever call; with its words, or with a line that names it. */
static void check_end(hearth_status st, const stream *t, const hearth_error *why, const char *function)
{
    bool exists = t->status >= HEARTH_OK && t->status <= HEARTH_ERROR_DEVICE;
    CHECK_INT(st, exists ? t->status : HEARTH_ERROR_ARGUMENT);
    CHECK_INT(why->status, st);
    const char *words = !exists ? "which is no status" : t->has_words ? "no more of it" : function;
    if (!strstr(why->message, words))
        test_fail(__FILE__, __LINE__, "\"%s\" without \"%s\"", why->message, words);
}

TEST(a_status_of_a_function_is_returned)
{
    CLOSED(hearth_session) *s = session_with(model, N);
    stream whole = {0};
    CHECK_OK(hearth_session_save_to(s, write_stream, &whole, err));
    size_t n_write = whole.n_call;
    CHECK(n_write >= 2);
    for (int i = HEARTH_ERROR_MEMORY; i <= HEARTH_ERROR_DEVICE + 3; i++)
        for (size_t at = 1; at <= n_write + 2; at++) {
            hearth_error why = {0};
            hearth_status status =
                i <= HEARTH_ERROR_DEVICE ? (hearth_status)i : no_status[i - HEARTH_ERROR_DEVICE - 1];
            stream out = {.fail_at = at, .status = status, .has_words = i % 2 == 0};
            hearth_status st = hearth_session_save_to(s, write_stream, &out, &why);
            if (at <= n_write) check_end(st, &out, &why, "hearth_session_save_to returned: ");
            else CHECK_INT(st, HEARTH_OK);
            free(out.data);
            CLOSED(hearth_session) *to = session_with(model, N_OTHER);
            stream in = {
                .data = whole.data, .n = whole.n, .fail_at = at, .status = status, .has_words = i % 2 == 0};
            st = hearth_session_restore_from(to, read_stream, &in, &why);
            if (st == HEARTH_OK) {
                check_tokens(to, N);
                continue;
            }
            check_end(st, &in, &why, "hearth_session_restore_from returned: ");
            if (at == 1) check_tokens(to, N_OTHER); /* the head did not come */
            CHECK(hearth_session_position(to) == 0 || hearth_session_position(to) == N_OTHER);
        }
    check_tokens(s, N);
    stream refused = {.fail_at = 1, .status = HEARTH_ERROR_IO};
    CHECK_INT(hearth_session_save_to(s, write_stream, &refused, NULL), HEARTH_ERROR_IO);
    free(refused.data);
    free(whole.data);
}

typedef struct caller {
    hearth_session *s;
    hearth_status evaluated, saved;
    uint32_t position;
} caller;

static hearth_status call_within(caller *c)
{
    const int32_t id = 1;
    c->evaluated = hearth_session_eval(c->s, &id, 1, NULL);
    c->saved = hearth_session_save(c->s, "/dev/null/none", NULL);
    c->position = hearth_session_position(c->s);
    return HEARTH_ERROR_CANCELLED;
}
static hearth_status write_within(void *user, const void *data, size_t n, hearth_error *err)
{
    return call_within(user);
}
static hearth_status read_within(void *user, void *data, size_t n, hearth_error *err)
{
    return call_within(user);
}

TEST(a_function_cannot_use_its_session)
{
    CLOSED(hearth_session) *s = session_with(model, N_OTHER);
    caller c = {.s = s};
    CHECK_INT(hearth_session_save_to(s, write_within, &c, NULL), HEARTH_ERROR_CANCELLED);
    CHECK(c.evaluated == HEARTH_ERROR_ARGUMENT && c.saved == HEARTH_ERROR_IO && c.position == N_OTHER);
    CHECK_INT(hearth_session_restore_from(s, read_within, &c, NULL), HEARTH_ERROR_CANCELLED);
    CHECK(c.evaluated == HEARTH_ERROR_ARGUMENT && c.saved == HEARTH_ERROR_ARGUMENT && c.position == N_OTHER);
    check_tokens(s, N_OTHER);
}

/* ---- damage ------------------------------------------------------------------------------------------------- */

typedef struct image {
    uint8_t *data;
    size_t n;
} image;

static image save_image(void)
{
    CLOSED(hearth_session) *s = session_with(model, N);
    void *data;
    image m = {0};
    CHECK_OK(hearth_session_save_memory(s, &data, &m.n, err));
    m.data = data;
    return m;
}

/* n bytes at data, in memory of their own: refused by memory without a change; by a function the session is empty, or
 * unchanged if the head alone told. */
static void check_damage(hearth_session *s, const uint8_t *data, size_t n, const char *what, size_t at)
{
    FREED uint8_t *own = malloc(n + 1);
    hearth_error why = {0};
    memcpy(own, data, n);
    if (hearth_session_restore_memory(s, own, n, &why) == HEARTH_OK || hearth_session_position(s) != N_OTHER)
        test_fail(__FILE__, __LINE__, "%s %zu: not refused, or changed: %s", what, at, why.message);
    CLOSED(hearth_session) *to = session_with(model, N_OTHER);
    stream t = {.data = own, .n = n};
    if (hearth_session_restore_from(to, read_stream, &t, &why) == HEARTH_OK)
        test_fail(__FILE__, __LINE__, "%s %zu: taken from a function", what, at);
    if (hearth_session_position(to) != (t.at <= HEAD ? N_OTHER : 0))
        test_fail(__FILE__, __LINE__, "%s %zu: position %u", what, at, hearth_session_position(to));
}

/* The first and last bytes, and some between them; all in long runs. */
static bool is_sample(test_random *r, size_t at, size_t n)
{
    return test_is_long() || at < 40 || n - at < 12 || test_random_below(r, (uint32_t)(n / 150)) == 0;
}

TEST(what_is_cut_is_refused)
{
    image m = save_image();
    test_random r = {1};
    CLOSED(hearth_session) *s = session_with(model, N_OTHER);
    for (size_t n = 0; n < m.n; n++)
        if (is_sample(&r, n, m.n)) check_damage(s, m.data, n, "length", n);
    check_tokens(s, N_OTHER);
    CHECK_FAILS(hearth_session_restore_memory(s, m.data, 0, err), HEARTH_ERROR_FORMAT, "not a saved session");
    hearth_free(m.data);
}

TEST(what_has_a_wrong_bit_is_refused)
{
    image m = save_image();
    test_random r = {2};
    CLOSED(hearth_session) *s = session_with(model, N_OTHER);
    for (size_t at = 0; at < m.n; at++) {
        if (!is_sample(&r, at, m.n)) continue;
        uint8_t bit = (uint8_t)(1u << test_random_below(&r, 8));
        m.data[at] ^= bit;
        FREED uint8_t *own = malloc(m.n);
        memcpy(own, m.data, m.n);
        if (hearth_session_restore_memory(s, own, m.n, NULL) == HEARTH_OK)
            test_fail(__FILE__, __LINE__, "byte %zu, bit %u", at, bit);
        CLOSED(hearth_session) *to = session_with(model, N_OTHER);
        stream t = {.data = own, .n = m.n};
        if (hearth_session_restore_from(to, read_stream, &t, NULL) == HEARTH_OK)
            test_fail(__FILE__, __LINE__, "byte %zu, bit %u, by a function", at, bit);
        CHECK_INT(hearth_session_position(to), t.at <= HEAD ? N_OTHER : 0);
        m.data[at] ^= bit;
    }
    check_tokens(s, N_OTHER);
    CHECK_OK(hearth_session_restore_memory(s, m.data, m.n, err)); /* whole again */
    check_tokens(s, N);
    hearth_free(m.data);
}

TEST(more_bytes_than_were_saved_are_refused_in_memory)
{
    image m = save_image();
    FREED uint8_t *more = calloc(1, m.n + 8);
    CLOSED(hearth_session) *s = session_with(model, N_OTHER);
    memcpy(more, m.data, m.n);
    for (size_t n = 1; n <= 8; n++)
        CHECK_FAILS(hearth_session_restore_memory(s, more, m.n + n, err), HEARTH_ERROR_FORMAT,
                    "data: damaged");
    check_tokens(s, N_OTHER);
    hearth_free(m.data);
}

TEST(a_session_that_was_damaged_by_a_function_goes_on_empty)
{
    image m = save_image();
    CLOSED(hearth_session) *s = session_with(model, N_OTHER);
    m.data[m.n - 20] ^= 4;
    CHECK_FAILS(hearth_session_restore_from(s, read_stream, &(stream){.data = m.data, .n = m.n}, err),
                HEARTH_ERROR_FORMAT, "what fn read: damaged");
    CHECK(hearth_session_position(s) == 0 && hearth_session_logits(s) == NULL);
    CHECK_OK(hearth_session_eval(s, ids, N, err));
    check_tokens(s, N);
    hearth_free(m.data);
}

TEST(others_options_and_models_are_refused_by_the_head)
{
    image m = save_image();
    gguf_bytes bytes;
    CLOSED(hearth_model) *other = open_tiny("gemma2", &bytes);
    CLOSED(hearth_session) *small = OPENED(hearth_session, model, &(hearth_session_options){.n_ctx = N - 1});
    CLOSED(hearth_session) *wide =
        OPENED(hearth_session, model, &(hearth_session_options){.n_ctx = 64, .kv = HEARTH_KV_F32});
    CLOSED(hearth_session) *foreign = OPENED(hearth_session, other, &(hearth_session_options){.n_ctx = 64});
    const struct {
        hearth_session *s;
        hearth_status status;
        const char *words;
    } cases[] = {{small, HEARTH_ERROR_CONTEXT, "do not fit into a context of 39"},
                 {wide, HEARTH_ERROR_ARGUMENT, "another type of KV cache"},
                 {foreign, HEARTH_ERROR_ARGUMENT, "another model"}};
    for (size_t i = 0; i < 3; i++) {
        stream t = {.data = m.data, .n = m.n};
        CHECK_OK(hearth_session_eval(cases[i].s, ids, N_OTHER, err));
        CHECK_FAILS(hearth_session_restore_memory(cases[i].s, m.data, m.n, err), cases[i].status,
                    cases[i].words);
        CHECK_FAILS(hearth_session_restore_from(cases[i].s, read_stream, &t, err), cases[i].status,
                    cases[i].words);
        CHECK_INT(t.at, HEAD);
        CHECK_INT(hearth_session_position(cases[i].s), N_OTHER);
    }
    hearth_free(m.data);
    hearth_session_close(foreign), foreign = NULL;
    hearth_model_close(other), other = NULL;
    gguf_free(&bytes);
}

TEST(a_session_in_a_batch_is_neither_saved_nor_restored)
{
    image m = save_image();
    CLOSED(hearth_session) *s = session_with(model, N_OTHER);
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, 8, 1);
    void *data = &m;
    size_t n = 1;
    CHECK_OK(hearth_batch_add(b, s, ids, 1, err));
    CHECK_FAILS(hearth_session_save_memory(s, &data, &n, err), HEARTH_ERROR_ARGUMENT, "waits in a batch");
    CHECK(data == NULL && n == 0);
    CHECK_FAILS(hearth_session_save_to(s, write_stream, &(stream){0}, err), HEARTH_ERROR_ARGUMENT,
                "waits in a batch");
    CHECK_FAILS(hearth_session_restore_memory(s, m.data, m.n, err), HEARTH_ERROR_ARGUMENT,
                "waits in a batch");
    CHECK_FAILS(hearth_session_restore_from(s, read_stream, &(stream){.data = m.data, .n = m.n}, err),
                HEARTH_ERROR_ARGUMENT, "waits in a batch");
    hearth_free(m.data);
}

/* ---- faults ------------------------------------------------------------------------------------------------- */

static hearth_status memory_task(const fault_paths *p, hearth_error *err)
{
    hearth_model *m = NULL;
    hearth_session *s = NULL, *t = NULL;
    void *data = NULL;
    size_t n;
    const hearth_session_options o = {.n_ctx = 64, .n_batch = 8, .n_thread = 1};
    hearth_status st = hearth_model_open(p->in, NULL, &m, err);
    if (st == HEARTH_OK) st = hearth_session_open(m, &o, &s, err);
    if (st == HEARTH_OK) st = hearth_session_open(m, &o, &t, err);
    if (st == HEARTH_OK) st = hearth_session_eval(s, ids, 4, err);
    if (st == HEARTH_OK) st = hearth_session_save_memory(s, &data, &n, err);
    if (st == HEARTH_OK) st = hearth_session_restore_memory(t, data, n, err);
    hearth_free(data);
    hearth_session_close(s), hearth_session_close(t);
    hearth_model_close(m);
    return st;
}

TEST(memory_survives_failed_allocations) { fault_survive("sessions in memory", memory_task, 30, 0, 0); }
