/* Options that constrain what a model generates: --json-schema, --json-object, --grammar, --choice. */
#ifndef HEARTH_APPS_COMMON_CONSTRAINT_ARGS_H
#define HEARTH_APPS_COMMON_CONSTRAINT_ARGS_H

#include "common/options.h"

#include <hearth/hearth.h>

#define CONSTRAINT_OPTIONS                                                                                   \
    OPT_FILE("json-schema", 'j', "SCHEMA", "only JSON of this schema: a file, or its text"),                 \
        OPT_FLAG("json-object", 0, "only a JSON object, of any contents", ADVANCED),                         \
        OPT_FILE("grammar", 0, "GRAMMAR", "only texts of this GBNF grammar: a file, or its text", ADVANCED), \
        OPT_TEXT("choice", 0, "TEXT", "only one of these texts: give it once for each",                      \
                 .flags = OPTION_REPEATS | OPTION_ADVANCED)

/* A constraint and the logits that it masks. Zeros: there is none. */
typedef struct text_constraint {
    hearth_constraint *constraint;
    float *logits;
    size_t n_vocab;
} text_constraint;

/* Whether the options contradict each other: 0, or the exit status after an error was reported. */
int constraint_check(const args *a);
/* Opens the constraint that the options ask for, if they do. False: an error was reported. */
bool constraint_open(const args *a, const hearth_model *model, text_constraint *c);
void constraint_close(text_constraint *c);
/* As hearth_sampler_sample, of the tokens that the constraint allows, which goes on with the token. */
hearth_status constraint_sample(text_constraint *c, hearth_sampler *sampler, const float *logits, int32_t *id,
                                hearth_error *err);
/* Whether the text is complete and nothing can follow. */
bool constraint_is_complete(const text_constraint *c);

#endif
