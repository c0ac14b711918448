/* Options of speculative decoding: --speculate, --draft. */
#ifndef HEARTH_APPS_COMMON_DRAFT_ARGS_H
#define HEARTH_APPS_COMMON_DRAFT_ARGS_H

#include "common/json.h"
#include "common/options/options.h"

#include <hearth/hearth.h>

#define DRAFT_OPTIONS                                                                                        \
    OPT_UINT("speculate", 0, "N|auto", 0, 15,                                                                \
             "evaluate N tokens that may follow with each token: same text, less time where the text "       \
             "repeats; 0: none; "                                                                            \
             "default auto: as many as are worth their time",                                                \
             .choices = "auto", .flags = OPTION_OPEN | OPTION_ADVANCED),                                     \
        OPT_FILE("draft", 0, "FILE|none",                                                                    \
                 "a small model of the same vocabulary that guesses them too; none: the "                    \
                 "model's own MTP block is not used either",                                                 \
                 .choices = "none", .flags = OPTION_MODEL | OPTION_ADVANCED)

/* Whether the options contradict each other: 0, or the exit status after an error was reported. */
int drafts_check(const args *a);
/* Reads the options of drafts and opens the model of --draft, if one is given. *model: that model, which the caller
 * closes, or NULL. False: an error was reported. */
bool drafts_open(const args *a, hearth_draft_options *options, hearth_model **model);
/* The same; the error is the caller's. */
hearth_status drafts_try_open(const args *a, hearth_draft_options *options, hearth_model **model,
                              hearth_error *err);
/* A session with the options; sampler: that of its text. False: an error was reported. */
bool drafts_use(hearth_session *session, const hearth_draft_options *options, const hearth_sampler *sampler);
/* Prints the counts of drafted and accepted tokens for --stats, after a text; nothing if no token was drafted. */
void drafts_print(const hearth_session *session);
void drafts_print_json(json *j, const hearth_session *session);

#endif
