/* Experts that do not come from the model's routers: drawn from given frequencies, or recorded, for shapes with random
 * weights, whose routers choose almost the same experts for every token. They simulate what a trained mixture reads,
 * token by token. Reports label results that use them. */
#ifndef HTH_MEASURE_ROUTE_TRACE_H
#define HTH_MEASURE_ROUTE_TRACE_H

#include "forward/forward.h"
#include "sparse/expert_trace.h"

typedef struct hth_route_trace_spec {
    /* [n_frequency]: for each layer with experts, one number for each of them, in proportion to how often it is used.
     * NULL: all alike. */
    const double *frequency;
    size_t n_frequency;
    /* Probability that an expert of a token is one of the next token too, and that it is guessed before its router has
     * run. The others are drawn, and may be the same by chance: the shares are a little above these. */
    double sticky, foreseen;
    uint64_t seed;
    /* Instead of frequency and sticky: the experts of a trace, from hth_route_trace_first_token on, cyclically. Experts
     * that are guessed wrong are drawn by how often the trace uses them. NULL: none. Must outlive hth_route_trace_open
     * alone. */
    const hth_expert_trace *recorded;
} hth_route_trace_spec;

typedef struct hth_route_trace hth_route_trace;

/* Draws the experts of n_tok tokens of the model, or copies them. UNSUPPORTED: it has none. ARGUMENT: another number of
 * frequencies, a layer with fewer positive ones than a token uses, or a trace of another shape. MEMORY. */
hearth_status hth_route_trace_open(const hth_model *model, const hth_route_trace_spec *spec, uint32_t n_tok,
                                   hth_route_trace **out, hearth_error *err);
void hth_route_trace_close(hth_route_trace *trace);

/* The experts of token i_tok, modulo n_tok: a hth_route_fn whose user is a hth_route_trace. */
void hth_route_trace_get(void *trace, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen);

/* The token of a trace that is used first with this seed. */
uint32_t hth_route_trace_first_token(const hth_expert_trace *recorded, uint64_t seed);

#endif
