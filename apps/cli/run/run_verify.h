/* hearth run --check: after a run, its first tokens once more beside a dense run of the same model. */
#ifndef HEARTH_APPS_CLI_RUN_CHECK_H
#define HEARTH_APPS_CLI_RUN_CHECK_H

#include "common/options.h"

#include <hearth/hearth.h>

enum { RUN_CHECK_MAX = 512 };

/* path: the model's file, read again where the model lies on a device; NULL: the one in the program.
 * One line on stderr, and a warning where the mode often names another token. What session holds is
 * lost. The exit status of the program. */
int run_check(const args *a, const char *path, const hearth_model *model, hearth_session *session,
              const int32_t *ids, size_t n);

#endif
