/* Sessions that are kept in files by run and chat (hearth_session_save), and what of them a prompt takes over. */
#ifndef HEARTH_APPS_COMMON_SAVED_SESSION_H
#define HEARTH_APPS_COMMON_SAVED_SESSION_H

#include <hearth/hearth.h>

/* Files of saved sessions begin so. */
#define SAVED_SESSION_MAGIC "HTHSESSN"

/* Truncates the session to the tokens that it shares with ids[n] and has in its cache. The caller evaluates those from
 * *n_kept on; if there are none, the logits after the last one are there. */
hearth_status keep_common_tokens(hearth_session *session, const int32_t *ids, size_t n, size_t *n_kept,
                                 hearth_error *err);

#endif
