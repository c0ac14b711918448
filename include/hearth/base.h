/* Versions, errors, the log. Included by all others. */
#ifndef HEARTH_BASE_H
#define HEARTH_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEARTH_VERSION_MAJOR 0
#define HEARTH_VERSION_MINOR 1
#define HEARTH_VERSION_PATCH 0

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

typedef enum hearth_status {
    HEARTH_OK = 0,
    HEARTH_ERROR_MEMORY,      /* an allocation failed */
    HEARTH_ERROR_IO,          /* a file operation failed */
    HEARTH_ERROR_FORMAT,      /* a file, or a text that is given, violates its format */
    HEARTH_ERROR_UNSUPPORTED, /* well formed, but not supported by this version */
    HEARTH_ERROR_ARGUMENT,    /* a parameter is out of range */
    HEARTH_ERROR_CONTEXT,     /* the context is full */
    HEARTH_ERROR_NUMERIC,     /* a value is not finite */
    HEARTH_ERROR_CANCELLED,   /* the caller cancelled */
    HEARTH_ERROR_DEVICE,      /* a GPU was lost, did not respond, or its driver failed */
} hearth_status;

/* One line about a failure: file, field, offset, found, expected, remedy. Control bytes of external text appear as
 * \xNN. Always terminated. */
typedef struct hearth_error {
    hearth_status status;
    char message[600];
    uint32_t reserved[9];
} hearth_error;

/* Returns a short English name of a status ("out of memory"), or "unknown status".
 * Errors: none.
 * Ownership: the text is the library's, and stays.
 * Threads: any. */
HEARTH_API const char *hearth_status_name(hearth_status status);

/* Returns the version of the library that runs: "0.1.0".
 * Errors: none.
 * Ownership: the text is the library's, and stays.
 * Threads: any. */
HEARTH_API const char *hearth_version(void);

/* ---- log --------------------------------------------------------------- */

typedef enum hearth_log_level { HEARTH_LOG_WARN = 1, HEARTH_LOG_INFO = 2 } hearth_log_level;
typedef void hearth_log_fn(void *user, hearth_log_level level, const char *line);

/* Gives warnings and notes to fn: of the whole process, one line each, without a newline. NULL, the default, discards
 * them.
 * Errors: none.
 * Ownership: user is passed to fn as it is; both must stay valid while they are set. line is valid during the call.
 * Threads: one, before others use the library. fn is called on any thread that the library uses, perhaps on several at
 * once; it must not call the library. */
HEARTH_API void hearth_log_set(hearth_log_fn *fn, void *user);

/* Frees what a function gave of which its comment says so (hearth_tokenize, hearth_chat_render). It is not free().
 * Errors: none.
 * Ownership: gives up memory.
 * Threads: any. */
HEARTH_API void hearth_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
