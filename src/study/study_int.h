/* Declarations shared by the files of study/. */
#ifndef HTH_STUDY_STUDY_INT_H
#define HTH_STUDY_STUDY_INT_H

#include "base/bits.h"
#include "convert/spill.h"
#include "engine/engine.h"
#include "measure/chunks.h"
#include "study/study.h"

typedef struct hth_study_state {
    const hearth_model *model;
    hearth_session *session;
    const hth_study_options *options;
    hth_study *out;
    hth_chunks chunks;
    hth_pool *pool; /* the session's threads sleep while this pool works */
    hth_step *step; /* computes only down, for HTH_ABLATION_ROWS tokens */
    float **norms;  /* [n_layer][d_ff] norms of the columns of down */
    uint8_t *bits;  /* scratch memory: bits of a token */
    hth_arena arena; /* holds norms and bits */
    /* Streams per layer: hidden[n_sample][d_ff]; active neurons, [n_tok][n_byte]; input[n_tok][d_model] of the
     * layers that get predictors. */
    hth_spill *hidden, *active, *input;
    uint32_t n_train; /* tokens for training and evaluation of predictors: the first ones */
    uint64_t done, total;
} hth_study_state;

/* The value of a missing figure: NaN. */
static inline double hth_study_nan(void) { return hth_double_of(0x7ff8000000000000u); }

static inline size_t hth_study_n_byte(const hth_study_layer *l) { return ((size_t)l->d_ff + 7) / 8; }

/* Adds to the work done. CANCELLED: the progress function returned false. */
hearth_status hth_study_progress(hth_study_state *s, uint64_t step, hearth_error *err);

/* contribution_stats.c: from the sampled hidden values of a layer, magnitudes of contributions and the error of
 * leaving some out. */
hearth_status hth_study_sizes(hth_study_state *s, uint32_t i_layer, hearth_error *err);

/* act_stats.c: from the active neurons of each token, hot neurons, reuse between tokens, co-activation. */
hearth_status hth_study_firing(hth_study_state *s, uint32_t i_layer, hearth_error *err);

/* predictor_quality.c: predictors of increasing rank. i_stream: the layer's inputs. */
hearth_status hth_study_predict(hth_study_state *s, uint32_t i_layer, uint32_t i_stream, hearth_error *err);
/* Number of ranks for such a layer. */
uint32_t hth_study_n_rank(const hth_study_state *s, uint32_t i_layer);

/* forced_sparsity.c: perplexities with fewer and fewer neurons per token. */
hearth_status hth_study_force(hth_study_state *s, const char *text, size_t n, hearth_error *err);

#endif
