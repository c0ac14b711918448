/* Counts and writes figures. Called by generation.c, engine.c and endpoint_metrics.c. */
#include "serve/figures.h"

/* Steps of about 2.5. */
static const double seconds_bounds[FIGURES_N_BUCKET - 1] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                            0.25,  0.5,    1.0,   2.5,  10.0,  100.0};
static const double token_bounds[FIGURES_N_BUCKET - 1] = {1,    4,    16,   64,    128,   256,   512,
                                                          1024, 2048, 4096, 16384, 65536, 262144};

static void add(histogram *h, const double *bounds, double value, uint64_t units)
{
    int i = 0;
    while (i < FIGURES_N_BUCKET - 1 && value > bounds[i]) i++;
    atomic_fetch_add_explicit(&h->n[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum, units, memory_order_relaxed);
}

void figures_add_seconds(histogram *h, uint64_t ns) { add(h, seconds_bounds, (double)ns * 1e-9, ns); }
void figures_add_tokens(histogram *h, uint64_t n) { add(h, token_bounds, (double)n, n); }

void figures_add(hearth_scheduler_stats *sum, const hearth_scheduler_stats *s)
{
    sum->n_prompt += s->n_prompt;
    sum->n_cached += s->n_cached;
    sum->n_generated += s->n_generated;
    sum->n_preempted += s->n_preempted;
    sum->draft.n_drafted += s->draft.n_drafted;
    sum->draft.n_accepted += s->draft.n_accepted;
    sum->n_page += s->n_page;
    sum->n_page_used += s->n_page_used;
}

void figures_update(figures *f, const hearth_scheduler_stats *s)
{
    f->n_prompt_token = s->n_prompt;
    f->n_cached_token = s->n_cached;
    f->n_generated_token = s->n_generated;
    f->n_preempted = s->n_preempted;
    f->n_drafted = s->draft.n_drafted;
    f->n_accepted = s->draft.n_accepted;
    f->n_page = s->n_page;
    f->n_page_used = s->n_page_used;
}

void figures_describe(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_counter(FILE *out, const char *name, const char *help, uint64_t value)
{
    figures_describe(out, name, "counter", help);
    fprintf(out, "%s %llu\n", name, (unsigned long long)value);
}

static void write_histogram(FILE *out, const char *name, const char *help, const histogram *h,
                            const double *bounds, double unit)
{
    uint64_t n = 0;
    figures_describe(out, name, "histogram", help);
    for (int i = 0; i < FIGURES_N_BUCKET; i++) {
        n += atomic_load_explicit(&h->n[i], memory_order_relaxed);
        if (i < FIGURES_N_BUCKET - 1)
            fprintf(out, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)n);
        else fprintf(out, "%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)n);
    }
    fprintf(out, "%s_sum %.9g\n%s_count %llu\n", name, (double)h->sum * unit, name, (unsigned long long)n);
}

void figures_write(const figures *f, FILE *out)
{
    write_counter(out, "hearth_prompt_tokens_total", "Tokens of prompts that were evaluated.",
                  f->n_prompt_token);
    write_counter(out, "hearth_prefix_hits_tokens_total",
                  "Tokens of prompts that earlier requests had evaluated.", f->n_cached_token);
    write_counter(out, "hearth_generated_tokens_total", "Tokens that were sampled.", f->n_generated_token);
    write_counter(out, "hearth_draft_tokens_total", "Tokens that were evaluated as drafts.", f->n_drafted);
    write_counter(out, "hearth_draft_accepted_tokens_total", "Tokens of drafts that were the next.",
                  f->n_accepted);
    write_counter(out, "hearth_preempted_total",
                  "Requests that gave their pages to others and were evaluated again.", f->n_preempted);
    figures_describe(out, "hearth_kv_used_ratio", "gauge", "The part of the cache's pages that is in use.");
    fprintf(out, "hearth_kv_used_ratio %.6g\n", f->n_page > 0 ? (double)f->n_page_used / f->n_page : 0.0);
    write_histogram(out, "hearth_time_to_first_token_seconds", "From the request to its first token.",
                    &f->first_token, seconds_bounds, 1e-9);
    write_histogram(out, "hearth_inter_token_seconds", "Between two tokens of a request.", &f->next_token,
                    seconds_bounds, 1e-9);
    write_histogram(out, "hearth_request_seconds", "From the request to its last token.", &f->whole,
                    seconds_bounds, 1e-9);
    write_histogram(out, "hearth_prompt_tokens_per_request", "Tokens of a prompt.", &f->n_prompt,
                    token_bounds, 1.0);
    write_histogram(out, "hearth_generated_tokens_per_request", "Tokens that were generated for a request.",
                    &f->n_generated, token_bounds, 1.0);
}
