/* Hearth: run large language models on the machine at hand.
 *
 * The public interface of libhearth, and nothing that is not meant to stay.
 * A model is opened once and shared, immutable; a session is one line of
 * inference over it (its own KV cache, one thread at a time); a batch steps
 * several sessions at once; a sampler turns logits into a token.
 *
 * Every function that can fail returns a hearth_status and fills in an optional
 * hearth_error with one line for a person. The library never prints, exits or
 * aborts. The bits of a result depend on the file, the tokens and the options
 * that name an approximation (here: the KV type), and on nothing else. */
#ifndef HEARTH_HEARTH_H
#define HEARTH_HEARTH_H

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

/* ---- status and errors ------------------------------------------------- */

typedef enum hearth_status {
    HEARTH_OK = 0,
    HEARTH_ERROR_MEMORY,      /* an allocation failed */
    HEARTH_ERROR_IO,          /* the system refused a file operation */
    HEARTH_ERROR_FORMAT,      /* a file does not hold what its format asks for */
    HEARTH_ERROR_UNSUPPORTED, /* well formed, but not something this version runs */
    HEARTH_ERROR_ARGUMENT,    /* a parameter is out of its range */
    HEARTH_ERROR_CONTEXT,     /* the context is full */
    HEARTH_ERROR_NUMERIC,     /* a value that must be finite is not */
    HEARTH_ERROR_CANCELLED,   /* the caller asked to stop */
} hearth_status;

/* One line about a failure: file, field, offset, found, expected, remedy.
 * Control bytes that came from outside appear as \xNN. Always terminated. */
typedef struct hearth_error {
    hearth_status status;
    char message[600];
} hearth_error;

/* A short English name of a status ("out of memory"). Never NULL. */
HEARTH_API const char *hearth_status_name(hearth_status status);

/* "0.1.0" */
HEARTH_API const char *hearth_version(void);

/* ---- log --------------------------------------------------------------- */

typedef enum hearth_log_level { HEARTH_LOG_WARN = 1, HEARTH_LOG_INFO = 2 } hearth_log_level;
typedef void hearth_log_fn(void *user, hearth_log_level level, const char *line);

/* Warnings and notes go to fn (one line, no newline); NULL drops them, which is
 * the default. Process-wide; set it before other threads use the library. */
HEARTH_API void hearth_log_set(hearth_log_fn *fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
