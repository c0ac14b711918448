/* hearth perplexity: measures how well a model predicts a text. */
#include "cli/commands.h"
#include "common/json.h"
#include "common/options/model_args.h"
#include "measure/perplexity.h"

#include <stdlib.h>

static const option_spec options[] = {
    OPT_FILE("file", 'f', "FILE", "the text; - is stdin"),
    OPT_UINT("chunks", 0, "N", 1, 1e9, "score the first N chunks only"),
    OPT_FLAG("json", 0, "print a JSON object"),
    {0},
};

/* A chunk of n tokens scores n - 1 - n / 2 of them. */
enum { MIN_CHUNK = 3 };

static void print_result(const args *a, const hearth_model *model, const hth_perplexity *p, uint32_t n_ctx)
{
    if (!args_has(a, "json")) {
        printf("perplexity %.4f +/- %.4f (chunks of %u: %llu of %llu, %llu tokens scored of %llu)\n",
               p->perplexity, p->error, n_ctx, (unsigned long long)p->n_done, (unsigned long long)p->n_chunk,
               (unsigned long long)p->n_scored, (unsigned long long)p->n_token);
        return;
    }
    hearth_model_info info = model_info(model);
    json j = json_begin(stdout);
    json_float(&j, "perplexity", p->perplexity, 17);
    json_float(&j, "error", p->error, 17);
    json_float(&j, "nll", p->nll, 17);
    json_uint(&j, "n_ctx", n_ctx);
    json_uint(&j, "tokens", p->n_token);
    json_uint(&j, "chunks", p->n_chunk);
    json_uint(&j, "chunks_scored", p->n_done);
    json_uint(&j, "tokens_scored", p->n_scored);
    json_placement(&j, &info);
    json_end(&j);
}

static int score_text(const args *a, const hearth_model *model, hearth_session *session, const char *text,
                      size_t n)
{
    hearth_error err;
    hth_perplexity result;
    progress p;
    if (!args_has(a, "json")) print_start_line(a, model, session);
    warn_of_context(model, hearth_session_n_ctx(session));
    progress_init(&p, "scoring", "chunks", 1);
    hearth_status st =
        hth_measure_perplexity(model, session, text, n, args_uint(a, "chunks", 0), progress_show, &p, &result, &err);
    progress_end(&p);
    if (st != HEARTH_OK) return report(&err);
    if (result.n_done == 0) return report_text("interrupted; no chunk was scored");
    print_result(a, model, &result, hearth_session_n_ctx(session));
    if (interrupted()) print_status("interrupted; the chunks so far count");
    return 0;
}

static int run_perplexity(const args *a)
{
    if (!args_has(a, "file")) return usage_error("perplexity needs -f FILE");
    if (args_context(a, MIN_CHUNK) < MIN_CHUNK)
        return usage_error("perplexity --ctx: a chunk of fewer than %d tokens scores none", MIN_CHUNK);
    return run_on_text(a, score_text);
}

const command command_perplexity = {
    .name = "perplexity",
    .operands = "MODEL",
    .summary = "measure how well a model predicts a text",
    .details = "As llama-perplexity defines it: chunks of -c tokens, each after a begin-of-text\n"
               "token, the second half scored. One last newline of FILE is dropped. Without -c a\n"
               "chunk is the context, where llama-perplexity takes 512.\n",
    .example = "hearth perplexity model.gguf -f text.txt -c 512",
    .groups = {options, model_options, gpu_options},
    .models = 1,
    .run = run_perplexity,
};
