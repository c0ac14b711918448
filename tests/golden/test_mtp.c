/* The files of golden/mtp: the block behind the layers that predicts a token further, against double precision,
 * and with the same bits on every level, in every division of its tokens, and after its own guesses. */
#include "base/alloc.h"
#include "engine/session_int.h"
#include "support/models/golden.h"
#include "support/test.h"

enum { N_GUESS = 3 };

typedef struct fixture {
    golden g;
    hearth_model *model, *block;
    hearth_batch *batch;
    hearth_session *session;    /* of the block */
    size_t d, n_vocab, n_pair;  /* pairs of a row and the token behind it */
    float *rows, *own, *logits; /* [n_pair][d]; [d]; [n_pair + N_GUESS][n_vocab] */
} fixture;

static hearth_status keep_row(void *user, size_t i, const float *row, hearth_error *err)
{
    fixture *f = user;
    (void)err;
    if (i < f->n_pair) memcpy(f->rows + i * f->d, row, f->d * sizeof *row);
    return HEARTH_OK;
}

static hearth_status keep_own(void *user, uint32_t at, uint32_t n, const float *rows, hearth_error *err)
{
    fixture *f = user;
    (void)at, (void)err;
    memcpy(f->own, rows + (n - 1) * f->d, f->d * sizeof *rows);
    return HEARTH_OK;
}

static bool begin(fixture *f, const char *name, bool mmap)
{
    char model[80], ids[80], truth[80];
    snprintf(model, sizeof model, "golden/mtp/%s.gguf", name);
    snprintf(ids, sizeof ids, "golden/mtp/%s.ids", name);
    snprintf(truth, sizeof truth, "golden/mtp/%s.f32", name);
    *f = (fixture){.n_pair = 0};
    if (!golden_open(&f->g, model, ids, truth)) return false;
    const hearth_model_options o = {.n_thread = 2, .mmap = mmap};
    hearth_model_info info = {0};
    CHECK_OK(hearth_model_open(f->g.model, &o, &f->model, err));
    hearth_model_get_info(f->model, &info);
    f->d = info.d_model, f->n_vocab = info.n_vocab, f->n_pair = f->g.n - 1;
    f->rows = calloc(f->n_pair * f->d, sizeof *f->rows);
    f->own = calloc(f->d, sizeof *f->own);
    f->logits = calloc((f->n_pair + N_GUESS) * f->n_vocab, sizeof *f->logits);
    CHECK_INT(f->g.n_truth, (f->n_pair + N_GUESS) * f->n_vocab);
    const hearth_session_options of_text = {
        .n_ctx = (uint32_t)f->g.n, .n_batch = 7, .kv = HEARTH_KV_F32, .n_thread = 2};
    hearth_session *text = NULL;
    CHECK_OK(hearth_session_open(f->model, &of_text, &text, err));
    CHECK_OK(hearth_session_eval_hidden(text, f->g.ids, f->g.n, keep_row, f, err));
    hearth_session_close(text);
    CHECK(hth_engine_may_have_mtp(f->model));
    CHECK_OK(hth_engine_open_mtp(f->model, &f->block, err));
    CHECK_OK(hearth_batch_open(f->block, 64, 2, &f->batch, err));
    return true;
}

static void end(fixture *f)
{
    hearth_session_close(f->session);
    hearth_batch_close(f->batch);
    hearth_model_close(f->model);
    golden_close(&f->g);
    free(f->rows);
    free(f->own);
    free(f->logits);
}

static void evaluate(fixture *f, const int32_t *tokens, const float *rows, uint32_t n)
{
    CHECK_OK(hth_batch_add(f->batch, f->session, tokens, n, true, err));
    hth_batch_set_hidden(f->batch, 0, n, rows);
    CHECK_OK(hearth_batch_run(f->batch, err));
}

/* In parts of n_part tokens; the logits after each part. */
static void run(fixture *f, size_t n_part)
{
    const hearth_session_options o = {
        .n_ctx = (uint32_t)f->g.n + N_GUESS, .n_batch = HEARTH_BATCH_NONE, .kv = HEARTH_KV_F32};
    hearth_session_close(f->session);
    CHECK_OK(hth_session_open_in(f->block, &o, NULL, &f->session, err));
    f->session->hidden_fn = keep_own, f->session->hidden_user = f;
    for (size_t at = 0, n; at < f->n_pair; at += n) {
        n = f->n_pair - at < n_part ? f->n_pair - at : n_part;
        evaluate(f, f->g.ids + at + 1, f->rows + at * f->d, (uint32_t)n);
        memcpy(f->logits + (at + n - 1) * f->n_vocab, hearth_session_logits(f->session),
               f->n_vocab * sizeof(float));
    }
    for (size_t i = 0; i < N_GUESS; i++) {
        evaluate(f, f->g.ids + i, f->own, 1);
        memcpy(f->logits + (f->n_pair + i) * f->n_vocab, hearth_session_logits(f->session),
               f->n_vocab * sizeof(float));
    }
}

TEST(a_block_that_predicts_further_gives_what_it_should)
{
    static const char *const names[] = {"glm4moe", "qwen35", "deepseek2"};
    const char *levels[ENGINE_MAX_LEVELS];
    size_t n_level = engine_levels(levels);
    for (int i = 0; i < 3; i++) {
        FREED float *first = NULL;
        for (size_t l = 0; l < n_level; l++) {
            fixture f;
            engine_set_cpu(levels[l]);
            if (!begin(&f, names[i], l % 2 == 1)) return;
            run(&f, 1);
            double error = engine_max_error(f.logits, f.g.truth, f.g.n_truth);
            if (l == 0) printf("     %-20s %.2e\n", names[i], error);
            if (!(error <= 2e-5)) test_fail(__FILE__, __LINE__, "%s: error %g", names[i], error);
            size_t size = f.g.n_truth * sizeof *first;
            if (!first) {
                first = malloc(size);
                memcpy(first, f.logits, size);
            }
            CHECK_BYTES(f.logits, first, size);
            run(&f, 9); /* what is written again has the bits of single tokens */
            CHECK_BYTES(f.logits, first, size);
            run(&f, f.n_pair);
            CHECK_BYTES(f.logits, first, size);
            end(&f);
        }
    }
    engine_set_cpu(NULL);
}

/* The layers are those of the file without the block. */
TEST(the_block_is_no_layer)
{
    fixture f;
    hearth_model_info info = {0};
    if (!begin(&f, "glm4moe", false)) return;
    hearth_model_get_info(f.model, &info);
    CHECK_INT(info.n_layer, 3);
    CHECK_INT(f.block->model->hparams.n_layer, 1);
    CHECK(f.block->model->token_embd.data == f.model->model->token_embd.data);
    CHECK(f.block->model->output.data == f.model->model->token_embd.data); /* tied */
    end(&f);
}

TEST(no_memory_is_an_error)
{
    const char *path = test_data("golden/mtp/glm4moe.gguf");
    hearth_error why;
    hearth_model *m = NULL, *block;
    if (!path) return;
    CHECK_OK(hearth_model_open(path, NULL, &m, err));
    for (uint64_t n = 1;; n++) {
        hth_alloc_fail_at(n, 0);
        hearth_status st = hth_engine_open_mtp(m, &block, &why);
        hth_alloc_fail_at(0, 0);
        if (st == HEARTH_OK) break;
        if (!CHECK_INT(st, HEARTH_ERROR_MEMORY)) break;
    }
    CHECK(block != NULL);
    hearth_model_close(m);
}
