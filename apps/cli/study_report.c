/* The forms of a study's report. Called by study.c. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */

#include "cli/study_report.h"

#include "common/json.h"

#include <stdlib.h>
#include <string.h>

/* The page (study.html) up to the line that its figures take the place of, and from there on; in
 * study_page.c. */
extern const char study_page[];
extern const uint64_t study_page_size;

static const char MARK[] = "@STUDY@\n";

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
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->hash);
    json_word(j, "hash", hash);
    json_close(j, '}');
    json_open(j, "text", '{');
    json_word(j, "path", r->text);
    json_uint(j, "n_ctx", s->n_ctx);
    json_uint(j, "windows", s->n_window);
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

static void put_predictor(json *j, const hth_study_predictor *p)
{
    json_open_compact(j, NULL, '{');
    json_uint(j, "rank", p->rank);
    json_uint(j, "bytes", p->size);
    json_float(j, "share_of_network", p->share_of_network, DIGITS);
    json_float(j, "recall_top_20", p->recall_top_20, DIGITS);
    json_float(j, "recall", p->recall, DIGITS);
    json_float(j, "precision", p->precision, DIGITS);
    json_float(j, "predicted_sparsity", p->sparsity, DIGITS);
    json_close(j, '}');
}

static void put_layer(json *j, uint32_t i, const hth_study_layer *l)
{
    json_open(j, NULL, '{');
    json_uint(j, "layer", i);
    json_uint(j, "neurons", l->d_ff);
    json_float(j, "zero", l->zero, DIGITS);
    json_float(j, "active", l->active, DIGITS);
    json_float(j, "limit", l->limit, DIGITS);
    json_float(j, "sparsity_at_limit", l->sparsity, DIGITS);
    put_list(j, "sizes", l->sizes, HTH_STUDY_N_SIZE);
    json_float(j, "below_first_size", l->below_sizes, DIGITS);
    put_list(j, "cett", l->cett, HTH_STUDY_N_KEPT);
    put_list(j, "covered", l->covered, HTH_STUDY_N_HOTTEST);
    json_float(j, "share_for_80", l->share_for_80, DIGITS);
    put_list(j, "reused", l->reused, HTH_STUDY_N_BEFORE);
    json_float(j, "run_in_file", l->run_in_file, DIGITS);
    json_float(j, "run_ordered", l->run_ordered, DIGITS);
    json_float(j, "co_firing_gap", l->co_firing_gap, DIGITS);
    json_float(j, "co_firing_gap_by_chance", l->gap_by_chance, DIGITS);
    json_open(j, "predictors", '[');
    for (uint32_t k = 0; k < l->n_predictor; k++) put_predictor(j, &l->predictors[k]);
    json_close(j, ']');
    json_close(j, '}');
}

static void put_perplexities(json *j, const hth_study *s)
{
    json_open(j, "perplexity", '{');
    json_uint(j, "windows", s->n_row ? s->rows[0].n_done : 0);
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
    json j;
    json_init(&j, out);
    json_open(&j, NULL, '{');
    put_head(&j, r);
    put_grids(&j);
    json_open(&j, "layers", '[');
    for (uint32_t i = 0; i < r->study->n_layer; i++) put_layer(&j, i, &r->study->layers[i]);
    json_close(&j, ']');
    put_perplexities(&j, r->study);
    json_close(&j, '}');
    json_end(&j);
}

/* ---- the page ----------------------------------------------------------------------------------- */

/* Inside a script element "<" may begin its end: it, ">" and "&" stand as escapes, which only strings of
 * the JSON can hold. */
static void put_escaped(const char *text, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++)
        if (strchr("<>&", text[i]) && text[i]) fprintf(out, "\\u%04x", (unsigned)text[i]);
        else putc(text[i], out);
}

void study_write_page(const study_report *r, FILE *out)
{
    char *text = NULL;
    size_t n = 0;
    const char *mark = strstr(study_page, MARK);
    FILE *figures = open_memstream(&text, &n);
    if (figures) study_write_json(r, figures);
    bool ok = figures && fclose(figures) == 0 && mark;
    if (ok) {
        const char *rest = mark + sizeof MARK - 1;
        fwrite(study_page, 1, (size_t)(mark - study_page), out);
        put_escaped(text, n, out);
        fwrite(rest, 1, study_page_size - (size_t)(rest - study_page), out);
    }
    free(text);
}

/* ---- the table ----------------------------------------------------------------------------------- */

/* Lines of figures that do not exist, which are NaN, are left out. */
static void put_value(FILE *out, uint32_t i_layer, const char *measure, double x, double value)
{
    if (value == value) fprintf(out, "%u,%s,%.6g,%.6g\n", i_layer, measure, x, value);
}

static void put_single(FILE *out, uint32_t i_layer, const char *measure, double value)
{
    if (value == value) fprintf(out, "%u,%s,,%.6g\n", i_layer, measure, value);
}

static void put_layer_lines(FILE *out, uint32_t i, const hth_study_layer *l)
{
    put_single(out, i, "neurons", l->d_ff);
    put_single(out, i, "zero", l->zero);
    put_single(out, i, "active", l->active);
    put_single(out, i, "limit", l->limit);
    put_single(out, i, "sparsity_at_limit", l->sparsity);
    put_single(out, i, "below_first_size", l->below_sizes);
    put_single(out, i, "share_for_80", l->share_for_80);
    put_single(out, i, "run_in_file", l->run_in_file);
    put_single(out, i, "run_ordered", l->run_ordered);
    put_single(out, i, "co_firing_gap", l->co_firing_gap);
    put_single(out, i, "co_firing_gap_by_chance", l->gap_by_chance);
    for (size_t k = 0; k < HTH_STUDY_N_SIZE; k++)
        put_value(out, i, "sizes", hth_study_size_log2(k), l->sizes[k]);
    for (size_t k = 0; k < HTH_STUDY_N_KEPT; k++) put_value(out, i, "cett", hth_study_kept[k], l->cett[k]);
    for (size_t k = 0; k < HTH_STUDY_N_HOTTEST; k++)
        put_value(out, i, "covered", hth_study_hottest[k], l->covered[k]);
    for (size_t k = 0; k < HTH_STUDY_N_BEFORE; k++)
        put_value(out, i, "reused", hth_study_before[k], l->reused[k]);
    for (uint32_t k = 0; k < l->n_predictor; k++) {
        const hth_study_predictor *p = &l->predictors[k];
        put_value(out, i, "predictor_bytes", p->rank, (double)p->size);
        put_value(out, i, "predictor_share_of_network", p->rank, p->share_of_network);
        put_value(out, i, "predictor_recall_top_20", p->rank, p->recall_top_20);
        put_value(out, i, "predictor_recall", p->rank, p->recall);
        put_value(out, i, "predictor_precision", p->rank, p->precision);
        put_value(out, i, "predictor_predicted_sparsity", p->rank, p->sparsity);
    }
}

void study_write_csv(const study_report *r, FILE *out)
{
    const hth_study *s = r->study;
    fprintf(out, "layer,measure,x,value\n");
    for (uint32_t i = 0; i < s->n_layer; i++) put_layer_lines(out, i, &s->layers[i]);
    for (uint32_t i = 0; i < s->n_row; i++) {
        fprintf(out, ",perplexity,%.6g,%.9g\n", hth_study_row_kept[i], s->rows[i].perplexity);
        fprintf(out, ",perplexity_error,%.6g,%.6g\n", hth_study_row_kept[i], s->rows[i].error);
    }
}
