/* The atomic file writer: buffered writes to PATH.hearth-part, which is renamed at the end. Models, logits, pages
 * and tables are written through it. */
#ifndef HTH_FILE_ATOMIC_WRITER_H
#define HTH_FILE_ATOMIC_WRITER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define HTH_ATOMIC_PART ".hearth-part" /* suffix of the name of a file that is being written */

enum { HTH_PATH_MAX = 4096 }; /* bytes of a path with its NUL, as on Linux */

typedef struct hth_atomic_writer {
    char *path, *part_path, *given; /* owned; given: the path before links were followed */
    const char *label;              /* part of given that error messages print */
    int fd;                         /* -1: not open */
    bool exists;                    /* part_path was created by us and is on disk */
    unsigned char *buffer;
    size_t n;    /* bytes in buffer */
    uint64_t at; /* bytes passed to the writer so far */
} hth_atomic_writer;

/* Reports an error if path exists and is not a writable regular file. The new file gets the permissions of the old
 * one. Removes a stale PATH.hearth-part. */
hearth_status hth_atomic_writer_open(hth_atomic_writer *s, const char *path, hearth_error *err);
/* Opens a file that its owner alone may read and write, whatever the old one allowed. */
hearth_status hth_atomic_writer_open_private(hth_atomic_writer *s, const char *path, hearth_error *err);
hearth_status hth_atomic_writer_write(hth_atomic_writer *s, const void *data, size_t size, hearth_error *err);
/* Writes n zero bytes. */
hearth_status hth_atomic_writer_pad(hth_atomic_writer *s, uint64_t n, hearth_error *err);
/* Flushes, syncs, closes and renames the file, then syncs the folder. */
hearth_status hth_atomic_writer_finish(hth_atomic_writer *s, hearth_error *err);
/* Removes an unfinished file. Frees all memory. */
void hth_atomic_writer_close(hth_atomic_writer *s);

/* Whether no program writes the file with this name, which ends in HTH_ATOMIC_PART: its writer was killed. */
bool hth_atomic_writer_is_abandoned(const char *part_path);

/* The path of the file that is written for this name: links are followed, and the file need not exist. False, with
 * errno, if its folder does not exist, links form a loop, the path is too long, or a link may not be followed: in a
 * sticky folder that all users may write, a link of another user (fs.protected_symlinks). */
bool hth_atomic_writer_target(const char *path, char target[HTH_PATH_MAX]);

/* Checks that a file can be written at path, before any work is done for it. Leaves nothing behind. IO, MEMORY. */
hearth_status hth_atomic_writer_check(const char *path, hearth_error *err);

/* Makes the n-th write from now on (counted from 1) fail with ENOSPC, for tests; 0 disables that. Syncs and renames
 * count as writes. */
void hth_atomic_writer_fail_write_at(uint64_t n);

#endif
