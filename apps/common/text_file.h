/* Files of text that commands write by stdio: pages, tables, conversations. A file appears when it is complete
 * (file/atomic_writer.h). */
#ifndef HEARTH_APPS_COMMON_TEXT_FILE_H
#define HEARTH_APPS_COMMON_TEXT_FILE_H

#include "file/atomic_writer.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct text_file {
    FILE *out; /* NULL: it could not be opened */
    hth_atomic_writer sink;
    hearth_error err; /* the first failure */
} text_file;

/* Whether a file is empty or begins with this text; false too where it cannot be read. */
bool is_empty_or_begins(const char *path, const char *text);

/* False after a failure, of which f->err tells. */
bool text_file_open(text_file *f, const char *path);
/* Gives the file its name, unless anything failed so far. */
bool text_file_finish(text_file *f);
/* Removes what is not finished; frees. */
void text_file_close(text_file *f);

#endif
