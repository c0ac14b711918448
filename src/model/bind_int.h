/* Functions of the files that bind tensors: they find a tensor by name, check its type and shape, and note where its
 * weights go. FORMAT: a tensor is missing or has another shape; UNSUPPORTED: its type. */
#ifndef HTH_MODEL_BIND_INT_H
#define HTH_MODEL_BIND_INT_H

#include "model/model.h"

/* Upper bounds of the number of bindings. */
enum { HTH_BINDINGS_PER_LAYER = 48, HTH_BINDINGS_BESIDES = 12 };

typedef struct hth_binder {
    hth_model *model;
    hearth_error *err;
    uint32_t first_block; /* block of the file that is layer 0 */
    uint32_t layer;       /* the layer that is bound; n_layer: none */
    uint32_t d_head;      /* d_head of layers without a window */
    char name[64]; /* name of the tensor that was last looked for, for error messages */
} hth_binder;

/* bind.c: space for the layers and their bindings; all of a layer. */
hearth_status hth_bind_allocate(hth_binder *b);
hearth_status hth_bind_layer(hth_binder *b, uint32_t i_layer, const hth_layer_sizes *sizes);

/* NULL: there is none. */
const hth_gguf_tensor *hth_bind_find(hth_binder *b, const char *name);
const hth_gguf_tensor *hth_bind_find_in_layer(hth_binder *b, uint32_t i_layer, const char *name);
hearth_status hth_bind_missing(hth_binder *b);
hearth_status hth_bind_wrong_shape(hth_binder *b, const hth_gguf_tensor *t, uint64_t n_col, uint64_t n_row);
void hth_bind_note_used(hth_model *m, const hth_gguf_tensor *t);
/* Whether a name ends with one of those that the architecture ignores. */
bool hth_bind_is_ignored(const hth_arch *arch, const char *name);

/* Several matrices of n_col columns whose rows are consecutive in one tensor. */
typedef struct hth_bind_part {
    size_t n_row;
    hth_matrix *matrix;
} hth_bind_part;
hearth_status hth_bind_parts(hth_binder *b, const hth_gguf_tensor *t, size_t n_col,
                             const hth_bind_part *parts, size_t n_part);
/* t NULL: the tensor is missing, as below. */
hearth_status hth_bind_matrix(hth_binder *b, const hth_gguf_tensor *t, size_t n_row, size_t n_col,
                              hth_matrix *m);
/* Matrices of a layer, each a tensor of its own. */
typedef struct hth_bind_named {
    const char *name;
    size_t n_row, n_col;
    hth_matrix *matrix;
} hth_bind_named;
hearth_status hth_bind_matrices(hth_binder *b, uint32_t i_layer, const hth_bind_named *list, size_t n);
/* The matrices [n_row][n_col] of n_slice experts, one after another. */
hearth_status hth_bind_slices(hth_binder *b, const hth_gguf_tensor *t, size_t n_slice, size_t n_row,
                              size_t n_col, hth_matrix *m);
/* Vectors of n floats, of any float type; n_row of them. */
hearth_status hth_bind_vector(hth_binder *b, const hth_gguf_tensor *t, size_t n, const float **vector);
hearth_status hth_bind_vectors(hth_binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row,
                               const float **vectors);
/* A vector of n floats, times a factor. */
hearth_status hth_bind_scaled(hth_binder *b, const hth_gguf_tensor *t, size_t n, double factor, const float **vector);
/* Divisors of the rotation angles, none of them 0. */
hearth_status hth_bind_divisors(hth_binder *b, const hth_gguf_tensor *t, const float **vector);
/* Biases of several matrices, consecutive in one tensor. NULL: none. */
hearth_status hth_bind_bias_parts(hth_binder *b, const hth_gguf_tensor *t, const size_t *n,
                                  const float **vectors[], size_t n_part);
/* The bias NAME.bias of a layer, which may be needed. */
hearth_status hth_bind_bias(hth_binder *b, uint32_t i_layer, const char *name, bool needed, size_t n,
                            const float **vector);
/* The matrix NAME.weight of a layer, and its bias. */
hearth_status hth_bind_linear(hth_binder *b, uint32_t i_layer, const char *name, bool needs_bias,
                              size_t n_row, size_t n_col, hth_matrix *m, const float **bias);
/* A norm of d_model values, of a layer or outside layers. */
hearth_status hth_bind_norm(hth_binder *b, uint32_t i_layer, const char *name, hth_norm *norm);
hearth_status hth_bind_outer_norm(hth_binder *b, const char *name, hth_norm *norm);

/* [n_col][n_row] floats, the transpose of a tensor with n_row rows of n_col. */
hearth_status hth_bind_transposed(hth_binder *b, const hth_gguf_tensor *t, size_t n_col, size_t n_row,
                                  const float **vector);
/* bind_latent.c: latent attention. */
hearth_status hth_bind_latent(hth_binder *b, uint32_t i_layer, hth_layer *l);
/* Integers below n_index, n_row rows of n different ones, as floats. */
hearth_status hth_bind_indices(hth_binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row, uint32_t n_index,
                               const float **indices);
/* Only checks type and shape of such a tensor. */
hearth_status hth_bind_check_indices(hth_binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row);
/* bind_compressed.c: compressed attention with blocks of n_tok positions; connections of a layer, of the head. */
hearth_status hth_bind_compressed(hth_binder *b, uint32_t i_layer, uint32_t n_tok, hth_layer *l);
hearth_status hth_bind_connections(hth_binder *b, uint32_t i_layer, hth_layer *l);
hearth_status hth_bind_output_connection(hth_binder *b);
/* bind_recurrent.c: a recurrent mixer, and its kind. */
hearth_status hth_bind_recurrent(hth_binder *b, uint32_t i_layer, hth_mixer_kind *kind, hth_layer *l);
/* bind_ffn.c: the network of a layer, dense or of experts. */
hearth_status hth_bind_ffn(hth_binder *b, uint32_t i_layer, hth_layer *l);
/* bind_storage.c: after the matrices of the layer's network */
hearth_status hth_bind_storage(hth_binder *b, uint32_t i_layer, hth_layer *l);

#endif
