/* Where a new file of any kind goes: buffered writes to PATH.hearth-part, which gets its name at the
 * end. Models, logits, pages and tables are written through it. */
#ifndef HTH_FILE_SINK_H
#define HTH_FILE_SINK_H

#include "base/status.h"

#include <stdint.h>

typedef struct hth_sink {
    char *path, *part_path; /* owned */
    const char *label;      /* path for messages */
    int fd;                 /* -1: not open */
    bool exists;            /* part_path is ours and on disk */
    unsigned char *buffer;
    size_t n;    /* bytes in it */
    uint64_t at; /* bytes handed over so far */
} hth_sink;

/* Refuses when path is there and not a regular file. Removes a stale PATH.hearth-part. */
hearth_status hth_sink_open(hth_sink *s, const char *path, hearth_error *err);
hearth_status hth_sink_write(hth_sink *s, const void *data, size_t size, hearth_error *err);
/* n zero bytes. */
hearth_status hth_sink_pad(hth_sink *s, uint64_t n, hearth_error *err);
/* Flush, sync, close, rename, sync of the folder. */
hearth_status hth_sink_finish(hth_sink *s, hearth_error *err);
/* Removes what is not finished; frees. */
void hth_sink_close(hth_sink *s);

/* Whether a file could be written there, before work is done for it: nothing stays behind. IO, MEMORY. */
hearth_status hth_sink_check(const char *path, hearth_error *err);

/* For tests: the n-th write from now on (from 1) fails with ENOSPC; 0 turns that off.
 * Syncs and renames count as writes. */
void hth_sink_fail_write_at(uint64_t n);

#endif
