/* hub_pull: selects files and downloads each into the cache. A part is written to ETAG.incomplete under the
 * blob's lock, is resumed after an interruption, and is renamed only when size and SHA-256 match the announced
 * ones. */
#define _GNU_SOURCE
#include "base/system/folder.h"
#include "base/format_bytes.h"
#include "base/format_errno.h"
#include "base/same.h"
#include "hub/api.h"
#include "hub/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

typedef struct pull {
    const hub_pull_options *options;
    hub_http *http;
    hub_request request;
    hub_files files;
    hearth_error *err;
} pull;

/* A part during its download. */
typedef struct part {
    const pull *p;
    const hub_file *file;
    char blob[HUB_PATH], path[HUB_PATH]; /* final and temporary path */
    int fd;
    uint64_t at, from; /* current bytes; bytes at the start of this run */
    uint64_t asked;    /* first byte of the current request */
    sha256 hash;       /* hash of the current bytes */
    enum { PART_GOOD, PART_CANCELLED, PART_NO_WRITE, PART_OTHER_RANGE, PART_OTHER_SIZE } problem;
    int why;            /* errno for PART_NO_WRITE */
    uint64_t announced; /* the size of the file that the response has, for PART_OTHER_SIZE */
} part;

static void say(const pull *p, const char *line) { p->options->watch.say(p->options->watch.user, line); }

static bool show(const part *t)
{
    const hub_watch *w = &t->p->options->watch;
    return w->progress(w->user, t->at - t->from, t->file->size - t->from);
}

/* ---- data that is present -------------------------------------------------------------------------------- */

static bool has_size(const char *path, uint64_t size)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size;
}

static hearth_status hash_part(part *t)
{
    static uint8_t bytes[1 << 20];
    const hub_watch *w = &t->p->options->watch;
    hearth_status st = HEARTH_OK;
    sha256_init(&t->hash);
    w->begin(w->user, "checking what is there");
    for (uint64_t at = 0; at < t->at && st == HEARTH_OK;) {
        ssize_t got = pread(t->fd, bytes, sizeof bytes, (off_t)at);
        if (got < 0 && errno == EINTR) got = 0;
        else if (got <= 0)
            st =
                hth_fail(t->p->err, HEARTH_ERROR_IO, "%s: %s", t->path,
                         got ? hth_format_errno(errno).text : "ends early");
        if (got > 0) sha256_add(&t->hash, bytes, (size_t)got), at += (uint64_t)got;
        if (st == HEARTH_OK && !w->progress(w->user, at, t->at))
            st = hth_fail(t->p->err, HEARTH_ERROR_CANCELLED, "stopped");
    }
    w->end(w->user);
    return st;
}

static bool restart(part *t)
{
    sha256_init(&t->hash);
    t->at = t->from = 0;
    if (ftruncate(t->fd, 0) == 0) return true;
    t->problem = PART_NO_WRITE, t->why = errno;
    return false;
}

static hearth_status open_part(part *t)
{
    struct stat st;
    hearth_status status = hth_folder_make_parents(t->path, 0777, t->p->err);
    if (status != HEARTH_OK) return status;
    t->fd = open(t->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (t->fd < 0 || fstat(t->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return hth_fail(t->p->err, HEARTH_ERROR_IO, "%s: %s", t->path,
                        t->fd < 0 ? hth_format_errno(errno).text : "is no file");
    t->at = t->from = (uint64_t)st.st_size;
    if (t->at > t->file->size && !restart(t))
        return hth_fail(t->p->err, HEARTH_ERROR_IO, "%s: %s", t->path, hth_format_errno(t->why).text);
    if (t->at > 0) {
        char line[200];
        snprintf(line, sizeof line, "%s of %s are there already", hth_format_bytes(t->at).text,
                 hth_format_bytes(t->file->size).text);
        say(t->p, line);
    }
    return hash_part(t);
}

static hearth_status check_space(const part *t)
{
    struct statvfs fs;
    uint64_t wanted = t->file->size - t->at;
    if (fstatvfs(t->fd, &fs) != 0 || fs.f_blocks == 0) return HEARTH_OK;
    uint64_t is_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (wanted <= is_free) return HEARTH_OK;
    return hth_fail(t->p->err, HEARTH_ERROR_IO,
                    "%s needs %s more, and only %s are free where %s lies; HF_HUB_CACHE names another folder",
                    t->file->path, hth_format_bytes(wanted).text, hth_format_bytes(is_free).text, t->path);
}

/* ---- received data --------------------------------------------------------------------------------------- */

/* Checks the headers of the response before its first byte is used. */
static bool begin_answer(part *t, const hub_reply *r)
{
    if (t->asked > 0 && r->status == 206 &&
        (!r->has_range || r->range_from != t->asked || r->range_total != t->file->size))
        return t->problem = PART_OTHER_RANGE, false;
    if (r->status == 200 && t->asked > 0) { /* the whole file again: the server has no ranges */
        if (!restart(t)) return false;
        t->asked = 0;
    }
    t->announced = r->linked_size && r->linked_size != t->file->size ? r->linked_size
                   : r->has_length                                   ? t->asked + r->length
                                                                     : t->file->size;
    if (t->announced == t->file->size) return true;
    return t->problem = PART_OTHER_SIZE, false;
}

static bool write_bytes(void *user, const hub_reply *reply, const uint8_t *bytes, size_t n)
{
    part *t = user;
    if (t->at == t->asked && !begin_answer(t, reply)) return false;
    if (n > t->file->size - t->at) {
        t->announced = t->at + n;
        return t->problem = PART_OTHER_SIZE, false;
    }
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(t->fd, bytes + done, n - done, (off_t)(t->at + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            t->problem = PART_NO_WRITE, t->why = put < 0 ? errno : ENOSPC;
            sha256_add(&t->hash, bytes, done);
            t->at += done;
            return false;
        }
        done += (size_t)put;
    }
    sha256_add(&t->hash, bytes, n);
    t->at += n;
    if (show(t)) return true;
    return t->problem = PART_CANCELLED, false;
}

static hearth_status refuse_part(part *t)
{
    hearth_error *err = t->p->err;
    const char *end = hub_http_endpoint(t->p->http);
    if (t->problem == PART_NO_WRITE)
        return hth_fail(
            err, HEARTH_ERROR_IO,
            "%s: %s: %s more are needed; %s are kept, and the same command goes on from there; HF_HUB_CACHE "
            "names another folder",
            t->path, hth_format_errno(t->why).text, hth_format_bytes(t->file->size - t->at).text,
            hth_format_bytes(t->at).text);
    if (t->problem == PART_OTHER_SIZE)
        return hth_fail(
            err, HEARTH_ERROR_FORMAT,
            "%s: announced %llu bytes of %s, and sends %llu: nothing of it can be believed; try later", end,
            (unsigned long long)t->file->size, t->file->path, (unsigned long long)t->announced);
    if (t->problem == PART_OTHER_RANGE)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: sends other bytes of %s than those asked for", end,
                        t->file->path);
    return hth_fail(err, HEARTH_ERROR_CANCELLED, "stopped");
}

/* Whether an attempt made enough progress to reset the count of attempts. */
static bool made_progress(const part *t, uint64_t before)
{
    uint64_t much = t->file->size / 64 + 1;
    if (much > 1 << 20) much = 1 << 20;
    return t->at >= before + much;
}

static hearth_status load(part *t, const char *url)
{
    hearth_error *err = t->p->err;
    bool has_restarted = false;
    for (unsigned n_try = 0; t->at < t->file->size;) {
        hub_reply reply;
        uint64_t before = t->at;
        t->problem = PART_GOOD;
        t->asked = t->at;
        hub_outcome outcome = hub_http_get(t->p->http, url, t->at, write_bytes, t, &reply, err);
        bool lost_range = outcome == HUB_STOPPED ? t->problem == PART_OTHER_RANGE
                                                 : outcome == HUB_ANSWERED && reply.status == 416;
        if (outcome == HUB_FAILED) return err->status;
        if (lost_range && !has_restarted &&
            t->at > 0) { /* the present data may be of another file: retry without it */
            has_restarted = true;
            if (!restart(t)) return refuse_part(t);
            continue;
        }
        if (outcome == HUB_STOPPED) return refuse_part(t);
        if (made_progress(t, before)) n_try = 0;
        if (outcome == HUB_ANSWERED && (reply.status == 200 || reply.status == 206)) {
            if (t->at == t->file->size) break;
            outcome = HUB_BROKEN; /* a response without a length that ends early */
            hth_fail(err, HEARTH_ERROR_IO, "%s: the answer ends at %llu of %llu bytes", t->file->path,
                     (unsigned long long)t->at, (unsigned long long)t->file->size);
        } else if (outcome == HUB_ANSWERED && !hub_http_may_pass(&reply)) {
            return hub_api_refuse(t->p->http, &t->p->request, t->file->path, &reply, err);
        }
        if (!hub_http_wait(t->p->http, t->file->path, &reply, outcome, &n_try, err)) return err->status;
    }
    return HEARTH_OK;
}

/* ---- completion -------------------------------------------------------------------------------------------- */

/* The content is synced to disk before the file is renamed. */
static hearth_status finish(part *t)
{
    char hex[SHA256_HEX], folder[HUB_PATH];
    sha256_end(&t->hash, hex);
    if (t->file->has_sha256 && strcmp(hex, t->file->etag) != 0) {
        unlink(t->path);
        return hth_fail(
            t->p->err, HEARTH_ERROR_FORMAT,
            "%s: its SHA-256 is %s, and %s was announced: what came is wrong, and deleted; try again",
            t->file->path, hex, t->file->etag);
    }
    if (fsync(t->fd) != 0 || rename(t->path, t->blob) != 0)
        return hth_fail(t->p->err, HEARTH_ERROR_IO, "%s: %s", t->path, hth_format_errno(errno).text);
    if (hub_path(folder, "%.*s", (int)(strrchr(t->blob, '/') - t->blob), t->blob)) {
        int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) fsync(fd), close(fd);
    }
    return HEARTH_OK;
}

static void say_kept(const part *t)
{
    char line[200];
    if (t->at == 0 || t->at >= t->file->size) return;
    snprintf(line, sizeof line, "%s of %s are kept; the same command goes on from there",
             hth_format_bytes(t->at).text, hth_format_bytes(t->file->size).text);
    say(t->p, line);
}

static hearth_status load_locked(part *t, const char *what)
{
    char url[HUB_PATH];
    const hub_watch *w = &t->p->options->watch;
    if (has_size(t->blob, t->file->size))
        return HEARTH_OK; /* the previous holder of the lock has downloaded it */
    if (!hub_api_url(t->p->http, &t->p->request, &t->p->files, t->file->path, url))
        return hth_fail(t->p->err, HEARTH_ERROR_ARGUMENT, "%s: makes an address that is too long",
                        t->file->path);
    hearth_status st = open_part(t);
    if (st == HEARTH_OK) st = check_space(t);
    if (st == HEARTH_OK) {
        w->begin(w->user, what);
        st = load(t, url);
        w->end(w->user);
    }
    if (st == HEARTH_ERROR_CANCELLED) say_kept(t);
    if (st == HEARTH_OK) st = finish(t);
    if (t->fd >= 0) close(t->fd);
    return st;
}

/* Waits while another program downloads the same file. */
static hearth_status take_lock(const pull *p, const hub_file *file, int *fd)
{
    const struct timespec tenth = {.tv_nsec = 100000000};
    for (bool told = false;; told = true) {
        hearth_status st = hub_cache_lock(p->request.repo, file->etag, fd, p->err);
        if (st != HEARTH_OK || *fd >= 0) return st;
        if (!told) say(p, "another program is bringing this file: waiting for it");
        if (!p->options->watch.progress(p->options->watch.user, 0, 0))
            return hth_fail(p->err, HEARTH_ERROR_CANCELLED, "stopped");
        nanosleep(&tenth, NULL);
    }
}

/* Provides one file of the model; *loaded counts bytes from the network. */
static hearth_status fetch_file(pull *p, const hub_file *file, const char *what, char path[HUB_PATH],
                                uint64_t *loaded)
{
    char folder[HUB_PATH];
    part t = {.p = p, .file = file, .fd = -1};
    if (!hub_cache_repo(p->request.repo, folder) || !hub_path(t.blob, "%s/blobs/%s", folder, file->etag) ||
        !hub_path(t.path, "%s.incomplete", t.blob) ||
        !hub_path(path, "%s/snapshots/%s/%s", folder, p->files.commit, file->path))
        return hth_fail(p->err, HEARTH_ERROR_ARGUMENT,
                        "the path of the cache is too long, or there is none: "
                        "HF_HUB_CACHE names one");
    /* Systems without links store the content itself at that path. */
    if (has_size(path, file->size) && !has_size(t.blob, file->size)) return HEARTH_OK;
    if (!has_size(t.blob, file->size)) {
        int lock = -1;
        hearth_status st = take_lock(p, file, &lock);
        if (st == HEARTH_OK) st = load_locked(&t, what);
        if (lock >= 0) close(lock);
        *loaded += t.at - t.from;
        if (st != HEARTH_OK) return st;
    }
    return hub_cache_link(&p->request, &p->files, file, path, p->err);
}

/* Sets the name under which it will be listed. It depends on the other files of that repository in the cache. */
static hearth_status name_pulled(const pull *p, const char *path, hub_pulled *out)
{
    hub_models models;
    hearth_status st = hub_find_models(&models, p->err);
    if (st != HEARTH_OK) return st;
    hub_cache_name(p->request.repo, path, NULL, 0, out->name);
    for (size_t i = 0; i < models.n; i++)
        if (models.at[i].place == HUB_PLACE_CACHE && hth_same_file(models.at[i].path, out->path))
            snprintf(out->name, sizeof out->name, "%s", models.at[i].name);
    hub_free_models(&models);
    return HEARTH_OK;
}

static hearth_status bring_all(pull *p, size_t first, hub_pulled *out)
{
    hub_file_name name;
    hub_parse_file(p->files.at[first].path, &name);
    for (uint32_t i = 1; i <= name.n_part; i++)
        if (i > p->files.n || !hub_part_of(&p->files, first, i))
            return hth_fail(p->err, HEARTH_ERROR_FORMAT, "%s: has no part %u of the %u of %s",
                            p->request.repo, i, name.n_part, p->files.at[first].path);
    for (uint32_t i = 1; i <= name.n_part; i++) {
        char what[60] = "loading", path[HUB_PATH];
        const hub_file *file = hub_part_of(&p->files, first, i);
        if (name.n_part > 1) snprintf(what, sizeof what, "part %u of %u", i, name.n_part);
        hearth_status st = fetch_file(p, file, what, path, &out->loaded);
        if (st != HEARTH_OK) return st;
        out->size += file->size;
        out->unverified |= !file->has_sha256;
        if (i == 1) memcpy(out->path, path, sizeof path);
    }
    return name_pulled(p, p->files.at[first].path, out);
}

hearth_status hub_pull(const char *what, const hub_pull_options *options, hub_pulled *out, hearth_error *err)
{
    hearth_error own;
    pull p = {.options = options, .err = err ? err : &own};
    size_t first = 0;
    *out = (hub_pulled){.size = 0};
    hearth_status st = hub_parse_request(what, options->revision, &p.request, p.err);
    if (st == HEARTH_OK && !strchr(p.request.repo, '/'))
        st = hth_fail(p.err, HEARTH_ERROR_ARGUMENT,
                      "'%s' names no repository: expected ORG/NAME, as bartowski/Llama-3.2-3B-Instruct-GGUF; names of "
                      "Ollama's library are not known here", what);
    if (st == HEARTH_OK) st = hub_http_open(options, &p.http, p.err);
    if (st != HEARTH_OK) return st;
    st = hub_api_files(p.http, &p.request, &p.files, p.err);
    if (st == HEARTH_OK) {
        st = hub_choose(&p.files, &p.request, &first, p.err);
        if (st != HEARTH_OK) hub_say_choices(&p.files, &options->watch);
    }
    if (st == HEARTH_OK) st = bring_all(&p, first, out);
    hub_free_files(&p.files);
    hub_http_close(p.http);
    return st;
}
