/* Finds and names models on this machine, and downloads models from a hub (Hugging Face, or the server of
 * HF_ENDPOINT) into the cache of huggingface_hub, so that nothing is stored twice. Called by the commands pull,
 * list and rm, and by the argument parser (common/model_name.c). This module prints nothing. Texts from
 * networks and files are untrusted: names are escaped before they are printed, and no path leaves its folder. */
#ifndef HEARTH_APPS_HUB_HUB_H
#define HEARTH_APPS_HUB_HUB_H

#include "base/status.h"

#include <stdbool.h>

enum { HUB_PATH = 4096, HUB_NAME = 512 };

/* ---- models on this machine (find.c, match.c) ------------------------------------------------------ */

typedef enum hub_place {
    HUB_PLACE_CACHE,     /* the cache of huggingface_hub, which pull writes to: models--ORG--NAME */
    HUB_PLACE_OLLAMA,    /* $OLLAMA_MODELS, else ~/.ollama/models and that of the service, by their manifests */
    HUB_PLACE_LM_STUDIO, /* ~/.lmstudio/models, ~/.cache/lm-studio/models */
    HUB_PLACE_LLAMA_CPP, /* $LLAMA_CACHE or ~/.cache/llama.cpp */
    HUB_PLACE_FOLDER,    /* the folders of HEARTH_MODELS, separated by ':' */
    HUB_N_PLACE
} hub_place;

/* "Hugging Face cache", "Ollama", ... */
const char *hub_place_name(hub_place place);

typedef struct hub_model {
    char *name; /* name for commands: "ORG/NAME:Q4_K_M", "llama3.2:1b", "folder/file" */
    char *path; /* path of the file, or of the first part of a split one */
    hub_place place;
    uint64_t size;      /* bytes of all present parts */
    uint32_t n_part;    /* 1: not split */
    uint32_t n_missing; /* missing parts */
} hub_model;

typedef struct hub_models {
    hub_model *at; /* sorted by name */
    size_t n;
} hub_models;

/* Lists all GGUF models in those places, each file once. Only manifests are opened. A missing folder is empty.
 * MEMORY. */
hearth_status hub_find_models(hub_models *out, hearth_error *err);
/* The files of models that lie in a folder, sorted by name, as above. IO, MEMORY. */
hearth_status hub_list_folder(const char *folder, hub_models *out, hearth_error *err);
void hub_free_models(hub_models *models);

/* Finds models by name or part of a name, ignoring case: those with exactly that name; if there are none, those
 * whose names contain it. Returns their number, and the first one in *found. */
size_t hub_match(const hub_models *models, const char *text, const hub_model **found);
/* ARGUMENT unless there is exactly one match: the message lists the candidates, or the nearest name. */
hearth_status hub_find_name(const hub_models *models, const char *text, const hub_model **found,
                            hearth_error *err);

/* Makes ORG/NAME:QUANT of an address of the hub, as hf.co/ORG/NAME:QUANT or https://huggingface.co/ORG/NAME. False: it
 * is none. */
bool hub_read_address(const char *text, char name[HUB_NAME]);

/* Resolves an operand to a path: the operand itself if such a file exists, or if it looks like a path (begins
 * with '/' or '.', or ends with ".gguf") and is not a name; else the path of the model with that name. ARGUMENT
 * as above, MEMORY. */
hearth_status hub_resolve(const char *operand, char path[HUB_PATH], hearth_error *err);

/* ---- facts of a model, and how it would run (look.c, speed.c) ------------------------------------------------- */

typedef struct hub_facts {
    char family[64];     /* general.architecture; "": the file cannot be read */
    char type[16];       /* type of most of its weights: "Q4_K"; "" */
    bool runs, is_tight; /* is_tight: needs more memory than is free now */
    char why[600];       /* why it does not run, or is tight; "" */
    uint64_t memory;     /* bytes of weights, cache and workspace for the default context; 0: unknown */
    double speed;        /* estimated tokens per second on this machine; 0: unknown */
    bool on_gpu;        /* speed with layers on the GPU; else with all layers on the CPU, for a short context */
} hub_facts;

/* The type that most bytes of a file's tensors have: "Q4_K"; "" for a file without any. */
struct hth_gguf;
const char *hub_main_type(const struct hth_gguf *file);

/* Measurements of the machine, made when first needed and cached (base/disk_cache.h). */
typedef struct hub_machine hub_machine;
/* gpu: auto, none, or a device name. vram: usable bytes of it; 0: the free memory. Fails if a named device
 * cannot be opened. */
hearth_status hub_machine_open(const char *gpu, uint64_t vram, hub_machine **out, hearth_error *err);
/* Name of the GPU; NULL: none. *is_simulated: whether it is simulated. */
const char *hub_machine_gpu(const hub_machine *machine, bool *is_simulated);
void hub_machine_close(hub_machine *machine);

/* Reads the metadata of the file without weights, or the cached facts (base/disk_cache.h). Errors of the file
 * are in facts; the status is that of this function's own work: MEMORY. */
hearth_status hub_look(hub_machine *machine, const hub_model *model, hub_facts *facts, hearth_error *err);

/* ---- download from a hub (pull.c) ------------------------------------------------------------------------ */

/* Callbacks for progress and cancellation. */
typedef struct hub_watch {
    void (*begin)(void *user, const char *what); /* starts a long operation, for a progress bar */
    bool (*progress)(void *user, uint64_t done,
                     uint64_t all); /* bytes; false cancels; all 0: only checks for cancellation */
    void (*end)(void *user);
    void (*say)(void *user, const char *line); /* text for the user: reasons for waiting, kept data */
    void *user;
} hub_watch;

typedef struct hub_pull_options {
    const char *revision; /* a branch, tag or commit; NULL: main */
    unsigned timeout_s;   /* time without a byte until a connection counts as broken */
    unsigned n_retry;     /* consecutive retries without progress */
    hub_watch watch;
} hub_pull_options;

typedef struct hub_pulled {
    char name[HUB_NAME], path[HUB_PATH]; /* as in hub_find_models */
    uint64_t size, loaded;               /* bytes of all parts; bytes downloaded by this call */
    bool unverified; /* the hub has no SHA-256 for some part: only its size was checked */
} hub_pulled;

/* Downloads ORG/NAME[:QUANT] or ORG/NAME:FILE.gguf with all its parts, and verifies size and SHA-256. Present
 * files are not downloaded again. If QUANT is missing or matches nothing, messages list the available ones.
 * ARGUMENT, IO, FORMAT (the content does not match the announced metadata), MEMORY, CANCELLED; UNSUPPORTED in a
 * build without libcurl. Data downloaded before a failure is kept, unless it is wrong. */
hearth_status hub_pull(const char *what, const hub_pull_options *options, hub_pulled *out, hearth_error *err);

/* ---- copies (copy.c) ------------------------------------------------------------------------------------ */

/* Gives a model of HUB_PLACE_CACHE another name there, ORG/NAME or NAME; both have the same bytes on the disk, and each can
 * be removed. name: that of the copy, with its quantisation. ARGUMENT: the model is in another place or lacks parts, or the
 * name is none; IO. */
hearth_status hub_copy(const hub_model *model, const char *to, char name[HUB_NAME], hearth_error *err);

/* ---- removal (remove.c) --------------------------------------------------------------------------------- */

/* Removes a model of HUB_PLACE_CACHE: its links in all snapshots, blobs without other links, and folders that
 * become empty. *freed: bytes. ARGUMENT: the model is in another place, or is being downloaded; IO. */
hearth_status hub_remove(const hub_model *model, uint64_t *freed, hearth_error *err);
/* Removes the incomplete downloads of a repository, ORG/NAME, except those that a program is continuing now.
 * *freed: bytes; 0: none. */
void hub_remove_begun(const char *repo, uint64_t *freed);

#endif
