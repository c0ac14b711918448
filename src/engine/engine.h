/* What the files of engine/ share behind hearth.h. */
#ifndef HTH_ENGINE_ENGINE_H
#define HTH_ENGINE_ENGINE_H

#include "file/gguf.h"
#include "model/model.h"
#include "forward/gpu/gpu.h"
#include "forward/forward.h"
#include "sparse/sidecar.h"
#include "text/tokenizer.h"

#include <pthread.h>

/* What a selector needs of its own, in the model's file or beside it. */
typedef enum hth_sidecar_kind {
    HTH_SIDECAR_PREDICTORS,
    HTH_SIDECAR_THRESHOLDS,
    HTH_N_SIDECAR,
    HTH_SIDECAR_NONE = HTH_N_SIDECAR
} hth_sidecar_kind;

/* How often a model leaves part of its device before it leaves all of it. */
enum { HTH_MAX_EVICT = 3 };

/* Notes that a model may get: some when it is opened, two each time that it leaves its device. */
enum { HTH_MAX_GPU_STATUS = 2 * (HTH_MAX_EVICT + 1) + 4 };

struct hearth_model {
    hth_gguf *file;
    hth_model *model;
    hth_kernels kernels;
    hth_tokenizer *tokenizer;     /* NULL: see tokenizer_error */
    hearth_error tokenizer_error; /* why text is not possible with this file */
    hearth_selector selector;     /* that the weights are laid out for; never AUTO */
    const char *selector_why;
    uint8_t *weights; /* matrices, when they were read */
    size_t weights_size;
    uint8_t *predictors; /* that lie beside the model's file */
    size_t predictors_size;
    /* Weights and bytes of the parts that lie beside the file and are used in place of what it has itself;
     * size 0: none do. */
    struct {
        uint64_t n_weight, size;
    } from_sidecar[HTH_N_SIDECAR];
    hth_arena vectors;  /* norms, biases and factors as floats */
    hth_device *device; /* NULL: none */
    hth_gpu *gpu;       /* what lies there; NULL: nothing */
    /* Why nothing does, or less than before: the last one counts. Those before stay as they are, for callers
     * who read them still. */
    char gpu_statuses[HTH_MAX_GPU_STATUS][400];
    uint32_t n_gpu_status;
    double gpu_seconds; /* of a token, as its plan expects; 0: there is none */
    /* A device that is left, in part or wholly: the host reads what lay there, and goes on without it. */
    pthread_mutex_t gpu_lock; /* gpu, and all below but age */
    uint32_t generation;         /* how often that was so; grows last */
    bool lost, reload_done;   /* wholly; and all that lay there is the host's */
    hth_gpu *evicted[HTH_MAX_EVICT];
    uint32_t n_evicted;
    bool mapped; /* how matrices were read, */
    uint32_t n_thread;
    const volatile int *cancel; /* while it is not 0, evaluations end; NULL: none */
    struct {
        uint8_t *weights;
        size_t size;
    } reloaded[HTH_MAX_EVICT + 1]; /* and those that were read since */
    uint32_t n_reloaded;
};

/* sidecars.c: files of options->predictors and ->thresholds, checked against the model; then what they
 * hold, in place of what the model's file says. The caller closes them. */
hearth_status hth_engine_open_sidecars(hearth_model *m, const hearth_model_options *options,
                                       hth_sidecar sidecars[2], hearth_error *err);
hearth_status hth_engine_read_sidecars(hearth_model *m, const hth_sidecar sidecars[2], hearth_error *err);
/* Whether a matrix was read from one of them. */
bool hth_engine_is_from_sidecar(const hearth_model *m, const hth_matrix *w);

/* load.c: gives every binding of m->model its weights, by reading or mapping: first the vectors, then the
 * host's rows of matrices that have none yet. A matrix of which the device has some points to the first
 * that is the host's. */
hearth_status hth_engine_load_vectors(hearth_model *m, hearth_error *err);
hearth_status hth_engine_load(hearth_model *m, const hearth_model_options *options, hearth_error *err);
/* load.c: how much of it is read; options NULL: to nobody. CANCELLED, where who hears it says so. */
hearth_status hth_engine_report_progress(const hearth_model *m, const hearth_model_options *options, uint64_t done,
                              uint64_t total, hearth_error *err);
/* load.c, while the model is opened: gives back what hth_engine_load read, so that it can be called again. */
void hth_engine_unload(hearth_model *m);

/* load.c, with m->loss: the rows of which gpu had some, the host's too, have no place any more; rows without
 * a place that are the host's get one. Those that were there stay, for steps that are still under way.
 * MEMORY, IO. */
void hth_engine_unbind_rows(hearth_model *m, const hth_gpu *gpu);
hearth_status hth_engine_reload_cpu_rows(hearth_model *m, hearth_error *err);

/* gpu_fallback.c: whether some of the model lies on a device that is not lost; how often it left some of it. */
bool hth_engine_has_gpu(const hearth_model *m);
uint32_t hth_engine_generation(const hearth_model *m);
/* What lies there now, or NULL, and since which age; where it is lost, all of it is the host's then.
 * MEMORY, IO. */
hearth_status hth_engine_use_gpu(hearth_model *m, hth_gpu **gpu, uint32_t *generation, hearth_error *err);
/* The device failed a step that was begun at that age, or refuses to do it: what it has is given back, and the
 * loss is noted and said, unless that was done. */
void hth_engine_gpu_fallback(hearth_model *m, uint32_t generation, const char *why);
/* Asks what may be in use there. Where more is, less is placed there, HTH_MAX_EVICT times at most, then
 * nothing, and one line says so. */
void hth_engine_enforce_vram_budget(hearth_model *m);
/* Room in the caches there for a sequence. there: it has some; slot: which. MEMORY, ARGUMENT. */
hearth_status hth_engine_reserve(hearth_model *m, hearth_kv_type kv, uint32_t n_ctx, uint32_t *slot,
                                 bool *there, uint32_t *generation, hearth_error *err);
void hth_engine_release(hearth_model *m, uint32_t slot);

/* gpu.c, with m->loss or while it is opened: as the place before, with so many bytes; m->gpu NULL: nothing can
 * lie there. options: whose progress is told; NULL: nobody's. */
hearth_status hth_engine_replan_gpu(hearth_model *m, const hth_offload_params *before, uint64_t budget,
                                     const hearth_model_options *options, hearth_error *err);
/* gpu.c: opens the device that the options name and loads what lies there; with "auto" there may be none. */
hearth_status hth_engine_open_gpu(hearth_model *m, const hearth_model_options *options, hearth_error *err);
/* gpu.c: once the host's weights are read: layers that are divided are joined, and what runs there is tested.
 * Where memory there is wanting, less of it lies there, and the host's weights are read again. */
hearth_status hth_engine_finish_gpu_load(hearth_model *m, const hearth_model_options *options, hearth_error *err);
void hth_engine_close_gpu(hearth_model *m);
/* gpu.c, while the model is opened or with m->loss: why nothing lies there, or less than before; and the
 * last of these, or "". */
void hth_engine_set_gpu_status(hearth_model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *hth_engine_gpu_status(const hearth_model *m);
/* The rows of a matrix from here on are the host's: those before lie on the device. */
uint64_t hth_engine_first_row(const hearth_model *m, const hth_matrix *w);

/* load.c: ARGUMENT where the weights lie so that a session cannot run with this selector. */
hearth_status hth_engine_check_layout(const hearth_model *m, hearth_selector selector, hearth_error *err);

/* session.c: the workspace of what the session evaluates itself, and its rows; NULL and 0 where it is
 * one for batches only. */
hth_step *hth_session_step(const hearth_session *session);
uint32_t hth_session_n_row(const hearth_session *session);

/* text.c: fails with tokenizer_error where the file's vocabulary is not supported. */
hearth_status hth_engine_need_tokenizer(const hearth_model *m, hearth_error *err);

#endif
