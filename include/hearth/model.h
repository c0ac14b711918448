/* Models: how they are opened, and what is known of them. */
#ifndef HEARTH_MODEL_H
#define HEARTH_MODEL_H

#include <hearth/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An opened model: weights, vocabulary, hyper-parameters. Immutable; any number of threads may use it. */
typedef struct hearth_model hearth_model;

/* Progress callback, called on the calling thread; false cancels. A model is opened: bytes of weights that were read;
 * the upload to a device is counted separately, then the weights for the CPU, each from 0. hearth_generate: tokens of
 * the prompt. hearth_scheduler_save: bytes of a file. */
typedef bool hearth_progress_fn(void *user, uint64_t n_done, uint64_t n_total);

/* Which neurons of a layer's feed-forward network are computed for a token. */
typedef enum hearth_selector {
    HEARTH_SELECTOR_AUTO = 0,  /* what the file was made for; otherwise gate or dense, which are exact */
    HEARTH_SELECTOR_DENSE,     /* all neurons */
    HEARTH_SELECTOR_GATE,      /* those whose activation is not zero: exact; for activations with zeros */
    HEARTH_SELECTOR_PREDICTOR, /* those that a small network in the file predicts: approximate */
    HEARTH_SELECTOR_THRESHOLD, /* those whose activation reaches a threshold: approximate */
} hearth_selector;

/* Returns the name of a selector: "gate", or "unknown selector".
 * Errors: none.
 * Ownership: the text is the library's, and stays.
 * Threads: any. */
HEARTH_API const char *hearth_selector_name(hearth_selector selector);

typedef enum hearth_kv_type {
    HEARTH_KV_F16 = 0,
    HEARTH_KV_F32 = 1,
    HEARTH_KV_Q8_0 = 2, /* rounds keys and values to 8 bits, 32 at a time: an approximation, with about half the
                           bytes of F16. Requires heads of a multiple of 32 values */
} hearth_kv_type;

/* GPUs that a model can use together. */
enum { HEARTH_MAX_GPU = 4 };

/* A GPU in addition to the CPU, or several: they run the first layers of a model, as many as fit, and hold their part
 * of the KV caches of all sessions. Quantised weights give the CPU's bits on them, if each device passes a self-test
 * when the model is opened. F32, F16 and BF16 do not. */
typedef struct hearth_gpu_options {
    const char *device; /* "auto" (a GPU, if there is one), "none", "vulkan:0" and so on, a UUID, "null", which
                           computes on the CPU as a GPU would, "sim:FILE", which does so with the memory, times and
                           faults of the GPU that a file describes; up to HEARTH_MAX_GPU names of devices with commas
                           between them: the first has the first layers, the next one those that follow; NULL: none */
    uint64_t vram;      /* limit in bytes, of each device; 0: the free memory of the device */
    uint64_t vrams[HEARTH_MAX_GPU]; /* limits of single devices, in the order of their names; 0: vram */
    uint32_t n_ctx;     /* positions of all sessions together, each in whole pages of 32; 0 and HEARTH_CTX_TRAINED:
                           those of one session, as in hearth_session_options. If it is not 0, a cache of that
                           size is allocated and freed before weights are read, also without a device, so that
                           one that is too large fails early */
    uint32_t n_batch;   /* prompt tokens per step, as in hearth_session_options */
    hearth_kv_type kv;  /* of all sessions */
    /* What is placed on the device if the model does not fit: "plan" (the fastest placement by measurements of
     * this machine, which take some seconds, once), "even" (the same share of each layer), "layers:N" (the first N
     * layers, as many of them as fit, and the head if N is larger than their number; "layers:N,cpu-experts:M": without the
     * experts of the first M; "layers:N,cpu:RULES": without those that llama.cpp's --override-tensor RULES keep), "all" (of all layers the
     * operations that the device has, the CPU computes the others in between; a step has n_batch tokens at most), or a
     * file written by hearth plan for this model and device. NULL: "plan" for GPUs, "even" for devices that compute on
     * the CPU. */
    const char *placement;
    bool bit_exact;     /* fail with UNSUPPORTED if the device would not give the CPU's bits */
    /* Sessions whose states of recurrent layers have room on the device, copies and those of a scheduler included, 4096 at
     * most, and no more than it binds at once; a plan is made for steps with a token of each but one of them. 0: one for
     * each 2048 positions of n_ctx, at least 2 and at most 8, and a plan for one. */
    uint64_t n_session;
    /* Keys and values of all layers stay in the host's memory, and the CPU computes attention: a round trip in each layer,
     * and the device's memory is free for weights. Same results. false: they lie with their layers, or where a plan or a
     * placement file has them. */
    bool host_kv;
    uint64_t reserved[6];
} hearth_gpu_options;

/* Value of ram: what the system leaves. */
#define HEARTH_RAM_AUTO UINT64_MAX

typedef struct hearth_model_options {
    size_t size;       /* of this struct: Versions in hearth.h */
    uint32_t n_thread; /* threads that read the weights; 0: one per physical core */
    bool mmap;         /* map the file instead of reading it, as with io "mmap" */
    hearth_progress_fn *progress; /* may be NULL */
    void *progress_user;
    bool no_repack;           /* keep weights in the file's layout instead of the kernels' layout: same results,
                                 slower */
    const char *predictors, *thresholds; /* files written by hearth predictors and hearth thresholds, or NULL */
    hearth_selector selector; /* weights are laid out for it; sessions use it by default */
    const char *activation;   /* of the feed-forward network ("relu", ...), overrides the file's; or NULL */
    hearth_gpu_options gpu;   /* zeros: none */
    /* Limit of memory in bytes for all that the process allocates with this model and its sessions, of which one is
     * planned for as announced in gpu (n_ctx, n_batch, kv). If the model needs more, experts or pieces of dense networks
     * stay in the file and are read when they are needed: same results. Others stay in memory, fewer while there are
     * more sessions, or while the system runs out of memory. HEARTH_RAM_AUTO: what the machine and the control groups
     * of the process leave when the model is opened, less a margin; while they leave less, fewer weights stay. What lies on
     * a GPU is not counted, if that has memory of its own. 0: none. */
    uint64_t ram;
    /* How they are read: "auto" (io_uring, else pread), "uring", "pread", "sim:DISK" (the times of another disk). "mmap":
     * all weights are mapped instead of read: same results, less memory, slower decoding. NULL: the value of HEARTH_IO
     * in the environment, else "auto". */
    const char *io;
    bool allow_unused; /* open a file with tensors that this library does not use; results may be wrong */
    /* A flag that a signal handler or another thread may set. While it is not 0, evaluations of this model end
     * with CANCELLED, within the time of one small unit of work. It must stay valid until the model and all objects
     * that use it are closed. NULL: none */
    const volatile int *cancel;
    bool vocab_only;     /* metadata and vocabulary alone are opened, and no weight is read: the file may have none. What
                            is not about evaluating tokens works as with weights; sessions, batches, embedders and
                            schedulers are ARGUMENT. hearth_model_info has what the metadata say, and 0 or "" for the rest. Fields about
                            weights, memory and devices have no effect */
    bool no_huge_pages;  /* memory lies on ordinary pages; false: on huge ones, unless HEARTH_HUGE_PAGES is 0 in the
                            environment. It is one for the process, as cache: the model is ARGUMENT if another one that
                            is still in use was opened with other values of the two */
    const char *cpu;     /* level of the kernels, a name from hearth_cpu_level: same results. NULL: the value of
                            HEARTH_CPU in the environment, else the best one */
    const char *cache;   /* folder for what is kept between runs (measurements of the machine, compiled programs of
                            GPUs), made if it is missing; "": nothing is kept. NULL: the value of HEARTH_CACHE in the
                            environment, else hearth in XDG_CACHE_HOME, or in .cache in HOME */
    /* Values of metadata instead of the file's, or in addition: KEY=TYPE:VALUE, of which TYPE is int, float, bool or str,
     * as "llama.rope.freq_base=float:500000". A key that begins with a point stands behind the architecture's name:
     * ".rope.scaling.type=str:yarn" sets llama.rope.scaling.type. Only scalars and texts are set; the last of two for one
     * key counts. What is computed may then differ from the file's results; saved sessions belong to these values. They
     * are copied. */
    const char *const *overrides;
    size_t n_override;
} hearth_model_options;

/* Returns zeros, and size.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_model_options hearth_model_defaults(void);

/* For programs that use mmap: a file that shrinks while it is mapped raises SIGBUS. A handler for it (SA_SIGINFO)
 * passes the fault address. True: it is in a mapped model, and the handler may return. The missing pages are replaced
 * by zeros, and the current evaluation and all later ones of that model end with HEARTH_ERROR_IO. False: the fault is
 * not this library's.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any, within a handler of SIGBUS: it is async-signal-safe. */
HEARTH_API bool hearth_handle_sigbus(const void *address);

/* Opens a GGUF file (all parts of a split one). An unsupported vocabulary is no error here: only functions on text
 * then fail.
 * Errors: IO: a file cannot be read; FORMAT: it is damaged, or a norm or a scale is not finite; UNSUPPORTED: its
 * architecture or types, or an option on this machine; ARGUMENT: an option, also a limit of memory that is too small;
 * MEMORY; CANCELLED: by progress; DEVICE: one that was named.
 * Ownership: *out is the caller's, until hearth_model_close. cancel must stay valid as its field says, progress_user
 * during the call.
 * Threads: any. progress is called on the calling thread. */
HEARTH_API hearth_status hearth_model_open(const char *path, const hearth_model_options *options,
                                           hearth_model **out, hearth_error *err);

/* Opens size bytes in memory, as hearth_model_open does a file. Weights are used in place. name is used in messages.
 * Errors: as of hearth_model_open.
 * Ownership: as of hearth_model_open; data must stay valid and unchanged until the model and all objects that use it
 * are closed.
 * Threads: any. progress is called on the calling thread. */
HEARTH_API hearth_status hearth_model_open_memory(const void *data, size_t size, const char *name,
                                                  const hearth_model_options *options,
                                                  hearth_model **out, hearth_error *err);

/* Opens files that are open, as hearth_model_open does: n_fd descriptors, one for each part of a model, in any order.
 * They are of regular files, opened for reading; their positions are neither used nor changed. name is used in
 * messages.
 * Errors: as of hearth_model_open; ARGUMENT also: a descriptor is none of such a file, or the parts are not those of
 * one model, each once.
 * Ownership: as of hearth_model_open. The files are opened once more: the caller may close its descriptors.
 * Threads: any. progress is called on the calling thread. */
HEARTH_API hearth_status hearth_model_open_descriptors(const int *fds, size_t n_fd, const char *name,
                                                       const hearth_model_options *options, hearth_model **out,
                                                       hearth_error *err);

/* Closes a model. What uses it keeps it: its memory is freed, and its file closed, with the last of them.
 * Errors: none.
 * Ownership: gives up the caller's reference.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_model_close(hearth_model *model);

/* Strings stay valid until the model and all objects that use it are closed, even if its device is lost meanwhile.
 * Their content may then be out of date: call the function again. */
typedef struct hearth_model_info {
    size_t size;              /* set by the caller: Versions in hearth.h */
    const char *path;         /* as given */
    const char *name;         /* general.name, "" if absent; any bytes may occur */
    bool synthetic;           /* the name says that the weights are random: reports must say so */
    const char *architecture; /* "llama" */
    const char *activation;   /* of the feed-forward network: "silu", "drelu", ... */
    const char *cpu;          /* level of the kernels: "avx512", ... */
    bool sparse_activation;   /* the activation can be exactly zero */
    hearth_selector selector; /* default of its sessions; AUTO only with vocab_only, which has none */
    const char *selector_why; /* the reason for it: "as asked for", ... */
    bool down_transposed;     /* down is stored transposed, by neurons: rows of inactive neurons are not read */
    bool mapped;              /* weights are mapped, or in the caller's memory; false: read */
    uint32_t n_layer, d_model, n_head, n_head_kv, d_head, d_ff, n_vocab;
    uint32_t n_ctx_train;     /* context length of the training */
    uint64_t n_parameter;
    uint64_t weight_bytes;    /* of all tensors in use, in the file or in sidecars */
    uint64_t bytes_per_token; /* bytes of weights that one generated token reads if no neuron is skipped */
    uint32_t n_streamed, n_streamed_max; /* experts, or pieces of dense networks, that are read from the file when they
                                            are needed, and those that fit into memory at once; 0: none are */
    const char *reader;       /* how they are read: "io_uring", "pread", the name of a simulated disk; NULL: none are */
    const char *gpu;          /* the device's name, of several "A (layers 0 to 3) and B (layers 4 to 5)"; NULL: the CPU
                                 runs everything */
    const char *gpu_note;     /* why nothing is on a device, or less than at first; "" */
    uint32_t gpu_n_layer;     /* layers on devices: the first ones */
    double gpu_neuron_share;  /* share of the neurons of these layers that is on devices, 0 to 1 */
    double gpu_product_share; /* of the bytes of all matrices that tokens are multiplied by, on devices, 0 to 1 */
    double gpu_predicted_tps; /* tokens per second that the placement plan predicts; 0: unknown */
    bool gpu_head;            /* the output matrix is on a device */
    bool gpu_bit_exact;       /* all results so far have the CPU's bits, including those of a device that is no
                                 longer used */
    const char *gpu_bit_exact_reason; /* why not: "output.weight is F16"; "" */
    uint64_t gpu_bytes;       /* allocated on all devices */
    bool gpu_simulated;       /* a device is simulated: reports must say so */
    bool gpu_host_kv;         /* the keys and values of these layers are in the host's memory */
    bool gpu_divides_experts; /* gpu_neuron_share counts experts: of those on devices the CPU has all, too */
    double gpu_sim_seconds;   /* seconds of the simulated clocks since the devices were opened, if they also count the
                                 time of this machine's CPU; 0: measured times are those of this machine */
} hearth_model_info;

/* Fills in *info, as far as info->size goes.
 * Errors: ARGUMENT: info->size is too small; nothing is written.
 * Ownership: the strings of *info are the model's, and stay valid as said above.
 * Threads: any. */
HEARTH_API hearth_status hearth_model_get_info(const hearth_model *model, hearth_model_info *info);

/* Returns n_vocab of hearth_model_info, logits of a token; 0 for NULL.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API uint32_t hearth_model_n_vocab(const hearth_model *model);

/* Returns d_model of hearth_model_info, values of a hidden vector; 0 for NULL.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API uint32_t hearth_model_d_model(const hearth_model *model);

/* ---- metadata: keys and values of the file, of the first part of a split one ---------------- */

typedef enum hearth_metadata_type {
    HEARTH_METADATA_NONE = 0, /* there is no such entry */
    HEARTH_METADATA_UNSIGNED, /* of 8 to 64 bits in the file */
    HEARTH_METADATA_SIGNED,
    HEARTH_METADATA_FLOAT,
    HEARTH_METADATA_BOOL,
    HEARTH_METADATA_STRING,
    HEARTH_METADATA_ARRAY,
} hearth_metadata_type;

/* An entry, or an element of an array, which has the key of the array. Strings have n bytes, any of them, and a NUL;
 * they are valid as those of hearth_model_info. */
typedef struct hearth_metadata {
    size_t size;                       /* set by the caller: Versions in hearth.h */
    hearth_metadata_type type;         /* which of the values below there is; the others are 0 */
    hearth_metadata_type element_type; /* ARRAY: of its elements; else NONE */
    bool as_bool;
    size_t index;                      /* of the entry: 0 is the first in the file */
    const char *key;
    size_t n_key;
    const char *as_string;             /* NULL: it is none */
    uint64_t n;                        /* bytes of a STRING, elements of an ARRAY */
    uint64_t as_unsigned;
    int64_t as_signed;
    double as_float;
} hearth_metadata;

/* Returns the number of entries; 0 for NULL.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API size_t hearth_model_n_metadata(const hearth_model *model);

/* Gives the entry of that index, in the order of the file.
 * Errors: ARGUMENT: there is none, or metadata->size is too small.
 * Ownership: strings are the model's.
 * Threads: any. */
HEARTH_API hearth_status hearth_model_get_metadata(const hearth_model *model, size_t index, hearth_metadata *metadata);

/* Gives the entry of a key, "general.name"; its type is NONE if there is no such key, which is no error.
 * Errors: ARGUMENT: NULL, or metadata->size is too small.
 * Ownership: strings are the model's.
 * Threads: any. */
HEARTH_API hearth_status hearth_model_find_metadata(const hearth_model *model, const char *key,
                                                    hearth_metadata *metadata);

/* Gives element i of the array that is the entry of that index.
 * Errors: ARGUMENT: the entry is no array, it has no such element, or metadata->size is too small; UNSUPPORTED: its
 * elements are arrays.
 * Ownership: strings are the model's.
 * Threads: any. */
HEARTH_API hearth_status hearth_model_get_metadata_element(const hearth_model *model, size_t index, uint64_t i,
                                                           hearth_metadata *metadata);

#ifdef __cplusplus
}
#endif
#endif
