/* The line of hearth run --check. Evaluates the session of the run again. Bits do not depend on the batch size,
 * so it gives the logits of the run. (Except with --bf16-dot: generated tokens count as prompt here, and are
 * rounded more.) */
#include "cli/run/run_verify.h"

#include "common/options/model_args.h"
#include "measure/compare.h"

/* Percent of positions with the same most likely token, below which a warning is printed. */
static const double GOOD_AGREEMENT = 95.0;

static void print_result(const hearth_model *model, const hth_comparison *r)
{
    hearth_model_info info = model_info(model);
    const char *selector = hearth_selector_name(info.selector);
    hth_compare_layer all = hth_compare_all_layers(r);
    if (r->n_identical == r->n_scored) {
        print_requested("check of %llu tokens: selector %s is exact: all logits are those of dense",
                        (unsigned long long)r->n_token, selector);
        return;
    }
    double agreement = 100.0 * (double)r->n_agree / (double)r->n_scored;
    bool differs = info.gpu && !info.gpu_bit_exact; /* with any selector, exact ones too */
    char recall[40] = "";
    if (r->n_layer > 0)
        snprintf(recall, sizeof recall, ", recall %.1f %%",
                 all.n_live > 0 ? 100.0 * (double)all.n_hit / (double)all.n_live : 100.0);
    print_requested(
        "check of %llu tokens: selector %s%s%s against dense: same likeliest token %.1f %%, mean KL %.3g "
        "nats%s",
        (unsigned long long)r->n_token, selector, differs ? " with the bits of " : "",
        differs ? info.gpu : "", agreement, r->kl, recall);
    if (agreement < GOOD_AGREEMENT)
        print_warning("the mode names another token than dense at %.1f %% of the positions; hearth compare "
                      "measures what it costs",
                      100.0 - agreement);
}

/* Neurons on a device are not observable, and its caches belong to the run. In that case the dense run uses the
 * same file on the CPU. */
static bool open_dense(const args *a, const char *path, const hearth_model *model, hearth_model **on_cpu)
{
    hearth_model_info info = model_info(model);
    return !info.gpu || open_on_cpu(a, path, on_cpu);
}

int run_check(const args *a, const char *path, const hearth_model *model, hearth_session *session,
              const int32_t *ids, size_t n)
{
    hearth_model *on_cpu = NULL;
    hth_compare_side reference = {model, NULL}, mode = {model, session};
    hth_compare *compare = NULL;
    hth_comparison result;
    hearth_error err;
    progress p;
    hearth_model_info info = model_info(model);
    if (is_reference(a, model) && info.gpu_bit_exact) {
        print_requested("check: selector dense is exact");
        return 0;
    }
    if (!info.gpu && !info.gpu_bit_exact) {
        print_requested(
            "check: the run has left its device, which had not the CPU's bits (%s): what it computed is gone",
            info.gpu_bit_exact_reason);
        return 0;
    }
    if (n < 2) {
        print_requested("check: a run of one token has nothing to compare");
        return 0;
    }
    if (!open_dense(a, path, model, &on_cpu)) return EXIT_OTHER;
    if (on_cpu) reference.model = on_cpu;
    int code = EXIT_OTHER;
    if (!open_reference(a, reference.model, session, &reference.session)) goto done;
    hearth_status st = hth_compare_open(&reference, &mode, &compare, &err);
    if (st == HEARTH_OK) {
        progress_init(&p, "checking", "runs", 1);
        hth_compare_progress watch = {progress_show, &p, 0, 1};
        st = hth_compare_ids(compare, ids, n, 0, &watch, &err);
        progress_end(&p);
    }
    if (st == HEARTH_OK) {
        hth_compare_result(compare, &result);
        print_result(model, &result);
    }
    code = st == HEARTH_OK ? 0 : report(&err);
done:
    hth_compare_close(compare);
    hearth_session_close(reference.session);
    hearth_model_close(on_cpu);
    return code;
}
