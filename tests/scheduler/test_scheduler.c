/* What a request gets is what a session of its own would give, to the bit, whatever else is asked: with other requests
 * beside it, after a prompt of which a part is kept, with parts of prompts of any size, with few pages, so that requests
 * wait and are evaluated again. */
#include "base/alloc.h"
#include "base/hash.h"
#include "engine/engine.h"
#include "scheduler/scheduler_int.h"
#include "support/faults.h"
#include "support/models/tiny_model.h"
#include "support/models/tiny_requests.h"
#include "support/test.h"

#include <dirent.h>
#include <hearth/hearth.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { N_CTX = 192, MAX_TOKEN = 40, N_REQUEST = 12 };

static const char *const kinds[] = {NULL, "gemma2", "qwen2moe", "qwen35", "mamba2", "deepseek2", "deepseek4"};
enum { N_KIND = sizeof kinds / sizeof *kinds };
static const bool has_state[N_KIND] = {[3] = true, [4] = true, [6] = true};

typedef struct fixture {
    gguf_bytes file;
    hearth_model *model;
} fixture;

static void open_model(fixture *f, const char *architecture)
{
    tiny_model m;
    tiny_begin(&m);
    if (architecture) tiny_become(&m, architecture);
    if (architecture && strcmp(architecture, "gemma2") == 0)
        tiny_set_u32(&m, "gemma2.attention.sliding_window", 40);
    f->file = tiny_write(&m);
    tiny_free(&m);
    CHECK_OK(hearth_model_open_memory(f->file.data, f->file.n, "tiny", NULL, &f->model, err));
}

static void close_model(fixture *f)
{
    hearth_model_close(f->model);
    gguf_free(&f->file);
}

typedef struct wanted {
    int32_t prompt[N_CTX];
    size_t n;
    hearth_sampler_options sampler;
    uint32_t max_token;
    uint64_t owner;
    request_outcome alone, among;
} wanted;

static void run_alone(const fixture *f, wanted *w)
{
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
    hearth_session *session = NULL;
    hearth_sampler *sampler = NULL;
    request_outcome *a = &w->alone;
    int32_t id;
    CHECK_OK(hearth_session_open(f->model, &o, &session, err));
    CHECK_OK(hearth_sampler_open(f->model, &w->sampler, &sampler, err));
    for (size_t i = 0; i < w->n; i++) hearth_sampler_accept(sampler, w->prompt[i]);
    CHECK_OK(hearth_session_eval(session, w->prompt, w->n, err));
    for (a->n = 0; a->n < w->max_token;) {
        a->hash = request_hash(a->hash, hearth_session_logits(session));
        CHECK_OK(hearth_sampler_sample(sampler, hearth_session_logits(session), &id, err));
        hearth_sampler_accept(sampler, id);
        a->tokens[a->n++] = id;
        if (hearth_session_position(session) == N_CTX) break;
        CHECK_OK(hearth_session_eval(session, &id, 1, err));
    }
    hearth_sampler_close(sampler);
    hearth_session_close(session);
}

static void make_wanted(test_random *r, wanted *w, const wanted *earlier, size_t n_earlier)
{
    *w = (wanted){.sampler = test_sampler_options(), .owner = test_random_below(r, 2)};
    w->n = 1 + test_random_below(r, N_CTX - MAX_TOKEN - 1);
    w->max_token = 1 + (uint32_t)test_random_below(r, MAX_TOKEN);
    w->sampler.seed = test_random_below(r, 1000);
    w->sampler.repeat_penalty = test_random_below(r, 2) ? 1.1f : 1.0f;
    if (test_random_below(r, 3) == 0) w->sampler.temperature = 0.0f; /* it soon repeats */
    for (size_t i = 0; i < w->n; i++) w->prompt[i] = (int32_t)test_random_below(r, TINY_VOCAB);
    if (n_earlier == 0 || test_random_below(r, 3) == 0) return;
    const wanted *e = &earlier[test_random_below(r, (uint32_t)n_earlier)]; /* begins as another one */
    size_t n_same = test_random_below(r, (uint32_t)e->n + 1);
    if (n_same > w->n) n_same = w->n;
    memcpy(w->prompt, e->prompt, n_same * sizeof *w->prompt);
}

static hearth_request request_of(wanted *w)
{
    w->among = (request_outcome){.n = 0};
    return (hearth_request){.tokens = w->prompt,
                            .n_token = w->n,
                            .max_token = w->max_token,
                            .ignore_end = true,
                            .sampler = &w->sampler,
                            .owner = w->owner,
                            .fn = request_note,
                            .user = &w->among};
}

static void expect_equal(const wanted *w)
{
    CHECK_INT(w->among.last, HEARTH_REQUEST_LENGTH);
    CHECK_INT(w->among.n_last, 1);
    CHECK_INT(w->among.n, w->alone.n);
    CHECK_BYTES(w->among.tokens, w->alone.tokens, w->alone.n * sizeof *w->alone.tokens);
    CHECK(w->among.hash == w->alone.hash);
}

static uint32_t any_part(void *user, uint32_t room) { return 1 + (uint32_t)test_random_below(user, room); }

static hearth_scheduler *open_scheduler(const fixture *f, const hearth_scheduler_options *o)
{
    hearth_scheduler *s = NULL;
    CHECK_OK(hearth_scheduler_open(f->model, o, &s, err));
    return s;
}

static uint64_t add(hearth_scheduler *s, wanted *w)
{
    const hearth_request r = request_of(w);
    uint64_t id = 0;
    CHECK_OK(hearth_scheduler_add(s, &r, &id, err));
    return id;
}

/* None, drafts that are worth it by what is measured, or of so many tokens; by a model, too. */
static hearth_draft_options any_drafts(const fixture *f, test_random *r)
{
    const uint32_t n[] = {HEARTH_DRAFT_NONE, HEARTH_DRAFT_AUTO, 1 + (uint32_t)test_random_below(r, 15)};
    return (hearth_draft_options){.n_draft = n[test_random_below(r, 3)],
                                  .model = test_random_below(r, 4) == 0 ? f->model : NULL};
}

/* One schedule: requests come while others run, some are cancelled or stopped. Returns how many were evaluated again. */
static uint64_t play(const fixture *f, test_random *r, wanted *all, hearth_scheduler_stats *stats)
{
    const hearth_scheduler_options o = {.n_position = N_CTX + 32 * (uint32_t)test_random_below(r, 12),
                                        .n_ctx = N_CTX,
                                        .n_batch = 16 + (uint32_t)test_random_below(r, 64),
                                        .n_running = 1 + (uint32_t)test_random_below(r, 8),
                                        .n_kept = 1 + (uint32_t)test_random_below(r, 6),
                                        .n_thread = 1,
                                        .draft = any_drafts(f, r)};
    hearth_scheduler *s = open_scheduler(f, &o);
    uint64_t ids[N_REQUEST] = {0};
    bool ends_early[N_REQUEST] = {false};
    hth_scheduler_set_part(s, any_part, r);
    for (size_t i = 0; i < N_REQUEST || test_step(s);) {
        if (i < N_REQUEST && test_random_below(r, 4) == 0) {
            ids[i] = add(s, &all[i]);
            ends_early[i] = test_random_below(r, 6) == 0;
            all[i].among.stop_at = ends_early[i] ? 1 + test_random_below(r, 4) : 0;
            i++;
        } else if (i < N_REQUEST) {
            (void)test_step(s);
        }
        if (i > 0 && test_random_below(r, 40) == 0) {
            size_t k = test_random_below(r, (uint32_t)i);
            if (all[k].among.n_last == 0) ends_early[k] = true;
            hearth_scheduler_cancel(s, ids[k]);
        }
    }
    for (size_t i = 0; i < N_REQUEST; i++) {
        if (!ends_early[i]) expect_equal(&all[i]);
        CHECK_INT(all[i].among.n_last, 1);
        CHECK_BYTES(all[i].among.tokens, all[i].alone.tokens, all[i].among.n * sizeof *all[i].alone.tokens);
    }
    *stats = test_scheduler_stats(s);
    CHECK_INT(stats->n_waiting + stats->n_running, 0);
    hearth_scheduler_close(s);
    return stats->n_preempted;
}

TEST(a_request_gets_the_same_in_any_schedule)
{
    uint64_t n_preempted = 0, n_cached = 0, n_accepted = 0;
    int n_schedule = test_is_long() ? 200 : 30;
    for (int k = 0; k < N_KIND; k++) {
        fixture f;
        test_random r = {(uint64_t)(77 + k)};
        wanted *all = calloc(N_REQUEST, sizeof *all);
        open_model(&f, kinds[k]);
        for (int i = 0; f.model && i < n_schedule; i++) {
            hearth_scheduler_stats stats = {0};
            for (size_t j = 0; i % 10 == 0 && j < N_REQUEST; j++) {
                make_wanted(&r, &all[j], all, j);
                run_alone(&f, &all[j]);
            }
            n_preempted += play(&f, &r, all, &stats);
            n_cached += stats.n_cached;
            n_accepted += stats.draft.n_accepted;
        }
        close_model(&f);
        free(all);
    }
    printf("     %llu requests were evaluated again, %llu tokens found, %llu drafted\n",
           (unsigned long long)n_preempted, (unsigned long long)n_cached, (unsigned long long)n_accepted);
    CHECK(n_preempted > 0 && n_cached > 0 && n_accepted > 0);
}

/* A prompt that is evaluated for later requests: nothing is sampled of it, with drafts and other requests beside it. */
TEST(a_prompt_alone_is_evaluated_and_kept)
{
    for (int k = 0; k < N_KIND; k++) {
        fixture f;
        test_random r = {31};
        wanted first, one, beside, next;
        open_model(&f, kinds[k]);
        const hearth_scheduler_options o = {.n_ctx = N_CTX, .n_thread = 1, .draft = {.n_draft = 3}};
        hearth_scheduler *s = open_scheduler(&f, &o);
        make_wanted(&r, &first, NULL, 0);
        make_wanted(&r, &beside, NULL, 0);
        one = first;
        one.n = 1, first.n = 70, beside.max_token = 12;
        run_alone(&f, &beside);
        wanted *const prompts[] = {&one, &first};
        uint64_t id;
        add(s, &beside);
        for (int i = 0; i < 2; i++) {
            hearth_request q = request_of(prompts[i]);
            q.prompt_only = true;
            CHECK_OK(hearth_scheduler_add(s, &q, &id, err));
        }
        while (test_step(s)) {
        }
        expect_equal(&beside);
        for (int i = 0; i < 2; i++) {
            CHECK_INT(prompts[i]->among.last, HEARTH_REQUEST_LENGTH);
            CHECK_INT(prompts[i]->among.n_last, 1);
            CHECK_INT(prompts[i]->among.n, 0);
        }
        CHECK_INT(test_scheduler_stats(s).n_generated, beside.among.n);
        next = first;
        next.n += 5, next.max_token = 8;
        run_alone(&f, &next);
        add(s, &next);
        while (test_step(s)) {
        }
        expect_equal(&next);
        CHECK_INT(next.among.n_cached, first.n);
        hearth_scheduler_close(s);
        close_model(&f);
    }
}

/* A second turn of a chat: the first one's tokens, what came of it, and more. */
TEST(a_second_turn_evaluates_its_new_tokens_only)
{
    for (int k = 0; k < N_KIND; k++) {
        fixture f;
        test_random r = {5};
        wanted first, second, other;
        open_model(&f, kinds[k]);
        const hearth_scheduler_options o = {
            .n_ctx = N_CTX, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}};
        hearth_scheduler *s = open_scheduler(&f, &o);
        make_wanted(&r, &first, NULL, 0);
        first.n = 70, first.max_token = 20;
        add(s, &first);
        while (test_step(s)) {
        }
        second = first;
        memcpy(second.prompt + first.n, first.among.tokens, first.among.n * sizeof *first.among.tokens);
        second.n = first.n + first.among.n + 10;
        for (size_t i = second.n - 10; i < second.n; i++) second.prompt[i] = (int32_t)(i % TINY_VOCAB);
        other = second, other.owner++;
        add(s, &second);
        add(s, &other);
        while (test_step(s)) {
        }
        CHECK_INT(second.among.n_cached, first.n + first.among.n - 1); /* the last token was not evaluated */
        CHECK_INT(other.among.n_cached, 0);
        CHECK(second.among.hash == other.among.hash);
        CHECK_INT(test_scheduler_stats(s).n_cached, second.among.n_cached);
        hearth_scheduler_close(s);
        close_model(&f);
    }
}

TEST(nothing_is_kept_where_that_is_asked_for)
{
    fixture f;
    test_random r = {5};
    open_model(&f, kinds[0]);
    const hearth_scheduler_options o = {.n_ctx = N_CTX,
                                        .n_kept = HEARTH_KEPT_NONE,
                                        .n_thread = 1,
                                        .draft = {.n_draft = HEARTH_DRAFT_NONE}};
    hearth_scheduler *s = open_scheduler(&f, &o);
    wanted first, again;
    make_wanted(&r, &first, NULL, 0);
    again = first;
    add(s, &first);
    while (test_step(s)) {
    }
    add(s, &again);
    while (test_step(s)) {
    }
    CHECK(again.among.hash == first.among.hash);
    CHECK_INT(again.among.n_cached, 0);
    CHECK_INT(test_scheduler_stats(s).n_kept, 0);
    CHECK_INT(test_scheduler_stats(s).n_page_used, 0);
    hearth_scheduler_close(s);
    close_model(&f);
}

/* ---- figures -------------------------------------------------------------------------------------------------- */

TEST(progress_is_that_of_the_request)
{
    fixture f;
    test_random r = {11};
    wanted w[3];
    uint64_t ids[3];
    hearth_request_progress p = {0};
    open_model(&f, NULL);
    hearth_scheduler *s =
        open_scheduler(&f, &(hearth_scheduler_options){.n_ctx = N_CTX,
                                                       .n_thread = 1,
                                                       .n_batch = 32,
                                                       .n_running = 1,
                                                       .draft = {.n_draft = HEARTH_DRAFT_NONE}});
    for (int i = 0; i < 3; i++) {
        make_wanted(&r, &w[i], NULL, 0);
        w[i].n = 70, w[i].max_token = 5, w[i].owner = 0;
        ids[i] = add(s, &w[i]);
        CHECK(hearth_scheduler_get_progress(s, ids[i], &p));
        CHECK(!p.is_running && p.n_before == (uint32_t)i && p.n_prompt == 70 && p.n_evaluated == 0);
    }
    for (uint32_t n = 32; n <= 64; n += 32) {
        CHECK(test_step(s));
        CHECK(hearth_scheduler_get_progress(s, ids[0], &p) && p.is_running && p.n_evaluated == n &&
              p.n_generated == 0);
        CHECK(hearth_scheduler_get_progress(s, ids[2], &p) && !p.is_running && p.n_before == 1);
    }
    for (uint32_t n = 1; n < 5; n++) {
        CHECK(test_step(s));
        CHECK(hearth_scheduler_get_progress(s, ids[0], &p) && p.n_evaluated == 70 && p.n_generated == n);
    }
    while (test_step(s)) {
    }
    for (int i = 0; i < 3; i++) CHECK(!hearth_scheduler_get_progress(s, ids[i], &p));
    hearth_scheduler_close(s);
    close_model(&f);
}

TEST(steps_have_as_many_tokens_as_the_model_chose)
{
    fixture f;
    test_random r = {12};
    wanted w;
    hearth_request_progress p = {0};
    open_model(&f, NULL);
    for (int i = 0; i < 2; i++) {
        hth_engine_mutable(f.model)->n_batch = i == 0 ? 512 : 40;
        hearth_scheduler *s =
            open_scheduler(&f, &(hearth_scheduler_options){.n_ctx = N_CTX, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}});
        make_wanted(&r, &w, NULL, 0);
        w.n = 70, w.max_token = 5, w.owner = 0;
        uint64_t id = add(s, &w);
        CHECK(test_step(s) && hearth_scheduler_get_progress(s, id, &p));
        CHECK_INT(p.n_evaluated, i == 0 ? 70 : 40);
        hearth_scheduler_close(s);
    }
    close_model(&f);
}

/* The shares are those that a session counts, which evaluates the same tokens. */
TEST(active_neurons_are_those_of_all_requests)
{
    fixture f;
    tiny_model m;
    test_random r = {12};
    wanted w[2];
    double share[64], expected[2][64];
    uint64_t n_counted = 0;
    tiny_begin(&m);
    tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    f.file = tiny_write(&m);
    tiny_free(&m);
    CHECK_OK(hearth_model_open_memory(f.file.data, f.file.n, "tiny", NULL, &f.model, err));
    hearth_model_info info = {0};
    hearth_model_get_info(f.model, &info);
    CHECK(info.n_layer <= 64);
    hearth_scheduler *s = open_scheduler(
        &f,
        &(hearth_scheduler_options){.n_ctx = N_CTX, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}});
    CHECK_INT(hearth_scheduler_sparsity_stats(s, share), 0);
    hearth_scheduler_enable_sparsity_stats(s, true);
    for (int i = 0; i < 2; i++) {
        const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
        hearth_session *session = NULL;
        make_wanted(&r, &w[i], NULL, 0);
        w[i].max_token = 6, w[i].owner = (uint64_t)i;
        add(s, &w[i]);
        run_alone(&f, &w[i]);
        CHECK_OK(hearth_session_open(f.model, &o, &session, err));
        hearth_session_enable_sparsity_stats(session, true);
        CHECK_OK(hearth_session_eval(session, w[i].prompt, w[i].n, err));
        CHECK_OK(hearth_session_eval(session, w[i].alone.tokens, w[i].alone.n - 1, err));
        n_counted += hearth_session_sparsity_stats(session, expected[i]);
        hearth_session_close(session);
    }
    while (test_step(s)) {
    }
    CHECK_INT(hearth_scheduler_sparsity_stats(s, share), n_counted);
    for (uint32_t l = 0; l < info.n_layer; l++) {
        double sum = 0.0;
        for (int i = 0; i < 2; i++) sum += expected[i][l] * (double)(w[i].n + w[i].alone.n - 1);
        CHECK(share[l] > 0.0 && share[l] < 1.0);
        CHECK(fabs(share[l] * (double)n_counted - sum) < 1e-6 * sum);
    }
    hearth_scheduler_enable_sparsity_stats(s, false);
    add(s, &w[0]);
    while (test_step(s)) {
    }
    CHECK_INT(hearth_scheduler_sparsity_stats(s, share), 0);
    hearth_scheduler_close(s);
    close_model(&f);
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

static size_t count_files(const char *folder)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));) n += e->d_name[0] != '.';
    if (dir) closedir(dir);
    return n;
}

static void write_byte(const char *folder, const char *name, long at, int value)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r+b");
    if (!f) f = fopen(path, "w+b");
    if (!CHECK(f != NULL)) return;
    fseek(f, at, SEEK_SET);
    fputc(value, f);
    fclose(f);
}

/* The names of all kept files, each changed at a byte. */
static void damage_all(const char *folder)
{
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (strstr(e->d_name, ".kv")) write_byte(folder, e->d_name, 600, 0x5a);
    if (dir) closedir(dir);
}

static hearth_scheduler *restart(const fixture *f, const char *folder, wanted *w)
{
    const hearth_scheduler_options o = {
        .n_ctx = N_CTX, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}};
    hearth_scheduler *s = open_scheduler(f, &o);
    CHECK_OK(hearth_scheduler_restore(s, folder, err));
    add(s, w);
    while (test_step(s)) {
    }
    return s;
}

TEST(a_restart_finds_what_was_kept)
{
    const char *folder = test_scratch("kept");
    hearth_error why;
    CHECK(mkdir(folder, 0700) == 0);
    for (int k = 0; k < N_KIND; k++) {
        fixture f;
        test_random r = {9};
        wanted w[3];
        open_model(&f, kinds[k]);
        hearth_scheduler *s =
            open_scheduler(&f, &(hearth_scheduler_options){
                                   .n_ctx = N_CTX, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}});
        for (int i = 0; i < 3; i++) {
            make_wanted(&r, &w[i], NULL, 0);
            w[i].n = 50, w[i].owner = (uint64_t)i << 40;
            run_alone(&f, &w[i]);
            add(s, &w[i]);
        }
        while (test_step(s)) {
        }
        CHECK_OK(hearth_scheduler_save(s, folder, UINT64_MAX, NULL, NULL, err));
        CHECK_OK(hearth_scheduler_save(s, folder, UINT64_MAX, NULL, NULL, err)); /* again: nothing is added */
        CHECK_INT(count_files(folder), 3);
        hearth_scheduler_close(s);
        s = restart(&f, folder, &w[1]);
        CHECK_INT(w[1].among.n_cached, has_state[k] ? 0 : 49); /* a file has the state at the end only */
        expect_equal(&w[1]);
        write_byte(folder, "notes.txt", 0, 'x');
        write_byte(folder, "0000000000000000-00000000000000000.kv", 0, 'x');
        CHECK_OK(hearth_scheduler_save(s, folder, 0, NULL, NULL, err));
        CHECK_INT(count_files(folder), 2); /* those of others stay */
        CHECK_OK(hearth_scheduler_save(s, folder, UINT64_MAX, NULL, NULL, err));
        hearth_scheduler_close(s);
        damage_all(folder);
        s = restart(&f, folder, &w[1]);
        CHECK_INT(w[1].among.n_cached, 0);
        expect_equal(&w[1]);
        CHECK_OK(hearth_scheduler_save(s, folder, 0, NULL, NULL, err));
        CHECK_INT(hearth_scheduler_restore(s, "no/such/folder", &why), HEARTH_ERROR_IO);
        CHECK_INT(hearth_scheduler_save(s, "no/such/folder", 0, NULL, NULL, &why), HEARTH_ERROR_IO);
        hearth_scheduler_close(s);
        close_model(&f);
        char path[1024];
        snprintf(path, sizeof path, "%s/notes.txt", folder);
        remove(path);
        snprintf(path, sizeof path, "%s/0000000000000000-00000000000000000.kv", folder);
        remove(path);
    }
}

/* ---- steps ---------------------------------------------------------------------------------------------------- */

static volatile int cancel;

/* Cancels the evaluation once, in the third step. */
static uint32_t interrupt(void *user, uint32_t room)
{
    int *n_step = user;
    cancel = ++*n_step == 3;
    return room;
}

TEST(a_step_that_is_cancelled_is_evaluated_again)
{
    fixture f;
    test_random r = {8};
    wanted w;
    int n_step = 0;
    open_model(&f, NULL);
    make_wanted(&r, &w, NULL, 0);
    run_alone(&f, &w);
    hearth_model_close(f.model);
    const hearth_model_options m = {.cancel = &cancel, .n_thread = 1};
    CHECK_OK(hearth_model_open_memory(f.file.data, f.file.n, "tiny", &m, &f.model, err));
    const hearth_scheduler_options o = {
        .n_ctx = N_CTX, .n_thread = 1, .n_batch = 16, .draft = {.n_draft = HEARTH_DRAFT_NONE}};
    hearth_scheduler *s = open_scheduler(&f, &o);
    hth_scheduler_set_part(s, interrupt, &n_step);
    add(s, &w);
    for (bool more = true; more;)
        if (hearth_scheduler_step(s, &more, NULL) == HEARTH_ERROR_CANCELLED) cancel = 0;
    CHECK(n_step > 3);
    expect_equal(&w);
    hearth_scheduler_close(s);
    close_model(&f);
}

TEST(owners_take_turns)
{
    fixture f;
    test_random r = {6};
    wanted all[5];
    open_model(&f, NULL);
    const hearth_scheduler_options o = {
        .n_ctx = N_CTX, .n_running = 2, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}};
    hearth_scheduler *s = open_scheduler(&f, &o);
    for (int i = 0; i < 5; i++) {
        make_wanted(&r, &all[i], NULL, 0);
        all[i].owner = i == 4, all[i].n = 10, all[i].max_token = 8;
        add(s, &all[i]);
    }
    for (int i = 0; i < 4; i++) (void)test_step(s);
    CHECK(all[0].among.n > 0 &&
          all[4].among.n > 0); /* the last one does not wait for the first owner's others */
    CHECK_INT(all[1].among.n, 0);
    while (test_step(s)) {
    }
    CHECK(all[1].among.n > 0 && all[3].among.n > 0);
    hearth_scheduler_close(s);
    close_model(&f);
}

TEST(requests_that_cannot_fit_are_refused)
{
    fixture f;
    test_random r = {7};
    wanted w;
    hearth_error why;
    hearth_scheduler *s;
    uint64_t id;
    open_model(&f, NULL);
    make_wanted(&r, &w, NULL, 0);
    const hearth_scheduler_options small = {.n_ctx = N_CTX,
                                            .n_position = 64,
                                            .n_thread = 1,
                                            .draft = {.n_draft = HEARTH_DRAFT_NONE}},
                                   wrong = {.n_batch = 4, .n_running = 8}, late = {.max_delay = -1.0};
    CHECK_INT(hearth_scheduler_open(f.model, &wrong, &s, &why), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_scheduler_open(f.model, &late, &s, &why), HEARTH_ERROR_ARGUMENT);
    s = open_scheduler(&f, &small);
    hearth_request q = request_of(&w);
    q.n_token = 65;
    CHECK_INT(hearth_scheduler_add(s, &q, &id, &why), HEARTH_ERROR_CONTEXT);
    q.n_token = 0;
    CHECK_INT(hearth_scheduler_add(s, &q, &id, &why), HEARTH_ERROR_ARGUMENT);
    q.n_token = 3, w.prompt[1] = TINY_VOCAB;
    CHECK_INT(hearth_scheduler_add(s, &q, &id, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(strstr(why.message, "tokens[1] is"));
    w.prompt[1] = -1;
    CHECK_INT(hearth_scheduler_add(s, &q, &id, &why), HEARTH_ERROR_ARGUMENT);
    w.prompt[1] = 1, q.n_token = 64, q.max_token = 0; /* the whole cache: one token comes */
    CHECK_OK(hearth_scheduler_add(s, &q, &id, err));
    while (test_step(s)) {
    }
    CHECK_INT(w.among.n, 1);
    CHECK_INT(w.among.last, HEARTH_REQUEST_LENGTH);
    CHECK(!test_step(s));
    hearth_scheduler_close(s);
    close_model(&f);
}

/* Two requests with equal beginnings, one after the other, with drafts of the model itself. The error of one that fails
 * is that of the task. */
static hearth_status ask_twice(const fault_paths *p, hearth_error *err)
{
    static const int32_t prompt[] = {3, 4, 5, 6, 7, 8};
    hearth_scheduler_options o = {.n_ctx = 64, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}};
    const hearth_model_options m = {.n_thread = 1};
    hearth_model *model = NULL;
    hearth_scheduler *s = NULL;
    request_outcome out = {.n_last = 0};
    uint64_t id;
    hearth_status st = hearth_model_open(p->in, &m, &model, err);
    o.draft = (hearth_draft_options){.n_draft = 2, .model = model};
    if (st == HEARTH_OK) st = hearth_scheduler_open(model, &o, &s, err);
    for (size_t n = 4; st == HEARTH_OK && n <= 6; n += 2) {
        const hearth_request r = {
            .tokens = prompt, .n_token = n, .max_token = 3, .fn = request_note, .user = &out};
        st = hearth_scheduler_add(s, &r, &id, err);
        while (st == HEARTH_OK && test_step(s)) {
        }
        if (st == HEARTH_OK && out.last == HEARTH_REQUEST_FAILED) {
            st = out.error.status;
            *err = out.error;
        }
    }
    hearth_scheduler_close(s);
    hearth_model_close(model);
    return st;
}

TEST(no_failure_of_memory_leaves_anything_behind) { fault_survive("scheduler", ask_twice, 50, 5, 0); }

/* progress: false at once. */
static bool no_time(void *user, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    ++*(unsigned *)user;
    return false;
}

TEST(what_is_continued_leaves_the_folder)
{
    const char *folder = test_scratch("continued");
    fixture f;
    test_random r = {10};
    hearth_error why;
    unsigned n_asked = 0;
    static wanted w[3];
    CHECK(mkdir(folder, 0700) == 0);
    open_model(&f, NULL);
    hearth_scheduler *s = open_scheduler(
        &f,
        &(hearth_scheduler_options){.n_ctx = N_CTX, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}});
    for (int i = 0; i < 3; i++) { /* each has the tokens of the one before, and more */
        make_wanted(&r, &w[i], NULL, 0);
        w[i].n = 40 + 40 * (size_t)i, w[i].owner = 1, w[i].max_token = 1;
        if (i > 0) memcpy(w[i].prompt, w[i - 1].prompt, w[i - 1].n * sizeof *w[i].prompt);
        run_alone(&f, &w[i]);
    }
    CHECK(!hearth_scheduler_has_unsaved(s));
    for (int i = 0; i < 2; i++) {
        add(s, &w[i]);
        while (test_step(s)) {
        }
        CHECK(hearth_scheduler_has_unsaved(s));
        CHECK_INT(hearth_scheduler_save(s, folder, UINT64_MAX, no_time, &n_asked, &why),
                  HEARTH_ERROR_CANCELLED);
        CHECK_INT(n_asked, i + 1);
        CHECK_INT(count_files(folder), i); /* nothing of the new one */
        CHECK(hearth_scheduler_has_unsaved(s));
        CHECK_OK(hearth_scheduler_save(s, folder, UINT64_MAX, NULL, NULL, err));
        CHECK_INT(count_files(folder), 1);
        CHECK(!hearth_scheduler_has_unsaved(s));
    }
    hearth_scheduler_close(s);
    s = restart(&f, folder, &w[2]); /* continues what was read from the folder */
    CHECK_INT(w[2].among.n_cached, 80);
    expect_equal(&w[2]);
    CHECK_OK(hearth_scheduler_save(s, folder, UINT64_MAX, NULL, NULL, err));
    CHECK_INT(count_files(folder), 1);
    hearth_scheduler_close(s);
    s = open_scheduler(&f, &(hearth_scheduler_options){
                               .n_ctx = N_CTX, .n_thread = 1, .draft = {.n_draft = HEARTH_DRAFT_NONE}});
    CHECK_OK(hearth_scheduler_restore(s, folder, err));
    CHECK(!hearth_scheduler_has_unsaved(s));
    CHECK_OK(hearth_scheduler_save(s, folder, 0, NULL, NULL, err));
    CHECK_INT(count_files(folder), 0);
    hearth_scheduler_close(s);
    close_model(&f);
}
