/* Attention over caches larger than what stays near the core, every type and level. The
 * layers of a model follow one another, so that each pass reads fresh memory. The thread's
 * own time counts, so that other programs disturb through caches and memory only. */
#include "support/kernels/bench.h"

#include "base/alloc.h"
#include "support/kernels/attn_case.h"
#include "support/kernels/proof.h"

#include <time.h>

enum {
    N_ROUND = 7,
    MAX_FORM = 1 + HTH_N_KV_TYPE * (1 + PROOF_MAX_LEVEL),
    MAX_ROW = 16,
    MAX_HEAD = 4,
    MAX_D = 128,
    MAX_PAGE = 16384 / HTH_KV_PAGE
};

typedef struct bench_shape {
    const char *name;
    size_t n_layer, n_kv, n_head, n_row, d, n_pos, n_pass;
} bench_shape;

static const bench_shape shapes[] = {
    {"1b, 2048 positions", 8, 8, 4, 1, 64, 2048, 1},
    {"1b, 16384 positions", 2, 8, 4, 1, 64, 16384, 1},
    {"1b, one split from cache", 1, 1, 4, 1, 64, 256, 1000},
    {"7b, 2048 positions", 4, 8, 1, 1, 128, 2048, 1},
    {"1b, 512 positions, 16 rows", 4, 8, 4, 16, 64, 512, 1},
    {"1b, 4096 positions, 16 rows", 1, 8, 4, 16, 64, 4096, 1},
};

static float q[MAX_ROW * MAX_HEAD * MAX_D], y[MAX_ROW * MAX_HEAD * MAX_D],
    q_d[MAX_ROW * MAX_HEAD * MAX_D / 32];
static int8_t rounded[MAX_ROW * MAX_HEAD * MAX_D];
static int32_t q_sum[MAX_ROW * MAX_HEAD * MAX_D / 32];
static float *scratch;
static volatile uint64_t sink;

static const uint8_t *k_pages[MAX_PAGE], *v_pages[MAX_PAGE];

/* All keys and values of the shape, once. */
static void pass(const hth_kernels *k, hearth_kv_type type, const bench_shape *s, const uint8_t *memory)
{
    size_t head = attend_cache_size(type, s->d, s->n_pos);
    if (type == HEARTH_KV_F16) hth_attn_round_queries(q, s->n_row * s->n_head * s->d);
    hth_attn job = {.d_head = s->d, .n_row = s->n_row, .n_head = s->n_head, .n_pos = s->n_pos - s->n_row + 1,
                    .q = q, .q_q8 = {.q = rounded, .d = q_d, .sum = q_sum}, .q_stride = s->n_head * s->d,
                    .scale = 0.1f, .scratch = scratch, .out_stride = s->n_head};
    for (size_t i = 0; i < s->n_layer * s->n_kv; i++, memory += 2 * head) {
        attend_page_table(type, s->d, s->n_pos, memory, k_pages);
        attend_page_table(type, s->d, s->n_pos, memory + head, v_pages);
        job.k_pages = k_pages, job.v_pages = v_pages;
        hth_attn_all_splits(k, type, &job, NULL, y);
    }
}

static void load_only(const uint8_t *memory, size_t size)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i += 64) {
        __builtin_prefetch(memory + i + 4096);
        sum += *(const uint64_t *)(const void *)(memory + i);
    }
    sink = sum;
}

static uint64_t own_time_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void print_form(const bench_shape *s, const char *type, const char *level, double *rates, double bytes,
                       double limit)
{
    qsort(rates, N_ROUND, sizeof *rates, bench_by_size);
    double rate = rates[N_ROUND / 2],
           products = (double)(s->n_layer * s->n_kv * s->n_head * s->n_row * s->n_pos * s->d) * 2;
    printf("%-28s %-5s %-8s %6.2f (%.2f-%.2f) GB/s %4.0f %% %6.1f G/s\n", s->name, type, level, rate,
           rates[0], rates[N_ROUND - 1], 100 * rate / limit, products / (bytes / rate));
}

static void bench_one(const bench_shape *s)
{
    static const char *const types[HTH_N_KV_TYPE] = {"f16", "f32", "q8_0"};
    hth_cpu levels[1 + PROOF_MAX_LEVEL] = {HTH_CPU_GENERIC};
    double rates[MAX_FORM][N_ROUND], bytes[HTH_N_KV_TYPE];
    int n_level = 1 + proof_levels(levels + 1), skip = n_level > 1; /* the reference alone is no use */
    uint8_t *memory[HTH_N_KV_TYPE];
    hth_kernels tables[1 + PROOF_MAX_LEVEL];
    for (int l = 0; l < n_level; l++) hth_kernels_init(&tables[l], levels[l]);
    FREED float *row = malloc(s->d * sizeof *row);
    test_random r = {5};
    for (int t = 0; t < HTH_N_KV_TYPE; t++) {
        size_t head = attend_cache_size((hearth_kv_type)t, s->d, s->n_pos), n = s->n_layer * s->n_kv;
        bytes[t] = (double)(2 * n * head);
        memory[t] = hth_pages_alloc(2 * n * head);
        for (size_t p = 0; p < s->n_pos; p++) {
            proof_fill_f32(&r, PROOF_PLAIN, row, s->d);
            for (size_t i = 0; i < n; i++) {
                hth_kv_layout_put_key(&tables[n_level - 1], (hearth_kv_type)t, memory[t] + 2 * i * head, s->d, p,
                                  row);
                hth_kv_layout_put_value(&tables[n_level - 1], (hearth_kv_type)t, memory[t] + (2 * i + 1) * head,
                                    s->d, p, row);
            }
        }
    }
    proof_fill_f32(&r, PROOF_PLAIN, q, s->n_row * s->n_head * s->d);
    tables[0].quant_act(q, s->n_row * s->n_head * s->d, rounded, q_d, q_sum);
    scratch = hth_pages_alloc(hth_attn_scratch(s->d, s->n_row * s->n_head) * sizeof *scratch);
    for (int round = 0; round < N_ROUND; round++) {
        uint64_t start = own_time_ns();
        for (size_t i = 0; i < s->n_pass; i++) load_only(memory[0], (size_t)bytes[0]);
        rates[0][round] = bytes[0] * (double)s->n_pass / (double)(own_time_ns() - start);
        for (int t = 0; t < HTH_N_KV_TYPE; t++)
            for (int l = skip; l < n_level; l++) {
                start = own_time_ns();
                for (size_t i = 0; i < s->n_pass; i++) pass(&tables[l], (hearth_kv_type)t, s, memory[t]);
                rates[1 + t * n_level + l][round] = bytes[t] * (double)s->n_pass / (double)(own_time_ns() - start);
            }
    }
    qsort(rates[0], N_ROUND, sizeof(double), bench_by_size);
    double limit = rates[0][N_ROUND / 2];
    printf("%-28s load only      %6.2f (%.2f-%.2f) GB/s\n", s->name, limit, rates[0][0], rates[0][N_ROUND - 1]);
    for (int t = 0; t < HTH_N_KV_TYPE; t++)
        for (int l = skip; l < n_level; l++)
            print_form(s, types[t], hth_cpu_name(levels[l]), rates[1 + t * n_level + l], bytes[t], limit);
    for (int t = 0; t < HTH_N_KV_TYPE; t++) hth_pages_free(memory[t], (size_t)bytes[t]);
    hth_pages_free(scratch, hth_attn_scratch(s->d, s->n_row * s->n_head) * sizeof *scratch);
}

int attend_bench(const char *filter)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strstr(shapes[i].name, filter)) bench_one(&shapes[i]);
    return 0;
}
