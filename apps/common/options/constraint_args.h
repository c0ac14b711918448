/* Options that constrain what a model generates: --json-schema, --json-object, --grammar, --choice. */
#ifndef HEARTH_APPS_COMMON_CONSTRAINT_ARGS_H
#define HEARTH_APPS_COMMON_CONSTRAINT_ARGS_H

#include "common/options/options.h"

#include <hearth/hearth.h>

#define CONSTRAINT_OPTIONS                                                                                   \
    OPT_FILE("json-schema", 'j', "SCHEMA", "only JSON of this schema: a file, or its text"),                 \
        OPT_FLAG("json-object", 0, "only a JSON object, of any contents", ADVANCED),                         \
        OPT_FILE("grammar", 0, "GRAMMAR", "only texts of this GBNF grammar: a file, or its text", ADVANCED), \
        OPT_TEXT("choice", 0, "TEXT", "only one of these texts: give it once for each",                      \
                 .flags = OPTION_REPEATS | OPTION_ADVANCED)

/* Whether the options contradict each other: 0, or the exit status after an error was reported. */
int constraint_check(const args *a);
/* Opens the constraint that the options ask for; NULL if they ask for none. False: an error was reported. */
bool constraint_open(const args *a, const hearth_model *model, hearth_constraint **constraint);

#endif
