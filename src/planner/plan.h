/* Decides where each cluster of neurons of a dense model, or expert of a mixture, is stored and computed. The homes are a list: devices first, then the
 * host. A layer's clusters are divided among them at ascending boundaries; attention has a home of its own. The planner
 * has only numbers as inputs and results (docs/plan.md): callers fill the inputs from a model, a profile and a machine.
 * Seconds and bytes per second are doubles, bytes are integers; equal inputs give equal bits. */
#ifndef HTH_PLANNER_PLAN_H
#define HTH_PLANNER_PLAN_H

#include "base/status.h"
#include "kernels/cluster.h"

#include <stdbool.h>

/* The memory unit of devices: a layer's bytes are rounded up to units. */
enum { HTH_PLAN_UNIT = 64 << 10, HTH_PLAN_MAX_HOME = 8, HTH_PLAN_N_MOVE = 5 };

/* ---- the machine ----------------------------------------------------------------------------- */

/* Bytes per second of active rows, as a function of the active share: linear between the knots, constant below the
 * first. */
enum { HTH_PLAN_N_KNOT = 4 };
extern const double hth_plan_knots[HTH_PLAN_N_KNOT]; /* 0.05, 0.2, 0.5, 1 */
typedef struct hth_plan_rates {
    double at[HTH_PLAN_N_KNOT];
} hth_plan_rates;
double hth_plan_rate(const hth_plan_rates *rates, double share);

typedef enum hth_plan_kind {
    HTH_PLAN_DEVICE = 0, /* computes its clusters, and exchanges values with the host */
    HTH_PLAN_HOST,       /* computes its clusters */
    HTH_PLAN_N_KIND,
} hth_plan_kind;

typedef struct hth_plan_tier {
    const char *name; /* name in error messages */
    hth_plan_kind kind;
    uint64_t capacity;    /* bytes; UINT64_MAX: unlimited */
    uint64_t fixed_bytes; /* bytes of it used if anything of the model is there: workspace, vectors, buffers */
    hth_plan_rates rates;    /* data read whole uses the last knot */
    double min_active_share; /* the minimum share that a cluster counts as: its masks are read */
    double sync_latency;     /* seconds: values from a device to the host and back, including all waiting */
    double sync_more;        /* the same for the values of each sequence but the first */
    double dispatch, merge;  /* seconds: one dispatch; adding the sums of another home */
    double way_rate, kv_rate; /* of a device: bytes per second of values that cross, and of keys and values on the host */
    double read_rate;        /* of a device: bytes per second of the host's experts that it reads itself; 0: it cannot */
    double product_rate;     /* bytes of weights times sequences per second that it computes at most; 0: as fast as it reads */
} hth_plan_tier;

typedef struct hth_plan_machine {
    uint32_t n_home;
    hth_plan_tier homes[HTH_PLAN_MAX_HOME]; /* devices, then one host */
} hth_plan_machine;

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct hth_plan_layer {
    uint64_t attention_bytes; /* of all that is not divided: weights of attention, norms, predictor, experts */
    uint64_t idle_bytes;      /* of these: experts that a token does not use, and does not read */
    double idle_share;        /* of the layer's experts, those that a token does not use */
    uint64_t moved_bytes;     /* of attention_bytes: recurrent states, which each sequence reads of its own */
    uint64_t state_bytes;     /* on a device: copies of recurrent states, of which a token reads none */
    uint64_t kv_bytes;        /* keys and values of one position */
    uint32_t kv_window;       /* positions of which a token reads them at most; 0: all */
    /* Round trips of a device with the layer's attention to the host, which has keys and values and computes with them,
     * and bytes that cross for them; 0: the device has keys and values. */
    uint32_t n_trip;
    uint64_t trip_bytes;
    uint64_t cluster_bytes[HTH_PLAN_N_KIND]; /* rows of gate, up and down of a cluster, in the layout of each kind */
    uint32_t n_cluster;      /* clusters of HTH_CLUSTER_NEURONS neurons, or experts */
    uint32_t n_beyond;       /* of these: those that a device has no slots for, as its bindings are too small */
    /* clusters are slots for experts: `share` is how many of a token's experts are in a slot, and all together are what a
     * token uses. A token reads an expert whole, and the device waits for the host in each layer that has fewer slots. */
    bool has_experts;
    uint32_t n_used;          /* experts of a token */
    const double *misses;     /* [n_cluster + 1][n_used + 1] with k slots: of tokens, the share that finds m experts in none */
    const double *moves;      /* [n_cluster + 1][HTH_PLAN_N_MOVE] after which n experts begin to move to slots, at most 4. Both
                                 NULL: each token finds as many, and none moves */
    uint32_t n_spare;         /* slots that are empty where the device reads missing experts itself; 0: it does not */
    uint32_t n_dispatch_read; /* dispatches of these reads */
    uint32_t n_dispatch;     /* dispatches of a layer on a device but for those of divided neurons */
    uint32_t n_dispatch_beside; /* of n_dispatch: those of the shared expert, while the device waits for experts of the host */
    uint32_t n_dispatch_hot; /* dispatches of its neurons on a device */
    double whole_share;      /* of a cluster's bytes, those that tokens read whichever neurons fire: 0 to 1 */
    const double *share;     /* [n_cluster] fraction of a cluster's bytes that tokens read: 0 to 1, in file order; or as above */
} hth_plan_layer;

typedef struct hth_plan_model {
    uint32_t n_layer;
    hth_plan_layer *layers;
    uint64_t head_bytes;
    bool head_stays; /* on the host: no device computes it */
    uint64_t d2h_bytes, h2d_bytes; /* bytes transferred at a split layer, device to host and host to device */
} hth_plan_model;

/* ---- options and result ---------------------------------------------------------------------- */

typedef struct hth_plan_options {
    uint32_t n_ctx;   /* positions of the KV cache */
    uint32_t context; /* positions before the token whose seconds are minimised; up to n_ctx */
    /* Sequences, of each of which a step has a token: its seconds are minimised, and they share n_ctx and context. 0: one. */
    uint32_t n_seq;
} hth_plan_options;

/* The division of a layer. Clusters are in file order: the first n_cluster[0] have the first home, and so on. */
typedef struct hth_plan_division {
    uint32_t attention; /* home of attention and its KV cache: a device or the host, no earlier than the last layer's */
    uint32_t n_cluster[HTH_PLAN_MAX_HOME];
    bool reads; /* the device reads missing experts: set by hth_plan_evaluate, where that is faster */
} hth_plan_division;

/* Instead of a home: synchronisation; another home finishes last, and more than half of its time is latency. */
enum { HTH_PLAN_BOUND_SYNC = HTH_PLAN_MAX_HOME };

/* Expected seconds of one layer for one token. */
typedef struct hth_plan_time {
    double home[HTH_PLAN_MAX_HOME]; /* computation with attention and dispatches */
    double sync;                    /* synchronisation */
    double merge;
    double total;   /* less than the sum: devices and host run concurrently */
    uint32_t bound; /* the home that limits, or HTH_PLAN_BOUND_SYNC */
} hth_plan_time;

/* Bytes in one home; `total` has each layer of a device rounded up to units: never above its capacity. */
typedef struct hth_plan_bytes {
    uint64_t fixed, attention, kv, clusters, head, total;
} hth_plan_bytes;

typedef struct hth_plan {
    uint32_t n_layer;
    uint32_t n_device; /* layers with attention on a device, the first ones; 0: nothing is on a device */
    bool head;         /* on the device of the last layer's attention; else on the host */
    hth_plan_division *divisions; /* [n_layer] */
    hth_plan_time *layers;        /* [n_layer] at options.context */
    hth_plan_bytes bytes[HTH_PLAN_MAX_HOME];
    double head_seconds, transfer_seconds; /* per token: the head; transfers into and out of devices, once each */
    double seconds;                        /* per token at options.context */
    double seconds_empty, seconds_full;    /* at context 0, and at n_ctx */
    double seconds_cpu;                    /* with everything on the host, whatever its capacity */
    /* Set by hth_plan_solve only; 0 elsewhere. */
    double tps_per_gib; /* tokens per second gained by 1 GiB more of the device */
    uint64_t min_vram;  /* minimum of the device with which anything is gained; 0: nothing ever is */
    uint64_t unit;      /* bytes of the unit used: HTH_PLAN_UNIT, or more for models beyond the solver's bounds */
} hth_plan;
void hth_plan_free(hth_plan *plan);

/* Seconds of a token in a layer of experts with slots on the first device, of whose experts n_miss have none, where the
 * context is empty and no experts move. */
double hth_plan_slots_seconds(const hth_plan_layer *layer, const hth_plan_machine *machine, uint32_t n_miss);
/* Seconds of an expert's move from the host to a slot of the first device. */
double hth_plan_move_seconds(const hth_plan_layer *layer, const hth_plan_machine *machine);

/* ARGUMENT: a number out of range, or a home out of order, by name. Called by all functions below. */
hearth_status hth_plan_validate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_options *options, hearth_error *err);

/* The fastest placement on one device or none, and the host: exact to 1e-6 of the seconds; on a tie each layer, the last
 * one first, takes the fewest bytes. Bounded: 2^26 cells of 4 bytes and 2^33 steps; beyond that, units double. With
 * several devices each has consecutive layers, in their order; where the layers of one end and those of the next begin
 * is searched for (solve_devices.c), so that a faster placement may exist, and of what hth_plan_solve alone sets only
 * `unit` is set. ARGUMENT: also if the placement takes more than the host's capacity, which is only checked. MEMORY. */
hearth_status hth_plan_solve(const hth_plan_model *model, const hth_plan_machine *machine,
                             const hth_plan_options *options, hth_plan *out, hearth_error *err);

/* The baseline, the rule of the PowerInfer release: attention of all layers, then caches, then the head, then
 * clusters of any layer by share alone, hottest first. If not all attention fits, that of the first layers. The rest
 * is on the host. UNSUPPORTED: several devices. ARGUMENT, MEMORY as above. */
hearth_status hth_plan_greedy_baseline(const hth_plan_model *model, const hth_plan_machine *machine,
                                       const hth_plan_options *options, hth_plan *out, hearth_error *err);

/* Fills a plan for any placement: divisions[n_layer] is copied. ARGUMENT: attention on no home or on an earlier one than
 * the layer before, clusters too many or too few, the head on a device without all layers, more bytes than a home's
 * capacity (the message gives the sum). */
hearth_status hth_plan_evaluate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_options *options, const hth_plan_division *divisions, bool head,
                                hth_plan *out, hearth_error *err);

#endif
