/* Models on this machine, found and named, and models brought from a hub (Hugging Face, or what HF_ENDPOINT
 * names) into the cache that huggingface_hub uses too, so that nothing is stored twice. Called by the commands
 * pull, list and rm, and where arguments are parsed (common/model_name.c); this room prints nothing. Texts from
 * networks and files are untrusted: names are escaped before they are printed, no path leads out of its folder. */
#ifndef HEARTH_APPS_HUB_HUB_H
#define HEARTH_APPS_HUB_HUB_H

#include "base/status.h"

#include <stdbool.h>

enum { HUB_PATH = 4096, HUB_NAME = 512 };

/* ---- models on this machine (find.c, match.c) ------------------------------------------------------ */

typedef enum hub_place {
    HUB_PLACE_CACHE,     /* of huggingface_hub, where pull puts what it brings: models--ORG--NAME */
    HUB_PLACE_OLLAMA,    /* $OLLAMA_MODELS, else ~/.ollama/models and the service's, by their manifests */
    HUB_PLACE_LM_STUDIO, /* ~/.lmstudio/models, ~/.cache/lm-studio/models */
    HUB_PLACE_LLAMA_CPP, /* $LLAMA_CACHE or ~/.cache/llama.cpp */
    HUB_PLACE_FOLDER,    /* the folders of HEARTH_MODELS, separated by ':' */
    HUB_N_PLACE
} hub_place;

/* "Hugging Face cache", "Ollama", ... */
const char *hub_place_name(hub_place place);

typedef struct hub_model {
    char *name; /* by which commands take it: "ORG/NAME:Q4_K_M", "llama3.2:1b", "folder/file" */
    char *path; /* of the file, or of the first part of a split one */
    hub_place place;
    uint64_t size;      /* bytes of all parts that are there */
    uint32_t n_part;    /* 1 where it is not split */
    uint32_t n_missing; /* parts that are not there */
} hub_model;

typedef struct hub_models {
    hub_model *at; /* by name */
    size_t n;
} hub_models;

/* All GGUF models in those places, each file once; nothing but manifests is opened. A folder that is not there
 * holds none. MEMORY. */
hearth_status hub_find_models(hub_models *out, hearth_error *err);
void hub_free_models(hub_models *models);

/* The models that are meant by a listed name or a part of one, without regard to case: those with exactly
 * that name; if there are none, those whose names hold it. Returns how many, and the first one in *found. */
size_t hub_match(const hub_models *models, const char *text, const hub_model **found);
/* ARGUMENT unless it is one: the message lists the candidates, or the nearest name. */
hearth_status hub_find_name(const hub_models *models, const char *text, const hub_model **found,
                            hearth_error *err);

/* The path that an operand means: itself where such a file is, or where it looks like a path (it begins with
 * '/' or '.', or ends with ".gguf") and is no name; else that of the model it names. ARGUMENT as above, MEMORY. */
hearth_status hub_resolve(const char *operand, char path[HUB_PATH], hearth_error *err);

/* ---- what a model is, and how it would run (look.c, speed.c) -------------------------------------------------- */

typedef struct hub_facts {
    char family[64];     /* general.architecture; "" where the file cannot be read */
    char type[16];       /* that most of its weights have: "Q4_K"; "" */
    bool runs, is_tight; /* tight: with more memory than is free now */
    char why[600];       /* why it does not run, or is tight; "" */
    uint64_t memory;     /* bytes of weights, cache and workspace for a usual context; 0: not known */
    double speed;        /* tokens a second that a plan expects here; 0: not known */
    bool on_card;        /* with layers on the GPU; else all on the CPU, behind a short context */
} hub_facts;

/* What one needs to know of the machine, measured when first needed and kept (base/disk_cache.h). */
typedef struct hub_machine hub_machine;
/* gpu: auto, none, or a device by name; vram: bytes that may be used of it, 0: what is free. Fails where a named
 * device cannot be opened. */
hearth_status hub_machine_open(const char *gpu, uint64_t vram, hub_machine **out, hearth_error *err);
/* The GPU's name, NULL without one; whether it is simulated. */
const char *hub_machine_card(const hub_machine *machine, bool *is_simulated);
void hub_machine_close(hub_machine *machine);

/* Reads the head of the file, no weights, unless it did so before (base/disk_cache.h). What is wrong with the file stands in facts; the status is of this
 * function's own work: MEMORY. */
hearth_status hub_look(hub_machine *machine, const hub_model *model, hub_facts *facts, hearth_error *err);

/* ---- what a hub has (pull.c) ----------------------------------------------------------------------------- */

/* How the caller hears of it, and stops it. */
typedef struct hub_watch {
    void (*begin)(void *user, const char *what); /* of something long, for a progress bar */
    bool (*progress)(void *user, uint64_t done,
                     uint64_t all); /* bytes; false stops; all 0: only that is asked */
    void (*end)(void *user);
    void (*say)(void *user, const char *line); /* for a person: what is waited for, what is kept */
    void *user;
} hub_watch;

typedef struct hub_pull_options {
    const char *revision; /* a branch, tag or commit; NULL: main */
    unsigned timeout_s;   /* without a byte, until a connection counts as broken */
    unsigned n_retry;     /* in a row, without progress */
    hub_watch watch;
} hub_pull_options;

typedef struct hub_pulled {
    char name[HUB_NAME], path[HUB_PATH]; /* as hub_find_models has them */
    uint64_t size, loaded;               /* bytes of all parts; of them those that came by this call */
    bool unverified; /* the hub announces no SHA-256 of some part: only its size was checked */
} hub_pulled;

/* Brings ORG/NAME[:QUANT] or ORG/NAME:FILE.gguf, all parts of it, and verifies size and SHA-256; what is there
 * already is not loaded again. Messages say what there is where QUANT is missing or matches nothing.
 * ARGUMENT, IO, FORMAT (the hub does not keep what it announces), MEMORY, CANCELLED; UNSUPPORTED in a build
 * without libcurl or jansson. What was loaded before a failure is kept, unless it is wrong. */
hearth_status hub_pull(const char *what, const hub_pull_options *options, hub_pulled *out, hearth_error *err);

/* ---- taking away (remove.c) ----------------------------------------------------------------------------- */

/* Removes a model of HUB_PLACE_CACHE: its links in all snapshots, the blobs that no other link uses, and what
 * is empty then. *freed: bytes. ARGUMENT: of another place, or being loaded now; IO. */
hearth_status hub_remove(const hub_model *model, uint64_t *freed, hearth_error *err);
/* Removes the begun downloads of a repository, ORG/NAME, but for those that a program goes on with now. *freed: bytes, 0
 * where there are none. */
void hub_remove_begun(const char *repo, uint64_t *freed);

#endif
