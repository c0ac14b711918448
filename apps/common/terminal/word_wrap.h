/* A model's text on a terminal: wrapped at spaces to the current width of the terminal, with wide characters
 * counted as such and terminal escapes made visible. */
#ifndef HEARTH_APPS_COMMON_WORD_WRAP_H
#define HEARTH_APPS_COMMON_WORD_WRAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct wrap {
    bool on; /* false: bytes are written unchanged, except for escapes */
    bool can_dim, is_dim;
    unsigned column; /* column of the next character, */
    unsigned breaks; /* valid for this value of text_breaks */
    unsigned spaces; /* pending spaces; dropped if the line ends here */
    char word[512];  /* pending word; its end decides on which line it is */
    size_t n;
    unsigned width; /* width of the word in columns */
} wrap;

/* Wraps if stdout is a terminal. */
void wrap_init(wrap *w);
/* Writes n bytes, which must not split a character. False: stdout failed. */
bool wrap_write(wrap *w, const char *text, size_t n);
/* Makes the following text dim or normal, on a terminal that has colours and unless NO_COLOR is set. False: stdout
 * failed. */
bool wrap_dim(wrap *w, bool dim);
/* The following text begins a new line. False: stdout failed. */
bool wrap_line(wrap *w);
/* Writes the pending text; the following text is not dim. */
bool wrap_end(wrap *w);

#endif
