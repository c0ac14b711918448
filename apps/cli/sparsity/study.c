/* hearth study: sparsity of a model on a text, its benefit and its quality loss, as a page. */
#include "study/study.h"

#include "cli/sparsity/study_report.h"
#include "cli/commands.h"
#include "common/options/model_args.h"
#include "common/text_file.h"
#include "engine/engine.h"
#include "measure/chunks.h"

#include <stdlib.h>
#include <string.h>

static const option_spec options[] = {
    OPT_FILE("file", 'f', "FILE", "the text; - is stdin"),
    OPT_FILE("output", 'o', "PAGE", "the report, one HTML file"),
    OPT_FILE("csv", 0, "FILE", "the figures as a table: layer,measure,x,value"),
    OPT_FLAG("json", 0, "print the figures as a JSON object"),
    OPT_UINT("chunks", 0, "N", 0, 1e9, "use the first N chunks; default 16; 0: all"),
    OPT_UINT("scored", 0, "N", 0, 1e9, "windows for perplexities; default 4; 0: none"),
    OPT_UINT("samples", 0, "N", 8, 4096, "tokens for magnitudes and CETT; default 128"),
    OPT_UINT("trained", 0, "N", 0, 1e6, "layers to train predictors for; default 4"),
    OPT_UINT("steps", 0, "N", 1, 1e6, "steps of their training; default 600"),
    {0},
};

static int check_usage(const args *a)
{
    const char *file = args_text(a, "file", NULL), *selector = args_text(a, "selector", "dense");
    const char *outs[] = {args_text(a, "output", NULL), args_text(a, "csv", NULL)};
    if (!file) return usage_error("study needs -f FILE");
    if (!outs[0] && !outs[1] && !args_has(a, "json"))
        return usage_error("study: say where the report goes: -o PAGE, --csv FILE, or --json");
    if (strcmp(selector, "dense") != 0 && strcmp(selector, "auto") != 0)
        return usage_error("study --selector %s: all neurons compute, so that all are seen", selector);
    int wrong = outs[0] && outs[1] ? check_two_outputs(outs[0], outs[1]) : 0;
    if (wrong) return wrong;
    for (size_t i = 0; i < 2; i++) {
        wrong = outs[i] ? check_output_beside(a, file, outs[i], i == 0 ? OUTPUT_PAGE : OUTPUT_TABLE) : 0;
        if (wrong) return wrong;
    }
    if (args_context(a, 3) < 3 && args_uint(a, "scored", 1) > 0)
        return usage_error(
            "study -c: 3 is the least chunk of which something can be scored (--scored 0: nothing)");
    return 0;
}

/* ---- files ------------------------------------------------------------------------------------ */

typedef bool write_fn(const study_report *r, FILE *out);

/* The file appears when it is complete. False: an error was reported. */
static bool write_file(const study_report *r, write_fn *write, const char *path)
{
    text_file f;
    if (text_file_open(&f, path, false) && !write(r, f.out))
        f.err = (hearth_error){.status = HEARTH_ERROR_MEMORY, .message = "out of memory for the report"};
    bool ok = text_file_finish(&f) || report(&f.err) == 0;
    text_file_close(&f);
    return ok;
}

/* Prints the main results. */
static void print_summary(const study_report *r, const char *page)
{
    const hth_study *s = r->study;
    double active = 0.0, zero = 0.0, sparsity = 0.0, reused = 0.0, n_neuron = 0.0, n_reused = 0.0;
    for (uint32_t i = 0; i < s->n_layer; i++) {
        const hth_study_layer *l = &s->layers[i];
        bool is_reused = l->reused[0] == l->reused[0]; /* NaN if nothing is active */
        n_neuron += l->d_ff;
        active += l->active * l->d_ff;
        zero += l->zero * l->d_ff;
        sparsity += l->sparsity * l->d_ff;
        reused += is_reused ? l->reused[0] * l->d_ff : 0.0;
        n_reused += is_reused ? l->d_ff : 0.0;
    }
    printf(
        "%llu tokens, %u layers, activation %s: %.1f %% of the values are zero; %.1f %% can be left out at "
        "CETT %.2g\n",
        (unsigned long long)s->n_tok, s->n_layer, r->activation, 100.0 * zero / n_neuron,
        100.0 * sparsity / n_neuron, s->bound);
    printf("active (%s): %.1f %% of the neurons; %.0f %% of those were active at the token before\n",
           s->by_contribution ? "what those leave" : "not zero", 100.0 * active / n_neuron,
           n_reused > 0.0 ? 100.0 * reused / n_reused : 0.0);
    for (uint32_t i = 0; i < s->n_row; i++)
        printf("%s %g %% kept: %.4g", i ? ";" : "perplexity with the largest", 100.0 * hth_study_row_kept[i],
               s->rows[i].perplexity);
    if (s->n_row) printf("\n");
    if (page) printf("%s: open it in a browser\n", printable(page));
}

static bool write_all(const study_report *r, const args *a)
{
    const char *page = args_text(a, "output", NULL), *csv = args_text(a, "csv", NULL);
    if (page && !write_file(r, study_write_page, page)) return false;
    if (csv && !write_file(r, study_write_csv, csv)) return false;
    if (args_has(a, "json")) study_write_json(r, stdout);
    else print_summary(r, page);
    return true;
}

/* ---- the command ------------------------------------------------------------------------------------ */

static int study_text(const args *a, const hearth_model *model, hearth_session *session, const char *text,
                      size_t n)
{
    hearth_error err;
    hth_study study;
    progress p;
    hth_study_options o = hth_study_defaults();
    const char *outs[] = {args_text(a, "output", NULL), args_text(a, "csv", NULL)};
    o.n_chunk = args_uint(a, "chunks", o.n_chunk);
    o.n_scored = args_uint(a, "scored", o.n_scored);
    o.n_sample = (uint32_t)args_uint(a, "samples", o.n_sample);
    o.n_trained = (uint32_t)args_uint(a, "trained", o.n_trained);
    o.n_step = (uint32_t)args_uint(a, "steps", o.n_step);
    o.beside = outs[0] ? outs[0] : outs[1] ? outs[1] : "hearth-study";
    o.progress = progress_show;
    o.progress_user = &p;
    for (size_t i = 0; i < 2; i++)
        if (outs[i] && hth_atomic_writer_check(outs[i], &err) != HEARTH_OK) return report(&err);
    hearth_model_info info = model_info(model);
    study_report r = {&study,
                      &info,
                      hth_activation_name(model->model->hparams.activation),
                      args_text(a, "file", NULL),
                      model->model->hparams.d_model,
                      0};
    if (hth_model_hash(model->file, &r.hash, &err) != HEARTH_OK) return report(&err);
    progress_init(&p, "studying", "steps", 1);
    hearth_status st = hth_study_run(model, session, text, n, &o, &study, &err);
    progress_end(&p);
    if (st != HEARTH_OK) return report(&err);
    bool ok = write_all(&r, a);
    hth_study_close(&study);
    return ok ? 0 : EXIT_OTHER;
}

static int run_study(const args *a)
{
    int status = check_usage(a);
    return status ? status : run_on_neurons(a, "hearth study", study_text);
}

const command command_study = {
    .name = "study",
    .operands = "MODEL",
    .summary = "measure a model's sparsity on a text, and plot it",
    .details = "Magnitudes of neuron outputs, the error and perplexity without the small ones,\n"
               "how well small networks predict them, reuse from token to token, hot neurons.\n"
               "Chunks of -c tokens (at most 512). docs/study.md explains the figures.\n"
               "Mixtures of experts are refused.\n",
    .example = "hearth study model.gguf -f text.txt -o report.html",
    .groups = {options, output_options, model_options},
    .models = 1,
    .run = run_study,
};
