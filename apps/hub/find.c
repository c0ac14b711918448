/* Finds models in the places where programs keep them. A model has the name that its program uses, so that the
 * user can use the same name here. A file that is linked in two places is listed once. */
#define _GNU_SOURCE
#include "base/format_errno.h"
#include "hub/parts.h"

#include "base/log.h"
#include "text/json.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_MODELS = 20000, MAX_MANIFEST = 1 << 20 };

const char *hub_place_name(hub_place place)
{
    static const char *const names[HUB_N_PLACE] = {"Hugging Face cache", "Ollama", "LM Studio", "llama.cpp",
                                                   "HEARTH_MODELS"};
    return names[place];
}

/* State of a search. */
typedef struct search {
    hub_models *out;
    struct {
        dev_t device;
        ino_t inode;
    } * files; /* [out->n] */
    bool is_out_of_memory;
    hub_place place;
    const char *root; /* root of the current traversal */
} search;

static bool grow(search *s)
{
    size_t n = s->out->n;
    if (n % 64 != 0) return true;
    hub_model *models = realloc(s->out->at, (n + 64) * sizeof *models);
    if (models) s->out->at = models;
    void *files = realloc(s->files, (n + 64) * sizeof *s->files);
    if (files) s->files = files;
    return models && files;
}

/* Adds the bytes of all parts except the first. */
static void count_parts(hub_model *m, const hub_file_name *name)
{
    struct stat st;
    m->n_part = name->n_part;
    for (uint32_t i = 2; i <= name->n_part; i++) {
        char path[HUB_PATH];
        int n = (int)strlen(m->path) - (int)strlen("-00001-of-00001.gguf");
        if (hub_path(path, "%.*s-%05u-of-%05u.gguf", n, m->path, i, name->n_part) && stat(path, &st) == 0 &&
            S_ISREG(st.st_mode))
            m->size += (uint64_t)st.st_size;
        else m->n_missing++;
    }
}

/* Whether a file that is listed is a copy in another repository, as hub_copy makes one. */
static bool is_of_other_repo(const search *s, const hub_model *listed)
{
    return s->place == HUB_PLACE_CACHE && listed->place == HUB_PLACE_CACHE &&
           strncmp(listed->path, s->root, strlen(s->root)) != 0;
}

/* Adds a file to the list, unless it is listed. False stops the traversal. */
static bool add(search *s, const char *path, const char *name, const hub_file_name *file)
{
    struct stat st;
    size_t n = s->out->n;
    if (n >= MAX_MODELS || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return n < MAX_MODELS;
    for (size_t i = 0; i < n; i++)
        if (s->files[i].device == st.st_dev && s->files[i].inode == st.st_ino && !is_of_other_repo(s, &s->out->at[i]))
            return true;
    if (!grow(s)) return s->is_out_of_memory = true, false;
    hub_model m = {.name = strdup(name),
                   .path = strdup(path),
                   .place = s->place,
                   .size = (uint64_t)st.st_size,
                   .n_part = 1};
    if (!m.name || !m.path) {
        free(m.name);
        free(m.path);
        return s->is_out_of_memory = true, false;
    }
    if (file && file->n_part > 1) count_parts(&m, file);
    s->files[n].device = st.st_dev, s->files[n].inode = st.st_ino;
    s->out->at[s->out->n++] = m;
    return true;
}

/* ---- folders of files ---------------------------------------------------------------------------------------- */

static bool visit_file(void *user, const char *path, const char *relative)
{
    hub_file_name name;
    if (!hub_parse_file(relative, &name) || name.part != 1) return true;
    return add(user, path, name.stem, &name);
}

static void search_folder(search *s, hub_place place, unsigned depth, const char *folder)
{
    s->place = place;
    hub_walk(folder, depth, visit_file, s);
}

static void search_folders(search *s)
{
    const char *list = hub_variable("HEARTH_MODELS");
    char folder[HUB_PATH];
    for (; list && *list; list += list[0] == ':') {
        size_t n = strcspn(list, ":");
        bool fits = n > 0 && hub_path(folder, "%.*s", (int)n, list);
        DIR *opened = fits ? opendir(folder) : NULL;
        if (n > 0 && !opened)
            hth_log(HEARTH_LOG_WARN, "HEARTH_MODELS: %.*s: %s", (int)n, list,
                    hth_format_errno(fits ? errno : ENAMETOOLONG).text);
        if (opened) closedir(opened);
        if (opened) search_folder(s, HUB_PLACE_FOLDER, 3, folder);
        list += n;
    }
}

static void search_llama_cpp(search *s)
{
    const char *own = hub_variable("LLAMA_CACHE"), *xdg = hub_variable("XDG_CACHE_HOME"),
               *home = hub_variable("HOME");
    char folder[HUB_PATH];
    if (own   ? hub_path(folder, "%s", own)
        : xdg ? hub_path(folder, "%s/llama.cpp", xdg)
              : home && hub_path(folder, "%s/.cache/llama.cpp", home))
        search_folder(s, HUB_PLACE_LLAMA_CPP, 0, folder);
}

static void search_lm_studio(search *s)
{
    const char *home = hub_variable("HOME");
    char folder[HUB_PATH];
    if (home && hub_path(folder, "%s/.lmstudio/models", home))
        search_folder(s, HUB_PLACE_LM_STUDIO, 3, folder);
    if (home && hub_path(folder, "%s/.cache/lm-studio/models", home))
        search_folder(s, HUB_PLACE_LM_STUDIO, 3, folder);
}

/* ---- the cache of huggingface_hub ------------------------------------------------------------------------------ */

/* Names are assigned when all files of a repository are found. Until then the name of a model is its path in
 * the snapshot. If several snapshots have the path, the first one is used. */
static bool visit_snapshot(void *user, const char *path, const char *relative)
{
    search *s = user;
    hub_file_name name;
    if (!hub_is_safe_path(relative) || !hub_parse_file(relative, &name) || name.part != 1) return true;
    for (size_t i = 0; i < s->out->n; i++) {
        const hub_model *m = &s->out->at[i];
        if (m->place == HUB_PLACE_CACHE && strcmp(m->name, relative) == 0 &&
            strncmp(m->path, s->root, strlen(s->root)) == 0)
            return true;
    }
    return add(s, path, relative, &name);
}

static void name_all(search *s, const char *repo, size_t first)
{
    size_t n = s->out->n - first;
    const char **paths = malloc((n + 1) * sizeof *paths);
    char **names = malloc((n + 1) * sizeof *names);
    for (size_t i = 0; paths && names && i < n; i++) paths[i] = s->out->at[first + i].name, names[i] = NULL;
    for (size_t i = 0; paths && names && i < n; i++) {
        char name[HUB_NAME];
        hub_cache_name(repo, paths[i], paths, n, name);
        names[i] = strdup(name);
    }
    for (size_t i = 0; i < n; i++) {
        char *name = paths && names ? names[i] : NULL;
        if (!name) {
            s->is_out_of_memory = true;
            continue;
        }
        free(s->out->at[first + i].name);
        s->out->at[first + i].name = name;
    }
    free(paths);
    free(names);
}

static void search_snapshot(search *s, const char *folder, const char *commit)
{
    char root[HUB_PATH];
    if (hub_path(root, "%s/snapshots/%s", folder, commit)) hub_walk(root, 4, visit_snapshot, s);
}

/* refs/main first, because it names the newest snapshot. */
static void search_repo(search *s, const char *repo, const char *folder)
{
    char path[HUB_PATH];
    size_t n, first = s->out->n;
    s->root = folder;
    char *commit = hub_path(path, "%s/refs/main", folder) ? hub_read_file(path, 100, &n) : NULL;
    if (commit && hub_is_safe_path(commit) && !strchr(commit, '/')) search_snapshot(s, folder, commit);
    free(commit);
    DIR *snapshots = hub_path(path, "%s/snapshots", folder) ? opendir(path) : NULL;
    for (struct dirent *e; snapshots && (e = readdir(snapshots)) != NULL;)
        if (e->d_name[0] != '.') search_snapshot(s, folder, e->d_name);
    if (snapshots) closedir(snapshots);
    name_all(s, repo, first);
}

static void search_cache(search *s)
{
    char root[HUB_PATH], folder[HUB_PATH], repo[200];
    DIR *repos = hub_cache_root(root) ? opendir(root) : NULL;
    s->place = HUB_PLACE_CACHE;
    for (struct dirent *e; repos && (e = readdir(repos)) != NULL;)
        if (hub_cache_repo_name(e->d_name, repo) && hub_path(folder, "%s/%s", root, e->d_name))
            search_repo(s, repo, folder);
    if (repos) closedir(repos);
}

/* ---- Ollama ---------------------------------------------------------------------------------------------- */

/* Converts "HOST/library/llama3.2/1b" to Ollama's name llama3.2:1b. Other libraries keep their host. */
static bool ollama_name(const char *relative, char out[HUB_NAME])
{
    const char *parts[4], *p = relative;
    size_t n = 0, lengths[4];
    for (; n < 4 && *p; n++) {
        parts[n] = p;
        lengths[n] = strcspn(p, "/");
        p += lengths[n];
        p += *p == '/';
    }
    if (n != 4 || *p) return false;
    bool is_library = lengths[1] == 7 && memcmp(parts[1], "library", 7) == 0;
    const char *from = is_library ? parts[2] : relative;
    int length = snprintf(out, HUB_NAME, "%.*s:%s", (int)(parts[2] + lengths[2] - from), from, parts[3]);
    return length > 0 && length < HUB_NAME;
}

/* Finds the blob of the layer that holds the model: "sha256:" and 64 digits. */
static bool find_layer(const hth_json *manifest, char digest[80])
{
    const hth_json *layers = hth_json_member(manifest, "layers");
    for (const hth_json *layer = hth_json_first(layers); layer; layer = layer->next) {
        const char *type = hth_json_text(hth_json_member(layer, "mediaType"));
        const char *name = hth_json_text(hth_json_member(layer, "digest"));
        if (!type || !name || strcmp(type, "application/vnd.ollama.image.model") != 0) continue;
        if (strncmp(name, "sha256:", 7) != 0 || strlen(name) != 71 ||
            strspn(name + 7, "0123456789abcdef") != 64)
            return false;
        snprintf(digest, 80, "sha256-%.64s", name + 7);
        return true;
    }
    return false;
}

static bool visit_manifest(void *user, const char *path, const char *relative)
{
    search *s = user;
    char name[HUB_NAME], digest[80], blob[HUB_PATH];
    size_t n;
    hearth_error ignored;
    if (!hub_is_safe_path(relative) || !ollama_name(relative, name)) return true;
    char *text = hub_read_file(path, MAX_MANIFEST, &n);
    hth_json *manifest = text ? hth_json_open(text, n, NULL, &ignored) : NULL;
    bool goes_on = true;
    if (manifest && find_layer(manifest, digest) && hub_path(blob, "%s/blobs/%s", s->root, digest))
        goes_on = add(s, blob, name, NULL);
    hth_json_close(manifest);
    free(text);
    return goes_on;
}

static void search_ollama_folder(search *s, const char *folder)
{
    char manifests[HUB_PATH];
    s->place = HUB_PLACE_OLLAMA;
    s->root = folder;
    if (hub_path(manifests, "%s/manifests", folder)) hub_walk(manifests, 3, visit_manifest, s);
}

static void search_ollama(search *s)
{
    const char *own = hub_variable("OLLAMA_MODELS"), *home = hub_variable("HOME");
    char folder[HUB_PATH];
    if (own ? hub_path(folder, "%s", own) : home && hub_path(folder, "%s/.ollama/models", home))
        search_ollama_folder(s, folder);
    if (!own) search_ollama_folder(s, "/usr/share/ollama/.ollama/models"); /* the folder of Ollama's system service */
}

/* ---- entry points ------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const hub_model *x = a, *y = b;
    int c = strcasecmp(x->name, y->name);
    return c ? c : strcmp(x->path, y->path);
}

hearth_status hub_find_models(hub_models *out, hearth_error *err)
{
    search s = {.out = out};
    *out = (hub_models){.n = 0};
    search_cache(&s);
    search_ollama(&s);
    search_lm_studio(&s);
    search_llama_cpp(&s);
    search_folders(&s);
    free(s.files);
    if (s.is_out_of_memory) {
        hub_free_models(out);
        return hth_fail_memory(err, sizeof *out->at, "the list of models");
    }
    if (out->n > 0) qsort(out->at, out->n, sizeof *out->at, by_name);
    return HEARTH_OK;
}

hearth_status hub_list_folder(const char *folder, hub_models *out, hearth_error *err)
{
    search s = {.out = out};
    *out = (hub_models){.n = 0};
    DIR *opened = opendir(folder);
    if (!opened) return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", folder, hth_format_errno(errno).text);
    closedir(opened);
    search_folder(&s, HUB_PLACE_FOLDER, 0, folder);
    free(s.files);
    if (s.is_out_of_memory) {
        hub_free_models(out);
        return hth_fail_memory(err, sizeof *out->at, "the list of models");
    }
    if (out->n > 0) qsort(out->at, out->n, sizeof *out->at, by_name);
    return HEARTH_OK;
}

void hub_free_models(hub_models *models)
{
    for (size_t i = 0; i < models->n; i++) {
        free(models->at[i].name);
        free(models->at[i].path);
    }
    free(models->at);
    *models = (hub_models){.n = 0};
}
