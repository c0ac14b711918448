/* Text files that commands write with stdio: pages, tables, conversations. A file appears when it is complete
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

/* Whether a file is empty or begins with this text; false if it cannot be read. */
bool is_empty_or_begins(const char *path, const char *text);

/* False: failed; f->err is the error. is_private: only its owner may read the file. */
bool text_file_open(text_file *f, const char *path, bool is_private);
/* Renames the file to its final name, unless there was an error. */
bool text_file_finish(text_file *f);
/* Removes an unfinished file; frees. */
void text_file_close(text_file *f);

#endif
