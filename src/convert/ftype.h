/* Which type each matrix of a file gets. The names are those under which
 * llama-quantize writes files, and so are the mixes: "Q4_K_M" gives some matrices
 * more bits than Q4_K. Used by quantize and synth. */
#ifndef HTH_CONVERT_MIX_H
#define HTH_CONVERT_MIX_H

#include "file/gguf.h"
#include "file/types.h"

typedef struct hth_ftype {
    const char *name;
    uint32_t file_type; /* general.file_type of the format */
    hth_type type;      /* of most matrices */
} hth_ftype;

/* By name, without regard to case; "Q3_K", "Q4_K" and "Q5_K" mean their "_M". NULL
 * when there is none. */
const hth_ftype *hth_ftype_find(const char *name);

/* "F32, F16, ...", those that quantize writes: for messages and help. */
const char *hth_ftype_list(void);

/* What of a model the choice depends on. */
typedef struct hth_ftype_model {
    uint32_t n_layer;
    uint32_t n_gqa; /* query heads for each KV head */
    bool tied;      /* the embedding table serves as the head */
    bool parallel;  /* attention and FFN side by side: those matrices bear other types */
    bool pure;      /* every matrix gets the type itself */
} hth_ftype_model;

/* From metadata and directory of any file; what is absent counts as 0 or 1. */
hth_ftype_model hth_ftype_read_model(const hth_gguf *file);

/* Whether tensors of that name are matrices of products: vectors, routers and
 * position tables are not, and stay as they are. */
bool hth_ftype_is_matrix(hth_str name, uint32_t n_dim);
/* Whether it is the head of such a model. */
bool hth_ftype_is_head(const hth_ftype_model *model, hth_str name);

/* The type of matrix `name` with rows of n_col weights. *fell_back (may be NULL): its
 * rows do not fit the blocks of the type that it should have had. */
hth_type hth_ftype_type(const hth_ftype *ftype, const hth_ftype_model *model, hth_str name, uint64_t n_col,
                      bool *fell_back);

#endif
