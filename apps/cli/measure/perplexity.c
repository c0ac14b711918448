/* hearth perplexity: measures how well a model predicts a text. */
#include "cli/commands.h"
#include "common/json.h"
#include "common/model_args.h"
#include "common/placement_info.h"
#include "measure/perplexity.h"

#include <stdlib.h>

static const option_spec options[] = {
    {"file", 'f', OPTION_FILE, "FILE", "the text; - is stdin", 0, 0, NULL, 0},
    {"chunks", 0, OPTION_UINT, "N", "score the first N windows only", 1, 1e9, NULL, 0},
    {"json", 0, OPTION_FLAG, NULL, "print a JSON object", 0, 0, NULL, 0},
    {0},
};

/* A chunk of n tokens scores n - 1 - n / 2 of them. */
enum { MIN_WINDOW = 3 };

static void print_result(const args *a, const hearth_model *model, const hth_perplexity *p, uint32_t n_ctx)
{
    hearth_model_info info;
    if (!args_has(a, "json")) {
        printf("perplexity %.4f +/- %.4f (windows of %u: %llu of %llu, %llu tokens scored of %llu)\n",
               p->perplexity, p->error, n_ctx, (unsigned long long)p->n_done, (unsigned long long)p->n_window,
               (unsigned long long)p->n_scored, (unsigned long long)p->n_token);
        return;
    }
    json j;
    hearth_model_get_info(model, &info);
    json_init(&j, stdout);
    json_open(&j, NULL, '{');
    json_float(&j, "perplexity", p->perplexity, 17);
    json_float(&j, "error", p->error, 17);
    json_float(&j, "nll", p->nll, 17);
    json_uint(&j, "n_ctx", n_ctx);
    json_uint(&j, "tokens", p->n_token);
    json_uint(&j, "windows", p->n_window);
    json_uint(&j, "windows_scored", p->n_done);
    json_uint(&j, "tokens_scored", p->n_scored);
    json_placement(&j, &info);
    json_close(&j, '}');
    json_end(&j);
}

static int run(const args *a)
{
    const char *path = args_text(a, "file", NULL);
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    hearth_error err;
    hth_perplexity result;
    size_t n;
    int status = EXIT_OTHER;
    if (!path) return usage_error("perplexity needs -f FILE");
    if (args_context(a, MIN_WINDOW) < MIN_WINDOW)
        return usage_error("perplexity --ctx: a window of fewer than %d tokens scores none", MIN_WINDOW);
    char *text = read_text_file(path, &n);
    if (!text) return EXIT_OTHER;
    install_signal_handlers();
    interrupt_at_once(true); /* until the text is divided into chunks */
    if (open_model(a, args_operand(a, 0), &model) && open_session(a, model, 0, &session)) {
        progress p;
        if (!args_has(a, "json")) print_start_line(a, model, session);
        progress_init(&p, "scoring", "windows", 1);
        hearth_status st = hth_measure_perplexity(model, session, text, n, args_uint(a, "chunks", 0),
                                                  progress_show, &p, &result, &err);
        progress_end(&p);
        bool scored = st == HEARTH_OK && result.n_done > 0;
        if (scored) print_result(a, model, &result, hearth_session_n_ctx(session));
        if (scored) status = 0;
        else status = st == HEARTH_OK ? report_text("interrupted; no window was scored") : report(&err);
        if (scored && interrupted()) print_status("interrupted; the windows so far count");
    }
    free(text);
    hearth_session_close(session);
    hearth_model_close(model);
    return status;
}

const command command_perplexity = {
    .name = "perplexity",
    .operands = "MODEL",
    .n_operand_min = 1,
    .n_operand_max = 1,
    .summary = "measure how well a model predicts a text",
    .details = "As llama-perplexity defines it: windows of -c tokens, each after a begin-of-text\n"
               "token, the second half scored. One last newline of FILE is dropped.\n",
    .example = "hearth perplexity model.gguf -f text.txt -c 512",
    .groups = {options, model_options, gpu_options},
    .models = 1,
    .run = run,
};
