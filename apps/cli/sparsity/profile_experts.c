/* hearth profile of a mixture of experts: records which experts each token uses, and prints how unevenly and how often
 * they come again. */
#include "cli/sparsity/profile_experts.h"

#include "common/json.h"
#include "common/output.h"
#include "common/terminal/table.h"
#include "measure/expert_trace.h"

#include <stdlib.h>

/* Share of the experts that the printed hit rates have slots for. */
#define SLOT_SHARE 0.4

enum { DEFAULT_TOKENS = 16384 };

typedef struct figures {
    hth_expert_habits *habits; /* [n_layer] */
    hth_expert_counts *hits, all; /* [n_layer] */
} figures;

static double share_of(uint64_t part, uint64_t all) { return all > 0 ? (double)part / (double)all : 0.0; }

static double hit_rate(const hth_expert_counts *c) { return share_of(c->n_hit, c->n_pair); }

static hearth_status count(const hth_expert_trace *t, figures *f, hearth_error *err)
{
    hearth_status st = hth_expert_trace_replay(t, SLOT_SHARE, f->hits, &f->all, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < t->n_layer; i++)
        if (t->layers[i].n_used > 0) st = hth_expert_trace_habits(t, i, &f->habits[i], err);
    return st;
}

static void print_table(const hth_expert_trace *t, const figures *f, const char *out)
{
    double n_step = (double)f->all.n_step, n_layer = 0.0;
    table_begin(5);
    table_add("| layer | experts | used | most used 10 %% | 20 %% | 40 %% | next token too %% | used again after | "
              "hits in 40 %% |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (uint32_t i = 0; i < t->n_layer; i++) {
        const hth_expert_trace_layer *l = &t->layers[i];
        const hth_expert_habits *h = &f->habits[i];
        if (l->n_used == 0) continue;
        n_layer++;
        table_add("| %u | %u | %u | %.1f | %.1f | %.1f | %.1f | %.0f | %.1f |\n", i, l->n_expert, l->n_used,
                  100.0 * h->cover_10, 100.0 * h->cover_20, 100.0 * h->cover_40, 100.0 * h->sticky, h->reuse_distance,
                  100.0 * hit_rate(&f->hits[i]));
    }
    table_end();
    printf("\n%s: %u tokens in chunks of %u. With slots for 40 %% of the experts, %.1f %% of the experts of tokens are "
           "there, and all of a layer for %.1f %%; %.1f experts are uploaded for a token.\n"
           "Most used: the share of all choices that these experts have. Used again after: tokens, the median. Hits: "
           "after a quarter of the tokens.\n",
           printable(out), t->n_tok, t->n_ctx, 100.0 * hit_rate(&f->all),
           100.0 * share_of(f->all.misses[0], f->all.n_step), n_step > 0.0 ? (double)f->all.n_upload * n_layer / n_step : 0.0);
}

static void json_layer(json *j, const hth_expert_trace_layer *l, const hth_expert_habits *h, const hth_expert_counts *c)
{
    json_open_compact(j, NULL, '{');
    json_uint(j, "experts", l->n_expert);
    json_uint(j, "experts_used", l->n_used);
    if (l->n_used > 0) {
        json_float(j, "most_used_10", h->cover_10, 6);
        json_float(j, "most_used_20", h->cover_20, 6);
        json_float(j, "most_used_40", h->cover_40, 6);
        json_float(j, "sticky", h->sticky, 6);
        json_float(j, "reuse_distance", h->reuse_distance, 6);
        json_float(j, "hit_rate_40", hit_rate(c), 6);
        json_float(j, "hit_all_40", share_of(c->misses[0], c->n_step), 6);
        json_float(j, "uploads_40", share_of(c->n_upload, c->n_step), 6);
    }
    json_close(j, '}');
}

static void print_json(const hth_expert_trace *t, const figures *f, const char *out)
{
    json j = json_begin(stdout);
    json_word(&j, "trace", out);
    json_hash(&j, "model_hash", t->model_hash);
    json_uint(&j, "tokens", t->n_tok);
    json_uint(&j, "n_ctx", t->n_ctx);
    json_word(&j, "settings", t->settings);
    json_float(&j, "hit_rate_40", hit_rate(&f->all), 6);
    json_open(&j, "layers", '[');
    for (uint32_t i = 0; i < t->n_layer; i++) json_layer(&j, &t->layers[i], &f->habits[i], &f->hits[i]);
    json_close(&j, ']');
    json_end(&j);
}

static int print_figures(const args *a, const hth_expert_trace *t, const char *out)
{
    hearth_error err;
    figures f = {.habits = calloc(t->n_layer, sizeof *f.habits), .hits = calloc(t->n_layer, sizeof *f.hits)};
    int status = EXIT_OTHER;
    if (!f.habits || !f.hits) report_text("out of memory");
    else if (count(t, &f, &err) != HEARTH_OK) status = report(&err);
    else status = 0;
    if (status == 0 && args_has(a, "json")) print_json(t, &f, out);
    else if (status == 0) print_table(t, &f, out);
    free(f.habits);
    free(f.hits);
    return status;
}

int profile_experts(const args *a, const hearth_model *model, hearth_session *session, const char *text, size_t n,
                    const char *settings)
{
    hearth_error err;
    hth_expert_trace *t;
    progress p;
    const char *out = args_text(a, "out", NULL);
    uint32_t n_tok = (uint32_t)args_uint(a, "tokens", DEFAULT_TOKENS);
    hth_expert_trace_options o = {
        .out = out, .n_tok = n_tok, .settings = settings, .progress = progress_show, .progress_user = &p};
    progress_init(&p, "recording", "tokens", 1);
    hearth_status st = hth_measure_expert_trace(model, session, text, n, &o, &t, &err);
    progress_end(&p);
    if (st != HEARTH_OK) return report(&err);
    if (interrupted()) print_status("interrupted; %s has the %u tokens so far", out, t->n_tok);
    int status = print_figures(a, t, out);
    hth_expert_trace_close(t);
    return status;
}
