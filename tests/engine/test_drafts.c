/* A session with drafts is, to its caller, the one without: at each position it gives the same logits, and can be copied,
 * saved, shortened and continued while tokens of a draft behind the position are evaluated already. */
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <hearth/hearth.h>

enum { N_CTX = 128, N_PROMPT = 24 };

typedef struct fixture {
    gguf_bytes file;
    hearth_model *model;
    hearth_session *plain, *drafted;
    int32_t next; /* the most likely token */
    uint32_t n_vocab;
} fixture;

static int32_t best_of(const float *logits, uint32_t n_vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < (int32_t)n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void compare(fixture *f)
{
    const float *a = hearth_session_logits(f->plain), *b = hearth_session_logits(f->drafted);
    if (!CHECK(a && b)) return;
    CHECK_BYTES(b, a, f->n_vocab * sizeof *a);
    CHECK_INT(hearth_session_position(f->drafted), hearth_session_position(f->plain));
    CHECK_INT(hearth_session_n_cached(f->drafted), hearth_session_n_cached(f->plain));
    f->next = best_of(a, f->n_vocab);
}

/* Two sessions of a model that is open. */
static void open_sessions(fixture *f, hearth_session_options o)
{
    const hearth_draft_options drafts = {.n_draft = 6};
    int32_t prompt[N_PROMPT];
    hearth_model_info info = {0};
    o.n_ctx = N_CTX, o.n_batch = 64, o.n_thread = 1;
    hearth_model_get_info(f->model, &info);
    f->n_vocab = info.n_vocab;
    CHECK_OK(hearth_session_open(f->model, &o, &f->plain, err));
    CHECK_OK(hearth_session_open(f->model, &o, &f->drafted, err));
    CHECK_OK(hearth_session_use_drafts(f->drafted, &drafts, NULL, err));
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 20 + i % 5;
    CHECK_OK(hearth_session_eval(f->plain, prompt, N_PROMPT, err));
    CHECK_OK(hearth_session_eval(f->drafted, prompt, N_PROMPT, err));
    compare(f);
}

static void open_fixture(fixture *f, const char *architecture, hearth_session_options o)
{
    tiny_model m;
    bool has_mtp = architecture && architecture[0] == '+'; /* a block that predicts further */
    tiny_begin(&m);
    if (architecture) tiny_become(&m, architecture + has_mtp);
    if (has_mtp) tiny_add_mtp(&m);
    f->file = tiny_write(&m);
    tiny_free(&m);
    CHECK_OK(hearth_model_open_memory(f->file.data, f->file.n, "tiny", NULL, &f->model, err));
    open_sessions(f, o);
}

static void close_fixture(fixture *f)
{
    hearth_session_close(f->plain);
    hearth_session_close(f->drafted);
    hearth_model_close(f->model);
    gguf_free(&f->file);
}

static void go_on(fixture *f, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_OK(hearth_session_eval(f->plain, &f->next, 1, err));
        CHECK_OK(hearth_session_eval(f->drafted, &f->next, 1, err));
        compare(f);
    }
}

TEST(each_token_has_the_logits_that_it_has_without_drafts)
{
    static const char *const kinds[] = {NULL,   "gemma2", "qwen2moe",  "deepseek2",  "qwen35",   "mamba2",
                                        "lfm2", "plamo2", "deepseek4", "+deepseek2", "+glm4moe", "+qwen35"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        fixture f;
        hearth_error why;
        open_fixture(&f, kinds[k], (hearth_session_options){0});
        go_on(&f, N_CTX - N_PROMPT); /* to the end of the context */
        hearth_draft_stats s = test_draft_stats(f.drafted);
        CHECK(s.n_drafted > 0 && s.n_accepted > 0 && s.n_accepted <= s.n_drafted);
        CHECK_INT(hearth_session_eval(f.drafted, &f.next, 1, &why), HEARTH_ERROR_CONTEXT);
        compare(&f);
        close_fixture(&f);
    }
}

/* At each number of tokens, so that all numbers of tokens are ahead. */
static void use_in_every_way(const char *architecture)
{
    const char *paths[2] = {test_scratch("plain"), test_scratch("drafted")};
    fixture f;
    open_fixture(&f, architecture, (hearth_session_options){0});
    for (int i = 0; i < 20; i++) {
        size_t n[2];
        go_on(&f, 1 + i % 3);
        hearth_session *copy = NULL;
        CHECK_OK(hearth_session_fork(f.drafted, &copy, err));
        CHECK_INT(hearth_session_position(copy), hearth_session_position(f.plain));
        CHECK_INT(hearth_session_n_cached(copy), hearth_session_position(f.plain));
        if (i % 4 == 0) { /* the copy goes on in place of the original */
            hearth_session_close(f.drafted);
            f.drafted = copy, copy = NULL;
            CHECK_OK(hearth_session_use_drafts(f.drafted, &(hearth_draft_options){.n_draft = 5}, NULL, err));
        }
        hearth_session_close(copy);
        go_on(&f, 1);
        if (i % 4 == 1) {
            CHECK_OK(hearth_session_save(f.plain, paths[0], err));
            CHECK_OK(hearth_session_save(f.drafted, paths[1], err));
            FREED char *a = test_read_file(paths[0], &n[0]), *b = test_read_file(paths[1], &n[1]);
            CHECK_INT(n[1], n[0]);
            CHECK_BYTES(b, a, n[0]);
            CHECK_OK(hearth_session_restore(f.drafted, paths[0], err));
            compare(&f);
        }
        go_on(&f, 2);
        if (i % 4 == 2) {
            uint32_t to = hearth_session_position(f.plain) - 3;
            const int32_t others[] = {30, 31, 32};
            CHECK_OK(hearth_session_truncate(f.plain, to, err));
            CHECK_OK(hearth_session_truncate(f.drafted, to, err));
            CHECK_OK(hearth_session_eval(f.plain, others, 1 + (size_t)i % 3, err));
            CHECK_OK(hearth_session_eval(f.drafted, others, 1 + (size_t)i % 3, err));
            compare(&f);
        }
        if (hearth_session_position(f.plain) > N_CTX - 12) {
            CHECK_OK(hearth_session_truncate(f.plain, N_PROMPT, err));
            CHECK_OK(hearth_session_truncate(f.drafted, N_PROMPT, err));
            f.next = 20;
        }
    }
    close_fixture(&f);
}

TEST(a_session_that_is_ahead_is_copied_saved_shortened_and_continued)
{
    static const char *const kinds[] = {NULL,        "qwen35",     "jamba",    "falcon-h1",
                                        "deepseek4", "+deepseek2", "+glm4moe", "+qwen35"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) use_in_every_way(kinds[k]);
}

static void step_in_a_batch(const char *architecture)
{
    fixture f;
    hearth_batch *batch = NULL;
    open_fixture(&f, architecture, (hearth_session_options){0});
    CHECK_OK(hearth_batch_open(f.model, 8, 1, &batch, err));
    for (int i = 0; i < 9; i++) {
        go_on(&f, 3);
        CHECK_OK(hearth_batch_add(batch, f.plain, &f.next, 1, err));
        CHECK_OK(hearth_batch_add(batch, f.drafted, &f.next, 1, err));
        CHECK_OK(hearth_batch_run(batch, err));
        compare(&f);
    }
    hearth_batch_close(batch);
    close_fixture(&f);
}

TEST(a_batch_takes_a_session_that_is_ahead)
{
    step_in_a_batch(NULL);
    step_in_a_batch("+glm4moe");
}

/* Quantised weights have the CPU's bits on a device, others not. */
TEST(a_device_with_the_cpus_bits_has_drafts)
{
    static const char *const paths[] = {"models/storyteller-q8_0.gguf",
                                        "models/storyteller-drelu/storyteller-drelu-f32.gguf"};
    char first[1024];
    snprintf(first, sizeof first, "%s/%s", HEARTH_SOURCE_DIR, paths[0]);
    for (int i = 0; i < 3; i++) {
        fixture f = {.next = 0};
        bool has_bits = i != 1;
        const hearth_model_options o = {
            .n_thread = 1, .gpu = {.device = "null", .n_ctx = 2 * N_CTX, .n_batch = 64, .host_kv = i == 2}};
        hearth_model_info info = {0};
        CHECK_OK(hearth_model_open(has_bits ? first : test_data(paths[1]), &o, &f.model, err));
        test_log_start();
        open_sessions(&f, (hearth_session_options){0});
        CHECK_INT(test_n_warning("no drafts: the GPU's bits"), !has_bits);
        test_log_stop();
        hearth_model_get_info(f.model, &info);
        CHECK(info.gpu && info.gpu_bit_exact == has_bits && info.gpu_host_kv == (i == 2));
        go_on(&f, 40);
        CHECK((test_draft_stats(f.drafted).n_drafted > 0) == has_bits);
        close_fixture(&f);
    }
}

TEST(sessions_that_cannot_go_back_have_no_drafts)
{
    fixture f;
    test_log_start();
    open_fixture(&f, "gemma2", (hearth_session_options){.release_window = true});
    CHECK_INT(test_n_warning("behind the window"), 1);
    go_on(&f, 30);
    CHECK_INT(test_draft_stats(f.drafted).n_drafted, 0);
    CHECK_OK(hearth_session_use_drafts(f.drafted, &(hearth_draft_options){.n_draft = HEARTH_DRAFT_AUTO}, NULL,
                                       err));
    CHECK_INT(test_n_warning("no drafts"), 1); /* by itself it says nothing */
    test_log_stop();
    close_fixture(&f);
}

TEST(drafts_can_be_changed_and_ended)
{
    fixture f;
    hearth_error why;
    hearth_sampler *sampler = NULL;
    hearth_session *for_batches = NULL;
    open_fixture(&f, NULL, (hearth_session_options){0});
    CHECK_OK(hearth_sampler_open(f.model, NULL, &sampler, err));
    go_on(&f, 10);
    CHECK_OK(hearth_session_use_drafts(f.drafted, &(hearth_draft_options){.n_draft = 4, .model = f.model},
                                       sampler, err));
    go_on(&f, 10);
    uint64_t n = test_draft_stats(f.drafted).n_drafted;
    CHECK_OK(hearth_session_use_drafts(f.drafted, NULL, NULL, err)); /* as many as are worth it */
    hearth_sampler_close(sampler);
    go_on(&f, 10);
    CHECK(n > 0 && test_draft_stats(f.drafted).n_drafted >= n);
    CHECK_INT(hearth_session_use_drafts(f.drafted, &(hearth_draft_options){.n_draft = 16}, NULL, &why),
              HEARTH_ERROR_ARGUMENT);
    CHECK_OK(hearth_session_use_drafts(f.drafted, &(hearth_draft_options){.n_draft = HEARTH_DRAFT_NONE}, NULL,
                                       err));
    go_on(&f, 10);
    CHECK_INT(test_draft_stats(f.drafted).n_drafted, 0);
    const hearth_session_options o = {.n_ctx = 64, .n_batch = HEARTH_BATCH_NONE};
    CHECK_OK(hearth_session_open(f.model, &o, &for_batches, err));
    CHECK_INT(hearth_session_use_drafts(for_batches, NULL, NULL, &why), HEARTH_ERROR_ARGUMENT);
    hearth_session_close(for_batches);
    close_fixture(&f);
}
