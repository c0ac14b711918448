/* Messages of the library name fields of its options; those of the program name its own. */
#ifndef HEARTH_APPS_COMMON_FIELD_NAMES_H
#define HEARTH_APPS_COMMON_FIELD_NAMES_H

#include <stddef.h>

/* Copies a message to out[size], with a NUL, and options in place of fields. Returns out. */
char *name_options(char *out, size_t size, const char *message);

/* with_options returns the same text by value, for arguments of printf. */
typedef struct option_text {
    char text[800];
} option_text;
option_text with_options(const char *message);

#endif
