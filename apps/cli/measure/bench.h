/* What the files of hearth bench share: the samples of its tests, and how they are shown. */
#ifndef HEARTH_APPS_CLI_BENCH_H
#define HEARTH_APPS_CLI_BENCH_H

#include "common/options.h"
#include "measure/compare.h"
#include "measure/act_trace.h"
#include "measure/peaks.h"
#include "measure/op_count.h"

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
    hth_op_count work;             /* of one prompt */
} bench_test;

/* Memory that is read to learn its bandwidth: more than caches hold. */
enum { BENCH_REGION_SIZE = 512 << 20 };

/* Firing lists in place of those that the model finds. */
typedef struct bench_traces {
    bool given;
    hth_act_trace_spec spec; /* of lists that are drawn; the seed is of both kinds */
    char profile[4096];      /* path of the one that is replayed; "": they are drawn */
    uint32_t n_sample, first_sample;
    bool marks_tops; /* a sample says who was among the largest tenth */
    hth_act_trace *lists;
} bench_traces;

/* What the mode costs over a text, against the same file dense with an F16 cache. */
typedef struct bench_quality {
    const char *path; /* of the text; NULL: nobody asked */
    char *text;
    size_t n_text;
    bool of_reference; /* the mode is the reference itself: nothing is compared */
    uint32_t n_ctx;    /* tokens of a window */
    uint64_t n_window; /* at most */
    hearth_session *mode, *reference;
    hth_compare *compare;
    hth_comparison result; /* n_done 0: not known */
} bench_quality;

enum { BENCH_MAX_TEST = OPTION_LIST_MAX * (OPTION_LIST_MAX + 2) }; /* lengths, times sequences */

typedef struct bench {
    const hearth_model *model;
    hearth_session *session;
    hearth_batch *batch;        /* of n_tok rows; NULL without --parallel */
    hearth_session **sequences; /* [n_sequence], stepped by the batch */
    uint32_t n_sequence;        /* the largest of --parallel; 0: none */
    uint32_t n_row;             /* of the batch */
    hearth_model_info info;
    bench_test tests[BENCH_MAX_TEST];
    size_t n_test, n_repeat;
    uint64_t depth;  /* tokens in the cache before those that are generated */
    int32_t *prompt; /* the longest of them */
    bench_traces fires;
    bool approximate; /* the mode says so of itself */
    bool by_card;     /* seconds are those of a simulated card's clock */
    bool bf16_dot;
    const char *kv; /* type of the cache, by name */
    bench_quality price;
    size_t n_batch; /* tokens of a prompt between two looks at Ctrl-C */
} bench;

/* bench_trace.c: what --fire says (0, or the exit status after a message); and the lists of a model,
 * which its session then takes (false after a message). */
int bench_parse_fire(const char *text, bench_traces *fires);
bool bench_open_fire(bench *b, const hearth_model *model, uint32_t n_token);

/* bench_quality.c: reads the text of -f and sees whether it will do, before anything is timed; measures;
 * false after a message. */
bool bench_open_quality(bench *b, const args *a, const hearth_model *model);
bool bench_find_price(bench *b, const args *a, const hearth_model *model);
void bench_close_price(bench_quality *price);

/* bench_report.c */
void bench_print_table(const bench *b);
void bench_print_json(const bench *b);

/* bench_machine.c: measures the machine without a model; the exit status. */
int bench_limits(const args *a);

#endif
