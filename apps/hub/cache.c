/* The layout of huggingface_hub's cache, which other programs read and write too:
 *   models--ORG--NAME/blobs/ETAG                   contents, by hash; ETAG.incomplete during a download
 *   models--ORG--NAME/snapshots/COMMIT/PATH        relative links to blobs
 *   models--ORG--NAME/refs/REVISION                the commit of a branch, 40 digits
 *   .locks/models--ORG--NAME/ETAG.lock             locked (flock) during the download of a blob
 * Only complete, verified contents get the name of a blob. */
#define _GNU_SOURCE
#include "base/format_errno.h"
#include "hub/parts.h"

#include "base/system/folder.h"
#include "base/same.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool hub_cache_root(char out[HUB_PATH])
{
    const char *cache = hub_variable("HF_HUB_CACHE"), *hf = hub_variable("HF_HOME"),
               *xdg = hub_variable("XDG_CACHE_HOME"), *home = hub_variable("HOME");
    if (cache) return hub_path(out, "%s", cache);
    if (hf) return hub_path(out, "%s/hub", hf);
    if (xdg) return hub_path(out, "%s/huggingface/hub", xdg);
    return home && hub_path(out, "%s/.cache/huggingface/hub", home);
}

/* Replaces '/' by "--". */
static bool folder_name(const char *repo, char out[256])
{
    size_t n = strcspn(repo, "/");
    int length = snprintf(out, 256, "models--%.*s%s%s", (int)n, repo, repo[n] ? "--" : "",
                          repo[n] ? repo + n + 1 : "");
    return hub_is_repo(repo) && length > 0 && length < 256;
}

bool hub_cache_repo(const char *repo, char out[HUB_PATH])
{
    char root[HUB_PATH], folder[256];
    return hub_cache_root(root) && folder_name(repo, folder) && hub_path(out, "%s/%s", root, folder);
}

bool hub_cache_repo_name(const char *folder, char repo[200])
{
    static const char head[] = "models--";
    size_t n_head = sizeof head - 1;
    if (strncmp(folder, head, n_head) != 0 || strlen(folder) - n_head >= 200) return false;
    const char *cut = strstr(folder + n_head, "--");
    if (cut)
        snprintf(repo, 200, "%.*s/%s", (int)(cut - folder - (ptrdiff_t)n_head), folder + n_head, cut + 2);
    else snprintf(repo, 200, "%s", folder + n_head);
    return hub_is_repo(repo);
}

bool hub_cache_split(const char *path, char repo[200], char commit[HUB_NAME], char relative[HUB_NAME])
{
    char root[HUB_PATH], name[256];
    if (!hub_cache_root(root) || strncmp(path, root, strlen(root)) != 0 || path[strlen(root)] != '/') return false;
    const char *folder = path + strlen(root) + 1, *end = strchr(folder, '/');
    if (!end || strncmp(end, "/snapshots/", 11) != 0) return false;
    const char *rest = strchr(end + 11, '/');
    if (!rest || !hub_is_safe_path(rest + 1)) return false;
    snprintf(relative, HUB_NAME, "%s", rest + 1);
    snprintf(commit, HUB_NAME, "%.*s", (int)(rest - end - 11), end + 11);
    snprintf(name, sizeof name, "%.*s", (int)(end - folder), folder);
    return hub_cache_repo_name(name, repo);
}

bool hub_cache_blob(const char *link, char etag[128])
{
    char target[HUB_PATH];
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n <= 0) return false;
    target[n] = '\0';
    const char *p = target;
    while (strncmp(p, "../", 3) == 0) p += 3;
    if (p == target || strncmp(p, "blobs/", 6) != 0 || strchr(p + 6, '/') || strlen(p + 6) >= 128 ||
        p[6] == '.')
        return false;
    snprintf(etag, 128, "%s", p + 6);
    return true;
}

hearth_status hub_cache_lock(const char *repo, const char *etag, int *fd, hearth_error *err)
{
    char root[HUB_PATH], folder[256], path[HUB_PATH];
    if (!hub_cache_root(root) || !folder_name(repo, folder) ||
        !hub_path(path, "%s/.locks/%s/%s.lock", root, folder, etag))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the path of the cache is too long");
    hearth_status st = hth_folder_make_parents(path, 0777, err);
    if (st != HEARTH_OK) return st;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0) return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", path, hth_format_errno(errno).text);
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return HEARTH_OK;
    /* On a file system without locks two programs could corrupt a part; its hash would show that. */
    if (errno != EWOULDBLOCK && errno != EINTR) return HEARTH_OK;
    close(*fd);
    *fd = -1;
    return HEARTH_OK;
}

/* Writes a whole file atomically. */
static hearth_status write_small(const char *path, const char *text, hearth_error *err)
{
    char part[HUB_PATH];
    if (!hub_path(part, "%s.XXXXXX", path))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: is too long", path);
    int fd = mkstemp(part);
    size_t n = strlen(text);
    bool done = fd >= 0 && write(fd, text, n) == (ssize_t)n && fchmod(fd, 0644) == 0;
    int why = errno;
    if (fd >= 0 && close(fd) != 0 && done) done = false, why = errno;
    if (done && rename(part, path) != 0) done = false, why = errno;
    if (done) return HEARTH_OK;
    if (fd >= 0) unlink(part);
    return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", path, hth_format_errno(why).text);
}

static hearth_status write_ref(const hub_request *request, const char *folder, const char *commit,
                               hearth_error *err)
{
    char path[HUB_PATH];
    size_t n = 0;
    if (strcmp(request->revision, commit) == 0) return HEARTH_OK; /* the revision is the commit */
    if (!hub_path(path, "%s/refs/%s", folder, request->revision))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: is too long", request->revision);
    char *old = hub_read_file(path, 100, &n);
    bool same = old && strcmp(old, commit) == 0;
    free(old);
    if (same) return HEARTH_OK;
    hearth_status st = hth_folder_make_parents(path, 0777, err);
    return st == HEARTH_OK ? write_small(path, commit, err) : st;
}

hearth_status hub_cache_link(const hub_request *request, const hub_files *files, const hub_file *file,
                             char path[HUB_PATH], hearth_error *err)
{
    char folder[HUB_PATH], blob[HUB_PATH], target[HUB_PATH], part[HUB_PATH], up[HUB_NAME * 3] = "../..";
    for (const char *p = strchr(file->path, '/'); p; p = strchr(p + 1, '/'))
        strcat(up, "/.."); /* 3 bytes of HUB_NAME */
    if (!hub_cache_repo(request->repo, folder) || !hub_path(blob, "%s/blobs/%s", folder, file->etag) ||
        !hub_path(target, "%s/blobs/%s", up, file->etag) ||
        !hub_path(path, "%s/snapshots/%s/%s", folder, files->commit, file->path) ||
        !hub_path(part, "%s.%ld.link", path, (long)getpid()))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: makes a path that is too long", file->path);
    hearth_status st = write_ref(request, folder, files->commit, err);
    if (st == HEARTH_OK) st = hth_folder_make_parents(path, 0777, err);
    if (st != HEARTH_OK) return st;
    if (hth_same_file(path, blob)) return HEARTH_OK;
    /* Replaces a link that has another target or none. */
    unlink(part);
    if (symlink(target, part) == 0 && rename(part, path) == 0) return HEARTH_OK;
    int why = errno;
    unlink(part);
    return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", path, hth_format_errno(why).text);
}
