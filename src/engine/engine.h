/* Shared by the files of engine/, which implement hearth.h. */
#ifndef HTH_ENGINE_ENGINE_H
#define HTH_ENGINE_ENGINE_H

#include "base/ref.h"
#include "constrain/token_trie.h"
#include "engine/budget.h"
#include "engine/speed_check.h"
#include "file/gguf.h"
#include "model/model.h"
#include "forward/gpu/gpu.h"
#include "placement/policy.h"
#include "forward/forward.h"
#include "sparse/sidecar.h"
#include "text/tokenizer.h"

#include <pthread.h>

/* The data that a selector needs, in the model's file or in a sidecar. */
typedef enum hth_sidecar_kind {
    HTH_SIDECAR_PREDICTORS,
    HTH_SIDECAR_THRESHOLDS,
    HTH_N_SIDECAR,
    HTH_SIDECAR_NONE = HTH_N_SIDECAR
} hth_sidecar_kind;

/* Number of partial evictions from the device before the model falls back to the CPU completely. */
enum { HTH_MAX_EVICT = 3 };

/* Capacity for status notes: some when the model is opened, two per eviction. */
enum { HTH_MAX_GPU_STATUS = 2 * (HTH_MAX_EVICT + 1) + 4 };

struct hearth_model {
    hth_ref
        ref; /* references of the caller and of all objects that use it; unused in a block with part_of */
    hth_gguf *file;
    hth_model *model; /* NULL: it was opened with vocab_only */
    hth_hparams known; /* then: what the file says; arch NULL, and zeros but for n_vocab: no model of this library */
    bool has_settings; /* it holds those of the process (base/switches.h) */
    hth_kernels kernels;
    hth_tokenizer *tokenizer;     /* NULL: see tokenizer_error */
    hearth_error tokenizer_error; /* why text is not possible with this file */
    pthread_mutex_t trie_lock;
    hth_token_trie *trie; /* trie of the vocabulary, guarded by trie_lock; NULL: no constraint was opened yet */
    bool trie_is_counted; /* the memory limit counts it */
    pthread_mutex_t mtp_lock;
    hearth_model *mtp;            /* mtp.c, guarded by mtp_lock; NULL: no drafts wanted it yet, or could have it */
    uint32_t n_mtp_user;
    hearth_model *part_of;        /* in an MTP block: its model, whose memory limit counts the block; else NULL */
    hearth_selector selector;     /* selector of the weights' layout; never AUTO */
    const char *selector_why;
    uint8_t *weights; /* matrices, if they were read */
    size_t weights_size;
    uint8_t *predictors; /* read from a sidecar */
    size_t predictors_size;
    /* Weights and bytes from sidecars that replace parts of the model's file; size 0: none. */
    struct {
        uint64_t n_weight, size;
    } from_sidecar[HTH_N_SIDECAR];
    hth_arena vectors; /* norms, biases and factors as floats */
    /* The devices that the options name, with the budgets and parameters of the last placement. */
    hth_placement_part devices[HEARTH_MAX_GPU];
    uint32_t n_device;
    bool excluded[HEARTH_MAX_GPU]; /* devices that failed: nothing is placed there again */
    hth_gpu *gpu;              /* the layers on devices; NULL: none */
    /* Names of the devices that have some, by the number of evictions: earlier ones stay valid for callers that still
     * read them. */
    char gpu_names[HTH_MAX_EVICT + 1][300];
    /* Why nothing is on a device, or less than before. The last one is current. Earlier ones stay valid for
     * callers that still read them. */
    char gpu_statuses[HTH_MAX_GPU_STATUS][400];
    uint32_t n_gpu_status;
    double gpu_seconds; /* seconds per token by the placement plan; 0: no plan */
    hth_speed_check speed_check;
    /* State of evictions from the device: the CPU reloads the evicted weights and continues without the device. */
    pthread_mutex_t gpu_lock;        /* guards gpu, kv_pools and all members below, except generation */
    uint32_t generation;             /* number of evictions; incremented after all other changes */
    bool lost, reload_done;          /* lost: all was evicted; reload_done: the CPU has all of its weights */
    hth_gpu *evicted[HTH_MAX_EVICT]; /* with the parts behind each */
    uint32_t n_evicted;
    bool vram_is_short[HEARTH_MAX_GPU]; /* hth_engine_enforce_vram_budget, at its last call */
    hth_kv_pool *kv_pools[HTH_N_KV_TYPE]; /* pools that all sessions share, by type; NULL: not opened yet */
    bool mapped; /* matrices were mapped, not read */
    /* Weights that are read when they are needed (streaming.c). */
    hth_streamed streamed; /* reader NULL: all matrices are in memory */
    uint32_t n_item;     /* items of the store */
    uint8_t *on_device;  /* [n_item] those on the device */
    uint32_t n_streamed; /* the others */
    hth_arena streamed_tables;
    hth_budget budget;
    uint32_t n_thread;
    uint32_t n_batch; /* batch size of sessions with HEARTH_BATCH_AUTO */
    uint32_t max_tokens; /* limit of a step's tokens by the requested placement (hth_gpu_max_tokens) */
    const volatile int *cancel; /* while it is not 0, evaluations are cancelled; NULL: none */
    struct {
        uint8_t *weights;
        size_t size;
    } reloaded[HTH_MAX_EVICT + 1]; /* weights that were read after evictions */
    uint32_t n_reloaded;
};

/* Also of a model without weights. */
static inline const hth_hparams *hth_engine_hparams(const hearth_model *m)
{
    return m->model ? &m->model->hparams : &m->known;
}
/* model.c: ARGUMENT: the model has no weights, but `what` ("a session") evaluates tokens. */
hearth_status hth_engine_need_model(const hearth_model *m, const char *what, hearth_error *err);

/* model.c: hearth_model_open for `what` (hth_model_check_dense), which is refused for mixtures of experts before
 * weights are read; NULL: all models are opened. */
hearth_status hth_engine_open_dense(const char *path, const hearth_model_options *options, const char *what,
                                    hearth_model **out, hearth_error *err);

/* session_size.c: ARGUMENT names an option of which there is no such value. */
hearth_status hth_engine_check_selector(const char *name, hearth_selector selector, hearth_error *err);
hearth_status hth_engine_check_kv(const char *name, hearth_kv_type kv, hearth_error *err);
hearth_status hth_engine_check_threads(const char *name, uint32_t n_thread, hearth_error *err);

/* batch.c: ARGUMENT: a token that the vocabulary does not have; name: of the parameter or the field. */
hearth_status hth_engine_check_ids(const hearth_model *m, const char *name, const int32_t *tokens, size_t n,
                                   hearth_error *err);
/* constraint.c: ARGUMENT: a sampler or a constraint, which may be NULL, was opened with another model. */
hearth_status hth_engine_check_sampler(const hearth_model *m, const char *name, const hearth_sampler *sampler,
                                       hearth_error *err);
hearth_status hth_engine_check_constraint(const hearth_model *m, const char *name, const hearth_constraint *constraint,
                                          hearth_error *err);
/* constraint.c: hearth_sampler_sample of the tokens that a constraint allows, with masked[n_vocab] as space; NULL: of
 * all. The caller goes on with the token (hearth_constraint_accept). */
hearth_status hth_engine_sample(const hearth_model *m, hearth_sampler *sampler, hearth_constraint *constraint,
                                const float *logits, float *masked, int32_t *id, hearth_error *err);

/* sidecars.c: opens the files of options->predictors and ->thresholds and checks them against the model; then
 * reads their data, which replace those of the model's file. The caller closes the sidecars. */
hearth_status hth_engine_open_sidecars(hearth_model *m, const hearth_model_options *options,
                                       hth_sidecar sidecars[2], hearth_error *err);
hearth_status hth_engine_read_sidecars(hearth_model *m, const hth_sidecar sidecars[2], hearth_error *err);
/* True if a matrix was read from a sidecar. */
bool hth_engine_is_from_sidecar(const hearth_model *m, const hth_matrix *w);

/* The items that a store can read: experts, or pieces of dense networks (hth_streamed). The model owns pieces and
 * bundles. */
typedef struct hth_weight_items {
    hth_store_item *items; /* [n] owned by the division */
    uint32_t n;
    hth_ffn_pieces *pieces; /* [n_layer] */
    hth_ffn_bundles *bundles; /* [n_layer] */
    uint32_t *first_expert; /* [n_layer] */
    uint32_t *first_sum;    /* [n_layer] index of the first checksum in sums */
    uint64_t *sums;         /* checksums, owned by the division until a store takes them; NULL: there are none */
} hth_weight_items;

/* How a limit of memory divides the bytes of a model. */
typedef struct hth_memory_division {
    hth_weight_items items;
    uint64_t limit;
    uint64_t matrices;   /* bytes of matrices that are not items */
    uint64_t tables;     /* part of matrices: tables of which single rows are read, unless `whole` */
    uint64_t rest;       /* bytes of the process without weights and sessions */
    uint64_t announced;  /* bytes of the announced session; n_batch AUTO: with m->n_batch, which the division chooses */
    uint64_t streamed;   /* bytes of all items that are not on a device */
    uint64_t back;       /* bytes that matrices and items grow by if all weights on a device are evicted */
    uint64_t least_store;
    bool whole, fits;    /* all is in memory; all items are */
    uint64_t store;      /* bytes for items, unless `fits` */
    uint64_t least;      /* the smallest limit that is accepted, also after a limit was refused */
} hth_memory_division;

/* memory_division.c: divides the limit of the options. The model is open, without its matrices. ARGUMENT: the limit is
 * too small; UNSUPPORTED, MEMORY. hth_memory_division_free frees it. */
hearth_status hth_engine_divide_memory(hearth_model *m, const hearth_model_options *options, hth_memory_division *out,
                                       hearth_error *err);
/* The same with another limit; false: it is too small. */
bool hth_memory_divide_again(hth_memory_division *division, uint64_t limit);
void hth_memory_division_free(hth_memory_division *division);
/* Warns if weights, which are about to be read without a limit, take more than the system leaves: it would kill the
 * process, which could say nothing then. */
void hth_engine_warn_of_memory(const hearth_model *m, const hearth_model_options *options);
/* Bytes of the device, if it has this machine's memory; else 0. */
uint64_t hth_engine_device_size(const hearth_model *m);

/* streamed_items.c: whether a matrix comes from the store, or by rows; what a matrix is bound to. */
bool hth_engine_is_streamed(const hearth_model *m, const hth_matrix *w);
/* gpu.c: share of the bytes of all matrices of the program that lies on devices. */
double hth_engine_product_share(const hearth_model *m);
/* A layer on a device has slots there for some of its experts, and the CPU all of them. */
bool hth_engine_divides_experts(const hearth_model *m);
const hth_binding *hth_engine_binding_of(const hearth_model *m, const hth_matrix *w);

/* model.c: decides how weights are read: by the options, else by HEARTH_IO, which options->io is from here on; mapped
 * ones are options->mmap. ARGUMENT: no way to read has that name; UNSUPPORTED: mapped, with a limit of memory. */
hearth_status hth_engine_choose_io(hearth_model_options *options, hearth_error *err);
/* model.c: puts hearth_model_options.overrides into the metadata of a file that nothing has read yet. */
hearth_status hth_engine_override(hth_gguf *file, const hearth_model_options *options, hearth_error *err);
/* model.c: opens a model up to there, as hearth_model_open, for the CPU: its matrices are not read. It cannot have
 * sessions. */
hearth_status hth_engine_open_divided(const char *path, const hearth_model_options *options, hearth_model **out,
                                      hth_memory_division *division, hearth_error *err);

/* streaming.c: with a limit of memory that the model exceeds, opens a store for what is not loaded. ARGUMENT: even then
 * it does not fit; UNSUPPORTED, MEMORY, IO. hth_engine_close_store: all sessions and batches are closed. */
hearth_status hth_engine_open_store(hearth_model *m, const hearth_model_options *options, hearth_error *err);
void hth_engine_close_store(hearth_model *m);
/* Opens a reader of a model's files, as that store has. io: as hth_engine_choose_io left it. ARGUMENT: no way to read
 * has that name. */
hearth_status hth_engine_open_reader(const hth_gguf *file, const char *io, hth_reader **out,
                                     hearth_error *err);
/* UNSUPPORTED: weights are in the file, but `what` reads them in memory. */
hearth_status hth_engine_need_weights(const hearth_model *m, const char *what, hearth_error *err);
/* Sets for tests how many bytes stores have beyond their least size, whatever the memory limit is; UINT64_MAX: the
 * limit decides. */
void hth_engine_set_store_memory(uint64_t more);
/* Lets devices of models that are opened from now on take the experts that hth_step_set_route gives, for measurements. */
void hth_engine_give_experts(bool given);
/* Makes reading and computing of bundles alternate instead of overlap, for measurements (hth_streamed.in_turn). */
void hth_engine_read_in_turn(hearth_model *m);
/* After a change of what lies on the device, with m->gpu_lock held or while the model is opened, before load.c reads
 * what came back: the store has items for the other rows, and gives way. MEMORY: it does not fit into the limit. */
hearth_status hth_engine_follow_placement(hearth_model *m, hearth_error *err);
/* Items of m->n_streamed that fit into memory. */
uint32_t hth_engine_n_in_memory(const hearth_model *m);

/* budget.c: counts a session or batch of `size` bytes, for which the store gives way. MEMORY: even then it exceeds the
 * limit. */
hearth_status hth_engine_reserve(hearth_model *m, uint64_t size, hearth_error *err);
void hth_engine_release(hearth_model *m, uint64_t size);
/* Beside sessions and the store, `fixed` bytes are needed from now on, and the store has the items of m->on_device.
 * MEMORY: that exceeds the limit. */
hearth_status hth_engine_change_fixed(hearth_model *m, uint64_t fixed, hearth_error *err);
/* budget.c: pages of a cache for n_position positions, which sequences share; *size: what counts them. Both are zero
 * before. MEMORY: it exceeds the limit, or there is none. */
hearth_status hth_engine_open_pages(hearth_model *m, hearth_kv_type kv, uint32_t n_position, hth_kv_budget *pages,
                                    uint64_t *size, hearth_error *err);
/* After all sequences of it; also of a budget that was not opened. */
void hth_engine_close_pages(hearth_model *m, hth_kv_budget *pages, uint64_t size);
/* Bytes that the system leaves, and what leaves them: "the system", or "its control group". UINT64_MAX: it does not
 * say. */
uint64_t hth_engine_system_left(const char **who);
/* Upper bound of the memory of a process that has `resident` bytes, with a margin: a control group also counts memory
 * that the kernel allocates for it. UINT64_MAX: the system does not say. */
uint64_t hth_engine_system_limit(uint64_t resident);
/* The limit that the system allows a process which has `resident` bytes; UINT64_MAX: the system does not say. logs: a
 * line says why. */
uint64_t hth_engine_auto_limit(uint64_t resident, bool logs);
/* From now on, until hth_engine_stop_watching, the store, opened with `size` bytes, gives way when the system needs
 * memory. */
void hth_engine_watch_memory(hearth_model *m, uint64_t size, bool is_auto);
void hth_engine_stop_watching(hearth_model *m);
/* Looks at the system once; returns nanoseconds until it is to be done again. */
uint64_t hth_engine_check_memory(hearth_model *m, uint64_t now_ns);
void hth_engine_init_budget(hearth_model *m);
void hth_engine_close_budget(hearth_model *m);
/* Replaces the system's memory report for tests, and no thread checks it then; NULL: the real report. */
typedef void hth_engine_memory_fn(hth_system_memory *system);
void hth_engine_set_system_memory(hth_engine_memory_fn *fn);

/* session.c: the mutable, locked part of a model that its sessions share. */
hearth_model *hth_engine_mutable(const hearth_model *m);
/* model.c: a reference for an object that uses the model, or one of its blocks; gives one up. */
const hearth_model *hth_engine_hold_model(const hearth_model *m);
void hth_engine_release_model(const hearth_model *m);
/* session_size.c: bytes of a session, with its own workspace; 0: as hearth_session_bytes. streams: weights come from a
 * store. */
uint64_t hth_engine_session_size(const hearth_model *m, const hearth_session_options *options, bool streams);

/* session_file.c: reads now what hearth_session_save would read of the model's file, which may have become unreadable
 * by then. IO, MEMORY. */
hearth_status hth_engine_prepare_save(hearth_session *s, hearth_error *err);

/* load.c: reads or maps the weights of all bindings of m->model: first the vectors, then the CPU's rows of
 * matrices without data. The data of a matrix that is partly on the device point to the CPU's first row. */
hearth_status hth_engine_load_vectors(hearth_model *m, hearth_error *err);
hearth_status hth_engine_load(hearth_model *m, const hearth_model_options *options, hearth_error *err);
/* load.c: calls the progress callback; options NULL: none. CANCELLED if the callback returns false. */
hearth_status hth_engine_report_progress(const hearth_model *m, const hearth_model_options *options, uint64_t done,
                              uint64_t total, hearth_error *err);
/* load.c, while the model is opened: frees what hth_engine_load read, so that it can be called again. */
void hth_engine_unload(hearth_model *m);

/* load.c, with m->gpu_lock held. The first function clears the data pointers of all matrices of which gpu has
 * rows, including the CPU's rows. The second one reads the CPU's rows of matrices without data. The old memory
 * stays valid for steps that still run. MEMORY, IO. */
void hth_engine_unbind_rows(hearth_model *m, const hth_gpu *gpu);
hearth_status hth_engine_reload_cpu_rows(hearth_model *m, hearth_error *err);

/* gpu_fallback.c: whether part of the model is on a device that is not lost; the number of evictions. */
bool hth_engine_has_gpu(const hearth_model *m);
uint32_t hth_engine_generation(const hearth_model *m);
/* The part on the device, or NULL, and its placement generation. If the device is lost, all weights are loaded for
 * the CPU. MEMORY, IO. */
hearth_status hth_engine_use_gpu(hearth_model *m, hth_gpu **gpu, uint32_t *generation, hearth_error *err);
/* Called after a device failed a step of that generation, or refused it repeatedly: frees its memory, places its layers
 * on the other devices as far as they fit, and logs the fallback, unless that was done. */
void hth_engine_gpu_fallback(hearth_model *m, uint32_t generation, const char *why);
/* Queries the memory budget of each device. If more of its own memory is in use, and was at the last call, re-plans
 * with less, HTH_MAX_EVICT times at most, then falls back to the CPU, and logs one line. Returns whether one was not
 * short at the last call: to be called again soon. */
bool hth_engine_enforce_vram_budget(hearth_model *m);
/* The pool of all sessions with caches of this type, which the device limits while part of the model is there.
 * ARGUMENT (also: another type than the device has), MEMORY. */
hearth_status hth_engine_kv_pool(hearth_model *m, hearth_kv_type type, hth_kv_pool **pool, hearth_error *err);

/* gpu.c, with m->gpu_lock held or while the model is opened: places layers again, evenly, on m->devices that are not
 * excluded, within their budgets. m->gpu NULL: nothing fits. options: for the progress callback; NULL: none. */
hearth_status hth_engine_replan_gpu(hearth_model *m, const hearth_model_options *options, hearth_error *err);
/* The index in m->devices of the device of a part. */
uint32_t hth_engine_device_of(const hearth_model *m, const hth_gpu *gpu);
/* gpu.c: opens the device that the options name and loads the model's part for it. With "auto" there may be no
 * device. */
hearth_status hth_engine_open_gpu(hearth_model *m, const hearth_model_options *options, hearth_error *err);
/* gpu.c, after the CPU's weights are loaded: connects the halves of split layers and tests what the device runs.
 * If device memory runs out, re-plans with less and loads the CPU's weights again. */
hearth_status hth_engine_finish_gpu_load(hearth_model *m, const hearth_model_options *options, hearth_error *err);
void hth_engine_close_gpu(hearth_model *m);
/* gpu.c, while the model is opened or with m->gpu_lock held: sets the reason why nothing is on the device, or less
 * than before; returns the last one, or "". */
void hth_engine_set_gpu_status(hearth_model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *hth_engine_gpu_status(const hearth_model *m);
/* The first row of a matrix that belongs to the CPU. Rows before it are on the device. */
uint64_t hth_engine_first_row(const hearth_model *m, const hth_matrix *w);
/* Whether some rows of a matrix are on a part of this chain. */
bool hth_engine_gave_up_rows(const hth_model *model, const hth_gpu *gpu, const hth_matrix *w);
/* Whether it is of a layer of which the device computes a part, perhaps no neurons. */
bool hth_engine_is_divided(const hearth_model *m, const hth_matrix *w);

/* load.c: ARGUMENT if the layout of the weights does not allow a session with this selector. */
hearth_status hth_engine_check_layout(const hearth_model *m, hearth_selector selector, hearth_error *err);

/* session.c: the workspace of the session's own evaluations, and its capacity in tokens. NULL and 0 if the session
 * is for batches only. */
hth_step *hth_session_step(const hearth_session *session);
uint32_t hth_session_n_row(const hearth_session *session);

/* mtp.c: whether drafts may be made by a block of the model's file that predicts a token further, which is loaded once:
 * the file has one, and the model's weights are in memory. */
bool hth_engine_may_have_mtp(const hearth_model *m);
/* The block for one more user; it has sessions as a model has. FORMAT, UNSUPPORTED, IO; MEMORY. */
hearth_status hth_engine_open_mtp(hearth_model *m, hearth_model **out, hearth_error *err);
/* A user has ended: the block stays for others until the model is closed. */
void hth_engine_leave_mtp(hearth_model *m);
/* A user could not use the block: it is closed, unless others have it. */
void hth_engine_drop_mtp(hearth_model *m);
void hth_engine_close_mtp(hearth_model *m);

/* constraint.c: when nothing uses the model any more. */
void hth_engine_close_trie(hearth_model *m);

/* text.c: fails with tokenizer_error if the file's vocabulary is not supported. */
hearth_status hth_engine_need_tokenizer(const hearth_model *m, hearth_error *err);
/* dry_breakers.c: a sampler that was opened with these options penalises repetitions. ARGUMENT, MEMORY. */
hearth_status hth_engine_use_dry(const hearth_model *m, const hearth_sampler_options *o, hearth_sampler *s,
                                 hearth_error *err);

#endif
