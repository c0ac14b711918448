/* Rounding, denormals and traps of the calling thread: results have the same bits whatever they are, and the thread has
 * them again after each call, and within each function of its own that the library calls. */
#include "base/fp_state.h"
#include "base/thread.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <fenv.h>

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

/* The default state, which rounds to nearest; up; down; towards zero; denormals are zeros; on x86-64 traps for inexact
 * results and denormals. */
#if defined(__x86_64__)
static const uint32_t states[] = {0x1f80, 0x5f80, 0x3f80, 0x7f80, 0x9fc0, 0x0e80};
static void set_state(uint32_t state) { __builtin_ia32_ldmxcsr(state); }
static uint32_t get_state(void) { return __builtin_ia32_stmxcsr(); }
#else
static const uint32_t states[] = {0, 1u << 22, 2u << 22, 3u << 22, 1u << 24};
static void set_state(uint32_t state) { __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)state)); }
static uint32_t get_state(void)
{
    uint64_t state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    return (uint32_t)state;
}
#endif
enum { N_STATE = sizeof states / sizeof *states, N_TOKEN = 12, N_BYTES = 1 << 22 };

typedef struct results {
    uint32_t state;
    uint8_t *bytes; /* of all results in turn */
    size_t n;
    uint32_t n_wrong, n_callback; /* callbacks that ran in another state; all of them */
} results;

static void put(results *r, const void *data, size_t n)
{
    if (n > N_BYTES - r->n) return;
    memcpy(r->bytes + r->n, data, n);
    r->n += n;
}

/* A call of the library in the state of the case, after which the state is the same. */
#define CALL(...)                                                                                            \
    do {                                                                                                     \
        set_state(r->state);                                                                                 \
        __VA_ARGS__;                                                                                         \
        const uint32_t after_ = get_state();                                                                 \
        set_state(states[0]);                                                                                \
        CHECK_INT(after_, r->state);                                                                         \
    } while (0)
#define CALL_OK(CALL_)                                                                                       \
    CALL(hearth_error why_ = {0}; hearth_error *err = &why_; st = CALL_; (void)err);                         \
    CHECK_INT(st, HEARTH_OK)

static void note_callback(results *r)
{
    r->n_callback++;
    r->n_wrong += get_state() != r->state;
}

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    note_callback(user);
    return true;
}

static hearth_status on_logits(void *user, size_t i, const float *logits, hearth_error *err)
{
    (void)i, (void)err;
    note_callback(user);
    put(user, logits, 64);
    return HEARTH_OK;
}

static void on_answer(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    (void)kind;
    note_callback(user);
    put(user, text, n);
}

static bool on_event(void *user, const hearth_request_event *event)
{
    note_callback(user);
    put(user, &event->state, sizeof event->state);
    put(user, &event->token, sizeof event->token);
    return true;
}

static void on_log(void *user, hearth_log_level level, const char *line)
{
    (void)level, (void)line;
    note_callback(user);
}

static void put_logits(results *r, const hearth_session *s, uint32_t n_vocab)
{
    const float *logits = hearth_session_logits(s);
    if (CHECK(logits != NULL)) put(r, logits, n_vocab * sizeof *logits);
}

/* Tokens that a sampler with every filter draws. */
static void generate(results *r, const hearth_model *m, hearth_session *s, uint32_t n_vocab)
{
    hearth_status st;
    hearth_sampler *sampler = NULL;
    const hearth_sampler_options o = {.temperature = 0.9f,
                                      .top_k = 100,
                                      .typical_p = 0.97f,
                                      .top_p = 0.95f,
                                      .min_p = 0.01f,
                                      .repeat_penalty = 1.1f,
                                      .presence_penalty = 0.1f,
                                      .seed = 7};
    CALL_OK(hearth_sampler_open(m, &o, &sampler, err));
    for (int i = 0; i < N_TOKEN; i++) {
        int32_t id = 0;
        CALL_OK(hearth_sampler_sample(sampler, hearth_session_logits(s), &id, err));
        CALL(hearth_sampler_accept(sampler, id));
        CALL_OK(hearth_session_eval(s, &id, 1, err));
        put(r, &id, sizeof id);
        put_logits(r, s, n_vocab);
    }
    hearth_sampler_close(sampler);
}

static hearth_status on_write(void *user, const void *data, size_t n, hearth_error *err)
{
    (void)err;
    note_callback(user);
    put(user, data, n);
    return HEARTH_OK;
}

typedef struct reading {
    results *r;
    const uint8_t *data;
} reading;

static hearth_status on_read(void *user, void *data, size_t n, hearth_error *err)
{
    reading *from = user;
    (void)err;
    note_callback(from->r);
    memcpy(data, from->data, n);
    from->data += n;
    return HEARTH_OK;
}

static void embed(results *r, const hearth_model *m, const int32_t *ids, size_t n)
{
    hearth_status st;
    hearth_embedder *e = NULL;
    float vectors[2][4];
    const hearth_embed_text texts[] = {{.tokens = ids, .n_token = n}, {.tokens = ids, .n_token = 1}};
    const hearth_embedder_options o = {.n_thread = 2, .n_dim = 4, .pooling = HEARTH_POOLING_MEAN};
    CALL_OK(hearth_embedder_open(m, &o, &e, err));
    CALL_OK(hearth_embed(e, texts, 2, *vectors, err));
    put(r, vectors, sizeof vectors);
    CALL(hearth_embedder_close(e));
}

static void save_and_restore(results *r, const hearth_model *m, hearth_session *s, uint32_t n_vocab)
{
    hearth_status st;
    hearth_session *again = NULL;
    const char *path = test_scratch("session");
    const hearth_session_options o = {.n_ctx = 64, .n_thread = 2};
    const int32_t next = 5;
    CALL_OK(hearth_session_save(s, path, err));
    CALL_OK(hearth_session_open(m, &o, &again, err));
    CALL_OK(hearth_session_restore(again, path, err));
    CALL_OK(hearth_session_set_threads(again, 1, err));
    CALL_OK(hearth_session_eval(again, &next, 1, err));
    put_logits(r, again, n_vocab);
    reading from = {r, r->bytes + r->n};
    CALL_OK(hearth_session_save_to(s, on_write, r, err));
    CALL_OK(hearth_session_restore_from(again, on_read, &from, err));
    CHECK(from.data == r->bytes + r->n);
    put_logits(r, again, n_vocab);
    CALL(hearth_session_close(again));
}

static void use_scheduler(results *r, const hearth_model *m, const int32_t *ids, size_t n)
{
    hearth_status st;
    hearth_scheduler *scheduler = NULL;
    uint64_t id = 0;
    bool more = true;
    const hearth_scheduler_options o = {.n_ctx = 64, .n_thread = 2};
    const hearth_sampler_options sampler = {.temperature = 0.8f, .seed = 3};
    const hearth_request request = {
        .tokens = ids, .n_token = n, .max_token = 6, .sampler = &sampler, .fn = on_event, .user = r};
    CALL_OK(hearth_scheduler_open(m, &o, &scheduler, err));
    CALL_OK(hearth_scheduler_add(scheduler, &request, &id, err));
    while (more) CALL(hearth_scheduler_step(scheduler, &more, NULL));
    CALL(hearth_scheduler_close(scheduler));
}

static bool on_generated(void *user, const hearth_generated *part)
{
    note_callback(user);
    put(user, &part->token, sizeof part->token);
    put(user, part->text, part->n);
    return true;
}

static void on_sample(void *user, float *logits, size_t n)
{
    note_callback(user);
    for (size_t i = 0; i < n; i += 7) logits[i] = 0.0f; /* which sets no flag of the state */
}

static void generate_text(results *r, const hearth_model *m, hearth_session *s, const int32_t *ids, size_t n)
{
    hearth_status st;
    hearth_sampler *sampler = NULL, *clone = NULL;
    const hearth_sampler_options so = {.temperature = 0.9f, .repeat_penalty = 1.1f, .seed = 7, .fn = on_sample, .user = r};
    hearth_usage usage = {.size = sizeof usage};
    hearth_generate_options o = {.tokens = ids,
                                 .n_token = n,
                                 .max_token = N_TOKEN,
                                 .progress = on_progress,
                                 .progress_user = r,
                                 .fn = on_generated,
                                 .user = r};
    CALL_OK(hearth_sampler_open(m, &so, &sampler, err));
    CALL_OK(hearth_sampler_clone(sampler, &clone, err));
    o.sampler = clone;
    CALL_OK(hearth_generate(s, &o, &usage, err));
    put(r, &usage.n_generated, sizeof usage.n_generated);
    CALL(hearth_sampler_close(sampler));
    CALL(hearth_sampler_close(clone));
}

static void use_answer(results *r, const hearth_model *m, const int32_t *ids, size_t n)
{
    hearth_status st;
    hearth_answer *answer = NULL;
    const hearth_answer_options o = {.fn = on_answer, .user = r};
    CALL_OK(hearth_answer_open(m, &o, &answer, err));
    for (size_t i = 0; i < n; i++) CALL_OK(hearth_answer_push(answer, ids[i], err));
    CALL_OK(hearth_answer_finish(answer, err));
    CALL(hearth_answer_close(answer));
}

static void use_constraint(results *r, const hearth_model *m, uint32_t n_vocab)
{
    hearth_status st;
    hearth_constraint *c = NULL;
    static const char grammar[] = "root ::= [a-f]+ (\"-\" [0-9]+)?";
    const hearth_constraint_options o = {
        .kind = HEARTH_CONSTRAINT_GRAMMAR, .text = grammar, .n = sizeof grammar - 1};
    FREED float *logits = calloc(n_vocab, sizeof *logits);
    CALL_OK(hearth_constraint_open(m, &o, &c, err));
    CALL_OK(hearth_constraint_mask(c, logits, err));
    put(r, logits, n_vocab * sizeof *logits);
    hearth_constraint_close(c);
}

static void use_chat(results *r, const hearth_model *m)
{
    static const char source[] = "{% for m in messages %}{{ m.content }} {{ 0.1 + 0.2 }} {{ 1 / 3 }} {{ "
                                 "2.675 | round(2) }}{% endfor %}";
    hearth_status st;
    hearth_chat *chat = NULL;
    char *text = NULL;
    size_t n = 0;
    const hearth_message message = {.role = "user", .content = "0.1", .n = 3};
    CALL_OK(hearth_chat_open_template(m, source, sizeof source - 1, &chat, err));
    CALL_OK(hearth_chat_render(chat, &message, 1, NULL, &text, &n, err));
    put(r, text, n);
    hearth_free(text);
    hearth_chat_close(chat);
}

static void use_all(results *r, const char *path)
{
    static const char text[] = "Once upon a time there was a little girl, 3.14";
    hearth_status st;
    hearth_model *m = NULL;
    hearth_session *s = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    const hearth_model_options mo = {.progress = on_progress, .progress_user = r, .n_thread = 2};
    const hearth_session_options so = {.n_ctx = 64, .n_thread = 3};
    CALL_OK(hearth_model_open(path, &mo, &m, err));
    if (!m) return;
    const uint32_t n_vocab = test_model_info(m).n_vocab;
    CALL_OK(hearth_tokenize(m, text, sizeof text - 1, HEARTH_ADD_SPECIAL, &ids, &n, err));
    put(r, ids, n * sizeof *ids);
    if (n > 12) n = 12;
    CALL_OK(hearth_session_open(m, &so, &s, err));
    CALL_OK(hearth_session_eval_each(s, ids, n, on_logits, r, err));
    put_logits(r, s, n_vocab);
    generate(r, m, s, n_vocab);
    save_and_restore(r, m, s, n_vocab);
    CALL_OK(hearth_session_truncate(s, 3, err));
    CALL_OK(hearth_session_eval_hidden(s, ids, 3, on_logits, r, err));
    embed(r, m, ids, n);
    generate_text(r, m, s, ids, n);
    use_scheduler(r, m, ids, n);
    use_answer(r, m, ids, n);
    use_constraint(r, m, n_vocab);
    use_chat(r, m);
    hearth_free(ids);
    CALL(hearth_session_close(s));
    CALL(hearth_model_close(m));
}

static void check_file(const char *path)
{
    FREED uint8_t *expected = malloc(N_BYTES), *bytes = malloc(N_BYTES);
    size_t n = 0;
    for (int i = 0; i < N_STATE; i++) {
        results r = {.state = states[i], .bytes = i == 0 ? expected : bytes};
        hearth_log_set(on_log, &r);
        use_all(&r, path);
        hearth_log_set(NULL, NULL);
        if (i == 0) n = r.n;
        CHECK_INT(r.n_wrong, 0);
        CHECK(r.n_callback > 20);
        if (CHECK_INT(r.n, n)) CHECK_BYTES(r.bytes, expected, n);
    }
}

TEST(bits_do_not_depend_on_the_state_of_the_callers_thread) { check_file(STORYTELLER); }

TEST(nor_do_those_of_a_unigram_vocabulary)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    const char *path = test_scratch("unigram.gguf");
    tiny_set_text(&m, "tokenizer.ggml.model", "t5");
    gguf_bytes file = tiny_write(&m);
    CHECK(test_write_file(path, file.data, file.n));
    gguf_free(&file);
    check_file(path);
}

/* What a callback sets stays set for its thread, but not for the library. */
static hearth_status change_state(void *user, size_t i, const float *logits, hearth_error *err)
{
    (void)user, (void)i, (void)logits, (void)err;
    set_state(states[1]);
    return HEARTH_OK;
}

TEST(a_callback_may_change_the_state_of_its_thread)
{
    CLEANUP(tiny_free) tiny_model t = tiny_new();
    gguf_bytes file = tiny_write(&t);
    hearth_error err;
    hearth_model *m = NULL;
    hearth_session *s[2] = {NULL, NULL};
    const int32_t ids[] = {1, 60, 70, 80};
    CHECK_INT(hearth_model_open_memory(file.data, file.n, "tiny", NULL, &m, &err), HEARTH_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(hearth_session_open(m, NULL, &s[i], &err), HEARTH_OK);
        CHECK_INT(hearth_session_eval_each(s[i], ids, 4, i == 0 ? NULL : change_state, NULL, &err),
                  HEARTH_OK);
    }
    CHECK_INT(get_state(), states[1]);
    set_state(states[0]);
    CHECK_BYTES(hearth_session_logits(s[0]), hearth_session_logits(s[1]), TINY_VOCAB * sizeof(float));
    for (int i = 0; i < 2; i++) hearth_session_close(s[i]);
    hearth_model_close(m);
    gguf_free(&file);
}

static void *look_at_state(void *seen)
{
    *(uint32_t *)seen = get_state();
    return NULL;
}

TEST(threads_of_the_library_begin_with_the_default_state)
{
    uint32_t seen = 0;
    pthread_t thread;
    set_state(states[1]);
    const bool ok = hth_thread_start(&thread, look_at_state, &seen, "test");
    CHECK_INT(get_state(), states[1]);
    set_state(states[0]);
    if (!CHECK(ok)) return;
    pthread_join(thread, NULL);
    CHECK_INT(seen, states[0]);
}
