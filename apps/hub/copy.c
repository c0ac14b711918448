/* A second name for a model of the cache: a repository of that name whose blobs are links to the same files. */
#define _GNU_SOURCE
#include "base/system/folder.h"
#include "base/format_errno.h"
#include "hub/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static hearth_status link_blob(const char *from, const hub_request *to, const char *etag, hearth_error *err)
{
    char folder[HUB_PATH], blob[HUB_PATH];
    if (!hub_cache_repo(to->repo, folder) || !hub_path(blob, "%s/blobs/%s", folder, etag))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: makes a path that is too long", to->repo);
    hearth_status st = hth_folder_make_parents(blob, 0777, err);
    if (st != HEARTH_OK || linkat(AT_FDCWD, from, AT_FDCWD, blob, AT_SYMLINK_FOLLOW) == 0 || errno == EEXIST)
        return st;
    return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", blob, hth_format_errno(errno).text);
}

static hearth_status copy_part(const char *from, const hub_request *to, hub_files *files, char *relative,
                               hearth_error *err)
{
    char etag[128], path[HUB_PATH];
    hub_file file = {.path = relative};
    if (!hub_cache_blob(from, etag) || strlen(etag) >= sizeof file.etag)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: is no link of the cache; hearth pull makes them",
                        from);
    memcpy(file.etag, etag, strlen(etag) + 1);
    hearth_status st = link_blob(from, to, etag, err);
    return st == HEARTH_OK ? hub_cache_link(to, files, &file, path, err) : st;
}

hearth_status hub_copy(const hub_model *model, const char *to, char name[HUB_NAME], hearth_error *err)
{
    char repo[200], commit[HUB_NAME], relative[HUB_NAME];
    hub_file_name parsed;
    hub_files files = {.n = 0};
    hub_request request;
    if (model->place != HUB_PLACE_CACHE || !hub_cache_split(model->path, repo, commit, relative) ||
        !hub_parse_file(relative, &parsed) || strlen(commit) >= sizeof files.commit)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: is not of hearth pull; it is %s, of %s", model->name,
                        model->path, hub_place_name(model->place));
    if (model->n_missing > 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: %u of its parts are missing; hearth pull fetches them", model->name,
                        model->n_missing);
    hearth_status st = hub_parse_request(to, NULL, &request, err);
    if (st != HEARTH_OK) return st;
    if (*request.want)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "'%s': the quantisation of a copy is that of its file; NAME alone is expected", to);
    memcpy(files.commit, commit, strlen(commit) + 1);
    const size_t n_head = strlen(model->path) - strlen(relative);
    for (uint32_t i = 1; i <= parsed.n_part && st == HEARTH_OK; i++) {
        char part[HUB_NAME], from[HUB_PATH];
        int n = parsed.n_part == 1
                    ? snprintf(part, sizeof part, "%s", relative)
                    : snprintf(part, sizeof part, "%s-%05u-of-%05u.gguf", parsed.stem, i, parsed.n_part);
        if (n < 0 || (size_t)n >= sizeof part || !hub_path(from, "%.*s%s", (int)n_head, model->path, part))
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: its path is too long", model->name);
        st = copy_part(from, &request, &files, part, err);
    }
    hub_cache_name(request.repo, relative, NULL, 0, name);
    return st;
}
