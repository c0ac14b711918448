/* Models of real shapes with random weights, for speed measurements without a real model. Every such file has
 * "synthetic …" in general.name, and programs that read the name label their figures. */
#ifndef HTH_CONVERT_SYNTH_H
#define HTH_CONVERT_SYNTH_H

#include "convert/ftype.h"

typedef struct hth_synth_options {
    const char *shape;            /* one of hth_synth_shapes */
    uint32_t n_layer;             /* the first ones of the shape alone; 0: all */
    const hth_ftype *ftype;       /* types of the matrices, those of a model with as many layers */
    bool pure;                    /* all matrices get ftype->type */
    bool packed;                  /* transposed down matrices, as hearth pack writes them */
    bool mtp;                     /* a block that predicts a token further, of architectures that have one */
    uint32_t rank;                /* rank of predictors in Q8_0 with random weights; 0: none */
    const char *activation;       /* hearth.ffn.activation; NULL: that of the architecture */
    uint64_t seed;                /* the same seed, shape and types give the same bytes for any number of threads */
    uint32_t n_thread;            /* 0: one per core */
    hearth_progress_fn *progress; /* bytes written; may be NULL; false cancels */
    void *progress_user;
} hth_synth_options;

/* "llama-1b, llama-7b, …", for messages. */
const char *hth_synth_shapes(void);

/* Writes OUT, which appears when it is complete. *size: number of weight bytes. Memory does not grow with the
 * shape. ARGUMENT: unknown shape, or options that do not
 * fit it. */
hearth_status hth_synth(const char *out_path, const hth_synth_options *options, uint64_t *size,
                        hearth_error *err);

#endif
