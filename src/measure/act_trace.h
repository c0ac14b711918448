/* Lists of active neurons that do not come from the model: from a given distribution, for shapes with random
 * weights, or from the samples of a profile. They simulate what a sparse model would read, token by token.
 * Reports label results that use them. */
#ifndef HTH_MEASURE_ACT_TRACE_H
#define HTH_MEASURE_ACT_TRACE_H

#include "forward/forward.h"
#include "sparse/profile.h"

typedef struct hth_act_trace_spec {
    double share;  /* mean share of active neurons of a layer, 0 to 1 */
    uint32_t block;  /* neurons that are active or inactive together; aligned */
    double zipf_s;   /* run u of n is active with a probability in proportion to (1 + u)^-zipf_s; 0: uniform */
    double correlation; /* probability that a run keeps its state of the previous token */
    uint64_t seed;
} hth_act_trace_spec;

typedef struct hth_act_trace hth_act_trace;

/* Draws the lists for n_tok tokens of the model. MEMORY. */
hearth_status hth_act_trace_open(const hth_model *model, const hth_act_trace_spec *spec, uint32_t n_tok,
                                 hth_act_trace **out, hearth_error *err);
/* Lists of n_tok tokens: token i uses sample first_sample + i of the profile, modulo their number. A list holds
 * the neurons that were active in the sample, in every layer (coact_is_top_decile: the neurons among the
 * largest tenth). The profile must belong to the model (hth_profile_open) and is not needed afterwards.
 * ARGUMENT: no samples, or not as many as first_sample. MEMORY. */
hearth_status hth_act_trace_replay(const hth_profile *profile, uint32_t first_sample, uint32_t n_tok,
                              hth_act_trace **out, hearth_error *err);
/* A random first sample for the seed; the profile must have samples. */
uint32_t hth_act_trace_draw_sample(const hth_profile *profile, uint64_t seed);
void hth_act_trace_close(hth_act_trace *fire);

/* Mean share of the neurons in the lists. */
double hth_act_trace_share(const hth_act_trace *fire);

/* The next list, token by token from the first, cyclic: a hth_selector_fn whose user is a hth_act_trace. */
hth_neuron_list hth_act_trace_next(void *fire, uint32_t i_layer, const float *input);

#endif
