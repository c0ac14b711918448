/* Where a new file of any kind goes: buffered writes to PATH.hearth-part, which gets its name at the
 * end. Models, logits, pages and tables are written through it. */
#ifndef HTH_FILE_SINK_H
#define HTH_FILE_SINK_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { HTH_PATH_MAX = 4096 }; /* bytes of a path with its end, as Linux has them */

typedef struct hth_atomic_writer {
    char *path, *part_path, *given; /* owned; given: the path before links were followed */
    const char *label;              /* of given, for messages */
    int fd;                         /* -1: not open */
    bool exists;                    /* part_path is ours and on disk */
    unsigned char *buffer;
    size_t n;    /* bytes in it */
    uint64_t at; /* bytes handed over so far */
} hth_atomic_writer;

/* Refuses when path is there and not a regular file that may be written; the new file gets its permissions. Removes a
 * stale PATH.hearth-part. */
hearth_status hth_atomic_writer_open(hth_atomic_writer *s, const char *path, hearth_error *err);
hearth_status hth_atomic_writer_write(hth_atomic_writer *s, const void *data, size_t size, hearth_error *err);
/* n zero bytes. */
hearth_status hth_atomic_writer_pad(hth_atomic_writer *s, uint64_t n, hearth_error *err);
/* Flush, sync, close, rename, sync of the folder. */
hearth_status hth_atomic_writer_finish(hth_atomic_writer *s, hearth_error *err);
/* Removes what is not finished; frees. */
void hth_atomic_writer_close(hth_atomic_writer *s);

/* The path of the file that is written under this name: links are followed, and the file need not exist. False, with
 * errno, where its folder does not exist, links form a loop, or the path is too long. */
bool hth_atomic_writer_target(const char *path, char target[HTH_PATH_MAX]);

/* Whether a file could be written there, before work is done for it: nothing stays behind. IO, MEMORY. */
hearth_status hth_atomic_writer_check(const char *path, hearth_error *err);

/* For tests: the n-th write from now on (from 1) fails with ENOSPC; 0 turns that off.
 * Syncs and renames count as writes. */
void hth_atomic_writer_fail_write_at(uint64_t n);

#endif
