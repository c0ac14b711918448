/* hearth profile of a mixture of experts. profile.c calls it. */
#ifndef HEARTH_APPS_CLI_PROFILE_EXPERTS_H
#define HEARTH_APPS_CLI_PROFILE_EXPERTS_H

#include "common/options/model_args.h"

/* Records the experts that text[n] uses, and prints figures of them. Returns the exit status. */
int profile_experts(const args *a, const hearth_model *model, hearth_session *session, const char *text, size_t n,
                    const char *settings);

#endif
