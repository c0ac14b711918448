/* Which experts compute a token, and with which weights (docs/arithmetic.md 6). Pure functions of one token's logits;
 * experts.c calls them. */
#ifndef HTH_FORWARD_ROUTER_H
#define HTH_FORWARD_ROUTER_H

#include "kernels/kernels.h"
#include "model/model.h"

/* token: of the vocabulary. logits[n_expert], with the router's bias, are overwritten; scratch[n_expert].
 * chosen[n_used]: the experts, ascending unless the token states them; weights[n_used]. Equal scores: the lower index
 * is chosen. If a logit is not finite, the first n_used experts are chosen and their weights are NaN, so that the step
 * ends with an error. */
void hth_route(const hth_kernels *k, const hth_router *router, int32_t token, float *logits, float *scratch,
               uint32_t *chosen, float *weights);

#endif
