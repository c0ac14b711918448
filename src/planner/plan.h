/* Where each cluster of a dense model runs: the first n_hot clusters of a layer on the device, the others on the
 * CPU, concurrently, with one merge per layer; the last layers run on the CPU whole if even their attention does
 * not fit. Numbers in, numbers out (docs/plan.md): callers fill the inputs from a model, a profile and a machine.
 * Seconds and bytes per second are doubles, bytes are integers; equal inputs give equal bits. */
#ifndef HTH_PLANNER_PLAN_H
#define HTH_PLANNER_PLAN_H

#include "base/status.h"

#include <stdbool.h>

/* Neurons per cluster, and the memory unit: a layer's bytes are rounded up to units. */
enum { HTH_PLAN_CLUSTER = 64, HTH_PLAN_UNIT = 64 << 10 };
/* Instead of a cluster count: attention too is on the CPU. Only the last layers may have it. */
enum { HTH_PLAN_CPU = -1 };

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct hth_plan_layer {
    uint64_t attention_bytes; /* read for every token: attention weights, norms, predictor */
    uint64_t kv_bytes;        /* keys and values of one position */
    uint64_t device_bytes;    /* of a cluster on the device (rows of gate, up and down of 64 neurons) */
    uint64_t cpu_bytes;       /* of a cluster in the CPU's layout */
    uint32_t n_cluster;
    uint32_t n_dispatch;     /* dispatches of a layer on the device before its neurons */
    uint32_t n_dispatch_hot; /* dispatches of its neurons on the device */
    const double *share;     /* [n_cluster] fraction of a cluster's bytes that a token reads: 0 to 1, in file order */
} hth_plan_layer;

typedef struct hth_plan_model {
    uint32_t n_layer;
    hth_plan_layer *layers;
    uint64_t head_bytes;
    uint64_t d2h_bytes, h2d_bytes; /* bytes transferred at a split layer, device to host and host to device */
} hth_plan_model;

/* ---- the machine ----------------------------------------------------------------------------- */

/* Bytes per second of active rows, as a function of the active share: linear between the knots, constant below the
 * first. */
enum { HTH_PLAN_N_KNOT = 4 };
extern const double hth_plan_knots[HTH_PLAN_N_KNOT]; /* 0.05, 0.2, 0.5, 1 */
typedef struct hth_plan_rates {
    double at[HTH_PLAN_N_KNOT];
} hth_plan_rates;
double hth_plan_rate(const hth_plan_rates *rates, double share);

typedef struct hth_plan_machine {
    hth_plan_rates device, cpu; /* data read whole uses the last knot */
    double min_active_share;      /* the minimum share that a cluster counts as on the device: its masks are read */
    double sync_latency;            /* seconds: values to the host and back, including all waiting */
    double dispatch, merge; /* seconds: one dispatch; adding the CPU's part */
} hth_plan_machine;

/* ---- options and result ---------------------------------------------------------------------- */

typedef struct hth_plan_options {
    uint64_t vram;        /* bytes of device memory */
    uint64_t fixed_bytes; /* bytes of it used if anything is offloaded: workspace, vectors, message buffers */
    uint32_t n_ctx;       /* positions of the KV cache */
    uint32_t context;     /* positions before the token whose seconds are minimised; up to n_ctx */
} hth_plan_options;

typedef enum hth_plan_bottleneck {
    HTH_PLAN_BOUND_DEVICE = 0, /* device bytes */
    HTH_PLAN_BOUND_CPU,        /* CPU bytes */
    HTH_PLAN_BOUND_SYNC, /* synchronisation: the CPU's part finishes last, and more than half of it is latency */
} hth_plan_bottleneck;

/* Expected seconds of one layer for one token. */
typedef struct hth_plan_time {
    double attention; /* on the device, including dispatches */
    double device;    /* neurons on the device */
    double cpu;       /* computation on the CPU */
    double sync;      /* synchronisation */
    double merge;
    double total; /* less than the sum: both sides run concurrently */
    hth_plan_bottleneck bottleneck;
} hth_plan_time;

typedef struct hth_plan {
    uint32_t n_layer;
    uint32_t n_device; /* layers with attention on the device, the first ones; 0: nothing is on the device */
    bool head;         /* on the device */
    int32_t *n_hot;    /* [n_layer] clusters on the device, or HTH_PLAN_CPU */
    hth_plan_time *layers; /* [n_layer] at options.context */
    uint64_t fixed_bytes, attention_bytes, kv_bytes, cluster_bytes, head_bytes; /* bytes on the device */
    uint64_t vram; /* total, each layer rounded up to units: never above options.vram */
    double head_seconds, transfer_seconds; /* per token: the head; transfers into and out of the device, once */
    double seconds;                      /* per token at options.context */
    double seconds_empty, seconds_full;  /* at context 0, and at n_ctx */
    double seconds_cpu;                  /* with nothing on the device */
    /* Set by hth_plan_solve only; 0 elsewhere. */
    double tps_per_gib;     /* tokens per second gained by 1 GiB more */
    uint64_t min_vram; /* minimum with which anything is gained; 0: nothing ever is */
    uint64_t unit;       /* bytes of the unit used: HTH_PLAN_UNIT, or more for models beyond the solver's bounds */
} hth_plan;
void hth_plan_free(hth_plan *plan);

/* ARGUMENT: a number out of range, by name. Called by all functions below. */
hearth_status hth_plan_validate(const hth_plan_model *model, const hth_plan_machine *machine,
                             const hth_plan_options *options, hearth_error *err);

/* The fastest placement: exact to 1e-6 of the seconds; on a tie each layer, the last one first, takes the fewest
 * bytes. Bounded: 2^26 cells of 4 bytes and 2^33 steps; beyond that, units double. ARGUMENT, MEMORY. */
hearth_status hth_plan_solve(const hth_plan_model *model, const hth_plan_machine *machine,
                             const hth_plan_options *options, hth_plan *out, hearth_error *err);

/* The baseline, the rule of the PowerInfer release: attention of all layers, then caches, then the head, then
 * clusters of any layer by share alone, hottest first. If not all attention fits, that of the first layers. */
hearth_status hth_plan_greedy_baseline(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_options *options, hth_plan *out, hearth_error *err);

/* Fills a plan for any placement: n_hot[n_layer] is copied. ARGUMENT: CPU layers before others, too many clusters,
 * the head on the device without all layers, more bytes than options.vram (the message gives the sum). */
hearth_status hth_plan_evaluate(const hth_plan_model *model, const hth_plan_machine *machine,
                             const hth_plan_options *options, const int32_t *n_hot, bool head, hth_plan *out,
                             hearth_error *err);

#endif
