/* Drafts by the block of a model's own file that predicts a token further: if the block is always right, all of its
 * drafts are taken, whatever the session or the scheduler did before; if it is not, it changes no token, no logit and
 * no memory. */
#include "base/alloc.h"
#include "engine/session_int.h"
#include "support/models/tiny_model.h"
#include "support/models/tiny_requests.h"
#include "support/test.h"

#include <math.h>

enum { N_CTX = 400, N_PROMPT = 70, D = TINY_D_MODEL, N = TINY_VOCAB, STEP = 5 };

/* ---- models whose next token is known --------------------------------------------------------------------- */

static void fill(gguf_bytes *b, const tiny_model *m, const char *name, const float *values, size_t n)
{
    memcpy(b->data + tiny_data_at(m, name), values, n * sizeof *values);
}

static void clear(gguf_bytes *b, const tiny_model *m, const char *name, size_t n)
{
    memset(b->data + tiny_data_at(m, name), 0, n * sizeof(float));
}

/* Rows of length 1, no two of which are near each other. */
static void make_rows(float *rows)
{
    test_random r = {7};
    for (int t = 0; t < N; t++) {
        float sum = 0.0f;
        for (int j = 0; j < D; j++)
            rows[t * D + j] = test_random_float(&r), sum += rows[t * D + j] * rows[t * D + j];
        for (int j = 0; j < D; j++) rows[t * D + j] /= sqrtf(sum);
    }
}

static int32_t after(int32_t token) { return (token + STEP) % N; }

typedef enum kind { BY_TOKEN, BY_ROW, WRONG } kind;

/* Layers that add nothing to the embedding, and a head that has the embedding of a token in the row of the one
 * that follows it. The block takes the token that it is given, and predicts what follows that; or the row of the
 * token before, for which its own head has the embedding of each in the row of the token after the next; or it is
 * random. */
static gguf_bytes make_file_of(const char *architecture, kind k)
{
    static const char *const silent[] = {"attn_output.weight", "ssm_out.weight", "ffn_down.weight",
                                         "ffn_down_exps.weight", "ffn_down_shexp.weight"};
    static const char *const norms[] = {"blk.2.nextn.enorm.weight", "blk.2.nextn.hnorm.weight",
                                        "output_norm.weight"};
    static float rows[N * D], head[N * D], join[D * 2 * D], ones[D];
    tiny_model m;
    tiny_begin(&m);
    tiny_become(&m, architecture);
    tiny_add_mtp(&m);
    if (k == BY_ROW) tiny_add_tensor(&m, "blk.2.nextn.shared_head_head.weight", 0, 2, D, N);
    gguf_bytes b = tiny_write(&m);
    make_rows(rows);
    memset(join, 0, sizeof join);
    for (int j = 0; j < D; j++) join[j * 2 * D + j + (k == BY_ROW ? D : 0)] = ones[j] = 1.0f;
    for (uint32_t i = 0; i < m.n_tensor; i++) {
        const tiny_tensor *t = &m.tensors[i];
        bool is_silent = false;
        for (int j = 0; j < 5; j++) is_silent = is_silent || strstr(t->name, silent[j]) != NULL;
        if (t->gone || !is_silent || (k == WRONG && strstr(t->name, "blk.2."))) continue;
        clear(&b, &m, t->name, t->dim[0] * t->dim[1] * t->dim[2]);
    }
    fill(&b, &m, "token_embd.weight", rows, N * D);
    for (int i = 0; i < 3; i++) fill(&b, &m, norms[i], ones, D);
    for (int t = 0; t < N; t++) memcpy(head + after(t) * D, rows + t * D, D * sizeof *rows);
    fill(&b, &m, "output.weight", head, N * D);
    if (k != WRONG) fill(&b, &m, "blk.2.nextn.eh_proj.weight", join, D * 2 * D);
    for (int t = 0; t < N; t++) memcpy(head + after(after(t)) * D, rows + t * D, D * sizeof *rows);
    if (k == BY_ROW) fill(&b, &m, "blk.2.nextn.shared_head_head.weight", head, N * D);
    tiny_free(&m);
    return b;
}

static gguf_bytes make_file(kind k) { return make_file_of("glm4moe", k); }

typedef struct fixture {
    gguf_bytes file;
    hearth_model *model;
    hearth_session *session;
    int32_t next;
} fixture;

static hearth_model *open_bytes(const gguf_bytes *b, const volatile int *cancel)
{
    hearth_model *m = NULL;
    const hearth_model_options o = {.n_thread = 1, .cancel = cancel};
    CHECK_OK(hearth_model_open_memory(b->data, b->n, "tiny", &o, &m, err));
    return m;
}

static int32_t best_of(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < N; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void use_drafts(hearth_session *s, uint32_t n)
{
    CHECK_OK(hearth_session_use_drafts(s, &(hearth_draft_options){.n_draft = n}, NULL, err));
}

/* n tokens, none of which is as the one before would have it. */
static void evaluate_text(fixture *f, uint32_t n)
{
    int32_t tokens[N_CTX];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((i * i + 3 * i + hearth_session_position(f->session)) % N);
    CHECK_OK(hearth_session_eval(f->session, tokens, n, err));
    f->next = after(tokens[n - 1]);
}

static void begin_with(fixture *f, gguf_bytes file, uint32_t n_draft, uint32_t n_batch)
{
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = n_batch, .n_thread = 1};
    *f = (fixture){.file = file};
    f->model = open_bytes(&f->file, NULL);
    CHECK_OK(hearth_session_open(f->model, &o, &f->session, err));
    use_drafts(f->session, n_draft);
}

static void begin(fixture *f, kind k, uint32_t n_draft, uint32_t n_batch)
{
    begin_with(f, make_file(k), n_draft, n_batch);
}

static void end(fixture *f)
{
    hearth_session_close(f->session);
    hearth_model_close(f->model);
    gguf_free(&f->file);
}

static void go_on(fixture *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(best_of(hearth_session_logits(f->session)), f->next);
        CHECK_OK(hearth_session_eval(f->session, &f->next, 1, err));
        f->next = after(f->next);
    }
}

/* n tokens as above; all that were drafted and compared are right, at least so many. */
static void go_on_right(fixture *f, uint32_t n, uint64_t least)
{
    hearth_draft_stats before = test_draft_stats(f->session);
    uint64_t n_ahead = f->session->n_draft_pending;
    go_on(f, n);
    hearth_draft_stats s = test_draft_stats(f->session);
    uint64_t n_compared = n_ahead + s.n_drafted - before.n_drafted - f->session->n_draft_pending,
             n_right = s.n_accepted - before.n_accepted;
    if (n_compared != n_right || n_right < least)
        test_fail(__FILE__, __LINE__, "%d of %d tokens were right, of at least %d", (int)n_right,
                  (int)n_compared, (int)least);
}

static void run_known(const char *architecture, kind k, uint32_t n_draft, uint32_t n_batch)
{
    fixture f;
    begin_with(&f, make_file_of(architecture, k), n_draft, n_batch);
    evaluate_text(&f, N_PROMPT);
    go_on_right(&f, 30, 15);
    /* Further text, after which single tokens follow; a copy, of which no rows are known; and a shorter text. */
    for (uint32_t n = 2; n < 40; n += 9) {
        evaluate_text(&f, n);
        hearth_session *copy = NULL;
        CHECK_OK(hearth_session_fork(f.session, &copy, err));
        go_on_right(&f, 7, 3);
        if (n % 2 == 1) {
            hearth_session_close(f.session);
            f.session = copy, copy = NULL;
            use_drafts(f.session, n_draft);
            f.next = best_of(hearth_session_logits(f.session));
            go_on(&f, 2); /* of drafts that earlier text makes, if any */
            go_on_right(&f, 9, 3);
        }
        hearth_session_close(copy);
        uint32_t to = hearth_session_position(f.session) - 4;
        int32_t other = (int32_t)(n * 11) % N;
        CHECK_OK(hearth_session_truncate(f.session, to, err));
        CHECK_OK(hearth_session_eval(f.session, &other, 1, err));
        f.next = after(other);
        go_on_right(&f, 9, 3);
    }
    end(&f);
}

TEST(all_drafts_of_a_block_that_is_always_right_are_taken)
{
    static const char *const kinds[] = {"glm4moe", "deepseek2", "qwen35"};
    for (int i = 0; i < 3; i++) {
        run_known(kinds[i], BY_TOKEN, 1, 64);
        run_known(kinds[i], BY_TOKEN, 3, 16); /* prompts in parts that are kept until a draft is wanted */
        run_known(kinds[i], BY_TOKEN, 15, 256);
        /* Its second guess would be of its own row, which is that of the first. */
        run_known(kinds[i], BY_ROW, 1, 64);
        run_known(kinds[i], BY_ROW, 1, 5);
    }
}

TEST(auto_takes_a_block_that_is_right)
{
    fixture f;
    begin(&f, BY_TOKEN, HEARTH_DRAFT_AUTO, 64);
    evaluate_text(&f, N_PROMPT);
    go_on_right(&f, 250, 1);
    end(&f);
}

/* ---- what a block that is wrong changes --------------------------------------------------------------------- */

TEST(a_block_that_is_wrong_or_broken_changes_nothing)
{
    for (int is_broken = 0; is_broken < 2; is_broken++) {
        fixture f;
        begin(&f, WRONG, 4, 64);
        if (is_broken) {
            hearth_model *block = NULL;
            CHECK_OK(hth_engine_open_mtp(f.model, &block, err));
            float *eh = (float *)(uintptr_t)block->model->mtp.embedding_norm.weight;
            eh[3] = NAN;
        }
        test_log_start();
        evaluate_text(&f, N_PROMPT);
        go_on(&f, 60);
        hearth_draft_stats s = test_draft_stats(f.session);
        CHECK_INT(test_n_warning("no more drafts of a model"), is_broken);
        test_log_stop();
        if (!is_broken) CHECK(s.n_drafted > 60 && s.n_accepted < s.n_drafted / 4);
        end(&f);
    }
}

TEST(a_block_can_be_left_out)
{
    fixture f;
    begin(&f, BY_TOKEN, HEARTH_DRAFT_NONE, 64);
    CHECK(f.model->mtp == NULL); /* nothing was read for it */
    CHECK_OK(hearth_session_use_drafts(f.session, &(hearth_draft_options){.n_draft = 3, .no_mtp = true}, NULL,
                                       err));
    evaluate_text(&f, N_PROMPT);
    go_on(&f, 20);
    CHECK_INT(test_draft_stats(f.session).n_drafted, 0);
    CHECK(f.model->mtp == NULL);
    end(&f);
}

/* A block that lacks a tensor is no reason to refuse the model. */
TEST(a_block_that_is_not_complete_is_told_and_left_out)
{
    tiny_model m;
    fixture f = {.next = 0};
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
    tiny_begin(&m);
    tiny_become(&m, "glm4moe");
    tiny_add_mtp(&m);
    tiny_find(&m, "blk.2.nextn.hnorm.weight")->gone = true;
    f.file = tiny_take(&m);
    f.model = open_bytes(&f.file, NULL);
    CHECK_OK(hearth_session_open(f.model, &o, &f.session, err));
    test_log_start();
    use_drafts(f.session, HEARTH_DRAFT_AUTO);
    CHECK_INT(test_n_warning("'blk.2.nextn.hnorm.weight' is missing"), 1);
    test_log_stop();
    end(&f);
}

/* ---- failures -------------------------------------------------------------------------------------------------- */

/* A step that was cancelled is done again, with another token too. */
TEST(a_step_that_failed_is_repeated)
{
    volatile int cancel = 0;
    fixture f = {.file = make_file(BY_TOKEN)};
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
    hearth_error why;
    f.model = open_bytes(&f.file, &cancel);
    CHECK_OK(hearth_session_open(f.model, &o, &f.session, err));
    use_drafts(f.session, 3);
    evaluate_text(&f, N_PROMPT);
    for (int i = 0; i < 12; i++) {
        go_on(&f, 5);
        int32_t token = i % 3 == 0 ? f.next : (int32_t)(40 + i * 7);
        cancel = 1;
        hearth_status st = hearth_session_eval(f.session, &f.next, 1, &why);
        cancel = 0;
        if (st == HEARTH_OK) f.next = after(f.next); /* it was ahead */
        else {
            CHECK_INT(st, HEARTH_ERROR_CANCELLED);
            CHECK_OK(hearth_session_eval(f.session, &token, 1, err));
            f.next = after(token);
        }
    }
    go_on_right(&f, 9, 4);
    end(&f);
}

/* The limit of memory has room for the logits of drafts, not for the block; by itself that says nothing. */
TEST(without_room_there_is_no_block)
{
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        fixture f = {.file = make_file(BY_TOKEN)};
        const char *path = test_scratch("mtp.gguf");
        const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
        CHECK(test_write_file(path, f.file.data, f.file.n));
        CHECK_OK(hearth_model_open(path, &(hearth_model_options){.n_thread = 1}, &f.model, err));
        CHECK_OK(hearth_session_open(f.model, &o, &f.session, err));
        f.model->budget.limit = f.model->budget.sessions + HTH_DRAFT_MAX * N * sizeof(float) + 1000;
        test_log_start();
        use_drafts(f.session, is_asked ? 3 : HEARTH_DRAFT_AUTO);
        CHECK_INT(test_n_warning("no drafts by its MTP block"), is_asked);
        test_log_stop();
        CHECK(f.session->drafts && !f.session->drafts->mtp && !f.model->mtp);
        evaluate_text(&f, N_PROMPT);
        go_on(&f, 10);
        end(&f);
    }
}

/* Nor is the block used if its session does not fit: drafts that were not asked for do not make a text fail. */
TEST(without_room_for_its_session_there_is_no_block)
{
    fixture f;
    begin(&f, BY_TOKEN, HEARTH_DRAFT_NONE, 64);
    hth_budget *b = &f.model->budget;
    const uint64_t without = b->sessions;
    use_drafts(f.session, HEARTH_DRAFT_AUTO);
    CHECK(f.session->drafts && f.session->drafts->mtp);
    uint64_t limit = b->sessions + b->fixed + b->cap.min;
    for (int lacks = 1; lacks >= 0; lacks--) {
        use_drafts(f.session, HEARTH_DRAFT_NONE);
        b->limit = limit - (uint64_t)lacks;
        use_drafts(f.session, HEARTH_DRAFT_AUTO);
        b->limit = 0;
        CHECK(f.session->drafts && (f.session->drafts->mtp == NULL) == (lacks == 1));
        CHECK((f.model->mtp == NULL) ==
              (lacks == 1)); /* nor do its weights stay, and what they took is given back */
        evaluate_text(&f, N_PROMPT);
        go_on(&f, 10);
        if (lacks == 0) continue;
        use_drafts(f.session, HEARTH_DRAFT_NONE);
        CHECK_INT(b->sessions, without);
    }
    end(&f);
}

/* Another session has the block: where there is no room for a second one's drafts, it stays. */
TEST(a_block_that_others_use_stays)
{
    fixture f;
    hearth_session *second = NULL;
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
    begin(&f, BY_TOKEN, 2, 64);
    CHECK_OK(hearth_session_open(f.model, &o, &second, err));
    f.model->budget.limit = f.model->budget.sessions + HTH_DRAFT_MAX * N * sizeof(float) + 1000;
    use_drafts(second, HEARTH_DRAFT_AUTO);
    f.model->budget.limit = 0;
    CHECK(second->drafts && !second->drafts->mtp && f.model->mtp);
    hearth_session_close(second);
    evaluate_text(&f, N_PROMPT);
    go_on_right(&f, 9, 3);
    end(&f);
}

/* One head of keys and values in layer i. */
static void take_heads(tiny_model *m, int i)
{
    static const char *const names[] = {"attn_k.weight", "attn_v.weight", "attn_k.bias", "attn_v.bias"};
    for (int k = 0; k < 4; k++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", i, names[k]);
        tiny_find(m, name)->dim[k < 2] = D / TINY_HEADS;
    }
}

/* Arrays by layer may leave the block out. Then it has what the last of the layers has, and an error names the array
 * only if the block's tensors do not fit. */
TEST(a_block_without_an_entry_in_an_array_is_as_its_layers)
{
    static const uint32_t heads[3][2] = {
        {TINY_HEADS_KV, TINY_HEADS_KV}, {1, TINY_HEADS_KV}, {TINY_HEADS_KV, 1}};
    for (int k = 0; k < 3; k++) {
        tiny_model m;
        fixture f = {.next = 0};
        const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
        tiny_begin(&m);
        tiny_become(&m, "glm4moe");
        tiny_add_mtp(&m); /* as the last layer is here */
        tiny_set_array(&m, "glm4moe.attention.head_count_kv", heads[k], 2);
        if (k > 0) take_heads(&m, k - 1);
        f.file = tiny_take(&m);
        f.model = open_bytes(&f.file, NULL);
        CHECK_OK(hearth_session_open(f.model, &o, &f.session, err));
        test_log_start();
        use_drafts(f.session, HEARTH_DRAFT_AUTO);
        CHECK_INT(test_n_warning("MTP block"), k == 2);
        CHECK_INT(test_n_warning("; glm4moe.attention.head_count_kv has no entry for this block"), k == 2);
        test_log_stop();
        CHECK((f.session->drafts->mtp != NULL) == (k < 2));
        evaluate_text(&f, N_PROMPT);
        for (int i = 0; i < 5; i++) CHECK_OK(hearth_session_eval(f.session, &f.next, 1, err));
        end(&f);
    }
}

/* Without memory there are no such drafts, or an error, and nothing is lost. */
TEST(each_allocation_may_fail)
{
    gguf_bytes file = make_file(BY_TOKEN);
    const char *path = test_scratch("mtp.gguf");
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 64, .n_thread = 1};
    uint64_t n_failed = 0;
    CHECK(test_write_file(path, file.data, file.n));
    for (uint64_t n = 1;; n++) {
        fixture f = {.next = 0};
        hearth_error why;
        CHECK_OK(hearth_model_open(path, &(hearth_model_options){.n_thread = 1}, &f.model, err));
        CHECK_OK(hearth_session_open(f.model, &o, &f.session, err));
        uint64_t before = f.model->budget.sessions;
        hth_alloc_fail_at(n, 0);
        hearth_status st = hearth_session_use_drafts(f.session, NULL, NULL, &why);
        bool is_done = f.session->drafts && f.session->drafts->mtp;
        hth_alloc_fail_at(0, 0);
        if (st != HEARTH_OK) CHECK_INT(st, HEARTH_ERROR_MEMORY), n_failed++;
        evaluate_text(&f, N_PROMPT);
        go_on(&f, 4);
        CHECK_OK(hearth_session_use_drafts(f.session, &(hearth_draft_options){.n_draft = HEARTH_DRAFT_NONE},
                                           NULL, err));
        uint64_t of_block = f.model->mtp && !f.model->mapped ? f.model->mtp->model->weight_size : 0;
        CHECK_INT(f.model->budget.sessions, before + of_block);
        hearth_session_close(f.session);
        hearth_model_close(f.model);
        if (is_done || n > 500) break;
    }
    CHECK(n_failed > 0);
    gguf_free(&file);
}

/* ---- requests ------------------------------------------------------------------------------------------- */

enum { N_REQUEST = 24 };

/* Requests of two owners that begin alike, some with a constraint, at several temperatures; in two rounds, so
 * that the second ones find what the first ones computed. */
static hearth_draft_stats run_requests(const hearth_model *m, uint32_t n_draft, uint32_t n_position,
                                       request_outcome *out)
{
    const hearth_scheduler_options o = {
        .n_ctx = 160, .n_position = n_position, .n_running = 6, .n_thread = 1, .draft = {.n_draft = n_draft}};
    hearth_scheduler *s = NULL;
    hearth_constraint *constraints[N_REQUEST] = {NULL};
    CHECK_OK(hearth_scheduler_open(m, &o, &s, err));
    for (int i = 0; i < N_REQUEST; i++) {
        static const char grammar[] = "root ::= (\"abc\" | \"abbc \")+";
        const hearth_constraint_options c = {
            .kind = HEARTH_CONSTRAINT_GRAMMAR, .text = grammar, .n = sizeof grammar - 1};
        int32_t prompt[80];
        size_t n = 30 + 2 * (size_t)i;
        uint64_t id;
        hearth_sampler_options sampler = test_sampler_options();
        sampler.temperature = (float)(i % 3) * 0.5f, sampler.seed = (uint64_t)i;
        sampler.repeat_penalty = i % 4 == 1 ? 1.1f : 1.0f;
        for (size_t k = 0; k < n; k++) prompt[k] = (int32_t)((k * k * 3 + k * (k > 25 ? (size_t)i : 1)) % N);
        if (i % 5 == 4) CHECK_OK(hearth_constraint_open(m, &c, &constraints[i], err));
        out[i] = (request_outcome){.n = 0};
        const hearth_request q = {.tokens = prompt,
                                  .n_token = n,
                                  .max_token = 40,
                                  .ignore_end = true,
                                  .sampler = &sampler,
                                  .constraint = constraints[i],
                                  .owner = (uint64_t)i % 2,
                                  .fn = request_note,
                                  .user = &out[i]};
        CHECK_OK(hearth_scheduler_add(s, &q, &id, err));
        if (i == N_REQUEST / 2)
            while (test_step(s)) {
            }
    }
    while (test_step(s)) {
    }
    hearth_draft_stats all = test_scheduler_stats(s).draft;
    hearth_scheduler_close(s);
    for (int i = 0; i < N_REQUEST; i++) hearth_constraint_close(constraints[i]);
    return all;
}

TEST(requests_get_the_same_tokens_and_logits)
{
    static const kind kinds[] = {BY_TOKEN, WRONG};
    for (int k = 0; k < 2; k++) {
        gguf_bytes file = make_file(kinds[k]);
        hearth_model *m = open_bytes(&file, NULL);
        request_outcome plain[N_REQUEST], drafted[N_REQUEST];
        static const uint32_t n_drafts[] = {2, 7, HEARTH_DRAFT_AUTO, 4};
        (void)run_requests(m, HEARTH_DRAFT_NONE, 16 * 160, plain);
        for (int d = 0; d < 4; d++) {
            /* The last time with so few pages that requests wait for one another, and the block has too few. */
            hearth_draft_stats s = run_requests(m, n_drafts[d], d == 3 ? 224 : 16 * 160, drafted);
            request_expect_same(plain, drafted, N_REQUEST);
            if (n_drafts[d] != HEARTH_DRAFT_AUTO) CHECK(s.n_drafted > N_REQUEST);
            if (k == 0 && d == 0) { /* where the next token is the likeliest one, all are right */
                CHECK(drafted[0].draft.n_drafted >= 20);
                CHECK(drafted[0].draft.n_accepted + 2 >= drafted[0].draft.n_drafted);
            }
        }
        hearth_model_close(m);
        gguf_free(&file);
    }
}
