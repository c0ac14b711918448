/* A limit of memory holds while a model runs: sessions that were not announced, and other needs of the system, take
 * memory from weights that stay; what cannot be is refused. Bits never change. */
#include "base/alloc.h"
#include "engine/engine.h"
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
/* Dense, with 13.5 MiB of networks. */
#define MODEL "models/storyteller-drelu/storyteller-drelu-f32.gguf"

enum { N_CTX = 64, N_ID = 40, MARGIN = 20 }; /* MARGIN: MiB of a group with GROUP_LIMIT */
#define GROUP_LIMIT (1200 * MIB)
#define SECOND (uint64_t)1000000000

/* ---- a system that tells what a test wants ------------------------------------------------------- */

static hth_system_memory told;
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;

static void tell(hth_system_memory *system)
{
    pthread_mutex_lock(&told_lock);
    *system = told;
    pthread_mutex_unlock(&told_lock);
}

static void set_told(uint64_t available, double pressure)
{
    pthread_mutex_lock(&told_lock);
    told =
        (hth_system_memory){.group_limit = GROUP_LIMIT, .group_available = available, .pressure = pressure};
    pthread_mutex_unlock(&told_lock);
    hth_engine_set_system_memory(tell);
}

/* From now on a control group leaves so much beside the margin of a limit in bytes. */
static void leave(uint64_t size) { set_told(MARGIN * MIB + size, 0.0); }
/* The group needs so much, 2 * MARGIN at most. */
static void need(uint64_t size) { set_told(2 * MARGIN * MIB - size, 50.0); }

static void leave_enough(void) { leave(900 * MIB); }

TEST(a_margin_is_left_to_others)
{
    hth_system_memory s = {0};
    CHECK(hth_budget_headroom(&s, true, false) == INT64_MAX); /* nothing is known */
    s = (hth_system_memory){.total = 65536 * MIB, .available = 10000 * MIB};
    CHECK_INT(hth_budget_headroom(&s, true, false), (10000 - 4096) * MIB);
    CHECK_INT(hth_budget_headroom(&s, true, true), (10000 - 2 * 4096) * MIB);
    CHECK_INT(hth_budget_headroom(&s, false, false), (10000 - 2048) * MIB);
    s.total = 1024 * MIB, s.available = 100 * MIB;
    CHECK(hth_budget_headroom(&s, true, false) == -(int64_t)(156 * MIB));
    s.available = 1000 * MIB, s.group_limit = 500 * MIB, s.group_available = 100 * MIB;
    CHECK_INT(hth_budget_headroom(&s, true, false), (100 - 10 - 16) * MIB);
    CHECK_INT(hth_budget_headroom(&s, false, false), (100 - 5 - 8) * MIB);
}

static const hth_system_memory group = {.group_limit = GROUP_LIMIT};

/* What the store may have after a group left so many MiB. */
static uint64_t follow(hth_budget_cap *cap, uint64_t left, uint64_t touched, uint64_t now_ns)
{
    hth_system_memory s = group;
    s.group_available = left * MIB;
    hth_budget_follow(cap, &s, touched * MIB, now_ns);
    return cap->now / MIB;
}

TEST(memory_goes_at_once_and_comes_back_after_a_while)
{
    hth_budget_cap cap = {.min = 50 * MIB, .max = 800 * MIB, .now = 800 * MIB};
    CHECK_INT(-hth_budget_headroom(&group, false, false), MARGIN * MIB);
    CHECK_INT(follow(&cap, 500, 800, 0), 800);
    CHECK_INT(follow(&cap, MARGIN, 600, 0), 600);
    CHECK_INT(follow(&cap, MARGIN - 1, 600, 0), 579); /* twice the margin is left then */
    CHECK_INT(follow(&cap, 38, 580, 0), 579);
    CHECK_INT(follow(&cap, MARGIN, 577, 0), 579); /* not worth it */
    CHECK_INT(follow(&cap, 0, 20, 0), 50);
    for (uint64_t t = 1; t < 6; t++)
        CHECK_INT(follow(&cap, MARGIN + (t == 3 ? 300 : 400), 50, t * SECOND), 50);
    CHECK_INT(follow(&cap, MARGIN + 400, 50, 6 * SECOND), 350); /* the least of these 5 s */
    for (uint64_t t = 7; t < 28; t++)
        CHECK_INT(follow(&cap, MARGIN + (t % 4 == 3 ? 10 : 900), 350, t * SECOND), 350);
    for (uint64_t t = 28; t < 33; t++) CHECK_INT(follow(&cap, MARGIN + 900, 350, t * SECOND), 350);
    CHECK_INT(follow(&cap, MARGIN + 900, 350, 33 * SECOND), 800); /* no more than at first */
}

TEST(pressure_and_reached_limits_double_the_margin)
{
    hth_system_memory s = group;
    hth_budget_cap cap = {.max = 800 * MIB, .now = 800 * MIB, .n_limit_event = 3};
    s.group_available = MARGIN * MIB, s.n_limit_event = 3;
    hth_budget_follow(&cap, &s, 800 * MIB, 0);
    CHECK_INT(cap.now, 800 * MIB);
    s.n_limit_event = 4;
    hth_budget_follow(&cap, &s, 800 * MIB, 0);
    CHECK_INT(cap.now, (800 - MARGIN) * MIB);
    cap.now = cap.max;
    hth_budget_follow(&cap, &s, 800 * MIB, 0); /* it has not happened again */
    CHECK_INT(cap.now, cap.max);
    s.pressure = 30.0;
    hth_budget_follow(&cap, &s, 800 * MIB, 0);
    CHECK_INT(cap.now, (800 - MARGIN) * MIB);
}

TEST(the_system_is_looked_at_more_often_while_it_leaves_little)
{
    hth_system_memory s = group;
    hth_budget_cap cap = {.max = 800 * MIB, .now = 800 * MIB};
    s.group_available = 600 * MIB;
    uint64_t seldom = hth_budget_follow(&cap, &s, 0, 0);
    s.group_available = 500 * MIB;
    CHECK(hth_budget_follow(&cap, &s, 0, 0) * 5 <= seldom && seldom <= SECOND);
}

/* ---- opening ----------------------------------------------------------------------------------------- */

static hearth_model_options options_with(uint64_t ram)
{
    return (hearth_model_options){.ram = ram, .n_thread = 2, .gpu = {.n_ctx = N_CTX, .n_batch = 8}};
}

/* The least that a refusal names, in bytes. */
static uint64_t least_of(const char *path)
{
    hearth_error error = {0};
    hearth_model *model = NULL;
    hearth_model_options o = options_with(1);
    CHECK_INT(hearth_model_open(path, &o, &model, &error), HEARTH_ERROR_ARGUMENT);
    const char *end = strstr(error.message, " bytes)"), *p = end;
    while (p && p > error.message && p[-1] != '(') p--;
    return end ? strtoull(p, NULL, 10) : 0;
}

/* With `more` bytes above the least. */
static hearth_model *open_with(const char *path, uint64_t more)
{
    hearth_model *model = NULL;
    hearth_model_options o = options_with(least_of(path) + more);
    CHECK_OK(hearth_model_open(path, &o, &model, err));
    return model;
}

TEST(auto_takes_what_the_system_leaves)
{
    const char *path = test_data(MODEL);
    CLOSED(hearth_model) *model = NULL;
    hearth_model_options o = options_with(HEARTH_RAM_AUTO);
    hearth_error error = {0};
    leave_enough();
    CHECK_OK(hearth_model_open(path, &o, &model, err));
    CHECK(model && test_model_info(model).n_streamed == 0);
    hearth_model_close(model);
    model = NULL;
    leave(48 * MIB); /* MARGIN of it belong to that of auto */
    CHECK_OK(hearth_model_open(path, &o, &model, err));
    CHECK(model && test_model_info(model).n_streamed > 0);
    hearth_model_close(model);
    model = NULL;
    leave(0);
    CHECK_INT(hearth_model_open(path, &o, &model, &error), HEARTH_ERROR_ARGUMENT);
    CHECK(strstr(error.message, "needs at least ") && strstr(error.message, "which the system leaves"));
    hth_engine_set_system_memory(NULL);
}

/* Opens the model in a group that leaves so much; returns how many warnings have these words. */
static int count_warnings(const char *words, uint64_t left, uint64_t ram, bool mmap)
{
    CLOSED(hearth_model) *model = NULL;
    hearth_model_options o = options_with(ram);
    o.mmap = mmap;
    set_told(left, 0.0);
    test_log_start();
    CHECK_OK(hearth_model_open(test_data(MODEL), &o, &model, err));
    test_log_stop();
    hth_engine_set_system_memory(NULL);
    return test_n_warning(words);
}

/* The system would kill the process while it reads the weights, and nothing would say why. */
TEST(weights_that_do_not_fit_are_warned_of_once)
{
    const char *advice = "hearth_model_options.ram HEARTH_RAM_AUTO keeps what fits";
    CHECK_INT(count_warnings(advice, 20 * MIB, 0, false), 1);
    CHECK_INT(count_warnings("storyteller-drelu-f32.gguf: its weights take ", 20 * MIB, 0, false), 1);
    CHECK_INT(count_warnings("its control group leaves 20.00 MiB", 20 * MIB, 0, false), 1);
    CHECK_INT(count_warnings(advice, 60 * MIB, 0, false), 0);
    CHECK_INT(count_warnings(advice, 20 * MIB, 0, true), 0);
    CHECK_INT(count_warnings(advice, 900 * MIB, HEARTH_RAM_AUTO, false), 0);
}

/* Each allocation of a model that is opened fails once: one of them is that of the weights. */
static void find_advice(uint64_t ram, const char *advice)
{
    hearth_error error = {.message = ""};
    hearth_model_options o = options_with(ram);
    hearth_status st = HEARTH_ERROR_MEMORY;
    for (uint64_t n = 1; st == HEARTH_ERROR_MEMORY && !strstr(error.message, " for the weights; "); n++) {
        CLOSED(hearth_model) *model = NULL;
        hth_alloc_fail_at(n, 0);
        st = hearth_model_open(test_data(MODEL), &o, &model, &error);
        hth_alloc_fail_at(0, 0);
    }
    CHECK_INT(st, HEARTH_ERROR_MEMORY);
    CHECK(strstr(error.message, advice) != NULL);
}

TEST(what_needs_less_memory_is_what_can_be_given)
{
    find_advice(0, "for the weights; hearth_model_options.ram HEARTH_RAM_AUTO or hearth_model_options.io mmap needs less");
    find_advice((uint64_t)1 << 40, "for the weights; a smaller hearth_model_options.ram needs less");
}

TEST(the_system_itself_leaves_something)
{
    CLOSED(hearth_model) *model = NULL;
    hearth_model_options o = options_with(HEARTH_RAM_AUTO);
    hth_system_memory system;
    hth_system_memory_read("", &system);
    uint64_t limit = hth_engine_auto_limit(0, false);
    CHECK(limit > 0 && limit < system.total); /* UINT64_MAX: it could not be read */
    CHECK_OK(
        hearth_model_open(test_data(MODEL), &o, &model, err)); /* any machine that runs tests has so much */
}

/* ---- sessions ------------------------------------------------------------------------------------------ */

static uint64_t cache_bytes(const hearth_model *model)
{
    hearth_storage_stats stats = {0};
    CHECK(hearth_model_get_storage(model, &stats));
    return stats.cache_bytes;
}

/* What is read ahead goes when it is there. */
static void wait_for_cache(const hearth_model *model, uint64_t size)
{
    for (int i = 0; i < 1000 && cache_bytes(model) > size; i++) usleep(1000);
    CHECK(cache_bytes(model) <= size);
}

static void close_session(hearth_session **session)
{
    hearth_session_close(*session);
    *session = NULL;
}

TEST(sessions_take_memory_from_weights_and_give_it_back)
{
    leave_enough();
    CLOSED(hearth_model) *model = open_with(test_data(MODEL), 8 * MIB);
    hearth_session *announced = NULL, *second = NULL, *third = NULL;
    hearth_batch *batch = NULL;
    const hearth_session_options small = {.n_ctx = N_CTX, .n_batch = 8, .n_thread = 2},
                                 large = {.n_ctx = 512, .n_batch = 64, .n_thread = 2};
    if (!model) return;
    uint64_t all = cache_bytes(model), size = hearth_session_bytes(model, &large);
    CHECK_OK(hearth_session_open(model, &small, &announced, err));
    CHECK_INT(cache_bytes(model), all);
    CHECK_OK(hearth_session_open(model, &large, &second, err));
    wait_for_cache(model, all + 400000 - size); /* in whole pieces */
    uint64_t left = cache_bytes(model);
    CHECK(left + size + MIB >= all);
    hearth_error error = {0};
    CHECK_INT(hearth_session_open(model, &large, &third, &error), HEARTH_ERROR_MEMORY);
    CHECK(third == NULL && strstr(error.message, " bytes) beside ") &&
          strstr(error.message, "exceeds the limit of "));
    CHECK_INT(hearth_session_fork(second, &third, &error), HEARTH_ERROR_MEMORY);
    CHECK_INT(cache_bytes(model), left);
    CHECK_INT(hearth_batch_open(model, 4096, 2, &batch, &error), HEARTH_ERROR_MEMORY);
    close_session(&second);
    CHECK_INT(cache_bytes(model), all);
    CHECK_OK(hearth_batch_open(model, 64, 2, &batch, err));
    CHECK(cache_bytes(model) < all);
    hearth_batch_close(batch);
    CHECK_INT(cache_bytes(model), all);
    close_session(&announced);
    hth_engine_set_system_memory(NULL);
}

TEST(a_model_in_memory_has_a_limit_too)
{
    CLOSED(hearth_model) *model = open_with(test_data(MODEL), 40 * MIB);
    hearth_session *session = NULL;
    hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 8};
    hearth_error error = {0};
    if (!model) return;
    CHECK_INT(test_model_info(model).n_streamed, 0);
    CHECK_OK(hearth_session_open(model, &o, &session, err));
    close_session(&session);
    o.n_ctx = 100000; /* 300 MB of KV cache */
    CHECK_INT(hearth_session_open(model, &o, &session, &error), HEARTH_ERROR_MEMORY);
    CHECK(strstr(error.message, "exceeds the limit of ") != NULL);
}

/* ---- other needs of the system -------------------------------------------------------------------------- */

static void make_ids(int32_t ids[N_ID])
{
    test_random r = {11};
    for (int i = 0; i < N_ID; i++) ids[i] = (int32_t)(3 + test_random_below(&r, 2000));
}

/* The system leaves less, then more, while tokens are evaluated one by one. */
TEST(weights_give_way_while_tokens_are_evaluated)
{
    const engine_setting setting = {.n_thread = 2, .n_batch = 8, .kv = HEARTH_KV_F16};
    const char *path = test_data(MODEL);
    int32_t ids[N_ID];
    make_ids(ids);
    size_t n_vocab;
    FREED float *expected = engine_logits(path, &setting, ids, N_ID, &n_vocab);
    leave_enough();
    CLOSED(hearth_model) *model = open_with(path, 8 * MIB);
    hearth_session *session = NULL;
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 8, .n_thread = 2};
    if (!model || !expected) return;
    CHECK_OK(hearth_session_open(model, &o, &session, err));
    uint64_t all = cache_bytes(model), resident = 0;
    for (int i = 0; session && i < N_ID; i++) {
        if (i == 8) resident = hth_memory_resident(), need(3 * MIB);
        if (i == 12) need(18 * MIB); /* less than the least: it goes on with that */
        if (i == 20) leave_enough();
        hth_engine_check_memory(model, (uint64_t)i * SECOND);
        if (i == 8) wait_for_cache(model, all - 2 * MIB), CHECK(cache_bytes(model) >= all - 4 * MIB);
        if (i == 8) CHECK(hth_memory_resident() < resident - MIB);
        if (i == 12) wait_for_cache(model, 2 * MIB), CHECK(hth_memory_resident() < resident - 6 * MIB);
        if (i == 8 || i == 12) leave(0);
        if (i == 24) CHECK(cache_bytes(model) < all);
        if (i == 25) CHECK_INT(cache_bytes(model), all); /* 5 s after 20 */
        CHECK_OK(hearth_session_eval(session, &ids[i], 1, err));
        const float *logits = hearth_session_logits(session);
        if (CHECK(logits != NULL))
            CHECK_BYTES(logits, expected + (size_t)i * n_vocab, n_vocab * sizeof *logits);
    }
    close_session(&session);
    hth_engine_set_system_memory(NULL);
}

/* Several sessions, whose experts need slots that another thread takes away. */
typedef struct evaluation {
    const golden *g;
    const hearth_model *model;
    const float *expected;
    _Atomic int *n_running;
    uint32_t n_batch;
} evaluation;

static void *evaluate(void *arg)
{
    const evaluation *e = arg;
    const engine_setting s = {.n_thread = 2, .n_batch = e->n_batch, .kv = HEARTH_KV_F32};
    for (int i = 0; i < 4; i++) {
        FREED float *logits = engine_model_logits(e->model, &s, e->g->ids, e->g->n);
        if (CHECK(logits != NULL)) CHECK_BYTES(logits, e->expected, e->g->n_truth * sizeof *logits);
    }
    --*e->n_running;
    return NULL;
}

TEST(sessions_go_on_while_memory_comes_and_goes)
{
    static const char *const models[] = {"qwen3moe", "llama-gqa"};
    for (int i = 0; i < 2; i++) {
        CLEANUP(golden_close) golden g;
        if (!golden_open_arch(&g, models[i])) continue;
        FREED float *expected = golden_logits(&g, HEARTH_KV_F32);
        hearth_model *model = NULL;
        hearth_model_options o = {.ram = 1, .n_thread = 2, .gpu = {.n_ctx = N_CTX, .kv = HEARTH_KV_F32}};
        _Atomic int n_running = 3;
        pthread_t threads[3];
        evaluation args[3];
        test_random r = {7};
        leave_enough();
        hth_engine_set_store_memory(MIB);
        CHECK_OK(hearth_model_open(g.model, &o, &model, err));
        hth_engine_set_store_memory(UINT64_MAX);
        if (!model || !expected) continue;
        for (uint32_t k = 0; k < 3; k++) {
            args[k] = (evaluation){&g, model, expected, &n_running, 1 + 5 * k};
            pthread_create(&threads[k], NULL, evaluate, &args[k]);
        }
        for (uint64_t k = 0; atomic_load(&n_running) > 0; k++) {
            if (k % 10 == 0) need(test_random_below(&r, 4 << 20));
            if (k % 10 == 2) leave_enough();
            hth_engine_check_memory(model, k * SECOND);
            usleep(100);
        }
        for (int k = 0; k < 3; k++) pthread_join(threads[k], NULL);
        hearth_model_close(model);
    }
    hth_engine_set_system_memory(NULL);
}

/* The thread that looks at the system ends with the model, at once. */
TEST(a_model_that_is_watched_closes)
{
    for (int i = 0; i < 20; i++) {
        CLOSED(hearth_model) *model = NULL;
        hearth_model_options o = options_with(1);
        hth_engine_set_store_memory(0);
        CHECK_OK(hearth_model_open(test_data("golden/arch/mixtral.gguf"), &o, &model, err));
        hth_engine_set_store_memory(UINT64_MAX);
    }
}
