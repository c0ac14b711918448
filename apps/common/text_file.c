/* stdio on an atomic file writer. open_memstream would be shorter, but glibc's drops data when it runs out of
 * memory and does not set an error on the stream. */
#define _GNU_SOURCE
#include "common/text_file.h"

#include "base/status.h"

#include <string.h>

static ssize_t write_some(void *file, const char *bytes, size_t n)
{
    text_file *f = file;
    if (f->err.status != HEARTH_OK || hth_atomic_writer_write(&f->sink, bytes, n, &f->err) != HEARTH_OK) return 0;
    return (ssize_t)n;
}

bool is_empty_or_begins(const char *path, const char *text)
{
    char head[64];
    size_t length = strlen(text);
    FILE *f = length <= sizeof head ? fopen(path, "rb") : NULL;
    if (!f) return false;
    size_t n = fread(head, 1, length, f);
    bool failed = ferror(f) != 0;
    fclose(f);
    return !failed && (n == 0 || (n == length && memcmp(head, text, n) == 0));
}

bool text_file_open(text_file *f, const char *path, bool is_private)
{
    *f = (text_file){0};
    hearth_status st = is_private ? hth_atomic_writer_open_private(&f->sink, path, &f->err)
                                  : hth_atomic_writer_open(&f->sink, path, &f->err);
    if (st != HEARTH_OK) return false;
    f->out = fopencookie(f, "w", (cookie_io_functions_t){.write = write_some});
    if (!f->out) hth_fail_memory(&f->err, BUFSIZ, "writing a file");
    return f->out != NULL;
}

bool text_file_finish(text_file *f)
{
    if (f->err.status != HEARTH_OK) return false;
    fflush(f->out); /* write_some records the error */
    return f->err.status == HEARTH_OK && hth_atomic_writer_finish(&f->sink, &f->err) == HEARTH_OK;
}

void text_file_close(text_file *f)
{
    if (f->out) fclose(f->out);
    hth_atomic_writer_close(&f->sink);
}
