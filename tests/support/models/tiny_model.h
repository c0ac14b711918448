/* A llama of two layers, made byte by byte, in which a test changes one thing: every
 * key and tensor is on a list until the file is written. Random weights, a complete
 * vocabulary of 267 tokens; knows nothing of the reader under test. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_TINY_MODEL_H
#define HEARTH_TESTS_SUPPORT_MODELS_TINY_MODEL_H

#include "support/models/gguf_build.h"

enum {
    TINY_LAYERS = 2, TINY_D_MODEL = 32, TINY_HEADS = 4, TINY_HEADS_KV = 2, TINY_D_FF = 64, TINY_VOCAB = 267,
    TINY_CONTEXT = 64, TINY_RANK = 8,
};

typedef struct tiny_key {
    char name[64];
    uint32_t type;     /* of the value; the bytes follow it in the file */
    gguf_bytes value;
    bool gone;
} tiny_key;

typedef struct tiny_tensor {
    char name[64];
    uint32_t type, n_dim;
    uint64_t dim[4];
    bool gone;
} tiny_tensor;

typedef struct tiny_model {
    tiny_key keys[44];
    tiny_tensor tensors[96];
    uint32_t n_key, n_tensor;
} tiny_model;

tiny_model tiny_new(void);
void tiny_begin(tiny_model *m); /* the same into *m */
void tiny_free(tiny_model *m);
/* The same model as another architecture: keys renamed, tensors added and taken away as that family wants them. */
void tiny_become(tiny_model *m, const char *architecture);

/* Adds a block that predicts a token further, whose layer has the tensors of the last one. */
void tiny_add_mtp(tiny_model *m);

/* The same llama as hearth pack writes one: ReLU, neurons in rows of down, predictors of rank TINY_RANK,
 * thresholds, an order, and what the keys say of them. */
void tiny_pack(tiny_model *m);

/* Sets a key, or adds it: size little-endian bytes of a value of that type. */
void tiny_set(tiny_model *m, const char *key, uint32_t type, uint64_t value, size_t size);
void tiny_set_u32(tiny_model *m, const char *key, uint32_t value);
void tiny_set_f32(tiny_model *m, const char *key, float value);
void tiny_set_text(tiny_model *m, const char *key, const char *value);
/* An array of n u32. */
void tiny_set_array(tiny_model *m, const char *key, const uint32_t *values, uint64_t n);
/* The same of n f32. */
void tiny_set_floats(tiny_model *m, const char *key, const float *values, uint64_t n);
void tiny_drop_key(tiny_model *m, const char *key);

/* The tensor of that name; stops the test program when there is none. */
tiny_tensor *tiny_find(tiny_model *m, const char *name);
void tiny_add_tensor(tiny_model *m, const char *name, uint32_t type, uint32_t n_dim, uint64_t d0, uint64_t d1);

/* The file. Freed with gguf_free. */
gguf_bytes tiny_write(const tiny_model *m);
gguf_bytes tiny_take(tiny_model *m); /* the same, and frees m */
/* Writes it to that path and frees m. */
void tiny_save(tiny_model *m, const char *path);
/* Where the data of a tensor begin in what tiny_write gives. */
size_t tiny_data_at(const tiny_model *m, const char *name);

#endif
