/* What plans are compared with: another solver, a simulation that shares no rule with the cost model, and preset shapes
 * and GPUs. */
#ifndef HEARTH_TESTS_SUPPORT_PLANNER_PLAN_REFERENCE_H
#define HEARTH_TESTS_SUPPORT_PLANNER_PLAN_REFERENCE_H

#include "planner/plan.h"

/* hth_plan_solve, for an unlimited host, by Lagrangian relaxation: the cost of a byte is bisected, each layer takes
 * its optimum at that cost, and the remaining memory is filled by the best single changes. Not exact; shares no step
 * with the solver. */
hearth_status hth_plan_lagrangian(const hth_plan_model *model, const hth_plan_machine *machine,
                                   const hth_plan_options *options, hth_plan *out, hearth_error *err);

/* ---- preset shapes and GPUs: no weights, no measurement -------------------------------------- */

typedef struct hth_plan_shape {
    const char *name;
    uint32_t n_layer, d_model, d_ff, n_head, n_head_kv, n_vocab;
} hth_plan_shape;
extern const hth_plan_shape hth_plan_shapes[];
extern const size_t hth_plan_n_shape;

/* Distribution of activations: a share `mean` of the neurons is active for a token, and the hottest x of them
 * account for min(x^exponent, x / mean) of the activations: no neuron is active more often than always. */
typedef struct hth_plan_firing {
    const char *name;
    double mean, exponent;
    double predictor; /* predictor bytes relative to those of the FFN */
} hth_plan_firing;
extern const hth_plan_firing hth_plan_dense, hth_plan_sharp, hth_plan_flat;

/* share[n] of n clusters of equal size, hottest first. */
void hth_plan_shares(const hth_plan_firing *firing, uint32_t n, double *share);

/* A model of this shape in Q4_0 with an F16 cache. Freed by hth_plan_shape_free. */
hearth_status hth_plan_shape_model(const hth_plan_shape *shape, const hth_plan_firing *firing,
                                   hth_plan_model *out, hearth_error *err);
void hth_plan_shape_free(hth_plan_model *model);

/* The link between device and host, in seconds and bytes per second. */
typedef struct hth_plan_link {
    double submit, wake; /* the host submits work; the host observes completion */
    double latency;      /* of the bus, each direction */
    double d2h_rate, h2d_rate;
    double jitter; /* each transfer takes up to this much longer, uniformly distributed */
} hth_plan_link;

typedef struct hth_plan_card {
    const char *name;
    hth_plan_machine machine; /* device and host; without sync_latency, which hth_plan_probe gives */
    hth_plan_link link;
} hth_plan_card;
extern const hth_plan_card hth_plan_cards[];
extern const size_t hth_plan_n_card;

/* ---- simulation: virtual time, no device ----------------------------------------------------- */

/* The median of 200 round trips: what a probe of a machine would write to a device's sync_latency. */
double hth_plan_probe(const hth_plan_link *link, uint64_t d2h_bytes, uint64_t h2d_bytes, uint64_t seed);

typedef struct hth_plan_simulation {
    uint32_t n_token;
    uint64_t seed;
    double variation; /* all shares of a token are multiplied by one draw from [1 - variation, 1 + variation] */
} hth_plan_simulation;

typedef struct hth_plan_simulated {
    double seconds, min, max, deviation; /* per token: mean, extremes, standard deviation */
    double device_busy, cpu_busy; /* per token: seconds in which each of them computes */
    double overlap; /* fraction of cpu_busy at split layers during which the device computes */
    double n_sync; /* split layers per token at which a side waited */
} hth_plan_simulated;

/* Simulates n_token tokens at options.context through a placement on a device and the host: activations are drawn, device
 * and host each have a clock, and events advance them. Uses the machine's rates and the
 * link, but neither sync_latency nor the plan's predictions. ARGUMENT. */
hearth_status hth_plan_simulate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_link *link, const hth_plan_options *options, const hth_plan *plan,
                                const hth_plan_simulation *how, hth_plan_simulated *out, hearth_error *err);

#endif
