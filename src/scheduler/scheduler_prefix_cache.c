/* Saves and restores the prefix cache between runs of a program, and reports the scheduler's statistics. */
#include "base/fp_state.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/struct_size.h"
#include "scheduler/prefix_cache_files.h"
#include "scheduler/requests.h"

/* ---- between runs of the program ------------------------------------------------------------------ */

hearth_status hearth_scheduler_save(hearth_scheduler *s, const char *folder, uint64_t max_size,
                                    hearth_progress_fn *progress, void *user, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !folder) return hth_fail_null(err, s ? "folder" : "scheduler");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "scheduler");
    return hth_prefix_cache_save(&s->prefix_cache, folder, max_size, progress, user, err);
}

bool hearth_scheduler_has_unsaved(const hearth_scheduler *s) { return s && s->prefix_cache.is_changed; }

static hearth_status restore_one(hearth_scheduler *s, const hth_prefix_cache_file *file)
{
    hearth_session *session = NULL;
    hearth_error why;
    const hearth_session_options o = hth_scheduler_session_options(s);
    hearth_status st = hth_session_open_in(s->model, &o, &s->pages, &session, &why);
    if (st == HEARTH_OK) st = hearth_session_restore(session, file->path, &why);
    if (st == HEARTH_OK) {
        hth_prefix_cache_put(&s->prefix_cache, file->owner, session);
        return HEARTH_OK;
    }
    hearth_session_close(session);
    if (st != HEARTH_ERROR_MEMORY) hth_log(HEARTH_LOG_WARN, "not used: %s", why.message);
    return st;
}

/* The files that were written last are restored first, and are the most recently used afterwards. */
hearth_status hearth_scheduler_restore(hearth_scheduler *s, const char *folder, hearth_error *err)
{
    HTH_FP_SCOPE;
    hth_prefix_cache_file *files;
    size_t n, n_tried = 0;
    if (!s || !folder) return hth_fail_null(err, s ? "folder" : "scheduler");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "scheduler");
    hearth_status st = hth_prefix_cache_list_files(folder, &files, &n, err);
    if (st != HEARTH_OK) return st;
    while (n_tried < n && s->prefix_cache.n < s->options.n_kept &&
           (files[n_tried].is_part || restore_one(s, &files[n_tried]) != HEARTH_ERROR_MEMORY))
        n_tried++;
    hth_prefix_cache_reverse_use(&s->prefix_cache);
    hth_prefix_cache_note_files(&s->prefix_cache);
    hth_prefix_cache_free_files(files, n);
    return HEARTH_OK;
}

hearth_status hearth_scheduler_get_stats(const hearth_scheduler *s, hearth_scheduler_stats *out)
{
    if (!s || !hth_engine_can_write_result(&hth_size_of_hearth_scheduler_stats, out))
        return HEARTH_ERROR_ARGUMENT;
    hearth_scheduler_stats stats = s->stats;
    stats.n_waiting = hth_request_count(s->waiting), stats.n_running = hth_request_count(s->running), stats.n_kept = s->prefix_cache.n;
    if (s->drafter) stats.draft = s->drafter->stats;
    stats.n_page = s->pages.n_page[HTH_KV_FULL], stats.n_page_used = s->pages.n_used[HTH_KV_FULL];
    hth_engine_write_result(&hth_size_of_hearth_scheduler_stats, &stats, out);
    return HEARTH_OK;
}

void hearth_scheduler_enable_sparsity_stats(hearth_scheduler *s, bool on)
{
    if (s) hth_batch_count_active(s->batch, on);
}

uint64_t hearth_scheduler_sparsity_stats(const hearth_scheduler *s, double *share)
{
    HTH_FP_SCOPE;
    return s ? hth_batch_active_shares(s->batch, share) : 0;
}

static hearth_request_progress progress_of(const hth_request *r, uint32_t n_before)
{
    uint32_t n_prompt = (uint32_t)r->n_prompt, n = r->session ? hearth_session_position(r->session) : 0;
    return (hearth_request_progress){.is_running = r->session != NULL,
                                     .n_before = r->session ? 0 : n_before,
                                     .n_prompt = n_prompt,
                                     .n_cached = r->n_cached,
                                     .n_generated = (uint32_t)r->n_token - n_prompt,
                                     .n_evaluated = n < n_prompt ? n : n_prompt};
}

bool hearth_scheduler_get_progress(const hearth_scheduler *s, uint64_t id, hearth_request_progress *out)
{
    if (!s || !hth_engine_can_write_result(&hth_size_of_hearth_request_progress, out)) return false;
    const hth_request *const lists[] = {s->waiting, s->running};
    for (int i = 0; i < 2; i++) {
        uint32_t n_before = 0;
        for (const hth_request *r = lists[i]; r; r = r->next, n_before++) {
            if (r->id != id) continue;
            const hearth_request_progress all = progress_of(r, n_before);
            hth_engine_write_result(&hth_size_of_hearth_request_progress, &all, out);
            return true;
        }
    }
    return false;
}
