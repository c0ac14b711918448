/* Requests get the same tokens and logits with drafts as without: of their own text and of a model, at any temperature,
 * with penalties and constraints, where a draft reaches the end of a text, a context or the cache. */
#include "scheduler/scheduler_int.h"
#include "support/models/tiny_model.h"
#include "support/models/tiny_requests.h"
#include "support/test.h"

#include <hearth/hearth.h>

enum { N_CTX = 160, MAX_TOKEN = 48, N_PROMPT = 200 };

static gguf_bytes file, other_file;
static hearth_model *model, *other; /* other: of the same vocabulary */

static hearth_model *open_bytes(const gguf_bytes *b, const volatile int *cancel)
{
    hearth_model *m = NULL;
    const hearth_model_options o = {.n_thread = 1, .cancel = cancel};
    CHECK_OK(hearth_model_open_memory(b->data, b->n, "tiny", &o, &m, err));
    return m;
}

static void open_models(const char *architecture)
{
    tiny_model m;
    tiny_begin(&m);
    if (architecture) tiny_become(&m, architecture);
    file = tiny_write(&m);
    tiny_free(&m);
    tiny_begin(&m);
    tiny_become(&m, "qwen2");
    other_file = tiny_write(&m);
    tiny_free(&m);
    model = open_bytes(&file, NULL);
    other = open_bytes(&other_file, NULL);
}

static void close_models(void)
{
    hearth_model_close(model);
    hearth_model_close(other);
    gguf_free(&file);
    gguf_free(&other_file);
}

typedef struct wanted {
    int32_t prompt[N_CTX];
    size_t n, stop_at;
    hearth_sampler_options sampler;
    uint32_t max_token;
    const char *grammar; /* NULL: none */
    bool ends;           /* tokens that end generation do */
} wanted;

/* Text that repeats: a phrase of some tokens, with others between. */
static void make_prompt(test_random *r, wanted *w)
{
    int32_t phrase[10];
    *w = (wanted){
        .sampler = test_sampler_options(), .n = 8 + test_random_below(r, 80), .max_token = MAX_TOKEN};
    for (size_t i = 0; i < 10; i++) phrase[i] = (int32_t)test_random_below(r, TINY_VOCAB);
    for (size_t i = 0; i < w->n; i++)
        w->prompt[i] =
            test_random_below(r, 12) == 0 ? (int32_t)test_random_below(r, TINY_VOCAB) : phrase[i % 10];
    w->sampler.seed = test_random_below(r, 1000);
}

static hearth_constraint *open_grammar(const hearth_model *m, const char *text)
{
    hearth_constraint *c = NULL;
    const hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_GRAMMAR, .text = text, .n = strlen(text)};
    CHECK_OK(hearth_constraint_open(m, &o, &c, err));
    return c;
}

/* Runs requests at once; the statistics are those of the scheduler. */
static hearth_scheduler_stats run(const hearth_model *m, const hearth_scheduler_options *o, const wanted *all,
                                  size_t n, request_outcome *out)
{
    hearth_scheduler *s = NULL;
    hearth_constraint **constraints = calloc(n, sizeof(hearth_constraint *));
    CHECK_OK(hearth_scheduler_open(m, o, &s, err));
    for (size_t i = 0; i < n; i++) {
        const wanted *w = &all[i];
        uint64_t id;
        out[i] = (request_outcome){.stop_at = w->stop_at};
        if (w->grammar) constraints[i] = open_grammar(m, w->grammar);
        const hearth_request q = {.tokens = w->prompt,
                                  .n_token = w->n,
                                  .max_token = w->max_token,
                                  .ignore_end = !w->ends,
                                  .sampler = &w->sampler,
                                  .constraint = constraints[i],
                                  .owner = i, /* each computes its own prompt */
                                  .fn = request_note,
                                  .user = &out[i]};
        CHECK_OK(hearth_scheduler_add(s, &q, &id, err));
    }
    while (test_step(s)) {
    }
    hearth_scheduler_stats stats = test_scheduler_stats(s);
    CHECK_INT(stats.n_running + stats.n_waiting, 0);
    hearth_scheduler_close(s);
    for (size_t i = 0; i < n; i++) hearth_constraint_close(constraints[i]);
    free(constraints);
    return stats;
}

static hearth_scheduler_options options_of(uint32_t n_draft, const hearth_model *draft)
{
    return (hearth_scheduler_options){.n_ctx = N_CTX,
                                      .n_position = 16 * N_CTX,
                                      .n_thread = 1,
                                      .draft = {.n_draft = n_draft, .model = draft}};
}

/* ---- equal tokens --------------------------------------------------------------------------------------- */

/* A session of its own, with drafts. */
static void run_session(const wanted *w, uint32_t n_draft, const hearth_model *draft, request_outcome *o)
{
    const hearth_session_options options = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
    const hearth_draft_options drafts = {.n_draft = n_draft, .model = draft};
    hearth_session *session = NULL;
    hearth_sampler *sampler = NULL;
    hearth_constraint *constraint = w->grammar ? open_grammar(model, w->grammar) : NULL;
    CHECK_OK(hearth_session_open(model, &options, &session, err));
    CHECK_OK(hearth_sampler_open(model, &w->sampler, &sampler, err));
    CHECK_OK(hearth_session_use_drafts(session, &drafts, sampler, err));
    for (size_t i = 0; i < w->n; i++) hearth_sampler_accept(sampler, w->prompt[i]);
    CHECK_OK(hearth_session_eval(session, w->prompt, w->n, err));
    *o = (request_outcome){.last = HEARTH_REQUEST_LENGTH, .n_last = 1};
    for (;;) {
        float logits[TINY_VOCAB];
        hearth_request_event e = {.state = HEARTH_REQUEST_TOKEN, .logits = hearth_session_logits(session)};
        memcpy(logits, e.logits, sizeof logits);
        if (constraint) CHECK_OK(hearth_constraint_mask(constraint, logits, err));
        CHECK_OK(hearth_sampler_sample(sampler, logits, &e.token, err));
        bool ends = (constraint || w->ends) && hearth_token_is_eog(model, e.token);
        if (ends) e.state = HEARTH_REQUEST_END;
        (void)request_note(o, &e);
        if (ends) break;
        hearth_sampler_accept(sampler, e.token);
        if (constraint) CHECK_OK(hearth_constraint_accept(constraint, e.token, err));
        if (o->n == w->max_token) break;
        CHECK_OK(hearth_session_eval(session, &e.token, 1, err));
        CHECK_INT(hearth_session_position(session), w->n + o->n);
    }
    if (o->n_last == 2) o->n_last = 1;
    o->draft = test_draft_stats(session);
    hearth_constraint_close(constraint);
    hearth_sampler_close(sampler);
    hearth_session_close(session);
}

enum { PLAIN, PENALTIES, CONSTRAINT, N_KIND };

static void set_kind(wanted *w, int kind, float temperature)
{
    w->sampler.temperature = temperature;
    w->sampler.repeat_penalty = kind == PENALTIES ? 1.1f : 1.0f;
    w->sampler.frequency_penalty = kind == PENALTIES ? 0.05f : 0.0f;
    w->grammar = kind == CONSTRAINT ? "root ::= (\"abc\" | \"abbc \")+" : NULL;
    w->ends = true;
}

TEST(drafts_change_no_token_and_no_logit)
{
    static const float temperatures[] = {0.0f, 0.8f, 2.0f};
    wanted *all = calloc(N_PROMPT, sizeof *all);
    request_outcome *plain = calloc(N_PROMPT, sizeof *plain), *drafted = calloc(N_PROMPT, sizeof *drafted);
    test_random r = {11};
    uint64_t n_drafted = 0, n_accepted = 0;
    open_models(NULL);
    for (int t = 0; t < 3; t++)
        for (int kind = 0; kind < N_KIND; kind++) {
            const hearth_scheduler_options none = options_of(HEARTH_DRAFT_NONE, NULL),
                                           text = options_of(
                                               t == 1 ? HEARTH_DRAFT_AUTO : (uint32_t)(3 + 4 * kind), NULL);
            for (int i = 0; i < N_PROMPT; i++) {
                make_prompt(&r, &all[i]);
                set_kind(&all[i], kind, temperatures[t]);
            }
            hearth_scheduler_stats stats = run(model, &none, all, N_PROMPT, plain);
            CHECK_INT(stats.draft.n_drafted, 0);
            stats = run(model, &text, all, N_PROMPT, drafted);
            request_expect_same(plain, drafted, N_PROMPT);
            n_drafted += stats.draft.n_drafted, n_accepted += stats.draft.n_accepted;
            for (int i = 0; i < N_PROMPT; i += test_is_long() ? 1 : 8)
                run_session(&all[i], 5, i % 16 == 0 ? other : NULL, &drafted[i]);
            for (int i = 0; i < N_PROMPT; i += test_is_long() ? 1 : 8)
                request_expect_same(&plain[i], &drafted[i], 1);
        }
    printf("     %llu tokens drafted, %llu accepted\n", (unsigned long long)n_drafted,
           (unsigned long long)n_accepted);
    CHECK(n_accepted > 1000 && n_accepted < n_drafted);
    close_models();
    free(all);
    free(plain);
    free(drafted);
}

static const char *const recurrent[] = {"qwen35", "lfm2",      "mamba2",   "jamba",
                                        "plamo2", "falcon-h1", "deepseek4"};

/* Requests share a step and the memory for states of drafts, which are of the text, of another model, or right. */
TEST(drafts_of_models_with_states_change_no_token_and_no_logit)
{
    enum { N = 20 };
    wanted all[N];
    request_outcome plain[N], drafted[N];
    test_random r = {21};
    for (size_t k = 0; k < sizeof recurrent / sizeof *recurrent; k++) {
        uint64_t n_drafted = 0, n_accepted = 0;
        open_models(recurrent[k]);
        const hearth_scheduler_options none = options_of(HEARTH_DRAFT_NONE, NULL);
        const hearth_scheduler_options with[] = {options_of(15, NULL),
                                                 options_of(4, NULL),
                                                 options_of(1, other),
                                                 options_of(7, other),
                                                 options_of(HEARTH_DRAFT_AUTO, NULL),
                                                 options_of(6, model)};
        for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
            hearth_scheduler_options o = with[i];
            o.n_thread = 1 + (uint32_t)i % 3, o.n_running = i % 2 ? 8 : 3;
            for (int j = 0; j < N; j++) {
                make_prompt(&r, &all[j]);
                set_kind(&all[j], j % N_KIND, j % 4 == 0 ? 0.8f : 0.0f);
            }
            (void)run(model, &none, all, N, plain);
            hearth_scheduler_stats stats = run(model, &o, all, N, drafted);
            request_expect_same(plain, drafted, N);
            n_drafted += stats.draft.n_drafted, n_accepted += stats.draft.n_accepted;
            for (int j = (int)i; j < N; j += 7) {
                run_session(&all[j], 1 + (uint32_t)j % 15, j % 2 ? other : NULL, &drafted[j]);
                request_expect_same(&plain[j], &drafted[j], 1);
            }
        }
        printf("     %s: %llu tokens drafted, %llu accepted\n", recurrent[k], (unsigned long long)n_drafted,
               (unsigned long long)n_accepted);
        CHECK(n_accepted > 100 && n_accepted < n_drafted / 2);
        close_models();
    }
}

TEST(a_model_drafts_for_itself_without_a_mistake)
{
    enum { N = 24 };
    wanted all[N];
    request_outcome plain[N], own[N], others[N];
    test_random r = {12};
    open_models(NULL);
    for (int i = 0; i < N; i++) {
        make_prompt(&r, &all[i]);
        set_kind(&all[i], i % 2 ? PENALTIES : PLAIN, i % 3 ? 0.8f : 0.0f);
        all[i].ends = false;
        for (size_t k = 0; k < all[i].n; k++)
            all[i].prompt[k] = (int32_t)((37 * k + 5 * k * k) % TINY_VOCAB); /* no repeats */
        all[i].prompt[0] = i;
    }
    const hearth_scheduler_options none = options_of(HEARTH_DRAFT_NONE, NULL), same = options_of(4, model),
                                   another = options_of(4, other);
    (void)run(model, &none, all, N, plain);
    hearth_scheduler_stats stats = run(model, &same, all, N, own);
    request_expect_same(plain, own, N);
    uint64_t n_drafted = 0;
    for (int i = 0; i < N; i++) n_drafted += own[i].draft.n_drafted;
    CHECK_INT(stats.draft.n_drafted, n_drafted);
    CHECK(n_drafted > 12 * N);
    CHECK(stats.draft.n_accepted > stats.draft.n_drafted * 9 / 10); /* the others follow earlier text */
    stats = run(model, &another, all, N, others);
    request_expect_same(plain, others, N);
    CHECK(stats.draft.n_drafted > 12 * N && stats.draft.n_accepted < stats.draft.n_drafted / 2);
    request_outcome alone;
    run_session(&all[1], 4, model, &alone);
    request_expect_same(&plain[1], &alone, 1);
    CHECK(alone.draft.n_drafted > 12 && alone.draft.n_accepted + 4 >= alone.draft.n_drafted);
    close_models();
}

/* ---- where drafts end ----------------------------------------------------------------------------------- */

/* Ends, limits, stops and contexts at each token of a text that repeats, so that they fall on each token of a draft. */
TEST(a_text_may_end_at_each_token_of_a_draft)
{
    enum { N = 32 };
    wanted all[N];
    request_outcome plain[N], drafted[N];
    test_random r = {13};
    open_models(NULL);
    for (int kind = 0; kind < 4; kind++) {
        wanted base;
        make_prompt(&r, &base);
        for (int i = 0; i < N; i++) {
            all[i] = base;
            all[i].sampler.temperature = 0.0f;
            if (kind == 0) all[i].max_token = (uint32_t)i + 1;
            if (kind == 1) all[i].stop_at = (size_t)i + 1;
            if (kind == 2) all[i].n = N_CTX - 1 - (size_t)i, all[i].max_token = 0;
            if (kind == 3) all[i].grammar = "root ::= \"abcab\" (\"abcab\" \"abcab\"?)*";
            if (kind == 3) all[i].sampler.temperature = 2.0f, all[i].sampler.seed = (uint64_t)i;
            for (size_t k = 0; kind == 3 && k < all[i].n; k++)
                all[i].prompt[k] = k % 2 ? 263 : 266; /* "abc", "ab" */
        }
        if (kind == 2)
            for (int i = 0; i < N; i++)
                for (size_t k = 0; k < N_CTX; k++) all[i].prompt[k] = (int32_t)(k % 7);
        const hearth_scheduler_options none = options_of(HEARTH_DRAFT_NONE, NULL),
                                       text = options_of(15, NULL), by_model = options_of(7, model);
        (void)run(model, &none, all, N, plain);
        hearth_scheduler_stats stats = run(model, &text, all, N, drafted);
        request_expect_same(plain, drafted, N);
        CHECK(stats.draft.n_drafted > 0);
        (void)run(model, &by_model, all, N, drafted);
        request_expect_same(plain, drafted, N);
        int n_end = 0;
        for (int i = 0; i < N; i++) n_end += plain[i].last == HEARTH_REQUEST_END;
        CHECK(kind != 3 || n_end > N / 4);
    }
    close_models();
}

/* A second turn after a request that ended in a draft finds the tokens before the end, and no others. */
static void take_two_turns(const char *architecture)
{
    test_random r = {14};
    wanted w;
    request_outcome plain[2], drafted[2];
    open_models(architecture);
    for (int with = 0; with < 2; with++) {
        request_outcome *o = with ? drafted : plain;
        const hearth_scheduler_options options = options_of(with ? 15 : HEARTH_DRAFT_NONE, NULL);
        hearth_scheduler *s = NULL;
        uint64_t id;
        CHECK_OK(hearth_scheduler_open(model, &options, &s, err));
        r = (test_random){14};
        make_prompt(&r, &w);
        w.sampler.temperature = 0.0f;
        for (int turn = 0; turn < 2; turn++) {
            o[turn] = (request_outcome){.stop_at = 30};
            const hearth_request q = {.tokens = w.prompt,
                                      .n_token = w.n,
                                      .sampler = &w.sampler,
                                      .ignore_end = true,
                                      .fn = request_note,
                                      .user = &o[turn]};
            CHECK_OK(hearth_scheduler_add(s, &q, &id, err));
            while (test_step(s)) {
            }
            memcpy(w.prompt + w.n, o[turn].tokens, o[turn].n * sizeof *w.prompt);
            w.n += o[turn].n;
        }
        CHECK_INT(test_scheduler_stats(s).n_cached,
                  w.n - 31); /* the last token of the first turn was not evaluated */
        hearth_scheduler_close(s);
    }
    request_expect_same(plain, drafted, 2);
    close_models();
}

TEST(what_is_kept_of_a_request_ends_where_its_text_does)
{
    take_two_turns(NULL);
    for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++) take_two_turns(recurrent[i]);
}

/* A cache with few pages has no room for drafts, but for texts. */
static void run_with_few_pages(const char *architecture)
{
    enum { N = 12 };
    wanted all[N];
    request_outcome plain[N], drafted[N];
    test_random r = {15};
    open_models(architecture);
    for (int i = 0; i < N; i++) {
        make_prompt(&r, &all[i]);
        all[i].sampler.temperature = 0.0f;
    }
    hearth_scheduler_options none = options_of(HEARTH_DRAFT_NONE, NULL), text = options_of(15, NULL),
                             by_model = options_of(6, other);
    none.n_position = text.n_position = by_model.n_position = N_CTX;
    none.n_running = text.n_running = by_model.n_running = 6;
    const hearth_scheduler_stats before = run(model, &none, all, N, plain);
    hearth_scheduler_stats stats = run(model, &text, all, N, drafted);
    request_expect_same(plain, drafted, N);
    CHECK(before.n_preempted > 0 && stats.n_preempted <= before.n_preempted + N);
    (void)run(model, &by_model, all, N, drafted);
    request_expect_same(plain, drafted, N);
    close_models();
}

TEST(drafts_take_no_pages_that_texts_need)
{
    run_with_few_pages(NULL);
    run_with_few_pages("falcon-h1");
    run_with_few_pages("deepseek4");
}

/* ---- cancelled ------------------------------------------------------------------------------------------ */

static volatile int cancel;

typedef struct interrupted {
    request_outcome o;
    int n_step, at;
} interrupted;

static uint32_t interrupt(void *user, uint32_t room)
{
    interrupted *i = user;
    cancel = ++i->n_step == i->at;
    return room;
}

static void cancel_steps(const char *architecture)
{
    test_random r = {16};
    wanted w;
    request_outcome plain;
    open_models(architecture);
    make_prompt(&r, &w);
    w.sampler.temperature = 0.0f;
    const hearth_scheduler_options none = options_of(HEARTH_DRAFT_NONE, NULL);
    (void)run(model, &none, &w, 1, &plain);
    for (int by_model = 0; by_model < 2; by_model++)
        for (int at = 2; at < 8; at++) {
            interrupted i = {.at = at};
            uint64_t id;
            hearth_scheduler *s = NULL;
            hearth_model *stopped = open_bytes(&file, &cancel), *drafting = open_bytes(&file, &cancel);
            const hearth_scheduler_options o = options_of(5, by_model ? drafting : NULL);
            CHECK_OK(hearth_scheduler_open(stopped, &o, &s, err));
            hth_scheduler_set_part(s, interrupt, &i);
            const hearth_request q = {.tokens = w.prompt,
                                      .n_token = w.n,
                                      .max_token = w.max_token,
                                      .ignore_end = true,
                                      .sampler = &w.sampler,
                                      .fn = request_note,
                                      .user = &i};
            CHECK_OK(hearth_scheduler_add(s, &q, &id, err));
            for (bool more = true; more;)
                if (hearth_scheduler_step(s, &more, NULL) == HEARTH_ERROR_CANCELLED) cancel = 0;
            CHECK(i.n_step > at);
            request_expect_same(&plain, &i.o, 1);
            hearth_scheduler_close(s);
            hearth_model_close(drafting);
            hearth_model_close(stopped);
        }
    close_models();
}

TEST(a_step_with_a_draft_that_is_cancelled_is_evaluated_again)
{
    cancel_steps(NULL);
    for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++) cancel_steps(recurrent[i]);
}

/* ---- refused -------------------------------------------------------------------------------------------- */

TEST(a_model_of_another_vocabulary_is_refused_by_name)
{
    static const char word[] = "\3\0\0\0\0\0\0\0abc"; /* the last one of the vocabulary */
    hearth_error why;
    hearth_scheduler *s;
    open_models(NULL);
    char *found = memmem(other_file.data, other_file.n, word, sizeof word - 1);
    if (!CHECK(found != NULL)) return;
    hearth_model_close(other);
    memcpy(found + 8, "xyz", 3);
    hearth_model *draft = other = open_bytes(&other_file, NULL);
    hearth_scheduler_options o = options_of(3, draft);
    CHECK_INT(hearth_scheduler_open(model, &o, &s, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(strstr(why.message, "token 266 is 'xyz', not 'abc'"));
    o = options_of(16, NULL);
    CHECK_INT(hearth_scheduler_open(model, &o, &s, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(strstr(why.message, "at most 15"));
    close_models();
}
