/* What the files of hearth bench share: the samples of its tests, and how they are shown. */
#ifndef HEARTH_APPS_CLI_BENCH_H
#define HEARTH_APPS_CLI_BENCH_H

#include "common/options.h"
#include "measure/fire.h"
#include "measure/peaks.h"
#include "measure/work.h"

#include <hearth/hearth.h>

/* A prompt, or tokens one by one, for one session or for several stepped together. */
typedef struct bench_test {
    uint64_t n_prompt, n_predict;  /* one of them is 0 */
    uint32_t n_sequence;           /* 0: the session alone, not in a batch */
    double *rate;                  /* tokens per second of all sequences, by sample */
    double *memory;                /* bytes per second that memory gave before it */
    double *peak[HTH_N_PEAK_KIND]; /* multiply-adds per second that the cores gave before it */
    uint64_t *digest;              /* [n_sequence] of the logits after the last token */
    uint64_t kv_bytes;             /* that a generated token reads of its cache, on the average */
    hth_work work;                 /* of one prompt */
} bench_test;

/* Memory that is read to learn its bandwidth: more than caches hold. */
enum { BENCH_REGION_SIZE = 512 << 20 };

/* What an approximation costs: the logits behind a prompt, against those without it. */
typedef struct bench_price {
    uint64_t n_prompt; /* 0: no approximation whose price is known */
    double difference; /* the largest of a logit */
    double range;      /* between the largest and the smallest exact logit */
} bench_price;

enum { BENCH_MAX_TEST = OPTION_LIST_MAX * (OPTION_LIST_MAX + 2) }; /* lengths, times sequences */

typedef struct bench {
    hearth_session *session;
    hearth_batch *batch;        /* of n_row rows; NULL without --parallel */
    hearth_session **sequences; /* [n_sequence], stepped by the batch */
    uint32_t n_sequence;        /* the largest of --parallel; 0: none */
    uint32_t n_row;             /* of the batch */
    hearth_model_info info;
    bench_test tests[BENCH_MAX_TEST];
    size_t n_test, n_repeat;
    uint64_t depth;  /* tokens in the cache before those that are generated */
    int32_t *prompt; /* the longest of them */
    bool fires; /* neurons by lists that were drawn */
    hth_fire_spec fire_spec;
    hth_fire *fire;
    bool bf16_dot;
    bench_price price; /* of bf16_dot */
    size_t n_batch;    /* tokens of a prompt between two looks at Ctrl-C */
} bench;

/* bench_report.c */
void bench_print_table(const bench *b);
void bench_print_json(const bench *b);

/* bench_limits.c: measures the machine without a model; the exit status. */
int bench_limits(const args *a);

#endif
