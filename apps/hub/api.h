/* Metadata of a repository on a hub: its commit and its files. */
#ifndef HEARTH_APPS_HUB_API_H
#define HEARTH_APPS_HUB_API_H

#include "hub/http.h"
#include "text/json.h"

/* The files of the requested revision, sorted; freed by hub_free_files. ARGUMENT: no such repository or revision, or no
 * access; FORMAT; IO; MEMORY; CANCELLED. */
hearth_status hub_api_files(hub_http *http, const hub_request *request, hub_files *out, hearth_error *err);
/* The error for a status other than 200 and 206. file: NULL for the repository itself. */
hearth_status hub_api_refuse(const hub_http *http, const hub_request *request, const char *file,
                             const hub_reply *reply, hearth_error *err);
/* Adds the files of models that a page of a tree lists, until something is wrong. FORMAT, MEMORY. */
hearth_status hub_api_read_page(const hth_json *page, const char *repo, hub_files *out, hearth_error *err);
/* The URL of a file's content. False: too long. */
bool hub_api_url(const hub_http *http, const hub_request *request, const hub_files *files, const char *path,
                 char url[HUB_PATH]);

#endif
