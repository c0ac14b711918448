/* Declarations of the commands, one file each. */
#ifndef HEARTH_APPS_CLI_COMMANDS_H
#define HEARTH_APPS_CLI_COMMANDS_H

#include "common/options/options.h"

extern const command command_run_model, command_chat, command_tokenize, command_detokenize, command_inspect,
    command_logits, command_perplexity, command_compare, command_profile, command_imatrix,
    command_quantize, command_predictors, command_thresholds, command_pack, command_study, command_synth, command_bench,
    command_doctor, command_devices, command_plan, command_pull, command_list, command_rm, command_cp, command_ps, command_stop,
    command_serve; /* command_serve is defined in apps/serve */

#endif
