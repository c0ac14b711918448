/* A file that changes while weights are read from it when they are needed: one that became shorter is an error of the
 * evaluations that need what is missing, and of no other ones; replaced, deleted or longer, it goes on as it was. */
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

#include <sys/stat.h>

enum { N_ID = 40 };

static const char *const models[] = {"golden/arch/mixtral.gguf", "golden/arch/llama-gqa.gguf"};
static const char *const readers[] = {"auto", "pread"};
static const engine_setting setting = {.n_thread = 1, .n_batch = 8, .kv = HEARTH_KV_F32};

/* A copy of a model, and what it computes. */
typedef struct subject {
    const char *path;
    char *bytes;
    size_t size, n_vocab;
    int32_t ids[N_ID];
    float *expected;
    hearth_model *model;
    hearth_session *session;
} subject;

static void close_subject(subject *s)
{
    hearth_session_close(s->session);
    hearth_model_close(s->model);
    free(s->expected);
    free(s->bytes);
}

static bool open_subject(subject *s, const char *name, const char *io, uint64_t more)
{
    const hearth_session_options o = {.n_ctx = N_ID, .n_batch = 8, .n_thread = 1, .kv = HEARTH_KV_F32};
    const char *from = test_data(name);
    *s = (subject){.path = test_scratch("changing.gguf")};
    s->bytes = from ? test_read_file(from, &s->size) : NULL;
    if (!s->bytes || !CHECK(test_write_file(s->path, s->bytes, s->size))) return false;
    for (int i = 0; i < N_ID; i++) s->ids[i] = 5 + 6 * i;
    s->expected = engine_logits(s->path, &setting, s->ids, N_ID, &s->n_vocab);
    s->model = engine_open_streamed(s->path, io, more, HEARTH_SELECTOR_AUTO);
    s->session = s->model ? OPENED(hearth_session, s->model, &o) : NULL;
    return s->expected && s->session;
}

/* All tokens from the beginning, one by one, with the bits of the model in memory. */
static hearth_status run(subject *s, hearth_error *err)
{
    hearth_status st = hearth_session_truncate(s->session, 0, err);
    for (uint32_t t = 0; st == HEARTH_OK && t < N_ID; t++) {
        st = hearth_session_eval(s->session, &s->ids[t], 1, err);
        if (st == HEARTH_OK)
            CHECK_BYTES(hearth_session_logits(s->session), s->expected + t * s->n_vocab, s->n_vocab * sizeof(float));
    }
    return st;
}

TEST(a_shorter_file_is_an_error_until_it_is_whole_again)
{
    for (int i = 0; i < 4; i++) {
        char size[80];
        CLEANUP(close_subject) subject s;
        if (!open_subject(&s, models[i % 2], readers[i / 2], 0)) return;
        CHECK_OK(run(&s, err));
        CHECK_INT(truncate(s.path, 9000), 0);
        snprintf(size, sizeof size, ", but had %zu bytes when it was opened: the file became shorter", s.size);
        for (int again = 0; again < 2; again++) {
            CHECK_FAILS(run(&s, err), HEARTH_ERROR_IO, "changing.gguf: ends at or before byte ");
            CHECK_FAILS(run(&s, err), HEARTH_ERROR_IO, size);
        }
        CHECK(hearth_session_position(s.session) < N_ID);
        CHECK(test_write_file(s.path, s.bytes, s.size)); /* the same file, not another one of its name */
        CHECK_OK(run(&s, err));
    }
}

/* The head reads their embeddings, which are in memory for that. */
static const char *const tied[] = {"golden/arch/smallthinker-4b.gguf", "golden/arch/gemma2.gguf"};

TEST(a_shorter_file_is_no_matter_for_what_is_in_memory)
{
    for (int i = 0; i < 2; i++) {
        CLEANUP(close_subject) subject s;
        hearth_storage_stats before = {0}, after = {0};
        if (!open_subject(&s, tied[i], "auto", 16 << 20)) return;
        CHECK_OK(run(&s, err));
        CHECK_INT(truncate(s.path, 9000), 0);
        hearth_model_get_storage(s.model, &before);
        CHECK_OK(run(&s, err));
        hearth_model_get_storage(s.model, &after);
        CHECK_INT(after.n_miss, before.n_miss);
    }
}

/* Another model of the same name; no file of the name; more bytes at the end; no bits that say who may read it. */
TEST(a_replaced_deleted_or_longer_file_goes_on)
{
    for (int i = 0; i < 16; i++) {
        CLEANUP(close_subject) subject s;
        const char *other = test_scratch("other.gguf");
        if (!open_subject(&s, models[i % 2], readers[i / 2 % 2], 0)) return;
        CHECK_OK(run(&s, err));
        if (i / 4 == 0) {
            memset(s.bytes + s.size / 2, 0x55, s.size / 2);
            CHECK(test_write_file(other, s.bytes, s.size) && rename(other, s.path) == 0);
        } else if (i / 4 == 1) {
            CHECK_INT(unlink(s.path), 0);
        } else if (i / 4 == 2) {
            CHECK_INT(truncate(s.path, (off_t)s.size + 100000), 0);
        } else {
            CHECK_INT(chmod(s.path, 0), 0);
        }
        CHECK_OK(run(&s, err));
    }
}
