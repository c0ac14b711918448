/* How large a neuron's activation must be to be worth the rest of the neuron, for any activation:
 * thresholds for selector threshold, calibrated on a text. Measured with dense runs; what leaving out
 * costs is the error of the FFN's output, CETT (Zhang et al. 2024, ReLU^2 Wins, eq. 3): the norm of
 * what is left out over the norm of the whole, mean over tokens. */
#ifndef HTH_MEASURE_THRESHOLDS_H
#define HTH_MEASURE_THRESHOLDS_H

#include <hearth/hearth.h>

typedef struct hth_threshold_options {
    double cett;                  /* every layer's bound; or 0: */
    double sparsity;              /* mean share of neurons left out, with one bound of CETT for all layers */
    uint32_t n_sample;            /* tokens that are looked at, evenly spread over the text */
    hearth_progress_fn *progress; /* layers and windows; may be NULL; false cancels */
    void *progress_user;
} hth_threshold_options;

/* Of one layer. A neuron is computed where |f(first half)| reaches floor[j] = limit / weight[j]; the
 * weight is the norm of its down row times the typical size of its other half. */
typedef struct hth_threshold_layer {
    uint32_t d_ff;
    float *thresholds;         /* [d_ff] */
    double sparsity, cett; /* with these floors, over the sampled tokens */
    double zero;           /* share of values that are zero: it is left out whatever was asked */
} hth_threshold_layer;

typedef struct hth_thresholds {
    uint32_t n_layer;
    uint64_t n_token; /* sampled */
    hth_threshold_layer *layers;
} hth_thresholds;

/* session: of selector dense, empty; its context is the window. */
hearth_status hth_thresholds_find(const hearth_model *model, hearth_session *session, const char *text,
                                  size_t n, const hth_threshold_options *options, hth_thresholds *out,
                                  hearth_error *err);
void hth_thresholds_close(hth_thresholds *t);

/* A file of thresholds (sparse/sidecar.h). */
hearth_status hth_thresholds_write(const hth_thresholds *t, const hearth_model *model, const char *path,
                                   hearth_error *err);

#endif
