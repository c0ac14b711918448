/* hearth profile: records which neurons are active over a text, their magnitudes, and co-activation; of a mixture which
 * experts (profile_experts.c). */
#include "cli/commands.h"
#include "cli/sparsity/profile_experts.h"
#include "common/json.h"
#include "common/options/model_args.h"
#include "engine/engine.h"
#include "measure/profile.h"
#include "sparse/expert_trace.h"
#include "measure/chunks.h"
#include "common/terminal/table.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_SAMPLES = 1024 };

static const option_spec options[] = {
    OPT_FILE("file", 'f', "FILE", "the text; - is stdin"),
    OPT_FILE("out", 'o', "OUT", "the profile"),
    OPT_UINT("samples", 0, "N", 0, HTH_PROFILE_MAX_SAMPLE,
             "tokens with stored firings; default 1024; 0: none"),
    OPT_UINT("tokens", 0, "N", 1, HTH_EXPERT_TRACE_MAX_TOK, "of a mixture: tokens to record; default 16384"),
    OPT_FLAG("json", 0, "print a JSON object"),
    {0},
};

/* ---- progress -------------------------------------------------------------------------------- */

typedef struct watch {
    progress p;
    bool started;
    uint64_t n_before; /* tokens of an earlier run, excluded from the rate */
    const char *out;
} watch;

static bool show(void *user, uint64_t done, uint64_t total)
{
    watch *w = user;
    if (!w->started) {
        w->started = true;
        w->n_before = done;
        progress_init(&w->p, "profiling", "tokens", 1);
        if (done > 0)
            print_status("%s.resume: %llu of %llu tokens are done; going on", w->out,
                         (unsigned long long)done, (unsigned long long)total);
    }
    return progress_show(&w->p, done - w->n_before, total - w->n_before);
}

/* ---- results --------------------------------------------------------------------------------- */

static double mean_live(const hth_profile *p)
{
    double live = 0.0, all = 0.0;
    for (uint32_t i = 0; i < p->n_layer; i++) {
        live += hth_profile_live(p, i) * p->layers[i].d_ff;
        all += p->layers[i].d_ff;
    }
    return live / all;
}

/* Shares of a layer's values of gate and up that were above zero. The sparser half is the better one to compute
 * first. */
typedef struct halves {
    double gate, up;
    const char *sparser; /* "gate", "up", or "-": no gate */
} halves;

static halves halves_of(const hth_profile *p, uint32_t i_layer)
{
    const hth_profile_layer *l = &p->layers[i_layer];
    double all = (double)p->n_tok * l->d_ff;
    halves h = {(double)l->gate_fired / all, (double)l->up_fired / all, "-"};
    if (l->gate_fired > 0) h.sparser = h.gate <= h.up ? "gate" : "up";
    return h;
}

static void print_table(const hth_profile *p, const char *out)
{
    table_begin(2);
    table_add("| layer | live %% | hottest 10 %% | 20 %% | largest | gate > 0 %% | up > 0 %% | sparser |\n"
           "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
    for (uint32_t i = 0; i < p->n_layer; i++) {
        halves h = halves_of(p, i);
        table_add("| %u | %.1f | %.1f | %.1f | %.4g | %.1f | %.1f | %s |\n", i, 100.0 * hth_profile_live(p, i),
               100.0 * hth_profile_cover(p, i, 0.1), 100.0 * hth_profile_cover(p, i, 0.2),
               (double)p->layers[i].largest, 100.0 * h.gate, 100.0 * h.up, h.sparser);
    }
    table_end();
    printf(
        "\n%s: %llu tokens in chunks of %u, %u samples; %.1f %% of the values were live (activation %s).\n"
        "Hottest: the share of all %s that these neurons have. Largest: |hidden|.\n",
        printable(out), (unsigned long long)p->n_tok, p->n_ctx, p->n_sample, 100.0 * mean_live(p),
        p->activation, p->coact_is_top_decile ? "|hidden|" : "firings");
}

static void print_json(const hth_profile *p, const char *out, uint64_t n_before)
{
    json j = json_begin(stdout);
    json_word(&j, "profile", out);
    json_hash(&j, "model_hash", p->model_hash);
    json_uint(&j, "tokens", p->n_tok);
    json_uint(&j, "tokens_of_an_earlier_run", n_before);
    json_uint(&j, "n_ctx", p->n_ctx);
    json_uint(&j, "samples", p->n_sample);
    json_word(&j, "activation", p->activation);
    json_word(&j, "settings", p->settings);
    json_word(&j, "hottest_by", p->coact_is_top_decile ? "size" : "firings");
    json_float(&j, "live", mean_live(p), 6);
    json_open(&j, "layers", '[');
    for (uint32_t i = 0; i < p->n_layer; i++) {
        halves h = halves_of(p, i);
        json_open_compact(&j, NULL, '{');
        json_uint(&j, "neurons", p->layers[i].d_ff);
        json_float(&j, "live", hth_profile_live(p, i), 6);
        json_float(&j, "hottest_10", hth_profile_cover(p, i, 0.1), 6);
        json_float(&j, "hottest_20", hth_profile_cover(p, i, 0.2), 6);
        json_float(&j, "largest", (double)p->layers[i].largest, 9);
        json_float(&j, "gate_above_zero", h.gate, 6);
        json_float(&j, "up_above_zero", h.up, 6);
        json_word(&j, "sparser", h.sparser);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
}

/* ---- the command -------------------------------------------------------------------------------- */

static int check_usage(const args *a)
{
    const char *file = args_text(a, "file", NULL), *out = args_text(a, "out", NULL),
               *selector = args_text(a, "selector", "dense");
    if (!file || !out) return usage_error("profile needs -f FILE and -o OUT");
    if (strcmp(selector, "dense") != 0 && strcmp(selector, "auto") != 0)
        return usage_error("profile --selector %s: all neurons compute, so that all are seen", selector);
    return check_output_beside(a, file, out, OUTPUT_PROFILE);
}

static int profile_neurons(const args *a, const hearth_model *model, hearth_session *session, const char *text,
                           size_t n, const char *settings)
{
    hearth_error err;
    hth_profile *p;
    watch w = {.out = args_text(a, "out", NULL)};
    hth_profile_options o = {.out = w.out,
                             .n_sample = (uint32_t)args_uint(a, "samples", DEFAULT_SAMPLES),
                             .settings = settings,
                             .save_ns = HTH_PROFILE_SAVE_NS,
                             .progress = show,
                             .progress_user = &w};
    hearth_status st = hth_measure_profile(model, session, text, n, &o, &p, &err);
    progress_end(&w.p);
    if (st != HEARTH_OK) return report(&err);
    if (args_has(a, "json")) print_json(p, w.out, w.n_before);
    else print_table(p, w.out);
    hth_profile_close(p);
    return 0;
}

static int profile_text(const args *a, const hearth_model *model, hearth_session *session, const char *text,
                        size_t n)
{
    char settings[64];
    bool is_mixture = model->model->hparams.experts.n_expert > 0;
    const char *foreign = is_mixture ? "samples" : "tokens";
    if (args_has(a, foreign))
        return report_text("--%s is for %s; this one is %s", foreign, is_mixture ? "models without experts" : "mixtures of experts",
                           is_mixture ? "a mixture of experts" : "none");
    if (!args_has(a, "json")) print_start_line(a, model, session);
    snprintf(settings, sizeof settings, "kv %s%s", args_text(a, "kv", "f16"),
             args_has(a, "bf16-dot") ? ", bf16-dot" : "");
    return (is_mixture ? profile_experts : profile_neurons)(a, model, session, text, n, settings);
}

static int run_profile(const args *a)
{
    int status = check_usage(a);
    return status ? status : run_on_neurons(a, NULL, profile_text);
}

const command command_profile = {
    .name = "profile",
    .operands = "MODEL",
    .summary = "record which neurons or experts fire over a text",
    .details = "Chunks of -c tokens (at most 512), all neurons computed. OUT is an input of\n"
               "pack and plan; docs/profile.md describes it. Until it is complete, OUT.resume\n"
               "holds the state, every 30 seconds and at Ctrl-C: the same command resumes from\n"
               "it. Of a mixture the experts of each token are recorded, for --route trace=OUT\n"
               "of bench and plan; Ctrl-C keeps the chunks that are complete.\n",
    .example = "hearth profile model.gguf -f text.txt -o model.profile",
    .groups = {options, output_options, model_options},
    .models = 1,
    .run = run_profile,
};
