/* The speed of the row kernels from memory, against a loop that only loads. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_ROWS_BENCH_H
#define HEARTH_TESTS_SUPPORT_KERNELS_ROWS_BENCH_H

/* Prints GB/s of weights of every type (whose name holds `filter`, or is in it where it has commas) and level, one
 * thread, rounds interleaved; median, least and most. Returns an exit status. */
int rows_bench(const char *filter);

#endif
