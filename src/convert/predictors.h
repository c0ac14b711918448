/* hearth predictors: for each layer of a model a small network that guesses which neurons fire, trained
 * on a text and judged on tokens that it was not trained on. */
#ifndef HTH_CONVERT_PREDICTORS_H
#define HTH_CONVERT_PREDICTORS_H

#include <hearth/hearth.h>

typedef struct hth_predictor_options {
    double recall;    /* share of the firings that are to be marked */
    double precision; /* a larger rank is tried until so many of the marked neurons fire */
    uint64_t budget;  /* bytes of all predictors; 0: a tenth of those of the networks they serve,
                            or what the smallest take */
    uint32_t n_token; /* that are trained and judged on, at most; evenly spread over the text */
    uint64_t memory;  /* bytes that what is trained on may take; the rest goes to a file */
    uint32_t n_step;  /* of training, for each rank */
    uint64_t seed;
    uint32_t n_thread;
    hearth_progress_fn *progress; /* may be NULL; false cancels */
    void *progress_user;
} hth_predictor_options;

hth_predictor_options hth_predictor_defaults(void);

/* Bytes of gate, up and down of a layer in Q8_0: what a predictor's are held against. */
uint64_t hth_predictor_network_size(uint32_t d_model, uint32_t d_ff, bool gated);
/* Bytes of a predictor of that rank in a file: matrices in Q8_0 (F16 where a row is no multiple of 32) and a
 * bias. */
uint64_t hth_predictor_size(uint32_t d_model, uint32_t d_ff, uint32_t rank);

/* Of one layer, on the tokens that were held out, as the file has it (Q8_0). */
typedef struct hth_predictor_result {
    uint32_t rank;
    uint64_t size; /* bytes */
    double live;   /* share of neurons that fire */
    double marked; /* share that the network marks */
    double recall, precision;
    float threshold;
} hth_predictor_result;

/* path: the model's. n_ctx: of a window; 0: hth_chunks_default. layers: to be freed with hearth_free, [*n_layer], also when cancelled: NULL then. The
 * file appears when all layers are done. ARGUMENT for models whose activation gives no zeros. */
hearth_status hth_predictors_make(const char *path, const char *text, size_t n, const char *out_path,
                                  uint32_t n_ctx, const hth_predictor_options *options,
                                  hth_predictor_result **layers, uint32_t *n_layer, hearth_error *err);

#endif
