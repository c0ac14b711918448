/* hearth run --check: after a run, compares its first tokens with a dense run of the same model. */
#ifndef HEARTH_APPS_CLI_RUN_RUN_VERIFY_H
#define HEARTH_APPS_CLI_RUN_RUN_VERIFY_H

#include "common/options/options.h"

#include <hearth/hearth.h>

enum { RUN_CHECK_MAX = 512 };

/* path: the model's file, read again if the model is on a device; NULL: the embedded one. Prints one line on
 * stderr, and a warning if the mode often predicts another token. The contents of the session are lost. Returns
 * the exit status. */
int run_check(const args *a, const char *path, const hearth_model *model, hearth_session *session,
              const int32_t *ids, size_t n);

#endif
