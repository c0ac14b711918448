/* Block types of GGUF tensors: names, sizes, and which of them this version supports. A new type is added to this
 * table (and to kernels/). */
#ifndef HTH_FILE_TYPES_H
#define HTH_FILE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of the format. */
typedef enum hth_type {
    HTH_TYPE_F32 = 0,
    HTH_TYPE_F16 = 1,
    HTH_TYPE_Q4_0 = 2,
    HTH_TYPE_Q4_1 = 3,
    HTH_TYPE_Q5_0 = 6,
    HTH_TYPE_Q5_1 = 7,
    HTH_TYPE_Q8_0 = 8,
    HTH_TYPE_Q2_K = 10,
    HTH_TYPE_Q3_K = 11,
    HTH_TYPE_Q4_K = 12,
    HTH_TYPE_Q5_K = 13,
    HTH_TYPE_Q6_K = 14,
    HTH_TYPE_IQ2_XXS = 16,
    HTH_TYPE_IQ2_XS = 17,
    HTH_TYPE_IQ3_XXS = 18,
    HTH_TYPE_IQ1_S = 19,
    HTH_TYPE_IQ4_NL = 20,
    HTH_TYPE_IQ3_S = 21,
    HTH_TYPE_IQ2_S = 22,
    HTH_TYPE_IQ4_XS = 23,
    HTH_TYPE_I16 = 25, /* integers beside weights; no arithmetic */
    HTH_TYPE_I32 = 26, /* the same */
    HTH_TYPE_IQ1_M = 29,
    HTH_TYPE_BF16 = 30,
    HTH_TYPE_TQ1_0 = 34,
    HTH_TYPE_TQ2_0 = 35,
    HTH_TYPE_MXFP4 = 39,
    HTH_TYPE_NVFP4 = 40,
} hth_type;

enum { HTH_TYPE_LIMIT = 43 }; /* ids from here on are unknown as of 2026 */

typedef struct hth_type_info {
    const char *name;   /* "Q4_0" as other programs print it */
    uint32_t n_weight;  /* weights in a block */
    uint32_t size;      /* bytes of a block */
    bool quantised;     /* blocks of small integers with a scale */
    bool supported;     /* this version computes with it */
} hth_type_info;

/* NULL for ids that are not in the format (including removed ones). */
const hth_type_info *hth_type_find(uint32_t id);

/* Finds a type by name, case-insensitive ("q8_0"). False if there is none. */
bool hth_type_by_name(const char *name, hth_type *type);

/* Bytes of a row of n_col weights. 0 if n_col is not a multiple of the block size, the type is unknown, or the
 * size overflows. */
size_t hth_type_row_size(hth_type type, size_t n_col);

/* Number of activations that are quantised together for rows of this type (docs/arithmetic.md 2, R1): the block
 * size of the weights, 32 or 256 (32 for NVFP4, whose blocks have 64). 0: float rows, which take float activations. */
uint32_t hth_type_act_block(hth_type type);

/* "F32, F16, ..., NVFP4": for messages. */
const char *hth_type_supported_list(void);

#endif
