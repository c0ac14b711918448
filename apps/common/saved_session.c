/* Compares the tokens of a session with those of a prompt. */
#include "common/saved_session.h"

hearth_status keep_common_tokens(hearth_session *session, const int32_t *ids, size_t n, size_t *n_kept,
                                 hearth_error *err)
{
    const int32_t *had = hearth_session_tokens(session);
    uint32_t n_had = hearth_session_position(session), same = 0;
    while (same < n_had && same < n && had[same] == ids[same]) same++;
    bool complete = same == n_had && hearth_session_n_cached(session) == n_had && hearth_session_logits(session);
    if (same == n && same > 0 && !complete) same--; /* the last one is evaluated for its logits */
    hearth_status st = hearth_session_truncate(session, same, err);
    /* Tokens without a cache would be computed again with the next ones, but without progress and as if reused. */
    uint32_t n_cached = hearth_session_n_cached(session);
    if (st == HEARTH_OK && n_cached < same) st = hearth_session_truncate(session, same = n_cached, err);
    *n_kept = same;
    return st;
}
