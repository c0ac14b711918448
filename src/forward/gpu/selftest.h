/* The self-test of a device: runs each shader that promises the CPU's bits once on the device and as its C
 * function, with values that expose rounding differences. gpu.c runs it when a model is opened, before any
 * token. */
#ifndef HTH_FORWARD_GPU_SELFTEST_H
#define HTH_FORWARD_GPU_SELFTEST_H

#include "device/device.h"
#include "forward/gpu/shader_params.h"
#include "forward/gpu/weight_layout.h"

#include <hearth/hearth.h>

enum { HTH_GPU_MESSAGE_MAX = 160 };

/* Tests all pipelines created on the device, with their constants. memory: device memory of at least the
 * largest test case's size; its contents are lost. notes, per cooperative matrix level: the first shader that
 * differs ("mul_mat_vec_q of Q4_0 differs from the CPU"); empty: none. All levels but the first are optional.
 * Errors: those of the device, and MEMORY. */
typedef char hth_gpu_messages[HTH_N_COOPMAT_LEVEL][HTH_GPU_MESSAGE_MAX];
hearth_status hth_gpu_selftest(hth_device *device, hth_buffer *memory, hth_gpu_messages notes,
                               hearth_error *err);

/* Minimum size of that memory for models with these heads. shared: maximum query heads per KV head. */
uint64_t hth_gpu_selftest_bytes(hearth_kv_type kv, uint32_t d_head, uint32_t shared);
/* The same for recurrent mixers whose heads have states of d by d values. */
uint64_t hth_gpu_selftest_state_bytes(uint32_t d);

/* ---- test cases (selftest_cases.c) ----------------------------------------------------------------------- */

/* Width of vectors: the elements of the largest workgroup, or of a small chunk, and part of the next. Mask bits before
 * the first row's. */
enum { HTH_TEST_WIDTH = 2048 + 256, HTH_TEST_MASK_AT = 29 };
_Static_assert((int)HTH_TEST_WIDTH > 4 * (int)HTH_VECTOR_MAX_LOCAL &&
                   (int)HTH_TEST_WIDTH > (int)HTH_NORM_SMALL_CHUNK,
               "rows of the test span two workgroups, and two small chunks");

/* Contents of a binding before the run. */
typedef enum hth_gpu_fill_kind {
    HTH_FILL_POISON = 0, /* for outputs: exposes elements that are not written */
    HTH_FILL_STEP,
    HTH_FILL_FLOATS,  /* below 2^max_exponent */
    HTH_FILL_QUERIES, /* the same, rounded for an F16 cache */
    HTH_FILL_RULES,  /* subnormals; floats whose products or sums are; ties. Pairs with the next binding of this kind */
    /* edge cases of R1, in blocks of `width`: ties, zeros, blocks below 2^min_exponent, one far larger value */
    HTH_FILL_BLOCKS,
    HTH_FILL_UP,     /* the same for neurons before the activation */
    HTH_FILL_GATE_UP,
    HTH_FILL_SCORES,  /* for neurons of such blocks, min_exponent per token */
    HTH_FILL_TABLE,   /* `width` cosines per token, from word min_exponent on, then sines */
    HTH_FILL_NEURONS, /* h: [][width], most of them zero */
    HTH_FILL_Q,       /* bytes as R1 produces them, `width` per token */
    HTH_FILL_Q_SCALES,
    HTH_FILL_Q_SUMS, /* of the bytes two bindings earlier */
    HTH_FILL_PLANES,
    HTH_FILL_MASK, /* bits of rows, in patterns of `width` rows */
    HTH_FILL_PAIRS, /* of each token two slices of `width`, then their weights, from 2^min_exponent to 1 */
    HTH_FILL_GROUPS, /* of `width` slices: groups, of max_exponent pairs the first, of two the others */
    HTH_FILL_JOBS,   /* of pack_rows: `width` of them, the slots in descending order, but for slot 0 */
    HTH_FILL_BYTES,
    HTH_FILL_PACK_TABLE,
    HTH_FILL_KEYS, /* words of positions, for a cache with `width` words per position */
    HTH_FILL_VALUES,
    HTH_FILL_ROUNDED, /* `width` words of bytes, then scales */
    HTH_FILL_PARTS,   /* {max, sum} */
    HTH_FILL_CLUSTER_SCALES,  /* powers of two */
    HTH_FILL_SUMS,
    HTH_FILL_HOST,
} hth_gpu_fill_kind;

typedef struct hth_gpu_test_input {
    hth_gpu_fill_kind fill;
    uint64_t size; /* bytes, a multiple of a word */
    uint32_t width;
    int32_t min_exponent, max_exponent;
} hth_gpu_test_input;

/* One dispatch of a shader. */
typedef struct hth_gpu_testcase {
    hth_shader_id id;
    const uint32_t *consts;
    uint32_t push[HTH_SHADER_MAX_PUSH / 4], grid[3];
    uint32_t n_bind;
    hth_gpu_test_input bind[HTH_SHADER_MAX_BIND];
    /* Used by the fill functions: */
    uint32_t n_row, n_done, by_want; /* tokens of the step; those computed */
    const uint32_t (*positions)[2]; /* their positions, and the first entry of their page tables; NULL: none */
    const uint32_t *tables;         /* [n_table] pages */
    uint32_t n_table;
    /* [n_run] runs of the step (HTH_RUN_*), of which the last one does not count; n_run 0: no states */
    const uint32_t (*runs)[HTH_RUN_WORDS];
    uint32_t n_run;
    uint32_t n_expert; /* whose slots the step has: neighbours in each other's, every third in none; 0: no slots */
    hth_quant_desc desc;                   /* descriptor of the weights: n_weight_row rows of n_block blocks */
    hth_type type;
    hth_soa_layout layout;
    uint32_t n_weight_row, n_block;
} hth_gpu_testcase;

/* false: the shader does not promise the CPU's bits. */
bool hth_gpu_testcase_of(hth_shader_id id, const uint32_t *consts, hth_gpu_testcase *out);
/* Bytes of all bindings, each at a multiple of 256. */
uint64_t hth_gpu_testcase_bytes(const hth_gpu_testcase *testcase);
/* selftest_data.c: deterministic contents of a test case. */
void hth_gpu_testcase_fill(const hth_gpu_testcase *testcase, uint8_t *const bind[]);

#endif
