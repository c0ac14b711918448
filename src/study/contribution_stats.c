/* Magnitudes of the contributions of a layer's neurons to the sampled tokens, and the error of the output
 * without the smaller ones. study.c calls it. */
#include "measure/contribution.h"
#include "study/study_int.h"

#include <stdlib.h>

const double hth_study_kept[HTH_STUDY_N_KEPT] = {0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3,
                                                 0.4,  0.5,  0.6,  0.7, 0.8,  0.9, 1.0};

/* Bisection steps for the bound of CETT: each halves the interval of the share left out. */
enum { N_HALVING = 12 };

typedef struct size_study {
    hth_study_state *s;
    hth_study_layer *layer;
    uint32_t i_layer, n_sample;
    float *hidden;        /* [n_sample][d_ff] */
    float *by_token;      /* [n_sample][d_ff] contributions, ascending per token */
    float *of_all;        /* [n_sample * d_ff] all contributions, ascending */
    float *limits;        /* [n_sample] */
    float *part;          /* [HTH_ABLATION_ROWS][d_ff] */
    double *whole, *lost; /* [n_sample] squared norms of the outputs of down, and of their lost parts */
    hth_arena arena; /* holds the arrays */
} size_study;

double hth_study_size_log2(size_t i) { return -12.0 + 0.5 * (double)i; }

static float contribution_of(const size_study *z, size_t t, size_t j)
{
    float h = z->hidden[t * z->layer->d_ff + j];
    return (h < 0.0f ? -h : h) * z->s->norms[z->i_layer][j];
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* ---- magnitudes ------------------------------------------------------------------------------- */

/* Histogram bin of a ratio to the mean; -1: below all bins. */
static int bin_of(double ratio)
{
    static const double min = 0x1p-12, root = 1.4142135623730951;
    if (ratio < min) return -1;
    int i = 0;
    for (double edge = min * root; i + 1 < HTH_STUDY_N_SIZE && ratio >= edge; edge *= root) i++;
    return i;
}

static void count_sizes(size_study *z)
{
    hth_study_layer *l = z->layer;
    double one = 1.0 / ((double)z->n_sample * l->d_ff);
    for (uint32_t t = 0; t < z->n_sample; t++) {
        double sum = 0.0;
        for (uint32_t j = 0; j < l->d_ff; j++) sum += (double)contribution_of(z, t, j);
        for (uint32_t j = 0; j < l->d_ff; j++) {
            if (z->hidden[(size_t)t * l->d_ff + j] == 0.0f) {
                l->zero += one;
                continue;
            }
            int bin = sum > 0.0 ? bin_of((double)contribution_of(z, t, j) * l->d_ff / sum) : -1;
            *(bin < 0 ? &l->below_sizes : &l->sizes[bin]) += one;
        }
    }
}

/* ---- error of leaving neurons out -------------------------------------------------------------- */

/* Squared norms of what each token's output loses below the limits; n_limit 0: of the whole output. */
static void find_norms(size_study *z, const float *limits, size_t n_limit, double *norms)
{
    hth_ablation lost = {.step = z->s->step,
                         .i_layer = z->i_layer,
                         .n_tok = z->n_sample,
                         .d_ff = z->layer->d_ff,
                         .d_model = z->s->model->model->hparams.d_model,
                         .hidden = z->hidden,
                         .scores = z->hidden,
                         .weights = z->s->norms[z->i_layer],
                         .scratch = z->part};
    hth_ablation_norms(&lost, limits, n_limit, norms);
}

/* CETT without the contributions below the limits, mean over tokens. */
static double find_cett(size_study *z, const float *limits, size_t n_limit)
{
    double sum = 0.0;
    find_norms(z, limits, n_limit, z->lost);
    for (uint32_t t = 0; t < z->n_sample; t++)
        if (z->whole[t] > 0.0) sum += z->lost[t] / z->whole[t];
    return sum / z->n_sample;
}

/* CETT if each token keeps a share of its largest contributions. */
static void find_curve(size_study *z)
{
    size_t d_ff = z->layer->d_ff;
    for (size_t i = 0; i < HTH_STUDY_N_KEPT; i++) {
        size_t n_kept = (size_t)(hth_study_kept[i] * (double)d_ff + 0.5);
        n_kept = n_kept < 1 ? 1 : n_kept;
        for (uint32_t t = 0; t < z->n_sample; t++) z->limits[t] = z->by_token[(t + 1) * d_ff - n_kept];
        z->layer->cett[i] = n_kept < d_ff ? find_cett(z, z->limits, z->n_sample) : 0.0;
    }
}

/* One limit for all tokens of the layer: leaves out as many contributions as the bound allows. */
static void find_limit(size_study *z)
{
    size_t n = (size_t)z->n_sample * z->layer->d_ff, low = 0, high = n;
    for (int i = 0; i < N_HALVING; i++) {
        size_t middle = low + (high - low) / 2;
        if (find_cett(z, &z->of_all[middle], 1) <= z->s->options->cett) low = middle;
        else high = middle;
    }
    z->layer->limit = (double)z->of_all[low];
    size_t n_below = low;
    while (n_below > 0 && z->of_all[n_below - 1] == z->of_all[low]) n_below--;
    z->layer->sparsity = (double)n_below / (double)n;
}

/* ---- the layer -------------------------------------------------------------------------------------- */

static hearth_status alloc_buffers(size_study *z, hearth_error *err)
{
    hth_arena *a = &z->arena;
    size_t d_ff = z->layer->d_ff, n = z->n_sample, one = sizeof(float);
    z->hidden = hth_arena_alloc(a, n, d_ff * one, 64);
    z->by_token = hth_arena_alloc(a, n, d_ff * one, 64);
    z->of_all = hth_arena_alloc(a, n, d_ff * one, 64);
    z->limits = hth_arena_alloc(a, n, one, 64);
    z->part = hth_arena_alloc(a, HTH_ABLATION_ROWS, d_ff * one, 64);
    z->whole = hth_arena_alloc(a, n, sizeof *z->whole, 64);
    z->lost = hth_arena_alloc(a, n, sizeof *z->lost, 64);
    return !a->failed ? HEARTH_OK : hth_fail_memory(err, 3 * n * d_ff * one, "the contributions of a layer");
}

static void measure(size_study *z)
{
    size_t d_ff = z->layer->d_ff, n = z->n_sample * d_ff;
    count_sizes(z);
    find_norms(z, NULL, 0, z->whole);
    for (size_t i = 0; i < n; i++) z->by_token[i] = z->of_all[i] = contribution_of(z, i / d_ff, i % d_ff);
    for (uint32_t t = 0; t < z->n_sample; t++)
        qsort(z->by_token + t * d_ff, d_ff, sizeof *z->by_token, by_size);
    qsort(z->of_all, n, sizeof *z->of_all, by_size);
    find_curve(z);
    find_limit(z);
}

hearth_status hth_study_sizes(hth_study_state *s, uint32_t i_layer, hearth_error *err)
{
    size_study z = {.s = s, .layer = &s->out->layers[i_layer], .i_layer = i_layer, .n_sample = s->out->n_sample};
    hearth_status st = alloc_buffers(&z, err);
    if (st == HEARTH_OK)
        st = hth_spill_get(s->hidden, i_layer, 0, z.hidden,
                           (size_t)z.n_sample * z.layer->d_ff * sizeof *z.hidden, err);
    if (st == HEARTH_OK) measure(&z);
    hth_arena_free(&z.arena);
    return st == HEARTH_OK ? hth_study_progress(s, 1, err) : st;
}
