/* Where each cluster of a dense model lives: the first n_hot clusters of a layer on the device, the others
 * with the CPU, both computed at once and added up in one merge; the last layers wholly with the CPU where
 * even their attention does not fit. Numbers in, numbers out (docs/plan.md): who fills them from a model,
 * a profile and a machine stands above. Seconds and bytes per second are doubles, bytes are integers;
 * equal inputs give equal bits. */
#ifndef HTH_PLAN_PLAN_H
#define HTH_PLAN_PLAN_H

#include "base/status.h"

#include <stdbool.h>

/* Neurons of a cluster, and what memory is counted in: a layer's bytes are rounded up to units. */
enum { HTH_PLAN_CLUSTER = 64, HTH_PLAN_UNIT = 64 << 10 };
/* In place of a number of clusters: attention too is with the CPU. Only the last layers may be. */
enum { HTH_PLAN_CPU = -1 };

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct hth_plan_layer {
    uint64_t attention_bytes; /* read by every token: attention's weights, norms, predictor */
    uint64_t kv_bytes;        /* keys and values of one position */
    uint64_t device_bytes;    /* of a cluster (rows of gate and up, and of down, of 64 neurons) there, */
    uint64_t cpu_bytes;       /* and in the CPU's layout */
    uint32_t n_cluster;
    uint32_t n_dispatch;     /* programs of a layer on the device before its neurons, */
    uint32_t n_dispatch_hot; /* and of the neurons there */
    const double *share;     /* [n_cluster] of its neurons, what a token reads: 0 to 1, in the file's order */
} hth_plan_layer;

typedef struct hth_plan_model {
    uint32_t n_layer;
    hth_plan_layer *layers;
    uint64_t head_bytes;
    uint64_t d2h_bytes, h2d_bytes; /* bytes that cross at a split layer, from the device and to it */
} hth_plan_model;

/* ---- the machine ----------------------------------------------------------------------------- */

/* Bytes of live rows a second, by the share of rows that live: straight between the knots, level below the
 * first. */
enum { HTH_PLAN_N_KNOT = 4 };
extern const double hth_plan_knots[HTH_PLAN_N_KNOT]; /* 0.05, 0.2, 0.5, 1 */
typedef struct hth_plan_rates {
    double at[HTH_PLAN_N_KNOT];
} hth_plan_rates;
double hth_plan_rate(const hth_plan_rates *rates, double share);

typedef struct hth_plan_machine {
    hth_plan_rates device, cpu; /* what is read whole goes at the last knot */
    double min_active_share;      /* the least share as which a cluster counts on the device: its masks are read */
    double sync_latency;            /* seconds: values to the host and back, with all waiting */
    double dispatch, merge; /* seconds: one program; taking in the CPU's part */
} hth_plan_machine;

/* ---- what is asked, and the answer ----------------------------------------------------------- */

typedef struct hth_plan_options {
    uint64_t vram;        /* bytes of the device, of which */
    uint64_t fixed_bytes; /* are taken where anything is there: room for a step, vectors, mailboxes */
    uint32_t n_ctx;       /* positions for which room is kept */
    uint32_t context;     /* positions behind the token whose seconds are made least; up to n_ctx */
} hth_plan_options;

typedef enum hth_plan_bottleneck {
    HTH_PLAN_BOUND_DEVICE = 0, /* bytes there */
    HTH_PLAN_BOUND_CPU,        /* bytes here */
    HTH_PLAN_BOUND_SYNC, /* the way between: the CPU's part ends last, and more than half of it is the way */
} hth_plan_bottleneck;

/* Expected seconds of one layer for one token. */
typedef struct hth_plan_time {
    double attention; /* on the device, with its programs */
    double device;    /* its neurons there */
    double cpu;       /* what is computed by the CPU */
    double sync;      /* the way between */
    double merge;
    double total; /* not their sum: both sides work at once */
    hth_plan_bottleneck bottleneck;
} hth_plan_time;

typedef struct hth_plan {
    uint32_t n_layer;
    uint32_t n_device; /* the first so many layers have their attention on the device; 0: nothing is there */
    bool head;         /* on the device */
    int32_t *n_hot;    /* [n_layer] clusters on the device, or HTH_PLAN_CPU */
    hth_plan_time *layers; /* [n_layer] at wish.context */
    uint64_t fixed_bytes, attention_bytes, kv_bytes, cluster_bytes, head_bytes; /* on the device, */
    uint64_t vram; /* and all of it, each layer rounded up to units: never above the wish */
    double head_seconds, transfer_seconds; /* of a token: the head; in and out of the device, once */
    double seconds;                      /* a token at wish.context, */
    double seconds_empty, seconds_full;  /* at context 0, and at n_ctx */
    double seconds_cpu;                  /* with nothing on the device */
    /* Of hth_plan_solve alone; 0 elsewhere. */
    double tps_per_gib;     /* tokens a second that 1 GiB more would add */
    uint64_t min_vram; /* with which anything is won; 0: it never is */
    uint64_t unit;       /* bytes in which it counted: HTH_PLAN_UNIT, or more for models beyond its bounds */
} hth_plan;
void hth_plan_free(hth_plan *plan);

/* ARGUMENT: a number out of its range, by name. Called by all below. */
hearth_status hth_plan_validate(const hth_plan_model *model, const hth_plan_machine *machine,
                             const hth_plan_options *options, hearth_error *err);

/* The fastest placement: exact up to 1e-6 of the seconds; among equals each layer, the last one first,
 * takes the fewest bytes. Bounded: 2^26 cells of 4 bytes and 2^33 steps, beyond which units double.
 * ARGUMENT, MEMORY. */
hearth_status hth_plan_solve(const hth_plan_model *model, const hth_plan_machine *machine,
                             const hth_plan_options *options, hth_plan *out, hearth_error *err);

/* The same question by prices: a price of a byte is bisected, each layer takes what is best for it at that
 * price, and what room is left is filled by the best change after another. Not exact; shares no step with
 * the solver. */
hearth_status hth_plan_lagrangian(const hth_plan_model *model, const hth_plan_machine *machine,
                                   const hth_plan_options *options, hth_plan *out, hearth_error *err);

/* What is to be beaten, the rule of the PowerInfer release: attention of all layers, then caches, then
 * head, then clusters of whatever layer by share alone, hottest first. Without room for all attention, the
 * first layers'. */
hearth_status hth_plan_greedy_baseline(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_options *options, hth_plan *out, hearth_error *err);

/* Fills a plan for any placement: n_hot[n_layer] is copied. ARGUMENT: CPU layers before others, too many
 * clusters, a head there without all layers, more bytes than wish.vram (which is said with the sum). */
hearth_status hth_plan_evaluate(const hth_plan_model *model, const hth_plan_machine *machine,
                             const hth_plan_options *options, const int32_t *n_hot, bool head, hth_plan *out,
                             hearth_error *err);

/* ---- stated shapes and cards: no weights, no measurement ------------------------------------- */

typedef struct hth_plan_shape {
    const char *name;
    uint32_t n_layer, d_model, d_ff, n_head, n_head_kv, n_vocab;
} hth_plan_shape;
extern const hth_plan_shape hth_plan_shapes[];
extern const size_t hth_plan_n_shape;

/* How neurons fire: a share `mean` of them for a token, and the hottest x of them make
 * min(x^exponent, x / mean) of the firings: none fires more often than always. */
typedef struct hth_plan_firing {
    const char *name;
    double mean, exponent;
    double predictor; /* bytes of the predictor over those of the network */
} hth_plan_firing;
extern const hth_plan_firing hth_plan_dense, hth_plan_sharp, hth_plan_flat;

/* share[n] of n clusters of equal size, hottest first. */
void hth_plan_shares(const hth_plan_firing *firing, uint32_t n, double *share);

/* A model of this shape in Q4_0 with a cache of F16. Freed by hth_plan_shape_free. */
hearth_status hth_plan_shape_model(const hth_plan_shape *shape, const hth_plan_firing *firing,
                                   hth_plan_model *out, hearth_error *err);
void hth_plan_shape_free(hth_plan_model *model);

/* The way between device and host, in seconds and bytes a second. */
typedef struct hth_plan_link {
    double submit, wake; /* the host hands work over; the host notices */
    double latency;      /* of the bus, each way */
    double d2h_rate, h2d_rate;
    double jitter; /* each crossing takes up to this much longer, evenly spread */
} hth_plan_link;

typedef struct hth_plan_card {
    const char *name;
    uint64_t vram;
    hth_plan_machine machine; /* .hand is left to hth_plan_probe */
    hth_plan_link link;
} hth_plan_card;
extern const hth_plan_card hth_plan_cards[];
extern const size_t hth_plan_n_card;

/* ---- simulation: virtual time, no device ----------------------------------------------------- */

/* The median of 200 crossings there and back: what a probe of a machine would write to machine.hand. */
double hth_plan_probe(const hth_plan_link *link, uint64_t mail_down, uint64_t mail_up, uint64_t seed);

typedef struct hth_plan_simulation {
    uint32_t n_token;
    uint64_t seed;
    double variation; /* a token's shares are all multiplied by one draw between 1 - swing and 1 + swing */
} hth_plan_simulation;

typedef struct hth_plan_simulated {
    double seconds, min, max, deviation; /* of a token: mean, extremes, standard deviation */
    double device_busy, cpu_busy;           /* of a token: seconds in which each side computes */
    double overlap; /* share of cpu_busy at split layers during which the device computes */
    double n_sync; /* split layers of a token at which something was waited for */
} hth_plan_simulated;

/* n_token tokens at wish.context through a placement: who fires is drawn, each side has a clock, and
 * events move them. Knows the machine's rates and the link, not hand, nor what the plan predicts.
 * ARGUMENT. */
hearth_status hth_plan_simulate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_link *link, const hth_plan_options *options, const hth_plan *plan,
                                const hth_plan_simulation *how, hth_plan_simulated *out, hearth_error *err);

#endif
