/* Options shared by several commands, and functions that open a model and a session with them. */
#ifndef HEARTH_APPS_COMMON_MODEL_ARGS_H
#define HEARTH_APPS_COMMON_MODEL_ARGS_H

#include "common/input.h"
#include "common/options/options.h"
#include "common/output.h"
#include "common/output_file.h"
#include "common/placement_info.h"

#include <hearth/hearth.h>

/* -t --no-pin -c --kv --io --ram --no-repack --batch: for every command that runs a model. */
extern const option_spec model_options[];
/* Part of model_options; also for commands that read a model in another way. */
#define ALLOW_UNUSED_OPTION                                                                                  \
    OPT_FLAG("allow-unused", 0, "accept files with unused tensors: results may be wrong", ADVANCED)
/* --gpu --vram: for commands whose sessions may run on a device. */
extern const option_spec gpu_options[];
extern const option_spec device_options[], plan_options[]; /* the parts of them that apply to a list, and to a plan */
/* --temperature and the rest. */
extern const option_spec sampling_options[];

/* --vram: one value for all GPUs, or one for each. */
void wanted_gpu_limits(const args *a, hearth_gpu_options *o);
/* The model options from the command's options: memory limit, selector, device and so on. n_position: positions of all
 * sessions together; 0: those of one session. */
hearth_model_options wanted_model(const args *a, const char *path, uint32_t n_position);
/* Opens path, or the embedded model if path is NULL, and shows progress. False: an error was reported. */
bool open_model(const args *a, const char *path, hearth_model **model);
/* The same with options of wanted_model, which the caller may have changed. */
bool open_model_as(const args *a, const char *path, const hearth_model_options *wanted, hearth_model **model);
/* The same; the error is the caller's. The progress of `wanted` is called too, and may cancel. */
hearth_status try_open_model(const args *a, const char *path, const hearth_model_options *wanted,
                             hearth_model **model, hearth_error *err);
/* The context of -c; `otherwise` without -c; HEARTH_CTX_TRAINED for 0. */
uint32_t args_context(const args *a, uint32_t otherwise);
/* Session options from the common options. n_ctx_default 0: the library chooses. */
hearth_session_options session_options(const args *a, uint32_t n_ctx_default);
/* The value of --selector; AUTO without it. */
hearth_selector wanted_selector(const args *a);
/* Whether weights are to be mapped: by --io, --mmap or HEARTH_IO. */
bool wants_mapping(const args *a);
bool open_session(const args *a, const hearth_model *model, uint32_t n_ctx_default, hearth_session **session);

/* Opens the model with the common options and a session, and calls run with the text of -f. Commands that measure on a
 * text use it. Returns the exit status. */
typedef int text_run_fn(const args *a, const hearth_model *model, hearth_session *session, const char *text,
                        size_t n);
int run_on_text(const args *a, text_run_fn *run);
/* The same for commands about single neurons: with the selector dense and, without -c, a context of
 * hth_chunks_default. what: names the command where it refuses mixtures of experts, before weights are read; NULL: it
 * takes them. */
int run_on_neurons(const args *a, const char *what, text_run_fn *run);

/* The reference for approximations: the selector dense, no Q8_0 cache and no bf16 products.
 * open_reference_model opens another file for it, with its own activation. */
bool open_reference_model(const args *a, const char *path, hearth_model **model);
/* Opens the same file again, on the CPU only. */
bool open_on_cpu(const args *a, const char *path, hearth_model **model);
bool open_reference(const args *a, const hearth_model *model, const hearth_session *mode,
                    hearth_session **session);
/* Whether a session with the common options is the reference already. */
bool is_reference(const args *a, const hearth_model *model);
bool selector_is_approximate(hearth_selector selector);
/* Whether a session with the common options is approximate: by its selector, its cache or its products. */
bool is_approximate(const args *a, const hearth_model *model);
/* check_output for commands that read a model, its sidecars and a text. */
int check_output_beside(const args *a, const char *text, const char *out, output_kind kind);

/* Whether it is approximate for any selector: by its cache or its products. */
bool is_approximate_besides(const args *a);

/* The sampling options, above what the model's file says and the defaults, but for the seed. Their texts and biases stay until
 * the next call. Returns 0, or the exit status after an error was reported. */
int wanted_sampling(const args *a, const hearth_model *model, hearth_sampler_options *out);
/* Opens a sampler with the sampling options. False: an error was reported, and *status is the exit status:
 * usage or other. */
bool open_sampler(const args *a, const hearth_model *model, hearth_sampler **sampler, int *status);

/* The value of --seed; without it, and for -1, a random one, constant during the run. */
uint64_t sampler_seed(const args *a);

/* Warns if the context is longer than the model's training context. */
void warn_of_context(const hearth_model *model, uint32_t n_ctx);

/* Prints one line of 80 columns on stderr: model, size, place, threads; others if results may differ, or weights are read when needed; with
 * --verbose the rest. */
void print_start_line(const args *a, const hearth_model *model, const hearth_session *session);
/* "; again: --seed 7": what gives the same text; "" if it is greedy. */
typedef struct repeat_text {
    char text[40];
} repeat_text;
repeat_text seed_text(const args *a);

/* The embedded model: storyteller in Q8_0. */
extern const unsigned char embedded_model[];
extern const size_t embedded_model_size;

#endif
