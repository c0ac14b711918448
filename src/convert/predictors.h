/* hearth predictors: for each layer of a model a small network that predicts which neurons are active, trained
 * on a text and evaluated on held-out tokens. */
#ifndef HTH_CONVERT_PREDICTORS_H
#define HTH_CONVERT_PREDICTORS_H

#include <hearth/hearth.h>

typedef struct hth_predictor_options {
    double recall;    /* share of the active neurons that must be marked */
    double precision; /* larger ranks are tried until this share of the marked neurons is active */
    uint64_t budget;  /* bytes of all predictors; 0: a tenth of those of the networks they belong to, or the size of
                       * the smallest predictors */
    uint32_t n_token; /* tokens for training and evaluation, at most; evenly spread over the text */
    uint64_t memory;  /* bytes of memory for training data; the rest goes to a file */
    uint32_t n_step;  /* training steps for each rank */
    uint64_t seed;
    uint32_t n_thread;
    hearth_progress_fn *progress; /* may be NULL; false cancels */
    void *progress_user;
} hth_predictor_options;

hth_predictor_options hth_predictor_defaults(void);

/* Bytes of gate, up and down of a layer in Q8_0: the reference for a predictor's size. */
uint64_t hth_predictor_network_size(uint32_t d_model, uint32_t d_ff, bool gated);
/* Bytes of a predictor of that rank in a file: matrices in Q8_0 (F16 if a row is not a multiple of 32) and a
 * bias. */
uint64_t hth_predictor_size(uint32_t d_model, uint32_t d_ff, uint32_t rank);

/* Result of one layer on the held-out tokens, in the form of the file (Q8_0). */
typedef struct hth_predictor_result {
    uint32_t rank;
    uint64_t size; /* bytes */
    double live;   /* share of active neurons */
    double marked; /* share of marked neurons */
    double recall, precision;
    float threshold;
} hth_predictor_result;

/* path: the model. n_ctx: chunk size; 0: hth_chunks_default. layers: [*n_layer], freed with hearth_free, also
 * if cancelled; then NULL. The file appears when all layers are done. ARGUMENT: the model's activation gives no
 * zeros. */
hearth_status hth_predictors_make(const char *path, const char *text, size_t n, const char *out_path,
                                  uint32_t n_ctx, const hth_predictor_options *options,
                                  hth_predictor_result **layers, uint32_t *n_layer, hearth_error *err);

#endif
