/* Checks a sampler's parameters. */
#ifndef HTH_SAMPLE_PARAMS_H
#define HTH_SAMPLE_PARAMS_H

#include "sample/sampler.h"

/* ARGUMENT names the first field out of range. */
hearth_status hth_sample_check_params(const hearth_sampler_options *p, int32_t n_vocab,
                                      hearth_error *err);

#endif
