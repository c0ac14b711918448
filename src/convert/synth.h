/* Models of true shape with random weights: for measuring speed where no real model
 * is at hand. Every such file says so in general.name ("synthetic …"), and whatever
 * reads the name labels its figures. */
#ifndef HTH_CONVERT_SYNTH_H
#define HTH_CONVERT_SYNTH_H

#include "convert/ftype.h"

typedef struct hth_synth_options {
    const char *shape;            /* one of hth_synth_shapes */
    const hth_ftype *ftype;           /* types of the matrices */
    bool pure;                    /* all matrices get the type of the mix itself */
    bool packed;                  /* down neuron by neuron, as hearth pack writes it */
    uint32_t rank;                /* of predictors, in Q8_0, whose scores mean nothing; 0: none */
    const char *activation;       /* hearth.ffn.activation; NULL: the architecture's */
    uint64_t seed;                /* the same seed, shape and types: the same bytes, whatever the threads */
    uint32_t n_thread;            /* 0: one for each core */
    hearth_progress_fn *progress; /* bytes written; may be NULL; false cancels */
    void *progress_user;
} hth_synth_options;

/* "llama-1b, llama-7b, …": for messages. */
const char *hth_synth_shapes(void);

/* Writes OUT, which appears when it is complete. *size is its number of weight bytes.
 * Memory does not grow with the shape. ARGUMENT for a shape that is not known. */
hearth_status hth_synth(const char *out_path, const hth_synth_options *options, uint64_t *size,
                        hearth_error *err);

#endif
