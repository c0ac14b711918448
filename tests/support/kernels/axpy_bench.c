/* Somewhat over one gibibyte of rows of 4096 outputs; every round has lists of its own, which all kernels and a
 * plain loop take in turn. Figures of one run can be compared with each other, not with those of another hour. */
#include "support/kernels/bench.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "support/kernels/axpy_case.h"

enum { N_ROUND = 5, N_OUT = 4096, GROUP = 256 };
static const size_t weight_size = (size_t)17 << 26;

typedef struct {
    hth_cpu level; /* GENERIC: only load */
    double seconds[N_ROUND], bytes[N_ROUND];
} entry;

typedef struct bench {
    uint8_t *w;
    int32_t *list;
    float *h;
    int32_t sums[N_OUT], offsets[N_OUT];
    float chain[N_OUT], y[N_OUT];
    int64_t wide[N_OUT];
} bench;

static uint64_t sink;

/* One value of every cache line, with the prefetch that the kernels have too. */
static void load_only(const hth_axpy_job *job)
{
    uint64_t any = 0;
    for (size_t i = 0; i < job->n; i++) {
        const uint8_t *row = job->w + (size_t)job->list[i] * job->row_size;
        const uint8_t *ahead = job->w + (size_t)job->list[i + 8 < job->n ? i + 8 : i] * job->row_size;
        for (size_t at = 0; at + 64 <= job->row_size; at += 64) {
            uint64_t v;
            __builtin_prefetch(ahead + at, 0, 3);
            memcpy(&v, row + at, sizeof v);
            any |= v;
        }
    }
    sink += any;
}

/* As a worker does: groups of 256 rows in calls of their own, floats flushed after each. */
static void compute(const hth_kernels *k, hth_type type, bench *b, hth_axpy_job job)
{
    size_t n = job.n, held = 0;
    for (size_t i = 0; i < n; i += job.n) {
        int32_t end = (job.list[0] / GROUP + 1) * GROUP;
        for (job.n = 0; i + job.n < n && job.list[job.n] < end; job.n++) {
        }
        job.n_prefetch = n - i - job.n;
        k->axpy[type](&job);
        held += job.n;
        if (!rows_quantised(type)) k->axpy_flush_chain(N_OUT, b->chain, b->wide);
        else if (held + GROUP > hth_axpy_limit(type) || job.n_prefetch == 0)
            k->axpy_flush(type, N_OUT, job.scale, b->sums, b->offsets, b->wide), held = 0;
        job.list += job.n, job.h += job.n;
    }
    hth_axpy_finish(b->wide, N_OUT, b->y);
}

/* Keeps `share` of the rows, in runs of `run`. */
static size_t fill_list(bench *b, test_random *r, size_t n_row, double share, size_t run)
{
    size_t n = 0;
    for (size_t i = 0; i < n_row; i += run) {
        if ((double)(test_random_next(r) >> 11) * 0x1p-53 >= share) continue;
        for (size_t k = i; k < i + run && k < n_row; k++) {
            b->h[n] = test_random_float(r);
            b->list[n++] = (int32_t)k;
        }
    }
    return n;
}

static void measure(entry *e, int round, hth_type type, bench *b, hth_axpy_job job)
{
    hth_kernels k = proof_kernels(e->level);
    uint64_t start = hth_clock_ns();
    if (e->level == HTH_CPU_GENERIC) load_only(&job);
    else compute(&k, type, b, job);
    e->seconds[round] = (double)(hth_clock_ns() - start) * 1e-9;
    e->bytes[round] = (double)(job.n * job.row_size);
}

static double print(const char *name, entry *e, double limit)
{
    double rate[N_ROUND];
    for (int i = 0; i < N_ROUND; i++) rate[i] = e->bytes[i] * 1e-9 / e->seconds[i];
    qsort(rate, N_ROUND, sizeof *rate, bench_by_size);
    printf("  %-10s %7.2f (%.2f-%.2f)", name, rate[N_ROUND / 2], rate[0], rate[N_ROUND - 1]);
    if (limit > 0) printf(" %4.0f %%", 100 * rate[N_ROUND / 2] / limit);
    return rate[N_ROUND / 2];
}

static void run_type(bench *b, test_random *r, hth_type type)
{
    static const struct {
        double share;
        size_t run;
    } shapes[] = {{1, 1}, {0.5, 1}, {0.1, 1}, {0.1, 64}, {0.05, 1}, {0.05, 64}};
    hth_cpu levels[PROOF_MAX_LEVEL];
    entry entries[1 + PROOF_MAX_LEVEL] = {{.level = HTH_CPU_GENERIC}};
    int n = 1 + proof_levels(levels);
    hth_axpy_job job = {.w = b->w, .row_size = down_bytes(type, N_OUT), .n_out = N_OUT, .list = b->list, .h = b->h};
    job.sums = b->sums, job.offsets = b->offsets, job.chain = b->chain;
    job.scale = hth_axpy_scale(&(float){1}, 1, 2 * hth_axpy_absmax_scale(type, b->w, N_OUT), -100);
    for (int l = 1; l < n; l++) entries[l].level = levels[l - 1];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int round = 0; round < N_ROUND; round++) {
            job.n = fill_list(b, r, weight_size / job.row_size, shapes[s].share, shapes[s].run);
            for (int i = 0; i < n; i++) measure(&entries[(i + round) % n], round, type, b, job);
        }
        printf("%-6s %3.0f %% %-6s", rows_type_name(type), 100 * (1 - shapes[s].share),
               s == 0               ? ""
               : shapes[s].run == 1 ? "random"
                                    : "runs");
        double limit = print("load", &entries[0], 0);
        for (int l = 1; l < n; l++) print(hth_cpu_name(levels[l - 1]), &entries[l], limit);
        printf("\n");
        fflush(stdout);
    }
}

int down_bench(const char *filter)
{
    test_random r = proof_random();
    bench *b = hth_alloc(1, sizeof *b);
    if (!b) return 1;
    size_t n_row = weight_size / 1024;
    b->w = hth_pages_alloc(weight_size), b->list = hth_alloc(n_row, sizeof *b->list),
    b->h = hth_alloc(n_row, sizeof *b->h);
    if (!b->w || !b->list || !b->h) return 1;
    /* Bytes as in rows_bench.c: ordinary floats, scales and exponents at every place. */
    for (size_t i = 0; i < weight_size; i += 8) {
        uint64_t bits = (test_random_next(&r) & 0x077f077f077f077fu) + 0x3840384038403840u;
        memcpy(b->w + i, &bits, 8);
    }
    printf("GB/s of firing rows, %d outputs, one thread\n", N_OUT);
    for (int t = 0; t < ROWS_N_FULL; t++)
        if (strstr(rows_type_name(rows_types[t]), filter)) run_type(b, &r, rows_types[t]);
    hth_pages_free(b->w, weight_size);
    hth_free(b->list), hth_free(b->h), hth_free(b);
    return 0;
}
