/* Evaluates prompts and shows progress. */
#ifndef HEARTH_APPS_COMMON_EVALUATE_H
#define HEARTH_APPS_COMMON_EVALUATE_H

#include <hearth/hearth.h>

/* Evaluates ids[n] in chunks of at most a step of the session, small enough to show progress about once a second. The
 * bits do not depend on the chunk size. *n_done: number evaluated: all, or fewer after an error; the error is CANCELLED
 * after Ctrl-C. `what` names the work in progress. */
hearth_status evaluate_shown(hearth_session *session, const char *what, const int32_t *ids, size_t n, size_t *n_done,
                             hearth_error *err);

#endif
