/* GGUF files for tests, byte by byte: a buffer that words are appended to, one small
 * valid file, and a walk over a valid file that lists where each field lies, so that
 * a test can spoil exactly one of them. Knows nothing of the reader under test. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_GGUF_BUILD_H
#define HEARTH_TESTS_SUPPORT_MODELS_GGUF_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gguf_bytes {
    unsigned char *data;
    size_t n, capacity;
} gguf_bytes;

void gguf_free(gguf_bytes *b);
void gguf_put(gguf_bytes *b, const void *data, size_t n);
/* v as size little-endian bytes. */
void gguf_word(gguf_bytes *b, uint64_t v, size_t size);
/* Length and bytes. */
void gguf_text(gguf_bytes *b, const char *text);
void gguf_header(gguf_bytes *b, uint32_t version, uint64_t n_tensor, uint64_t n_pair);
/* Key and type; the value follows. */
void gguf_key(gguf_bytes *b, const char *key, uint32_t type);
void gguf_pair_u32(gguf_bytes *b, const char *key, uint32_t value);
void gguf_pair_text(gguf_bytes *b, const char *key, const char *value);
/* Key, array type, element type, count; the elements follow. */
void gguf_array(gguf_bytes *b, const char *key, uint32_t element_type, uint64_t n);
void gguf_info(gguf_bytes *b, const char *name, uint32_t n_dim, const uint64_t dim[], uint32_t type, uint64_t offset);
/* Zeros up to a multiple of align; n zeros. */
void gguf_pad(gguf_bytes *b, size_t align);
void gguf_zeros(gguf_bytes *b, size_t n);
/* Overwrites size bytes at `at`. */
void gguf_patch(gguf_bytes *b, size_t at, uint64_t v, size_t size);

/* 7 pairs, 3 tensors: a.weight F32 8x4, b.weight Q4_0 32x2, c.weight F16 5. */
gguf_bytes gguf_small_new(void);
void gguf_small(gguf_bytes *b); /* the same; replaces what *b holds */

typedef enum gguf_field_kind {
    GGUF_MAGIC,
    GGUF_VERSION,
    GGUF_N_TENSOR,
    GGUF_N_PAIR,
    GGUF_KEY_LENGTH, /* i: pair */
    GGUF_KEY,
    GGUF_VALUE_TYPE,
    GGUF_ELEMENT_TYPE,
    GGUF_COUNT,
    GGUF_TEXT_LENGTH, /* j: which text of the value */
    GGUF_VALUE,       /* a scalar, or all scalars of an array */
    GGUF_NAME_LENGTH, /* i: tensor */
    GGUF_NAME,
    GGUF_N_DIM,
    GGUF_DIM, /* j: which */
    GGUF_TYPE,
    GGUF_OFFSET,
    GGUF_END, /* of the directory */
} gguf_field_kind;

typedef struct gguf_field {
    gguf_field_kind kind;
    uint32_t i, j;
    size_t at, width;
} gguf_field;

/* Lists at most n_max fields of a valid file (no arrays in arrays); returns their number. */
size_t gguf_fields(const unsigned char *data, gguf_field *fields, size_t n_max);
/* The one of that kind, i and j; stops the test program when there is none. */
gguf_field gguf_field_of(const gguf_bytes *b, gguf_field_kind kind, uint32_t i, uint32_t j);

#endif
