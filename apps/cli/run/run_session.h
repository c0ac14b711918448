/* --session and --save-session of hearth run. */
#ifndef HEARTH_APPS_CLI_RUN_RUN_SESSION_H
#define HEARTH_APPS_CLI_RUN_RUN_SESSION_H

#include "common/options/model_args.h"

#define SESSION_OPTIONS                                                                                      \
    OPT_FILE("session", 0, "FILE", "go on from a saved session: computes what is new"),                 \
        OPT_FILE("save-session", 0, "FILE", "write what was evaluated, at the end or at Ctrl-C")

/* Before any work: whether the file of --save-session can be written. 0, or the exit status after an error was
 * reported. */
int run_session_check(const args *a);
/* Restores the session of --session, and prepares to write that of --save-session, if they are given. False: an error
 * was reported. */
bool run_session_open(const args *a, hearth_session *session);
/* Writes the file of --save-session, if it is given and tokens were evaluated. False: an error was reported. */
bool run_session_save(const args *a, const hearth_model *model, const hearth_session *session);

#endif
