/* What a hub says of a repository: its commit and its files. */
#ifndef HEARTH_APPS_HUB_API_H
#define HEARTH_APPS_HUB_API_H

#include "hub/http.h"

/* The files of the revision that are asked for; freed by hub_free_files. ARGUMENT: there is no such repository,
 * revision, or no access; FORMAT; IO; MEMORY; CANCELLED. */
hearth_status hub_api_files(hub_http *http, const hub_request *request, hub_files *out, hearth_error *err);
/* What a status other than 200 and 206 means to a person. file: NULL for the repository itself. */
hearth_status hub_api_refuse(const hub_http *http, const hub_request *request, const char *file,
                             const hub_reply *reply, hearth_error *err);
/* Where a file's content is asked for. False: too long. */
bool hub_api_url(const hub_http *http, const hub_request *request, const hub_files *files, const char *path,
                 char url[HUB_PATH]);

#endif
