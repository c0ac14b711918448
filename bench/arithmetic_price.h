/* What the rules of docs/arithmetic.md cost: each kernel of the table beside the best
 * form of it that is free to fuse and to add in any order. Shared by the files
 * arithmetic_price*.c; a variant is one timed thing, and variants of one comparison
 * take turns, because neighbours on the machine come and go. */
#ifndef HTH_BENCH_ARITHMETIC_PRICE_H
#define HTH_BENCH_ARITHMETIC_PRICE_H

#include "base/cpu.h"
#include "kernels/attn.h"

enum { PRICE_MAX_ROUND = 15 };

typedef struct price_variant {
    const char *name;
    void (*run)(void *arg);
    void *arg;
    void (*before)(void *arg); /* NULL, or what must happen untimed first */
    double work;               /* units (GB, G multiply-adds) of one call */
    size_t n_call;             /* 0: chosen so that a timing takes some milliseconds */
    double rate[PRICE_MAX_ROUND];
} price_variant;

/* Times all variants in turn, n_round times. */
void price_measure(price_variant *v, size_t n, size_t n_round);
/* Median of the rates, and the median over rounds of rate[a] / rate[b]. */
double price_median(const price_variant *v, size_t n_round);
double price_ratio(const price_variant *a, const price_variant *b, size_t n_round);
/* The variant with the highest median; names with "settled" in them are not free and
 * never stand first. */
const price_variant *price_best(const price_variant *v, size_t n, size_t n_round);
/* "12.3 (11.9-12.5)", in one of a few static buffers. */
const char *price_text(const price_variant *v, size_t n_round);
/* One line of a table: | what | settled | best free, its name | price |. v[0] is the
 * settled form, the others are free. */
void price_line(const char *what, const price_variant *v, size_t n, size_t n_round);

/* Rows: free forms of one type at one level; each takes the job of the kernel. */
enum { PRICE_MAX_FREE = 5 };
typedef struct price_free {
    const char *name;
    hth_rows_fn *rows;
} price_free;

/* Neuron-major down: y[n_out] = sum over the list of h[i] * row list[i]; a row holds
 * n_out weights (a multiple of 256) in blocks of 32. */
typedef struct price_down {
    const uint8_t *w;
    size_t row_size, n_out;
    const int32_t *list; /* ascending */
    size_t n_list;
    const float *h; /* of list[i] */
    float scale;    /* 2^k of the integer form */
    int64_t *sums;  /* [n_out] */
    float *y;       /* [n_out] */
} price_down;

enum { PRICE_MAX_OUT = 4096 };

/* One query head over n_pos positions of F16 keys and values, [position][d_head]. */
typedef struct price_attend {
    const float *q;
    const uint16_t *k, *v;
    size_t n_pos, d_head;
    float scale;
    float *scratch; /* [d_head] */
    float *y;
} price_attend;
typedef void price_attend_fn(const price_attend *job);

typedef struct price_level {
    price_free decode[HTH_TYPE_LIMIT][PRICE_MAX_FREE];
    price_free tile[HTH_TYPE_LIMIT][PRICE_MAX_FREE];
    /* Adds the exact integer sums to job->sums. */
    void (*down_integer[HTH_TYPE_LIMIT])(const price_down *job);
    void (*down_free[HTH_TYPE_LIMIT][2])(const price_down *job);
    /* c = h d, then mul and add, in groups of 256 neurons that meet as Q31.32. */
    void (*down_groups[HTH_TYPE_LIMIT])(const price_down *job);
    price_attend_fn *attend_free, *attend_same_bits; /* same_bits: settled order, other loops */
    hth_softmax_fn *softmax;
    hth_rms_norm_fn *rms_norm;
    hth_activate_fn *silu;
} price_level;

void price_q4_0_avx512(price_level *l);
void price_q8_0_avx512(price_level *l);
void price_float_avx512(price_level *l);
void price_vector_avx512(price_level *l);
void price_q4_0_avx2(price_level *l);
void price_q8_0_avx2(price_level *l);
void price_float_avx2(price_level *l);
void price_vector_avx2(price_level *l);

/* The definition of the integer form, in C. */
void price_down_reference(hth_type type, const price_down *job);

/* Reads n bytes with prefetch; what it made of them goes where nobody can drop it. */
extern uint64_t price_sink;
void price_load_only(const uint8_t *p, size_t n);

/* The groups; each prints a Markdown table. */
void price_rows_tables(const price_level *levels, size_t n_round);
int price_down_tables(const price_level *levels, size_t n_round);
void price_vector_tables(const price_level *levels, size_t n_round);

/* The levels that are compared. */
enum { PRICE_AVX2, PRICE_AVX512, PRICE_N_LEVEL };
extern const char *const price_level_name[PRICE_N_LEVEL];
void price_table(int level, hth_kernels *k);

#endif
