/* Options that several commands share, and how a model and a session come of them. */
#ifndef HEARTH_APPS_COMMON_MODEL_ARGS_H
#define HEARTH_APPS_COMMON_MODEL_ARGS_H

#include "common/input.h"
#include "common/options.h"
#include "common/output.h"
#include "common/output_file.h"

#include <hearth/hearth.h>

/* -t --no-pin -c --kv --mmap --no-repack --batch: of every command that runs a model. */
extern const option_spec model_options[];
/* --gpu --vram: of commands whose sessions may run on a device. */
/* Of model_options; also of commands that read a model otherwise. */
#define ALLOW_UNUSED_OPTION                                                                                  \
    {                                                                                                        \
        "allow-unused", 0, OPTION_FLAG, NULL,                                                                \
            "go on where tensors of the file are not used: results may be wrong", 0, 0, NULL,                \
            OPTION_ADVANCED                                                                                  \
    }
extern const option_spec gpu_options[];
extern const option_spec device_options[]; /* of these, what a plan takes */
/* --temperature and the rest. */
extern const option_spec sampling_options[];

/* Opens path, or the embedded model when path is NULL, with progress. False after
 * a message. */
bool open_model(const args *a, const char *path, hearth_model **model);
/* The same with room on a device for so many positions of all sessions; 0: without a device. */
bool open_model_for(const args *a, const char *path, uint32_t n_position, hearth_model **model);
/* The same with weights laid out for that selector, in place of the one that the options name. */
bool open_model_with(const args *a, const char *path, hearth_selector selector, hearth_model **model);
/* The context that -c asks for; `otherwise` without -c; HEARTH_CTX_TRAINED for 0. */
uint32_t args_context(const args *a, uint32_t otherwise);
/* A session by the common options. n_ctx_default 0: as the library chooses. */
hearth_session_options session_options(const args *a, uint32_t n_ctx_default);
/* Of --selector; AUTO without it. */
hearth_selector wanted_selector(const args *a);
bool open_session(const args *a, const hearth_model *model, uint32_t n_ctx_default, hearth_session **session);

/* What approximations are compared with: the model's own selector, a Q8_0 cache and products of bf16 give
 * way to what is exact. The first opens another file, with its own activation, for a session over it. */
bool open_reference_model(const args *a, const char *path, hearth_model **model);
/* The same file once more, on the CPU alone. */
bool open_on_cpu(const args *a, const char *path, hearth_model **model);
bool open_reference(const args *a, const hearth_model *model, uint32_t n_ctx, hearth_session **session);
/* Whether a session by the common options is that already. */
bool is_reference(const args *a, const hearth_model *model);
bool selector_is_approximate(hearth_selector selector);
/* Whether that session would be approximate: by its selector, its cache or its products. */
bool is_approximate(const args *a, const hearth_model *model);
/* check_output for commands that read a model, what lies beside it and a text. */
int check_output_beside(const args *a, const char *text, const char *out, output_kind kind);

/* The same whoever fires: by its cache or its products. */
bool is_approximate_besides(const args *a);

/* A sampler by the sampling options. False after a message; *status is then that of
 * the program: usage or other. */
bool open_sampler(const args *a, const hearth_model *model, hearth_sampler **sampler, int *status);

/* Of --seed; without it, and for -1, a random one, the same in the whole run. */
uint64_t sampler_seed(const args *a);

/* Warns of a context that is longer than the model was trained for. */
void warn_of_context(const hearth_model *model, const hearth_session *session);

/* One line on stderr: model, selector, placement, threads, reader, seed. */
void print_start_line(const args *a, const hearth_model *model, const hearth_session *session);

/* The model in the program: storyteller in Q8_0. */
extern const unsigned char embedded_model[];
extern const size_t embedded_model_size;

#endif
