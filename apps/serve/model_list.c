/* Makes the list of models. Called by command.c before the server runs. */
#define _GNU_SOURCE
#include "serve/model_list.h"

#include "base/hash.h"
#include "engine/engine.h"
#include "base/status.h"
#include "common/options/model_args.h"
#include "common/output.h"
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* The file's name without what only tells that it is GGUF, and which part. */
static char *name_model(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
    char *id = strdup(name ? name : "storyteller");
    if (!id) return NULL;
    size_t n = strlen(id);
    if (n > 5 && strcmp(id + n - 5, ".gguf") == 0) id[n -= 5] = '\0';
    char *part = n > 15 ? id + n - 15 : NULL; /* -00001-of-00003 */
    if (part && part[0] == '-' && memcmp(part + 6, "-of-", 4) == 0) *part = '\0';
    return id;
}

static int64_t time_of(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 ? (int64_t)info.st_mtime : (int64_t)time(NULL);
}

static hearth_status add_file(model_list *l, const char *path, bool is_of_folder, hearth_error *err)
{
    served_model *more = realloc(l->at, (l->n + 1) * sizeof *more);
    if (more) l->at = more;
    served_model m = {.path = path ? strdup(path) : NULL,
                      .id = name_model(path),
                      .created = time_of(path),
                      .is_of_folder = is_of_folder};
    if (!more || !m.id || (path && !m.path)) {
        free(m.path);
        free(m.id);
        return hth_fail_memory(err, sizeof m, "the list of models");
    }
    l->at[l->n++] = m;
    return HEARTH_OK;
}

hearth_status model_list_add(model_list *l, const char *path, hearth_error *err)
{
    struct stat info;
    hub_models found;
    if (!path || stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return add_file(l, path, false, err);
    hearth_status st = hub_list_folder(path, &found, err);
    if (st != HEARTH_OK) return st;
    if (found.n == 0) st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: no models lie in this folder", path);
    for (size_t i = 0; st == HEARTH_OK && i < found.n; i++) st = add_file(l, found.at[i].path, true, err);
    hub_free_models(&found);
    return st;
}

static void remove_at(model_list *l, size_t i)
{
    served_model *m = &l->at[i];
    free(m->path);
    free(m->id);
    memmove(m, m + 1, (--l->n - i) * sizeof *m);
}

/* path NULL: the embedded model. */
static hearth_status read_file(served_model *m, const hearth_model_options *o, bool *is_other,
                               hearth_error *err)
{
    hth_gguf *file;
    *is_other = false;
    hearth_status st =
        m->path ? hth_gguf_open(m->path, &file, err)
                : hth_gguf_open_memory(embedded_model, embedded_model_size, "(embedded model)", &file, err);
    if (st != HEARTH_OK) return st;
    st = hth_engine_override(file, o, err);
    if (st == HEARTH_OK) st = model_facts_read(&m->facts, file, o, is_other, err);
    hth_gguf_close(file);
    return st;
}

/* Reads the files; those of folders that cannot be served are left out. */
static hearth_status read_facts(model_list *l, const hearth_model_options *o, hearth_error *err)
{
    for (size_t i = 0; i < l->n;) {
        bool is_other;
        served_model *m = &l->at[i];
        hearth_status st = read_file(m, o, &is_other, err);
        if (st != HEARTH_OK && (!m->is_of_folder || st == HEARTH_ERROR_MEMORY)) return st;
        if (st == HEARTH_OK) i++;
        else if (is_other) remove_at(l, i);
        else print_warning("left out: %s", err->message), remove_at(l, i);
    }
    return HEARTH_OK;
}

/* Clients see by it that a model has changed; reading weights for it would take long where many lie in a folder. The
 * embedded model has no time: it changes with the program. */
static void hash_listed(served_model *m)
{
    const uint64_t numbers[] = {m->facts.file_size, m->path ? (uint64_t)m->created : 0};
    uint64_t hash = hth_hash_more(hth_hash(m->id, strlen(m->id)), numbers, sizeof numbers);
    snprintf(m->listed, sizeof m->listed, "%016llx", (unsigned long long)hash);
}

hearth_status model_list_finish(model_list *l, const hearth_model_options *o, hearth_error *err)
{
    hearth_status st = read_facts(l, o, err);
    if (st == HEARTH_OK && l->n == 0)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "none of these files is a model");
    for (size_t i = 0; st == HEARTH_OK && i < l->n; i++) hash_listed(&l->at[i]);
    for (size_t i = 0; st == HEARTH_OK && i < l->n; i++)
        for (size_t k = 0; st == HEARTH_OK && k < i; k++)
            if (strcmp(l->at[i].id, l->at[k].id) == 0)
                st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "two models have the name %s: %s and %s",
                              l->at[i].id, l->at[k].path, l->at[i].path);
    return st;
}

hearth_status model_list_keep(model_list *l, const char *folder, hearth_error *err)
{
    for (size_t i = 0; folder && i < l->n; i++) {
        served_model *m = &l->at[i];
        int n = l->n > 1 ? asprintf(&m->kept, "%s/%s", folder, m->id) : asprintf(&m->kept, "%s", folder);
        if (n >= 0) continue;
        m->kept = NULL;
        return hth_fail_memory(err, strlen(folder), "a path");
    }
    return HEARTH_OK;
}

void model_list_free(model_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        served_model *m = &l->at[i];
        free(m->path);
        free(m->id);
        free(m->kept);
        model_facts_free(&m->facts);
    }
    free(l->at);
    *l = (model_list){0};
}
