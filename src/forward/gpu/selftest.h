/* The self-test of a device: each program that promises the CPU's bits is run once, with values where
 * rounding shows, on the device and as its function of C. Run by gpu.c when a model is opened, before any
 * token. */
#ifndef HTH_RUN_GPU_SELFTEST_H
#define HTH_RUN_GPU_SELFTEST_H

#include "device/device.h"
#include "forward/gpu/weight_layout.h"

#include <hearth/hearth.h>

enum { HTH_GPU_MESSAGE_MAX = 160 };

/* All programs that were made on the device, with their constants. memory: of the device's own, at least
 * as large as the largest trial; what lies there is lost. notes, by the matrix units that programs need: the
 * first that differs ("mul_mat_vec_q of Q4_0 differs from the CPU"); empty: none does. All but the first kind can be
 * done without. Errors: those of the device, and MEMORY. */
typedef char hth_gpu_messages[HTH_N_COOPMAT_LEVEL][HTH_GPU_MESSAGE_MAX];
hearth_status hth_gpu_selftest(hth_device *device, hth_buffer *memory, hth_gpu_messages notes,
                               hearth_error *err);

/* What memory must have at least for models of these heads. shared: query heads of a KV head, at most. */
uint64_t hth_gpu_selftest_bytes(hearth_kv_type kv, uint32_t d_head, uint32_t shared);

/* ---- trials (selftest_cases.c) --------------------------------------------------------------------------- */

/* Of vectors: a stretch, and some of the next. Bits of a mask before the first row's. */
enum { HTH_TEST_WIDTH = HTH_QUANT_WG_ELEMENTS + 256, HTH_TEST_MASK_AT = 29 };

/* What a binding holds before the run. */
typedef enum hth_gpu_fill_kind {
    HTH_FILL_POISON = 0, /* for outputs: what is not written shows */
    HTH_FILL_STEP,
    HTH_FILL_FLOATS, /* below 2^top */
    HTH_FILL_BLOCKS, /* what R1 meets, `width` at a time: ties, zeros, blocks below 2^low, one far larger */
    HTH_FILL_UP,     /* the same of neurons, which an activation meets first; */
    HTH_FILL_GATE_UP,
    HTH_FILL_SCORES,  /* of neurons of such blocks, `low` of each token */
    HTH_FILL_TABLE,   /* `width` cosines for each token, from `low` on, then sines */
    HTH_FILL_NEURONS, /* h: [][width], most of them zeros */
    HTH_FILL_Q,       /* bytes as R1 makes them, tokens of `width`; */
    HTH_FILL_Q_SCALES,
    HTH_FILL_Q_SUMS, /* of the bytes two bindings before */
    HTH_FILL_PLANES,
    HTH_FILL_MASK, /* bits of rows, by `width` */
    HTH_FILL_KEYS, /* words of positions, of a cache of `width` words */
    HTH_FILL_VALUES,
    HTH_FILL_ROUNDED, /* `width` words of bytes, then scales */
    HTH_FILL_PARTS,   /* {max, sum} */
    HTH_FILL_TOPS,    /* {2^k, largest |h|} */
    HTH_FILL_SUMS,
    HTH_FILL_HOST,
} hth_gpu_fill_kind;

typedef struct hth_gpu_test_input {
    hth_gpu_fill_kind fill;
    uint64_t size; /* bytes, whole words */
    uint32_t width;
    int32_t min_exponent, max_exponent;
} hth_gpu_test_input;

/* One run of a program. */
typedef struct hth_gpu_testcase {
    hth_shader_id id;
    const uint32_t *consts;
    uint32_t push[HTH_SHADER_MAX_PUSH / 4], grid[3];
    uint32_t n_bind;
    hth_gpu_test_input bind[HTH_SHADER_MAX_BIND];
    /* Behind the fillings: */
    uint32_t n_row, n_done, by_want; /* rows of the step; of them those that are computed, */
    const uint32_t (*positions)[2];     /* and their positions and slots; NULL: none matter */
    hth_quant_desc desc;                   /* of planes, of n_weight_row rows of n_block */
    hth_type type;
    hth_soa_layout layout;
    uint32_t n_weight_row, n_block;
} hth_gpu_testcase;

/* False: the program promises no bits. */
bool hth_gpu_testcase_of(hth_shader_id id, const uint32_t *consts, hth_gpu_testcase *out);
/* Room for all bindings, each at a multiple of 256 bytes. */
uint64_t hth_gpu_testcase_bytes(const hth_gpu_testcase *testcase);
/* selftest_data.c: the same values for the same trial, always. */
void hth_gpu_testcase_fill(const hth_gpu_testcase *testcase, uint8_t *const bind[]);

#endif
