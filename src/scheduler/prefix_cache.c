/* A sorted array: few sequences are kept, and comparing them takes microseconds beside a step. */
#include "scheduler/prefix_cache.h"

#include "base/alloc.h"
#include "base/status.h"
#include "engine/session_int.h"

#include <string.h>

typedef struct hth_prefix_cache_entry entry;

hearth_status hth_prefix_cache_open(hth_prefix_cache *k, uint32_t n_max, hearth_error *err)
{
    *k = (hth_prefix_cache){.n_max = n_max};
    if (n_max == 0) return HEARTH_OK;
    k->entries = hth_alloc(n_max, sizeof *k->entries);
    return k->entries ? HEARTH_OK : hth_fail_memory(err, n_max * sizeof *k->entries, "kept sequences");
}

static void remove_at(hth_prefix_cache *k, uint32_t i)
{
    hearth_session_close(k->entries[i].session);
    memmove(k->entries + i, k->entries + i + 1, (--k->n - i) * sizeof *k->entries);
}

void hth_prefix_cache_close(hth_prefix_cache *k)
{
    while (k->n > 0) remove_at(k, k->n - 1);
    hth_free(k->entries);
    *k = (hth_prefix_cache){0};
}

static size_t common_of(const hearth_session *session, const int32_t *tokens, size_t n)
{
    size_t i = 0, n_both = hearth_session_position(session);
    if (n < n_both) n_both = n;
    for (const int32_t *own = hearth_session_tokens(session); i < n_both && own[i] == tokens[i];) i++;
    return i;
}

static size_t common(const entry *e, const int32_t *tokens, size_t n) { return common_of(e->session, tokens, n); }

uint32_t hth_prefix_cache_n_same(const hearth_session *session, const int32_t *tokens, size_t n)
{
    return hth_session_has_cache(session) ? hth_session_reachable(session, (uint32_t)common_of(session, tokens, n)) : 0;
}

/* Whether the entry comes before such tokens. */
static bool is_before(const entry *e, uint64_t owner, const int32_t *tokens, size_t n)
{
    if (e->owner != owner) return e->owner < owner;
    size_t i = common(e, tokens, n);
    if (i == n) return false;
    return i == hearth_session_position(e->session) || hearth_session_tokens(e->session)[i] < tokens[i];
}

/* The index at which an entry with these tokens is inserted. */
static uint32_t place_of(const hth_prefix_cache *k, uint64_t owner, const int32_t *tokens, size_t n)
{
    uint32_t low = 0, high = k->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (is_before(&k->entries[middle], owner, tokens, n)) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool hth_prefix_cache_drop_oldest(hth_prefix_cache *k)
{
    uint32_t oldest = 0;
    if (k->n == 0) return false;
    for (uint32_t i = 1; i < k->n; i++)
        if (k->entries[i].used < k->entries[oldest].used) oldest = i;
    remove_at(k, oldest);
    return true;
}

void hth_prefix_cache_reverse_use(hth_prefix_cache *k)
{
    for (uint32_t i = 0; i < k->n; i++) k->entries[i].used = k->n_call - k->entries[i].used;
}

/* Removes an entry that the new one continues. Returns the file that is not needed any more once the new one is
 * saved. */
static uint64_t replace_at(hth_prefix_cache *k, uint32_t i, uint64_t older_file)
{
    const entry *e = &k->entries[i];
    uint64_t file = e->file ? e->file : e->older_file;
    remove_at(k, i);
    return file ? file : older_file;
}

void hth_prefix_cache_put(hth_prefix_cache *k, uint64_t owner, hearth_session *session)
{
    const int32_t *tokens = hearth_session_tokens(session);
    uint32_t n = hearth_session_position(session), at;
    uint64_t older_file = 0;
    if (n == 0 || k->n_max == 0 || !hth_session_has_cache(session)) {
        hearth_session_close(session);
        return;
    }
    at = place_of(k, owner, tokens, n);
    /* An equal one is behind that place, and one that this continues is before it. */
    if (at < k->n && k->entries[at].owner == owner && hearth_session_position(k->entries[at].session) == n &&
        common(&k->entries[at], tokens, n) == n)
        older_file = replace_at(k, at, older_file);
    while (at > 0 && k->entries[at - 1].owner == owner &&
           common(&k->entries[at - 1], tokens, n) == hearth_session_position(k->entries[at - 1].session))
        older_file = replace_at(k, --at, older_file);
    if (k->n == k->n_max) {
        (void)hth_prefix_cache_drop_oldest(k);
        at = place_of(k, owner, tokens, n);
    }
    memmove(k->entries + at + 1, k->entries + at, (k->n++ - at) * sizeof *k->entries);
    k->entries[at] =
        (entry){.owner = owner, .used = ++k->n_call, .session = session, .older_file = older_file};
    k->is_changed = true;
    hth_session_free_logits(session);
}

const hearth_session *hth_prefix_cache_find(hth_prefix_cache *k, uint64_t owner, const int32_t *tokens, size_t n,
                                    uint32_t *n_same)
{
    uint32_t at = place_of(k, owner, tokens, n), end = at + 1 < k->n ? at + 1 : k->n;
    entry *best = NULL;
    *n_same = 0;
    for (uint32_t i = at > 0 ? at - 1 : 0; i < end; i++) {
        entry *e = &k->entries[i];
        uint32_t same = hth_prefix_cache_n_same(e->session, tokens, n);
        if (e->owner == owner && same > *n_same) best = e, *n_same = same;
    }
    if (!best) return NULL;
    best->used = ++k->n_call;
    return best->session;
}
