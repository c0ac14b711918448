/* Quality loss if only the neurons with the largest hidden values of each token are computed, the same share in
 * all layers (Song et al. 2024, Turbo Sparse, equations 3 and 4: by |hidden| alone). study.c calls it. */
#include "base/bits.h"
#include "sparse/profile.h"
#include "study/study_int.h"

#include <stdlib.h>

const double hth_study_row_kept[HTH_STUDY_N_ROW] = {1.0, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05};

typedef struct forcing {
    hth_study_state *s;
    double kept;
    float *sizes; /* [n_thread][d_ff] */
    const hth_ffn_probe *seen;
    uint64_t n_done; /* chunks of this row that were reported as progress */
    hearth_error error;
} forcing;

static void keep_largest(void *arg, size_t t, uint32_t i_thread)
{
    const forcing *f = arg;
    size_t d_ff = f->seen->d_ff, n_kept = (size_t)(f->kept * (double)d_ff + 0.5);
    float *h = f->seen->hidden + t * d_ff, *sizes = f->sizes + i_thread * d_ff;
    for (size_t j = 0; j < d_ff; j++) sizes[j] = __builtin_fabsf(h[j]);
    float min = hth_float_of(hth_profile_kth(sizes, d_ff, n_kept > 0 ? n_kept : 1));
    for (size_t j = 0; j < d_ff; j++) h[j] = sizes[j] < min ? 0.0f : h[j];
}

static void force(void *user, const hth_ffn_probe *seen)
{
    forcing *f = user;
    f->seen = seen;
    hth_pool_run(seen->pool, keep_largest, f, seen->n_tok);
}

static bool progress(void *user, uint64_t done, uint64_t total)
{
    forcing *f = user;
    uint64_t step = done - f->n_done;
    (void)total;
    f->n_done = done;
    return hth_study_progress(f->s, step, &f->error) == HEARTH_OK;
}

static hearth_status measure_row(forcing *f, size_t i, const char *text, size_t n, hearth_error *err)
{
    hth_study_state *s = f->s;
    hth_step *step = hth_session_step(s->session);
    f->kept = hth_study_row_kept[i];
    f->n_done = 0;
    hearth_status st = hearth_session_truncate(s->session, 0, err);
    if (f->kept < 1.0) hth_step_set_probe(step, force, f);
    if (st == HEARTH_OK)
        st = hth_measure_perplexity(s->model, s->session, text, n, s->options->n_scored, progress, f,
                                    &s->out->rows[i], err);
    hth_step_set_probe(step, NULL, NULL);
    if (st != HEARTH_OK || f->error.status == HEARTH_OK) return st;
    if (err) *err = f->error;
    return f->error.status;
}

hearth_status hth_study_force(hth_study_state *s, const char *text, size_t n, hearth_error *err)
{
    size_t n_thread = hearth_session_n_thread(s->session), d_ff = s->model->model->hparams.d_ff;
    forcing f = {.s = s, .sizes = hth_alloc(n_thread, d_ff * sizeof *f.sizes)};
    if (!f.sizes) return hth_fail_memory(err, n_thread * d_ff * sizeof *f.sizes, "sizes of neurons");
    hearth_status st = HEARTH_OK;
    for (size_t i = 0; st == HEARTH_OK && i < HTH_STUDY_N_ROW; i++) st = measure_row(&f, i, text, n, err);
    if (st == HEARTH_OK) s->out->n_row = HTH_STUDY_N_ROW;
    hth_free(f.sizes);
    return st;
}
