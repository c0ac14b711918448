/* --stats live: figures of a model at work, on one line of the terminal. */
#ifndef HEARTH_APPS_COMMON_LIVE_STATS_H
#define HEARTH_APPS_COMMON_LIVE_STATS_H

#include "common/options/options.h"

#include <hearth/experimental.h>
#include <hearth/hearth.h>

#define STATS_OPTION(HELP) OPT_CHOICE("stats", 0, "[live]", "live", HELP, .flags = OPTION_BARE)

/* Counters at a time. For each layer part[i] of whole[i]: experts or pieces that were in memory, of those that were
 * asked for; or neurons that were active, in tokens. */
typedef struct live_sample {
    uint64_t time_ns, n_token;
    hearth_storage_stats storage;
    double *part, *whole; /* [n_layer] */
} live_sample;

typedef struct live_stats {
    bool on;
    const hearth_model *model;
    const hearth_session *session;
    uint32_t n_layer;
    bool streamed, sparse; /* the bars of layers show cache hits, or active neurons */
    double *values;        /* holds part and whole of the three samples */
    live_sample from, since, now; /* figures are those from `from` on, one or two seconds ago */
    char text[800];
} live_stats;

/* Before the text begins, at the start of a line. Without --stats live, or without a terminal for it, nothing is shown,
 * and the other functions do nothing. */
void live_stats_open(live_stats *s, const args *a, const hearth_model *model, hearth_session *session);
/* Before the first token is generated, after each one, and after the last one, which frees what was allocated. */
void live_stats_begin(live_stats *s);
void live_stats_token(live_stats *s);
void live_stats_end(live_stats *s);

#endif
