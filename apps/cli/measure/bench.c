/* hearth bench: prompt and generation speed beside the limits of the machine, measured in the same run. For a
 * model on a GPU the limits, which are the CPU's, are left out. Samples of all tests are interleaved, with
 * probes of memory and cores before each. bench_trace.c makes lists of active neurons,
 * bench_route.c lists of experts, bench_quality.c measures
 * the quality loss of the mode, bench_report.c prints the results, bench_machine.c the limits without a model. */
#include "cli/measure/bench.h"

#include "base/hash.h"
#include "cli/commands.h"
#include "engine/engine.h"
#include "common/options/model_args.h"
#include "common/storage_info.h"
#include "measure/machine/limits.h"
#include "forward/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

static const option_spec options[] = {
    OPT_UINT_LIST("prompt", 'p', "N,...", 0, 1048576, "prompt lengths; default 128; 0: none"),
    OPT_UINT_LIST("predict", 'n', "N,...", 0, 1048576, "tokens to generate; default 64; 0: none"),
    OPT_UINT_LIST("parallel", 0, "N,...", 1, 1024, "generate in N sequences; no prompt without -p"),
    OPT_UINT("depth", 0, "N", 0, 1048576, "generate after N tokens; no prompt without -p"),
    OPT_TEXT("fire", 0, "SPEC", "active neurons: share=0.1,run=64... or profile=P"),
    OPT_TEXT("route", 0, "SPEC", "experts drawn: uniform or file=F, sticky=0.3...", ADVANCED),
    OPT_FLAG("in-turn", 0, "with --ram: read, then compute; nothing is guessed", ADVANCED),
    OPT_FILE("file", 'f', "TEXT", "print what the mode costs on this text; - is stdin"),
    OPT_UINT("chunks", 0, "N", 1, 1e9, "windows of TEXT; default: as many as hold 2048 tokens", ADVANCED),
    OPT_FLAG("limits", 0, "measure the machine alone; takes -t, --repeat"),
    OPT_UINT("repeat", 0, "R", 1, 1000, "samples of each; default 5"),
    OPT_FLAG("json", 0, "print a JSON object with every sample"),
    {0},
};

/* ---- samples -------------------------------------------------------------------------- */

/* Arbitrary ids, spread over the vocabulary and different for each sequence. */
static int32_t token_at(const bench *b, uint64_t i, uint32_t i_sequence)
{
    return (int32_t)((i * 2654435761u + 12345u + i_sequence * 7919u) % b->info.n_vocab);
}

static bool eval_prompt(bench *b, uint64_t n, hearth_error *err)
{
    for (uint64_t at = 0; at < n; at += b->n_batch) {
        size_t k = n - at < b->n_batch ? (size_t)(n - at) : b->n_batch;
        if (hearth_session_eval(b->session, b->prompt + at, k, err) != HEARTH_OK) return false;
    }
    return true;
}

static bool generate(bench *b, uint64_t n, hearth_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        int32_t token = token_at(b, b->depth + i, 0);
        if (hearth_session_eval(b->session, &token, 1, err) != HEARTH_OK) return false;
    }
    return true;
}

static bool generate_together(bench *b, const bench_test *t, hearth_error *err)
{
    for (uint64_t i = 0; i < t->n_predict; i++) {
        for (uint32_t s = 0; s < t->n_sequence; s++) {
            int32_t token = token_at(b, b->depth + i, s);
            if (hearth_batch_add(b->batch, b->sequences[s], &token, 1, err) != HEARTH_OK) return false;
        }
        if (hearth_batch_run(b->batch, err) != HEARTH_OK) return false;
    }
    return true;
}

/* Sets a cache to depth tokens: truncates it, or evaluates the missing ones. The batch steps a session that has
 * no batch of its own. */
static bool prefill_to_depth(bench *b, hearth_session *session, uint32_t i_sequence, hearth_error *err)
{
    uint64_t at = hearth_session_position(session);
    progress p;
    bool ok = true;
    if (at > b->depth && hearth_session_truncate(session, (uint32_t)b->depth, err) != HEARTH_OK) return false;
    progress_init(&p, "filling the cache", "tokens", 1);
    while (ok && at < b->depth) {
        int32_t piece[256];
        size_t max = session == b->session ? 256 : b->n_row < 256 ? b->n_row : 256;
        size_t n = b->depth - at < max ? (size_t)(b->depth - at) : max;
        for (size_t i = 0; i < n; i++) piece[i] = token_at(b, at + i, i_sequence);
        hearth_status st = session == b->session ? hearth_session_eval(session, piece, n, err)
                                                 : hearth_batch_add(b->batch, session, piece, n, err);
        if (st == HEARTH_OK && session != b->session) st = hearth_batch_run(b->batch, err);
        ok = st == HEARTH_OK;
        at += n;
        if (ok) progress_update(&p, at, b->depth);
    }
    progress_end(&p);
    return ok;
}

static bool reset_to_depth(bench *b, const bench_test *t, hearth_error *err)
{
    if (t->n_prompt) return hearth_session_truncate(b->session, 0, err) == HEARTH_OK;
    if (t->n_sequence == 0) return prefill_to_depth(b, b->session, 0, err);
    for (uint32_t s = 0; s < t->n_sequence; s++)
        if (!prefill_to_depth(b, b->sequences[s], s, err)) return false;
    return true;
}

static bool sample(bench *b, const bench_test *t, size_t i_sample, hearth_error *err)
{
    hearth_storage_stats before = {0};
    hearth_expert_stats experts_before = {.size = sizeof experts_before};
    if (!reset_to_depth(b, t, err)) return false;
    hearth_model_get_storage(b->model, &before);
    hearth_model_get_expert_stats(b->model, &experts_before);
    timestamp start = timestamp_now(b->model);
    uint64_t n = t->n_prompt ? t->n_prompt : t->n_predict;
    bool ok = t->n_prompt     ? eval_prompt(b, n, err)
              : t->n_sequence ? generate_together(b, t, err)
                              : generate(b, n, err);
    timestamp took = timestamp_since(b->model, start);
    double seconds = b->by_sim_clock && took.sim > 0.0 ? took.sim : took.wall;
    t->rate[i_sample] = (double)n * (t->n_sequence ? t->n_sequence : 1) / seconds;
    storage_since(b->model, &before, &t->storage[i_sample]);
    t->experts[i_sample] = experts_since(b->model, &experts_before);
    for (uint32_t s = 0; ok && s < t->n_sequence; s++)
        t->digest[s] = hth_hash(hearth_session_logits(b->sequences[s]), b->info.n_vocab * sizeof(float));
    return ok;
}

typedef struct probes {
    hth_pool *pool;
    uint64_t counted; /* bytes, in the model's limit of memory */
    hth_bandwidth_probe memory;
    hth_peak_probe cores;
} probes;

/* Within a limit of memory there are probes only if it leaves memory for them. */
static bool open_probes(bench *b, probes *p, hearth_error *err)
{
    hth_cpu level;
    uint32_t n_thread = hearth_session_n_thread(b->session);
    hearth_model *model = hth_engine_mutable(b->model);
    if (b->info.n_streamed > 0 || b->lacks_values || hth_engine_reserve(model, BENCH_REGION_SIZE, NULL) != HEARTH_OK) return true;
    p->counted = BENCH_REGION_SIZE;
    if (hth_cpu_choose(NULL, &level, err) != HEARTH_OK || hth_pool_open(n_thread, &p->pool, err) != HEARTH_OK ||
        hth_bandwidth_open(&p->memory, BENCH_REGION_SIZE, err) != HEARTH_OK)
        return false;
    hth_peak_probe_open(&p->cores, level);
    b->has_probes = true;
    return true;
}

static void close_probes(const bench *b, probes *p)
{
    hth_bandwidth_close(&p->memory);
    hth_pool_close(p->pool);
    if (p->counted > 0) hth_engine_release(hth_engine_mutable(b->model), p->counted);
}

static void probe(probes *p, bench_test *t, size_t i_sample)
{
    double peak[HTH_N_PEAK_KIND] = {0};
    if (!p->pool) return;
    t->memory[i_sample] = hth_bandwidth_measure(&p->memory, p->pool);
    if (t->n_prompt) hth_peak_probe_measure(&p->cores, p->pool, peak);
    for (size_t k = 0; k < HTH_N_PEAK_KIND; k++) t->peak[k][i_sample] = peak[k];
}

/* Checks the guarantee of batches: the same tokens give a sequence the same logits, whatever the other
 * sequences are. */
static bool check_parallel(const bench *b, hearth_error *err)
{
    for (size_t i = 0; i < b->n_test; i++)
        for (size_t k = 0; k < i; k++) {
            const bench_test *x = &b->tests[i], *y = &b->tests[k];
            uint32_t n = x->n_sequence < y->n_sequence ? x->n_sequence : y->n_sequence;
            if (x->n_predict != y->n_predict || n == 0 ||
                memcmp(x->digest, y->digest, n * sizeof *x->digest) == 0)
                continue;
            hth_fail(err, HEARTH_ERROR_NUMERIC, "%s: logits of a sequence differ between %u and %u sequences",
                     b->info.path, x->n_sequence, y->n_sequence);
            return false;
        }
    return true;
}

/* A run that fell back from a device, even in part, has no results, because they would mix two machines. */
static bool check_device(const bench *b, hearth_error *err)
{
    hearth_model_info now = model_info(b->model);
    if (strcmp(now.gpu_note, b->info.gpu_note) == 0) return true;
    hth_fail(err, HEARTH_ERROR_DEVICE, "%s: no figures: %s was left while it was measured: %s", b->info.path,
             b->info.gpu, now.gpu_note);
    return false;
}

static bool run_tests(bench *b, hearth_error *err)
{
    probes p = {0};
    bool ok = open_probes(b, &p, err);
    for (size_t i = 0; ok && i < b->n_test; i++) ok = sample(b, &b->tests[i], 0, err); /* warm up */
    for (size_t r = 0; ok && r < b->n_repeat; r++)
        for (size_t i = 0; ok && i < b->n_test; i++) {
            probe(&p, &b->tests[i], r);
            ok = sample(b, &b->tests[i], r, err);
        }
    close_probes(b, &p);
    return ok && check_device(b, err) && check_parallel(b, err);
}

/* ---- entry point -------------------------------------------------------------------------- */

static uint64_t largest(const uint64_t *x, size_t n)
{
    uint64_t max = 0;
    for (size_t i = 0; i < n; i++)
        if (x[i] > max) max = x[i];
    return max;
}

/* The numbers of a list. Without the option: one number, `otherwise`. */
static size_t lengths_of(const args *a, const char *option, uint64_t otherwise, uint64_t *lengths)
{
    size_t n = args_list(a, option, lengths, OPTION_LIST_MAX);
    if (n == 0) lengths[n++] = otherwise;
    return n;
}

/* Without a list: only the session, no sequences. The factor is relative to one sequence, so 1 is always
 * included. */
static size_t sequences_of(const args *a, uint64_t *counts)
{
    size_t n = args_list(a, "parallel", counts + 1, OPTION_LIST_MAX);
    bool one = n == 0;
    for (size_t i = 1; i <= n; i++) one |= counts[i] == 1;
    if (n == 0) counts[n++] = 0;
    else if (one) memmove(counts, counts + 1, n * sizeof *counts);
    else counts[0] = 1, n++;
    return n;
}

/* Returns the positions that the longest test needs. */
static uint64_t add_tests(bench *b, const args *a)
{
    uint64_t prompts[OPTION_LIST_MAX], predicts[OPTION_LIST_MAX], counts[OPTION_LIST_MAX + 1];
    size_t n_count = sequences_of(a, counts);
    size_t n_prompt = lengths_of(a, "prompt", counts[0] || b->depth || b->traces.given ? 0 : 128, prompts);
    size_t n_predict = lengths_of(a, "predict", 64, predicts);
    uint64_t prompt = largest(prompts, n_prompt), predict = largest(predicts, n_predict);
    for (size_t i = 0; i < n_prompt; i++)
        if (prompts[i]) b->tests[b->n_test++] = (bench_test){.n_prompt = prompts[i]};
    for (size_t i = 0; i < n_predict; i++)
        for (size_t k = 0; predicts[i] && k < n_count; k++)
            b->tests[b->n_test++] = (bench_test){.n_predict = predicts[i], .n_sequence = (uint32_t)counts[k]};
    b->n_sequence = predict ? (uint32_t)largest(counts, n_count) : 0;
    return prompt > predict + b->depth ? prompt : predict + b->depth;
}

static bool alloc_buffers(bench *b, const hearth_model *model, hearth_kv_type kv, uint64_t n_token)
{
    bool ok = (b->prompt = malloc(n_token * sizeof *b->prompt)) != NULL;
    for (uint64_t i = 0; ok && i < n_token; i++) b->prompt[i] = token_at(b, i, 0);
    for (size_t i = 0; ok && i < b->n_test; i++) {
        bench_test *t = &b->tests[i];
        t->rate = calloc(b->n_repeat, sizeof(double));
        t->memory = calloc(b->n_repeat, sizeof(double));
        t->digest = calloc(t->n_sequence + 1, sizeof *t->digest);
        t->storage = calloc(b->n_repeat, sizeof *t->storage);
        t->experts = calloc(b->n_repeat, sizeof *t->experts);
        ok = t->rate && t->memory && t->digest && t->storage && t->experts;
        for (size_t k = 0; k < HTH_N_PEAK_KIND; k++)
            ok = (t->peak[k] = calloc(b->n_repeat, sizeof(double))) != NULL && ok;
        t->work = hth_op_count_prompt(model, t->n_prompt);
        t->kv_bytes = hth_op_count_kv_bytes(model, kv, b->depth + t->n_predict / 2);
    }
    b->sequences = calloc(b->n_sequence + 1, sizeof(hearth_session *));
    if (!ok || !b->sequences) report_text("out of memory");
    return ok && b->sequences;
}

static bool open_sequences(bench *b, const args *a, const hearth_model *model, uint32_t n_token)
{
    hearth_error err;
    hearth_session_options o = session_options(a, n_token);
    hearth_status st = HEARTH_OK;
    o.n_batch = HEARTH_BATCH_NONE;
    b->n_row = b->depth && b->n_sequence < b->n_batch ? (uint32_t)b->n_batch : b->n_sequence;
    for (uint32_t s = 0; st == HEARTH_OK && s < b->n_sequence; s++)
        st = hearth_session_open(model, &o, &b->sequences[s], &err);
    if (st == HEARTH_OK && b->n_sequence > 0)
        st = hearth_batch_open(model, b->n_row, o.n_thread, &b->batch, &err);
    if (st != HEARTH_OK) report(&err);
    return st == HEARTH_OK;
}

static void close_all(bench *b)
{
    for (size_t i = 0; i < b->n_test; i++) {
        free(b->tests[i].rate);
        free(b->tests[i].memory);
        free(b->tests[i].digest);
        free(b->tests[i].storage);
        free(b->tests[i].experts);
        for (size_t k = 0; k < HTH_N_PEAK_KIND; k++) free(b->tests[i].peak[k]);
    }
    for (uint32_t s = 0; b->sequences && s < b->n_sequence; s++) hearth_session_close(b->sequences[s]);
    free(b->sequences);
    free(b->prompt);
    hearth_batch_close(b->batch);
    hearth_session_close(b->session);
    hth_act_trace_close(b->traces.lists);
    hth_route_trace_close(b->route_lists);
    close_route(&b->route);
    bench_close_quality(&b->quality);
}

static int measure(bench *b, const args *a, const hearth_model *model)
{
    hearth_error err;
    if (!run_tests(b, &err)) return report(&err);
    interrupt_at_once(false); /* the results are complete */
    if (!bench_measure_quality(b, a, model)) return EXIT_OTHER;
    if (args_has(a, "json")) bench_print_json(b);
    else bench_print_table(b);
    if (interrupted()) print_status("interrupted; the quality is of whole chunks so far");
    return 0;
}

/* A context beyond the training context is allowed, as for run -c. If the model has learned position
 * embeddings, opening the session fails. */
static void warn_of_context_length(const bench *b, uint64_t n_token)
{
    if (n_token > b->info.n_ctx_train)
        print_warning("the tests take %llu positions, but %s was trained for %u", (unsigned long long)n_token,
                      b->info.path, b->info.n_ctx_train);
}

/* The first given option that requires a GPU; NULL: none. */
static const char *gpu_option(const args *a)
{
    static const char *const options_of_gpu[] = {"vram", "placement", "gpu-strict"};
    if (strcmp(args_text(a, "gpu", "none"), "none") != 0) return "gpu";
    for (size_t i = 0; i < sizeof options_of_gpu / sizeof *options_of_gpu; i++)
        if (args_has(a, options_of_gpu[i])) return options_of_gpu[i];
    return NULL;
}

/* Lists of active neurons and quality measurements need the CPU: neurons on a device are not observable. */
static bool needs_cpu(const bench *b) { return b->traces.given || b->quality.path; }

static int check_args(const bench *b, const args *a)
{
    if (args_uint(a, "ctx", 1) == 0)
        return usage_error("bench -c 0: without -c, bench takes the context that its tests need");
    if (needs_cpu(b) && gpu_option(a))
        return usage_error("bench %s is for the CPU alone: leave --%s out",
                           b->traces.given ? "--fire" : "-f", gpu_option(a));
    if (b->traces.given && (b->n_sequence || b->depth || b->tests[0].n_prompt))
        return usage_error(
            "bench --fire: tokens are generated one by one, without -p, --parallel and --depth");
    if (b->traces.given && b->quality.path)
        return usage_error("bench --fire: lists that the model does not find have no quality; leave -f out");
    if (b->route.given && (b->n_sequence || b->quality.path))
        return usage_error("bench --route: drawn experts have no quality, and there is one session; leave %s out",
                           b->n_sequence ? "--parallel" : "-f");
    if (args_has(a, "in-turn") && !args_has(a, "ram"))
        return usage_error("bench --in-turn: without --ram nothing is read while tokens are computed");
    if (args_has(a, "in-turn") && b->n_sequence)
        return usage_error("bench --in-turn: there is one session; leave --parallel out");
    if (args_has(a, "chunks") && !b->quality.path)
        return usage_error("bench --chunks: chunks of which text? -f");
    if (b->n_test == 0) return usage_error("bench: nothing to do with -p 0 -n 0");
    return 0;
}

/* Positions of all sessions, each with its own cache. */
static uint32_t all_positions(const bench *b, const args *a, uint64_t n_token)
{
    uint64_t each = hth_gpu_positions((uint32_t)args_uint(a, "ctx", n_token)),
             all = each * (b->n_sequence + 1);
    return all < HEARTH_CTX_TRAINED ? (uint32_t)all : HEARTH_CTX_TRAINED - 1;
}

/* Before the model is opened, which may take the memory of measuring. Neurons that are given, and reading in turn, are
 * not predicted. */
static void predict_generation(bench *b, const args *a, const hearth_model_options *wanted)
{
    size_t i = 0;
    while (i < b->n_test && (b->tests[i].n_prompt || b->tests[i].n_sequence > 1)) i++;
    if (!args_has(a, "ram") || i == b->n_test || b->depth || b->traces.given || args_has(a, "in-turn"))
        return;
    uint64_t n = b->tests[i].n_predict, max = 4 * (uint64_t)FORECAST_TOKENS;
    b->expected = expect_storage_speed(args_operand(a, 0), wanted, b->route.given ? &b->route.spec : NULL,
                                       (uint32_t)(n < max ? n : max));
}

/* -c is checked before the model is read. */
static bool check_ctx(const args *a, uint64_t n_token)
{
    if (args_uint(a, "ctx", n_token) >= n_token) return true;
    report_text(
        "the tests take %llu positions (the longest prompt, or --depth and -n), but -c leaves room for "
        "%llu; -c %llu has room",
        (unsigned long long)n_token, (unsigned long long)args_uint(a, "ctx", 0), (unsigned long long)n_token);
    return false;
}

static int run_bench(const args *a)
{
    static bench b; /* static because it is large */
    hearth_model *model = NULL;
    int status = EXIT_OTHER;
    if (args_has(a, "limits")) return bench_limits(a);
    b = (bench){.n_repeat = args_uint(a, "repeat", 5),
                .bf16_dot = args_has(a, "bf16-dot"),
                .kv = args_text(a, "kv", "f16"),
                .depth = args_uint(a, "depth", 0),
                .quality.path = args_text(a, "file", NULL)};
    const char *fire = args_text(a, "fire", NULL), *route = args_text(a, "route", NULL);
    int wrong = fire ? bench_parse_traces(fire, &b.traces) : 0;
    if (wrong == 0 && route) wrong = parse_route("bench", route, &b.route);
    if (wrong) return wrong;
    uint64_t n_token = add_tests(&b, a);
    if ((wrong = check_args(&b, a)) != 0) return wrong;
    if (!check_ctx(a, n_token)) return EXIT_OTHER;
    install_signal_handlers();
    interrupt_at_once(true);
    if (!read_route(&b.route)) return EXIT_OTHER;
    hearth_model_options wanted = wanted_model(a, args_operand(a, 0), all_positions(&b, a, n_token));
    wanted.gpu.n_session = b.n_sequence + 1;
    if (needs_cpu(&b)) wanted.gpu.device = "none";
    predict_generation(&b, a, &wanted);
    hth_engine_give_experts(b.route.given);
    if (!open_model_as(a, args_operand(a, 0), &wanted, &model)) {
        close_route(&b.route);
        return EXIT_OTHER;
    }
    b.model = model;
    b.info = model_info(model);
    b.in_turn = args_has(a, "in-turn");
    if (b.in_turn && !model->streamed.bundles) {
        status = usage_error("bench --in-turn: %s has no bundles of neurons that are read with this --ram",
                             b.info.path);
        close_route(&b.route);
        hearth_model_close(model);
        return status;
    }
    if (b.in_turn) hth_engine_read_in_turn(model);
    b.by_sim_clock = b.info.gpu_sim_seconds > 0.0;
    b.approximate = b.traces.given ? is_approximate_besides(a) : is_approximate(a, model);
    warn_of_context_length(&b, n_token);
    b.lacks_values = model->n_device > 0 && model->devices[0].info->no_values;
    if (b.lacks_values)
        print_warning("%s computes nothing: the tokens/s are those of its clock, and no result means anything", b.info.gpu);
    bool is_open = bench_open_quality(&b, a, model) &&
                   alloc_buffers(&b, model, session_options(a, 0).kv, n_token) &&
                   open_session(a, model, (uint32_t)n_token, &b.session);
    if (is_open) b.n_batch = hth_session_n_row(b.session);
    if (is_open && open_sequences(&b, a, model, (uint32_t)n_token) && bench_open_traces(&b, model, (uint32_t)n_token) &&
        bench_open_route(&b, model, n_token * (b.n_repeat + 1)))
        status = measure(&b, a, model);
    close_all(&b);
    hearth_model_close(model);
    return status;
}

const command command_bench = {
    .name = "bench",
    .operands = "[MODEL]",
    .summary = "measure speed beside the machine's limits",
    .details = "Tokens/s as median and spread. Generation is compared with the memory bandwidth\n"
               "measured before each sample, prompts with the peak operations per second (a\n"
               "multiply-add is two). --parallel evaluates N sequences at once: tokens/s of all,\n"
               "and factor against one. An approximate mode is labelled; -f adds its quality\n"
               "loss (hearth compare gives more). A GPU is named; limits, --fire and -f use the\n"
               "CPU.\n",
    .example = "hearth bench model.gguf -p 128,512 -n 64 -t 1",
    .groups = {options, model_options, gpu_options},
    .models = 1,
    .run = run_bench,
};
