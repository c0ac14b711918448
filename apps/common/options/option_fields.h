/* Values of options that are lists of named fields: --fire and --route. */
#ifndef HEARTH_APPS_COMMON_OPTION_FIELDS_H
#define HEARTH_APPS_COMMON_OPTION_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct option_fields {
    const char *const *names; /* [n], each with its '='; the last n_path are those of a path, of which one is given */
    size_t n, n_path;
    double *values; /* [n] */
    bool *given;    /* [n] */
    char *path;     /* [path_size] */
    size_t path_size;
} option_fields;

/* Parses "NAME=value,..." where values are numbers of at least 0. Absent fields are unchanged. False: something
 * else. */
bool parse_fields(const char *text, const option_fields *fields);

#endif
