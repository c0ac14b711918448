/* Speed of kernels, printed by --bench of their tests: medians with the smallest and largest value of interleaved rounds.
 * Each function measures what has `filter` in its name and returns an exit status. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_BENCH_H
#define HEARTH_TESTS_SUPPORT_KERNELS_BENCH_H

#include <stdlib.h>

/* GB/s of weights of every type and level, one thread, beside a loop that only loads. With commas, `filter` is a list
 * of names. */
int rows_bench(const char *filter);

/* GB/s of active rows of every type and level, one thread, at 0, 50, 90 and 95 % sparsity, beside a loop that only
 * loads the same rows. */
int down_bench(const char *filter);

/* Decode with the heads of llama-1b (8 KV heads of 64, 4 queries each) and of llama-7b (8 of 128, 1 query) over long
 * caches, and 16 rows at once: GB/s of cache bytes, share of a loop that only loads them, G multiply-adds/s. */
int attend_bench(const char *filter);

/* Billions of elements per second of the vector kernels in cache, every level, the reference first. */
int vector_bench(const char *filter);

/* For qsort of doubles. */
static inline int bench_by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
