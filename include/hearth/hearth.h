/* Hearth: run large language models on the machine at hand.
 *
 * The public interface of libhearth, and nothing that is not meant to stay.
 * A model is opened once and shared, immutable; a session is one line of
 * inference over it (its own KV cache, one thread at a time); a batch steps
 * several sessions at once; a sampler turns logits into a token.
 *
 * Every function that can fail returns a hearth_status and fills in an optional
 * hearth_error with one line for a person. Functions that open something take NULL
 * for default options. The library never prints, exits or aborts. The bits of a
 * result depend on the file, the tokens and the options that name an approximation
 * (here: the KV type), and on nothing else. */
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
    HEARTH_ERROR_IO,          /* the system refused a file operation */
    HEARTH_ERROR_FORMAT,      /* a file does not hold what its format asks for */
    HEARTH_ERROR_UNSUPPORTED, /* well formed, but not something this version runs */
    HEARTH_ERROR_ARGUMENT,    /* a parameter is out of its range */
    HEARTH_ERROR_CONTEXT,     /* the context is full */
    HEARTH_ERROR_NUMERIC,     /* a value that must be finite is not */
    HEARTH_ERROR_CANCELLED,   /* the caller asked to stop */
    HEARTH_ERROR_DEVICE,      /* a GPU was lost, did not answer, or its driver failed */
} hearth_status;

/* One line about a failure: file, field, offset, found, expected, remedy.
 * Control bytes that came from outside appear as \xNN. Always terminated. */
typedef struct hearth_error {
    hearth_status status;
    char message[600];
} hearth_error;

/* A short English name of a status ("out of memory"). Never NULL. */
HEARTH_API const char *hearth_status_name(hearth_status status);

/* "0.1.0" */
HEARTH_API const char *hearth_version(void);

/* ---- log --------------------------------------------------------------- */

typedef enum hearth_log_level { HEARTH_LOG_WARN = 1, HEARTH_LOG_INFO = 2 } hearth_log_level;
typedef void hearth_log_fn(void *user, hearth_log_level level, const char *line);

/* Warnings and notes go to fn (one line, no newline); NULL drops them, which is
 * the default. Process-wide; set it before other threads use the library. fn is called from any of them, and
 * must not call the library. */
HEARTH_API void hearth_log_set(hearth_log_fn *fn, void *user);

/* ---- models ------------------------------------------------------------- */

/* An opened model: weights, vocabulary, hyper-parameters. Immutable; any number
 * of sessions and threads may use one. */
typedef struct hearth_model hearth_model;

/* Called from the opening thread while weights are read; false cancels. What goes to a device counts by itself,
 * and then what is read for the CPU, each from 0 on. */
typedef bool hearth_progress_fn(void *user, uint64_t done_bytes, uint64_t total_bytes);

/* Who computes: which neurons of a layer's feed-forward network a token reads. */
typedef enum hearth_selector {
    HEARTH_SELECTOR_AUTO = 0,  /* what the file was made for; else gate or dense, which are exact */
    HEARTH_SELECTOR_DENSE,     /* all */
    HEARTH_SELECTOR_GATE,      /* those whose activation is not zero: exact; of activations with zeros */
    HEARTH_SELECTOR_PREDICTOR, /* those that a small network of the file marks: approximate */
    HEARTH_SELECTOR_THRESHOLD, /* those whose activation is large enough: approximate */
} hearth_selector;

/* "gate" */
HEARTH_API const char *hearth_selector_name(hearth_selector selector);

typedef enum hearth_kv_type {
    HEARTH_KV_F16 = 0,
    HEARTH_KV_F32 = 1,
    HEARTH_KV_Q8_0 = 2, /* rounds keys and values to 8 bits, 32 at a time: an approximation, with about
                           half the bytes of F16. It wants heads of a multiple of 32 values */
} hearth_kv_type;

/* A GPU beside the CPU: the first layers of a model, as many as fit, and their part of the KV caches of
 * all sessions. Quantised weights give the bits of the CPU there, if the device passes a test when the
 * model is opened; F32, F16 and BF16 do not. */
typedef struct hearth_gpu_options {
    const char *device; /* "auto" (a card, where there is one), "none", "vulkan:0" and on, a UUID, "null",
                           which computes on the CPU as a GPU would, "sim:FILE", which does so with the
                           memory, times and faults of the card that a file describes; NULL: none */
    uint64_t vram;      /* bytes at most; 0: what is free there */
    uint32_t n_ctx;     /* positions of all sessions together; 0 and HEARTH_CTX_TRAINED: those of one, as in
                           hearth_session_options. Without a device too, memory for them is asked for before
                           weights are read */
    uint32_t n_batch;   /* prompt tokens at once; 0: 256 */
    hearth_kv_type kv;  /* of all sessions */
    /* What lies there, of a model that does not fit: "plan" (as is fastest by what this machine is measured
     * to do; some seconds, once), "even" (the same share of each layer), "layers:N" (the first N layers, as many of
     * them as fit, and the head where N is larger than their number), or a file of hearth plan, for this
     * model and device. NULL: plan for cards, even for what computes on the CPU. */
    const char *placement;
    bool bit_exact;     /* refuse a device that would not give the CPU's bits: UNSUPPORTED */
} hearth_gpu_options;

typedef struct hearth_model_options {
    uint32_t n_thread; /* that read the weights; 0: one for each physical core */
    bool mmap;         /* map the file in place of reading it: same results, less memory, slower decode */
    hearth_progress_fn *progress; /* may be NULL */
    void *progress_user;
    bool no_repack;           /* leave weights as the file has them, not as kernels like them: same results, slower */
    const char *predictors, *thresholds; /* files of hearth predictors and hearth thresholds, or NULL */
    hearth_selector selector; /* weights are laid out for it; sessions use it unless they say otherwise */
    const char *activation;   /* of the feed-forward network ("relu", ...), in place of the file's; or NULL */
    hearth_gpu_options gpu;   /* zeros: none */
    bool allow_unused; /* open a file with tensors that this library has no use for, whose results may be wrong */
    /* A flag that a signal handler or another thread may set: while it is not 0, evaluations of this model end
     * with CANCELLED, within the time of a small piece of work. It outlives the model. NULL: none */
    const volatile int *cancel;
} hearth_model_options;

HEARTH_API hearth_model_options hearth_model_defaults(void);

/* For programs that use mmap: a file that shrinks while it is mapped raises SIGBUS. A
 * handler for it (SA_SIGINFO) that finds the address of the fault to be in a mapped
 * model gets true, and may return: zeros stand there now, and the evaluation under way,
 * and all later ones of that model, end with HEARTH_ERROR_IO. On false the fault is not
 * this library's. Safe in a signal handler. */
HEARTH_API bool hearth_handle_sigbus(const void *address);

/* Opens a GGUF file (all parts of a split one). A vocabulary that is not
 * supported does not hinder opening: only functions on text then fail. */
HEARTH_API hearth_status hearth_model_open(const char *path, const hearth_model_options *options,
                                           hearth_model **out, hearth_error *err);

/* The same over size bytes in memory, which must stay until the model is closed;
 * weights are used where they lie. name serves in messages. */
HEARTH_API hearth_status hearth_model_open_memory(const void *data, size_t size, const char *name,
                                                  const hearth_model_options *options,
                                                  hearth_model **out, hearth_error *err);

/* All sessions and batches of the model must be closed before. NULL is allowed. */
HEARTH_API void hearth_model_close(hearth_model *model);

/* Texts stay as they are until the model is closed, whatever its device does meanwhile; what they say may no
 * longer be so by then: ask again. */
typedef struct hearth_model_info {
    const char *path;         /* as given */
    const char *name;         /* general.name, "" when there is none; any bytes may occur */
    bool synthetic;           /* the name says that the weights are random: figures must be labelled */
    const char *architecture; /* "llama" */
    const char *activation;   /* of the feed-forward network: "silu", "drelu", ... */
    const char *cpu;          /* level of the kernels: "avx512", ... */
    bool sparse_activation;   /* the activation gives exact zeros */
    hearth_selector selector; /* of its sessions, unless they say otherwise; never AUTO */
    const char *selector_why; /* what chose it: "as asked for", ... */
    bool down_transposed;     /* down lies neuron by neuron: what does not fire is not read */
    uint32_t n_layer, d_model, n_head, n_head_kv, d_head, d_ff, n_vocab;
    uint32_t n_ctx_train;     /* context that the model was trained for */
    uint64_t n_parameter;
    uint64_t weight_bytes;    /* of all tensors in use, in the file or beside it */
    uint64_t bytes_per_token; /* of weights that one generated token reads, were no neuron skipped */
    const char *gpu;          /* the device's name; NULL: all is the CPU's */
    const char *gpu_note;     /* why nothing lies on a device, or less than at first; "" */
    uint32_t gpu_n_layer;     /* layers that lie there: the first ones */
    double gpu_neuron_share;  /* of each the first of its neurons: their share, 0 to 1 */
    double gpu_predicted_tps; /* tokens a second that the placement's plan expects; 0: it says nothing */
    bool gpu_head;            /* and the output matrix */
    bool gpu_bit_exact;       /* all so far has the bits of the CPU, also what a device computed that was left */
    const char *gpu_strict_note; /* why not: "output.weight is F16"; "" */
    uint64_t gpu_bytes;       /* allocated there */
    bool gpu_simulated;       /* it pretends to be a card: figures must be labelled */
    double gpu_sim_seconds;   /* seconds since it was opened on its own clock, where that is charged with what this
                                 machine's CPU computes too; 0: seconds are those of this machine */
} hearth_model_info;

HEARTH_API void hearth_model_get_info(const hearth_model *model, hearth_model_info *info);

/* ---- text --------------------------------------------------------------- */

typedef enum hearth_tokenize_flags {
    HEARTH_ADD_SPECIAL = 1,   /* begin- and end-of-text tokens as the vocabulary asks for */
    HEARTH_PARSE_SPECIAL = 2, /* texts of control tokens become these tokens: for trusted text only */
} hearth_tokenize_flags;

/* Turns n bytes (any bytes) into *n_ids ids in *ids, to be freed with
 * hearth_free. Bytes that the vocabulary cannot hold are counted in a warning.
 * UNSUPPORTED when the vocabulary is of a kind that is not (SentencePiece and
 * byte-level BPE are; the latter needs a build with PCRE2). */
HEARTH_API hearth_status hearth_tokenize(const hearth_model *model, const char *text, size_t n,
                                         unsigned flags, int32_t **ids, size_t *n_ids,
                                         hearth_error *err);
HEARTH_API void hearth_free(void *memory);

/* -1 where the vocabulary has none, or is not supported. */
HEARTH_API int32_t hearth_token_bos(const hearth_model *model);
HEARTH_API int32_t hearth_token_eos(const hearth_model *model);
/* Whether a generation ends with this token. */
HEARTH_API bool hearth_token_is_eog(const hearth_model *model, int32_t id);

/* Tokens to text as they come; a UTF-8 character is never cut. */
typedef struct hearth_detokenizer hearth_detokenizer;

/* at_start: the tokens begin a text (the space in front that the vocabulary
 * implies is dropped); false when they continue one. show_special: control tokens
 * appear by name. */
HEARTH_API hearth_status hearth_detokenizer_open(const hearth_model *model, bool at_start,
                                             bool show_special, hearth_detokenizer **out,
                                             hearth_error *err);
HEARTH_API void hearth_detokenizer_close(hearth_detokenizer *decoder);
/* The bytes that id completes: *n of them, valid until the next call; none for a
 * row of the model that pads the vocabulary. ARGUMENT when id is beyond the rows. */
HEARTH_API hearth_status hearth_detokenizer_push(hearth_detokenizer *decoder, int32_t id, const char **text,
                                             size_t *n, hearth_error *err);
/* What was held back of an incomplete character. */
HEARTH_API void hearth_detokenizer_flush(hearth_detokenizer *decoder, const char **text, size_t *n);

/* ---- chat ----------------------------------------------------------------- */

/* How a conversation becomes the text that a model was trained on: the template in
 * its file, another one, or a format by name. Immutable; close it before the model. */
typedef struct hearth_chat hearth_chat;

/* format NULL: the template in the model's file (tokenizer.chat_template); when it
 * cannot be parsed, a warning and the format that it most likely means. UNSUPPORTED
 * when there is none, or no format has that name: the message lists them. */
HEARTH_API hearth_status hearth_chat_open(const hearth_model *model, const char *format,
                                          hearth_chat **out, hearth_error *err);
/* By n bytes of a Jinja template, which are copied; messages name its line. FORMAT for
 * bad syntax, UNSUPPORTED for what this subset does not know, and beyond its limits. */
HEARTH_API hearth_status hearth_chat_open_template(const hearth_model *model, const char *source,
                                                   size_t n, hearth_chat **out, hearth_error *err);
HEARTH_API void hearth_chat_close(hearth_chat *chat);

/* "template of the file", "template", or the name of a format. */
HEARTH_API const char *hearth_chat_name(const hearth_chat *chat);
/* Names of the formats, in order; NULL behind the last. */
HEARTH_API const char *hearth_chat_format(size_t i);

typedef struct hearth_message {
    const char *role;    /* "system", "user", "assistant", "tool": at most 64 letters, digits,
                            - and _; counts as the template's own text */
    const char *content; /* n bytes of any kind */
    size_t n;
} hearth_message;

typedef struct hearth_chat_options {
    bool add_generation_prompt; /* ends so that the model answers */
    const int64_t *local_time;  /* seconds since 1970 as clocks here show them, for templates that
                                   write the date; NULL: they are not told */
    const char *variables;      /* a JSON object of what else the template is to see, or NULL */
} hearth_chat_options;

/* The text of a conversation, *n bytes and a NUL, to be freed with hearth_free.
 * ARGUMENT when the template refuses the messages, or a role is no such word; FORMAT
 * for what it cannot compute; UNSUPPORTED beyond its limits, and without a vocabulary
 * that is supported. */
HEARTH_API hearth_status hearth_chat_render(const hearth_chat *chat, const hearth_message *messages,
                                            size_t n_message, const hearth_chat_options *options,
                                            char **text, size_t *n, hearth_error *err);
/* Its ids, with the begin-of-text token once where the vocabulary asks for it. Texts
 * of control tokens become these tokens where the template wrote them, never where a
 * message holds them. Freed with hearth_free; errors as above. */
HEARTH_API hearth_status hearth_chat_tokenize(const hearth_chat *chat, const hearth_message *messages,
                                              size_t n_message, const hearth_chat_options *options,
                                              int32_t **ids, size_t *n_ids, hearth_error *err);

/* ---- sessions ------------------------------------------------------------- */

/* One sequence of tokens over a model: its KV cache and position. Used by one
 * thread at a time. Its other threads are kept on a physical core each, unless the
 * environment has HEARTH_PIN=0; the thread that calls is left where it is. */
typedef struct hearth_session hearth_session;

/* As n_ctx: all positions that the model was trained for. */
#define HEARTH_CTX_TRAINED UINT32_MAX

typedef struct hearth_session_options {
    uint32_t n_ctx;    /* positions; 0: as the model was trained, at most 4096; or HEARTH_CTX_TRAINED */
    uint32_t n_batch;  /* prompt tokens computed at once; 0: this session is stepped by batches only */
    uint32_t n_thread; /* 0: one for each physical core */
    hearth_kv_type kv; /* element type of the cache: part of what decides the result */
    hearth_selector selector; /* AUTO: the model's; others than the model's own only if it could have been
                                 opened with them, and slower then */
    bool bf16_dot;     /* prompts of BF16 matrices by the CPU's products of bf16, with inputs rounded to
                          bf16: an approximation; not in batches of several sessions */
} hearth_session_options;

/* n_ctx 0, n_batch 256, n_thread 0, kv F16. */
HEARTH_API hearth_session_options hearth_session_defaults(void);

HEARTH_API hearth_status hearth_session_open(const hearth_model *model,
                                             const hearth_session_options *options,
                                             hearth_session **out, hearth_error *err);
HEARTH_API void hearth_session_close(hearth_session *session);

/* Bytes that a session with these options allocates; 0 when that overflows, or the type of
 * the cache does not fit the model. */
HEARTH_API uint64_t hearth_session_bytes(const hearth_model *model,
                                         const hearth_session_options *options);

/* Appends n tokens and computes the logits after the last one. The bits do not
 * depend on how a text is cut into calls. CONTEXT when they do not fit: nothing is
 * appended then. After another error the position is where it was. */
HEARTH_API hearth_status hearth_session_eval(hearth_session *session, const int32_t *tokens, size_t n,
                                             hearth_error *err);
/* float[n_vocab] after the last token; NULL before the first. Valid until the
 * next call on the session. */
HEARTH_API const float *hearth_session_logits(const hearth_session *session);

/* As eval, but hands the logits of every token to fn, in order; a status other
 * than HEARTH_OK from fn ends it. fn must not call functions of the model or its sessions. */
typedef hearth_status hearth_logits_fn(void *user, size_t i_token, const float *logits,
                                       hearth_error *err);
HEARTH_API hearth_status hearth_session_eval_each(hearth_session *session, const int32_t *tokens,
                                                  size_t n, hearth_logits_fn *fn, void *user,
                                                  hearth_error *err);

HEARTH_API uint32_t hearth_session_position(const hearth_session *session);
HEARTH_API uint32_t hearth_session_n_ctx(const hearth_session *session);
HEARTH_API uint32_t hearth_session_n_thread(const hearth_session *session);
/* Forgets all tokens from position on. ARGUMENT when there are not so many. */
HEARTH_API hearth_status hearth_session_truncate(hearth_session *session, uint32_t position,
                                                 hearth_error *err);

/* Counts, from now on and from zero, how many neurons of each layer give something
 * else than zero, for tokens that the session evaluates itself (not in batches).
 * Costs a pass over the hidden values. */
HEARTH_API void hearth_session_enable_sparsity_stats(hearth_session *session, bool on);
/* share[n_layer]: live neurons per token and layer since counting began, 0 to 1.
 * Returns the number of tokens counted. */
HEARTH_API uint64_t hearth_session_sparsity_stats(const hearth_session *session, double *share);

/* ---- batches -------------------------------------------------------------- */

/* Steps several sessions of one model at once: weights are read once for all. A
 * session's bits do not depend on its company. */
typedef struct hearth_batch hearth_batch;

/* Up to n_tok tokens at once; n_thread 0: one for each physical core. */
HEARTH_API hearth_status hearth_batch_open(const hearth_model *model, uint32_t n_row, uint32_t n_thread,
                                           hearth_batch **out, hearth_error *err);
HEARTH_API void hearth_batch_close(hearth_batch *batch);
/* Appends n tokens of a session to the batch, which must hold them all. A session
 * stands in a batch once; closing it takes it out again. */
HEARTH_API hearth_status hearth_batch_add(hearth_batch *batch, hearth_session *session,
                                          const int32_t *tokens, size_t n, hearth_error *err);
/* Computes what was added; each session then has the logits after its last token.
 * Empties the batch. */
HEARTH_API hearth_status hearth_batch_run(hearth_batch *batch, hearth_error *err);

/* ---- sampling --------------------------------------------------------------- */

typedef struct hearth_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -infinity bans the token */
} hearth_logit_bias;

/* Applied in this order: bias, penalties, top-k, typical, top-p, min-p,
 * temperature, draw. */
typedef struct hearth_sampler_options {
    float temperature;       /* 0: greedy (the largest logit, the lowest id among equals) */
    int32_t top_k;           /* 0: all */
    float typical_p;         /* 1: off */
    float top_p;             /* 1: off */
    float min_p;             /* 0: off */
    float repeat_penalty;    /* 1: off */
    float presence_penalty;  /* 0: off */
    float frequency_penalty; /* 0: off */
    int32_t repeat_last_n;   /* tokens that penalties look at; -1: all, 0: none */
    uint64_t seed;           /* same seed, same text, on every machine */
    const hearth_logit_bias *bias;
    size_t n_bias;
} hearth_sampler_options;

/* temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, no penalties, seed 0. */
HEARTH_API hearth_sampler_options hearth_sampler_defaults(void);

typedef struct hearth_sampler hearth_sampler;
HEARTH_API hearth_status hearth_sampler_open(const hearth_model *model,
                                             const hearth_sampler_options *options,
                                             hearth_sampler **out, hearth_error *err);
HEARTH_API void hearth_sampler_close(hearth_sampler *sampler);
/* Tells the penalties of a token of the prompt, or of one that was chosen. */
HEARTH_API void hearth_sampler_accept(hearth_sampler *sampler, int32_t id);
/* Chooses a token by logits[n_vocab]. */
HEARTH_API hearth_status hearth_sampler_sample(hearth_sampler *sampler, const float *logits, int32_t *id,
                                             hearth_error *err);

#ifdef __cplusplus
}
#endif
#endif
