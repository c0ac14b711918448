/* Sequences of earlier requests, by owner and tokens. A request that begins with the same tokens copies one, which shares
 * its pages. They are in the order of their tokens, so that the one with the longest common beginning is a neighbour. */
#ifndef HTH_SCHEDULER_PREFIX_CACHE_H
#define HTH_SCHEDULER_PREFIX_CACHE_H

#include <hearth/hearth.h>

typedef struct hth_prefix_cache {
    struct hth_prefix_cache_entry {
        uint64_t owner, used; /* used: when, in calls */
        hearth_session *session;
        /* Hashes in the names of files (prefix_cache_files.h), of its own and of those that it continues; 0: none. */
        uint64_t file, older_file;
    } * entries; /* [n] */
    uint32_t n, n_max;
    uint64_t n_call;
    bool is_changed; /* one was put since all were saved */
    /* hth_session_binding of all files, which is a part of their names; valid if has_binding. */
    uint64_t binding;
    bool has_binding;
} hth_prefix_cache;

/* MEMORY. */
hearth_status hth_prefix_cache_open(hth_prefix_cache *k, uint32_t n_max, hearth_error *err);
void hth_prefix_cache_close(hth_prefix_cache *k);
/* Keeps a session with its tokens, and closes those that it continues; with n_max it replaces the one that was not used
 * for the longest time. A session without tokens in its cache is closed. */
void hth_prefix_cache_put(hth_prefix_cache *k, uint64_t owner, hearth_session *session);
/* The session of the owner whose cache has the most of the first tokens, *n_same of them; NULL: none has any. */
const hearth_session *hth_prefix_cache_find(hth_prefix_cache *k, uint64_t owner, const int32_t *tokens, size_t n,
                                    uint32_t *n_same);
/* How many of the first tokens a session has in its cache, and can be cut to. */
uint32_t hth_prefix_cache_n_same(const hearth_session *session, const int32_t *tokens, size_t n);
/* From now on the sequences that were put last are those that were not used for the longest time. */
void hth_prefix_cache_reverse_use(hth_prefix_cache *k);
/* Closes the session that was not used for the longest time; false: there is none. */
bool hth_prefix_cache_drop_oldest(hth_prefix_cache *k);

#endif
