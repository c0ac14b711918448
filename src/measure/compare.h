/* Measures the quality loss of a mode: the same tokens run through a reference, which computes all neurons, and
 * through the mode. Logits are compared position by position. If both run on one model, each layer also counts
 * which of its live neurons the mode would compute for the reference's own input, so that omissions of one
 * layer do not affect the counts of the next. hearth compare and run --check use it; docs/compare.md explains
 * the figures. */
#ifndef HTH_MEASURE_COMPARE_H
#define HTH_MEASURE_COMPARE_H

#include "measure/perplexity.h"

typedef struct hth_compare hth_compare;

/* One side. The session must run its own steps and must not be used by others during the comparison. */
typedef struct hth_compare_side {
    const hearth_model *model;
    hearth_session *session;
} hth_compare_side;

/* Counts of one layer over all evaluated tokens. */
typedef struct hth_compare_layer {
    uint64_t n_neuron; /* tokens times neurons */
    uint64_t n_live;   /* in the reference: input to down is not zero */
    uint64_t n_mode;   /* live in the run of the mode */
    uint64_t n_marked; /* computed by the mode for the reference's input (hth_step_selector_mask) */
    uint64_t n_hit;    /* both live in the reference and marked */
    /* Sum and maximum over the tokens of || down(lost) || / || down(hidden) ||, where lost is the reference's
     * input to down without the marked neurons (CETT: Zhang et al. 2024, ReLU2 Wins, eq. 3). */
    double error_sum, error_max;
    uint64_t n_token;
} hth_compare_layer;

typedef struct hth_comparison {
    uint64_t n_token;          /* evaluated tokens per side */
    uint64_t n_chunk, n_done; /* chunks of a text; n_done: compared */
    uint64_t n_scored;         /* positions whose logits were compared */
    uint64_t n_agree;          /* of those, positions with the same most likely token */
    uint64_t n_identical;      /* of those, positions with bit-identical logits */
    hth_perplexity reference, mode;
    double ratio, ratio_error;    /* ratio of the perplexities; its error, from the differences per position */
    double kl, kl_99, kl_largest; /* divergence of the mode from the reference, nats; kl: mean, kl_99: 99th
                                   * percentile */
    uint32_t n_layer;             /* 0: of two models, and of mixtures of experts, layers are not compared */
    const hth_compare_layer *layers;
} hth_comparison;

/* Both sides must have the same number of logits, the same tokens and the same n_batch, else ARGUMENT. On one
 * model the reference's session should have the selector dense. */
hearth_status hth_compare_open(const hth_compare_side *reference, const hth_compare_side *mode,
                               hth_compare **out, hearth_error *err);
void hth_compare_close(hth_compare *c);

/* Evaluates ids[n] from position 0 on; drops what the sessions held. Scores the logits of ids[first .. n - 2],
 * whose next ids are known. Calls progress (or NULL) with done and total between batches of up to 256 tokens.
 * After an error (CANCELLED: progress returned false) these ids do not count. */
typedef struct hth_compare_progress {
    hearth_progress_fn *progress;
    void *user;
    uint64_t done, total;
} hth_compare_progress;
hearth_status hth_compare_ids(hth_compare *c, const int32_t *ids, size_t n, size_t first,
                              const hth_compare_progress *watch, hearth_error *err);

/* All comparisons so far. layers stay valid until the next call on c. */
void hth_compare_result(hth_compare *c, hth_comparison *out);

/* Sums the counts and errors of all layers of a result; error_max is the largest. */
hth_compare_layer hth_compare_all_layers(const hth_comparison *r);

/* Compares over the chunks of a text, scored as hth_measure_perplexity does, with the same arguments and the
 * same cancellation. The context of the mode's session is the chunk size. */
hearth_status hth_measure_compare(hth_compare *c, const char *text, size_t n, uint64_t n_chunk_max,
                                  hearth_progress_fn *progress, void *progress_user, hth_comparison *out,
                                  hearth_error *err);

#endif
