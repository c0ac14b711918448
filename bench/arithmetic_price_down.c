/* Neuron-major down: the all-integer form beside float forms, at several densities,
 * from memory; then its error, and the proof that order, partition and level do not
 * change it. */
#include "arithmetic_price.h"

#include "base/alloc.h"
#include "base/bits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_OUT = 4096, N_NEURON = 11008, MAX_LAYER = 4 };

/* ---- the definition ------------------------------------------------------------------------ */

/* To the nearest integer, ties to even, for |x| below 2^22. */
static int32_t round_even(float x) { return (int32_t)((x + 0x1.8p23f) - 0x1.8p23f); }

void price_down_reference(hth_type type, const price_down *job)
{
    size_t block_size = type == HTH_TYPE_Q4_0 ? 18 : 34;
    for (size_t i = 0; i < job->n_list; i++) {
        const uint8_t *row = job->w + (size_t)job->list[i] * job->row_size;
        float h = job->h[i] * job->scale;
        for (size_t o = 0; o < job->n_out; o++) {
            const uint8_t *block = row + o / 32 * block_size;
            size_t j = o % 32;
            int32_t q = type == HTH_TYPE_Q8_0 ? (int8_t)block[2 + j]
                        : j < 16              ? (block[2 + j] & 15) - 8
                                              : (block[2 + j - 16] >> 4) - 8;
            job->sums[o] += round_even(h * hth_f16_to_f32(hth_load_u16(block))) * q;
        }
    }
}

/* 2^k for the largest k with max|h| max|d| 2^k <= 32766, within -100..100. */
static float scale_for(float h_max, float d_max)
{
    float product = h_max * d_max;
    uint32_t bits = hth_bits_of(product);
    int e = (int)(bits >> 23) - 127, k = (bits & 0x7fffffu) > 0x7ffc00u ? 13 - e : 14 - e;
    k = k > 100 ? 100 : k < -100 ? -100 : k;
    return hth_float_of((uint32_t)(k + 127) << 23);
}

static float largest_h(const price_down *job)
{
    uint32_t top = 0;
    for (size_t i = 0; i < job->n_list; i++) {
        uint32_t bits = hth_bits_of(job->h[i]) & 0x7fffffffu;
        top = bits > top ? bits : top;
    }
    return hth_float_of(top);
}

/* ---- what is timed --------------------------------------------------------------------------- */

typedef struct down_run {
    void (*integer)(const price_down *job);
    void (*floats)(const price_down *job);
    hth_type type;
    size_t n_layer;
    float d_max;
    price_down job[MAX_LAYER];
} down_run;

static void finish_integer(price_down *job)
{
    for (size_t i = 0; i < job->n_out; i++) job->y[i] = (float)job->sums[i] * (1.0f / job->scale);
}

static void run_integer(down_run *r, price_down *job)
{
    memset(job->sums, 0, job->n_out * sizeof *job->sums);
    job->scale = scale_for(largest_h(job), r->d_max);
    r->integer(job);
    finish_integer(job);
}

/* Reads the rows of the list, eight rows ahead, as the kernels do. */
static void load_list(const price_down *job)
{
    uint64_t a = 0;
    for (size_t k = 0; k < job->n_list; k++) {
        const uint8_t *row = job->w + (size_t)job->list[k] * job->row_size;
        const uint8_t *ahead = job->w + (size_t)job->list[k + 8 < job->n_list ? k + 8 : k] * job->row_size;
        for (size_t at = 0; at + 64 <= job->row_size; at += 64) {
            uint64_t v[8];
            __builtin_prefetch(ahead + at, 0, 3);
            memcpy(v, row + at, sizeof v);
            a |= (v[0] | v[1]) | (v[2] | v[3]) | (v[4] | v[5]) | (v[6] | v[7]);
        }
    }
    price_sink += a;
}

static void run_down(void *arg)
{
    down_run *r = arg;
    for (size_t i = 0; i < r->n_layer; i++) {
        if (r->integer) run_integer(r, &r->job[i]);
        else if (r->floats) r->floats(&r->job[i]);
        else load_list(&r->job[i]);
    }
}

static void empty_caches(void *arg)
{
    const down_run *r = arg;
    for (size_t i = 0; i < r->n_layer; i++)
        for (size_t k = 0; k < r->job[i].n_list; k++) {
            const uint8_t *row = r->job[i].w + (size_t)r->job[i].list[k] * r->job[i].row_size;
            for (size_t at = 0; at < r->job[i].row_size; at += 64) __builtin_ia32_clflush(row + at);
        }
}

/* ---- data ---------------------------------------------------------------------------------------- */

static uint64_t seed = 7;

static uint64_t next_random(void)
{
    seed += 0x9E3779B97F4A7C15u;
    uint64_t z = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double uniform(void) { return (double)(next_random() >> 11) * 0x1p-53; }

static double gauss(void)
{
    double s = 0;
    for (int i = 0; i < 4; i++) s += uniform();
    return 1.7320508 * (s - 2); /* near enough */
}

typedef struct down_data {
    uint8_t *w;
    size_t row_size;
    int32_t list[MAX_LAYER][N_NEURON];
    float h[MAX_LAYER][N_NEURON];
    int64_t sums[N_OUT];
    float y[N_OUT];
} down_data;

static void fill_weights(down_data *d, hth_type type, size_t n_layer)
{
    size_t block_size = hth_type_find(type)->size;
    for (size_t at = 0; at < n_layer * N_NEURON * d->row_size; at += block_size) {
        uint64_t bits = next_random();
        for (size_t i = 2; i < block_size; i += 8) {
            uint64_t more = bits * (i + 1);
            memcpy(d->w + at + i, &more, 8);
        }
        hth_store_u16(d->w + at, (uint16_t)(0x1c00 + (bits >> 52) % 0x800)); /* 2^-8 to 2^-6 */
    }
}

/* Keeps `share` of the neurons of each layer, in runs of `run`; h is a product of two
 * halves of a normal distribution, as dReLU makes it. */
static size_t fill_lists(down_data *d, size_t n_layer, double share, int run, size_t n[MAX_LAYER])
{
    size_t total = 0;
    for (size_t l = 0; l < n_layer; l++) {
        n[l] = 0;
        for (int i = 0; i < N_NEURON; i += run) {
            if (uniform() >= share) continue;
            for (int k = i; k < i + run && k < N_NEURON; k++) {
                d->list[l][n[l]] = k;
                d->h[l][n[l]++] = (float)fabs(gauss() * gauss());
            }
        }
        total += n[l];
    }
    return total;
}

static price_down job_of(down_data *d, size_t layer, size_t n)
{
    return (price_down){d->w + layer * N_NEURON * d->row_size,
                        d->row_size,
                        N_OUT,
                        d->list[layer],
                        n,
                        d->h[layer],
                        1.0f,
                        d->sums,
                        d->y};
}

static void price_of(down_data *d, const price_level *levels, hth_type type, size_t n_layer, double share,
                     int run, size_t n_round)
{
    enum { PER = 4 };
    static down_run runs[1 + PRICE_N_LEVEL * PER];
    price_variant v[1 + PRICE_N_LEVEL * PER];
    size_t n_list[MAX_LAYER], n = 0, first[PRICE_N_LEVEL + 1],
                              total = fill_lists(d, n_layer, share, run, n_list);
    for (int l = 0; l < PRICE_N_LEVEL; l++) {
        first[l] = n;
        runs[n] = (down_run){.integer = levels[l].down_integer[type]}, v[n++].name = "integer";
        for (int i = 0; i < 2; i++)
            if (levels[l].down_free[type][i])
                runs[n] = (down_run){.floats = levels[l].down_free[type][i]},
                v[n++].name = i ? "converted" : "fma";
        runs[n] = (down_run){.floats = levels[l].down_groups[type]}, v[n++].name = "groups";
    }
    first[PRICE_N_LEVEL] = n;
    runs[n] = (down_run){0}, v[n++].name = "load only";
    for (size_t i = 0; i < n; i++) {
        runs[i].type = type, runs[i].n_layer = n_layer, runs[i].d_max = 0x1p-6f;
        for (size_t l = 0; l < n_layer; l++) runs[i].job[l] = job_of(d, l, n_list[l]);
        v[i] = (price_variant){
            v[i].name, run_down, &runs[i], empty_caches, (double)(total * d->row_size) * 1e-9, 0, {0}};
    }
    price_measure(v, n, n_round);
    for (int l = 0; l < PRICE_N_LEVEL; l++) {
        const price_variant *groups = &v[first[l + 1] - 1], *integer = &v[first[l]];
        const price_variant *best = price_best(integer + 1, (size_t)(groups - integer) - 1, n_round);
        printf("| %s, %s | %.0f %%%s | %s | %s (%s) | %+.0f %% | %s | %+.0f %% | %s |\n",
               hth_type_find(type)->name, price_level_name[l], 100 * (1 - share),
               share == 1 ? ""
               : run == 1 ? ", random"
                          : ", runs",
               price_text(integer, n_round), price_text(best, n_round), best->name,
               100 * (price_ratio(integer, best, n_round) - 1), price_text(groups, n_round),
               100 * (price_ratio(groups, best, n_round) - 1), price_text(&v[n - 1], n_round));
    }
    fflush(stdout);
}

/* ---- error ------------------------------------------------------------------------------------------- */

static double weight_at(hth_type type, const uint8_t *row, size_t o)
{
    const uint8_t *block = row + o / 32 * hth_type_find(type)->size;
    size_t j = o % 32;
    double d = (double)hth_f16_to_f32(hth_load_u16(block));
    if (type == HTH_TYPE_Q8_0) return d * (int8_t)block[2 + j];
    return d * (j < 16 ? (block[2 + j] & 15) - 8 : (block[2 + j - 16] >> 4) - 8);
}

static void exact(hth_type type, const price_down *job, double *y)
{
    for (size_t o = 0; o < N_OUT; o++) y[o] = 0;
    for (size_t i = 0; i < job->n_list; i++)
        for (size_t o = 0; o < N_OUT; o++)
            y[o] += (double)job->h[i] * weight_at(type, job->w + (size_t)job->list[i] * job->row_size, o);
}

static double relative_rms(const double *right, const float *y)
{
    double error = 0, size = 0;
    for (size_t o = 0; o < N_OUT; o++) {
        double e = (double)y[o] - right[o];
        error += e * e, size += right[o] * right[o];
    }
    return sqrt(error / size);
}

static void print_errors(down_data *d, const price_level *level, hth_type type, double share)
{
    static double right[N_OUT];
    size_t n[MAX_LAYER];
    fill_lists(d, 1, share, 1, n);
    price_down job = job_of(d, 0, n[0]);
    exact(type, &job, right);
    printf("| %s, %zu neurons |", hth_type_find(type)->name, n[0]);
    level->down_free[type][0](&job);
    printf(" %.1e |", relative_rms(right, job.y));
    level->down_groups[type](&job);
    printf(" %.1e |", relative_rms(right, job.y));
    for (float headroom = 1; headroom <= 8; headroom *= 2) {
        memset(job.sums, 0, sizeof d->sums);
        job.scale = scale_for(largest_h(&job) * headroom, 0x1p-6f);
        level->down_integer[type](&job);
        finish_integer(&job);
        printf(" %.1e |", relative_rms(right, job.y));
    }
    float original[N_NEURON];
    memcpy(original, d->h[0], sizeof original);
    for (size_t i = 0; i < n[0]; i += 32) { /* h to 8 bits per 32, then exact */
        float top = 0;
        for (size_t k = i; k < i + 32 && k < n[0]; k++) top = d->h[0][k] > top ? d->h[0][k] : top;
        for (size_t k = i; k < i + 32 && k < n[0]; k++)
            d->h[0][k] = top / 127 * (float)round_even(d->h[0][k] / top * 127);
    }
    static double rounded[N_OUT];
    exact(type, &job, rounded);
    for (size_t o = 0; o < N_OUT; o++) d->y[o] = (float)rounded[o];
    printf(" %.1e |\n", relative_rms(right, d->y));
}

/* ---- equality ------------------------------------------------------------------------------------------ */

/* Differing sums over cases of random shape: levels, a shuffled list, a random
 * partition whose parts are taken in any order. */
static size_t differing(down_data *d, const price_level *levels, hth_type type, int n_case, size_t *n_sum)
{
    static int64_t right[N_OUT];
    size_t wrong = 0;
    for (int c = 0; c < n_case; c++) {
        size_t n[MAX_LAYER];
        fill_lists(d, 1, c % 4 == 0 ? 1.0 : uniform() * uniform(), c % 3 ? 1 : 64, n);
        if (n[0] == 0) continue;
        float d_max = 0x1p-6f;
        for (int i = 0; i < 200; i++) { /* extremes among the scales and weights */
            static const uint16_t scales[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x2400, 0xa400, 0x0400};
            uint8_t *block = d->w + next_random() % (N_NEURON * d->row_size / hth_type_find(type)->size) *
                                        hth_type_find(type)->size;
            hth_store_u16(block, scales[next_random() % 7]);
            memset(block + 2, next_random() % 2 ? 0xff : 0x80, hth_type_find(type)->size - 2);
        }
        for (size_t i = 0; i < n[0]; i++) { /* and among h: both signs, tiny, equal to the largest */
            if (next_random() % 2) d->h[0][i] = -d->h[0][i];
            if (next_random() % 50 == 0) d->h[0][i] = (next_random() % 2 ? 1.0f : -1.0f) * 0x1p-140f;
            if (c % 8 == 0) d->h[0][i] = next_random() % 2 ? 3.0f : -3.0f;
        }
        price_down job = job_of(d, 0, n[0]);
        job.n_out = 256 * (1 + next_random() % 3);
        job.scale = scale_for(largest_h(&job), d_max);
        memset(right, 0, sizeof right);
        job.sums = right;
        price_down_reference(type, &job);
        job.sums = d->sums;
        for (int way = 0; way < 3; way++) {
            if (way == 1)
                for (size_t i = n[0] - 1; i > 0; i--) {
                    size_t k = next_random() % (i + 1);
                    int32_t row = d->list[0][i];
                    float h = d->h[0][i];
                    d->list[0][i] = d->list[0][k], d->list[0][k] = row;
                    d->h[0][i] = d->h[0][k], d->h[0][k] = h;
                }
            for (int l = 0; l < PRICE_N_LEVEL; l++) {
                memset(d->sums, 0, sizeof d->sums);
                for (size_t i = 0; i < n[0];) {
                    size_t part = way == 2 ? 1 + next_random() % 300 : n[0];
                    if (part > n[0] - i) part = n[0] - i;
                    price_down piece = job;
                    piece.list += i, piece.h += i, piece.n_list = part;
                    levels[way == 2 ? next_random() % PRICE_N_LEVEL : (size_t)l].down_integer[type](&piece);
                    i += part;
                }
                for (size_t o = 0; o < job.n_out; o++) wrong += d->sums[o] != right[o];
                *n_sum += job.n_out;
            }
        }
    }
    return wrong;
}

/* ---- the tables ------------------------------------------------------------------------------------------ */

int price_down_tables(const price_level *levels, size_t n_round)
{
    static const struct {
        double share;
        int run;
    } shapes[] = {{1, 1}, {0.5, 1}, {0.1, 1}, {0.1, 64}, {0.05, 1}, {0.05, 64}};
    static const hth_type types[] = {HTH_TYPE_Q4_0, HTH_TYPE_Q8_0};
    size_t n_sum = 0, wrong = 0;
    down_data *d = hth_alloc(1, sizeof *d);
    if (!d) return 1;
    for (int stage = 0; stage < 3; stage++) {
        if (stage == 0)
            printf("\n### Neuron-major down, %d outputs, %d neurons, from memory, GB/s of firing rows\n\n"
                   "| kernel | sparsity | integer | best free (form) | price | mul, add, groups of 256 | "
                   "price | load "
                   "only |\n|---|---|---|---|---|---|---|---|\n",
                   N_OUT, N_NEURON);
        if (stage == 1)
            printf("\n### Its error against double, relative rms (integer: k of the token, then with 1, 2, 3 "
                   "bits of "
                   "headroom)\n\n| | fma | groups | k of token | 2^1 | 2^2 | 2^3 | h to 8 bits per 32 "
                   "|\n|---|---|---|---"
                   "|---|---|---|---|\n");
        for (int t = 0; t < 2; t++) {
            size_t n_layer = stage > 0 ? 1 : types[t] == HTH_TYPE_Q4_0 ? 2 : 1, size;
            d->row_size = hth_type_row_size(types[t], N_OUT);
            size = n_layer * N_NEURON * d->row_size + 64;
            if (!(d->w = hth_pages_alloc(size))) return 1;
            fill_weights(d, types[t], n_layer);
            if (stage == 0)
                for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                    price_of(d, levels, types[t], n_layer, shapes[s].share, shapes[s].run, n_round);
            else if (stage == 1)
                print_errors(d, &levels[PRICE_AVX512], types[t], 0.5),
                    print_errors(d, &levels[PRICE_AVX512], types[t], 0.05);
            else wrong += differing(d, levels, types[t], 24, &n_sum);
            hth_pages_free(d->w, size);
        }
    }
    printf("\nInteger form: C, AVX2 and AVX-512, shuffled lists and random partitions over both levels: %zu "
           "of %zu sums "
           "differ.\n",
           wrong, n_sum);
    hth_free(d);
    return wrong != 0;
}
