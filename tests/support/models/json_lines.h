/* Just enough JSON to read test vectors: files with one object a line. Values
 * are pointers into the line; malformed input is the test's own fault. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_JSON_LINES_H
#define HEARTH_TESTS_SUPPORT_MODELS_JSON_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The next line of a text that is cut in place at its newlines; NULL at the end. */
char *json_next_line(char **rest);

/* Where the value of a top-level field begins, or NULL. */
const char *json_field(const char *line, const char *name);

/* The bytes of a string value, freed with free; a NUL follows. */
char *json_text_of(const char *value, size_t *n);
/* The same of a string that holds base64. */
char *json_base64(const char *value, size_t *n);
/* An array of integers, freed with free; *end (may be NULL) is behind it. */
int32_t *json_ints(const char *value, size_t *n, const char **end);

#endif
