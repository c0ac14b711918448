/* What skipping neurons gains in the feed-forward network alone: the dense network of one file, in the
 * layout that this CPU likes best, beside the neuron-major one of its packed form over firing lists
 * that are fresh for every token and layer. No predictor, no attention, no head.
 *
 *     sparse_ffn DENSE.gguf PACKED.gguf [THREADS [ROUNDS]]
 *
 * Samples are one token through all layers, all cases in turn. Prints a Markdown table. */
#include "base/clock.h"
#include "engine/engine.h"
#include "measure/fire.h"
#include "measure/spread.h"
#include "run/run_int.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_TOK = 8, MAX_ROUND = 101 };

static const struct {
    double share;
    uint32_t run;
} cases[] = {{0.5, 64}, {0.2, 64}, {0.1, 64}, {0.05, 64}, {0.5, 1}, {0.2, 1}, {0.1, 1}, {0.05, 1}};
enum { N_CASE = sizeof cases / sizeof *cases };

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

static side open_side(const char *path, bool rows, uint32_t n_thread)
{
    side s = {0};
    hearth_error err;
    hearth_model_options o = {.selector = HEARTH_SELECTOR_DENSE, .keep_layout = rows};
    if (hearth_model_open(path, &o, &s.model, &err) != HEARTH_OK ||
        hth_pool_open(n_thread, &s.pool, &err) != HEARTH_OK)
        fail(&err);
    hth_pool_pin(s.pool);
    if (hth_step_open(s.model->model, &s.model->kernels, s.pool, 1, HEARTH_SELECTOR_DENSE, &s.step, &err) !=
        HEARTH_OK)
        fail(&err);
    s.step->n_row = 1;
    return s;
}

static void close_side(side *s)
{
    hth_step_close(s->step);
    hth_pool_close(s->pool);
    hearth_model_close(s->model);
}

/* Seconds of one token through the networks of all layers. */
static double time_token(side *s)
{
    const hth_hparams *h = &s->model->model->hparams;
    for (uint32_t i = 0; i < h->d_model; i++)
        s->step->x[i] = (float)((i * 2654435761u) >> 8) * 0x1p-23f - 1.0f;
    uint64_t start = hth_clock_ns();
    for (uint32_t i = 0; i < h->n_layer; i++) hth_run_ffn(s->step, i, s->step->x);
    hth_pool_finish(s->pool);
    return (double)(hth_clock_ns() - start) * 1e-9;
}

static double neuron_bytes(const hth_model *m)
{
    const hth_layer *l = &m->layers[0];
    return (double)(l->gate.row_size + l->up.row_size + l->neurons.rows.row_size);
}

int main(int argc, char **argv)
{
    static double dense[MAX_ROUND], sparse[N_CASE][MAX_ROUND];
    hth_fire *fires[N_CASE];
    hearth_error err;
    uint32_t n_thread = argc > 3 ? (uint32_t)atoi(argv[3]) : 1,
             n_round = argc > 4 ? (uint32_t)atoi(argv[4]) : 9;
    if (argc < 3 || n_thread < 1 || n_round < 1 || n_round > MAX_ROUND) {
        fprintf(stderr, "usage: sparse_ffn DENSE.gguf PACKED.gguf [THREADS [ROUNDS, at most %d]]\n",
                MAX_ROUND);
        return 2;
    }
    side a = open_side(argv[1], false, n_thread), b = open_side(argv[2], true, n_thread);
    const hth_model *m = b.model->model;
    if (!m->by_neurons || a.model->model->hparams.d_ff != m->hparams.d_ff) {
        fprintf(stderr, "sparse_ffn: %s is no packed form of %s\n", argv[2], argv[1]);
        return 1;
    }
    for (int c = 0; c < N_CASE; c++) {
        hth_fire_spec spec = {.share = cases[c].share, .run = cases[c].run, .seed = 1};
        if (hth_fire_open(m, &spec, N_TOK, &fires[c], &err) != HEARTH_OK) fail(&err);
    }
    for (uint32_t r = 0; r < n_round; r++) {
        dense[r] = time_token(&a);
        for (int c = 0; c < N_CASE; c++) {
            hth_step_select(b.step, hth_fire_next, fires[c]);
            if (r == 0) time_token(&b);
            sparse[c][r] = time_token(&b);
        }
    }
    hth_spread d = hth_spread_of(dense, n_round);
    printf("%u layers of %u by %u, %u thread(s), %s; dense %.2f ms (%.2f-%.2f), %u samples each\n\n",
           m->hparams.n_layer, m->hparams.d_model, m->hparams.d_ff, n_thread,
           hth_cpu_name(b.model->kernels.level), d.median * 1e3, d.min * 1e3, d.max * 1e3, n_round);
    printf("| sparsity | runs of | ms | times dense | GB/s of firing rows |\n|---|---|---|---|---|\n");
    for (int c = 0; c < N_CASE; c++) {
        hth_spread s = hth_spread_of(sparse[c], n_round);
        double bytes =
            hth_fire_share(fires[c]) * (double)m->hparams.d_ff * m->hparams.n_layer * neuron_bytes(m);
        printf("| %.1f %% | %u | %.2f (%.2f-%.2f) | %.2f | %.1f |\n",
               100.0 * (1.0 - hth_fire_share(fires[c])), cases[c].run, s.median * 1e3, s.min * 1e3,
               s.max * 1e3, d.median / s.median, bytes / s.median * 1e-9);
        hth_fire_close(fires[c]);
    }
    close_side(&a);
    close_side(&b);
    return 0;
}
