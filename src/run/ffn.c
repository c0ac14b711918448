/* The feed-forward network of one layer: who fires, what they compute, who adds
 * it up. Called by step.c once per layer and batch. Exact selectors must give the
 * bits of `dense` on the same file: keep every sum in the order of
 * docs/arithmetic.md. */
#include "run/run_int.h"

/* The neurons that compute for one token and layer, ascending; NULL stands for
 * 0..n-1. Dense, the only selector yet, says: all. */
typedef struct active_list {
    const int32_t *list;
    size_t n;
} active_list;

static active_list select_dense(const hth_layer *l) { return (active_list){NULL, l->d_ff}; }

/* gate and up of the active neurons, compact: entry i belongs to list[i]. */
static void compute_neurons(hth_step *s, const hth_layer *l, active_list active)
{
    hth_output up = {
        .matrix = &l->up, .bias = l->up_bias, .list = active.list, .n_list = active.n, .y = s->up};
    hth_output gate = {
        .matrix = &l->gate, .bias = l->gate_bias, .list = active.list, .n_list = active.n, .y = s->gate};
    hth_output both[] = {gate, up};
    bool gated = l->gate.n_row > 0;
    hth_product(s->k, s->pool, &s->rounding, s->normed, s->n_row, gated ? both : &up, gated ? 2 : 1);
}

typedef struct activate_job {
    hth_step *s;
    const float *gate;
    size_t n;
} activate_job;

/* Neurons of one unit of the activation: cheap work, cut only when there is much. */
enum { ACTIVATE_UNIT = 4096 };

static void activate_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    const activate_job *job = arg;
    size_t first = i_unit * ACTIVATE_UNIT, left = job->n - first,
           n = left < ACTIVATE_UNIT ? left : ACTIVATE_UNIT;
    hth_step *s = job->s;
    s->k->activate[s->model->hparams.activation](job->gate ? job->gate + first : NULL, s->up + first, n,
                                                 s->hidden + first);
}

static void observe(hth_step *s, uint32_t i_layer, const hth_layer *l, const float *gate)
{
    hth_observation seen = {.i_layer = i_layer,
                            .n_tok = s->n_row,
                            .d_model = s->model->hparams.d_model,
                            .d_ff = l->d_ff,
                            .residual = s->x,
                            .input = s->normed,
                            .gate = gate,
                            .up = s->up,
                            .hidden = s->hidden};
    s->observe(s->observe_user, &seen);
}

void hth_run_ffn(hth_step *s, uint32_t i_layer)
{
    const hth_layer *l = &s->model->layers[i_layer];
    hth_run_norm(s, l->ffn_norm);
    compute_neurons(s, l, select_dense(l));

    activate_job job = {s, l->gate.n_row > 0 ? s->gate : NULL, (size_t)s->n_row * l->d_ff};
    hth_pool_run(s->pool, activate_unit, &job, (job.n + ACTIVATE_UNIT - 1) / ACTIVATE_UNIT);
    if (s->observe) observe(s, i_layer, l, job.gate);

    hth_output down = {.matrix = &l->down, .bias = l->down_bias, .y = s->out};
    hth_product(s->k, s->pool, &s->rounding, s->hidden, s->n_row, &down, 1);
    hth_run_add_out(s);
}
