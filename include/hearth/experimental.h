/* Declares what may still change, or go, within a minor version: counts and times for those who tune a placement.
 * hearth/hearth.h does not include it. */
#ifndef HEARTH_EXPERIMENTAL_H
#define HEARTH_EXPERIMENTAL_H

#include <hearth/scheduler.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts reads of weights that are not in memory, since the model was opened. */
typedef struct hearth_storage_stats {
    size_t size;                    /* set by the caller: Versions in hearth.h */
    uint64_t n_hit, n_miss;         /* experts or pieces that were in memory when a step asked for them, or were not */
    uint64_t n_guess, n_guess_used; /* read before they were asked for, and of those the ones that then were */
    uint64_t weight_bytes;          /* that were read */
    uint64_t n_read, read_bytes;    /* reads, and their bytes, which are rounded out to sectors */
    uint64_t n_repeated;            /* reads that were interrupted, short, failed or wrong, and were made again */
    uint64_t n_stall;               /* times that a step waited, and how long */
    double stall_seconds;
    double read_seconds;            /* while at least one read ran */
    uint64_t cache_bytes;           /* that weights may have in memory now: less while sessions or the system need more */
    uint64_t cache_bytes_max;       /* when the model was opened */
} hearth_storage_stats;

/* Fills in *stats, as far as stats->size goes. False, and zeros: all weights are in memory. False, and nothing is
 * written: stats->size is too small.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API bool hearth_model_get_storage(const hearth_model *model, hearth_storage_stats *stats);

/* The same for one layer; false, and zeros, also if there is no such layer. n_read, read_bytes, n_repeated,
 * read_seconds and the bytes of the cache are 0: they are counted for all layers together.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API bool hearth_model_get_layer_storage(const hearth_model *model, uint32_t i_layer,
                                               hearth_storage_stats *stats);

/* Counts experts of layers that are divided between devices and the CPU, since the model was opened. */
typedef struct hearth_expert_stats {
    size_t size;             /* set by the caller: Versions in hearth.h */
    uint64_t n_chosen;       /* experts that routers chose, for all tokens and such layers */
    uint64_t n_on_device;    /* of these, those that were on a device then */
    uint64_t n_upload;       /* experts that were moved to a device, and their bytes */
    uint64_t upload_bytes;
    uint64_t n_wait;         /* messages to the CPU, one for each such layer of a step, for which the device waited */
    uint64_t n_wait_empty;   /* of these, those where the CPU had nothing to compute */
} hearth_expert_stats;

/* Fills in *stats, as far as stats->size goes. False, and zeros: no such layer is on a device. False, and nothing is
 * written: stats->size is too small.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any; figures of a step that is running may be incomplete. */
HEARTH_API bool hearth_model_get_expert_stats(const hearth_model *model, hearth_expert_stats *stats);

/* Starts counting, from zero, how many neurons of each layer are not zero, for tokens that the session evaluates
 * itself (not in batches); on false: stops. Costs a pass over the hidden values. Nothing is counted on a device, nor
 * where weights are read when they are needed.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked; not while the session is evaluated. */
HEARTH_API void hearth_session_enable_sparsity_stats(hearth_session *session, bool on);

/* Returns the number of tokens counted since counting started, and gives the active neurons per token and layer, 0 to
 * 1, in share[n_layer] (NULL: they are not wanted).
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API uint64_t hearth_session_sparsity_stats(const hearth_session *session, double *share);

/* Starts counting, as hearth_session_enable_sparsity_stats does, for the tokens of all requests.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked; not within a request's function. */
HEARTH_API void hearth_scheduler_enable_sparsity_stats(hearth_scheduler *scheduler, bool on);

/* Returns what hearth_session_sparsity_stats does, for the tokens of all requests.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API uint64_t hearth_scheduler_sparsity_stats(const hearth_scheduler *scheduler, double *share);

#ifdef __cplusplus
}
#endif
#endif
