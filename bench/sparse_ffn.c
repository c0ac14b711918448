/* What skipping neurons gains in the feed-forward network alone: the dense network of one file, in the
 * layout that this CPU likes best, beside the neuron-major one of its packed form over firing lists
 * that are fresh for every token and layer. No predictor, no attention, no head.
 *
 *     sparse_ffn DENSE.gguf PACKED.gguf [THREADS [ROUNDS [TOKENS]]]
 *
 * Samples are TOKENS (1) together through all layers, each with lists of its own, all cases in turn; "all
 * neurons" is the packed file as prompts go through it. Prints a Markdown table. */
#include "base/clock.h"
#include "engine/engine.h"
#include "measure/act_trace.h"
#include "base/sample_stats.h"
#include "forward/forward_int.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_DRAWN = 8, MAX_ROUND = 101, MAX_TOK = 16 };

static const struct {
    double share;
    uint32_t run;
} cases[] = {{0.5, 64}, {0.2, 64}, {0.1, 64}, {0.05, 64}, {0.5, 1}, {0.2, 1}, {0.1, 1}, {0.05, 1}};
enum { N_CASE = sizeof cases / sizeof *cases };

/* The lists of a case: those of each token of a step in turn. */
typedef struct lists {
    hth_act_trace *fires[MAX_TOK];
    uint32_t n_tok, i_tok;
} lists;

typedef struct side {
    hearth_model *model;
    hth_pool *pool;
    hth_step *step;
} side;

static void fail(const hearth_error *err)
{
    fprintf(stderr, "sparse_ffn: %s\n", err->message);
    exit(1);
}

static side open_side(const char *path, bool rows, uint32_t n_thread, uint32_t n_tok)
{
    side s = {0};
    hearth_error err;
    hearth_model_options o = {.selector = HEARTH_SELECTOR_DENSE, .no_repack = rows};
    if (hearth_model_open(path, &o, &s.model, &err) != HEARTH_OK ||
        hth_pool_open(n_thread, &s.pool, &err) != HEARTH_OK)
        fail(&err);
    hth_pool_pin(s.pool);
    if (hth_step_open(s.model->model, &s.model->kernels, s.pool, n_tok, HEARTH_SELECTOR_DENSE, &s.step,
                      &err) != HEARTH_OK)
        fail(&err);
    s.step->n_tok = n_tok;
    return s;
}

static void close_side(side *s)
{
    hth_step_close(s->step);
    hth_pool_close(s->pool);
    hearth_model_close(s->model);
}

/* Seconds of the tokens through the networks of all layers. */
static double time_tokens(side *s)
{
    const hth_hparams *h = &s->model->model->hparams;
    const uint32_t *networks = s->step->program->ffn_of_layer;
    float *x = hth_fwd_x(s->step);
    for (uint32_t i = 0; i < s->step->n_tok * h->d_model; i++)
        x[i] = (float)((i * 2654435761u) >> 8) * 0x1p-23f - 1.0f;
    uint64_t start = hth_clock_ns();
    for (uint32_t i = 0; i < h->n_layer; i++) /* with the norm before each */
        (void)hth_fwd_ops(s->step, networks[i] - 1, networks[i] + 1, NULL);
    hth_pool_finish(s->pool);
    return (double)(hth_clock_ns() - start) * 1e-9;
}

static double neuron_bytes(const hth_model *m)
{
    const hth_layer *l = &m->layers[0];
    return (double)(l->ffn.gate.row_size + l->ffn.up.row_size + l->ffn.down_t.rows.row_size);
}

static hth_neuron_list next_list(void *user, uint32_t i_layer, const float *input)
{
    lists *l = user;
    l->i_tok = (l->i_tok + 1) % l->n_tok;
    return hth_act_trace_next(l->fires[l->i_tok], i_layer, input);
}

static void open_lists(lists *l, const hth_model *m, int i_case, uint32_t n_tok)
{
    hearth_error err;
    *l = (lists){.n_tok = n_tok};
    for (uint32_t t = 0; t < n_tok; t++) {
        hth_act_trace_spec spec = {.share = cases[i_case].share, .block = cases[i_case].run, .seed = t + 1};
        if (hth_act_trace_open(m, &spec, N_DRAWN, &l->fires[t], &err) != HEARTH_OK) fail(&err);
    }
}

static double share_of(const lists *l)
{
    double sum = 0.0;
    for (uint32_t t = 0; t < l->n_tok; t++) sum += hth_act_trace_share(l->fires[t]);
    return sum / l->n_tok;
}

int main(int argc, char **argv)
{
    static double dense[MAX_ROUND], together[MAX_ROUND], sparse[N_CASE][MAX_ROUND];
    lists fires[N_CASE];
    uint32_t n_thread = argc > 3 ? (uint32_t)atoi(argv[3]) : 1,
             n_round = argc > 4 ? (uint32_t)atoi(argv[4]) : 9, n_tok = argc > 5 ? (uint32_t)atoi(argv[5]) : 1;
    if (argc < 3 || n_thread < 1 || n_round < 1 || n_round > MAX_ROUND || n_tok < 1 || n_tok > MAX_TOK) {
        fprintf(stderr,
                "usage: sparse_ffn DENSE.gguf PACKED.gguf [THREADS [ROUNDS, to %d [TOKENS, to %d]]]\n",
                MAX_ROUND, MAX_TOK);
        return 2;
    }
    side a = open_side(argv[1], false, n_thread, n_tok), b = open_side(argv[2], true, n_thread, n_tok);
    const hth_model *m = b.model->model;
    if (!m->down_transposed || a.model->model->hparams.d_ff != m->hparams.d_ff) {
        fprintf(stderr, "sparse_ffn: %s is no packed form of %s\n", argv[2], argv[1]);
        return 1;
    }
    for (int c = 0; c < N_CASE; c++) open_lists(&fires[c], m, c, n_tok);
    for (uint32_t r = 0; r < n_round; r++) {
        dense[r] = time_tokens(&a);
        hth_step_select(b.step, NULL, NULL);
        together[r] = time_tokens(&b);
        for (int c = 0; c < N_CASE; c++) {
            hth_step_select(b.step, next_list, &fires[c]);
            if (r == 0) time_tokens(&b);
            sparse[c][r] = time_tokens(&b);
        }
    }
    hth_sample_stats d = hth_sample_stats_of(dense, n_round);
    printf("%u token(s), %u layers of %u by %u, %u thread(s), %s; dense %.2f ms (%.2f-%.2f), %u samples "
           "each\n\n",
           n_tok, m->hparams.n_layer, m->hparams.d_model, m->hparams.d_ff, n_thread,
           hth_cpu_name(b.model->kernels.level), d.median * 1e3, d.min * 1e3, d.max * 1e3, n_round);
    printf("| sparsity | runs of | ms | times dense | GB/s of firing rows |\n|---|---|---|---|---|\n");
    hth_sample_stats all = hth_sample_stats_of(together, n_round);
    printf("| all neurons | - | %.2f (%.2f-%.2f) | %.2f | - |\n", all.median * 1e3, all.min * 1e3,
           all.max * 1e3, d.median / all.median);
    for (int c = 0; c < N_CASE; c++) {
        hth_sample_stats s = hth_sample_stats_of(sparse[c], n_round);
        double bytes = n_tok * share_of(&fires[c]) * (double)m->hparams.d_ff * m->hparams.n_layer * neuron_bytes(m);
        printf("| %.1f %% | %u | %.2f (%.2f-%.2f) | %.2f | %.1f |\n", 100.0 * (1.0 - share_of(&fires[c])),
               cases[c].run, s.median * 1e3, s.min * 1e3, s.max * 1e3, d.median / s.median,
               bytes / s.median * 1e-9);
        for (uint32_t t = 0; t < n_tok; t++) hth_act_trace_close(fires[c].fires[t]);
    }
    close_side(&a);
    close_side(&b);
    return 0;
}
