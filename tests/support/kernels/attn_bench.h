/* The speed of attention beside the limit of memory. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_ATTN_BENCH_H
#define HEARTH_TESTS_SUPPORT_KERNELS_ATTN_BENCH_H

/* Decode with the heads of llama-1b (8 KV heads of 64, 4 queries each) and of llama-7b
 * (8 of 128, 1 query) over long caches, and 16 rows at once: GB/s of cache bytes, share of
 * a loop that only loads the same bytes, G multiply-adds/s. `filter`: part of a line's name. */
int attend_bench(const char *filter);

#endif
