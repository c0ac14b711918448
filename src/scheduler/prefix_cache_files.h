/* Kept sequences in a folder, so that they are found again after a restart: one file each (engine/session_file.c), with
 * the owner and a hash of the model, its options and the tokens in its name. Other files of the folder are left alone. */
#ifndef HTH_SCHEDULER_PREFIX_CACHE_FILES_H
#define HTH_SCHEDULER_PREFIX_CACHE_FILES_H

#include "scheduler/prefix_cache.h"

/* Writes the sequences that the folder does not have yet, and deletes those that they continue, and those that were
 * written first while all are larger than max_size. progress: of the bytes of each file; NULL: none. IO, MEMORY,
 * CANCELLED: some may have been written, each of them whole. */
hearth_status hth_prefix_cache_save(hth_prefix_cache *cache, const char *folder, uint64_t max_size,
                            hearth_progress_fn *progress, void *user, hearth_error *err);

/* All sequences were read from a folder's files. */
void hth_prefix_cache_note_files(hth_prefix_cache *cache);

/* The paths of a folder's sequences, those that were written last first. The caller frees them with
 * hth_prefix_cache_free_files. Deletes files that are not complete and whose program was killed. */
typedef struct hth_prefix_cache_file {
    uint64_t owner, time, size;
    char *path;
    bool is_part; /* another program writes it now */
} hth_prefix_cache_file;
hearth_status hth_prefix_cache_list_files(const char *folder, hth_prefix_cache_file **files, size_t *n, hearth_error *err);
void hth_prefix_cache_free_files(hth_prefix_cache_file *files, size_t n);

#endif
