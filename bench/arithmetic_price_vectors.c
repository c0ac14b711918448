/* Attention, softmax, norm and SiLU: settled, settled with other loops, free. */
#include "arithmetic_price.h"

#include "base/alloc.h"
#include "base/bits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_HEAD = 8, MAX_POS = 4096, MAX_D = 128, N = 4096 };

typedef struct vector_run {
    price_attend_fn *attend; /* NULL: the kernel of the table, over caches in its layout */
    hth_kernels table;
    hth_softmax_fn *softmax;
    hth_rms_norm_fn *rms_norm;
    hth_activate_fn *silu;
    price_attend job[N_HEAD];
    hth_attn settled[N_HEAD];
    float *a, *b, *y;
} vector_run;

static void run_attend(void *arg)
{
    const vector_run *r = arg;
    for (int i = 0; i < N_HEAD; i++) {
        if (r->attend) r->attend(&r->job[i]);
        else hth_attn_all_splits(&r->table, HEARTH_KV_F16, &r->settled[i], r->job[i].y);
    }
}

static void run_softmax(void *arg)
{
    const vector_run *r = arg;
    memcpy(r->y, r->a, N * sizeof *r->y);
    r->softmax(r->y, N);
}

static void run_rms_norm(void *arg)
{
    const vector_run *r = arg;
    r->rms_norm(r->a, r->b, N, 1.0f / N, 1e-5f, r->y);
}

static void run_silu(void *arg)
{
    const vector_run *r = arg;
    r->silu(r->a, r->b, N, r->y);
}

static uint64_t seed = 3;

static float random_float(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static float q[N_HEAD * MAX_D], scratch[MAX_D], y[N_HEAD * MAX_D], z[N_HEAD * MAX_D];

static double distance(const float *a, const float *b, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)a[i] - (double)b[i];
        error += e * e, size += (double)a[i] * (double)a[i];
    }
    return sqrt(error / size);
}

/* Where the caches of the kernel's layout lie: as large as k and v. */
static uint8_t *settled_k, *settled_v;
static float settled_scratch[HTH_ATTN_SPLIT + 32 * MAX_D];

static void fill_settled(const hth_kernels *table, const price_attend *job, uint8_t *keys, uint8_t *values)
{
    float row[MAX_D];
    for (size_t p = 0; p < job->n_pos; p++) {
        for (size_t i = 0; i < job->d_head; i++) row[i] = hth_f16_to_f32(job->k[p * job->d_head + i]);
        hth_kv_layout_put_key(table, HEARTH_KV_F16, keys, job->d_head, p, row);
        for (size_t i = 0; i < job->d_head; i++) row[i] = hth_f16_to_f32(job->v[p * job->d_head + i]);
        hth_kv_layout_put_value(table, HEARTH_KV_F16, values, job->d_head, p, row);
    }
}

static void set_jobs(vector_run *r, const uint16_t *k, const uint16_t *v, size_t n_pos, size_t d)
{
    for (size_t i = 0; i < N_HEAD; i++) {
        size_t at = i * n_pos * d;
        r->job[i] = (price_attend){.q = q + i * d,
                                   .k = k + at,
                                   .v = v + at,
                                   .n_pos = n_pos,
                                   .d_head = d,
                                   .scale = 0.3f,
                                   .scratch = scratch,
                                   .y = y + i * d};
        r->settled[i] = (hth_attn){.k = settled_k + 2 * at,
                                     .v = settled_v + 2 * at,
                                     .d_head = d,
                                     .n_row = 1,
                                     .n_head = 1,
                                     .n_pos = n_pos,
                                     .q = q + i * d,
                                     .q_stride = d,
                                     .scale = 0.3f,
                                     .scratch = settled_scratch,
                                     .out_stride = 1};
        if (!r->attend) fill_settled(&r->table, &r->job[i], settled_k + 2 * at, settled_v + 2 * at);
    }
}

static void attention_table(const price_level *levels, size_t n_round)
{
    size_t n_kv = (size_t)N_HEAD * MAX_POS * MAX_D;
    uint16_t *k = hth_alloc(n_kv, 2), *v = hth_alloc(n_kv, 2);
    settled_k = hth_alloc(n_kv, 2), settled_v = hth_alloc(n_kv, 2);
    if (!k || !v || !settled_k || !settled_v) return;
    for (size_t i = 0; i < n_kv; i++)
        k[i] = hth_f32_to_f16(random_float()), v[i] = hth_f32_to_f16(random_float());
    for (size_t i = 0; i < N_HEAD * MAX_D; i++) q[i] = random_float();
    printf("\n### Attention, F16 cache, %d heads, GB/s of keys and values\n\n| | settled | best free | its "
           "form | price | "
           "settled bits, other loops | price |\n|---|---|---|---|---|---|---|\n",
           N_HEAD);
    for (size_t d = 64; d <= 128; d *= 2)
        for (size_t n_pos = 256; n_pos <= MAX_POS; n_pos *= 4) {
            vector_run runs[3 * PRICE_N_LEVEL] = {{0}};
            price_variant var[3 * PRICE_N_LEVEL];
            for (int i = 0; i < 3 * PRICE_N_LEVEL; i++) {
                const price_level *l = &levels[i / 3];
                price_table(i / 3, &runs[i].table);
                if (i % 3 > 0) runs[i].attend = i % 3 == 1 ? l->attend_free : l->attend_same_bits;
                set_jobs(&runs[i], k, v, n_pos, d);
                run_attend(&runs[i]);
                if (i == 0) memcpy(z, y, sizeof z);
                if (i % 3 != 1 && memcmp(z, y, N_HEAD * d * sizeof *y))
                    printf("WRONG: bits of form %d differ\n", i);
                if (!(distance(z, y, N_HEAD * d) < 1e-4)) printf("WRONG: form %d is far off\n", i);
                var[i] = (price_variant){i % 3 == 1 ? "fma" : "settled",          run_attend, &runs[i], NULL,
                                         (double)(N_HEAD * n_pos * d * 4) * 1e-9, 0,          {0}};
            }
            price_measure(var, 3 * PRICE_N_LEVEL, n_round);
            for (int l = 0; l < PRICE_N_LEVEL; l++) {
                const price_variant *s = &var[3 * l];
                printf("| %s, %zu dims, %zu positions | %s | %s | fma | %+.0f %% | %s | %+.0f %% |\n",
                       price_level_name[l], d, n_pos, price_text(s, n_round), price_text(s + 1, n_round),
                       100 * (price_ratio(s, s + 1, n_round) - 1), price_text(s + 2, n_round),
                       100 * (price_ratio(s + 2, s + 1, n_round) - 1));
            }
            fflush(stdout);
        }
    hth_free(k), hth_free(v), hth_free(settled_k), hth_free(settled_v);
}

static void vector_table(const price_level *levels, size_t n_round)
{
    static float a[N], b[N], out[N], other[N];
    static const char *const names[] = {"softmax", "rms_norm", "silu"};
    void (*const runs_of[])(void *) = {run_softmax, run_rms_norm, run_silu};
    for (int i = 0; i < N; i++) a[i] = 8 * random_float(), b[i] = random_float();
    printf("\n### Vectors of %d, G elements/s\n\n| | settled | best free | its form | price "
           "|\n|---|---|---|---|---|\n",
           N);
    for (int f = 0; f < 3; f++)
        for (int l = 0; l < PRICE_N_LEVEL; l++) {
            hth_kernels t;
            price_table(l, &t);
            vector_run runs[2] = {{.softmax = t.softmax,
                                   .rms_norm = t.rms_norm,
                                   .silu = t.activate[HTH_ACTIVATION_SILU],
                                   .a = a,
                                   .b = b,
                                   .y = out},
                                  {.softmax = levels[l].softmax,
                                   .rms_norm = levels[l].rms_norm,
                                   .silu = levels[l].silu,
                                   .a = a,
                                   .b = b,
                                   .y = other}};
            price_variant v[2];
            for (int i = 0; i < 2; i++)
                v[i] = (price_variant){i ? "fma" : "settled", runs_of[f], &runs[i], NULL, N * 1e-9, 0, {0}};
            price_measure(v, 2, n_round);
            if (!(distance(out, other, N) < 1e-5)) printf("WRONG: %s is far off\n", names[f]);
            char what[64];
            snprintf(what, sizeof what, "%s, %s", names[f], price_level_name[l]);
            price_line(what, v, 2, n_round);
        }
}

void price_vector_tables(const price_level *levels, size_t n_round)
{
    attention_table(levels, n_round);
    vector_table(levels, n_round);
}
