/* Prompts evaluated with progress. */
#ifndef HEARTH_APPS_COMMON_EVALUATE_H
#define HEARTH_APPS_COMMON_EVALUATE_H

#include "common/options.h"

#include <hearth/hearth.h>

/* Evaluates ids[n] in pieces of at most --batch, so small that progress is shown about once a second; the bits
 * do not depend on the cuts. *n_done of them count: all, or fewer after an error, which is CANCELLED after
 * Ctrl-C. `what` names the work in progress. */
hearth_status evaluate_shown(const args *a, hearth_session *session, const char *what, const int32_t *ids,
                             size_t n, size_t *n_done, hearth_error *err);

#endif
