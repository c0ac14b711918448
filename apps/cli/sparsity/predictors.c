/* hearth predictors: trains small networks that predict active neurons. */
#include "base/format_bytes.h"
#include "cli/commands.h"
#include "common/input.h"
#include "common/json.h"
#include "common/output.h"
#include "common/terminal/table.h"
#include "common/output_file.h"
#include "convert/predictors.h"

#include <stdlib.h>

static const option_spec options[] = {
    OPT_FILE("file", 'f', "FILE", "the text to train on; - is stdin"),
    OPT_FILE("output", 'o', "FILE", "the predictors; appears when it is complete"),
    OPT_FLOAT("recall", 0, "R", 0.01, 1, "share of firings to be marked; default 0.95"),
    OPT_FLOAT("precision", 0, "P", 0.01, 1, "ranks grow until so many marked neurons fire"),
    OPT_UINT("budget", 0, "MiB", 1, 1e6, "for all; default: a tenth of the neurons in Q8_0"),
    OPT_UINT("tokens", 0, "N", 512, 10000000, "to train on, at most; default 16384"),
    OPT_UINT("steps", 0, "N", 1, 1000000, "of training for each rank; default 1500"),
    OPT_UINT("ctx", 'c', "N", 8, 1048576, "tokens of a chunk; default 512, or as trained for"),
    OPT_UINT("memory", 0, "MiB", 1, 1e7, "of training data, the rest goes to disk; default 2048",
             ADVANCED),
    OPT_UINT("seed", 0, "N", 0, UINT32_MAX, "same seed, same predictors; default 1", ADVANCED),
    OPT_UINT("threads", 't', "N", 1, 256, "threads; default: one for each core", .flags = OPTION_AUTO),
    OPT_FLAG("json", 0, "print a JSON object"),
    {0},
};

static void print_table(const char *out, const hth_predictor_result *r, uint32_t n)
{
    uint64_t size = 0;
    table_begin(0);
    table_add("| layer | rank | KiB | fire | marked | recall | precision |\n|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < n; i++) {
        table_add("| %u | %u | %.1f | %.1f %% | %.1f %% | %.3f | %.3f |\n", i, r[i].rank,
               (double)r[i].size / 1024.0, 100.0 * r[i].live, 100.0 * r[i].marked, r[i].recall,
               r[i].precision);
        size += r[i].size;
    }
    table_end();
    printf("\n%s: %s; shares and rates are of tokens that were not trained on\n", printable(out),
           hth_format_bytes(size).text);
}

static void print_json(const hth_predictor_result *r, uint32_t n)
{
    json j = json_begin(stdout);
    json_open(&j, "layers", '[');
    for (uint32_t i = 0; i < n; i++) {
        json_open_compact(&j, NULL, '{');
        json_uint(&j, "rank", r[i].rank);
        json_uint(&j, "bytes", r[i].size);
        json_float(&j, "live", r[i].live, 6);
        json_float(&j, "marked", r[i].marked, 6);
        json_float(&j, "recall", r[i].recall, 6);
        json_float(&j, "precision", r[i].precision, 6);
        json_float(&j, "threshold", (double)r[i].threshold, 6);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
}

static int run_predictors(const args *a)
{
    progress p;
    hearth_error err;
    hth_predictor_result *layers = NULL;
    uint32_t n_layer = 0;
    size_t n;
    hth_predictor_options o = hth_predictor_defaults();
    const char *path = args_text(a, "file", NULL), *out = args_text(a, "output", NULL);
    if (!path || !out) return usage_error("predictors needs -f FILE and -o FILE");
    const input inputs[] = {{args_operand(a, 0), "the model"}, {path, "the text"}};
    int wrong = check_output(a, out, OUTPUT_PREDICTORS, inputs, 2);
    if (wrong) return wrong;
    o.recall = args_float(a, "recall", o.recall);
    o.precision = args_float(a, "precision", o.precision);
    o.budget = args_uint(a, "budget", 0) << 20;
    o.n_token = (uint32_t)args_uint(a, "tokens", o.n_token);
    o.n_step = (uint32_t)args_uint(a, "steps", o.n_step);
    o.memory = args_uint(a, "memory", o.memory >> 20) << 20;
    o.seed = args_uint(a, "seed", o.seed);
    o.n_thread = (uint32_t)args_uint(a, "threads", 0);
    o.progress = progress_show, o.progress_user = &p;
    char *text = read_text_file(path, &n);
    if (!text) return EXIT_OTHER;
    install_signal_handlers();
    interrupt_at_once(true); /* until the text is divided into chunks */
    progress_init(&p, "training", NULL, 1);
    hearth_status st = hth_predictors_make(args_operand(a, 0), text, n, out, (uint32_t)args_uint(a, "ctx", 0),
                                           &o, &layers, &n_layer, &err);
    progress_end(&p);
    free(text);
    if (st != HEARTH_OK) return report(&err);
    if (args_has(a, "json")) print_json(layers, n_layer);
    else print_table(out, layers, n_layer);
    hearth_free(layers);
    return finish_stdout();
}

const command command_predictors = {
    .name = "predictors",
    .operands = "MODEL",
    .summary = "train small networks that predict which neurons fire",
    .details = "For models whose activation gives zeros; mixtures of experts are refused. Each\n"
               "layer gets the smallest rank that reaches --recall and --precision within the\n"
               "budget, judged on held-out tokens. hearth pack adds them to a model, hearth\n"
               "compare prints their quality loss.\n",
    .example = "hearth predictors model.gguf -f text.txt -o predictors.gguf --recall 0.95",
    .groups = {options, output_options},
    .models = 1,
    .run = run_predictors,
};
