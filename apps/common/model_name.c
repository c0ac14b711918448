/* Resolves names of models when arguments are parsed, so that all later code sees paths. */
#include "common/model_name.h"

#include "common/download.h"
#include "common/options/options.h"
#include "common/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* A copy of the path, until the program ends. */
static int keep(const char *found, const char **path)
{
    enum { MAX_MODELS = 80 }; /* operands and options of one command that are models */
    static char *resolved[MAX_MODELS];
    static size_t n;
    if (n == MAX_MODELS) return usage_error("more than %d models", MAX_MODELS);
    resolved[n] = malloc(strlen(found) + 1);
    if (!resolved[n]) return report_text("out of memory for a path");
    *path = strcpy(resolved[n++], found);
    return 0;
}

int resolve_model(const char *name, const char **path)
{
    char found[HUB_PATH];
    hearth_error err;
    if (!*name) return usage_error("the name of the model is empty");
    if (hub_resolve(name, found, &err) != HEARTH_OK) return report(&err);
    *path = name;
    return strcmp(found, name) == 0 ? 0 : keep(found, path);
}

/* The path of the model in the cache of downloads that is REPO:QUANT, or the only one of REPO; "": there is none. */
static hearth_status find_fetched(const char *repo, char path[HUB_PATH], hearth_error *err)
{
    hub_models models;
    const hub_model *found = NULL;
    size_t n = strlen(repo), n_found = 0;
    *path = '\0';
    hearth_status st = hub_find_models(&models, err);
    for (size_t i = 0; st == HEARTH_OK && i < models.n; i++) {
        const hub_model *m = &models.at[i];
        bool begins = m->place == HUB_PLACE_CACHE && strncasecmp(m->name, repo, n) == 0 && m->n_missing == 0;
        if (!begins || (m->name[n] && (m->name[n] != ':' || strchr(repo, ':')))) continue;
        found = m, n_found++;
    }
    if (n_found == 1) snprintf(path, HUB_PATH, "%s", found->path);
    if (st == HEARTH_OK) hub_free_models(&models);
    return st;
}

bool is_remote_model(const char *operand)
{
    char name[HUB_NAME];
    return access(operand, F_OK) != 0 && hub_read_address(operand, name);
}

int fetch_model(const char *repo, const char *file, bool offline, const char **path)
{
    const hub_pull_options o = {.timeout_s = DOWNLOAD_TIMEOUT_S, .n_retry = DOWNLOAD_RETRIES};
    char what[HUB_NAME], name[HUB_NAME], found[HUB_PATH];
    hub_pulled pulled;
    hearth_error err;
    int n = snprintf(what, sizeof what, "%s%s%s", repo, file ? ":" : "", file ? file : "");
    if (n < 0 || (size_t)n >= sizeof what) return usage_error("--hf-repo: the name is too long");
    if (find_fetched(hub_read_address(what, name) ? name : what, found, &err) != HEARTH_OK) return report(&err);
    if (*found) return keep(found, path);
    if (offline) return report_text("--hf-repo %s is not on this machine, and --offline takes no other", what);
    if (download_model(what, o, &pulled, &err) != HEARTH_OK) return report(&err);
    return keep(pulled.path, path);
}
