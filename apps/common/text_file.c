/* stdio in front of a sink. open_memstream would do with less, but in glibc it drops what it finds no memory
 * for, and its stream has no error then. */
#define _GNU_SOURCE
#include "common/text_file.h"

#include "base/status.h"

static ssize_t write_some(void *file, const char *bytes, size_t n)
{
    text_file *f = file;
    if (f->err.status != HEARTH_OK || hth_sink_write(&f->sink, bytes, n, &f->err) != HEARTH_OK) return 0;
    return (ssize_t)n;
}

bool text_file_open(text_file *f, const char *path)
{
    *f = (text_file){0};
    if (hth_sink_open(&f->sink, path, &f->err) != HEARTH_OK) return false;
    f->out = fopencookie(f, "w", (cookie_io_functions_t){.write = write_some});
    if (!f->out) hth_fail_memory(&f->err, BUFSIZ, "writing a file");
    return f->out != NULL;
}

bool text_file_finish(text_file *f)
{
    if (f->err.status != HEARTH_OK) return false;
    fflush(f->out); /* write_some keeps what fails */
    return f->err.status == HEARTH_OK && hth_sink_finish(&f->sink, &f->err) == HEARTH_OK;
}

void text_file_close(text_file *f)
{
    if (f->out) fclose(f->out);
    hth_sink_close(&f->sink);
}
