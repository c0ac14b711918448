/* Error messages for a failed read of a model's file: while weights are loaded (gguf_source.c), and when single weights
 * are read on demand (store/reader.c). */
#ifndef HTH_FILE_READ_FAILURE_H
#define HTH_FILE_READ_FAILURE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Attempts after the first one, and the nanoseconds before each. */
enum { HTH_READ_MAX_RETRY = 3 };
extern const uint64_t hth_read_retry_ns[HTH_READ_MAX_RETRY];

/* False: the device or the file is gone; a further attempt fails too. error: errno. */
bool hth_read_may_recover(int error);

/* A line about a read at byte `at`, as an IO error. error: errno; 0: the file, which had file_size bytes when it was
 * opened, ends there or before. */
hearth_status hth_fail_read(hearth_error *err, const char *path, uint64_t at, uint64_t file_size, int error);

#endif
