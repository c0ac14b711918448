/* A model's text on a terminal: wrapped at spaces to the width that the terminal has at
 * the timestamp, wide characters counted as such, terminal escapes made visible. */
#ifndef HEARTH_APPS_COMMON_WRAP_H
#define HEARTH_APPS_COMMON_WRAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct wrap {
    bool on;         /* false: bytes pass as they are, but for escapes */
    unsigned column; /* where the next character goes, */
    unsigned breaks; /* behind so many text_breaks */
    unsigned spaces; /* seen and not written: they go when the line ends here */
    char word[512];  /* begun and not written: its end decides on which line it is */
    size_t n;
    unsigned width; /* of the word, in columns */
} wrap;

/* Wraps where stdout is a terminal. */
void wrap_init(wrap *w);
/* n bytes that cut no character. False when stdout is lost. */
bool wrap_write(wrap *w, const char *text, size_t n);
/* What is held back. */
bool wrap_end(wrap *w);

#endif
