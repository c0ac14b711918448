/* hearth inspect: contents of a file, and what running it requires. Weights are not read (except thresholds,
 * which are few), so it answers at once for any size; --check reads and verifies all of them. */
#include "cli/files/inspect_facts.h"
#include "cli/commands.h"
#include "common/output.h"
#include "measure/check_weights.h"

static const option_spec options[] = {
    OPT_UINT("ctx", 'c', "N", 0, 16777216, "context; 0: as trained; default: that, at most 4096"),
    OPT_FLAG("all", 0, "show arrays and texts whole, and every tensor"),
    OPT_FLAG("check", 0, "read every weight; fail if one is not finite"),
    OPT_UINT("threads", 't', "N", 1, 256, "threads of --check; default: one for each core", .flags = OPTION_AUTO),
    OPT_FLAG("program", 0, "show the operations of the model"),
    OPT_FLAG("json", 0, "print a JSON object"),
    {0},
};

/* Reports tensors with bad weights as errors. The rest of the output is then not printed. */
static int check(const args *a, const hth_gguf *file)
{
    progress p;
    hearth_error err;
    hth_check_result r;
    install_signal_handlers();
    progress_init(&p, "checking", "MiB", 0x1p20);
    hearth_status st =
        hth_check_weights(file, (uint32_t)args_uint(a, "threads", 0), progress_show, &p, &r, &err);
    progress_end(&p);
    if (st != HEARTH_OK) return report(&err);
    if (!args_has(a, "json"))
        printf("%s: %llu weights of %llu tensors are finite", printable(hth_gguf_path(file)),
               (unsigned long long)r.n_weight, (unsigned long long)r.n_tensor);
    if (!args_has(a, "json") && r.n_skipped > 0)
        printf("; %llu tensors are of types that cannot be read", (unsigned long long)r.n_skipped);
    if (!args_has(a, "json")) printf("\n\n");
    return 0;
}

/* Out of memory is not an error of the file. */
static const hearth_error *out_of_memory(const facts *f)
{
    if (!f->model && f->why_not.status == HEARTH_ERROR_MEMORY) return &f->why_not;
    if (f->no_use.status == HEARTH_ERROR_MEMORY) return &f->no_use;
    return f->no_tokenizer.status == HEARTH_ERROR_MEMORY ? &f->no_tokenizer : NULL;
}

static int run_inspect(const args *a)
{
    hth_gguf *file;
    hearth_error err;
    facts f;
    int code = 0;
    if (hth_gguf_open(args_operand(a, 0), &file, &err) != HEARTH_OK) return report(&err);
    if (args_has(a, "check")) code = check(a, file);
    if (code == 0) {
        file_info_gather(&f, a, file);
        const hearth_error *lack = out_of_memory(&f);
        if (lack) code = report(lack);
        else if (args_has(a, "json")) inspect_print_json(&f);
        else if (f.program && !f.model) code = report(&f.why_not);
        else if (f.program) inspect_print_program(f.model);
        else inspect_print(&f);
        facts_free(&f);
    }
    hth_gguf_close(file);
    return code;
}

const command command_inspect = {
    .name = "inspect",
    .operands = "FILE",
    .summary = "show what is in a model file, and the memory of a run",
    .details = "Architecture, tensors, selectors, memory of weights, KV cache and workspace, and\n"
               "metadata; of a mixture of experts the parameters that a token uses. Works for\n"
               "every well-formed GGUF file, profiles and predictors too; says why one cannot be\n"
               "run.\n",
    .example = "hearth inspect model.gguf -c 8192",
    .groups = {options},
    .models = 1,
    .run = run_inspect,
};
