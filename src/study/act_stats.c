/* Activity of a layer's neurons over the tokens: its concentration on few neurons, its similarity to earlier
 * tokens, co-activation. study.c calls it, a layer at a time. */
#include "base/bits.h"
#include "sample/random.h"
#include "sparse/neuron_order.h"
#include "study/study_int.h"

#include <stdlib.h>
#include <string.h>

const double hth_study_hottest[HTH_STUDY_N_HOTTEST] = {0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3,
                                                       0.4,  0.5,  0.6,  0.7, 0.8,  0.9, 1.0};
const uint32_t hth_study_before[HTH_STUDY_N_BEFORE] = {1, 2, 3, 5, 8, 16};

/* MAX_MARKS: tokens over which pairs of neurons are compared. FEWEST: tokens at which a neuron must be active
 * to be counted; with fewer, a co-active neuron is a coincidence. */
enum { MAX_MARKS = 1024, FEWEST = 10, WORD = 32 };

typedef struct activity {
    hth_study_state *s;
    hth_study_layer *layer;
    size_t n_byte, n_tok;
    uint8_t *active;   /* [n_tok][n_byte] */
    uint8_t *before;   /* [n_byte] */
    uint32_t *n_fired; /* [d_ff] */
    uint32_t *sorted;  /* [d_ff] */
    uint32_t n_mark, n_word;
    uint32_t *marks; /* [d_ff][n_word] */
    int32_t *order, *scratch;
    double *closest, *mean; /* [d_ff] largest and mean co-activation of a neuron; -1: active too rarely */
    hth_arena arena; /* holds the arrays */
} activity;

/* Number of bits set in both. */
static uint64_t count_both(const uint8_t *x, const uint8_t *y, size_t n_byte)
{
    uint64_t n = 0;
    for (size_t i = 0; i < n_byte; i++) n += hth_count_bits(x[i] & y[i]);
    return n;
}

/* ---- hot and cold ------------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

static void find_skew(activity *f)
{
    hth_study_layer *l = f->layer;
    uint64_t all = 0, sum = 0;
    for (size_t t = 0; t < f->n_tok; t++)
        for (size_t j = 0; j < l->d_ff; j++) f->n_fired[j] += hth_bit_at(f->active + t * f->n_byte, j);
    memcpy(f->sorted, f->n_fired, l->d_ff * sizeof *f->sorted);
    qsort(f->sorted, l->d_ff, sizeof *f->sorted, descending);
    for (uint32_t j = 0; j < l->d_ff; j++) all += f->sorted[j];
    l->active = (double)all / ((double)f->n_tok * l->d_ff);
    for (size_t i = 0; i < HTH_STUDY_N_HOTTEST; i++) l->covered[i] = hth_study_nan();
    l->share_for_80 = hth_study_nan();
    if (all == 0) return;
    l->share_for_80 = 0.0;
    size_t i = 0;
    for (uint32_t j = 0; j < l->d_ff; j++) {
        sum += f->sorted[j];
        if (l->share_for_80 == 0.0 && (double)sum >= 0.8 * (double)all)
            l->share_for_80 = (double)(j + 1) / l->d_ff;
        while (i < HTH_STUDY_N_HOTTEST && (double)(j + 1) >= hth_study_hottest[i] * l->d_ff)
            l->covered[i++] = (double)sum / (double)all;
    }
}

/* ---- from token to token ------------------------------------------------------------------------ */

/* The share of a token's active neurons that were active at one of the k tokens before it, within its chunk. */
static void find_reuse(activity *f)
{
    uint32_t n_ctx = f->s->out->n_ctx;
    uint64_t n_counted[HTH_STUDY_N_BEFORE] = {0};
    for (size_t t = 0; t < f->n_tok; t++) {
        const uint8_t *now = f->active + t * f->n_byte;
        uint64_t n = count_both(now, now, f->n_byte);
        memset(f->before, 0, f->n_byte);
        for (uint32_t back = 1, i = 0; n > 0 && i < HTH_STUDY_N_BEFORE && back <= t % n_ctx; back++) {
            for (size_t b = 0; b < f->n_byte; b++) f->before[b] |= (now - back * f->n_byte)[b];
            if (back < hth_study_before[i]) continue;
            f->layer->reused[i] += (double)count_both(now, f->before, f->n_byte) / (double)n;
            n_counted[i++]++;
        }
    }
    for (size_t i = 0; i < HTH_STUDY_N_BEFORE; i++)
        f->layer->reused[i] =
            n_counted[i] > 0 ? f->layer->reused[i] / (double)n_counted[i] : hth_study_nan();
}

/* ---- co-activation --------------------------------------------------------------------------------- */

static void mark_tokens(activity *f)
{
    for (uint32_t i = 0; i < f->n_mark; i++) {
        const uint8_t *now = f->active + (size_t)i * f->n_tok / f->n_mark * f->n_byte;
        for (size_t j = 0; j < f->layer->d_ff; j++)
            f->marks[j * f->n_word + i / WORD] |= (uint32_t)hth_bit_at(now, j) << i % WORD;
    }
}

static hth_act_stats known_of(const activity *f)
{
    return (hth_act_stats){f->layer->d_ff, f->n_fired, f->marks, f->n_word};
}

/* Share of neuron i's active tokens at which another neuron is active too: maximum over the others, and mean
 * over all. */
static void find_coactivation(void *arg, size_t i, uint32_t i_thread)
{
    activity *f = arg;
    const hth_act_stats known = known_of(f);
    uint32_t own = hth_order_coactivation(&known, i, i), max = 0;
    uint64_t sum = 0;
    (void)i_thread;
    f->closest[i] = -1.0;
    if (own < FEWEST) return;
    for (size_t j = 0; j < f->layer->d_ff; j++) {
        uint32_t n = j == i ? 0 : hth_order_coactivation(&known, i, j);
        sum += n;
        max = n > max ? n : max;
    }
    f->closest[i] = (double)max / own;
    f->mean[i] = (double)sum / own / f->layer->d_ff;
}

static double find_gap(activity *f)
{
    double closest = 0.0, mean = 0.0;
    uint32_t n = 0;
    hth_pool_run(f->s->pool, find_coactivation, f, f->layer->d_ff);
    for (uint32_t i = 0; i < f->layer->d_ff; i++)
        if (f->closest[i] >= 0.0) closest += f->closest[i], mean += f->mean[i], n++;
    return n > 0 ? (closest - mean) / n : hth_study_nan();
}

/* Moves each neuron's activity to random tokens with the same count. The remaining co-activation is that by
 * chance. */
static void shuffle_marks(activity *f)
{
    const hth_act_stats known = known_of(f);
    hth_sample_random random;
    hth_sample_random_seed(&random, 1);
    for (size_t j = 0; j < f->layer->d_ff; j++) {
        uint32_t left = hth_order_coactivation(&known, j, j), *marks = f->marks + j * f->n_word;
        memset(marks, 0, f->n_word * sizeof *marks);
        for (uint32_t i = 0; i < f->n_mark; i++) {
            bool drawn = hth_sample_random_unit(&random) * (f->n_mark - i) < (double)left;
            marks[i / WORD] |= (uint32_t)drawn << i % WORD;
            left -= drawn;
        }
    }
}

static void find_runs(activity *f)
{
    const hth_act_stats known = known_of(f);
    hth_order_neurons(&known, f->order, f->scratch);
    double in_file = hth_order_mean_run(&known, NULL);
    f->layer->run_in_file = in_file > 0.0 ? in_file : hth_study_nan();
    f->layer->run_ordered = in_file > 0.0 ? hth_order_mean_run(&known, f->order) : hth_study_nan();
}

/* ---- the layer --------------------------------------------------------------------------------------- */

static hearth_status alloc_buffers(activity *f, hearth_error *err)
{
    hth_arena *a = &f->arena;
    size_t n = f->layer->d_ff;
    f->active = hth_arena_alloc(a, f->n_tok, f->n_byte, 64);
    f->before = hth_arena_alloc(a, 1, f->n_byte, 64);
    f->n_fired = hth_arena_alloc(a, n, sizeof *f->n_fired, 64);
    f->sorted = hth_arena_alloc(a, n, sizeof *f->sorted, 64);
    f->marks = hth_arena_alloc(a, n, f->n_word * sizeof *f->marks, 64);
    f->order = hth_arena_alloc(a, n, sizeof *f->order, 64);
    f->scratch = hth_arena_alloc(a, n, sizeof *f->scratch, 64);
    f->closest = hth_arena_alloc(a, n, sizeof *f->closest, 64);
    f->mean = hth_arena_alloc(a, n, sizeof *f->mean, 64);
    return !a->failed ? HEARTH_OK : hth_fail_memory(err, f->n_tok * f->n_byte, "the activity of a layer");
}

hearth_status hth_study_firing(hth_study_state *s, uint32_t i_layer, hearth_error *err)
{
    activity f = {.s = s, .layer = &s->out->layers[i_layer], .n_tok = s->out->n_tok};
    f.n_byte = hth_study_n_byte(f.layer);
    f.n_mark = f.n_tok < MAX_MARKS ? (uint32_t)f.n_tok : MAX_MARKS;
    f.n_word = (f.n_mark + WORD - 1) / WORD;
    hearth_status st = alloc_buffers(&f, err);
    if (st == HEARTH_OK) st = hth_spill_get(s->active, i_layer, 0, f.active, f.n_tok * f.n_byte, err);
    if (st == HEARTH_OK) {
        find_skew(&f);
        find_reuse(&f);
        mark_tokens(&f);
        find_runs(&f);
        st = hth_study_progress(s, 0, err);
    }
    if (st == HEARTH_OK) {
        f.layer->co_firing_gap = find_gap(&f);
        shuffle_marks(&f);
        f.layer->gap_by_chance = find_gap(&f);
        st = hth_study_progress(s, 1, err);
    }
    hth_arena_free(&f.arena);
    return st;
}
