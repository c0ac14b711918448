/* A mapped model whose file changes under it: a shorter file is an error of the evaluation and of all later ones,
 * never the end of the process; a file that was replaced or unlinked goes on as it was. */
#include "support/test.h"
#include "support/models/tiny_model.h"
#include "base/thread.h"

#include <signal.h>

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    if (!hearth_handle_sigbus(info->si_addr)) signal(signal_number, SIG_DFL);
}

static void catch_bus_errors(void)
{
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &bus, NULL);
}

/* A model of some pages; its size. */
static size_t write_model(const char *path, const char *name)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_text(&m, "general.name", name);
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    FILE *f = fopen(path, "wb");
    if (CHECK(f != NULL)) {
        CHECK_INT(fwrite(b.data, 1, b.n, f), b.n);
        CHECK_INT(fclose(f), 0);
    }
    size_t n = b.n;
    return n;
}

static hearth_status eval(hearth_session *s, hearth_error *err)
{
    static const int32_t ids[] = {1, 60, 200, 266};
    return hearth_session_eval(s, ids, 4, err);
}

static bool open_mapped(const char *path, uint32_t n_thread, hearth_model **model, hearth_session **session)
{
    hearth_model_options o = {.mmap = true};
    hearth_session_options so = {.n_ctx = 32, .n_batch = 4, .n_thread = n_thread, .kv = HEARTH_KV_F32};
    *model = NULL, *session = NULL;
    CHECK_OK(hearth_model_open(path, &o, model, err));
    if (*model) CHECK_OK(hearth_session_open(*model, &so, session, err));
    return *session != NULL;
}

/* Cut to nothing, to its first page, and in the middle; with one thread and three. */
TEST(a_shorter_file_is_an_error_of_the_evaluation)
{
    const char *path = test_scratch("mapped.gguf");
    catch_bus_errors();
    for (int i = 0; i < 6; i++) {
        size_t size = write_model(path, "tiny");
        const size_t cuts[] = {0, 4096, size / 2};
        hearth_model *model, *again = NULL;
        hearth_session *session;
        hearth_error why = {0};
        if (open_mapped(path, i < 3 ? 1 : 3, &model, &session)) {
            CHECK_OK(eval(session, err));
            CHECK_INT(truncate(path, (off_t)cuts[i % 3]), 0);
            CHECK_INT(eval(session, &why), HEARTH_ERROR_IO);
            CHECK(strstr(why.message, path) && strstr(why.message, "became shorter"));
            CHECK(hearth_session_logits(session) != NULL); /* those before */
            CHECK_INT(hearth_session_position(session), 4);
            CHECK_INT(eval(session, &why), HEARTH_ERROR_IO);
        }
        hearth_session_close(session);
        hearth_model_close(model);
        CHECK(hearth_model_open(path, NULL, &again, NULL) != HEARTH_OK); /* it is refused, not mapped */
        hearth_model_close(again);
    }
}

static void *eval_in_thread(void *session) { return eval(session, NULL) == HEARTH_ERROR_IO ? session : NULL; }

/* The system ends the process if the thread that meets the missing page blocks SIGBUS. */
TEST(a_thread_of_the_library_may_meet_the_missing_page)
{
    const char *path = test_scratch("mapped.gguf");
    hearth_model *model;
    hearth_session *session;
    pthread_t thread;
    void *failed_as_expected = NULL;
    catch_bus_errors();
    write_model(path, "tiny");
    if (open_mapped(path, 1, &model, &session)) {
        CHECK_INT(truncate(path, 0), 0);
        if (CHECK(hth_thread_start(&thread, eval_in_thread, session, "hearth-test"))) {
            pthread_join(thread, &failed_as_expected);
            CHECK(failed_as_expected == session);
        }
    }
    hearth_session_close(session);
    hearth_model_close(model);
}

TEST(a_replaced_or_unlinked_file_goes_on)
{
    const char *path = test_scratch("mapped.gguf"), *other = test_scratch("other.gguf");
    for (int i = 0; i < 2; i++) {
        CLOSED(hearth_model) *model = NULL;
        CLOSED(hearth_session) *session = NULL;
        float before[TINY_VOCAB];
        write_model(path, "tiny");
        if (open_mapped(path, 2, &model, &session)) {
            CHECK_OK(eval(session, err));
            if (hearth_session_logits(session)) memcpy(before, hearth_session_logits(session), sizeof before);
            if (i == 0) {
                write_model(other, "other");
                CHECK_INT(truncate(other, 5000), 0);
                CHECK_INT(rename(other, path), 0);
            } else {
                CHECK_INT(unlink(path), 0);
            }
            CHECK_OK(hearth_session_truncate(session, 0, err));
            CHECK_OK(eval(session, err));
            if (CHECK(hearth_session_logits(session) != NULL))
                CHECK_BYTES(before, hearth_session_logits(session), sizeof before);
        }
    }
}

TEST(addresses_of_others_are_none_of_our_business)
{
    int mine = 0;
    CHECK(!hearth_handle_sigbus(&mine) && !hearth_handle_sigbus(NULL));
}
