/* The verbs, one file each. */
#ifndef HEARTH_APPS_CLI_VERBS_H
#define HEARTH_APPS_CLI_VERBS_H

#include "common/options.h"

extern const verb verb_run_model, verb_chat, verb_tokenize, verb_detokenize, verb_inspect, verb_logits,
    verb_perplexity, verb_compare, verb_profile, verb_quantize, verb_predictors, verb_thresholds, verb_pack,
    verb_study, verb_synth, verb_bench, verb_doctor, verb_devices, verb_plan, verb_pull, verb_list, verb_rm;

#endif
