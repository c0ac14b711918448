/* hearth pack: writes a file whose neurons can be read one by one. */
#include "base/format_bytes.h"
#include "cli/commands.h"
#include "common/input.h"
#include "common/options/model_args.h"
#include "common/output.h"
#include "common/output_file.h"
#include "convert/pack.h"

static const option_spec options[] = {
    OPT_FILE("output", 'o', "FILE", "the packed file; appears when it is complete"),
    OPT_TEXT("type", 0, "TYPE", "of matrices, as for quantize; default: as they are"),
    OPT_FLAG("pure", 0, "all matrices in that one type, without a mix"),
    OPT_FILE("profile", 0, "P", "file of hearth profile: orders the neurons"),
    OPT_FILE("predictors", 0, "Q", "file of hearth predictors to include"),
    OPT_FILE("thresholds", 0, "T", "file of hearth thresholds to include"),
    OPT_FLAG("for-storage", 0, "in pages, with checksums, for --ram; mixtures too"),
    OPT_UINT("threads", 't', "N", 1, 256, "threads; default: one for each core", .flags = OPTION_AUTO),
    ALLOW_UNUSED_OPTION,
    {0},
};

static void print_result(const char *out, const hth_pack_result *r)
{
    printf("%s: %u layers, %s became %s", printable(out), r->n_layer, hth_format_bytes(r->in_bytes).text,
           hth_format_bytes(r->out_bytes).text);
    if (r->selector) printf("; made for selector %s", r->selector);
    printf("\n");
    if (r->down_rms_error > 0.0)
        printf("down, rounded along its other axis: off by %.2f %% of its weights (rms)\n",
               100 * r->down_rms_error);
    if (r->mean_run_before > 0.0)
        printf("neurons that fire together: runs of %.2f on average, %.2f before\n", r->mean_run_after,
               r->mean_run_before);
    if (r->n_swapped)
        printf("up fires less often than the gate in %u layers: they changed places, as dReLU allows\n",
               r->n_swapped);
    if (r->requantised)
        print_warning("the source is quantised already, so %s rounded twice: pack an F16 or F32 file where there is one "
                      "(--type); hearth compare says what it cost",
                      r->retyped ? "its matrices were" : "down was");
}

static int run_pack(const args *a)
{
    progress p;
    hearth_error err;
    hth_pack_result r;
    hth_pack_options o = {.pure = args_has(a, "pure"),
                          .allow_unused = args_has(a, "allow-unused"),
                          .for_storage = args_has(a, "for-storage"),
                          .profile = args_text(a, "profile", NULL),
                          .predictors = args_text(a, "predictors", NULL),
                          .thresholds = args_text(a, "thresholds", NULL),
                          .n_thread = (uint32_t)args_uint(a, "threads", 0),
                          .progress = progress_show,
                          .progress_user = &p,
                          .cancel = interrupt_flag()};
    const char *in = args_operand(a, 0), *out = args_text(a, "output", NULL),
               *type = args_text(a, "type", NULL);
    if (!out) return usage_error("pack needs -o FILE");
    if (type && !(o.ftype = hth_ftype_find(type)))
        return usage_error("pack --type '%s': expected one of %s", type, hth_ftype_list());
    const input inputs[] = {{in, "the model"},
                            {o.profile, "the profile"},
                            {o.predictors, "the predictors"},
                            {o.thresholds, "the thresholds"}};
    int wrong = check_output(a, out, OUTPUT_MODEL, inputs, 4);
    if (wrong) return wrong;
    install_signal_handlers();
    progress_init(&p, "packing", "MiB", 0x1p20);
    hearth_status st = hth_pack(in, out, &o, &r, &err);
    progress_end(&p);
    if (st != HEARTH_OK) return report(&err);
    print_result(out, &r);
    return finish_stdout();
}

const command command_pack = {
    .name = "pack",
    .operands = "MODEL",
    .summary = "write a model whose inactive neurons need not be read",
    .details = "Down is transposed, so that a neuron's part is contiguous; with a profile hot\n"
               "neurons come first and those that fire together are adjacent. All selectors run\n"
               "on the packed file, gate with the bits of dense. Its results differ from those\n"
               "of MODEL: down is quantised along its other axis. Mixtures of experts are\n"
               "refused, but for --for-storage, which without --type leaves their weights as\n"
               "they are.\n",
    .example = "hearth pack model-f16.gguf --type q4_0 --profile p.gguf -o packed.gguf",
    .groups = {options, output_options},
    .models = 1,
    .run = run_pack,
};
