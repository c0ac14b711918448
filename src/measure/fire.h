/* Firing lists that the model does not find itself: from a stated distribution, for shapes whose weights
 * say nothing, or from the samples of a profile. What a sparse model would read, token by token.
 * Whatever is measured with them is labelled so. */
#ifndef HTH_MEASURE_FIRE_H
#define HTH_MEASURE_FIRE_H

#include "run/run.h"
#include "sparse/profile.h"

typedef struct hth_fire_spec {
    double share;  /* of the neurons of a layer that fire, 0 to 1 */
    uint32_t run;  /* neurons that fire or rest together; aligned */
    double skew;   /* run u of n fires with a chance in proportion to (1 + u)^-skew; 0: all alike */
    double sticky; /* chance that a run does for a token what it did for the one before */
    uint64_t seed;
} hth_fire_spec;

typedef struct hth_fire hth_fire;

/* Lists for n_tok tokens of the model, drawn now; MEMORY. */
hearth_status hth_fire_open(const hth_model *model, const hth_fire_spec *spec, uint32_t n_tok, hth_fire **out,
                            hearth_error *err);
/* Lists of n_tok tokens, each of the next sample of the profile, from sample first_sample on and after
 * the last from the first: who fired then, in every layer (where the profile marks tops: who was among
 * the largest tenth). The profile must be of the model (hth_profile_open) and is not needed afterwards.
 * ARGUMENT where it has no samples, or not as many as first_sample; MEMORY. */
hearth_status hth_fire_replay(const hth_profile *profile, uint32_t first_sample, uint32_t n_tok,
                              hth_fire **out, hearth_error *err);
/* A sample to begin with, drawn by the seed; the profile has some. */
uint32_t hth_fire_draw_sample(const hth_profile *profile, uint64_t seed);
void hth_fire_close(hth_fire *fire);

/* Mean share of the neurons on the lists. */
double hth_fire_share(const hth_fire *fire);

/* The next list, token by token from the first, and again: a hth_selector_fn whose user is a
 * hth_fire. */
hth_active hth_fire_next(void *fire, uint32_t i_layer, const float *input);

#endif
