/* Type of each matrix of a file. Names and types are those of llama-quantize: "Q4_K_M" gives some matrices more
 * bits than Q4_K. quantize and synth use it. */
#ifndef HTH_CONVERT_FTYPE_H
#define HTH_CONVERT_FTYPE_H

#include "file/gguf.h"
#include "file/types.h"

typedef struct hth_ftype {
    const char *name;
    uint32_t file_type; /* general.file_type of the format */
    hth_type type;      /* the type that most matrices have */
} hth_ftype;

/* Finds a file type by name, ignoring case, or by its number in general.file_type; "Q3_K", "Q4_K" and "Q5_K" mean their
 * "_M". NULL: none. */
const hth_ftype *hth_ftype_find(const char *name);

/* "F32, F16, ...", the file types that quantize writes, for messages and help; NVFP4 is found by name too, but only synth
 * writes it. */
const char *hth_ftype_list(void);

enum { HTH_FTYPE_N_ROLE = 10 };
struct hth_ftype_place;

/* Properties of a model that the choice of types depends on. */
typedef struct hth_ftype_model {
    uint32_t n_layer;
    uint32_t n_gqa;    /* query heads per KV head */
    uint32_t n_expert; /* 0: dense */
    bool tied;         /* the embedding table is also the head */
    bool is_falcon;    /* which uses other types */
    bool is_70b;       /* so does one of 80 layers: qwen2, olmo, deci; llama if heads share values */
    bool pure;         /* every matrix gets ftype->type */
    bool has_imatrix;  /* an importance matrix is given */
    struct hth_ftype_place *places; /* [n_place] of its tensors, which some rules count; NULL: each layer has one of each */
    size_t n_place;
    uint32_t n_of_role[HTH_FTYPE_N_ROLE];
} hth_ftype_model;

/* Reads them from metadata and tensor infos of any file, which must outlive the result. Missing values count as 0 or 1.
 * MEMORY if there is none; to be closed in any case. */
hearth_status hth_ftype_open_model(const hth_gguf *file, hth_ftype_model *m, hearth_error *err);
void hth_ftype_close_model(hth_ftype_model *m);

/* Whether tensors of that name are matrices of products. Vectors, routers, taps and position tables are not, and keep
 * their type. */
bool hth_ftype_is_matrix(hth_str name, uint32_t n_dim);
/* Whether the tensor is the head of such a model. */
bool hth_ftype_is_head(const hth_ftype_model *model, hth_str name);

/* The type of matrix `name` with rows of n_col weights. *wanted (may be NULL): the type by its role, which is another
 * one if the rows do not fit its blocks. */
hth_type hth_ftype_type(const hth_ftype *ftype, const hth_ftype_model *model, hth_str name, uint64_t n_col,
                      hth_type *wanted);

/* Whether llama-quantize refuses to write that matrix in that type without an importance matrix. */
bool hth_ftype_needs_imatrix(const hth_ftype *ftype, hth_str name, hth_type type);

#endif
