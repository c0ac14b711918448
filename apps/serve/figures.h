/* Figures of requests: counted by the engine thread, read by the network thread for /metrics. */
#ifndef HEARTH_APPS_SERVE_FIGURES_H
#define HEARTH_APPS_SERVE_FIGURES_H

#include <hearth/hearth.h>
#include <stdatomic.h>
#include <stdio.h>

enum { FIGURES_N_BUCKET = 14 }; /* the last one has all above the largest bound */

typedef struct histogram {
    _Atomic uint64_t n[FIGURES_N_BUCKET]; /* not cumulative */
    _Atomic uint64_t sum;                 /* in units of the histogram */
} histogram;

typedef struct figures {
    histogram first_token, next_token,
        whole;                       /* nanoseconds: until the first token, between two, of a request */
    histogram n_prompt, n_generated; /* tokens of a request */
    _Atomic uint64_t n_prompt_token, n_cached_token, n_generated_token, n_preempted;
    _Atomic uint64_t n_drafted, n_accepted;
    _Atomic uint32_t n_page, n_page_used;
} figures;

void figures_add_seconds(histogram *h, uint64_t ns);
void figures_add_tokens(histogram *h, uint64_t n);
/* Adds the counters of a model, and its requests and pages, to those of others. */
void figures_add(hearth_scheduler_stats *sum, const hearth_scheduler_stats *s);
void figures_update(figures *f, const hearth_scheduler_stats *sum);
/* In the text format of Prometheus: what a figure is, and all of these. */
void figures_describe(FILE *out, const char *name, const char *type, const char *help);
void figures_write(const figures *f, FILE *out);

#endif
