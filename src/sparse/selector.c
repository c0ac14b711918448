/* Chooses a selector. Called by the engine when a model is opened, and for sessions that request another one. */
#include "sparse/selector.h"

#include <stdio.h>

static hearth_status fail_selector(const hth_model *m, hearth_selector requested, const char *needs, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: selector %s is not possible: %s", hth_gguf_path(m->file),
                    hth_selector_name(requested), needs);
}

static hearth_status check(const hth_model *m, hearth_selector requested, hearth_error *err)
{
    if (requested == HEARTH_SELECTOR_GATE && !hth_activation_is_sparse(m->hparams.activation)) {
        char needs[160];
        snprintf(needs, sizeof needs,
                 "activation %s gives no exact zeros, so the gate decides nothing; threshold is for it",
                 hth_activation_name(m->hparams.activation));
        return fail_selector(m, requested, needs, err);
    }
    if (requested == HEARTH_SELECTOR_PREDICTOR && !m->has_predictors)
        return fail_selector(m, requested, "there are no predictors (blk.0.fc1.weight); hearth predictors makes them",
                      err);
    if (requested == HEARTH_SELECTOR_THRESHOLD && !m->has_thresholds)
        return fail_selector(m, requested,
                      "there are no thresholds (blk.0.ffn_floor.weight); hearth thresholds makes them", err);
    return HEARTH_OK;
}

hearth_selector hth_selector_default(const hth_model *m, hearth_selector requested, const hth_sidecar *predictors,
                                  const hth_sidecar *thresholds)
{
    if (requested != HEARTH_SELECTOR_AUTO || m->hparams.other_activation) return requested;
    if (predictors->file) return HEARTH_SELECTOR_PREDICTOR;
    return thresholds->file ? HEARTH_SELECTOR_THRESHOLD : requested;
}

hearth_status hth_selector_choose(const hth_model *m, hearth_selector requested, hearth_selector *selector,
                                  const char **why, hearth_error *err)
{
    bool gated = m->layers[0].ffn.gate.n_row > 0, sparse = hth_activation_is_sparse(m->hparams.activation);
    *selector = requested;
    *why = "the option or the command asks for it";
    if (!hth_model_is_dense(m)) {
        *why = m->hparams.experts.n_expert > 0 ? "a router chooses experts" : "layers have no network";
        if (requested == HEARTH_SELECTOR_AUTO) *selector = HEARTH_SELECTOR_DENSE;
        return *selector == HEARTH_SELECTOR_DENSE ? HEARTH_OK : hth_model_check_dense(m, "a selector", err);
    }
    bool as_made = !m->hparams.other_activation;
    if (requested == HEARTH_SELECTOR_AUTO && m->selector != HEARTH_SELECTOR_AUTO && as_made) {
        *selector = m->selector;
        *why = "the file was made for it";
    } else if (requested == HEARTH_SELECTOR_AUTO && (m->has_predictors || m->has_thresholds) && as_made) {
        *selector = m->has_predictors ? HEARTH_SELECTOR_PREDICTOR : HEARTH_SELECTOR_THRESHOLD;
        *why = m->has_predictors ? "there are predictors" : "there are thresholds";
    } else if (requested == HEARTH_SELECTOR_AUTO) {
        bool gains = sparse && (gated || m->down_transposed);
        *selector = gains ? HEARTH_SELECTOR_GATE : HEARTH_SELECTOR_DENSE;
        *why = gains    ? "its activation gives zeros"
               : sparse ? "skipping needs a packed file"
                        : "its activation gives no zeros";
    }
    return check(m, *selector, err);
}

bool hth_selector_needs_row_major_first(hearth_selector selector) { return selector == HEARTH_SELECTOR_PREDICTOR; }

bool hth_selector_needs_row_major_second(hearth_selector selector)
{
    return selector != HEARTH_SELECTOR_DENSE && selector != HEARTH_SELECTOR_AUTO;
}
