/* The two models over which tests count again what studies and profiles say, with all neurons: storyteller
 * (dReLU, 768 neurons), and a small one of SiLU whose 100 neurons fill no whole bytes or blocks. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_SMALL_MODEL_H
#define HEARTH_TESTS_SUPPORT_MODELS_SMALL_MODEL_H

#include "support/models/gguf_build.h"

#include <hearth/hearth.h>

/* *bytes: what the small one lies in, freed after the model with gguf_free; empty with storyteller. NULL
 * after a failed check. */
hearth_model *small_model_open(bool storyteller, gguf_bytes *bytes);

/* NULL after a failed check. */
hearth_session *small_model_session(const hearth_model *model, uint32_t n_ctx, uint32_t n_batch, uint32_t n_thread);

#endif
