/* hearth quantize: converts a model file to a smaller one. */
#include "base/format_bytes.h"
#include "cli/commands.h"
#include "common/input.h"
#include "common/output.h"
#include "common/output_file.h"
#include "convert/quantize.h"

#include <string.h>

enum { MAX_RULE = 64 };

#define TYPES "f32|f16|bf16|q8_0|q6_k|q5_k|q5_1|q5_0|q4_k|iq4_nl|iq4_xs|q4_1|q4_0|mxfp4|q3_k|iq3_s|q2_k"

static const option_spec options[] = {
    OPT_CHOICE("keep-output", 0, "TYPE", TYPES, "type of the output matrix, or of a tied embedding"),
    OPT_CHOICE("keep-embedding", 0, "TYPE", TYPES, "type of the embedding table"),
    OPT_TEXT("tensor-type", 0, "NAME=TYPE", "type of matrices whose name has NAME, a pattern", .flags = OPTION_REPEATS),
    OPT_FILE("imatrix", 0, "FILE", "round by an importance matrix of hearth imatrix"),
    OPT_FLAG("pure", 0, "all matrices in that one type, without a mix"),
    OPT_UINT("threads", 't', "N", 1, 256, "threads; default: one for each core", .flags = OPTION_AUTO),
    {0},
};

/* The rules of --tensor-type and --keep-embedding. Returns how many; SIZE_MAX: a usage error was reported. */
static size_t read_rules(const args *a, hth_quantize_rule rules[MAX_RULE])
{
    static char patterns[MAX_RULE][128];
    const char *text, *embedding = args_text(a, "keep-embedding", NULL);
    size_t n = 0;
    for (; (text = args_text_at(a, "tensor-type", n)) != NULL; n++) {
        const char *equal = strrchr(text, '=');
        if (n == MAX_RULE - 1 || !equal || equal == text || (size_t)(equal - text) >= sizeof *patterns ||
            !hth_type_by_name(equal + 1, &rules[n].type)) {
            usage_error("--tensor-type '%s': expected NAME=TYPE, as attn_v=q8_0, TYPE one of %s", text, TYPES);
            return SIZE_MAX;
        }
        snprintf(patterns[n], sizeof *patterns, "%.*s", (int)(equal - text), text);
        rules[n].pattern = patterns[n];
    }
    if (embedding && hth_type_by_name(embedding, &rules[n].type)) rules[n++].pattern = "^token_embd\\.weight$";
    return n;
}

static int run_quantize(const args *a)
{
    progress p;
    hth_quantize_rule rules[MAX_RULE];
    uint64_t n_thread = args_uint(a, "threads", 0);
    const char *threads = args_operand(a, 3);
    hearth_error err;
    hth_quantize_result r;
    hth_quantize_options o = {
        .rules = rules, .progress = progress_show, .progress_user = &p};
    const char *type = args_operand(a, 2), *keep = args_text(a, "keep-output", NULL);
    o.ftype = hth_ftype_find(type);
    if (!o.ftype) return usage_error("quantize to '%s': expected one of %s", type, hth_ftype_list());
    if (threads && (!parse_uint(threads, &n_thread) || n_thread < 1 || n_thread > 256))
        return usage_error("'%s': expected a number of threads, 1 to 256", threads);
    o.n_thread = (uint32_t)n_thread;
    o.n_rule = read_rules(a, rules);
    if (o.n_rule == SIZE_MAX) return EXIT_USAGE;
    o.pure = args_has(a, "pure");
    o.imatrix = args_text(a, "imatrix", NULL);
    const input in[] = {{args_operand(a, 0), "the original"}, {o.imatrix, "the importance matrix"}};
    int wrong = check_output(a, args_operand(a, 1), OUTPUT_MODEL, in, 2);
    if (wrong) return wrong;
    o.keep_output = keep && hth_type_by_name(keep, &o.output_type);
    install_signal_handlers();
    progress_init(&p, "quantizing", "MiB", 0x1p20);
    hearth_status st = hth_quantize(args_operand(a, 0), args_operand(a, 1), &o, &r, &err);
    progress_end(&p);
    if (st != HEARTH_OK) return report(&err);
    char weighted[48] = "";
    if (o.imatrix) snprintf(weighted, sizeof weighted, ", %u of them by importance", r.n_weighted);
    printf("%s: %u tensors, %u changed%s; %s became %s\n", printable(args_operand(a, 1)), r.n_tensor,
           r.n_changed, weighted, hth_format_bytes(r.in_bytes).text, hth_format_bytes(r.out_bytes).text);
    return 0;
}

const command command_quantize = {
    .name = "quantize",
    .operands = "IN OUT TYPE [THREADS]",
    .summary = "write a model file with its matrices in another type",
    .details = "TYPE is F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_1, Q5_0, Q4_K_M, Q4_K_S,\n"
               "IQ4_NL, IQ4_XS, Q4_1, Q4_0, Q3_K_L, Q3_K_M, Q3_K_S, IQ3_M, IQ3_S, Q2_K, TQ2_0,\n"
               "TQ1_0, MXFP4, MXFP4_MOE or, with --imatrix, IQ3_XS, IQ3_XXS, Q2_K_S, IQ2_M,\n"
               "IQ2_S, IQ2_XS, IQ2_XXS, IQ1_M, IQ1_S: names and mixes are those of\n"
               "llama-quantize, so some matrices get more bits than the name says; --pure\n"
               "disables the mix. TQ1_0 and TQ2_0 are for models of ternary weights; MXFP4_MOE\n"
               "gives the experts that type, and Q8_0 the rest. IN has any supported type, best\n"
               "F32, F16 or BF16: a second rounding adds to the loss of the first, with a\n"
               "warning. Vectors are copied. A matrix whose rows do not fit the blocks gets a\n"
               "type that fits, with a warning. OUT appears when it is complete.\n",
    .example = "hearth quantize model-f16.gguf model-q4_k_m.gguf q4_k_m",
    .groups = {options, output_options},
    .models = 1,
    .run = run_quantize,
};
