/* The feed-forward network of one layer: who fires, what they compute, who adds
 * it up into `out`. Called by step.c once per layer and batch. Exact selectors must give the
 * bits of `dense` on the same file: keep every sum in the order of docs/arithmetic.md. Work is
 * queued; before a selector or an observer sees values, the queue is finished. */
#include "run/run_int.h"

/* gate and up of the active neurons of n_tok tokens from row `first` on, compact:
 * entry i belongs to list[i]. */
static void compute_neurons(hth_step *s, const hth_layer *l, size_t first, size_t n_tok, hth_active active)
{
    const float *x = s->normed + first * s->model->hparams.d_model;
    size_t at = first * l->d_ff;
    hth_output both[] = {
        {.matrix = &l->gate,
         .bias = l->gate_bias,
         .list = active.list,
         .n_list = active.n,
         .y = s->gate + at},
        {.matrix = &l->up, .bias = l->up_bias, .list = active.list, .n_list = active.n, .y = s->up + at}};
    bool gated = l->gate.n_row > 0;
    hth_product_add(s->k, s->pool, &s->rounding, x, n_tok, gated ? both : both + 1, gated ? 2 : 1, NULL);
}

/* The same for all neurons of all rows, norm and activation included, where nobody looks in
 * between. False: a unit has no room for so many rows. */
static bool compute_hidden(hth_step *s, const hth_layer *l)
{
    hth_output both[] = {{.matrix = &l->gate, .bias = l->gate_bias}, {.matrix = &l->up, .bias = l->up_bias}};
    bool gated = l->gate.n_row > 0;
    const hth_output *outputs = gated ? both : both + 1;
    hth_run_norm_rows rows = {s, &l->ffn_norm, s->x, s->normed};
    hth_fusion fusion = {.prepare = hth_run_norm_row,
                         .prepare_arg = &rows,
                         .activate = s->k->activate[s->model->hparams.activation],
                         .hidden = s->hidden};
    if (!hth_product_has_room(s->n_row, outputs, gated ? 2 : 1)) return false;
    hth_product_add(s->k, s->pool, &s->rounding, s->normed, s->n_row, outputs, gated ? 2 : 1, &fusion);
    return true;
}

typedef struct activate_job {
    hth_step *s;
    const float *gate, *up;
    float *hidden;
    size_t n;
} activate_job;

/* Neurons of one unit of the activation: cheap work, cut only when there is much. */
enum { ACTIVATE_UNIT = 4096 };

static void activate_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    const activate_job *job = arg;
    size_t first = i_unit * ACTIVATE_UNIT, left = job->n - first;
    hth_step *s = job->s;
    s->k->activate[s->model->hparams.activation](job->gate ? job->gate + first : NULL, job->up + first,
                                                 left < ACTIVATE_UNIT ? left : ACTIVATE_UNIT,
                                                 job->hidden + first);
}

/* hidden of n values from `at` on. */
static void activate(hth_step *s, const hth_layer *l, size_t at, size_t n)
{
    activate_job job = {s, l->gate.n_row > 0 ? s->gate + at : NULL, s->up + at, s->hidden + at, n};
    hth_pool_add(s->pool, activate_unit, &job, sizeof job, (n + ACTIVATE_UNIT - 1) / ACTIVATE_UNIT);
}

/* x[n_list] to the places that list names, zeros elsewhere; from the end, so that
 * no value is overwritten before it has moved. */
static void spread(float *x, const int32_t *list, size_t n_list, size_t n)
{
    for (size_t to = n, i = n_list; to-- > 0;) {
        bool active = i > 0 && (size_t)list[i - 1] == to;
        x[to] = active ? x[--i] : 0.0f;
    }
}

/* One token with a list of its own. */
static void compute_selected(hth_step *s, uint32_t i_layer, const hth_layer *l, size_t i_row)
{
    size_t at = i_row * l->d_ff;
    hth_pool_finish(s->pool);
    hth_alloc_forbid(-1);
    hth_active active = s->select(s->select_user, i_layer, s->normed + i_row * s->model->hparams.d_model);
    hth_alloc_forbid(1);
    compute_neurons(s, l, i_row, 1, active);
    activate(s, l, at, active.n);
    if (!active.list) return;
    hth_pool_finish(s->pool);
    if (l->gate.n_row > 0) spread(s->gate + at, active.list, active.n, l->d_ff);
    spread(s->up + at, active.list, active.n, l->d_ff);
    spread(s->hidden + at, active.list, active.n, l->d_ff);
}

static void observe(hth_step *s, uint32_t i_layer, const hth_layer *l)
{
    hth_observation seen = {.i_layer = i_layer,
                            .n_tok = s->n_row,
                            .d_model = s->model->hparams.d_model,
                            .d_ff = l->d_ff,
                            .residual = s->x,
                            .input = s->normed,
                            .gate = l->gate.n_row > 0 ? s->gate : NULL,
                            .up = s->up,
                            .hidden = s->hidden};
    hth_pool_finish(s->pool);
    hth_alloc_forbid(-1);
    s->observe(s->observe_user, &seen);
    hth_alloc_forbid(1);
}

void hth_run_ffn(hth_step *s, uint32_t i_layer, float *onto)
{
    const hth_layer *l = &s->model->layers[i_layer];
    bool watched = s->select || s->observe;
    if (watched || !compute_hidden(s, l)) {
        hth_run_norm(s, &l->ffn_norm, s->x, s->normed, s->n_row);
        if (s->select) {
            for (size_t i = 0; i < s->n_row; i++) compute_selected(s, i_layer, l, i);
        } else {
            compute_neurons(s, l, 0, s->n_row, (hth_active){NULL, l->d_ff});
            activate(s, l, 0, (size_t)s->n_row * l->d_ff);
        }
        if (s->observe) observe(s, i_layer, l);
    }

    /* In file order down is made of rows over all neurons; a block of zeros adds
     * nothing to a row, so lists need no down of their own. */
    hth_output down = {.matrix = &l->down, .bias = l->down_bias, .y = s->out, .onto = onto};
    hth_product_add(s->k, s->pool, &s->rounding, s->hidden, s->n_row, &down, 1, NULL);
}
