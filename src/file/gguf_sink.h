/* Where a new file goes: buffered writes to PATH.part, which gets its name at the end.
 * Under the GGUF writer; knows nothing of GGUF. */
#ifndef HTH_FILE_GGUF_SINK_H
#define HTH_FILE_GGUF_SINK_H

#include "base/status.h"

#include <stdint.h>

typedef struct hth_gguf_sink {
    char *path, *part_path; /* owned */
    const char *label;      /* path for messages */
    int fd;                 /* -1: not open */
    bool exists;            /* part_path is ours and on disk */
    unsigned char *buffer;
    size_t n;               /* bytes in it */
    uint64_t at;            /* bytes handed over so far */
} hth_gguf_sink;

/* Refuses when path is there and not a regular file. Removes a stale PATH.part. */
hearth_status hth_gguf_sink_open(hth_gguf_sink *s, const char *path, hearth_error *err);
hearth_status hth_gguf_sink_write(hth_gguf_sink *s, const void *data, size_t size,
                                  hearth_error *err);
/* n zero bytes. */
hearth_status hth_gguf_sink_pad(hth_gguf_sink *s, uint64_t n, hearth_error *err);
/* Flush, sync, close, rename, sync of the folder. */
hearth_status hth_gguf_sink_finish(hth_gguf_sink *s, hearth_error *err);
/* Removes what is not finished; frees. */
void hth_gguf_sink_close(hth_gguf_sink *s);

#endif
