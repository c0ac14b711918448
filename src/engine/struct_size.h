/* Structs of hearth.h that begin with `size`, between programs and a library that were built with different versions
 * of it. Every function that takes such a struct reads it into a full copy here, or writes a full one to the caller's. */
#ifndef HTH_ENGINE_STRUCT_SIZE_H
#define HTH_ENGINE_STRUCT_SIZE_H

#include <hearth/experimental.h>
#include <hearth/hearth.h>

/* Each struct, the last field that it had in 0.MINOR.0, and the last one that it has now. */
#define HTH_FOR_EACH_SIZED_STRUCT(X)                                                                         \
    X(hearth_model_options, n_override, n_override)                                                          \
    X(hearth_model_info, gpu_sim_seconds, gpu_sim_seconds)                                                   \
    X(hearth_metadata, as_float, as_float)                                                                   \
    X(hearth_token_info, attributes, attributes)                                                             \
    X(hearth_device_info, matrix_shapes, matrix_shapes)                                                      \
    X(hearth_storage_stats, cache_bytes_max, cache_bytes_max)                                                \
    X(hearth_expert_stats, n_wait_empty, n_wait_empty)                                                       \
    X(hearth_chat_options, tools, tools)                                                                     \
    X(hearth_answer_options, user, user)                                                                     \
    X(hearth_session_options, selector, selector)                                                            \
    X(hearth_embedder_options, pooling, pooling)                                                             \
    X(hearth_sampler_options, n_dry_breaker, n_dry_breaker)                                                  \
    X(hearth_generate_options, user, user)                                                                   \
    X(hearth_usage, generate_seconds, generate_seconds)                                                      \
    X(hearth_constraint_options, n_schema, n_schema)                                                         \
    X(hearth_scheduler_options, draft, draft)                                                                \
    X(hearth_request, n_stop, n_stop)                                                                        \
    X(hearth_scheduler_stats, draft, draft)                                                                  \
    X(hearth_request_progress, n_evaluated, n_evaluated)

typedef struct hth_sized_struct {
    const char *name;
    size_t first_size, size; /* in 0.MINOR.0, and now */
} hth_sized_struct;

#define HTH_DECLARE_SIZED_STRUCT(T, first, last) extern const hth_sized_struct hth_size_of_##T;
HTH_FOR_EACH_SIZED_STRUCT(HTH_DECLARE_SIZED_STRUCT)

/* Copies options, which may be NULL, to *out: what they lack is zero. ARGUMENT: their size is none, or they ask for
 * what this version does not know. */
hearth_status hth_engine_read_options(const hth_sized_struct *type, const void *options, void *out,
                                      hearth_error *err);

/* Whether a result of this type can be written to `to`: not if it is NULL, or its size is none. Then hth_engine_write_result
 * writes *from as far as that goes, without its size. */
bool hth_engine_can_write_result(const hth_sized_struct *type, const void *to);
void hth_engine_write_result(const hth_sized_struct *type, const void *from, void *to);

/* ARGUMENT: reserved fields of a struct without a size are not all zero. */
hearth_status hth_engine_check_reserved(const char *name, const void *reserved, size_t size,
                                        hearth_error *err);

#endif
