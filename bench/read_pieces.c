/* How fast plain loads read what one token of a mixture of experts reads: pieces of a region, a job of the pool for every
 * eight of them, in units of 64 KiB that are dealt to threads as rows of experts are.
 *
 *     read_pieces REGION_MIB PIECE_KIB [THREADS]...
 *
 * Beside it the same pieces in the order of their addresses, and the limit that bench prints, which reads 512 MiB. All three
 * in turn; GB/s, medians (min-max) of 9 samples. A piece is read line by line, with prefetch 8 KiB ahead. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sample_stats.h"
#include "measure/machine/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SAMPLE = 9, N_JOB = 64, N_PIECE = 8, LINE = 64, AHEAD = 8192, UNIT = 64 << 10, LIMIT_REGION = 512 << 20 };

typedef struct pieces {
    const uint8_t *memory, *at[N_PIECE];
    size_t size, piece, n_unit;
    uint32_t n_thread;
    uint64_t sum[HTH_POOL_MAX_THREAD];
} pieces;

static void read_unit(void *arg, size_t i_claim, uint32_t i_thread)
{
    pieces *p = arg;
    size_t i = hth_pool_block_index(i_claim, p->n_unit, p->n_thread), per_piece = p->piece / UNIT;
    const uint8_t *unit = p->at[i / per_piece] + i % per_piece * UNIT;
    uint64_t sum = 0, word;
    for (size_t at = 0; at < UNIT; at += LINE) {
        __builtin_prefetch(unit + at + AHEAD);
        memcpy(&word, unit + at, sizeof word);
        sum ^= word;
    }
    p->sum[i_thread] ^= sum;
}

static double read_all(pieces *p, hth_pool *pool, bool in_order)
{
    size_t n = p->size / p->piece, next = (size_t)rand() % n;
    uint64_t start = hth_clock_ns();
    for (int job = 0; job < N_JOB; job++) {
        for (int i = 0; i < N_PIECE; i++, next = in_order ? (next + 1) % n : (size_t)rand() % n)
            p->at[i] = p->memory + next * p->piece;
        hth_pool_run(pool, read_unit, p, p->n_unit);
    }
    return (double)N_JOB * N_PIECE * (double)p->piece / hth_clock_since(start) * 1e-9;
}

static void print_row(uint32_t n_thread, const char *name, const double *rate)
{
    hth_sample_stats s = hth_sample_stats_of(rate, N_SAMPLE);
    printf("| %u | %s | %.1f (%.1f-%.1f) |\n", n_thread, name, s.median, s.min, s.max);
}

static void measure(pieces *p, hth_bandwidth_probe *limit, hth_pool *pool)
{
    double rate[3][N_SAMPLE];
    p->n_thread = hth_pool_n_thread(pool);
    read_all(p, pool, true);
    for (int i = 0; i < N_SAMPLE; i++) {
        rate[0][i] = read_all(p, pool, false);
        rate[1][i] = read_all(p, pool, true);
        rate[2][i] = hth_bandwidth_measure(limit, pool) * 1e-9;
    }
    print_row(p->n_thread, "random order", rate[0]);
    print_row(p->n_thread, "in order", rate[1]);
    print_row(p->n_thread, "limit of bench", rate[2]);
}

int main(int argc, char **argv)
{
    size_t size = argc > 2 ? strtoull(argv[1], NULL, 10) << 20 : 0, piece = argc > 2 ? strtoull(argv[2], NULL, 10) << 10 : 0;
    hth_bandwidth_probe limit = {0};
    hth_pool *pool;
    hearth_error err;
    piece = piece / UNIT * UNIT;
    if (piece == 0 || size < piece) return fprintf(stderr, "usage: read_pieces REGION_MIB PIECE_KIB [THREADS]...\n"), 2;
    uint8_t *memory = hth_pages_alloc(size);
    if (!memory || hth_bandwidth_open(&limit, LIMIT_REGION, &err) != HEARTH_OK)
        return fprintf(stderr, "read_pieces: not enough memory\n"), 1;
    memset(memory, 1, size);
    printf("| threads | read | GB/s |\n|---|---|---|\n");
    for (int i = 3; i < argc || i == 3; i++) {
        pieces p = {.memory = memory, .size = size, .piece = piece, .n_unit = N_PIECE * piece / UNIT};
        uint32_t n = i < argc ? (uint32_t)strtoul(argv[i], NULL, 10) : hth_pool_default_threads(0);
        if (hth_pool_open(n, &pool, &err) != HEARTH_OK) return fprintf(stderr, "%s\n", err.message), 1;
        hth_pool_pin(pool);
        measure(&p, &limit, pool);
        hth_pool_close(pool);
    }
    hth_bandwidth_close(&limit);
    hth_pages_free(memory, size);
    return 0;
}
