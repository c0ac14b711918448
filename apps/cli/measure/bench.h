/* Declarations shared by the files of hearth bench: tests, samples and results. */
#ifndef HEARTH_APPS_CLI_MEASURE_BENCH_H
#define HEARTH_APPS_CLI_MEASURE_BENCH_H

#include "common/options/options.h"
#include "common/options/route_option.h"
#include "common/storage_forecast.h"
#include "measure/compare.h"
#include "measure/act_trace.h"
#include "measure/machine/peaks.h"
#include "measure/op_count.h"
#include "measure/route_trace.h"

#include <hearth/experimental.h>
#include <hearth/hearth.h>

/* A prompt, or tokens one by one, for one session or for several stepped together. */
typedef struct bench_test {
    uint64_t n_prompt, n_predict;  /* one of them is 0 */
    uint32_t n_sequence;           /* 0: the session alone, not in a batch */
    double *rate;                  /* tokens per second of all sequences, per sample */
    double *memory;                /* memory bandwidth before it, bytes per second */
    double *peak[HTH_N_PEAK_KIND]; /* compute peak before it, multiply-adds per second */
    hearth_storage_stats *storage; /* per sample: what was read */
    hearth_expert_stats *experts;  /* per sample: where the chosen experts were */
    uint64_t *digest;              /* [n_sequence] hash of the logits after the last token */
    uint64_t kv_bytes;             /* cache bytes that a generated token reads, on average */
    hth_op_count work;             /* operations of one prompt */
} bench_test;

/* Memory region for the bandwidth probe: larger than caches. */
enum { BENCH_REGION_SIZE = 512 << 20 };

/* Lists of active neurons instead of the selector's. */
typedef struct bench_traces {
    bool given;
    hth_act_trace_spec spec; /* parameters of random lists; both kinds use the seed */
    char profile[4096];      /* path of the profile to replay; "": random lists */
    uint32_t n_sample, first_sample;
    bool is_top_decile; /* samples mark the neurons among the largest tenth */
    hth_act_trace *lists;
} bench_traces;

/* Quality loss of the mode over a text, compared with the same file dense with an F16 cache. */
typedef struct bench_quality {
    const char *path; /* file of the text; NULL: not requested */
    char *text;
    size_t n_text;
    bool of_reference; /* the mode is the reference itself: no comparison */
    uint32_t n_ctx;    /* tokens of a chunk */
    uint64_t n_chunk; /* number of chunks, at most */
    hearth_session *mode, *reference;
    hth_compare *compare;
    hth_comparison result; /* n_done 0: unknown */
} bench_quality;

enum { BENCH_MAX_TEST = OPTION_LIST_MAX * (OPTION_LIST_MAX + 2) }; /* lengths times sequences */

typedef struct bench {
    const hearth_model *model;
    hearth_session *session;
    hearth_batch *batch;        /* batch of n_row tokens; NULL without --parallel */
    hearth_session **sequences; /* [n_sequence], stepped by the batch */
    uint32_t n_sequence;        /* the largest of --parallel; 0: none */
    uint32_t n_row;             /* tokens of the batch */
    hearth_model_info info;
    bench_test tests[BENCH_MAX_TEST];
    size_t n_test, n_repeat;
    uint64_t depth;  /* tokens in the cache before generation */
    int32_t *prompt; /* the longest of them */
    bench_traces traces;
    route_option route;
    hth_route_trace *route_lists; /* lists that are drawn by route */
    bool approximate; /* the mode is declared approximate */
    bool has_probes;  /* the limits of memory and cores were measured before each sample */
    bool by_sim_clock;     /* times are those of a simulated GPU's clock */
    bool lacks_values;     /* the GPU keeps its clock and computes nothing */
    bool bf16_dot;
    bool in_turn; /* weights are read, then computed, and none is guessed */
    const char *kv; /* type of the cache, by name */
    bench_quality quality;
    storage_expectation expected; /* forecast for the first test of generation, with a limit of memory */
    size_t n_batch; /* prompt tokens between two checks for Ctrl-C */
} bench;

/* bench_trace.c: parses --fire (0, or the exit status after an error was reported); opens the lists for a model
 * and sets them in its session (false: an error was reported). */
int bench_parse_traces(const char *text, bench_traces *traces);
bool bench_open_traces(bench *b, const hearth_model *model, uint32_t n_token);

/* bench_route.c: opens the lists of --route and sets them in the session (false: an error was reported). */
bool bench_open_route(bench *b, const hearth_model *model, uint64_t n_token);

/* bench_quality.c: reads and checks the text of -f before anything is timed; measures. False: an error was
 * reported. */
bool bench_open_quality(bench *b, const args *a, const hearth_model *model);
bool bench_measure_quality(bench *b, const args *a, const hearth_model *model);
void bench_close_quality(bench_quality *quality);

/* bench_report.c */
void bench_print_table(const bench *b);
void bench_print_json(const bench *b);

/* bench_machine.c: measures the machine without a model. Returns the exit status. */
int bench_limits(const args *a);

#endif
