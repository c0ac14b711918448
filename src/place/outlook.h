/* A plan for a model on this machine: what it is made from, and what it expects. */
#ifndef HTH_PLACE_OUTLOOK_H
#define HTH_PLACE_OUTLOOK_H

#include "place/choose.h"
#include "place/plan_model.h"

typedef struct hth_outlook {
    hth_calibration calibration;
    hth_plan_machine machine;
    hth_plan_model input;
    hth_plan_wish wish;
    hth_plan best;
    hth_placement_stream streams[HTH_PLACEMENT_STREAMS]; /* as in a place */
    double seconds_bad, seconds_good; /* a token by best, at the slowest and the fastest that was measured */
    bool uniform;                     /* nothing is known of who fires */
} hth_outlook;

/* For c's model, device and budget; profile: of this model, or NULL. ARGUMENT: a layer cannot lie there.
 * DEVICE, MEMORY. */
hearth_status hth_outlook_open(hth_outlook *o, const hth_choice *c, const hth_profile *profile,
                               hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                               hearth_error *err);
void hth_outlook_close(hth_outlook *o);

/* The best plan becomes what is chosen; without neurons to divide, or a gain, n_layer may be 0. */
void hth_outlook_take(const hth_outlook *o, hth_choice *c);

#endif
