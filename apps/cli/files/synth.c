/* hearth synth: writes a model of real shape with random weights, for measurements. */
#include "base/format_bytes.h"
#include "cli/commands.h"
#include "common/input.h"
#include "common/output.h"
#include "common/output_file.h"
#include "convert/synth.h"

static const option_spec options[] = {
    OPT_TEXT("type", 0, "TYPE", "of the matrices: quantize's or NVFP4; default q4_0"),
    OPT_UINT("layers", 0, "N", 1, 1024, "the first N layers alone; default: all"),
    OPT_FLAG("pure", 0, "all matrices in that one type, without a mix"),
    OPT_CHOICE("ffn", 0, "ACT", "swiglu|geglu|reglu|drelu|relu2",
               "activation of the neurons; default: the shape's"),
    OPT_FLAG("packed", 0, "transposed down, as hearth pack writes it"),
    OPT_FLAG("mtp", 0, "a block for drafts: qwen35, qwen35moe, deepseek2"),
    OPT_UINT("rank", 0, "R", 0, 65536, "of predictors, a multiple of 32; default: none"),
    OPT_UINT("seed", 0, "N", 0, UINT32_MAX, "of the weights; default 1"),
    OPT_UINT("threads", 't', "N", 1, 256, "threads; default: one for each core", .flags = OPTION_AUTO),
    {0},
};

static int run_synth(const args *a)
{
    progress p;
    hearth_error err;
    uint64_t size;
    const char *type = args_text(a, "type", "q4_0");
    hth_synth_options o = {.shape = args_operand(a, 0),
                           .n_layer = (uint32_t)args_uint(a, "layers", 0),
                           .ftype = hth_ftype_find(type),
                           .pure = args_has(a, "pure"),
                           .packed = args_has(a, "packed"),
                           .mtp = args_has(a, "mtp"),
                           .rank = (uint32_t)args_uint(a, "rank", 0),
                           .activation = args_text(a, "ffn", NULL),
                           .seed = args_uint(a, "seed", 1),
                           .n_thread = (uint32_t)args_uint(a, "threads", 0),
                           .progress = progress_show,
                           .progress_user = &p};
    if (!o.ftype) return usage_error("type '%s': expected one of %s, NVFP4", type, hth_ftype_list());
    int wrong = check_output(a, args_operand(a, 1), OUTPUT_SYNTHETIC, NULL, 0);
    if (wrong) return wrong;
    install_signal_handlers();
    progress_init(&p, "writing", "MiB", 0x1p20);
    hearth_status st = hth_synth(args_operand(a, 1), &o, &size, &err);
    progress_end(&p);
    if (st == HEARTH_ERROR_ARGUMENT) return usage_error("%s", err.message);
    if (st != HEARTH_OK) return report(&err);
    printf("%s: synthetic %s, %s of random weights\n", printable(args_operand(a, 1)), o.shape,
           hth_format_bytes(size).text);
    return 0;
}

const command command_synth = {
    .name = "synth",
    .operands = "SHAPE OUT",
    .summary = "write a model of a known shape with random weights, to measure",
    .details = "SHAPE is llama-1b, llama-7b, mistral-7b, llama3-8b, llama-13b, qwen3-4b,\n"
               "shape-32b, llama-70b, stories-15m, gemma4-12b or qwen35-9b, or a mixture of\n"
               "experts (no --packed, no --rank): mixtral-8x7b, qwen3-30b-a3b, qwen35-35b-a3b,\n"
               "gemma4-26b-a4b, smallthinker-4b, smallthinker-21b, gpt-oss-20b or\n"
               "deepseek-v2-lite. With --layers its first layers, and the matrices around them.\n"
               "The text of such a model is noise; every figure measured with one is labelled\n"
               "synthetic. The same seed gives the same bytes.\n",
    .example = "hearth synth llama-7b 7b.gguf --type q4_k_m",
    .groups = {options, output_options},
    .run = run_synth,
};
