/* hearth_generate: the tokens of a loop of its parts, whatever the session had before; where a text ends, what is shown of
 * it, and what the session has then. A scheduler gives the same texts. */
#include "support/faults.h"
#include "support/test.h"

#include <math.h>

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"
enum { N_CTX = 96, N_TOKEN = 40, MAX_TEXT = 4096 };

static hearth_model *model;

static bool open_model(void)
{
    CHECK_OK(hearth_model_open(STORYTELLER, NULL, &model, err));
    return model != NULL;
}

static void close_model(void)
{
    hearth_model_close(model);
    model = NULL;
}

__attribute__((constructor)) static void set_fixture(void)
{
    test_before_each = open_model, test_after_each = close_model;
}

/* What a call showed. */
typedef struct shown {
    char text[MAX_TEXT];
    int32_t tokens[MAX_TEXT];
    size_t n_text, n_token, most; /* most: tokens after which the function gives false; 0: never */
    uint32_t n_rest;              /* calls without a token */
} shown;

static bool show(void *user, const hearth_generated *part)
{
    shown *s = user;
    CHECK(s->n_text + part->n < MAX_TEXT && s->n_token < MAX_TEXT);
    CHECK((part->token < 0) == (part->logits == NULL));
    CHECK(!part->is_end || (part->n == 0 && hearth_token_is_eog(model, part->token)));
    memcpy(s->text + s->n_text, part->text, part->n);
    s->n_text += part->n;
    s->text[s->n_text] = '\0';
    if (part->token >= 0) s->tokens[s->n_token++] = part->token;
    else s->n_rest++;
    return s->n_token != s->most;
}

typedef struct prompt {
    int32_t *ids;
    size_t n;
} prompt;

static prompt tokens_of(const char *text)
{
    prompt p = {NULL, 0};
    CHECK_OK(hearth_tokenize(model, text, strlen(text), HEARTH_ADD_SPECIAL, &p.ids, &p.n, err));
    return p;
}

static hearth_session *open_session(uint32_t n_ctx)
{
    const hearth_session_options o = {.n_ctx = n_ctx, .n_thread = 2};
    return OPENED(hearth_session, model, &o);
}

static hearth_sampler *open_sampler(uint64_t seed)
{
    const hearth_sampler_options o = {.temperature = 0.9f, .top_k = 40, .repeat_penalty = 1.1f, .seed = seed};
    return OPENED(hearth_sampler, model, &o);
}

/* The same by the functions that programs had before. */
static shown loop(const prompt *p, uint64_t seed, size_t n_token)
{
    shown out = {.n_text = 0};
    CLOSED(hearth_session) *s = open_session(N_CTX);
    CLOSED(hearth_sampler) *sampler = open_sampler(seed);
    CLOSED(hearth_detokenizer) *d = NULL;
    const char *text;
    size_t n;
    CHECK_OK(hearth_detokenizer_open(model, true, false, &d, err));
    for (size_t i = 0; i < p->n; i++) {
        hearth_sampler_accept(sampler, p->ids[i]);
        CHECK_OK(hearth_detokenizer_push(d, p->ids[i], &text, &n, err));
    }
    CHECK_OK(hearth_session_eval(s, p->ids, p->n, err));
    while (out.n_token < n_token) {
        int32_t id = -1;
        CHECK_OK(hearth_sampler_sample(sampler, hearth_session_logits(s), &id, err));
        out.tokens[out.n_token++] = id;
        hearth_sampler_accept(sampler, id);
        if (hearth_token_is_eog(model, id)) break;
        CHECK_OK(hearth_detokenizer_push(d, id, &text, &n, err));
        memcpy(out.text + out.n_text, text, n);
        out.n_text += n;
        CHECK_OK(hearth_session_eval(s, &id, 1, err));
    }
    out.text[out.n_text] = '\0';
    return out;
}

static hearth_generate_options options_of(const prompt *p, hearth_sampler *sampler, shown *out)
{
    *out = (shown){.most = out->most};
    return (hearth_generate_options){.tokens = p->ids,
                                     .n_token = p->n,
                                     .max_token = N_TOKEN,
                                     .sampler = sampler,
                                     .fn = show,
                                     .user = out};
}

TEST(tokens_are_those_of_a_loop_whatever_the_session_had)
{
    static const char *const before[] = {NULL, "Once upon a time", "Once upon a time there was", "The dog"};
    prompt p = tokens_of("Once upon a time");
    const shown expected = loop(&p, 7, N_TOKEN);
    for (int i = 0; i < 4; i++) {
        static shown out;
        CLOSED(hearth_session) *s = open_session(N_CTX);
        CLOSED(hearth_sampler) *sampler = open_sampler(7);
        hearth_usage usage = {.size = sizeof usage};
        prompt had = before[i] ? tokens_of(before[i]) : (prompt){NULL, 0};
        if (had.n > 0) CHECK_OK(hearth_session_eval(s, had.ids, had.n, err));
        hearth_sampler_accept(sampler, 5); /* of another text: it counts no more */
        const hearth_generate_options o = options_of(&p, sampler, &out);
        CHECK_OK(hearth_generate(s, &o, &usage, err));
        CHECK_INT(out.n_token, N_TOKEN);
        CHECK_BYTES(expected.tokens, out.tokens, N_TOKEN * sizeof *out.tokens);
        CHECK_TEXT(out.text, expected.text);
        CHECK_INT(usage.end, HEARTH_END_LENGTH);
        CHECK_INT(usage.n_prompt, p.n);
        CHECK_INT(usage.n_cached, i == 1 ? p.n : i == 2 ? p.n - 1 : i == 3 ? 1 : 0);
        CHECK_INT(usage.n_evaluated, p.n - usage.n_cached);
        CHECK_INT(usage.n_generated, N_TOKEN);
        CHECK_INT(hearth_session_position(s), p.n + N_TOKEN);
        CHECK_BYTES(hearth_session_tokens(s) + p.n, out.tokens, N_TOKEN * sizeof *out.tokens);
        hearth_free(had.ids);
    }
    hearth_free(p.ids);
}

/* With a stop text at each place of the text, also across tokens: what is shown is the text before it. */
TEST(a_text_ends_before_a_stop_text)
{
    prompt p = tokens_of("Once upon a time");
    const shown whole = loop(&p, 7, N_TOKEN);
    CLOSED(hearth_session) *s = open_session(N_CTX);
    for (size_t at = 0; at + 9 < whole.n_text; at += 5) {
        static shown out;
        char stop[10];
        snprintf(stop, sizeof stop, "%.9s", whole.text + at);
        const char *const stops[] = {"nowhere in it", stop, "a"};
        const size_t first = (size_t)(strstr(whole.text, stop) - whole.text);
        CLOSED(hearth_sampler) *sampler = open_sampler(7);
        hearth_usage usage = {.size = sizeof usage};
        hearth_generate_options o = options_of(&p, sampler, &out);
        o.stops = stops, o.n_stop = 2;
        CHECK_OK(hearth_generate(s, &o, &usage, err));
        CHECK_INT(usage.end, HEARTH_END_STOP_TEXT);
        CHECK_INT(usage.i_stop, 1);
        CHECK_INT(out.n_text, first);
        CHECK_BYTES(out.text, whole.text, first);
        CHECK_INT(out.n_token, usage.n_generated);
        CHECK_INT(hearth_session_position(s), p.n + out.n_token - 1); /* the one that completed it is not evaluated */
    }
    hearth_free(p.ids);
}

/* The end of a text may be the beginning of a stop text that does not come. */
TEST(what_was_kept_back_comes_at_the_end)
{
    prompt p = tokens_of("Once upon a time");
    static shown out;
    const shown whole = loop(&p, 7, N_TOKEN);
    char stop[64];
    snprintf(stop, sizeof stop, "%s and more", whole.text + whole.n_text - 12);
    const char *const stops[] = {stop};
    CLOSED(hearth_session) *s = open_session(N_CTX);
    CLOSED(hearth_sampler) *sampler = open_sampler(7);
    hearth_usage usage = {.size = sizeof usage};
    hearth_generate_options o = options_of(&p, sampler, &out);
    o.stops = stops, o.n_stop = 1;
    CHECK_OK(hearth_generate(s, &o, &usage, err));
    CHECK_INT(usage.end, HEARTH_END_LENGTH);
    CHECK_TEXT(out.text, whole.text);
    CHECK_INT(out.n_rest, 1);
    hearth_free(p.ids);
}

TEST(a_text_goes_on_where_another_call_ended)
{
    prompt p = tokens_of("Once upon a time"), all = {malloc(N_CTX * sizeof *all.ids), p.n};
    const shown expected = loop(&p, 7, N_TOKEN);
    static shown out;
    CLOSED(hearth_session) *s = open_session(N_CTX);
    CLOSED(hearth_sampler) *sampler = open_sampler(7);
    char text[MAX_TEXT] = "";
    memcpy(all.ids, p.ids, p.n * sizeof *p.ids);
    out.most = 7; /* the function ends each call */
    for (size_t n = 0; n < N_TOKEN; n += out.n_token) {
        hearth_usage usage = {.size = sizeof usage};
        hearth_generate_options o = options_of(&all, sampler, &out);
        o.max_token = N_TOKEN - n;
        CHECK_OK(hearth_generate(s, &o, &usage, err));
        CHECK_INT(usage.end, n + 7 <= N_TOKEN ? HEARTH_END_FUNCTION : HEARTH_END_LENGTH);
        CHECK_INT(usage.n_cached, n == 0 ? 0 : all.n - 1);
        memcpy(all.ids + all.n, out.tokens, out.n_token * sizeof *out.tokens);
        all.n += out.n_token;
        strcat(text, out.text);
        if (!CHECK(out.n_token > 0)) break;
    }
    CHECK_BYTES(all.ids + p.n, expected.tokens, N_TOKEN * sizeof *p.ids);
    CHECK_TEXT(text, expected.text);
    free(all.ids);
    hearth_free(p.ids);
}

TEST(the_context_ends_a_text_and_the_prompt_alone_generates_none)
{
    prompt p = tokens_of("Once upon a time");
    static shown out;
    CLOSED(hearth_session) *s = open_session(32);
    hearth_usage usage = {.size = sizeof usage};
    hearth_generate_options o = options_of(&p, NULL, &out);
    o.max_token = 0, o.prompt_only = true;
    CHECK_OK(hearth_generate(s, &o, &usage, err));
    CHECK_INT(usage.end, HEARTH_END_LENGTH);
    CHECK(out.n_token == 0 && hearth_session_logits(s) && hearth_session_position(s) == p.n);
    o.prompt_only = false;
    CHECK_OK(hearth_generate(s, &o, &usage, err));
    CHECK_INT(usage.end, HEARTH_END_CONTEXT);
    CHECK_INT(usage.n_cached, p.n);
    CHECK_INT(out.n_token, 32 - p.n + 1);
    CHECK_INT(hearth_session_position(s), 32);
    int32_t too_many[33] = {0};
    for (int i = 0; i < 33; i++) too_many[i] = p.ids[0];
    o.tokens = too_many, o.n_token = 33;
    CHECK_FAILS(hearth_generate(s, &o, &usage, err), HEARTH_ERROR_CONTEXT, "the prompt has 33 tokens, and the context has 32");
    CHECK(usage.end == HEARTH_END_NONE && hearth_session_position(s) == 32);
    hearth_free(p.ids);
}

static bool cancel_soon(void *user, uint64_t done, uint64_t total)
{
    CHECK(done > 0 && done <= total);
    return ++*(int *)user < 2;
}

TEST(progress_cancels_a_prompt_and_keeps_what_was_evaluated)
{
    prompt p = tokens_of("Once upon a time there was a little dog who liked to play in the garden with his friend, a cat, and "
                         "they ran and ran until it was dark, and then they went home and slept in one bed.");
    static shown out;
    CLOSED(hearth_session) *s = open_session(N_CTX);
    hearth_usage usage = {.size = sizeof usage};
    int n_call = 0;
    hearth_generate_options o = options_of(&p, NULL, &out);
    o.progress = cancel_soon, o.progress_user = &n_call;
    n_call = 1;
    CHECK(p.n > 32);
    CHECK_FAILS(hearth_generate(s, &o, &usage, err), HEARTH_ERROR_CANCELLED, "progress");
    CHECK_INT(usage.n_evaluated, 32);
    CHECK_INT(hearth_session_position(s), 32);
    o.progress = NULL;
    CHECK_OK(hearth_generate(s, &o, &usage, err));
    CHECK_INT(usage.n_cached, 32);
    hearth_free(p.ids);
}

TEST(a_constraint_completes_a_text)
{
    static const char *const choices[] = {" and so on"};
    prompt p = tokens_of("Once upon a time");
    static shown out;
    CLOSED(hearth_session) *s = open_session(N_CTX);
    CLOSED(hearth_constraint) *c = NULL;
    hearth_usage usage = {.size = sizeof usage};
    const hearth_constraint_options co = {.kind = HEARTH_CONSTRAINT_CHOICES, .choices = choices, .n_choice = 1};
    CHECK_OK(hearth_constraint_open(model, &co, &c, err));
    hearth_generate_options o = options_of(&p, NULL, &out);
    o.constraint = c;
    CHECK_OK(hearth_generate(s, &o, &usage, err));
    CHECK_INT(usage.end, HEARTH_END_COMPLETE);
    CHECK_TEXT(out.text, " and so on");
    hearth_free(p.ids);
}

/* Whose end is the most likely token at once. */
static hearth_sampler *open_ending_sampler(void)
{
    const hearth_logit_bias bias = {.id = hearth_token_eos(model), .bias = 1000.0f};
    return OPENED(hearth_sampler, model, (&(hearth_sampler_options){.bias = &bias, .n_bias = 1}));
}

TEST(a_token_ends_a_text_unless_it_is_ignored)
{
    prompt p = tokens_of("Once upon a time");
    for (int i = 0; i < 3; i++) {
        static shown out;
        CLOSED(hearth_session) *s = open_session(N_CTX);
        CLOSED(hearth_sampler) *sampler = open_ending_sampler();
        hearth_usage usage = {.size = sizeof usage};
        out.most = i == 1 ? 1 : 0; /* the function gives false for the token that ends it */
        hearth_generate_options o = options_of(&p, sampler, &out);
        o.max_token = 3, o.ignore_end = i == 2;
        CHECK_OK(hearth_generate(s, &o, &usage, err));
        CHECK_INT(usage.end, i == 0 ? HEARTH_END_TOKEN : i == 1 ? HEARTH_END_FUNCTION : HEARTH_END_LENGTH);
        CHECK_INT(usage.n_generated, i == 2 ? 3 : 1);
        CHECK_INT(out.n_token, usage.n_generated);
        CHECK_INT(out.tokens[0], hearth_token_eos(model));
        CHECK_INT(out.n_text, 0);
        CHECK_INT(hearth_session_position(s), p.n + (i == 2 ? 3 : 0));
        out.most = 0;
    }
    hearth_free(p.ids);
}

/* A text of its own has no space before it, and control tokens have their names if they are asked for. */
TEST(texts_begin_and_show_tokens_as_asked_for)
{
    prompt p = tokens_of("Once upon a time");
    static shown goes_on, own, special;
    CLOSED(hearth_session) *s = open_session(N_CTX);
    hearth_generate_options o = options_of(&p, NULL, &goes_on);
    CHECK_OK(hearth_generate(s, &o, NULL, err));
    o = options_of(&p, NULL, &own);
    o.at_start = true;
    prompt dog = tokens_of("The dog"); /* the most likely token behind it begins with a space */
    o.tokens = dog.ids, o.n_token = dog.n;
    CHECK_OK(hearth_generate(s, &o, NULL, err));
    CHECK(own.n_text > 0 && own.text[0] != ' ');
    o = options_of(&dog, NULL, &goes_on);
    CHECK_OK(hearth_generate(s, &o, NULL, err));
    CHECK_INT(goes_on.text[0], ' ');
    CHECK_TEXT(goes_on.text + 1, own.text);
    CLOSED(hearth_sampler) *sampler = open_ending_sampler();
    o = options_of(&p, sampler, &special);
    o.max_token = 2, o.ignore_end = true, o.show_special = true;
    CHECK_OK(hearth_generate(s, &o, NULL, err));
    CHECK_TEXT(special.text, "</s></s>");
    hearth_free(p.ids);
    hearth_free(dog.ids);
}

typedef struct canceller {
    hearth_session *session;
    size_t n_token;
} canceller;

static bool cancel_at_third(void *user, const hearth_generated *part)
{
    canceller *c = user;
    if (part->token >= 0 && ++c->n_token == 3) hearth_session_cancel(c->session);
    return true;
}

TEST(a_cancelled_text_has_what_was_given_and_goes_on)
{
    prompt p = tokens_of("Once upon a time"), all = {malloc(N_CTX * sizeof *all.ids), p.n};
    const shown expected = loop(&p, 7, N_TOKEN);
    static shown out;
    CLOSED(hearth_session) *s = open_session(N_CTX);
    CLOSED(hearth_sampler) *sampler = open_sampler(7);
    hearth_usage usage = {.size = sizeof usage};
    canceller c = {s, 0};
    hearth_generate_options o = options_of(&p, sampler, &out);
    o.fn = cancel_at_third, o.user = &c;
    CHECK_INT(hearth_generate(s, &o, &usage, NULL), HEARTH_ERROR_CANCELLED);
    CHECK(usage.end == HEARTH_END_NONE && usage.n_generated == 3 && usage.n_evaluated == p.n);
    CHECK_INT(hearth_session_position(s), p.n + 2);
    c.n_token = 2; /* the next token is the last one: it is too late */
    o.max_token = 0, o.ignore_end = false;
    CLOSED(hearth_sampler) *ending = open_ending_sampler();
    o.sampler = ending;
    CHECK_OK(hearth_generate(s, &o, &usage, err));
    CHECK_OK(hearth_session_eval(s, p.ids, 1, err)); /* which it does not end */
    memcpy(all.ids, p.ids, p.n * sizeof *p.ids);
    memcpy(all.ids + p.n, expected.tokens, 3 * sizeof *p.ids);
    all.n += 3;
    o = options_of(&all, sampler, &out);
    o.max_token = N_TOKEN - 3;
    CHECK_OK(hearth_generate(s, &o, &usage, err));
    CHECK_BYTES(out.tokens, expected.tokens + 3, (N_TOKEN - 3) * sizeof *out.tokens);
    CHECK_INT(usage.n_cached, p.n);
    free(all.ids);
    hearth_free(p.ids);
}

TEST(drafts_change_no_text)
{
    prompt p = tokens_of("Once upon a time there was a dog. Once upon a time there was a dog. Once upon a time");
    static shown out, expected;
    CLOSED(hearth_session) *s = open_session(N_CTX), *plain = open_session(N_CTX);
    hearth_draft_stats drafted = {0};
    CHECK_OK(hearth_session_use_drafts(s, &(hearth_draft_options){.n_draft = 4}, NULL, err));
    hearth_generate_options o = options_of(&p, NULL, &expected);
    CHECK_OK(hearth_generate(plain, &o, NULL, err));
    o = options_of(&p, NULL, &out);
    CHECK_OK(hearth_generate(s, &o, NULL, err));
    CHECK_INT(hearth_session_get_draft_stats(s, &drafted), HEARTH_OK);
    CHECK(drafted.n_drafted > 0);
    CHECK_TEXT(out.text, expected.text);
    CHECK_BYTES(out.tokens, expected.tokens, N_TOKEN * sizeof *out.tokens);
    hearth_free(p.ids);
}

static bool change_session(void *user, const hearth_generated *part)
{
    hearth_session *s = user;
    hearth_error err;
    CHECK_INT(hearth_session_truncate(s, 0, &err), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_session_eval(s, &part->token, 1, &err), HEARTH_ERROR_ARGUMENT);
    CHECK(hearth_session_position(s) > 0);
    return false;
}

TEST(functions_of_the_session_within_the_function_are_refused)
{
    prompt p = tokens_of("Once upon a time");
    CLOSED(hearth_session) *s = open_session(N_CTX);
    const hearth_generate_options o = {.tokens = p.ids, .n_token = p.n, .fn = change_session, .user = s};
    CHECK_OK(hearth_generate(s, &o, NULL, err));
    CHECK_INT(hearth_session_position(s), p.n);
    hearth_free(p.ids);
}

/* ---- samplers ------------------------------------------------------------------------------------------------- */

static void ban_one(void *user, float *logits, size_t n)
{
    CHECK(n > 0);
    logits[*(int32_t *)user] = -INFINITY;
}

TEST(a_stage_of_the_program_changes_what_is_drawn)
{
    prompt p = tokens_of("Once upon a time");
    static shown free_text, out;
    CLOSED(hearth_session) *s = open_session(N_CTX);
    hearth_generate_options o = options_of(&p, NULL, &free_text);
    CHECK_OK(hearth_generate(s, &o, NULL, err));
    int32_t banned = free_text.tokens[3];
    CLOSED(hearth_sampler) *sampler =
        OPENED(hearth_sampler, model, (&(hearth_sampler_options){.fn = ban_one, .user = &banned}));
    o = options_of(&p, sampler, &out);
    CHECK_OK(hearth_generate(s, &o, NULL, err));
    CHECK_BYTES(out.tokens, free_text.tokens, 3 * sizeof *out.tokens);
    for (size_t i = 0; i < out.n_token; i++) CHECK(out.tokens[i] != banned);
    hearth_free(p.ids);
}

static void spoil(void *user, float *logits, size_t n) { logits[n - 1] = *(float *)user; }

TEST(a_stage_that_spoils_logits_is_found)
{
    CLOSED(hearth_session) *s = open_session(N_CTX);
    prompt p = tokens_of("Once");
    for (int i = 0; i < 2; i++) {
        float wrong = i == 0 ? NAN : INFINITY;
        CLOSED(hearth_sampler) *sampler =
            OPENED(hearth_sampler, model, (&(hearth_sampler_options){.fn = spoil, .user = &wrong}));
        const hearth_generate_options o = {.tokens = p.ids, .n_token = p.n, .sampler = sampler};
        CHECK_FAILS(hearth_generate(s, &o, NULL, err), HEARTH_ERROR_NUMERIC, "after hearth_sampler_options.fn");
    }
    hearth_free(p.ids);
}

/* n tokens of the same logits. */
static void draw(hearth_sampler *sampler, const float *logits, int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_OK(hearth_sampler_sample(sampler, logits, &ids[i], err));
        hearth_sampler_accept(sampler, ids[i]);
    }
}

TEST(clones_draw_alike_and_seeds_begin_again)
{
    enum { N = 24 };
    prompt p = tokens_of("Once upon a time");
    int32_t a[N], b[N], other[N];
    CLOSED(hearth_session) *s = open_session(N_CTX);
    CHECK_OK(hearth_session_eval(s, p.ids, p.n, err));
    const float *logits = hearth_session_logits(s);
    CLOSED(hearth_sampler) *one = open_sampler(3);
    CLOSED(hearth_sampler) *clone = NULL;
    draw(one, logits, a, 5);
    CHECK_OK(hearth_sampler_clone(one, &clone, err));
    draw(one, logits, a, N);
    draw(clone, logits, b, N);
    CHECK_BYTES(a, b, sizeof a);
    CLOSED(hearth_sampler) *fresh = open_sampler(11);
    hearth_sampler_reseed(one, 11);
    draw(one, logits, other, N);
    CHECK(memcmp(a, other, sizeof a) != 0);
    hearth_sampler_reseed(one, 11); /* without a history it is one that was opened with the seed */
    hearth_sampler_forget(one);
    draw(one, logits, a, N);
    draw(fresh, logits, b, N);
    CHECK_BYTES(a, b, sizeof a);
    hearth_free(p.ids);
}

/* ---- requests of a scheduler ------------------------------------------------------------------------------------ */

typedef struct request_shown {
    shown shown;
    hearth_request_state last;
    uint64_t i_stop;
} request_shown;

static bool note(void *user, const hearth_request_event *e)
{
    request_shown *r = user;
    const hearth_generated part = {.token = e->state == HEARTH_REQUEST_TOKEN ? e->token : -1,
                                   .text = e->text,
                                   .n = e->n_text,
                                   .logits = e->state == HEARTH_REQUEST_TOKEN ? e->logits : NULL};
    r->last = e->state, r->i_stop = e->i_stop;
    return show(&r->shown, &part);
}

TEST(requests_have_texts_and_stop_texts)
{
    prompt p = tokens_of("Once upon a time");
    const shown whole = loop(&p, 7, N_TOKEN);
    char stop[10];
    snprintf(stop, sizeof stop, "%.9s", whole.text + whole.n_text / 2);
    const char *const stops[] = {"nowhere in it", stop};
    const size_t first = (size_t)(strstr(whole.text, stop) - whole.text);
    static request_shown r[3];
    const hearth_sampler_options sampling = {.temperature = 0.9f, .top_k = 40, .repeat_penalty = 1.1f, .seed = 7};
    CLOSED(hearth_scheduler) *scheduler = OPENED(hearth_scheduler, model, NULL);
    for (size_t i = 0; i < 3; i++) {
        uint64_t id;
        const hearth_request q = {.tokens = p.ids,
                                  .n_token = p.n,
                                  .max_token = N_TOKEN,
                                  .sampler = &sampling,
                                  .fn = note,
                                  .user = &r[i],
                                  .with_text = i == 0,
                                  .stops = stops,
                                  .n_stop = i == 1 ? 2 : 0};
        CHECK_OK(hearth_scheduler_add(scheduler, &q, &id, err));
    }
    for (bool more = true; more;) {
        hearth_error why;
        if (!CHECK(hearth_scheduler_step(scheduler, &more, &why) == HEARTH_OK)) break;
    }
    CHECK_TEXT(r[0].shown.text, whole.text);
    CHECK_INT(r[0].last, HEARTH_REQUEST_LENGTH);
    CHECK_INT(r[1].last, HEARTH_REQUEST_STOP_TEXT);
    CHECK_INT(r[1].i_stop, 1);
    CHECK_INT(r[1].shown.n_text, first);
    CHECK_BYTES(r[1].shown.text, whole.text, first);
    CHECK_BYTES(r[1].shown.tokens, whole.tokens, r[1].shown.n_token * sizeof *whole.tokens);
    CHECK_INT(r[2].shown.n_text, 0); /* none was asked for */
    CHECK_BYTES(r[2].shown.tokens, whole.tokens, N_TOKEN * sizeof *whole.tokens);
    hearth_free(p.ids);
}

TEST(stop_texts_are_checked)
{
    static const char *const empty[] = {"a", ""}, *const null[] = {NULL};
    prompt p = tokens_of("Once");
    CLOSED(hearth_session) *s = open_session(N_CTX);
    CLOSED(hearth_scheduler) *scheduler = OPENED(hearth_scheduler, model, NULL);
    uint64_t id;
    hearth_generate_options o = {.tokens = p.ids, .n_token = p.n, .stops = empty, .n_stop = 2};
    CHECK_FAILS(hearth_generate(s, &o, NULL, err), HEARTH_ERROR_ARGUMENT, "stops[1] is empty");
    CHECK_INT(hearth_session_position(s), 0);
    o.stops = null, o.n_stop = 1;
    CHECK_FAILS(hearth_generate(s, &o, NULL, err), HEARTH_ERROR_ARGUMENT, "stops[0] is NULL");
    o.stops = NULL;
    CHECK_FAILS(hearth_generate(s, &o, NULL, err), HEARTH_ERROR_ARGUMENT, "stops is NULL");
    request_shown none = {.last = 0};
    const hearth_request q = {.tokens = p.ids, .n_token = p.n, .fn = note, .user = &none, .stops = empty, .n_stop = 2};
    CHECK_FAILS(hearth_scheduler_add(scheduler, &q, &id, err), HEARTH_ERROR_ARGUMENT, "hearth_request.stops[1]");
    hearth_free(p.ids);
}

/* ---- faults ---------------------------------------------------------------------------------------------------- */

static hearth_status generate_task(const fault_paths *p, hearth_error *err)
{
    static const int32_t ids[] = {1, 60, 200};
    static const char *const stops[] = {"a stop text that never comes"}, *const choices[] = {"abc"};
    hearth_model *m = NULL;
    hearth_session *s = NULL;
    hearth_constraint *c = NULL;
    const hearth_constraint_options co = {.kind = HEARTH_CONSTRAINT_CHOICES, .choices = choices, .n_choice = 1};
    hearth_generate_options o = {.tokens = ids, .n_token = 3, .max_token = 4, .stops = stops, .n_stop = 1};
    hearth_status st = hearth_model_open(p->in, NULL, &m, err);
    if (st == HEARTH_OK) st = hearth_session_open(m, &(hearth_session_options){.n_ctx = 32, .n_thread = 1}, &s, err);
    if (st == HEARTH_OK) st = hearth_constraint_open(m, &co, &c, err);
    o.constraint = c;
    if (st == HEARTH_OK) st = hearth_generate(s, &o, NULL, err);
    hearth_constraint_close(c);
    hearth_session_close(s);
    hearth_model_close(m);
    return st;
}

TEST(generation_survives_failed_allocations) { fault_survive("generation", generate_task, 30, 0, 0); }
