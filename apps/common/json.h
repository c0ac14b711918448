/* JSON writer: it tracks commas and indentation, escapes text, and replaces bytes that are not UTF-8 by U+FFFD. */
#ifndef HEARTH_APPS_COMMON_JSON_H
#define HEARTH_APPS_COMMON_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *out;
    unsigned depth;
    bool started[32]; /* a value was written at this depth */
    bool compact[32]; /* values of this depth are on one line */
    bool failed;      /* set by a caller who had no memory for a value: the document is not whole */
} json;

/* Begins a document, which is an object. json_end closes it and ends the line. */
json json_begin(FILE *out);
void json_end(json *j);
/* key is NULL inside arrays and at the top level. */
void json_open(json *j, const char *key, char bracket); /* '{' or '[' */
void json_open_compact(json *j, const char *key, char bracket);
void json_close(json *j, char bracket); /* '}' or ']' */
void json_text(json *j, const char *key, const char *text, size_t n);
void json_word(json *j, const char *key, const char *text); /* a terminated text */
void json_uint(json *j, const char *key, uint64_t value);
void json_int(json *j, const char *key, int64_t value);
/* digits: significant digits; values that are not finite become null. */
void json_float(json *j, const char *key, double value, int digits);
void json_bool(json *j, const char *key, bool value);
void json_put_null(json *j, const char *key);
void json_raw(json *j, const char *key, const char *text, size_t n); /* a value that is JSON already */
void json_hash(json *j, const char *key, uint64_t hash); /* as 16 hexadecimal digits */

#endif
