/* What the files of this room share: names of repositories, files and quantisations (names.c), paths
 * (paths.c), the cache's layout (cache.c). */
#ifndef HEARTH_APPS_HUB_PARTS_H
#define HEARTH_APPS_HUB_PARTS_H

#include "hub/hub.h"

/* ---- paths (paths.c) ---------------------------------------------------------------------------------- */

/* Writes a path; false where it is too long, and then it is empty. */
bool hub_path(char out[HUB_PATH], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The value of a variable of the environment; NULL where it is unset or empty. */
const char *hub_variable(const char *name);
/* The folders above path, as far as they are missing. IO. */
hearth_status hub_make_folders(const char *path, hearth_error *err);
/* Whether a relative path stays below its folder and can be shown: no part of it is empty, "." or "..", no
 * control byte, no backslash. */
bool hub_is_safe_path(const char *path);
/* A file's content, up to `most` bytes, freed with free; NULL where it cannot be read whole. */
char *hub_read_file(const char *path, size_t max, size_t *n);

/* Calls visit for each file below root (links to files too, links to folders not followed, hidden names left
 * out), at most `depth` folders deep; relative: its path below root. False from visit ends the walk. */
typedef bool hub_visit_fn(void *user, const char *path, const char *relative);
bool hub_walk(const char *root, unsigned depth, hub_visit_fn *visit, void *user);

/* ---- names (names.c) ----------------------------------------------------------------------------------- */

/* Both texts in lower case. */
bool hub_equal(const char *a, const char *b);
const char *hub_find_text(const char *in, const char *part);

/* "a/model-Q4_0-00002-of-00003.gguf": a GGUF file's name taken apart. */
typedef struct hub_file_name {
    char stem[HUB_NAME];   /* without ".gguf" and what says which part it is: the same for all parts */
    uint32_t part, n_part; /* from 1; 1 of 1 where it is not split */
    char quant[40];        /* "Q4_0", "UD-Q4_K_XL": as the file has it; "" where it names none */
} hub_file_name;
/* False: no GGUF file of a model. Projectors and importance matrices are none. */
bool hub_parse_file(const char *path, hub_file_name *out);
/* Whether a file of that stem is one of quantisation `quant`, in its name or a folder's. */
bool hub_has_quant(const char *stem, const char *quant);

/* ORG/NAME or NAME, as the hub allows them. */
bool hub_is_repo(const char *repo);

/* Where HF_ENDPOINT says nothing else. */
#define HUB_ENDPOINT "https://huggingface.co"

typedef struct hub_request {
    char repo[200];      /* "ORG/NAME" */
    char want[HUB_NAME]; /* a quantisation or a file's name; "": what is best */
    char revision[200];
} hub_request;
/* Also as an address, with HUB_ENDPOINT's host or hf.co before it. ARGUMENT. */
hearth_status hub_parse_request(const char *what, const char *revision, hub_request *out, hearth_error *err);

/* A file of a repository, as the hub announces it. */
typedef struct hub_file {
    char *path;
    uint64_t size;
    char etag[65];   /* the blob's name: SHA-256 for large files, Git's hash for others */
    bool has_sha256; /* etag is one */
} hub_file;
typedef struct hub_files {
    char commit[41];
    hub_file *at;
    size_t n;
} hub_files;
void hub_free_files(hub_files *files);

/* The index of the first part of the file that is wanted. ARGUMENT: there is none, or more than one. */
hearth_status hub_choose(const hub_files *files, const hub_request *request, size_t *chosen,
                         hearth_error *err);
/* The i-th part of that file, or NULL. */
const hub_file *hub_part_of(const hub_files *files, size_t first, uint32_t part);
/* Calls say with a line for each model that could be chosen. */
void hub_say_choices(const hub_files *files, const hub_watch *watch);
/* "ORG/NAME:Q4_0", or with the file's path where others of `paths` have the same quantisation. */
void hub_cache_name(const char *repo, const char *path, const char *const *paths, size_t n,
                    char out[HUB_NAME]);

/* ---- the cache (cache.c; its layout: "Hub local cache" of Hugging Face's documentation) ----------------- */

/* $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. False: there is none. */
bool hub_cache_root(char out[HUB_PATH]);
/* "models--ORG--NAME" below it; false: too long. */
bool hub_cache_repo(const char *repo, char out[HUB_PATH]);
/* The repository of such a folder's name; false: it is none. */
bool hub_cache_repo_name(const char *folder, char repo[200]);
/* Takes the lock of a blob, as huggingface_hub does: *fd -1 where another program holds it. IO. */
hearth_status hub_cache_lock(const char *repo, const char *etag, int *fd, hearth_error *err);
/* snapshots/COMMIT/PATH becomes a link to the blob, refs/REVISION names the commit. IO. */
hearth_status hub_cache_link(const hub_request *request, const hub_files *files, const hub_file *file,
                             char path[HUB_PATH], hearth_error *err);

#endif
