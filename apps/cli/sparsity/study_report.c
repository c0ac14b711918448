/* The output formats of a study's report. study.c calls it. */
#define _GNU_SOURCE /* fopencookie */

#include "cli/sparsity/study_report.h"

#include "common/json.h"

#include <stddef.h>
#include <string.h>

/* The page (study.html), before and after the line that the figures replace; in study_page.c. */
extern const char study_page[];
extern const uint64_t study_page_size;

static const char MARK[] = "@STUDY@\n";

/* ---- the figures of a layer --------------------------------------------------------------------- */

/* One figure, or (n above 0) a curve over the points of a grid. */
typedef struct figure {
    const char *name;
    size_t at; /* offset of the first double in the layer, or in the predictor */
    size_t n;
    double (*grid)(size_t i);
} figure;

static double kept_at(size_t i) { return hth_study_kept[i]; }
static double hottest_at(size_t i) { return hth_study_hottest[i]; }
static double before_at(size_t i) { return hth_study_before[i]; }

#define OF_LAYER(field) offsetof(hth_study_layer, field)
#define OF_PREDICTOR(field) offsetof(hth_study_predictor, field)

/* clang-format off: a table */
static const figure of_layers[] = {
    {"zero", OF_LAYER(zero), 0, NULL},
    {"active", OF_LAYER(active), 0, NULL},
    {"limit", OF_LAYER(limit), 0, NULL},
    {"sparsity_at_limit", OF_LAYER(sparsity), 0, NULL},
    {"sizes", OF_LAYER(sizes), HTH_STUDY_N_SIZE, hth_study_size_log2},
    {"below_first_size", OF_LAYER(below_sizes), 0, NULL},
    {"cett", OF_LAYER(cett), HTH_STUDY_N_KEPT, kept_at},
    {"covered", OF_LAYER(covered), HTH_STUDY_N_HOTTEST, hottest_at},
    {"share_for_80", OF_LAYER(share_for_80), 0, NULL},
    {"reused", OF_LAYER(reused), HTH_STUDY_N_BEFORE, before_at},
    {"run_in_file", OF_LAYER(run_in_file), 0, NULL},
    {"run_ordered", OF_LAYER(run_ordered), 0, NULL},
    {"co_firing_gap", OF_LAYER(co_firing_gap), 0, NULL},
    {"co_firing_gap_by_chance", OF_LAYER(gap_by_chance), 0, NULL},
};

static const figure of_predictors[] = {
    {"share_of_network", OF_PREDICTOR(share_of_network), 0, NULL},
    {"recall_top_20", OF_PREDICTOR(recall_top_20), 0, NULL},
    {"recall", OF_PREDICTOR(recall), 0, NULL},
    {"precision", OF_PREDICTOR(precision), 0, NULL},
    {"predicted_sparsity", OF_PREDICTOR(sparsity), 0, NULL},
};
/* clang-format on */

enum {
    N_OF_LAYERS = sizeof of_layers / sizeof *of_layers,
    N_OF_PREDICTORS = sizeof of_predictors / sizeof *of_predictors
};

static const double *values_of(const figure *f, const void *of)
{
    return (const double *)((const char *)of + f->at);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

enum { DIGITS = 6 };

static void put_list(json *j, const char *key, const double *x, size_t n)
{
    json_open_compact(j, key, '[');
    for (size_t i = 0; i < n; i++) json_float(j, NULL, x[i], DIGITS);
    json_close(j, ']');
}

static void put_head(json *j, const study_report *r)
{
    const hth_study *s = r->study;
    char hash[20];
    uint64_t n_neuron = 0;
    for (uint32_t i = 0; i < s->n_layer; i++) n_neuron += s->layers[i].d_ff;
    json_uint(j, "study", 1);
    snprintf(hash, sizeof hash, "hearth %s", hearth_version());
    json_word(j, "made_by", hash);
    json_open(j, "model", '{');
    json_word(j, "path", r->model->path);
    json_word(j, "architecture", r->model->architecture);
    json_word(j, "activation", r->activation);
    json_bool(j, "synthetic_weights", r->model->synthetic);
    json_uint(j, "n_layer", s->n_layer);
    json_uint(j, "d_model", r->d_model);
    json_uint(j, "neurons", n_neuron);
    json_hash(j, "hash", r->hash);
    json_close(j, '}');
    json_open(j, "text", '{');
    json_word(j, "path", r->text);
    json_uint(j, "n_ctx", s->n_ctx);
    json_uint(j, "chunks", s->n_chunk);
    json_uint(j, "tokens", s->n_tok);
    json_uint(j, "sampled_tokens", s->n_sample);
    json_uint(j, "held_out_tokens", s->n_held);
    json_close(j, '}');
    json_open(j, "active", '{');
    json_word(j, "rule", s->by_contribution ? "contribution" : "not zero");
    json_float(j, "cett", s->bound, DIGITS);
    json_close(j, '}');
}

static void put_grids(json *j)
{
    json_open(j, "grids", '{');
    put_list(j, "kept", hth_study_kept, HTH_STUDY_N_KEPT);
    put_list(j, "hottest", hth_study_hottest, HTH_STUDY_N_HOTTEST);
    json_open_compact(j, "before", '[');
    for (size_t i = 0; i < HTH_STUDY_N_BEFORE; i++) json_uint(j, NULL, hth_study_before[i]);
    json_close(j, ']');
    json_open_compact(j, "size_log2", '[');
    for (size_t i = 0; i < HTH_STUDY_N_SIZE; i++) json_float(j, NULL, hth_study_size_log2(i), DIGITS);
    json_close(j, ']');
    json_close(j, '}');
}

static void put_figures(json *j, const figure *f, size_t n, const void *of)
{
    for (size_t i = 0; i < n; i++)
        if (f[i].n > 0) put_list(j, f[i].name, values_of(&f[i], of), f[i].n);
        else json_float(j, f[i].name, *values_of(&f[i], of), DIGITS);
}

static void put_predictor(json *j, const hth_study_predictor *p)
{
    json_open_compact(j, NULL, '{');
    json_uint(j, "rank", p->rank);
    json_uint(j, "bytes", p->size);
    put_figures(j, of_predictors, N_OF_PREDICTORS, p);
    json_close(j, '}');
}

static void put_layer(json *j, uint32_t i, const hth_study_layer *l)
{
    json_open(j, NULL, '{');
    json_uint(j, "layer", i);
    json_uint(j, "neurons", l->d_ff);
    put_figures(j, of_layers, N_OF_LAYERS, l);
    json_open(j, "predictors", '[');
    for (uint32_t k = 0; k < l->n_predictor; k++) put_predictor(j, &l->predictors[k]);
    json_close(j, ']');
    json_close(j, '}');
}

static void put_perplexities(json *j, const hth_study *s)
{
    json_open(j, "perplexity", '{');
    json_uint(j, "chunks", s->n_row ? s->rows[0].n_done : 0);
    json_uint(j, "scored", s->n_row ? s->rows[0].n_scored : 0);
    json_open(j, "rows", '[');
    for (uint32_t i = 0; i < s->n_row; i++) {
        json_open_compact(j, NULL, '{');
        json_float(j, "kept", hth_study_row_kept[i], DIGITS);
        json_float(j, "perplexity", s->rows[i].perplexity, 9);
        json_float(j, "error", s->rows[i].error, DIGITS);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

void study_write_json(const study_report *r, FILE *out)
{
    json j = json_begin(out);
    put_head(&j, r);
    put_grids(&j);
    json_open(&j, "layers", '[');
    for (uint32_t i = 0; i < r->study->n_layer; i++) put_layer(&j, i, &r->study->layers[i]);
    json_close(&j, ']');
    put_perplexities(&j, r->study);
    json_end(&j);
}

/* ---- the page ----------------------------------------------------------------------------------- */

/* Inside a script element "<" may begin its end tag. "<", ">" and "&" are written as escapes, which is valid
 * because they occur only in strings of the JSON. */
static ssize_t write_escaped(void *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr("<>&", text[i]) && text[i]) fprintf(out, "\\u%04x", (unsigned)text[i]);
        else putc(text[i], out);
    return (ssize_t)n;
}

bool study_write_page(const study_report *r, FILE *out)
{
    const char *mark = strstr(study_page, MARK), *rest = mark + sizeof MARK - 1;
    FILE *figures = fopencookie(out, "w", (cookie_io_functions_t){.write = write_escaped});
    if (!figures) return false;
    fwrite(study_page, 1, (size_t)(mark - study_page), out);
    study_write_json(r, figures);
    fclose(figures);
    fwrite(rest, 1, study_page_size - (size_t)(rest - study_page), out);
    return true;
}

/* ---- the table ----------------------------------------------------------------------------------- */

/* Missing figures, which are NaN, have no line. */
static void put_value(FILE *out, uint32_t i_layer, const char *measure, double x, double value)
{
    if (value == value) fprintf(out, "%u,%s,%.6g,%.6g\n", i_layer, measure, x, value);
}

static void put_single(FILE *out, uint32_t i_layer, const char *measure, double value)
{
    if (value == value) fprintf(out, "%u,%s,,%.6g\n", i_layer, measure, value);
}

static void put_predictor_lines(FILE *out, uint32_t i_layer, const hth_study_predictor *p)
{
    char name[60];
    put_value(out, i_layer, "predictor_bytes", p->rank, (double)p->size);
    for (const figure *f = of_predictors; f < of_predictors + N_OF_PREDICTORS; f++) {
        snprintf(name, sizeof name, "predictor_%s", f->name);
        put_value(out, i_layer, name, p->rank, *values_of(f, p));
    }
}

/* Single figures, then curves. */
static void put_layer_lines(FILE *out, uint32_t i, const hth_study_layer *l)
{
    put_single(out, i, "neurons", l->d_ff);
    for (const figure *f = of_layers; f < of_layers + N_OF_LAYERS; f++)
        if (f->n == 0) put_single(out, i, f->name, *values_of(f, l));
    for (const figure *f = of_layers; f < of_layers + N_OF_LAYERS; f++)
        for (size_t k = 0; k < f->n; k++) put_value(out, i, f->name, f->grid(k), values_of(f, l)[k]);
    for (uint32_t k = 0; k < l->n_predictor; k++) put_predictor_lines(out, i, &l->predictors[k]);
}

bool study_write_csv(const study_report *r, FILE *out)
{
    const hth_study *s = r->study;
    fprintf(out, "layer,measure,x,value\n");
    for (uint32_t i = 0; i < s->n_layer; i++) put_layer_lines(out, i, &s->layers[i]);
    for (uint32_t i = 0; i < s->n_row; i++) {
        fprintf(out, ",perplexity,%.6g,%.9g\n", hth_study_row_kept[i], s->rows[i].perplexity);
        fprintf(out, ",perplexity_error,%.6g,%.6g\n", hth_study_row_kept[i], s->rows[i].error);
    }
    return true;
}
