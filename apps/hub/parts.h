/* Declarations shared by the files of this module: names of repositories, files and quantisations (names.c),
 * paths (paths.c), the cache's layout (cache.c). */
#ifndef HEARTH_APPS_HUB_PARTS_H
#define HEARTH_APPS_HUB_PARTS_H

#include "hub/hub.h"

/* ---- paths (paths.c) ---------------------------------------------------------------------------------- */

/* Writes a path. False: too long, and out is empty. */
bool hub_path(char out[HUB_PATH], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Value of an environment variable; NULL: unset or empty. */
const char *hub_variable(const char *name);
/* Whether a relative path stays below its folder and is printable: no component is empty, "." or "..", no
 * control byte, no backslash. */
bool hub_is_safe_path(const char *path);
/* Reads a file of up to `max` bytes, freed with free. NULL: it cannot be read completely. */
char *hub_read_file(const char *path, size_t max, size_t *n);

/* Calls visit for each file below root (including links to files; links to folders are not followed; hidden
 * names are skipped), at most `depth` folders deep. relative: path below root. False from visit stops the
 * traversal. */
typedef bool hub_visit_fn(void *user, const char *path, const char *relative);
bool hub_walk(const char *root, unsigned depth, hub_visit_fn *visit, void *user);

/* ---- names (names.c) ----------------------------------------------------------------------------------- */

/* Compare and search without regard to case. */
bool hub_equal(const char *a, const char *b);
const char *hub_find_text(const char *in, const char *part);

/* A parsed GGUF file name: "a/model-Q4_0-00002-of-00003.gguf". */
typedef struct hub_file_name {
    char stem[HUB_NAME];   /* without ".gguf" and the part suffix: the same for all parts */
    uint32_t part, n_part; /* from 1; 1 of 1: not split */
    char quant[40];        /* "Q4_0", "UD-Q4_K_XL": as in the file name; "": none */
} hub_file_name;
/* False: not a GGUF file of a model. Projectors and importance matrices do not count. */
bool hub_parse_file(const char *path, hub_file_name *out);
/* Whether a file of that stem has quantisation `quant`, in its name or in a folder's. */
bool hub_has_quant(const char *stem, const char *quant);

/* ORG/NAME or NAME, as the hub allows them. */
bool hub_is_repo(const char *repo);

/* The default of HF_ENDPOINT. */
#define HUB_ENDPOINT "https://huggingface.co"

typedef struct hub_request {
    char repo[200];      /* "ORG/NAME" */
    char want[HUB_NAME]; /* a quantisation or a file name; "": the best one */
    char revision[200];
} hub_request;
/* Accepts an address too, with the host of HUB_ENDPOINT or hf.co. ARGUMENT. */
hearth_status hub_parse_request(const char *what, const char *revision, hub_request *out, hearth_error *err);

/* A file of a repository, as announced by the hub. */
typedef struct hub_file {
    char *path;
    uint64_t size;
    char etag[65];   /* name of the blob: SHA-256 for large files, Git's hash for others */
    bool has_sha256; /* etag is a SHA-256 */
    size_t n_stem;   /* by hub_sort_files: bytes of hub_file_name.stem; this and part are 0 if it is no model's file */
    uint32_t part, n_part;
} hub_file;
typedef struct hub_files {
    char commit[41];
    hub_file *at;
    size_t n;
} hub_files;
void hub_free_files(hub_files *files);
/* The parts of a model stand together from now on, in their order. The functions below need it: a listing may have hundreds
 * of thousands of files, each of which says that it is one of 99999 parts. */
void hub_sort_files(hub_files *files);

/* The index of the first part of the requested file. ARGUMENT: none, or more than one. */
hearth_status hub_choose(const hub_files *files, const hub_request *request, size_t *chosen,
                         hearth_error *err);
/* A part of the same model as a file of the list, or NULL. */
const hub_file *hub_part_of(const hub_files *files, size_t first, uint32_t part);
/* Calls say with one line per model that can be selected, in the order of their names. */
void hub_say_choices(const hub_files *files, const hub_watch *watch);
/* "ORG/NAME:Q4_0", or with the file's path if another of `paths` has the same quantisation. */
void hub_cache_name(const char *repo, const char *path, const char *const *paths, size_t n,
                    char out[HUB_NAME]);

/* ---- the cache (cache.c; its layout: "Hub local cache" of Hugging Face's documentation) ----------------- */

/* $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. False: none. */
bool hub_cache_root(char out[HUB_PATH]);
/* "models--ORG--NAME" below it; false: too long. */
bool hub_cache_repo(const char *repo, char out[HUB_PATH]);
/* The repository of a folder with such a name. False: not one. */
bool hub_cache_repo_name(const char *folder, char repo[200]);
/* The repository, the commit and the path in its snapshot, of a file that lies in one. False: it does not. */
bool hub_cache_split(const char *path, char repo[200], char commit[HUB_NAME], char relative[HUB_NAME]);
/* The name of the blob, if the link points into its repository's blobs as links of the cache do. */
bool hub_cache_blob(const char *link, char etag[128]);
/* Locks a blob as huggingface_hub does. *fd -1: another program holds the lock. IO. */
hearth_status hub_cache_lock(const char *repo, const char *etag, int *fd, hearth_error *err);
/* Links snapshots/COMMIT/PATH to the blob, and writes the commit to refs/REVISION. IO. */
hearth_status hub_cache_link(const hub_request *request, const hub_files *files, const hub_file *file,
                             char path[HUB_PATH], hearth_error *err);

#endif
