/* Sinks and sources for the bytes of saved sessions: files, functions of the caller, memory. session_file.c has the
 * format and does not depend on them. A source that can be rewound is read twice, so that damage is found before the
 * session is changed. */
#define _POSIX_C_SOURCE 200809L
#include "base/format_errno.h"
#include "base/fp_state.h"
#include "engine/session_int.h"
#include "file/atomic_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files -------------------------------------------------------------------------------------------------- */

typedef struct path_sink {
    hth_atomic_writer writer;
    const char *path;
} path_sink;

static hearth_status open_file(void *user, uint64_t size, hearth_error *err)
{
    path_sink *f = user;
    (void)size;
    return hth_atomic_writer_open_private(&f->writer, f->path, err);
}

static hearth_status write_file(void *user, const void *data, size_t n, hearth_error *err)
{
    path_sink *f = user;
    return hth_atomic_writer_write(&f->writer, data, n, err);
}

hearth_status hth_session_write(const hearth_session *s, const char *path, hearth_progress_fn *progress,
                                void *user, hearth_error *err)
{
    path_sink f = {.path = path, .writer = {.fd = -1}};
    hearth_status st = hth_session_put(
        s, &(hth_session_sink){.begin = open_file, .write = write_file, .user = &f}, progress, user, err);
    if (st == HEARTH_OK) st = hth_atomic_writer_finish(&f.writer, err);
    hth_atomic_writer_close(&f.writer);
    return st;
}

typedef struct path_source {
    const char *path;
    int fd;
} path_source;

static hearth_status read_file(void *user, void *data, size_t n, hearth_error *err)
{
    const path_source *f = user;
    for (uint8_t *p = data; n > 0;) {
        ssize_t got = read(f->fd, p, n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", f->path, hth_format_errno(errno).text);
        if (got == 0) return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: the file ends early", f->path);
        p += got, n -= (size_t)got;
    }
    return HEARTH_OK;
}

static hearth_status rewind_file(void *user, hearth_error *err)
{
    const path_source *f = user;
    if (lseek(f->fd, 0, SEEK_SET) == 0) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", f->path, hth_format_errno(errno).text);
}

static hearth_status restore_file(hearth_session *s, const char *path, hearth_error *err)
{
    struct stat stat;
    path_source f = {path, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (f.fd < 0) return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", path, hth_format_errno(errno).text);
    hearth_status st;
    if (fstat(f.fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        st = hth_fail(err, HEARTH_ERROR_IO, "%s: not a regular file", path);
    else
        st = hth_session_get(s,
                             &(hth_session_source){.name = path,
                                                   .size = (uint64_t)stat.st_size,
                                                   .read = read_file,
                                                   .rewind = rewind_file,
                                                   .user = &f},
                             err);
    close(f.fd);
    return st;
}

/* ---- functions of the caller ---------------------------------------------------------------------------------- */

typedef struct callback {
    hearth_write_fn *write;
    hearth_read_fn *read;
    void *user;
} callback;

static hearth_status call_write(void *user, const void *data, size_t n, hearth_error *err)
{
    HTH_FP_CALLBACK;
    const callback *c = user;
    return c->write(c->user, data, n, err);
}

static hearth_status call_read(void *user, void *data, size_t n, hearth_error *err)
{
    HTH_FP_CALLBACK;
    const callback *c = user;
    return c->read(c->user, data, n, err);
}

static hearth_status end_call(hearth_status st, const char *function, hearth_error *why, hearth_error *err)
{
    st = hth_returned(st, function, why);
    if (st != HEARTH_OK && err) *err = *why;
    return st;
}

static hearth_status write_by_fn(void *user, const void *data, size_t n, hearth_error *err)
{
    hearth_error why = {0};
    return end_call(call_write(user, data, n, &why), "the function of hearth_session_save_to", &why, err);
}

static hearth_status read_by_fn(void *user, void *data, size_t n, hearth_error *err)
{
    hearth_error why = {0};
    return end_call(call_read(user, data, n, &why), "the function of hearth_session_restore_from", &why, err);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

typedef struct memory_sink {
    uint8_t *data; /* owned by the caller once all is written */
    size_t n;
} memory_sink;

static hearth_status allocate(void *user, uint64_t size, hearth_error *err)
{
    memory_sink *m = user;
    m->data = hth_alloc(1, size);
    return m->data ? HEARTH_OK : hth_fail_memory(err, size, "a saved session");
}

static hearth_status append(void *user, const void *data, size_t n, hearth_error *err)
{
    memory_sink *m = user;
    (void)err;
    memcpy(m->data + m->n, data, n);
    m->n += n;
    return HEARTH_OK;
}

typedef struct memory_source {
    const uint8_t *data;
    size_t at;
} memory_source;

/* The format asks for no more than its size, which is that of the source. */
static hearth_status copy(void *user, void *data, size_t n, hearth_error *err)
{
    memory_source *m = user;
    (void)err;
    memcpy(data, m->data + m->at, n);
    m->at += n;
    return HEARTH_OK;
}

static hearth_status rewind_memory(void *user, hearth_error *err)
{
    memory_source *m = user;
    (void)err;
    m->at = 0;
    return HEARTH_OK;
}

/* ---- hearth.h ------------------------------------------------------------------------------------------------- */

/* Several threads may save a session that makes no drafts. One that does may be ahead of its position, and goes back. */
static hth_in_use *begin_save(const hearth_session *s)
{
    hth_in_use *use = hth_use_begin_reading(&s->in_use);
    if (!use || !s->drafts) return use;
    hth_use_end(&use);
    return hth_use_begin(&s->in_use);
}

hearth_status hearth_session_save(const hearth_session *s, const char *path, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !path) return hth_fail_null(err, s ? "path" : "session");
    HTH_USE_BY(use, begin_save(s));
    if (!use) return hth_fail_in_use(err, "session");
    return hth_session_write(s, path, NULL, NULL, err);
}

hearth_status hearth_session_restore(hearth_session *s, const char *path, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !path) return hth_fail_null(err, s ? "path" : "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    return restore_file(s, path, err);
}

hearth_status hearth_session_save_to(const hearth_session *s, hearth_write_fn *fn, void *user,
                                     hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !fn) return hth_fail_null(err, s ? "fn" : "session");
    HTH_USE_BY(use, begin_save(s));
    if (!use) return hth_fail_in_use(err, "session");
    callback c = {.write = fn, .user = user};
    return hth_session_put(s, &(hth_session_sink){.write = write_by_fn, .user = &c}, NULL, NULL, err);
}

hearth_status hearth_session_restore_from(hearth_session *s, hearth_read_fn *fn, void *user,
                                          hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !fn) return hth_fail_null(err, s ? "fn" : "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    callback c = {.read = fn, .user = user};
    return hth_session_get(
        s, &(hth_session_source){.name = "what fn read", .size = UINT64_MAX, .read = read_by_fn, .user = &c},
        err);
}

hearth_status hearth_session_save_memory(const hearth_session *s, void **data, size_t *n, hearth_error *err)
{
    HTH_FP_SCOPE;
    memory_sink m = {0};
    if (data) *data = NULL;
    if (n) *n = 0;
    if (!s || !data || !n) return hth_fail_null(err, !s ? "session" : data ? "n" : "data");
    HTH_USE_BY(use, begin_save(s));
    if (!use) return hth_fail_in_use(err, "session");
    hearth_status st = hth_session_put(s, &(hth_session_sink){.begin = allocate, .write = append, .user = &m},
                                       NULL, NULL, err);
    if (st == HEARTH_OK) *data = m.data, *n = m.n;
    else hth_free(m.data);
    return st;
}

hearth_status hearth_session_restore_memory(hearth_session *s, const void *data, size_t n, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !data) return hth_fail_null(err, s ? "data" : "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    memory_source m = {.data = data};
    return hth_session_get(
        s,
        &(hth_session_source){.name = "data", .size = n, .read = copy, .rewind = rewind_memory, .user = &m},
        err);
}
