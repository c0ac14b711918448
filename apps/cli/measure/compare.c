/* hearth compare: quality loss of a mode, compared with the model with all neurons, or with another file. */
#include "measure/compare.h"
#include "common/terminal/table.h"

#include "cli/commands.h"
#include "common/json.h"
#include "common/options/model_args.h"

#include <stdlib.h>

static const option_spec options[] = {
    OPT_FILE("file", 'f', "FILE", "the text; - is stdin"),
    OPT_FILE("against", 0, "OTHER", "the reference is this file, dense", .flags = OPTION_MODEL),
    OPT_UINT("chunks", 0, "N", 1, 1e9, "compare the first N chunks only"),
    OPT_FLAG("json", 0, "print a JSON object"),
    {0},
};

/* A chunk of n tokens scores n - 1 - n / 2 of them. */
enum { MIN_CHUNK = 3 };

typedef struct comparison {
    const args *a;
    hearth_model *model, *other; /* other: of --against, or NULL */
    hearth_session *session, *reference;
    hearth_model_info info, reference_info;
    hth_comparison result;
} comparison;

static double share(uint64_t n, uint64_t of) { return of > 0 ? (double)n / (double)of : 0.0; }

/* ---- text ------------------------------------------------------------------------------------- */

static void print_percent(uint64_t n, uint64_t of)
{
    if (of > 0) table_add(" %.2f |", share(n, of) * 100.0);
    else table_add(" - |");
}

static void print_layer(const hth_compare_layer *l)
{
    print_percent(l->n_live, l->n_neuron);
    print_percent(l->n_mode, l->n_neuron);
    print_percent(l->n_marked, l->n_neuron);
    print_percent(l->n_hit, l->n_live);
    print_percent(l->n_hit, l->n_marked);
    table_add(" %.4f | %.4f |\n", l->n_token ? l->error_sum / (double)l->n_token : 0.0, l->error_max);
}

static void print_layers(const hth_comparison *r)
{
    printf("\n");
    table_begin(0);
    table_add("| layer | live %% | of the mode | marked %% | recall %% | precision %% | CETT | largest |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < r->n_layer; i++) {
        table_add("| %u |", i);
        print_layer(&r->layers[i]);
    }
    hth_compare_layer sum = hth_compare_all_layers(r);
    table_add("| all |");
    print_layer(&sum);
    table_end();
}

static void print_table(const comparison *c)
{
    const hth_comparison *r = &c->result;
    printf("reference: %s, dense: perplexity %.4f +/- %.4f\n", printable(c->reference_info.path),
           r->reference.perplexity, r->reference.error);
    printf("mode: %s, %s: perplexity %.4f +/- %.4f; ratio %.5f +/- %.5f\n", printable(c->info.path),
           hearth_selector_name(c->info.selector), r->mode.perplexity, r->mode.error, r->ratio,
           r->ratio_error);
    printf("chunks of %u: %llu of %llu; %llu positions scored\n", hearth_session_n_ctx(c->session),
           (unsigned long long)r->n_done, (unsigned long long)r->n_chunk, (unsigned long long)r->n_scored);
    printf("KL divergence: mean %.3g, 99th percentile %.3g, largest %.3g nats\n", r->kl, r->kl_99,
           r->kl_largest);
    printf("same likeliest token: %.2f %%\n", share(r->n_agree, r->n_scored) * 100.0);
    if (r->n_identical == r->n_scored) printf("logits: identical, all bits of all positions\n");
    else
        printf("logits: identical at %llu of %llu positions\n", (unsigned long long)r->n_identical,
               (unsigned long long)r->n_scored);
    if (r->n_layer > 0) print_layers(r);
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static void print_side(json *j, const char *key, const hearth_model_info *info, hearth_selector selector,
                       const hth_perplexity *p)
{
    json_open(j, key, '{');
    json_word(j, "model", info->path);
    json_bool(j, "synthetic_weights", info->synthetic);
    json_word(j, "selector", hearth_selector_name(selector));
    json_float(j, "perplexity", p->perplexity, 17);
    json_float(j, "error", p->error, 17);
    json_float(j, "nll", p->nll, 17);
    json_close(j, '}');
}

static void print_json_layer(json *j, const char *key, const hth_compare_layer *l)
{
    json_open_compact(j, key, '{');
    json_uint(j, "neurons", l->n_neuron);
    json_uint(j, "live", l->n_live);
    json_uint(j, "live_of_mode", l->n_mode);
    json_uint(j, "marked", l->n_marked);
    json_uint(j, "live_and_marked", l->n_hit);
    json_float(j, "live_share", share(l->n_live, l->n_neuron), 9);
    json_float(j, "live_share_of_mode", share(l->n_mode, l->n_neuron), 9);
    json_float(j, "marked_share", share(l->n_marked, l->n_neuron), 9);
    if (l->n_live > 0) json_float(j, "recall", share(l->n_hit, l->n_live), 9);
    if (l->n_marked > 0) json_float(j, "precision", share(l->n_hit, l->n_marked), 9);
    json_float(j, "cett", l->n_token ? l->error_sum / (double)l->n_token : 0.0, 9);
    json_float(j, "cett_largest", l->error_max, 9);
    json_close(j, '}');
}

static void print_json(const comparison *c)
{
    const hth_comparison *r = &c->result;
    json j = json_begin(stdout);
    print_side(&j, "reference", &c->reference_info, HEARTH_SELECTOR_DENSE, &r->reference);
    print_side(&j, "mode", &c->info, c->info.selector, &r->mode);
    json_float(&j, "ratio", r->ratio, 17);
    json_float(&j, "ratio_error", r->ratio_error, 17);
    json_float(&j, "kl_mean", r->kl, 17);
    json_float(&j, "kl_99", r->kl_99, 17);
    json_float(&j, "kl_largest", r->kl_largest, 17);
    json_float(&j, "top1_agreement", share(r->n_agree, r->n_scored), 17);
    json_uint(&j, "positions_identical", r->n_identical);
    json_bool(&j, "identical", r->n_identical == r->n_scored);
    json_uint(&j, "n_ctx", hearth_session_n_ctx(c->session));
    json_uint(&j, "tokens", r->mode.n_token);
    json_uint(&j, "tokens_evaluated", r->n_token);
    json_uint(&j, "chunks", r->n_chunk);
    json_uint(&j, "chunks_scored", r->n_done);
    json_uint(&j, "positions_scored", r->n_scored);
    if (r->n_layer > 0) {
        hth_compare_layer sum = hth_compare_all_layers(r);
        json_open(&j, "layers", '[');
        for (uint32_t i = 0; i < r->n_layer; i++) print_json_layer(&j, NULL, &r->layers[i]);
        json_close(&j, ']');
        print_json_layer(&j, "all_layers", &sum);
    }
    json_end(&j);
}

/* ---- the run ------------------------------------------------------------------------------------- */

static int measure(comparison *c, const char *text, size_t n)
{
    const args *a = c->a;
    hth_compare *compare;
    hearth_error err;
    progress p;
    hth_compare_side reference = {c->other ? c->other : c->model, c->reference},
                     mode = {c->model, c->session};
    if (hth_compare_open(&reference, &mode, &compare, &err) != HEARTH_OK) return report(&err);
    progress_init(&p, "comparing", "chunks", 1);
    hearth_status st =
        hth_measure_compare(compare, text, n, args_uint(a, "chunks", 0), progress_show, &p, &c->result, &err);
    progress_end(&p);
    bool some = st == HEARTH_OK && c->result.n_done > 0;
    if (some && args_has(a, "json")) print_json(c);
    else if (some) print_table(c);
    hth_compare_close(compare); /* frees the layers of the result */
    if (st != HEARTH_OK) return report(&err);
    if (!some) return report_text("interrupted; no chunk was compared");
    if (interrupted()) print_status("interrupted; the chunks so far count");
    return 0;
}

/* Opens both models and their sessions. False: an error was reported. */
static bool open_all(comparison *c)
{
    const args *a = c->a;
    const char *other = args_text(a, "against", NULL);
    if (!open_model(a, args_operand(a, 0), &c->model)) return false;
    c->info = model_info(c->model);
    if (!other && is_reference(a, c->model)) {
        report_text(
            "%s: runs dense (%s), and that is the reference itself: there is nothing to compare "
            "but another --selector, where it has one, --kv q8_0, or a file --against which it stands",
            c->info.path, c->info.selector_why);
        return false;
    }
    if (other && !open_reference_model(a, other, &c->other)) return false;
    c->reference_info = model_info(c->other ? c->other : c->model);
    return open_session(a, c->model, 0, &c->session) &&
           open_reference(a, c->other ? c->other : c->model, c->session, &c->reference);
}

static int run_compare(const args *a)
{
    comparison c = {.a = a};
    const char *path = args_text(a, "file", NULL);
    size_t n;
    int status = EXIT_OTHER;
    if (!path) return usage_error("compare needs -f FILE");
    if (args_context(a, MIN_CHUNK) < MIN_CHUNK)
        return usage_error("compare --ctx: a chunk of fewer than %d tokens scores none", MIN_CHUNK);
    char *text = read_text_file(path, &n);
    if (!text) return EXIT_OTHER;
    install_signal_handlers();
    interrupt_at_once(true); /* until the text is divided into chunks */
    if (open_all(&c)) {
        if (!args_has(a, "json")) print_start_line(a, c.model, c.session);
        status = measure(&c, text, n);
    }
    free(text);
    hearth_session_close(c.reference);
    hearth_session_close(c.session);
    hearth_model_close(c.other);
    hearth_model_close(c.model);
    return status;
}

const command command_compare = {
    .name = "compare",
    .operands = "MODEL",
    .summary = "measure what a mode costs, against all neurons or another file",
    .details = "Over the chunks of perplexity: perplexity of both, KL divergence of the mode's\n"
               "logits from the reference's, share of equal most likely tokens, and for each\n"
               "layer which live neurons the mode finds, and the error of what it leaves out\n"
               "(CETT); not for the layers of a mixture of experts.\n",
    .example = "hearth compare model.gguf --selector predictor -f text.txt -c 512",
    .groups = {options, model_options},
    .models = 1,
    .run = run_compare,
};
