/* Prints the results of hearth bench as text and as JSON. Shares are relative to the medians of the probes
 * taken before the samples. docs/bench.md lists the fields. */
#include "cli/measure/bench.h"
#include "engine/engine.h"
#include "common/options/field_names.h"
#include "common/output.h"
#include "common/terminal/table.h"
#include "common/json.h"
#include "common/placement_info.h"
#include "common/storage_info.h"
#include "base/sample_stats.h"

#include <string.h>

typedef struct result {
    hth_sample_stats rate, memory, peak[HTH_N_PEAK_KIND];
    double weights;     /* bytes per second of weights only, for generation */
    double used, limit; /* bytes, or operations of prompts, per second; 0: unknown */
    double of_one;      /* relative to one sequence; 0: no batch */
} result;

/* Peak operations per second for this combination of products; 0: one of their kinds has no peak at this level. */
static double mixed_peak(const bench *b, const hth_op_count *w, const hth_sample_stats peak[HTH_N_PEAK_KIND])
{
    hth_peak_kind floats = b->bf16_dot ? HTH_PEAK_BF16 : HTH_PEAK_F32;
    double int8 = (double)w->int8, f32 = (double)w->f32;
    if ((w->int8 && peak[HTH_PEAK_INT8].median <= 0.0) || (w->f32 && peak[floats].median <= 0.0)) return 0.0;
    double seconds =
        (w->int8 ? int8 / peak[HTH_PEAK_INT8].median : 0.0) + (w->f32 ? f32 / peak[floats].median : 0.0);
    return seconds > 0.0 ? 2.0 * (int8 + f32) / seconds : 0.0;
}

/* Whether some weights are skipped; then the number of bytes read is unknown. */
static bool skips_weights(const bench *b, const bench_test *t)
{
    return !t->n_prompt && (b->traces.given || b->info.selector != HEARTH_SELECTOR_DENSE);
}

static result result_of(const bench *b, const bench_test *t)
{
    result r = {.rate = hth_sample_stats_of(t->rate, b->n_repeat),
                .memory = hth_sample_stats_of(t->memory, b->n_repeat)};
    for (size_t k = 0; k < HTH_N_PEAK_KIND; k++) r.peak[k] = hth_sample_stats_of(t->peak[k], b->n_repeat);
    if (t->n_prompt) {
        r.used = 2.0 * (double)(t->work.int8 + t->work.f32) * r.rate.median / (double)t->n_prompt;
        r.limit = b->info.gpu ? 0.0 : mixed_peak(b, &t->work, r.peak);
        return r;
    }
    double steps = r.rate.median / (t->n_sequence ? t->n_sequence : 1);
    if (!skips_weights(b, t)) {
        r.weights = steps * (double)b->info.bytes_per_token;
        r.used = r.weights + r.rate.median * (double)t->kv_bytes;
        r.limit = b->info.gpu ? 0.0 : r.memory.median; /* it is the CPU's limit; 0 without probes */
    }
    for (size_t i = 0; t->n_sequence && i < b->n_test; i++)
        if (b->tests[i].n_sequence == 1 && b->tests[i].n_predict == t->n_predict)
            r.of_one = r.rate.median / hth_sample_stats_of(b->tests[i].rate, b->n_repeat).median;
    return r;
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_name(const bench *b, const bench_test *t)
{
    if (t->n_prompt) {
        table_add("| prompt %llu", (unsigned long long)t->n_prompt);
    } else {
        table_add("| generate %llu", (unsigned long long)t->n_predict);
        if (t->n_sequence) table_add(" x %u", t->n_sequence);
        if (b->depth) table_add(" behind %llu", (unsigned long long)b->depth);
    }
    table_add(b->approximate ? ", approximate |" : " |");
}

/* Summary of the best row, generation before prompts; nothing if no limit is known. */
static void print_verdict(const bench *b)
{
    const bench_test *best = NULL;
    result top = {0};
    for (size_t i = 0; i < b->n_test; i++) {
        result r = result_of(b, &b->tests[i]);
        bool is_first = !best || (best->n_prompt && !b->tests[i].n_prompt);
        if (r.limit <= 0.0 || (!is_first && !b->tests[i].n_prompt != !best->n_prompt)) continue;
        if (is_first || r.used / r.limit > top.used / top.limit) best = &b->tests[i], top = r;
    }
    if (!best) return;
    printf("\n%s at %.2f of %.1f %s: %.0f %% of what this machine's %s.\n",
           best->n_prompt ? "The prompt computes" : "Generation reads weights and cache", top.used * 1e-9,
           top.limit * 1e-9, best->n_prompt ? "GOP/s" : "GB/s", top.used / top.limit * 100.0,
           best->n_prompt ? "cores can do" : "memory gives");
}

/* Returns whether the row is faster than memory allows. */
static bool print_row(const bench *b, const bench_test *t)
{
    result r = result_of(b, t);
    const char *unit = t->n_prompt ? "GOP/s" : "GB/s";
    print_name(b, t);
    table_add(" %.2f (%.2f-%.2f) | ", r.rate.median, r.rate.min, r.rate.max);
    if (r.used > 0.0) table_add("%.2f %s | ", r.used * 1e-9, unit);
    else table_add("- | ");
    if (r.limit > 0.0) table_add("%.1f %s | %.0f %% |", r.limit * 1e-9, unit, r.used / r.limit * 100.0);
    else table_add("- | - |");
    if (b->n_sequence) table_add(r.of_one > 0.0 ? " %.2f |\n" : " - |\n", r.of_one);
    else table_add("\n");
    return !t->n_prompt && r.limit > 0.0 && r.used > r.limit;
}

static void print_traces(const bench *b)
{
    const bench_traces *f = &b->traces;
    double percent = 100.0 * hth_act_trace_share(f->lists);
    if (*f->profile)
        printf(" Firing lists replayed from %s, not found by the model: %.1f %% of the neurons, its %u "
               "samples from "
               "number %u on.%s",
               printable(f->profile), percent, f->n_sample, f->first_sample,
               f->is_top_decile ? " The activation gives no zeros: a list is the largest tenth of a layer."
                             : "");
    else
        printf(" Firing lists drawn, not found by the model: %.1f %% of the neurons, in runs of %u, skew %g, "
               "sticky %g.",
               percent, f->spec.block, f->spec.zipf_s, f->spec.correlation);
}

static void print_route(const bench *b)
{
    const route_option *r = &b->route;
    if (!r->given) return;
    printf("Experts %s, not chosen by the model: %s, seed %llu.\n\n", r->is_trace ? "recorded" : "drawn",
           describe_route(r, b->model->model).text, (unsigned long long)r->spec.seed);
}

/* Prints a test's cache hit rate, and the MiB read and the stall in ms for each token, over all samples. */
static void print_storage(const bench *b, const bench_test *t)
{
    double hits = 0.0, asked = 0.0, bytes = 0.0, waits = 0.0,
           n = (double)(t->n_prompt + t->n_predict * (t->n_sequence ? t->n_sequence : 1)) * (double)b->n_repeat;
    for (size_t i = 0; i < b->n_repeat; i++) {
        const hearth_storage_stats *s = &t->storage[i];
        hits += (double)s->n_hit, asked += (double)(s->n_hit + s->n_miss);
        bytes += (double)s->weight_bytes, waits += s->stall_seconds;
    }
    print_name(b, t);
    table_add(" %.1f %% | %.2f | %.2f |\n", asked > 0.0 ? 100.0 * hits / asked : 100.0, bytes * 0x1p-20 / n, waits * 1e3 / n);
}

static void print_storage_table(const bench *b)
{
    if (b->info.n_streamed == 0) return;
    printf("\n%u of %u parts of the weights fit into memory; %s.\n\n", b->info.n_streamed_max, b->info.n_streamed,
           b->info.reader);
    table_begin(0);
    table_add("| test | in memory when asked for | MiB read for a token | ms waited for a token |\n|---|---|---|---|\n");
    for (size_t i = 0; i < b->n_test; i++) print_storage(b, &b->tests[i]);
    table_end();
    const expected_speed *e = &b->expected.next; /* every test has run once before it is measured */
    if (e->expected > 0.0)
        printf("\nWith this memory %.2f tokens/s (%.2f to %.2f) are expected of the first generation that is measured, with "
               "a filled cache%s.\n",
               e->expected, e->least, e->most, b->expected.assumed ? ", of experts as they usually are" : "");
}

/* Describes the mode, unless it is all neurons with an exact cache. */
static void print_mode(const bench *b)
{
    bool q8_0 = strcmp(b->kv, "q8_0") == 0;
    if (b->info.selector == HEARTH_SELECTOR_DENSE && !b->approximate) return;
    printf("Selector %s (%s).", hearth_selector_name(b->info.selector), b->info.selector_why);
    if (q8_0) printf(" KV cache q8_0.");
    if (b->in_turn) printf(" Weights are read and computed in turn (--in-turn).");
    if (b->bf16_dot) printf(" Products of bf16 where several tokens are computed together.");
    if (b->traces.given) print_traces(b);
    printf("\n\n");
}

/* Prints one or two lines. */
static void print_quality(const bench *b)
{
    const bench_quality *p = &b->quality;
    const hth_comparison *r = &p->result;
    if (!p->path && b->approximate && !b->traces.given)
        printf("\nApproximate: -f TEXT prints what that costs; hearth compare tells it by layer.\n");
    if (p->of_reference)
        printf("\nExact, without a loss: the model runs with all neurons and an exact cache, which is what "
               "others "
               "are compared with.\n");
    if (r->n_scored == 0) return;
    if (!b->approximate) {
        printf("\nExact, without a loss: over %s all logits are those of dense (%llu positions).\n",
               printable(p->path), (unsigned long long)r->n_scored);
        return;
    }
    hth_compare_layer all = hth_compare_all_layers(r);
    printf("\nQuality over %s (%llu chunks of %u), against dense with an exact cache: perplexity %.4f, ratio "
           "%.5f "
           "+/- %.5f,\nmean KL %.3g nats, same likeliest token %.2f %%",
           printable(p->path), (unsigned long long)r->n_done, p->n_ctx, r->mode.perplexity, r->ratio,
           r->ratio_error, r->kl, 100.0 * (double)r->n_agree / (double)r->n_scored);
    if (all.n_live > 0) printf(", recall %.2f %%", 100.0 * (double)all.n_hit / (double)all.n_live);
    if (all.n_token > 0) printf(", CETT %.4f", all.error_sum / (double)all.n_token);
    printf("\n");
}

/* Describes the parts on a device, and whose clock the times are from. */
static void print_place(const bench *b)
{
    const hearth_model_info *info = &b->info;
    if (info->gpu) printf("%s. The limits of a GPU are not measured.", placement_text(info).text);
    else if (info->gpu_note[0]) printf("All of it on the CPU: %s", with_options(info->gpu_note).text);
    if (info->gpu_simulated)
        printf(" Simulated: seconds are %s.",
               b->by_sim_clock ? "those of its clock" : "this machine's, not a GPU's");
    if (info->gpu_predicted_tps > 0.0) printf(" The plan expects %.2f tokens/s.", info->gpu_predicted_tps);
    if (info->gpu || info->gpu_note[0]) printf("\n\n");
}

void bench_print_table(const bench *b)
{
    printf("%s: %s, %u thread(s), %s%s\n\n", printable(b->info.path), printable(b->info.architecture),
           hearth_session_n_thread(b->session), b->info.cpu, b->info.synthetic ? ", synthetic weights" : "");
    print_place(b);
    print_mode(b);
    print_route(b);
    table_begin(2);
    table_add("| test | tokens/s, median (min-max) of %zu | reached | limit | share |%s\n|---|---|---|---|---|%s\n",
              b->n_repeat, b->n_sequence ? " against one |" : "", b->n_sequence ? "---|" : "");
    bool cached = false, skipped = false;
    for (size_t i = 0; i < b->n_test; i++) {
        cached |= print_row(b, &b->tests[i]);
        skipped |= skips_weights(b, &b->tests[i]);
    }
    table_end();
    print_storage_table(b);
    print_verdict(b);
    if (skipped)
        printf("\nNeurons that do not fire are not read: only --selector dense has a share of the limit.\n");
    print_quality(b);
    if (cached)
        printf("\nAbove 100 %%: these weights stay in a cache, or memory was slower while it was probed.\n");
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void print_samples(json *j, const char *key, const double *x, size_t n, double factor)
{
    json_open_compact(j, key, '[');
    for (size_t i = 0; i < n; i++) json_float(j, NULL, x[i] * factor, 6);
    json_close(j, ']');
}

static void print_prompt(json *j, const bench *b, const bench_test *t)
{
    json_uint(j, "int8_operations", 2 * t->work.int8);
    json_uint(j, "fp32_operations", 2 * t->work.f32);
    if (b->has_probes) print_samples(j, "limit_int8_operations_per_second", t->peak[HTH_PEAK_INT8], b->n_repeat, 2.0);
    if (b->has_probes) print_samples(j, "limit_fp32_operations_per_second", t->peak[HTH_PEAK_F32], b->n_repeat, 2.0);
}

static void print_digests(json *j, const bench_test *t)
{
    json_open_compact(j, "logits_hashes", '[');
    for (uint32_t s = 0; s < t->n_sequence; s++) json_hash(j, NULL, t->digest[s]);
    json_close(j, ']');
}

static void print_json_samples(json *j, const bench *b, const bench_test *t)
{
    json_open(j, "storage", '[');
    for (size_t i = 0; i < b->n_repeat; i++) json_storage(j, NULL, &t->storage[i]);
    json_close(j, ']');
}

static void print_experts(json *j, const bench *b, const bench_test *t)
{
    json_open(j, "experts", '[');
    for (size_t i = 0; i < b->n_repeat; i++) json_expert_stats(j, NULL, &t->experts[i]);
    json_close(j, ']');
}

static void print_test(json *j, const bench *b, const bench_test *t)
{
    json_open(j, NULL, '{');
    json_uint(j, "prompt", t->n_prompt);
    json_uint(j, "generate", t->n_predict);
    json_uint(j, "sequences", t->n_sequence ? t->n_sequence : 1);
    if (!t->n_prompt) json_uint(j, "depth", b->depth);
    json_bool(j, "approximate", b->approximate);
    print_samples(j, "tokens_per_second", t->rate, b->n_repeat, 1.0);
    if (b->info.n_streamed > 0) print_json_samples(j, b, t);
    if (t->experts[0].size > 0) print_experts(j, b, t);
    if (b->has_probes) print_samples(j, "limit_bytes_per_second", t->memory, b->n_repeat, 1.0);
    if (t->n_prompt) print_prompt(j, b, t);
    else json_uint(j, "kv_bytes", t->kv_bytes);
    if (t->n_sequence) print_digests(j, t);
    result r = result_of(b, t);
    json_float(j, "median_tokens_per_second", r.rate.median, 6);
    json_float(j, "min_tokens_per_second", r.rate.min, 6);
    json_float(j, "max_tokens_per_second", r.rate.max, 6);
    if (r.weights > 0.0) json_float(j, "weight_bytes_per_second", r.weights, 6);
    if (r.used > 0.0) json_float(j, t->n_prompt ? "operations_per_second" : "bytes_per_second", r.used, 6);
    if (r.limit > 0.0) json_float(j, t->n_prompt ? "share_of_peak" : "share_of_limit", r.used / r.limit, 6);
    if (r.of_one > 0.0) json_float(j, "factor_against_one", r.of_one, 6);
    json_close(j, '}');
}

static void print_json_traces(json *j, const bench *b)
{
    const bench_traces *f = &b->traces;
    bool replayed = *f->profile != '\0';
    json_open(j, replayed ? "replayed_firing_lists" : "drawn_firing_lists", '{');
    json_float(j, "share", hth_act_trace_share(f->lists), 6);
    if (replayed) {
        json_word(j, "profile", f->profile);
        json_uint(j, "samples", f->n_sample);
        json_uint(j, "first_sample", f->first_sample);
        json_bool(j, "largest_tenth", f->is_top_decile);
    } else {
        json_uint(j, "run", f->spec.block);
        json_float(j, "skew", f->spec.zipf_s, 6);
        json_float(j, "sticky", f->spec.correlation, 6);
    }
    json_uint(j, "seed", f->spec.seed);
    json_close(j, '}');
}

static void print_json_quality(json *j, const bench *b)
{
    const bench_quality *p = &b->quality;
    const hth_comparison *r = &p->result;
    json_open(j, "quality", '{');
    json_word(j, "text", p->path);
    json_bool(j, "of_reference", p->of_reference);
    json_bool(j, "exact", p->of_reference || r->n_identical == r->n_scored);
    if (!p->of_reference) {
        hth_compare_layer all = hth_compare_all_layers(r);
        json_uint(j, "n_ctx", p->n_ctx);
        json_uint(j, "chunks", r->n_chunk);
        json_uint(j, "chunks_scored", r->n_done);
        json_uint(j, "positions_scored", r->n_scored);
        json_float(j, "reference_perplexity", r->reference.perplexity, 17);
        json_float(j, "perplexity", r->mode.perplexity, 17);
        json_float(j, "ratio", r->ratio, 17);
        json_float(j, "ratio_error", r->ratio_error, 17);
        json_float(j, "kl_mean", r->kl, 17);
        json_float(j, "top1_agreement", (double)r->n_agree / (double)r->n_scored, 17);
        if (all.n_live > 0) json_float(j, "recall", (double)all.n_hit / (double)all.n_live, 9);
        if (all.n_token > 0) json_float(j, "cett", all.error_sum / (double)all.n_token, 9);
    }
    json_close(j, '}');
}

void bench_print_json(const bench *b)
{
    const expected_speed *e = &b->expected.next;
    json j = json_begin(stdout);
    json_word(&j, "model", b->info.path);
    json_bool(&j, "synthetic_weights", b->info.synthetic);
    json_word(&j, "selector", hearth_selector_name(b->info.selector));
    if (b->traces.given) print_json_traces(&j, b);
    json_route(&j, &b->route, b->model->model);
    json_word(&j, "cpu", b->info.cpu);
    json_uint(&j, "threads", hearth_session_n_thread(b->session));
    json_uint(&j, "weight_bytes", b->info.weight_bytes);
    json_uint(&j, "token_bytes", b->info.bytes_per_token);
    if (b->info.n_streamed > 0) {
        json_word(&j, "reader", b->info.reader);
        json_uint(&j, "parts", b->info.n_streamed);
        json_uint(&j, "parts_in_memory", b->info.n_streamed_max);
        if (e->expected > 0.0) {
            json_float(&j, "expected_tokens_per_second", e->expected, 6);
            json_float(&j, "expected_tokens_per_second_least", e->least, 6);
            json_float(&j, "expected_tokens_per_second_most", e->most, 6);
        }
    }
    json_placement(&j, &b->info);
    json_experts(&j, b->model);
    if (b->info.gpu_simulated) json_bool(&j, "simulated", true);
    if (b->in_turn) json_bool(&j, "in_turn", true);
    if (b->by_sim_clock) json_bool(&j, "simulated_seconds", true);
    if (b->quality.of_reference || b->quality.result.n_scored > 0) print_json_quality(&j, b);
    json_open(&j, "tests", '[');
    for (size_t i = 0; i < b->n_test; i++) print_test(&j, b, &b->tests[i]);
    json_close(&j, ']');
    json_end(&j);
}
