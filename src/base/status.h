/* Errors as values: one line, written where the failure occurs and returned unchanged. */
#ifndef HTH_BASE_STATUS_H
#define HTH_BASE_STATUS_H

#include <hearth/hearth.h>
#include <stdarg.h>
#include <stddef.h>

/* Writes one line to err (which may be NULL) and returns status, so that a failure reads `return hth_fail(err,
 * HEARTH_ERROR_FORMAT, "...", ...)`. Every control byte of the formatted line appears as \xNN. */
hearth_status hth_fail(hearth_error *err, hearth_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a parameter or field that is NULL, and must not be: ARGUMENT. */
hearth_status hth_fail_null(hearth_error *err, const char *name);

/* The same for an enumerator that does not exist, of 0 to n - 1. */
hearth_status hth_fail_enum(hearth_error *err, const char *name, int value, int n);

/* Checks the status that a caller's function returned, and the *err that it wrote, which was zero before. Returns the
 * status, or ARGUMENT for one that does not exist; an empty message becomes one that names the function. */
hearth_status hth_returned(hearth_status status, const char *function, hearth_error *err);

/* The same for a failed allocation of size bytes. */
hearth_status hth_fail_memory(hearth_error *err, size_t size, const char *what);

/* The same for an evaluation that ends because it was cancelled: its results are undefined. */
hearth_status hth_fail_cancelled(hearth_error *err);

/* Copies n bytes of external text to out (capacity n_out, NUL-terminated), with control bytes and bytes above 0x7E
 * as \xNN. Text that is too long is cut, with "...". Returns out. */
char *hth_escape(char *out, size_t n_out, const char *text, size_t n);

#endif
