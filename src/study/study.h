/* hearth study: the sparsity of a model on a text, measured as in the papers (Zhang et al. 2024, ReLU^2 Wins,
 * sections 3 and 4; Song et al. 2024, Turbo Sparse, table 3). All neurons are computed; only the perplexities
 * with forced sparsity leave some out. docs/study.md explains the figures. */
#ifndef HTH_STUDY_STUDY_H
#define HTH_STUDY_STUDY_H

#include "measure/perplexity.h"

enum {
    HTH_STUDY_N_KEPT = 15,
    HTH_STUDY_N_HOTTEST = 15,
    HTH_STUDY_N_BEFORE = 6,
    HTH_STUDY_N_SIZE = 37,
    HTH_STUDY_N_ROW = 8,
    HTH_STUDY_MAX_RANK = 8, /* predictors of a layer */
};

/* Points of the curves. */
extern const double hth_study_kept[HTH_STUDY_N_KEPT];       /* shares of neurons kept per token */
extern const double hth_study_hottest[HTH_STUDY_N_HOTTEST]; /* shares of neurons, the most active ones */
extern const uint32_t hth_study_before[HTH_STUDY_N_BEFORE]; /* distances to an earlier token */
extern const double hth_study_row_kept[HTH_STUDY_N_ROW];    /* shares kept in the rows of perplexity */
/* Lower edge of bin i of the sizes of contributions, log2 of the ratio to the token's mean. */
double hth_study_size_log2(size_t i);

typedef struct hth_study_options {
    uint32_t n_sample;            /* tokens whose contributions are measured */
    uint64_t n_chunk;            /* chunks of the text, at most; 0: all */
    uint64_t n_scored;            /* chunks for perplexity, at most; 0: no perplexities */
    uint32_t n_trained;           /* layers with predictors, evenly spread; 0: none */
    uint32_t n_step;              /* training steps for each predictor */
    double cett;                  /* bound that defines active neurons if no value is zero */
    uint64_t memory;              /* bytes of memory for the data kept of the text; the rest goes to files */
    const char *beside;           /* a path in the folder for these files */
    hearth_progress_fn *progress; /* may be NULL; false cancels */
    void *progress_user;
} hth_study_options;

hth_study_options hth_study_defaults(void);

/* NaN in the figures below: no value, for example in a layer without active neurons.
 *
 * A predictor (convert/train.h), evaluated on held-out tokens. */
typedef struct hth_study_predictor {
    uint32_t rank;
    uint64_t size;                      /* bytes in Q8_0 */
    double share_of_network;            /* its bytes divided by those of gate, up and down in Q8_0 */
    double recall_top_20;               /* if a fifth of the neurons is marked for each token */
    double recall, precision, sparsity; /* if neurons are marked that are more likely active than not */
} hth_study_predictor;

typedef struct hth_study_layer {
    uint32_t d_ff;
    double zero;     /* share of hidden values that are zero */
    double active;   /* share that counts as active */
    double limit;    /* smallest contribution that is kept at the bound of CETT */
    double sparsity; /* share of contributions below it */
    double sizes[HTH_STUDY_N_SIZE], below_sizes; /* shares of all values; zeros are in neither */
    double cett[HTH_STUDY_N_KEPT];
    double covered[HTH_STUDY_N_HOTTEST]; /* share of all activity */
    double share_for_80;                 /* share of neurons that have 80 % of the activity */
    double reused[HTH_STUDY_N_BEFORE];   /* mean share of a token's active neurons that were active before */
    double run_in_file, run_ordered;     /* mean length of runs of active neurons */
    double co_firing_gap, gap_by_chance; /* gap_by_chance: with each neuron's marks at random tokens */
    uint32_t n_predictor;
    hth_study_predictor predictors[HTH_STUDY_MAX_RANK];
} hth_study_layer;

typedef struct hth_study {
    uint64_t n_chunk, n_tok; /* in the study */
    uint32_t n_ctx, n_sample, n_held;
    bool by_contribution; /* active means a contribution of at least limit; else: not zero */
    double bound;         /* bound of CETT */
    uint32_t n_layer;
    hth_study_layer *layers;
    uint32_t n_row; /* 0 or HTH_STUDY_N_ROW */
    hth_perplexity rows[HTH_STUDY_N_ROW];
} hth_study;

/* session: selector dense, empty; its context is the chunk size. ARGUMENT: the text is shorter than a chunk.
 * IO, MEMORY, CANCELLED. */
hearth_status hth_study_run(const hearth_model *model, hearth_session *session, const char *text, size_t n,
                            const hth_study_options *options, hth_study *out, hearth_error *err);
void hth_study_close(hth_study *study);

#endif
