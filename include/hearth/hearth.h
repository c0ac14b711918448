/* Hearth: runs large language models on the local machine.
 *
 * The public interface of libhearth, and nothing that is not meant to stay. A model is opened once, immutable and
 * shared. A session is one sequence of inference over it (its own KV cache, one thread at a time). A batch
 * evaluates several sessions at once. A sampler turns logits into a token.
 *
 * Errors. Every function that can fail returns a hearth_status. If that is not HEARTH_OK, and err is not NULL, *err has
 * the same status and one line for the user, which does not begin with the name of the status; otherwise *err is
 * unchanged. ARGUMENT is the status of a caller's mistake, and its message names the parameter or the field: NULL
 * where no comment allows it, an enumerator that does not exist, a number out of range, an unknown size, bits or
 * reserved fields that are not zero. What a function would give is NULL or 0 then. Functions without a status do
 * nothing for an object that is NULL, and give NULL, false, -1 for a token, or 0. The library never prints, exits or
 * aborts.
 *
 * Ownership. What is given is copied before a function returns, unless a comment says until when it must stay valid;
 * so are strings in options. hearth_..._close gives up the caller's reference, and NULL is allowed. Objects hold
 * references to those that they use: they may be closed in any order, on any thread, and what one of them still uses is
 * freed with the last of them.
 *
 * Options. NULL, a struct of zeros and hearth_..._defaults() mean the same: zero is the default of each field, and
 * where something else than the default could be meant by zero there is a constant for that.
 *
 * Versions. The name of the shared library has the major and the minor version. Within a minor version, structs that
 * begin with `size` grow only at their end, and are never smaller than in its first release, 0.MINOR.0. size is
 * sizeof of the struct, as the program was compiled; 0 stands for the fields of 0.MINOR.0. Options: fields that are
 * missing count as zero, and bytes behind those that the library knows must be zero (ARGUMENT), so that nothing which
 * was asked for is ignored. Results: the caller sets size, and gets no more than that; what the library does not know
 * is zero. Structs without size (within others, in arrays, of callbacks, and hearth_error) never change but for their
 * reserved fields, which are zero.
 *
 * Threads. The library's own threads have names that begin with "hearth-", and block all signals but those that their
 * own faults raise (SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGSYS). Rounding, treatment of denormals and traps of
 * the calling thread (MXCSR, FPCR) change no result: the thread has them again after each call, and while a function of
 * the program runs. Workers of sessions, batches and schedulers are pinned to one physical core each, which no other
 * worker of the process has; those for which none is left run on all. no_pin and hearth_batch_unpin turn that off, and
 * HEARTH_PIN=0 in the environment for the process. The calling thread is never pinned.
 * Any number of threads may use a model and a chat. Everything else is used by one thread at a time, which may be another
 * one each time: a function that finds a session, batch, sampler, detokenizer or answer in use, by another thread or by the
 * function within which it is called, fails with ARGUMENT at once (those without a status do nothing). Copies
 * and files of a session may be made by several threads at once. Functions that only tell (hearth_session_position and
 * such) do not look, and a close must not meet another function. Functions of the program are called on the thread that
 * called the library, but for that of hearth_log_set.
 * hearth_session_cancel, hearth_batch_cancel and hearth_request_cancel may be called at any time from any thread, and from
 * signal handlers.
 * A function of the program has to return: after longjmp or an exception the objects of the interrupted call stay in use,
 * and can only be closed. After fork, the child may exec, or open a model of its own if no other thread was within the
 * library; what the parent opened it must neither use nor close. The calling thread needs a stack of 256 KiB.
 *
 * The bits of a result depend on the file, the tokens and the options that name an approximation (here: the KV
 * type), and on nothing else. */
#ifndef HEARTH_HEARTH_H
#define HEARTH_HEARTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEARTH_VERSION_MAJOR 0
#define HEARTH_VERSION_MINOR 1
#define HEARTH_VERSION_PATCH 0

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

/* ---- status and errors ------------------------------------------------- */

typedef enum hearth_status {
    HEARTH_OK = 0,
    HEARTH_ERROR_MEMORY,      /* an allocation failed */
    HEARTH_ERROR_IO,          /* a file operation failed */
    HEARTH_ERROR_FORMAT,      /* a file, or a text that is given, violates its format */
    HEARTH_ERROR_UNSUPPORTED, /* well formed, but not supported by this version */
    HEARTH_ERROR_ARGUMENT,    /* a parameter is out of range */
    HEARTH_ERROR_CONTEXT,     /* the context is full */
    HEARTH_ERROR_NUMERIC,     /* a value is not finite */
    HEARTH_ERROR_CANCELLED,   /* the caller cancelled */
    HEARTH_ERROR_DEVICE,      /* a GPU was lost, did not respond, or its driver failed */
} hearth_status;

/* One line about a failure: file, field, offset, found, expected, remedy. Control bytes of external text appear as
 * \xNN. Always terminated. */
typedef struct hearth_error {
    hearth_status status;
    char message[600];
    uint32_t reserved[9];
} hearth_error;

/* A short English name of a status ("out of memory"), or "unknown status". Never NULL. */
HEARTH_API const char *hearth_status_name(hearth_status status);

/* "0.1.0" */
HEARTH_API const char *hearth_version(void);

/* ---- log --------------------------------------------------------------- */

typedef enum hearth_log_level { HEARTH_LOG_WARN = 1, HEARTH_LOG_INFO = 2 } hearth_log_level;
typedef void hearth_log_fn(void *user, hearth_log_level level, const char *line);

/* Warnings and notes go to fn (one line, no newline). NULL, the default, discards them. Process-wide; set it
 * before other threads use the library. Any of them may call fn, which must not call the library. */
HEARTH_API void hearth_log_set(hearth_log_fn *fn, void *user);

/* ---- models ------------------------------------------------------------- */

/* An opened model: weights, vocabulary, hyper-parameters. Immutable; any number of threads may use it. */
typedef struct hearth_model hearth_model;

/* Progress callback. Called from the opening thread while weights are read; false cancels. The upload to a device
 * is counted separately, then the weights for the CPU, each from 0. */
typedef bool hearth_progress_fn(void *user, uint64_t done_bytes, uint64_t total_bytes);

/* Which neurons of a layer's feed-forward network are computed for a token. */
typedef enum hearth_selector {
    HEARTH_SELECTOR_AUTO = 0,  /* what the file was made for; otherwise gate or dense, which are exact */
    HEARTH_SELECTOR_DENSE,     /* all neurons */
    HEARTH_SELECTOR_GATE,      /* those whose activation is not zero: exact; for activations with zeros */
    HEARTH_SELECTOR_PREDICTOR, /* those that a small network in the file predicts: approximate */
    HEARTH_SELECTOR_THRESHOLD, /* those whose activation reaches a threshold: approximate */
} hearth_selector;

/* "gate", or "unknown selector". Never NULL. */
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
     * layers, as many of them as fit, and the head if N is larger than their number), or a file written by hearth
     * plan for this model and device. NULL: "plan" for GPUs, "even" for devices that compute on the CPU. */
    const char *placement;
    bool bit_exact;     /* fail with UNSUPPORTED if the device would not give the CPU's bits */
    uint64_t reserved[8];
} hearth_gpu_options;

/* Value of ram: what the system leaves. */
#define HEARTH_RAM_AUTO UINT64_MAX

typedef struct hearth_model_options {
    size_t size;       /* of this struct: see Versions above */
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
} hearth_model_options;

/* Zeros, and size. */
HEARTH_API hearth_model_options hearth_model_defaults(void);

/* For programs that use mmap: a file that shrinks while it is mapped raises SIGBUS. If a handler for it
 * (SA_SIGINFO) passes the fault address and it is in a mapped model, the result is true and the handler may
 * return: the missing pages are replaced by zeros, and the current evaluation and all later ones of that model end
 * with HEARTH_ERROR_IO. False: the fault is not this library's. Async-signal-safe. */
HEARTH_API bool hearth_handle_sigbus(const void *address);

/* Opens a GGUF file (all parts of a split one). An unsupported vocabulary is no error here: only functions on text
 * then fail. IO; FORMAT; UNSUPPORTED; ARGUMENT: an option, also a limit of memory that is too small; MEMORY; NUMERIC;
 * CANCELLED: by progress; DEVICE: one that was named. */
HEARTH_API hearth_status hearth_model_open(const char *path, const hearth_model_options *options,
                                           hearth_model **out, hearth_error *err);

/* The same over size bytes in memory, which must stay valid until the model and all objects that use it are closed;
 * weights are used in place. name is used in messages. */
HEARTH_API hearth_status hearth_model_open_memory(const void *data, size_t size, const char *name,
                                                  const hearth_model_options *options,
                                                  hearth_model **out, hearth_error *err);

/* What uses the model keeps it: its memory is freed, and its file closed, with the last of them. */
HEARTH_API void hearth_model_close(hearth_model *model);

/* Strings stay valid until the model and all objects that use it are closed, even if its device is lost meanwhile.
 * Their content may then be out of date: call the function again. */
typedef struct hearth_model_info {
    size_t size;              /* set by the caller: see Versions above */
    const char *path;         /* as given */
    const char *name;         /* general.name, "" if absent; any bytes may occur */
    bool synthetic;           /* the name says that the weights are random: reports must say so */
    const char *architecture; /* "llama" */
    const char *activation;   /* of the feed-forward network: "silu", "drelu", ... */
    const char *cpu;          /* level of the kernels: "avx512", ... */
    bool sparse_activation;   /* the activation can be exactly zero */
    hearth_selector selector; /* default of its sessions; never AUTO */
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
    double gpu_predicted_tps; /* tokens per second that the placement plan predicts; 0: unknown */
    bool gpu_head;            /* the output matrix is on a device */
    bool gpu_bit_exact;       /* all results so far have the CPU's bits, including those of a device that is no
                                 longer used */
    const char *gpu_bit_exact_reason; /* why not: "output.weight is F16"; "" */
    uint64_t gpu_bytes;       /* allocated on all devices */
    bool gpu_simulated;       /* a device is simulated: reports must say so */
    double gpu_sim_seconds;   /* seconds of the simulated clocks since the devices were opened, if they also count the
                                 time of this machine's CPU; 0: measured times are those of this machine */
} hearth_model_info;

/* ARGUMENT: info->size is too small; nothing is written. Threads: any. */
HEARTH_API hearth_status hearth_model_get_info(const hearth_model *model, hearth_model_info *info);

/* What was read of weights that are not in memory, since the model was opened. */
typedef struct hearth_storage_stats {
    size_t size;                    /* set by the caller: see Versions above */
    uint64_t n_hit, n_miss;         /* experts or pieces that were in memory when a step asked for them, or were not */
    uint64_t n_guess, n_guess_used; /* read before they were asked for, and of those the ones that then were */
    uint64_t weight_bytes;          /* that were read */
    uint64_t n_read, read_bytes;    /* reads, and their bytes, which are rounded out to sectors */
    uint64_t n_repeated;            /* reads that were interrupted, short, failed or wrong, and were made again */
    uint64_t n_stall;               /* times that a step waited, and how long */
    double stall_seconds;
    double read_seconds;            /* while at least one read ran */
    uint64_t cache_bytes;           /* that weights may have in memory now: less while sessions or the system need more */
    uint64_t cache_bytes_max;       /* when the model was opened */
} hearth_storage_stats;

/* False, and zeros: all weights are in memory, or there is no such layer; or stats->size is too small. Threads: any. */
HEARTH_API bool hearth_model_get_storage(const hearth_model *model, hearth_storage_stats *stats);
/* The same for one layer. Its n_read, read_bytes, n_repeated and read_seconds are 0: reads are counted for all layers
 * together. */
HEARTH_API bool hearth_model_get_layer_storage(const hearth_model *model, uint32_t i_layer,
                                               hearth_storage_stats *stats);

/* ---- text --------------------------------------------------------------- */

typedef enum hearth_tokenize_flags {
    HEARTH_ADD_SPECIAL = 1,   /* add begin- and end-of-text tokens as the vocabulary requires */
    HEARTH_PARSE_SPECIAL = 2, /* parse the texts of control tokens as these tokens: for trusted text only */
} hearth_tokenize_flags;

/* Converts n arbitrary bytes (text may be NULL if n is 0) into *n_ids ids in *ids, to be freed with hearth_free.
 * flags: hearth_tokenize_flags together. A warning counts the bytes that the vocabulary cannot encode. UNSUPPORTED if the
 * kind of the vocabulary is not supported (SentencePiece, BPE, Unigram and WordPiece are; BPE needs a build with PCRE2,
 * WordPiece one with utf8proc). */
HEARTH_API hearth_status hearth_tokenize(const hearth_model *model, const char *text, size_t n,
                                         unsigned flags, int32_t **ids, size_t *n_ids,
                                         hearth_error *err);
/* Frees what hearth_tokenize, hearth_chat_render and hearth_chat_tokenize gave; not free(). */
HEARTH_API void hearth_free(void *memory);

/* -1 if the vocabulary has none, or is not supported. */
HEARTH_API int32_t hearth_token_bos(const hearth_model *model);
/* The same for the end of a text. */
HEARTH_API int32_t hearth_token_eos(const hearth_model *model);
/* True if the token is an end of generation. */
HEARTH_API bool hearth_token_is_eog(const hearth_model *model, int32_t id);

/* Converts a stream of tokens to text; never splits a UTF-8 character. Used by one thread at a time. */
typedef struct hearth_detokenizer hearth_detokenizer;

/* at_start: the tokens start a text (the leading space that the vocabulary implies is stripped); false: they
 * continue one. show_special: control tokens appear by name. UNSUPPORTED: the vocabulary is not; MEMORY. */
HEARTH_API hearth_status hearth_detokenizer_open(const hearth_model *model, bool at_start,
                                             bool show_special, hearth_detokenizer **out,
                                             hearth_error *err);
/* Ends the use of what it gave. */
HEARTH_API void hearth_detokenizer_close(hearth_detokenizer *detokenizer);
/* The bytes that id completes: *n of them, valid until the next call; none for a row of the model that pads the
 * vocabulary. ARGUMENT if id exceeds the rows. */
HEARTH_API hearth_status hearth_detokenizer_push(hearth_detokenizer *detokenizer, int32_t id, const char **text,
                                             size_t *n, hearth_error *err);
/* The held-back bytes of an incomplete character, valid as those of a push. */
HEARTH_API void hearth_detokenizer_flush(hearth_detokenizer *detokenizer, const char **text, size_t *n);

/* ---- chat ----------------------------------------------------------------- */

/* How a conversation becomes the text that a model was trained on: the template in its file, another one, or a
 * format by name. Immutable; any number of threads may use it. */
typedef struct hearth_chat hearth_chat;

/* format NULL: the template in the model's file (tokenizer.chat_template). If it cannot be parsed: a warning, and
 * the format that it most likely implements. UNSUPPORTED if there is none, or no format has that name: the message
 * lists them. */
HEARTH_API hearth_status hearth_chat_open(const hearth_model *model, const char *format,
                                          hearth_chat **out, hearth_error *err);
/* Opens a Jinja template of n bytes, which are copied. Messages name its line. FORMAT for bad syntax, UNSUPPORTED
 * for what this subset does not support, and beyond its limits. */
HEARTH_API hearth_status hearth_chat_open_template(const hearth_model *model, const char *source,
                                                   size_t n, hearth_chat **out, hearth_error *err);
/* What was opened with the chat does not need it any more. */
HEARTH_API void hearth_chat_close(hearth_chat *chat);

/* "template of the file", "template", or the name of a format. */
HEARTH_API const char *hearth_chat_name(const hearth_chat *chat);
/* Names of the formats, in order; NULL past the last. */
HEARTH_API const char *hearth_chat_format(size_t i);

typedef struct hearth_message {
    const char *role;    /* "system", "user", "assistant", "tool": at most 64 letters, digits, - and _; counts as
                            template text */
    const char *content; /* n arbitrary bytes */
    size_t n;
    const char *members; /* a JSON object of more members, in OpenAI's form: "name", "reasoning_content", "tool_calls",
                            "tool_call_id"; or NULL. Arguments of calls, which are a text there, become an object for
                            the template, and are written as that text. Formats by name use none of them */
    const void *reserved[2];
} hearth_message;

typedef struct hearth_chat_options {
    size_t size;                /* of this struct: see Versions above */
    bool add_generation_prompt; /* end the text with the prompt for the model's answer */
    const int64_t *local_time;  /* local time in seconds since 1970, for templates that write the date; NULL: they
                                   get none */
    const char *variables;      /* a JSON object of more variables for the template, or NULL */
    const char *tools;          /* the functions that the model may call, a JSON array in OpenAI's form, or NULL. A
                                   template that shows none is given them as a text of the system's */
} hearth_chat_options;

/* The text of a conversation, *n bytes and a NUL, to be freed with hearth_free. ARGUMENT if the template rejects
 * the messages, or a role is not such a word; FORMAT if the template cannot compute something; UNSUPPORTED beyond
 * its limits, and without a supported vocabulary. */
HEARTH_API hearth_status hearth_chat_render(const hearth_chat *chat, const hearth_message *messages,
                                            size_t n_message, const hearth_chat_options *options,
                                            char **text, size_t *n, hearth_error *err);
/* The ids of a conversation, with one begin-of-text token if the vocabulary requires it. The texts of control
 * tokens become these tokens where the template wrote them, never in message content. Freed with hearth_free;
 * errors as above. */
HEARTH_API hearth_status hearth_chat_tokenize(const hearth_chat *chat, const hearth_message *messages,
                                              size_t n_message, const hearth_chat_options *options,
                                              int32_t **ids, size_t *n_ids, hearth_error *err);

/* ---- answers ---------------------------------------------------------------- */

/* Divides what a chat model generates into reasoning, text and calls of functions, by the marks that its template has.
 * For one answer. Used by one thread at a time, on which fn runs. */
typedef struct hearth_answer hearth_answer;

typedef enum hearth_answer_kind {
    HEARTH_ANSWER_TEXT = 0,
    HEARTH_ANSWER_REASONING,
    HEARTH_ANSWER_CALL,      /* a call begins: the name of its function */
    HEARTH_ANSWER_ARGUMENTS, /* a part of the arguments of that call; all parts together are JSON, if the model kept
                                to its format */
} hearth_answer_kind;

/* n > 0 bytes that are valid during the call; characters are whole where the model generates UTF-8. */
typedef void hearth_answer_fn(void *user, hearth_answer_kind kind, const char *text, size_t n);

typedef struct hearth_answer_options {
    size_t size;             /* of this struct: see Versions above */
    const hearth_chat *chat; /* NULL: all is text */
    bool at_start;           /* as of a detokenizer */
    bool in_reasoning;       /* the prompt has begun the reasoning (hearth_chat_is_reasoning), if the chat has any */
    const char *tools;       /* as given to the chat; NULL: calls of functions are text as any other */
    hearth_answer_fn *fn;    /* gets the parts; must not be NULL */
    void *user;              /* passed to fn: valid until the answer is closed */
} hearth_answer_options;

/* Whether a prompt of hearth_chat_tokenize ends within reasoning; false also for ids out of range. */
HEARTH_API bool hearth_chat_is_reasoning(const hearth_chat *chat, const int32_t *ids, size_t n_ids);

/* ARGUMENT; UNSUPPORTED: the vocabulary is not; MEMORY. */
HEARTH_API hearth_status hearth_answer_open(const hearth_model *model, const hearth_answer_options *options,
                                            hearth_answer **out, hearth_error *err);
/* What was kept back is dropped. */
HEARTH_API void hearth_answer_close(hearth_answer *answer);
/* Takes a token. What may be the beginning of a mark is kept back. ARGUMENT: as hearth_detokenizer_push; MEMORY. */
HEARTH_API hearth_status hearth_answer_push(hearth_answer *answer, int32_t id, hearth_error *err);
/* Gives what was kept back. No token follows. MEMORY. */
HEARTH_API hearth_status hearth_answer_finish(hearth_answer *answer, hearth_error *err);

/* ---- sessions ------------------------------------------------------------- */

/* One sequence of tokens over a model: its KV cache and position. Used by one thread at a time. */
typedef struct hearth_session hearth_session;

/* Value of n_ctx: all positions that the model was trained for. */
#define HEARTH_CTX_TRAINED UINT32_MAX

/* Values of n_batch. AUTO: 256; without a GPU, if weights are read when they are needed, 512 or 1024, as far as what a
 * session needs more for them is at most a 16th of the limit of memory (hearth_model_options.ram). NONE: the session is
 * used in batches only. */
#define HEARTH_BATCH_AUTO 0
#define HEARTH_BATCH_NONE UINT32_MAX

typedef struct hearth_session_options {
    size_t size;       /* of this struct: see Versions above */
    uint32_t n_ctx;    /* positions; 0: as the model was trained, at most 4096; or HEARTH_CTX_TRAINED */
    uint32_t n_batch;  /* prompt tokens per step; or HEARTH_BATCH_AUTO, HEARTH_BATCH_NONE */
    uint32_t n_thread; /* 0: one per physical core */
    bool bf16_dot;     /* compute prompts with BF16 matrices by the CPU's bf16 dot products, with inputs rounded to
                          bf16: an approximation; not in batches of several sessions */
    bool release_window; /* reuse the cache of layers with a window (Gemma, Mistral) behind the window: less memory, but
                            a session that goes back to before the window computes its cache again, and a batch takes
                            at most n_batch of its tokens (256 if that is NONE) */
    bool no_pin;       /* worker threads may run on all cores: see Threads above */
    hearth_kv_type kv; /* element type of the cache; affects the result */
    hearth_selector selector; /* AUTO: the model's. Another one is possible only if the model could have been
                                 opened with it, and is slower */
} hearth_session_options;

/* Zeros, and size. */
HEARTH_API hearth_session_options hearth_session_defaults(void);

/* ARGUMENT; UNSUPPORTED: bf16_dot, a selector; MEMORY: also if it exceeds the limit of the model
 * (hearth_model_options.ram). */
HEARTH_API hearth_status hearth_session_open(const hearth_model *model,
                                             const hearth_session_options *options,
                                             hearth_session **out, hearth_error *err);
/* Also takes it out of a batch that was not run: not while another thread uses that batch. */
HEARTH_API void hearth_session_close(hearth_session *session);

/* Bytes that a session with these options allocates; 0 if that overflows, if the type of the cache does not suit the
 * model, or if an option has a size or a value that does not exist. */
HEARTH_API uint64_t hearth_session_bytes(const hearth_model *model,
                                         const hearth_session_options *options);

/* Appends n tokens and computes the logits after the last one. The bits do not depend on how a text is split into
 * calls. CONTEXT if they do not fit; ARGUMENT; CANCELLED; NUMERIC; IO; MEMORY; DEVICE. After an error the position and the
 * logits are as before. */
HEARTH_API hearth_status hearth_session_eval(hearth_session *session, const int32_t *tokens, size_t n,
                                             hearth_error *err);
/* The evaluation that runs, or else the next one, ends with CANCELLED, within the time of one small unit of work (a read of
 * weights that are in the file is waited for). That ends the cancellation: evaluations behind it run. From any thread,
 * also while the session is in use, and from a signal handler; not during or after hearth_session_close. Evaluations by a
 * hearth_batch are cancelled by hearth_batch_cancel. */
HEARTH_API void hearth_session_cancel(hearth_session *session);
/* float[n_vocab] after the last token, valid until the next call on the session. NULL: before the first token, and,
 * until a token is evaluated, after hearth_session_truncate to a smaller position, hearth_session_eval_hidden, and a
 * hearth_session_restore that failed while it read, or of a session that had none. To have them again, truncate to one
 * position less and evaluate that token. */
HEARTH_API const float *hearth_session_logits(const hearth_session *session);

/* As eval, but passes the logits of every token to fn, in order, on the calling thread; fn NULL: as eval. A status other
 * than HEARTH_OK from fn, which may fill in err, stops it and is returned (ARGUMENT for one that does not exist), with
 * the position as before. fn may call functions that only tell; others of the model or its sessions it must not. */
typedef hearth_status hearth_logits_fn(void *user, size_t i_token, const float *logits,
                                       hearth_error *err);
HEARTH_API hearth_status hearth_session_eval_each(hearth_session *session, const int32_t *tokens,
                                                  size_t n, hearth_logits_fn *fn, void *user,
                                                  hearth_error *err);

/* As eval_each, but passes float[d_model] in place of logits: what the last layer makes of each token, normed as for the
 * head. Embeddings of texts are means of them, or the last one. fn NULL is an error; hearth_session_logits is NULL after
 * success. UNSUPPORTED with a device. */
HEARTH_API hearth_status hearth_session_eval_hidden(hearth_session *session, const int32_t *tokens,
                                                    size_t n, hearth_logits_fn *fn, void *user,
                                                    hearth_error *err);

/* The number of its tokens. */
HEARTH_API uint32_t hearth_session_position(const hearth_session *session);
/* The tokens before the position: int32_t[position]. Valid until the next call on the session. */
HEARTH_API const int32_t *hearth_session_tokens(const hearth_session *session);
/* How many of them, from the first on, are in the cache. Fewer than position after a truncation (recurrent layers;
 * release_window), or if a file without a cache was restored: the next evaluation computes the others again. */
HEARTH_API uint32_t hearth_session_n_cached(const hearth_session *session);
/* Its n_ctx and n_thread, as chosen; n_thread 0: it is used in batches only. */
HEARTH_API uint32_t hearth_session_n_ctx(const hearth_session *session);
HEARTH_API uint32_t hearth_session_n_thread(const hearth_session *session);
/* Removes all tokens from position on; the logits are gone, unless position is the number of tokens. ARGUMENT if it
 * exceeds that, or the session is in a batch that was not run. If the cache before position was released
 * (release_window), the next evaluation computes it again. */
HEARTH_API hearth_status hearth_session_truncate(hearth_session *session, uint32_t position,
                                                 hearth_error *err);

/* A copy of a session at its position, with the same options. Both share the cache of their common tokens, on a device
 * too; pages of 32 positions are copied when one of them writes there. The copy reserves memory for all of its
 * positions, as any other session. MEMORY; ARGUMENT: the session is in a batch that was not run. */
HEARTH_API hearth_status hearth_session_fork(const hearth_session *session, hearth_session **out, hearth_error *err);
/* Writes tokens, cache and logits to a file, with a checksum. What lies on a device is not written, but computed again
 * after hearth_session_restore. IO, MEMORY; ARGUMENT: the session is in a batch that was not run. */
HEARTH_API hearth_status hearth_session_save(const hearth_session *session, const char *path, hearth_error *err);
/* Replaces the session's tokens by those of a file. What follows has the bits of the saved session. Refuses files of
 * other models, options and versions, and damaged ones (ARGUMENT, UNSUPPORTED, FORMAT; CONTEXT: n_ctx is too small):
 * the session is unchanged. If the file changes while it is read, the session is empty after the error. */
HEARTH_API hearth_status hearth_session_restore(hearth_session *session, const char *path, hearth_error *err);

/* Starts counting, from zero, how many neurons of each layer are not zero, for tokens that the session evaluates
 * itself (not in batches). Costs a pass over the hidden values. Nothing is counted on a device, nor where weights are read
 * when they are needed. */
HEARTH_API void hearth_session_enable_sparsity_stats(hearth_session *session, bool on);
/* share[n_layer], or NULL: active neurons per token and layer since counting started, 0 to 1. Returns the number of
 * tokens counted. */
HEARTH_API uint64_t hearth_session_sparsity_stats(const hearth_session *session, double *share);

/* ---- batches -------------------------------------------------------------- */

/* Evaluates several sessions of one model at once: weights are read once for all. A session's bits do not depend
 * on the other sessions. Used by one thread at a time, which also uses the sessions in it. */
typedef struct hearth_batch hearth_batch;

/* Up to n_tok tokens per run, 1 to 65536; n_thread 0: one per physical core. ARGUMENT; MEMORY. */
HEARTH_API hearth_status hearth_batch_open(const hearth_model *model, uint32_t n_tok, uint32_t n_thread,
                                           hearth_batch **out, hearth_error *err);
/* Its worker threads may run on all cores from now on: see Threads above. */
HEARTH_API void hearth_batch_unpin(hearth_batch *batch);
/* Also takes out the sessions that are in it. */
HEARTH_API void hearth_batch_close(hearth_batch *batch);
/* Appends n > 0 tokens of a session to the batch, which must have capacity for all. A session can be in a batch only
 * once. Closing it removes it. CONTEXT: they do not fit into its context; ARGUMENT. After an error both are as before. */
HEARTH_API hearth_status hearth_batch_add(hearth_batch *batch, hearth_session *session,
                                          const int32_t *tokens, size_t n, hearth_error *err);
/* Evaluates the batch. Each session then has the logits after its last token, and the batch is empty. After an error
 * (CANCELLED; NUMERIC; IO; MEMORY; DEVICE) the positions and logits of the sessions are as before, and the batch keeps its
 * tokens: run it again, or clear it. */
HEARTH_API hearth_status hearth_batch_run(hearth_batch *batch, hearth_error *err);
/* As hearth_session_cancel, for hearth_batch_run. */
HEARTH_API void hearth_batch_cancel(hearth_batch *batch);
/* Takes out all sessions, which are as before they were added. */
HEARTH_API void hearth_batch_clear(hearth_batch *batch);

/* ---- sampling --------------------------------------------------------------- */

typedef struct hearth_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -infinity bans the token */
    uint32_t reserved[2];
} hearth_logit_bias;

/* Applied in this order: bias, penalties, top-k, typical, top-p, min-p, temperature, draw. Zero turns each of them off:
 * {.temperature = 0.7f} draws from all tokens. */
typedef struct hearth_sampler_options {
    size_t size;             /* of this struct: see Versions above */
    float temperature;       /* 0: greedy (the largest logit, the lowest id among equals); at most 100 */
    int32_t top_k;           /* 0: all */
    float typical_p;         /* above 0, to 1; 0 and 1: off */
    float top_p;             /* above 0, to 1; 0 and 1: off */
    float min_p;             /* 0 to 1; 0: off */
    float repeat_penalty;    /* 0.01 to 100; 0 and 1: off */
    float presence_penalty;  /* -100 to 100; 0: off */
    float frequency_penalty; /* -100 to 100; 0: off */
    int32_t repeat_last_n;   /* tokens that penalties consider, at most 1048576; 0: 64, -1: all */
    uint64_t seed;           /* same seed, same text, on every machine */
    const hearth_logit_bias *bias; /* [n_bias] */
    size_t n_bias;
} hearth_sampler_options;

/* Zeros, and size: greedy. */
HEARTH_API hearth_sampler_options hearth_sampler_defaults(void);

/* Draws the tokens of one text. Used by one thread at a time. */
typedef struct hearth_sampler hearth_sampler;
/* ARGUMENT; MEMORY. */
HEARTH_API hearth_status hearth_sampler_open(const hearth_model *model,
                                             const hearth_sampler_options *options,
                                             hearth_sampler **out, hearth_error *err);
/* A session that follows the sampler with drafts keeps it. */
HEARTH_API void hearth_sampler_close(hearth_sampler *sampler);
/* Adds a token of the prompt, or a sampled one, to the history of the penalties; ids out of range are not added. */
HEARTH_API void hearth_sampler_accept(hearth_sampler *sampler, int32_t id);
/* Samples a token from logits[n_vocab]. ARGUMENT: logits is NULL, as hearth_session_logits may be; NUMERIC: one of them is
 * NaN or +infinity, or all are banned. Nothing is drawn then. */
HEARTH_API hearth_status hearth_sampler_sample(hearth_sampler *sampler, const float *logits, int32_t *id,
                                             hearth_error *err);

/* ---- constrained text --------------------------------------------------------- */

/* Which texts a model may generate: JSON, JSON of a schema, one of several texts, or those of a grammar. It follows one
 * text, token by token:
 *     hearth_constraint_mask(c, logits); hearth_sampler_sample(...); hearth_constraint_accept(c, id);
 * until hearth_constraint_get_end says that it is complete. The text is that of a detokenizer which was opened with
 * at_start false. Used by one thread at a time; copies are independent of one another. */
typedef struct hearth_constraint hearth_constraint;

typedef enum hearth_constraint_kind {
    HEARTH_CONSTRAINT_JSON_OBJECT = 0, /* any JSON object */
    HEARTH_CONSTRAINT_JSON_SCHEMA,     /* JSON of a schema; needs a build with jansson */
    HEARTH_CONSTRAINT_CHOICES,         /* one of several texts */
    HEARTH_CONSTRAINT_GRAMMAR,         /* a grammar as llama.cpp has them (GBNF), from its rule root */
    HEARTH_CONSTRAINT_CALLS,           /* calls of functions, as the template of a chat writes them; needs jansson */
} hearth_constraint_kind;

typedef struct hearth_constraint_options {
    size_t size;                /* of this struct: see Versions above */
    hearth_constraint_kind kind;
    bool one_call;              /* CALLS: exactly one; else one or more, where the template can write several */
    bool in_reasoning;          /* the text begins within reasoning of the chat (if it has none, this has no effect),
                                   which is free; the constraint holds behind it */
    const char *text;           /* of the schema, the grammar, or the functions (a JSON array in OpenAI's form): n bytes,
                                   at most 256 KiB */
    size_t n;
    const char *const *choices; /* [n_choice] texts, none of them empty */
    size_t n_choice;
    const hearth_chat *chat;    /* for CALLS and in_reasoning; NULL: as of a template that shows no functions */
} hearth_constraint_options;

/* docs/constrain.md lists what of JSON schema is supported. Messages name the path in a schema, or the line and column
 * in a grammar. FORMAT: it is none; UNSUPPORTED: a keyword or construct that is not supported, a limit, or the
 * vocabulary of the model is not; ARGUMENT: it allows no text; MEMORY. The first constraint of a model indexes its
 * vocabulary (hearth_constraint_prepare). */
HEARTH_API hearth_status hearth_constraint_open(const hearth_model *model, const hearth_constraint_options *options,
                                                hearth_constraint **out, hearth_error *err);
/* Indexes the vocabulary, unless that was done: some tenths of a second, in which other threads may use the model. So
 * the first constraint does not wait for it. UNSUPPORTED: the vocabulary is not; MEMORY. */
HEARTH_API hearth_status hearth_constraint_prepare(const hearth_model *model, hearth_error *err);
/* A constraint at the same place of the same text. What it computes is shared. MEMORY. */
HEARTH_API hearth_status hearth_constraint_copy(const hearth_constraint *constraint, hearth_constraint **out,
                                                hearth_error *err);
/* Copies stay, and a scheduler whose request uses it keeps it. */
HEARTH_API void hearth_constraint_close(hearth_constraint *constraint);
/* Sets logits[n_vocab] of all tokens that cannot follow to -infinity, before they are sampled. Ends of generation can
 * follow where the text may end, and where it must, nothing else. UNSUPPORTED: no token can follow, because of the
 * vocabulary, or a limit; ARGUMENT: the text has ended; MEMORY. */
HEARTH_API hearth_status hearth_constraint_mask(hearth_constraint *constraint, float *logits, hearth_error *err);
/* Goes on with a token. ARGUMENT: it cannot follow, nothing has changed; UNSUPPORTED: a limit; MEMORY. */
HEARTH_API hearth_status hearth_constraint_accept(hearth_constraint *constraint, int32_t id, hearth_error *err);

typedef enum hearth_constraint_end {
    HEARTH_CONSTRAINT_GOES_ON = 0, /* the text is not complete */
    HEARTH_CONSTRAINT_MAY_END,     /* it is, but more can follow */
    HEARTH_CONSTRAINT_ENDS,        /* it is, and nothing but an end of generation can follow */
} hearth_constraint_end;
/* Whether the text is complete. NULL: GOES_ON. */
HEARTH_API hearth_constraint_end hearth_constraint_get_end(const hearth_constraint *constraint);

/* ---- drafts ------------------------------------------------------------------- */

/* Speculative decoding: tokens that may follow, a draft, are evaluated together with the next token of a text. Those
 * that are then sampled cost no step of their own. Tokens and logits are those that come without drafts, to the bit. */

/* Values of n_draft. AUTO: as many as are worth their time, by the times of steps and by how often drafts came true.
 * NONE: there are no drafts. */
#define HEARTH_DRAFT_AUTO 0
#define HEARTH_DRAFT_NONE UINT32_MAX

/* Of a session (hearth_session_use_drafts) and of a scheduler: zeros have the same meaning for both. */
typedef struct hearth_draft_options {
    uint32_t n_draft;          /* tokens of a draft at most, 1 to 15; or HEARTH_DRAFT_AUTO, HEARTH_DRAFT_NONE */
    bool no_mtp;               /* not by a block of the model's own file */
    const hearth_model *model; /* a small model of the same vocabulary, whose weights are in memory; what uses it keeps
                                  it. It makes drafts where the text does not repeat what it had. NULL: a block of
                                  the model's own file that predicts a token further (MTP), if it has one */
    uint64_t reserved[4];
} hearth_draft_options;

/* From now on hearth_session_eval of a single token may evaluate a draft with it, and then needs no evaluation for
 * tokens that were drafted. sampler: that of the text, which a model follows when it drafts, and which the session
 * keeps; NULL: the model drafts the most likely tokens. There are no drafts,
 * and a warning says why if n_draft or a model was given, where a sequence cannot go back (release_window), weights are
 * read when they are needed, or bits depend on the number of tokens (bf16_dot; a GPU that is not bit-exact). ARGUMENT:
 * the session has no step of its own, or the vocabulary of the model is another one; MEMORY. */
HEARTH_API hearth_status hearth_session_use_drafts(hearth_session *session, const hearth_draft_options *options,
                                                   const hearth_sampler *sampler, hearth_error *err);

typedef struct hearth_draft_stats {
    uint64_t n_drafted, n_accepted; /* tokens that were evaluated as drafts, and those of them that were the next */
    uint64_t reserved[2];
} hearth_draft_stats;
/* Of the session so far; zeros without drafts. ARGUMENT. */
HEARTH_API hearth_status hearth_session_get_draft_stats(const hearth_session *session, hearth_draft_stats *stats);

/* ---- scheduling ------------------------------------------------------------- */

/* Evaluates requests of several users over one model, and samples their tokens. Each step takes one token of every
 * request that generates, perhaps with a draft, and a part of the prompts of others. Keys and values lie in pages of one
 * budget; requests that begin with the same tokens share them. What a request gets does not depend on other requests. One thread. */
typedef struct hearth_scheduler hearth_scheduler;
#define HEARTH_KEPT_NONE UINT32_MAX /* value of n_kept: the cache of a request ends with it */
typedef struct hearth_scheduler_options {
    size_t size;         /* of this struct: see Versions above */
    uint32_t n_position; /* of the cache, for all requests and what is kept of earlier ones; 0: 4 times n_ctx, with
                            a device all that it was opened for (gpu.n_ctx) */
    uint32_t n_ctx;      /* of a request at most, as in hearth_session_options */
    uint32_t n_batch;    /* tokens of a step at most; 0: 256 */
    uint32_t n_running;  /* requests in a step at most; 0: 16 */
    uint32_t n_kept;     /* earlier requests whose cache is kept, at most; 0: 64; or HEARTH_KEPT_NONE */
    uint32_t n_thread;   /* 0: one per physical core */
    bool no_pin;         /* worker threads may run on all cores: see Threads above */
    hearth_kv_type kv;
    double max_delay;    /* seconds that a step may take longer because of prompts, while others generate; 0: 0.15 */
    hearth_draft_options draft; /* of all requests; a warning says why there are none */
} hearth_scheduler_options;

/* What happened to a request. */
typedef enum hearth_request_state {
    HEARTH_REQUEST_TOKEN,     /* a token was sampled */
    HEARTH_REQUEST_END,       /* the text has ended: by a token that ends generation, or the constraint is complete */
    HEARTH_REQUEST_LENGTH,    /* max_token, or the context, is reached */
    HEARTH_REQUEST_STOPPED,   /* by its function */
    HEARTH_REQUEST_CANCELLED, /* by hearth_scheduler_cancel */
    HEARTH_REQUEST_FAILED,    /* error says why */
} hearth_request_state;

typedef struct hearth_request_event {
    hearth_request_state state; /* all others than TOKEN are the last event of a request */
    int32_t token;              /* TOKEN, END; -1: the constraint is complete */
    const float *logits;        /* float[n_vocab] that the model computed, while the function runs; TOKEN, END, or NULL */
    uint32_t n_cached;          /* tokens of the prompt that were not evaluated, as an earlier request had them */
    hearth_draft_stats draft;   /* of the request so far */
    const hearth_error *error;  /* FAILED, and valid while the function runs */
    uint64_t reserved[4];
} hearth_request_event;

/* TOKEN: false ends the request. Called within functions of the scheduler, on their thread; it can call none of them, but
 * hearth_request_cancel and those that only tell. */
typedef bool hearth_request_fn(void *user, const hearth_request_event *event);

typedef struct hearth_request {
    size_t size;           /* of this struct: see Versions above */
    const int32_t *tokens; /* [n_token] the prompt */
    size_t n_token;
    uint32_t max_token;                    /* to generate; 0: until the context ends */
    bool prompt_only;                      /* nothing is generated: the prompt is evaluated and kept for later requests,
                                              then LENGTH ends it */
    bool ignore_end;                       /* tokens that end generation are as others */
    const hearth_sampler_options *sampler; /* NULL: the defaults */
    hearth_constraint *constraint;         /* at the beginning of its text; the scheduler keeps and uses it until the
                                              request ends. NULL: all texts are allowed */
    uint64_t owner; /* requests begin in turns of owners, and share the cache of their own owner only */
    hearth_request_fn *fn;
    void *user; /* passed to fn: valid until the request ends, or the scheduler is closed */
} hearth_request;

/* Zeros, and size. */
HEARTH_API hearth_scheduler_options hearth_scheduler_defaults(void);
/* ARGUMENT; MEMORY. */
HEARTH_API hearth_status hearth_scheduler_open(const hearth_model *model, const hearth_scheduler_options *options,
                                               hearth_scheduler **out, hearth_error *err);
/* Without further events. */
HEARTH_API void hearth_scheduler_close(hearth_scheduler *scheduler);
/* *id: of the request, never 0. CONTEXT: its prompt, with one token more, fits neither into n_ctx nor n_position;
 * ARGUMENT; MEMORY. */
HEARTH_API hearth_status hearth_scheduler_add(hearth_scheduler *scheduler, const hearth_request *request, uint64_t *id,
                                              hearth_error *err);
/* Ends a request, if there is one of that id; its function is called. */
HEARTH_API void hearth_scheduler_cancel(hearth_scheduler *scheduler, uint64_t id);
/* The same from any thread, and from a signal handler: a step that runs ends early, and hearth_scheduler_step calls the
 * request's function, the one that runs or else the next. False: 64 requests are waiting for that; call it again after a
 * step. Not during or after hearth_scheduler_close. */
HEARTH_API bool hearth_request_cancel(hearth_scheduler *scheduler, uint64_t id);
/* A paused request keeps its place and its pages, but takes part in no step. */
HEARTH_API void hearth_scheduler_pause(hearth_scheduler *scheduler, uint64_t id, bool is_paused);
/* Evaluates one batch, and never waits: a program with nothing to evaluate waits by its own means until it has a request
 * to add. *more: whether a further step can have something to do; false: no request is left, or only paused ones.
 * CANCELLED: while hearth_model_options.cancel is not 0 nothing is evaluated, and *more is as before. What fails in a step
 * is told to the requests of it. more may be NULL. ARGUMENT: it is called within a function of a request. */
HEARTH_API hearth_status hearth_scheduler_step(hearth_scheduler *scheduler, bool *more, hearth_error *err);

/* Writes the cache of earlier requests to a folder, one file each, with checksums, unless it is there; deletes files of
 * texts that others continue, and keeps at most max_size bytes of those that lie there. Restored by a scheduler of
 * the same model and options, requests find it again; files of others and damaged ones are named in a warning and left
 * out. With a device nothing is found again. progress: of the bytes of each file; NULL: none. IO, MEMORY, CANCELLED:
 * each file that is there is whole. */
HEARTH_API hearth_status hearth_scheduler_save(hearth_scheduler *scheduler, const char *folder,
                                               uint64_t max_size, hearth_progress_fn *progress, void *user,
                                               hearth_error *err);
/* Whether the cache of a request was kept since hearth_scheduler_save succeeded, or hearth_scheduler_restore. */
HEARTH_API bool hearth_scheduler_has_unsaved(const hearth_scheduler *scheduler);
/* Reads such a folder. IO: it cannot be read; MEMORY. */
HEARTH_API hearth_status hearth_scheduler_restore(hearth_scheduler *scheduler, const char *folder, hearth_error *err);

typedef struct hearth_scheduler_stats {
    size_t size; /* set by the caller: see Versions above */
    uint32_t n_waiting, n_running, n_kept;
    uint32_t n_page, n_page_used; /* of layers without a window */
    uint64_t n_prompt, n_cached, n_generated; /* tokens so far: evaluated of prompts, found, sampled */
    uint64_t n_preempted;                     /* requests whose pages others took, and that were evaluated again */
    hearth_draft_stats draft;
} hearth_scheduler_stats;
/* ARGUMENT: stats->size is too small; nothing is written. */
HEARTH_API hearth_status hearth_scheduler_get_stats(const hearth_scheduler *scheduler, hearth_scheduler_stats *stats);

/* As hearth_session_enable_sparsity_stats and hearth_session_sparsity_stats, for the tokens of all requests. */
HEARTH_API void hearth_scheduler_enable_sparsity_stats(hearth_scheduler *scheduler, bool on);
/* The shares since then, and the number of tokens. */
HEARTH_API uint64_t hearth_scheduler_sparsity_stats(const hearth_scheduler *scheduler, double *share);

/* How far a request is. */
typedef struct hearth_request_progress {
    size_t size;       /* set by the caller: see Versions above */
    bool is_running;   /* false: it waits for its turn, or for pages that others took */
    uint32_t n_before; /* of those that wait: requests that came earlier and wait too */
    uint32_t n_prompt, n_cached, n_generated; /* tokens: of the prompt, of those found, sampled */
    uint32_t n_evaluated;                     /* tokens of the prompt whose keys and values are there, found ones too */
} hearth_request_progress;
/* False: no request has that id, or out->size is too small; nothing is written. */
HEARTH_API bool hearth_scheduler_get_progress(const hearth_scheduler *scheduler, uint64_t id,
                                              hearth_request_progress *out);

#ifdef __cplusplus
}
#endif
#endif
