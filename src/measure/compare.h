/* What a mode costs: the same tokens by a reference, which computes all neurons, and by the mode in
 * question. The logits are compared position by position. Where both run on one model, each layer says
 * besides which of its live neurons the mode would have computed for the reference's own input: so
 * one layer's omissions do not disturb what is said of the next. Used by hearth compare and by run
 * --check; docs/compare.md says what the figures mean. */
#ifndef HTH_MEASURE_COMPARE_H
#define HTH_MEASURE_COMPARE_H

#include "measure/perplexity.h"

typedef struct hth_compare hth_compare;

/* One of the two. The session must step itself and be nobody else's while it is compared. */
typedef struct hth_compare_side {
    const hearth_model *model;
    hearth_session *session;
} hth_compare_side;

/* Counts of one layer over all tokens that were evaluated. */
typedef struct hth_compare_layer {
    uint64_t n_neuron; /* tokens times neurons */
    uint64_t n_live;   /* in the reference: what they send to down is not zero */
    uint64_t n_mode;   /* live in the mode's own run */
    uint64_t n_marked; /* that the mode would compute for the reference's input (hth_step_selector_mask) */
    uint64_t n_hit;    /* both live in the reference and marked */
    /* Of each token || down(lost) || / || down(hidden) ||, where lost is what the reference sends to
     * down and the mode would not (CETT: Zhang et al. 2024, ReLU2 Wins, eq. 3): sum and largest. */
    double error_sum, error_max;
    uint64_t n_token;
} hth_compare_layer;

typedef struct hth_comparison {
    uint64_t n_token;          /* that each side evaluated */
    uint64_t n_window, n_done; /* of a text */
    uint64_t n_scored;         /* positions whose logits were compared */
    uint64_t n_agree;          /* of them with the same likeliest token */
    uint64_t n_identical;      /* of them with the same logits, bit for bit */
    hth_perplexity reference, mode;
    double ratio, ratio_error;    /* of the perplexities; its error is that of the differences by position */
    double kl, kl_99, kl_largest; /* divergence of the mode from the reference, nats; kl is the mean */
    uint32_t n_layer;             /* 0: two models, whose layers are not compared */
    const hth_compare_layer *layers;
} hth_comparison;

/* Both sides must have as many logits, the same tokens and the same n_batch; ARGUMENT where not. On one
 * model the reference's session should have the selector dense. */
hearth_status hth_compare_open(const hth_compare_side *reference, const hth_compare_side *mode,
                               hth_compare **out, hearth_error *err);
void hth_compare_close(hth_compare *c);

/* ids[n] from position 0 on, in place of what the sessions held. The logits behind ids[first .. n - 2] are
 * scored, of which it is known what comes next. progress (or NULL) is called with done and total between
 * pieces of up to 256 tokens. After an error (CANCELLED: progress was false) these ids do not count. */
typedef struct hth_compare_progress {
    hearth_progress_fn *progress;
    void *user;
    uint64_t done, total;
} hth_compare_progress;
hearth_status hth_compare_ids(hth_compare *c, const int32_t *ids, size_t n, size_t first,
                              const hth_compare_progress *watch, hearth_error *err);

/* All that was compared so far. layers stay until the next call on c. */
void hth_compare_result(hth_compare *c, hth_comparison *out);

/* All layers of a result together: their counts and errors summed, the largest of the largest. */
hth_compare_layer hth_compare_all_layers(const hth_comparison *r);

/* The windows of a text, scored as hth_measure_perplexity does; likewise for the arguments and for what ends
 * it early. The context of the mode's session is the window. */
hearth_status hth_measure_compare(hth_compare *c, const char *text, size_t n, uint64_t n_window_max,
                                  hearth_progress_fn *progress, void *progress_user, hth_comparison *out,
                                  hearth_error *err);

#endif
