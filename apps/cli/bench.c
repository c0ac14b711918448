/* hearth bench: prompt and generation speed beside the machine's limit, taken in
 * the same run. Samples of all tests are interleaved, a bandwidth probe before each. */
#include "base/clock.h"
#include "cli/verbs.h"
#include "common/json.h"
#include "common/model_args.h"
#include "measure/limits.h"

#include <stdlib.h>
#include <string.h>

static const option_spec options[] = {
    {"prompt", 'p', OPTION_UINT_LIST, "N,...", "prompt lengths; default 128; 0: none", 0, 1048576, NULL,
     false},
    {"predict", 'n', OPTION_UINT_LIST, "N,...", "tokens to generate; default 64; 0: none", 0, 1048576, NULL,
     false},
    {"repeat", 0, OPTION_UINT, "R", "samples of each; default 5", 1, 1000, NULL, false},
    {"json", 0, OPTION_FLAG, NULL, "print a JSON object with every sample", 0, 0, NULL, false},
    {0},
};

enum { MAX_TESTS = 2 * OPTION_LIST_MAX, PROBE_SIZE = 512 << 20 };

typedef struct test {
    uint64_t n_prompt, n_predict; /* one of them is 0 */
    double *rate;                 /* tokens per second, by sample */
    double *limit;                /* bytes per second of the probe before it */
} test;

typedef struct bench {
    const hearth_model *model;
    hearth_session *session;
    hearth_model_info info;
    test tests[MAX_TESTS];
    size_t n_test, n_repeat;
    size_t n_batch; /* tokens of a prompt between two looks at Ctrl-C */
    int32_t *tokens;
} bench;

/* ---- samples -------------------------------------------------------------------------- */

static bool sample(bench *b, const test *t, double *rate, hearth_error *err)
{
    uint64_t start = hth_clock_ns(), n = t->n_prompt ? t->n_prompt : t->n_predict;
    if (hearth_session_truncate(b->session, 0, err) != HEARTH_OK) return false;
    if (t->n_prompt) {
        for (uint64_t i = 0; i < n && !interrupted(); i += b->n_batch) {
            size_t k = n - i < b->n_batch ? (size_t)(n - i) : b->n_batch;
            if (hearth_session_eval(b->session, b->tokens + i, k, err) != HEARTH_OK) return false;
        }
    } else {
        for (uint64_t i = 0; i < n && !interrupted(); i++)
            if (hearth_session_eval(b->session, b->tokens + i, 1, err) != HEARTH_OK) return false;
    }
    *rate = (double)n / ((double)(hth_clock_ns() - start) * 1e-9);
    return true;
}

static bool run_tests(bench *b, hearth_error *err)
{
    hth_pool *pool = NULL;
    hth_bandwidth_probe probe = {0};
    double ignored;
    bool ok = hth_pool_open(hearth_session_n_thread(b->session), &pool, err) == HEARTH_OK &&
              hth_bandwidth_open(&probe, PROBE_SIZE, err) == HEARTH_OK;
    for (size_t i = 0; ok && i < b->n_test; i++) ok = sample(b, &b->tests[i], &ignored, err); /* warm up */
    for (size_t r = 0; ok && r < b->n_repeat; r++)
        for (size_t i = 0; ok && i < b->n_test && !interrupted(); i++) {
            b->tests[i].limit[r] = hth_bandwidth_measure(&probe, pool);
            ok = sample(b, &b->tests[i], &b->tests[i].rate[r], err);
        }
    hth_bandwidth_close(&probe);
    hth_pool_close(pool);
    return ok;
}

/* ---- results ---------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *sorted, size_t n)
{
    qsort(sorted, n, sizeof *sorted, ascending);
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

static void name_of(const test *t, char *out, size_t n)
{
    snprintf(out, n, "%s %llu", t->n_prompt ? "prompt" : "generate",
             (unsigned long long)(t->n_prompt ? t->n_prompt : t->n_predict));
}

static void print_table(bench *b)
{
    printf("%s: %s, %u thread(s), %s%s\n\n", b->info.path, b->info.architecture,
           hearth_session_n_thread(b->session), b->info.cpu, b->info.synthetic ? ", synthetic weights" : "");
    printf("| test | tokens/s, median (min-max) of %zu | GB/s of weights | limit, GB/s | share "
           "|\n|---|---|---|---|---|\n",
           b->n_repeat);
    for (size_t i = 0; i < b->n_test; i++) {
        test *t = &b->tests[i];
        char name[40];
        name_of(t, name, sizeof name);
        double rate = median(t->rate, b->n_repeat), limit = median(t->limit, b->n_repeat);
        printf("| %s | %.2f (%.2f-%.2f) |", name, rate, t->rate[0], t->rate[b->n_repeat - 1]);
        double used = rate * (double)b->info.token_bytes;
        if (t->n_prompt) printf(" - | %.1f | - |\n", limit * 1e-9);
        else printf(" %.2f | %.1f | %.0f %% |\n", used * 1e-9, limit * 1e-9, used / limit * 100.0);
    }
}

static void print_samples(json *j, const char *key, const double *x, size_t n)
{
    json_open_compact(j, key, '[');
    for (size_t i = 0; i < n; i++) json_float(j, NULL, x[i], 6);
    json_close(j, ']');
}

static void print_json(bench *b)
{
    json j;
    json_init(&j, stdout);
    json_open(&j, NULL, '{');
    json_word(&j, "model", b->info.path);
    json_bool(&j, "synthetic_weights", b->info.synthetic);
    json_word(&j, "cpu", b->info.cpu);
    json_uint(&j, "threads", hearth_session_n_thread(b->session));
    json_uint(&j, "weight_bytes", b->info.weight_bytes);
    json_uint(&j, "token_bytes", b->info.token_bytes);
    json_open(&j, "tests", '[');
    for (size_t i = 0; i < b->n_test; i++) {
        test *t = &b->tests[i];
        json_open(&j, NULL, '{');
        json_uint(&j, "prompt", t->n_prompt);
        json_uint(&j, "generate", t->n_predict);
        print_samples(&j, "tokens_per_second", t->rate, b->n_repeat);
        print_samples(&j, "limit_bytes_per_second", t->limit, b->n_repeat);
        double rate = median(t->rate, b->n_repeat), limit = median(t->limit, b->n_repeat);
        json_float(&j, "median_tokens_per_second", rate, 6);
        json_float(&j, "min_tokens_per_second", t->rate[0], 6);
        json_float(&j, "max_tokens_per_second", t->rate[b->n_repeat - 1], 6);
        if (t->n_predict) {
            json_float(&j, "weight_bytes_per_second", rate * (double)b->info.token_bytes, 6);
            json_float(&j, "share_of_limit", rate * (double)b->info.token_bytes / limit, 6);
        }
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    json_end(&j);
}

/* ---- the beginning ------------------------------------------------------------------------ */

static uint64_t add_tests(bench *b, const args *a, const char *option, uint64_t otherwise)
{
    uint64_t lengths[OPTION_LIST_MAX] = {otherwise}, most = 0;
    size_t n = args_list(a, option, lengths, OPTION_LIST_MAX);
    if (n == 0) n = 1;
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] == 0) continue;
        test *t = &b->tests[b->n_test++];
        if (strcmp(option, "prompt") == 0) t->n_prompt = lengths[i];
        else t->n_predict = lengths[i];
        if (lengths[i] > most) most = lengths[i];
    }
    return most;
}

static bool make_room(bench *b, uint64_t n_token)
{
    b->tokens = malloc(n_token * sizeof *b->tokens);
    if (!b->tokens) return false;
    /* Any ids will do; these are spread over the vocabulary. */
    for (uint64_t i = 0; i < n_token; i++)
        b->tokens[i] = (int32_t)((i * 2654435761u + 12345u) % b->info.n_vocab);
    for (size_t i = 0; i < b->n_test; i++) {
        b->tests[i].rate = calloc(b->n_repeat, sizeof(double));
        b->tests[i].limit = calloc(b->n_repeat, sizeof(double));
        if (!b->tests[i].rate || !b->tests[i].limit) return false;
    }
    return true;
}

static int run(const args *a)
{
    bench b = {.n_repeat = args_uint(a, "repeat", 5), .n_batch = args_uint(a, "batch", 256)};
    hearth_model *model = NULL;
    hearth_error err;
    int status = EXIT_OTHER;
    uint64_t prompt = add_tests(&b, a, "prompt", 128), predict = add_tests(&b, a, "predict", 64);
    uint64_t n_token = prompt > predict ? prompt : predict;
    if (b.n_test == 0) return usage_error("bench: nothing to do with -p 0 -n 0");
    catch_interrupt();
    if (!open_model(a, args_operand(a, 0), &model)) return EXIT_OTHER;
    b.model = model;
    hearth_model_get_info(model, &b.info);
    if (open_session(a, model, (uint32_t)n_token, &b.session)) {
        if (!make_room(&b, n_token)) report_text("out of memory");
        else if (!run_tests(&b, &err)) report(&err);
        else if (interrupted()) report_text("interrupted; no figures");
        else {
            if (args_has(a, "json")) print_json(&b);
            else print_table(&b);
            status = 0;
        }
    }
    for (size_t i = 0; i < b.n_test; i++) {
        free(b.tests[i].rate);
        free(b.tests[i].limit);
    }
    free(b.tokens);
    hearth_session_close(b.session);
    hearth_model_close(model);
    return status;
}

const verb verb_bench = {
    .name = "bench",
    .operands = "[MODEL]",
    .n_operand_min = 0,
    .n_operand_max = 1,
    .summary = "measure speed beside the machine's memory bandwidth",
    .details = "Tokens/s as median and spread; for generation also bytes of weights per second\n"
               "and the share of the bandwidth that a loop of loads reached before each sample.\n",
    .example = "hearth bench model.gguf -p 128,512 -n 64 -t 1",
    .groups = {options, model_options},
    .run = run,
};
