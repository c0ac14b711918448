/* forward/ffn.c: what lists of active neurons promise, on the embedded dReLU model. */
#include "base/system/cpu.h"
#include "engine/engine.h"
#include "support/test.h"

enum { N_TOK = 12 };

typedef struct bench_model {
    hearth_model *model;
    hth_pool *pool;
    hth_step *step;
    hth_kv_pool *kv;
    hth_sequence seq;
    float *logits; /* of the last token */
} bench_model;

static void open_all(bench_model *b, hearth_selector selector)
{
    hearth_model_options o = {.no_repack = true}; /* lists name rows, which panels do not give singly */
    CHECK_OK(hearth_model_open(HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf", &o, &b->model, err));
    CHECK_OK(hth_pool_open(2, &b->pool, err));
    CHECK_OK(hth_step_open(b->model->model, &b->model->kernels, b->pool, N_TOK, selector, &b->step, err));
    CHECK_OK(hth_kv_pool_open(b->model->model, HEARTH_KV_F16, &b->kv, err));
    CHECK_OK(hth_sequence_open(&b->seq, b->kv, &(hth_sequence_options){.n_ctx = N_TOK}, err));
    b->logits = calloc(b->model->model->hparams.n_vocab, sizeof *b->logits);
}

static void close_all(bench_model *b)
{
    free(b->logits);
    hth_sequence_close(&b->seq);
    hth_kv_pool_close(b->kv);
    hth_step_close(b->step);
    hth_pool_close(b->pool);
    hearth_model_close(b->model);
}

static hearth_status take(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    bench_model *b = user;
    memcpy(b->logits, logits, b->model->model->hparams.n_vocab * sizeof *logits);
    return HEARTH_OK;
}

static void run_step(bench_model *b)
{
    hth_batch_token tokens[N_TOK];
    for (uint32_t i = 0; i < N_TOK; i++)
        tokens[i] = (hth_batch_token){
            .seq = &b->seq, .token = (int32_t)(i * 97 + 3), .position = i, .want_logits = i + 1 == N_TOK};
    hth_sequence_prepare(&b->seq, N_TOK);
    CHECK_OK(hth_step_run(b->step, tokens, N_TOK, take, b, err));
}

/* The neurons that fired in a dense run, by layer and token. */
typedef struct firings {
    int32_t *list[6][N_TOK];
    uint32_t n[6][N_TOK], n_asked[6];
    bool leave_one_out;
} firings;

static void remember(void *user, const hth_ffn_probe *seen)
{
    firings *f = user;
    for (size_t t = 0; t < seen->n_tok; t++) {
        int32_t *list = f->list[seen->i_layer][t] = calloc(seen->d_ff, sizeof *list);
        uint32_t n = 0;
        for (size_t i = 0; i < seen->d_ff; i++)
            if (seen->hidden[t * seen->d_ff + i] != 0.0f) list[n++] = (int32_t)i;
        f->n[seen->i_layer][t] = n;
    }
}

static hth_neuron_list select_fired(void *user, uint32_t i_layer, const float *input)
{
    firings *f = user;
    uint32_t t = f->n_asked[i_layer]++ % N_TOK, n = f->n[i_layer][t];
    if (f->leave_one_out && n > 0) n--;
    return (hth_neuron_list){f->list[i_layer][t], n};
}

static hth_neuron_list select_all(void *user, uint32_t i_layer, const float *input)
{
    const bench_model *b = user;
    return (hth_neuron_list){NULL, b->model->model->layers[i_layer].ffn.d_ff};
}

static hth_neuron_list select_none(void *user, uint32_t i_layer, const float *input)
{
    static const int32_t none[1];
    return (hth_neuron_list){none, 0};
}

static void check_lists(hearth_selector selector)
{
    CLEANUP(close_all) bench_model b = {0};
    firings f = {0};
    open_all(&b, selector);
    uint32_t n_vocab = b.model->model->hparams.n_vocab;
    FREED float *dense = calloc(n_vocab, sizeof *dense);
    hth_step_set_probe(b.step, remember, &f);
    run_step(&b);
    hth_step_set_probe(b.step, NULL, NULL);
    memcpy(dense, b.logits, n_vocab * sizeof *dense);
    uint64_t n = 0;
    for (int l = 0; l < 6; l++)
        for (int t = 0; t < N_TOK; t++) n += f.n[l][t];
    CHECK(n > 0 && n < 6 * N_TOK * 768 / 4); /* sparse, or this proves little */

    hth_step_select(b.step, select_fired, &f);
    run_step(&b);
    CHECK_BYTES(b.logits, dense, n_vocab * sizeof *dense);
    hth_step_select(b.step, select_all, &b);
    run_step(&b);
    CHECK_BYTES(b.logits, dense, n_vocab * sizeof *dense);

    f.leave_one_out = true; /* the comparison can fail */
    hth_step_select(b.step, select_fired, &f);
    run_step(&b);
    CHECK(memcmp(b.logits, dense, n_vocab * sizeof *dense) != 0);
    for (int l = 0; l < 6; l++)
        for (int t = 0; t < N_TOK; t++) free(f.list[l][t]);
}

/* The gate is computed for all rows before the caller names neurons. */
TEST(lists_of_the_active_neurons_give_the_bits_of_dense)
{
    check_lists(HEARTH_SELECTOR_DENSE);
    check_lists(HEARTH_SELECTOR_GATE);
}

static void check_nothing_added(void *user, const hth_ffn_probe *seen)
{
    uint64_t *n = user;
    for (size_t i = 0; i < seen->n_tok * seen->d_ff; i++) *n += seen->hidden[i] != 0.0f;
}

TEST(an_empty_list_leaves_the_hidden_values_zero)
{
    CLEANUP(close_all) bench_model b = {0};
    uint64_t n_live = 0;
    open_all(&b, HEARTH_SELECTOR_DENSE);
    hth_step_select(b.step, select_none, NULL);
    hth_step_set_probe(b.step, check_nothing_added, &n_live);
    run_step(&b);
    CHECK_INT(n_live, 0);
}
