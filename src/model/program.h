/* The program of a model: a list of the operations on values that compute a token. program.c makes it from the model
 * alone. Executors run it and know no architecture: the CPU (forward/step.c), a device's recorder, and functions that
 * count bytes.
 *
 * A value is a row of `width` elements for each token of a step, or for each token that wants logits. An
 * operation reads views of values and writes others. The same value may be written more than once (in
 * place).
 *
 * Executors may compute a run of operations that are computed row by row together, one row after another,
 * also while the operation behind the run prepares its input. So the memory of what a run reads is needed
 * until that operation is done (program_memory.c). GATHER begins rows of another domain; GATHER and CONV
 * read rows of in[0] that are not their own, so that what writes these is not in the same run. */
#ifndef HTH_MODEL_PROGRAM_H
#define HTH_MODEL_PROGRAM_H

#include "model/model.h"

/* A kind is in hth_op_is_by_row and hth_op_name (program_ops.c) and in kinds of forward/step.c, too; one that devices
 * compute in op_support.c and kinds of record.c (forward/gpu). */
typedef enum hth_op_kind {
    HTH_OP_EMBED,    /* rows of a table, by token */
    HTH_OP_ROPE,     /* cosines and sines of the positions */
    HTH_OP_NORM,     /* groups of values by their size */
    HTH_OP_PRODUCT,  /* up to four matrices times one input */
    HTH_OP_BY_HEAD,  /* the vectors of heads, each times a slice of a matrix */
    HTH_OP_HEADS,    /* norms and rotates queries and keys, and stores keys and values in the cache */
    HTH_OP_ATTEND,   /* queries over a cache */
    HTH_OP_COMPRESS, /* adds to the block of positions that is not complete; stores complete ones in a cache */
    HTH_OP_CONV,     /* a causal convolution along the tokens */
    HTH_OP_RATES,    /* steps and decays of a recurrence */
    HTH_OP_DELTA,    /* gated DeltaNet */
    HTH_OP_KDA,      /* Kimi Delta Attention */
    HTH_OP_SCAN,     /* selective state spaces */
    HTH_OP_MUL,      /* f(a) b */
    HTH_OP_FFN,      /* a dense network, with the selection of its neurons */
    HTH_OP_ROUTE,    /* the choice of experts, and their weights (bits of floats) behind them */
    HTH_OP_EXPERTS,  /* the chosen experts, or the shared one */
    HTH_OP_SETTLE,   /* sums in Q31.32 become floats */
    HTH_OP_ADD,
    HTH_OP_SCALE,
    HTH_OP_CAP, /* soft cap */
    HTH_OP_COPY,
    HTH_OP_STREAMS, /* hyper-connections: begins, reads or writes the streams */
    HTH_OP_GATHER,  /* the rows of tokens that want logits */
    HTH_N_OP
} hth_op_kind;

typedef enum hth_element { HTH_FLOATS, HTH_IDS, HTH_SUMS } hth_element; /* float, uint32_t, int64_t */
typedef enum hth_row_domain { HTH_ROWS_TOKENS, HTH_ROWS_WANTED, HTH_N_ROW_DOMAIN } hth_row_domain;

typedef struct hth_value {
    uint32_t width; /* elements of a row */
    hth_element element;
    hth_row_domain domain;
    uint32_t first_op, last_op; /* first and last operation that need its memory */
    uint32_t at; /* words of 4 bytes before its own in a row of the workspace; a multiple of 16 */
} hth_value;

/* A value's rows from element `at` on. */
#define HTH_NO_VALUE UINT32_MAX
typedef struct hth_view {
    uint32_t value, at;
} hth_view;

/* ---- parameters of kinds; what is not given is in the layer or the hyper-parameters -------------------- */

typedef enum hth_embed_table {
    HTH_EMBED_TOKENS, /* out: the embedding, scaled, with that of its position */
    HTH_EMBED_HIDDEN, /* out: hth_batch_token.hidden */
    HTH_EMBED_LAYERS, /* in and out: hth_layer_embedding, of all layers */
} hth_embed_table;

/* y = x / sqrt(inv_n sum of squares + eps) times weights, in each of n_group groups of `width` values; layer: of
 * deviations from the mean. */
typedef struct hth_op_norm {
    const float *const *weight, *const *bias; /* [width], or own: [n_group][width]; bias NULL: none */
    uint32_t n_group, width;
    bool own, layer;
    float eps, inv_n;
} hth_op_norm;

typedef struct hth_op_product {
    uint32_t n;
    const hth_matrix *matrix[HTH_PRODUCT_MAX];
    const float *const *bias[HTH_PRODUCT_MAX]; /* NULL: none */
} hth_op_product;

/* in: [n_head][from_head], of which d_in are read; out: [n_head][to_head], of which d_out are written. */
typedef enum hth_by_head_form {
    HTH_BY_HEAD_QUERIES,
    HTH_BY_HEAD_VALUES,
    HTH_BY_HEAD_GROUPS,
    HTH_BY_HEAD_ROWS, /* the transpose: the sum of the first d_in rows of a slice, each times its value */
    HTH_N_BY_HEAD
} hth_by_head_form;
typedef struct hth_op_by_head {
    hth_by_head_form form;
    const hth_matrix *matrix; /* slices */
    uint32_t n_head, from_head, to_head, d_in, d_out;
} hth_op_by_head;

typedef struct hth_op_conv {
    const hth_conv *conv;
    uint32_t state_at; /* floats before its own in the layer's state */
    bool silu;
} hth_op_conv;

/* out = f(a) b. by_head: a has one value for each of n / width heads of `width` values. */
typedef enum hth_mul_form {
    HTH_MUL_PLAIN,
    HTH_MUL_SIGMOID,
    HTH_MUL_SOFTPLUS,
    HTH_MUL_SILU,
    HTH_MUL_GELU
} hth_mul_form;
typedef struct hth_op_mul {
    hth_mul_form form;
    uint32_t n, by_head; /* by_head: width of a head; 0: by value */
} hth_op_mul;

typedef struct hth_op_experts {
    bool shared; /* EXPERTS: adds the shared expert to the sums; else clears them first. ROUTE: chooses it */
    bool early;  /* ROUTE: before the mixer */
    bool is_weighed; /* EXPERTS: in[0] is [n_used][d_model], times the weights already */
} hth_op_experts;

/* n values; factor: of SCALE, the cap of CAP; by: times that one value, of a vector. */
typedef struct hth_op_vector {
    uint32_t n;
    float factor;
    const float *const *by;
} hth_op_vector;

/* count stretches of n values each, to out[i_out]. */
enum { HTH_MAX_COPY = 4 };
typedef struct hth_copy_part {
    uint32_t i_out, count, n, from, from_step, to, to_step;
} hth_copy_part;
typedef struct hth_op_copy {
    uint32_t n_part;
    hth_copy_part part[HTH_MAX_COPY];
} hth_op_copy;

typedef enum hth_stream_form { HTH_STREAMS_BEGIN, HTH_STREAMS_READ, HTH_STREAMS_WRITE } hth_stream_form;
typedef struct hth_op_stream {
    hth_stream_form form;
    const hth_hyper_connection *connection;
} hth_op_stream;

enum { HTH_OP_IN = 6, HTH_OP_OUT = 4, HTH_OP_TEMP = 3 };

typedef struct hth_op {
    hth_op_kind kind;
    uint32_t layer; /* n_layer: of none */
    bool adds;      /* the result is added to out[0]; temp[0] is scratch memory of its shape */
    /* value HTH_NO_VALUE: absent; temp: only while the operation runs */
    hth_view in[HTH_OP_IN], out[HTH_OP_OUT], temp[HTH_OP_TEMP];
    union {
        hth_embed_table table;
        hth_op_norm norm;
        hth_op_product product;
        hth_op_by_head by_head;
        hth_op_conv conv;
        hth_op_mul mul;
        hth_op_experts experts;
        hth_op_vector vector;
        hth_op_copy copy;
        hth_op_stream streams;
    };
} hth_op;

struct hth_program {
    hth_op *ops;
    uint32_t n_op;
    uint32_t *first_of_layer; /* [n_layer + 1] operation; the last one is the first of the tail */
    uint32_t *ffn_of_layer;   /* [n_layer] operation; UINT32_MAX: none */
    uint32_t output_norm;     /* operation of the tail */
    hth_value *values;
    uint32_t n_value;
    uint32_t width[HTH_N_ROW_DOMAIN]; /* words of a row of the workspace */
    hth_view x, logits;               /* the residual stream, which is one here; the result */
    hth_view
        hidden; /* normed output of the last layer for all tokens (hth_step_keep_hidden); no operation uses it */
};

/* Whether the operation computes each row from that row of its inputs alone (GATHER, CONV: from others of
 * in[0], too), so that a run of such operations can be computed row by row. */
bool hth_op_is_by_row(hth_op_kind kind);
const char *hth_op_name(hth_op_kind kind);

/* The matrices of an operation, but for a predictor's, of which a token uses n_used / n_slice of the rows:
 * all, or those of the experts that are chosen for it. */
enum { HTH_OP_MATRICES = 4 };
typedef struct hth_op_weights {
    const hth_matrix *matrix[HTH_OP_MATRICES];
    uint32_t n, n_used, n_slice;
} hth_op_weights;
hth_op_weights hth_op_weights_of(const hth_model *m, const hth_op *op);
/* Bytes of them, of the weights of a router, and the multiply-adds with them, all of a token. */
typedef struct hth_op_cost {
    uint64_t size, multiply_adds;
} hth_op_cost;
hth_op_cost hth_op_cost_of(const hth_model *m, const hth_op *op);
/* Whether an operation has a value among its inputs, or its outputs. */
static inline bool hth_op_reads(const hth_op *op, uint32_t value)
{
    for (int i = 0; i < HTH_OP_IN; i++)
        if (op->in[i].value == value) return true;
    return false;
}
static inline bool hth_op_writes(const hth_op *op, uint32_t value)
{
    for (int i = 0; i < HTH_OP_OUT; i++)
        if (op->out[i].value == value) return true;
    return false;
}
/* Whether it is a dense network or experts: what may be divided, or read when it is needed. */
static inline bool hth_op_is_network(const hth_op *op)
{
    return op->kind == HTH_OP_FFN || op->kind == HTH_OP_EXPERTS;
}

/* program.c: builds m->program, in its arena; after the tensors were bound. MEMORY. */
hearth_status hth_program_build(hth_model *m, hearth_error *err);

#endif
