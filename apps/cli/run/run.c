/* hearth run: continues a prompt and streams the text. */
#define _GNU_SOURCE
#include "cli/run/run_session.h"
#include "cli/run/run_verify.h"
#include "cli/commands.h"
#include "common/buffer.h"
#include "common/options/constraint_args.h"
#include "common/options/draft_args.h"
#include "common/json.h"
#include "common/terminal/live_stats.h"
#include "common/options/model_args.h"
#include "common/storage_forecast.h"
#include "common/storage_info.h"
#include "base/status.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN_MAX_STOP = 256 };

static const option_spec options[] = {
    OPT_TEXT("prompt", 'p', "TEXT", "the text to continue; default: a pipe, or none", .flags = OPTION_ESCAPES),
    OPT_FILE("file", 'f', "FILE", "a file with the prompt; - is stdin"),
    OPT_UINT("predict", 'n', "N", 0, 16777216, "at most N tokens; default, or -1: to the end",
             .flags = OPTION_OPEN),
    OPT_TEXT("stop", 0, "TEXT", "end before this text; may be given often", .flags = OPTION_REPEATS | OPTION_ESCAPES),
    ESCAPE_OPTION,
    OPT_FLAG("ignore-eos", 0, "go on after the end-of-text token"),
    OPT_FLAG("special", 0, "take texts of control tokens as these tokens", ADVANCED),
    OPT_FLAG("no-echo", 0, "do not print the prompt", ADVANCED),
    CONSTRAINT_OPTIONS,
    DRAFT_OPTIONS,
    SESSION_OPTIONS,
    STATS_OPTION("print figures of the run; live: also meanwhile"),
    OPT_UINT("check", 0, "N", 2, RUN_CHECK_MAX, "compare the first N tokens with a dense run afterwards",
             ADVANCED),
    OPT_FLAG("json", 0, "print one JSON object at the end, with all ids"),
    OPT_FLAG("raw", 0, "do not make terminal escapes visible", ADVANCED),
    FORCE_OPTION,
    {0},
};

typedef struct generation {
    const args *a;
    const hearth_model *model;
    hearth_session *session;
    hearth_sampler *sampler;
    hearth_model *draft; /* model of --draft, or NULL */
    hearth_constraint *constraint; /* NULL: none */
    char *given; /* the prompt as text */
    size_t n_given;
    id_list prompt;
    size_t n_reused; /* ids of it that the session of --session has evaluated */
    size_t n_read;   /* ids of it that were evaluated then: the others, unless it was interrupted */
    id_list ids;     /* generated */
    buffer text;   /* the prompt as shown, then the generated text; complete, for --json */
    size_t n_echo; /* bytes of it that are the prompt */
    size_t n_shown;
    const char *stops[RUN_MAX_STOP];
    const char *end; /* why it ended */
    bool is_out_of_memory;
    bool begun;      /* all tokens of the session are this run's, from here on */
    double prompt_seconds, decode_seconds;
    hearth_storage_stats prompt_storage; /* when the first token was sampled */
    hearth_expert_stats prompt_experts;
    bool by_sim_clock; /* times are a simulated GPU's */
    timestamp prompt_took, decode_took;
    live_stats live;
    storage_expectation expected; /* with --stats and a limit of memory */
} generation;

/* ---- output ----------------------------------------------------------------------------- */

static bool show_until(generation *g, size_t end)
{
    size_t start = g->n_shown;
    if (end <= start) return true;
    g->n_shown = end;
    if (args_has(g->a, "json")) return true;
    if (args_has(g->a, "no-echo") && start < g->n_echo) start = end < g->n_echo ? end : g->n_echo;
    return write_text(g->text.bytes + start, end - start, args_has(g->a, "raw"));
}

/* ---- steps -------------------------------------------------------------------------------- */

/* The prompt as text, which stands before the generated one. */
static hearth_status decode_prompt(generation *g, hearth_error *err)
{
    hearth_detokenizer *decoder;
    hearth_status st = hearth_detokenizer_open(g->model, true, args_has(g->a, "special"), &decoder, err);
    const char *piece;
    size_t n;
    for (size_t i = 0; st == HEARTH_OK && i < g->prompt.n; i++) {
        st = hearth_detokenizer_push(decoder, g->prompt.at[i], &piece, &n, err);
        if (st == HEARTH_OK && !buffer_add(&g->text, piece, n)) st = hth_fail_memory(err, n, "the prompt's text");
    }
    hearth_detokenizer_close(decoder);
    g->n_echo = g->text.n;
    return st;
}

/* Shows a token's text. */
static bool show_text_part(void *user, const hearth_generated *part)
{
    generation *g = user;
    bool ok = part->token < 0 || id_list_add(&g->ids, &part->token, 1);
    g->is_out_of_memory = !ok || !buffer_add(&g->text, part->text, part->n);
    if (g->is_out_of_memory || !show_until(g, g->text.n)) return false;
    if (part->token >= 0) live_stats_token(&g->live);
    return true;
}

/* Returns the options that both calls of hearth_generate have. */
static hearth_generate_options text_options(generation *g)
{
    size_t n_stop = 0;
    while (n_stop < RUN_MAX_STOP && (g->stops[n_stop] = args_text_at(g->a, "stop", n_stop)) != NULL) n_stop++;
    return (hearth_generate_options){.tokens = g->prompt.at,
                                     .n_token = g->prompt.n,
                                     .ignore_end = args_has(g->a, "ignore-eos"),
                                     .show_special = args_has(g->a, "special"),
                                     .sampler = g->sampler,
                                     .constraint = g->constraint,
                                     .stops = g->stops,
                                     .n_stop = n_stop,
                                     .fn = show_text_part,
                                     .user = g};
}

/* Ctrl-C is an end, not an error. */
static bool is_interrupted(generation *g, hearth_status st)
{
    if (st == HEARTH_ERROR_CANCELLED) g->end = "interrupted";
    return st == HEARTH_ERROR_CANCELLED;
}

/* Evaluates what the session does not have already. */
static bool eval_prompt(generation *g, hearth_error *err)
{
    hearth_generate_options o = text_options(g);
    hearth_usage usage = {.size = sizeof usage};
    progress shown;
    if (decode_prompt(g, err) != HEARTH_OK) return false;
    timestamp start = timestamp_now(g->model);
    o.prompt_only = true;
    progress_init(&shown, "prompt", "tokens", 1);
    if (progress_is_shown()) o.progress = progress_show, o.progress_user = &shown;
    hearth_status st = hearth_generate(g->session, &o, &usage, err);
    progress_end(&shown); /* before the text, which would be on the same line */
    g->begun = st != HEARTH_ERROR_CONTEXT;
    if (st != HEARTH_OK && !is_interrupted(g, st)) return false;
    g->n_reused = usage.n_cached, g->n_read = usage.n_evaluated;
    g->prompt_took = timestamp_since(g->model, start);
    if (!show_until(g, g->n_echo)) g->end = "output closed";
    return true;
}

static bool generate(generation *g, hearth_error *err)
{
    hearth_generate_options o = text_options(g);
    hearth_usage usage = {.size = sizeof usage};
    hearth_status st = HEARTH_OK;
    hearth_model_get_storage(g->model, &g->prompt_storage);
    g->prompt_experts = experts_since(g->model, &(hearth_expert_stats){0});
    timestamp start = timestamp_now(g->model);
    o.max_token = args_uint(g->a, "predict", UINT64_MAX);
    if (!g->end && o.max_token == 0) g->end = hearth_end_name(HEARTH_END_LENGTH);
    live_stats_begin(&g->live);
    if (!g->end) st = hearth_generate(g->session, &o, &usage, err);
    live_stats_end(&g->live);
    if (g->is_out_of_memory) hth_fail_memory(err, g->text.n, "the text");
    if (g->is_out_of_memory || (st != HEARTH_OK && !is_interrupted(g, st))) return false;
    if (!g->end) g->end = usage.end == HEARTH_END_FUNCTION ? "output closed" : hearth_end_name(usage.end);
    g->decode_took = timestamp_since(g->model, start);
    g->by_sim_clock = g->prompt_took.sim >= 0.0 && g->decode_took.sim >= 0.0;
    g->prompt_seconds = g->by_sim_clock ? g->prompt_took.sim : g->prompt_took.wall;
    g->decode_seconds = g->by_sim_clock ? g->decode_took.sim : g->decode_took.wall;
    return true;
}

/* ---- statistics ------------------------------------------------------------------------------- */

static double rate(double n, double seconds) { return seconds > 0.0 ? n / seconds : 0.0; }

/* NULL: the activation gives no zeros, or there are no counts, as on a device. */
static double *live_shares(const generation *g, uint32_t *n_layer)
{
    hearth_model_info info = model_info(g->model);
    *n_layer = info.n_layer;
    double *share = info.sparse_activation ? malloc(info.n_layer * sizeof *share) : NULL;
    if (!share || hearth_session_sparsity_stats(g->session, share) > 0) return share;
    free(share);
    return NULL;
}

/* Tokens of the prompt that were evaluated in a second. */
static double prompt_rate(const generation *g)
{
    return rate((double)g->n_read, g->prompt_seconds);
}

/* Prints the last line. Times are those of this machine, unless a simulated device has a clock for both. */
static void print_rates(const generation *g)
{
    hearth_model_info info = model_info(g->model);
    char reused[40] = "", read[32] = "";
    size_t n = g->n_reused + g->n_read;
    if (n < g->prompt.n) snprintf(read, sizeof read, "%zu of ", n);
    if (args_has(g->a, "session")) snprintf(reused, sizeof reused, " (%zu reused)", g->n_reused);
    print_aside("%s%sprompt %s%zu tokens%s in %.3f s (%.1f/s); generated %zu in %.3f s (%.1f/s); ended: %s%s",
                info.gpu_simulated ? info.gpu : "",
                g->by_sim_clock           ? ", by its clock: "
                : info.gpu_simulated ? ": "
                                     : "",
                read, g->prompt.n, reused, g->prompt_seconds, prompt_rate(g), g->ids.n, g->decode_seconds,
                rate((double)g->ids.n, g->decode_seconds), g->end, seed_text(g->a).text);
}

static void print_storage(const generation *g)
{
    hearth_storage_stats s = {0};
    if (!storage_since(g->model, &g->prompt_storage, &s) || g->ids.n == 0) return;
    double n = (double)g->ids.n, n_asked = (double)(s.n_hit + s.n_miss);
    print_requested("storage, for each generated token: %.1f asked for, %.1f %% in memory; %.2f MiB of weights read; "
                    "%.2f guesses, %.2f used; waited %.1f ms; reads repeated in all %llu",
                    n_asked / n, n_asked > 0.0 ? 100.0 * (double)s.n_hit / n_asked : 100.0,
                    (double)s.weight_bytes * 0x1p-20 / n, (double)s.n_guess / n, (double)s.n_guess_used / n,
                    1e3 * s.stall_seconds / n, (unsigned long long)s.n_repeated);
}

static void print_experts(const generation *g)
{
    experts_there there = experts_text(g->model);
    if (there.text[0]) print_requested("experts of divided layers on %s: %s", model_info(g->model).gpu, there.text);
}

/* Where the experts were that generated tokens chose. The storage is asked for those of which the GPU has no copy. */
static void print_tiers(const generation *g)
{
    hearth_storage_stats s = {0};
    hearth_expert_stats e = experts_since(g->model, &g->prompt_experts);
    if (e.size == 0 || !storage_since(g->model, &g->prompt_storage, &s) || g->ids.n == 0) return;
    double n = (double)(e.n_on_device + s.n_hit + s.n_miss), percent = n > 0.0 ? 100.0 / n : 0.0;
    print_requested("experts, for each generated token: %.1f; %.1f %% of them on the GPU, %.1f %% in memory, %.1f %% read",
                    n / (double)g->ids.n, percent * (double)e.n_on_device, percent * (double)s.n_hit,
                    percent * (double)s.n_miss);
}

static void print_expected(const generation *g, double measured)
{
    const expected_speed *e = &g->expected.first;
    if (*g->expected.why && model_info(g->model).n_streamed > 0)
        print_requested("no speed was expected with this memory: %s", g->expected.why);
    if (e->expected <= 0.0 || g->ids.n == 0) return;
    print_requested(
        "with this memory, %.2f tokens/s were expected (%.2f to %.2f)%s, measured were %.2f (%+.0f %%)",
        e->expected, e->least, e->most, g->expected.assumed ? ", of experts as they usually are" : "",
        measured, 100.0 * (measured / e->expected - 1.0));
}

static void print_json_storage(json *j, const generation *g)
{
    hearth_storage_stats s = {0};
    hearth_model_info info = model_info(g->model);
    if (!storage_since(g->model, &g->prompt_storage, &s)) return;
    json_word(j, "reader", info.reader);
    json_uint(j, "parts", info.n_streamed);
    json_uint(j, "parts_in_memory", info.n_streamed_max);
    json_storage(j, "storage", &s);
    const expected_speed *e = &g->expected.first;
    if (e->expected <= 0.0) return;
    json_float(j, "expected_tokens_per_second", e->expected, 6);
    json_float(j, "expected_tokens_per_second_least", e->least, 6);
    json_float(j, "expected_tokens_per_second_most", e->most, 6);
}

static void print_stats(const generation *g)
{
    hearth_model_info info = model_info(g->model);
    print_storage(g);
    print_experts(g);
    print_tiers(g);
    drafts_print(g->session);
    double measured = rate((double)g->ids.n, g->decode_seconds);
    print_expected(g, measured);
    if (info.gpu_predicted_tps > 0.0)
        print_requested("the plan expects %.2f tokens/s, measured were %.2f (%+.0f %%)",
                        info.gpu_predicted_tps, measured, 100.0 * (measured / info.gpu_predicted_tps - 1.0));
    uint32_t n_layer;
    double *share = live_shares(g, &n_layer), sum = 0.0;
    if (!share) return;
    char line[900];
    size_t used = 0;
    for (uint32_t i = 0; i < n_layer; i++) {
        if (used + 8 < sizeof line)
            used += (size_t)snprintf(line + used, sizeof line - used, " %.1f", share[i] * 100.0);
        sum += share[i];
    }
    print_requested("live neurons by layer, %%:%s; mean %.1f", line, sum / n_layer * 100.0);
    free(share);
}

static void print_ids(json *j, const char *key, const int32_t *ids, size_t n)
{
    json_open_compact(j, key, '[');
    for (size_t i = 0; i < n; i++) json_int(j, NULL, ids[i]);
    json_close(j, ']');
}

static void print_json(const generation *g)
{
    hearth_model_info info = model_info(g->model);
    json j = json_begin(stdout);
    json_word(&j, "model", info.path);
    json_text(&j, "prompt", g->given, g->n_given);
    json_text(&j, "text", g->text.bytes + g->n_echo, g->text.n - g->n_echo);
    json_word(&j, "end", g->end);
    json_uint(&j, "seed", sampler_seed(g->a));
    print_ids(&j, "prompt_ids", g->prompt.at, g->prompt.n);
    print_ids(&j, "ids", g->ids.at, g->ids.n);
    if (args_has(g->a, "session")) json_uint(&j, "prompt_tokens_reused", g->n_reused);
    if (info.gpu_simulated) json_bool(&j, "simulated", true);
    if (g->by_sim_clock) json_bool(&j, "simulated_seconds", true);
    json_float(&j, "prompt_seconds", g->prompt_seconds, 6);
    json_float(&j, "decode_seconds", g->decode_seconds, 6);
    json_float(&j, "prompt_tokens_per_second", prompt_rate(g), 6);
    json_float(&j, "decode_tokens_per_second", rate((double)g->ids.n, g->decode_seconds), 6);
    drafts_print_json(&j, g->session);
    json_placement(&j, &info);
    json_experts(&j, g->model);
    print_json_storage(&j, g);
    uint32_t n_layer;
    double *share = args_has(g->a, "stats") ? live_shares(g, &n_layer) : NULL;
    if (share) {
        json_open_compact(&j, "live_share", '[');
        for (uint32_t i = 0; i < n_layer; i++) json_float(&j, NULL, share[i], 6);
        json_close(&j, ']');
        free(share);
    }
    json_end(&j);
}

/* MODEL is the embedded one if no operand names another; a lone "-" is the prompt. */
static const char *model_path(const args *a)
{
    const char *first = args_operand(a, 0);
    return first && strcmp(first, "-") != 0 ? first : NULL;
}

/* Measures the effect of the mode on the first tokens. The session's tokens are lost. */
static int check(const generation *g, uint64_t n_max)
{
    size_t n = g->prompt.n + g->ids.n;
    if (n > n_max) n = n_max;
    if (n > hearth_session_n_ctx(g->session)) n = hearth_session_n_ctx(g->session);
    int32_t *ids = malloc(n * sizeof *ids);
    if (!ids) return report_text("out of memory for the check");
    for (size_t i = 0; i < n; i++) ids[i] = i < g->prompt.n ? g->prompt.at[i] : g->ids.at[i - g->prompt.n];
    int status = run_check(g->a, model_path(g->a), g->model, g->session, ids, n);
    free(ids);
    return status;
}

/* ---- entry point --------------------------------------------------------------------------------- */

static int check_args(const args *a)
{
    const char *first = args_operand(a, 0), *second = args_operand(a, 1);
    bool dash = (first && strcmp(first, "-") == 0) || (second && strcmp(second, "-") == 0);
    if (second && (strcmp(second, "-") != 0 || strcmp(first, "-") == 0))
        return usage_error("'%s' is one argument too many; a prompt is given with -p", second);
    if (args_has(a, "prompt") + args_has(a, "file") + dash > 1)
        return usage_error("--prompt, --file and - contradict each other");
    if (args_has(a, "prompt") && !*args_text(a, "prompt", ""))
        return usage_error("--prompt: the text is empty; without -p the model begins by itself");
    if (args_text_at(a, "stop", RUN_MAX_STOP)) return usage_error("--stop: more than %d texts", RUN_MAX_STOP);
    for (size_t i = 0; args_text_at(a, "stop", i); i++)
        if (!*args_text_at(a, "stop", i)) return usage_error("--stop: an empty text stops everything");
    return 0;
}

/* Whether standard input is a file or a pipe. A closed one does not count; it is held open for writing
 * (main.c). */
static bool stdin_is_piped(void)
{
    int mode = fcntl(STDIN_FILENO, F_GETFL);
    return isatty(STDIN_FILENO) == 0 && mode != -1 && (mode & O_ACCMODE) != O_WRONLY;
}

/* The ids of the prompt; without one, those of the session. */
static hearth_status make_ids(generation *g, hearth_error *err)
{
    unsigned flags = HEARTH_ADD_SPECIAL | (args_has(g->a, "special") ? (unsigned)HEARTH_PARSE_SPECIAL : 0u);
    const int32_t *had = hearth_session_tokens(g->session);
    int32_t *ids = NULL;
    size_t n = hearth_session_position(g->session);
    bool goes_on = g->n_given == 0 && n > 0;
    hearth_status st = goes_on ? HEARTH_OK : hearth_tokenize(g->model, g->given, g->n_given, flags, &ids, &n, err);
    if (st == HEARTH_OK && !id_list_add(&g->prompt, goes_on ? had : ids, n)) st = hth_fail_memory(err, n, "the prompt");
    hearth_free(ids);
    return st;
}

static bool tokenize_prompt(generation *g)
{
    const args *a = g->a;
    hearth_error err;
    size_t n = 0;
    bool dash = (args_operand(a, 0) && strcmp(args_operand(a, 0), "-") == 0) || args_operand(a, 1);
    const char *path = dash ? "-" : args_text(a, "file", NULL);
    bool from_pipe = !path && !args_has(a, "prompt") && stdin_is_piped();
    if (from_pipe) path = "-";
    g->given = path ? read_prompt(path, &n) : strdup(args_text(a, "prompt", ""));
    if (!g->given) return !path && report_text("out of memory for the prompt") == 0;
    if (path && n == 0 && !from_pipe)
        return report_text("%s: the prompt is empty; without one the model begins by itself", path) == 0;
    g->n_given = path ? n : strlen(g->given);
    hearth_status st = make_ids(g, &err);
    if (st != HEARTH_OK) report(&err);
    else if (g->prompt.n == 0)
        report_text(
            "the prompt is empty, and the vocabulary has no token that begins a text; give one with -p");
    return st == HEARTH_OK && g->prompt.n > 0;
}

static bool open_all(generation *g, int *status)
{
    hearth_draft_options drafts;
    if (!open_session(g->a, g->model, 0, &g->session) || !open_sampler(g->a, g->model, &g->sampler, status))
        return false;
    *status = EXIT_OTHER; /* the status of all following errors */
    if (!drafts_open(g->a, &drafts, &g->draft) || !drafts_use(g->session, &drafts, g->sampler)) return false;
    if (!run_session_open(g->a, g->session) || !tokenize_prompt(g)) return false;
    if (!constraint_open(g->a, g->model, &g->constraint)) return false;
    bool streamed = model_info(g->model).n_streamed > 0; /* then neurons are not counted */
    hearth_session_enable_sparsity_stats(g->session, args_has(g->a, "stats") && !streamed);
    return true;
}

/* Prints an introduction for a user who types `hearth run` without arguments. */
static void introduce(void)
{
    fputs("hearth runs language models: files of the kind GGUF. Without one it tells a story now,\n"
          "by a small model that is inside the program. With your own:\n"
          "    hearth pull REPO            fetch a model; hearth list shows those that are here\n"
          "    hearth chat MODEL           talk with it; hearth run MODEL -p TEXT continues a text\n"
          "    hearth run --help           all options. Ctrl-C stops the story.\n",
          stderr);
}

static int run_model(const args *a)
{
    generation g = {.a = a};
    hearth_model *model = NULL;
    hearth_error err;
    int status = check_args(a);
    if (!status) status = constraint_check(a);
    if (!status) status = drafts_check(a);
    if (!status) status = run_session_check(a);
    if (status) return status;
    if (args_are_none(a) && isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) introduce();
    status = EXIT_OTHER;
    install_signal_handlers();
    interrupt_at_once(true);
    if (args_has(a, "stats") && args_has(a, "ram")) {
        const hearth_model_options wanted = wanted_model(a, model_path(a), 0);
        uint64_t n = args_uint(a, "predict", FORECAST_TOKENS);
        if (n > FORECAST_TOKENS) n = FORECAST_TOKENS;
        g.expected = expect_storage_speed(model_path(a), &wanted, NULL, (uint32_t)n);
    }
    if (!open_model(a, model_path(a), &model)) return EXIT_OTHER;
    g.model = model;
    if (!open_all(&g, &status)) goto done;
    warn_of_context(model, hearth_session_n_ctx(g.session));
    if (!args_has(a, "json")) print_start_line(a, model, g.session);
    live_stats_open(&g.live, a, model, g.session);
    interrupt_at_once(false); /* generated text must be kept from here on */
    bool ok = eval_prompt(&g, &err) && generate(&g, &err);
    if (ok && args_has(a, "json")) print_json(&g);
    else if (g.n_shown > 0 && !args_has(a, "json")) finish_line();
    status = ok ? 0 : report(&err);
    /* After an error too, which costs no more than it must; without memory nothing more is tried. */
    bool saves = g.begun && (ok || err.status != HEARTH_ERROR_MEMORY);
    if (saves && !run_session_save(a, model, g.session)) status = EXIT_OTHER;
    if (ok && !args_has(a, "json") && strcmp(g.end, "context full") == 0)
        print_status("the context of %u tokens is full; -c takes more", hearth_session_n_ctx(g.session));
    if (ok && (args_has(a, "stats") || !args_has(a, "json"))) print_rates(&g);
    if (ok && args_has(a, "stats")) print_stats(&g);
    if (ok && args_has(a, "check") && !interrupted()) status = check(&g, args_uint(a, "check", 0));
done:
    hearth_constraint_close(g.constraint);
    hearth_session_close(g.session);
    hearth_sampler_close(g.sampler);
    hearth_model_close(g.draft);
    hearth_model_close(model);
    free(g.prompt.at);
    free(g.given);
    free(g.ids.at);
    free(g.text.bytes);
    return status;
}

const command command_run_model = {
    .name = "run",
    .operands = "[MODEL] [-]",
    .summary = "continue a prompt",
    .details = "Without MODEL the embedded story model runs. The same seed gives the same text\n"
               "on any machine, except of float weights (F32, F16, BF16) on a GPU.\n",
    .example = "hearth run -p \"Once upon a time\" --seed 7 --stats",
    .groups = {options, sampling_options, model_options, gpu_options},
    .models = 1,
    .run = run_model,
};
