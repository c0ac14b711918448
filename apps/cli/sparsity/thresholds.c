/* hearth thresholds: calibrates how large an activation must be for its neuron to be computed. */
#include "cli/commands.h"
#include "common/options/model_args.h"
#include "file/atomic_writer.h"
#include "measure/thresholds.h"
#include "measure/chunks.h"
#include "common/terminal/table.h"

#include <stdlib.h>
#include <string.h>

/* Shares closer than this count as equal. */
#define MISS 0.005

static const option_spec options[] = {
    OPT_FILE("file", 'f', "FILE", "the text to calibrate on; - is stdin"),
    OPT_FILE("output", 'o', "FILE", "the thresholds; appears when it is complete"),
    OPT_FLOAT("cett", 0, "X", 1e-6, 1, "error of each layer's output; default 0.2"),
    OPT_FLOAT("sparsity", 0, "S", 0.01, 0.99, "instead: mean share of neurons left out"),
    OPT_UINT("samples", 0, "N", 8, 65536, "tokens to sample; default 128"),
    {0},
};

/* The requested share is missed if too many values are zero, or too many have the same size. */
static void print_miss(double asked, double reached, double zero)
{
    double miss = reached - asked;
    if (asked <= 0.0 || (miss < MISS && miss > -MISS)) return;
    printf("asked for %.1f %%, reached %.1f %%: ", 100.0 * asked, 100.0 * reached);
    if (zero > asked)
        printf("%.1f %% are exactly zero on this text; these are always left out\n", 100.0 * zero);
    else printf("neurons of equal size are left out together\n");
}

static void print_table(const char *out, const hth_thresholds *t, double asked)
{
    double sparsity = 0.0, zero = 0.0;
    table_begin(2);
    table_add("| layer | left out | error (CETT) |\n|---|---|---|\n");
    for (uint32_t i = 0; i < t->n_layer; i++) {
        table_add("| %u | %.1f %% | %.3f |\n", i, 100.0 * t->layers[i].sparsity, t->layers[i].cett);
        sparsity += t->layers[i].sparsity / t->n_layer;
        zero += t->layers[i].zero / t->n_layer;
    }
    table_end();
    printf("\n%s: %.1f %% of the neurons left out on average, over %llu tokens\n", printable(out),
           100.0 * sparsity, (unsigned long long)t->n_token);
    print_miss(asked, sparsity, zero);
}

static int find_thresholds(const args *a, const hearth_model *model, hearth_session *session,
                           const char *text, size_t n)
{
    progress p;
    hearth_error err;
    hth_thresholds t;
    const char *out = args_text(a, "output", NULL);
    hth_threshold_options o = {.cett = args_has(a, "sparsity") ? 0.0 : args_float(a, "cett", 0.2),
                               .sparsity = args_float(a, "sparsity", 0.0),
                               .n_sample = (uint32_t)args_uint(a, "samples", 128),
                               .progress = progress_show,
                               .progress_user = &p};
    progress_init(&p, "calibrating", "chunks and layers", 1);
    hearth_status st = hth_atomic_writer_check(out, &err);
    if (st == HEARTH_OK) st = hth_thresholds_find(model, session, text, n, &o, &t, &err);
    progress_end(&p);
    if (st != HEARTH_OK) return report(&err);
    st = hth_thresholds_write(&t, model, out, &err);
    if (st == HEARTH_OK) print_table(out, &t, o.sparsity);
    hth_thresholds_close(&t);
    return st == HEARTH_OK ? finish_stdout() : report(&err);
}

static int run_thresholds(const args *a)
{
    const char *path = args_text(a, "file", NULL), *out = args_text(a, "output", NULL);
    if (!path || !out) return usage_error("thresholds needs -f FILE and -o FILE");
    if (args_has(a, "cett") && args_has(a, "sparsity"))
        return usage_error("--cett and --sparsity exclude each other");
    if (strcmp(args_text(a, "selector", "dense"), "dense") != 0)
        return usage_error("thresholds looks at all neurons: --selector dense");
    int wrong = check_output_beside(a, path, out, OUTPUT_THRESHOLDS);
    return wrong ? wrong : run_on_neurons(a, "hearth thresholds", find_thresholds);
}

const command command_thresholds = {
    .name = "thresholds",
    .operands = "MODEL",
    .summary = "find how large an activation must be to count",
    .details = "For any activation, SwiGLU too: neurons whose activation is below their own\n"
               "threshold are left out (--selector threshold). Thresholds are found on a text\n"
               "such that the output of each layer has the error --cett (norm of what is left\n"
               "out over that of all), or such that a share of the neurons is left out.\n"
               "Mixtures of experts are refused.\n",
    .example = "hearth thresholds model.gguf -f text.txt -o t.gguf --sparsity 0.5",
    .groups = {options, output_options, model_options},
    .models = 1,
    .run = run_thresholds,
};
