/* The speed of neuron-major down from memory, against a loop that only loads the same rows. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_AXPY_BENCH_H
#define HEARTH_TESTS_SUPPORT_KERNELS_AXPY_BENCH_H

/* Prints GB/s of active rows of every type (whose name holds `filter`) and level, one thread, at 0,
 * 50, 90 and 95 % sparsity; median, least and most. Returns an exit status. */
int down_bench(const char *filter);

#endif
