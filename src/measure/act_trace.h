/* Firing lists that the model does not find itself: from a stated distribution, for shapes whose weights
 * say nothing, or from the samples of a profile. What a sparse model would read, token by token.
 * Whatever is measured with them is labelled so. */
#ifndef HTH_MEASURE_FIRE_H
#define HTH_MEASURE_FIRE_H

#include "forward/forward.h"
#include "sparse/profile.h"

typedef struct hth_act_trace_spec {
    double share;  /* of the neurons of a layer that fire, 0 to 1 */
    uint32_t block;  /* neurons that fire or rest together; aligned */
    double zipf_s;   /* run u of n fires with a chance in proportion to (1 + u)^-skew; 0: all alike */
    double correlation; /* chance that a run does for a token what it did for the one before */
    uint64_t seed;
} hth_act_trace_spec;

typedef struct hth_act_trace hth_act_trace;

/* Lists for n_tok tokens of the model, drawn now; MEMORY. */
hearth_status hth_act_trace_open(const hth_model *model, const hth_act_trace_spec *spec, uint32_t n_tok, hth_act_trace **out,
                            hearth_error *err);
/* Lists of n_tok tokens, each of the next sample of the profile, from sample first_sample on and after
 * the last from the first: who fired then, in every layer (where the profile marks tops: who was among
 * the largest tenth). The profile must be of the model (hth_profile_open) and is not needed afterwards.
 * ARGUMENT where it has no samples, or not as many as first_sample; MEMORY. */
hearth_status hth_act_trace_replay(const hth_profile *profile, uint32_t first_sample, uint32_t n_tok,
                              hth_act_trace **out, hearth_error *err);
/* A sample to begin with, drawn by the seed; the profile has some. */
uint32_t hth_act_trace_draw_sample(const hth_profile *profile, uint64_t seed);
void hth_act_trace_close(hth_act_trace *fire);

/* Mean share of the neurons on the lists. */
double hth_act_trace_share(const hth_act_trace *fire);

/* The next list, token by token from the first, and again: a hth_selector_fn whose user is a
 * hth_act_trace. */
hth_neuron_list hth_act_trace_next(void *fire, uint32_t i_layer, const float *input);

#endif
