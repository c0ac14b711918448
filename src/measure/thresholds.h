/* Calibrates thresholds for the selector threshold on a text, for any activation: how large a neuron's
 * activation must be for the neuron to be computed. Measured with dense runs. The error of leaving neurons out
 * is that of the FFN's output, CETT (Zhang et al. 2024, ReLU^2 Wins, eq. 3): the norm of what is left out over
 * the norm of the whole, mean over tokens. */
#ifndef HTH_MEASURE_THRESHOLDS_H
#define HTH_MEASURE_THRESHOLDS_H

#include <hearth/hearth.h>

typedef struct hth_threshold_options {
    double cett;                  /* bound for every layer; 0: use sparsity */
    double sparsity;              /* mean share of neurons left out, with one CETT bound for all layers */
    uint32_t n_sample;            /* sampled tokens, evenly spread over the text */
    hearth_progress_fn *progress; /* chunks and layers; may be NULL; false cancels */
    void *progress_user;
} hth_threshold_options;

/* Thresholds of one layer. A neuron is computed if |f(first half)| >= thresholds[j] = limit / weight[j]. The
 * weight is the norm of its down row times the typical magnitude of its other half. */
typedef struct hth_threshold_layer {
    uint32_t d_ff;
    float *thresholds;         /* [d_ff] */
    double sparsity, cett; /* with these thresholds, over the sampled tokens */
    double zero;           /* share of values that are zero; these are always left out */
} hth_threshold_layer;

typedef struct hth_thresholds {
    uint32_t n_layer;
    uint64_t n_token; /* sampled tokens */
    hth_threshold_layer *layers;
} hth_thresholds;

/* session: selector dense, empty; its context is the chunk size. */
hearth_status hth_thresholds_find(const hearth_model *model, hearth_session *session, const char *text,
                                  size_t n, const hth_threshold_options *options, hth_thresholds *out,
                                  hearth_error *err);
void hth_thresholds_close(hth_thresholds *t);

/* Writes a file of thresholds (sparse/sidecar.h). */
hearth_status hth_thresholds_write(const hth_thresholds *t, const hearth_model *model, const char *path,
                                   hearth_error *err);

#endif
