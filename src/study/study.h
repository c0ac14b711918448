/* hearth study: what a text shows of the sparsity of a model, as the papers measured theirs (Zhang et al.
 * 2024, ReLU^2 Wins, sections 3 and 4; Song et al. 2024, Turbo Sparse, table 3). All neurons are computed;
 * only the perplexities by forced sparsity leave some out. docs/study.md explains the figures. */
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

/* Where the curves have their points. */
extern const double hth_study_kept[HTH_STUDY_N_KEPT];       /* shares of neurons kept for a token */
extern const double hth_study_hottest[HTH_STUDY_N_HOTTEST]; /* shares of neurons, the hottest */
extern const uint32_t hth_study_before[HTH_STUDY_N_BEFORE]; /* tokens before one */
extern const double hth_study_row_kept[HTH_STUDY_N_ROW];    /* shares kept in the rows of perplexity */
/* Lower edge of bin i of the contributions' sizes, log2 of the ratio to the token's mean. */
double hth_study_size_log2(size_t i);

typedef struct hth_study_options {
    uint32_t n_sample;            /* tokens whose contributions are looked at */
    uint64_t n_window;            /* of the text, at most; 0: all */
    uint64_t n_scored;            /* windows for perplexity, at most; 0: no perplexities */
    uint32_t n_trained;           /* layers with predictors, evenly spread; 0: none */
    uint32_t n_step;              /* of a predictor's training */
    double cett;                  /* the bound that makes a neuron count as active where no value is zero */
    uint64_t memory;              /* bytes that what is kept of the text may take; the rest goes to files */
    const char *beside;           /* a path in the folder for these */
    hearth_progress_fn *progress; /* may be NULL; false cancels */
    void *progress_user;
} hth_study_options;

hth_study_options hth_study_defaults(void);

/* Of all figures below: a NaN where there is none, as of a layer in which nothing is active.
 *
 * A predictor (convert/train.h), judged on tokens that it was not trained on. */
typedef struct hth_study_predictor {
    uint32_t rank;
    uint64_t size;                      /* bytes in Q8_0 */
    double share_of_network;            /* of the bytes of gate, up and down in Q8_0 */
    double recall_top_20;               /* where a fifth of the neurons is marked for each token */
    double recall, precision, sparsity; /* where those are marked that are likelier to be active than not */
} hth_study_predictor;

typedef struct hth_study_layer {
    uint32_t d_ff;
    double zero;     /* share of hidden values that are zero */
    double active;   /* share that counts as active */
    double limit;    /* smallest contribution that does not disappear at the bound of CETT */
    double sparsity; /* share of contributions below it */
    double sizes[HTH_STUDY_N_SIZE], below_sizes; /* shares of all values; zeros are in neither */
    double cett[HTH_STUDY_N_KEPT];
    double covered[HTH_STUDY_N_HOTTEST]; /* of all activity */
    double share_for_80;                 /* of neurons, which make 80 % of the activity */
    double reused[HTH_STUDY_N_BEFORE];   /* share of a token's active ones that were active before; mean */
    double run_in_file, run_ordered;     /* mean length of runs of active neurons */
    double co_firing_gap, gap_by_chance; /* the second: each neuron's marks at other tokens, drawn */
    uint32_t n_predictor;
    hth_study_predictor predictors[HTH_STUDY_MAX_RANK];
} hth_study_layer;

typedef struct hth_study {
    uint64_t n_window, n_tok; /* that were looked at */
    uint32_t n_ctx, n_sample, n_held;
    bool by_contribution; /* active: a contribution that reaches limit; else: not zero */
    double bound;         /* of CETT */
    uint32_t n_layer;
    hth_study_layer *layers;
    uint32_t n_row; /* 0 or HTH_STUDY_N_ROW */
    hth_perplexity rows[HTH_STUDY_N_ROW];
} hth_study;

/* session: of selector dense, empty; its context is the window. ARGUMENT when the text is shorter than a
 * window, IO, MEMORY, CANCELLED. */
hearth_status hth_study_run(const hearth_model *model, hearth_session *session, const char *text, size_t n,
                            const hth_study_options *options, hth_study *out, hearth_error *err);
void hth_study_close(hth_study *study);

#endif
