/* The speed of the vector kernels in cache, level against level. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_VECTOR_BENCH_H
#define HEARTH_TESTS_SUPPORT_KERNELS_VECTOR_BENCH_H

/* Prints billions of elements per second of every kernel (whose name holds `filter`)
 * and level, the reference first; rounds interleaved; median, least and most. */
int vector_bench(const char *filter);

#endif
