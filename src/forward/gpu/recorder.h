/* What tapes of a step are recorded with: the tape, and the order of what is on it; runs of programs,
 * products of rows, inputs in the forms that these want. record.c and record_ffn.c put the programs of a
 * token in their order. The first error stays in the recorder, and nothing is recorded after it. */
#ifndef HTH_RUN_GPU_RECORDER_H
#define HTH_RUN_GPU_RECORDER_H

#include "forward/gpu/gpu_int.h"

enum { HTH_REC_LOCAL = 64, HTH_REC_MAX_DIRTY = 16 };

typedef struct hth_recorder {
    hth_gpu *g;
    hth_gpu_segments *segments; /* the last is being recorded */
    hth_cmdlist *cmdlist;
    uint32_t n_d2h, n_split_layer;      /* so far */
    uint32_t n_row;                 /* of the class */
    uint32_t only_wanted;               /* 1: tokens are those that want logits */
    bool has_active_mask;                    /* the layer's live neurons are, so far */
    const hth_weight_stream *stream; /* the host's weights pass through; NULL: they do not. So far: */
    uint32_t n_chunk, n_shared;      /* pieces that were used; whose share of the host's was asked for */
    uint32_t layer_d2h;          /* letters with which the host has the layer's inputs */
    uint32_t copied[2];             /* letters with which a staging is free */
    bool synced_exponent;                   /* the host says which power of two a token's sums are made with */
    hth_buffer_range dirty[HTH_REC_MAX_DIRTY]; /* since the last order */
    size_t n_dirty;
    hearth_status st;
    hearth_error *err;
} hth_recorder;

static inline uint32_t hth_div_ceil(uint64_t n, uint64_t by) { return (uint32_t)((n + by - 1) / by); }

/* The first n_tok rows, of `width` floats. */
static inline hth_buffer_range hth_rec_first_rows(hth_buffer_range s, uint64_t n_row, uint64_t width)
{
    return (hth_buffer_range){s.buffer, s.offset, n_row * width * sizeof(float)};
}

/* ---- tapes ------------------------------------------------------------------------------------------- */

void hth_rec_begin(hth_recorder *r);
void hth_rec_end(hth_recorder *r);
void hth_rec_split(hth_recorder *r);
/* The host's next act, as soon as so many letters have come. What follows the next cut runs after it. */
void hth_rec_host_op(hth_recorder *r, uint32_t what, uint32_t of, uint32_t n_d2h);

/* ---- work (work.c) ------------------------------------------------------------------------------------- */

/* How products are made: four of bytes in one instruction, or one by one. */
typedef enum hth_dot_mode { HTH_DOT_INT8X4 = 1, HTH_DOT_SCALAR = 4 } hth_dot_mode;

/* Of a row of n_col weights for n_tok tokens. */
uint64_t hth_rec_row_work(uint64_t n_col, uint32_t n_tok, hth_dot_mode how);
/* Of n rows, neurons or tokens of so much work each, those of one run: multiples of grain. */
uint32_t hth_rec_rows_per_dispatch(const hth_recorder *r, uint32_t n, uint64_t work, uint32_t grain);
/* The next run does so much: it begins a tape where the last one has no room for it. */
void hth_rec_reserve_work(hth_recorder *r, uint64_t work);

/* ---- runs --------------------------------------------------------------------------------------------- */

/* What was written since the last order is read by what follows that. */
void hth_rec_mark_dirty(hth_recorder *r, hth_buffer_range s);
void hth_rec_barrier(hth_recorder *r);
void hth_rec_dispatch(hth_recorder *r, hth_shader_id id, const uint32_t *consts, const hth_buffer_range *bind,
                 const void *push, uint32_t gx, uint32_t gy);
void hth_rec_dispatch_3d(hth_recorder *r, hth_shader_id id, const uint32_t *consts, const hth_buffer_range *bind,
                   const void *push, uint32_t gx, uint32_t gy, uint32_t gz);
const hth_pipeline *hth_rec_pipeline(hth_recorder *r, hth_shader_id id, const uint32_t *consts);
hth_buffer_range hth_rec_vector(const hth_recorder *r, hth_gpu_vector v);

/* ---- rows --------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a part. live: of them those of live neurons; the first row's is `neuron`. */
typedef struct hth_row_range {
    uint32_t first, n, neuron;
    bool live;
} hth_row_range;

/* Rows [first, first + n) of a part by themselves; first: a multiple of HTH_REC_ROW_ALIGNMENT. */
enum { HTH_REC_ROW_ALIGNMENT = 64 };
hth_gpu_matrix hth_rec_rows_of(const hth_gpu_matrix *p, uint64_t n_col, uint32_t first, uint32_t n);
/* y, or onto y: some rows of a part times the input; group: of its results and inputs. Only live rows may
 * begin anywhere. */
void hth_rec_part(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_matrix *p,
                  const hth_row_range *s, const hth_gpu_input *in, hth_buffer_range y, bool accumulate);
/* What a run of some rows of a part reads: its time goes by that. */
void hth_rec_hint_bytes(hth_recorder *r, const hth_gpu_matrix *p, const hth_row_range *s);
/* y, or onto y: rows [from, end) of the group times the input; live: those of neurons 0 and on that are. */
void hth_rec_row_range(hth_recorder *r, const hth_gpu_fused_matrix *group, uint32_t from, uint32_t end, bool live,
                       const hth_gpu_input *in, hth_buffer_range y, bool accumulate);
/* The same for all of them, and ordered. */
void hth_rec_rows(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_input *in, hth_buffer_range y,
                  bool accumulate);

/* ---- inputs ------------------------------------------------------------------------------------------ */

uint32_t hth_rec_norm_kind(const hth_recorder *r);
/* The block in which a group's input is rounded first; 0: in none. */
uint32_t hth_rec_primary_block(const hth_gpu_fused_matrix *group);
/* The second form of an input that stands in in->x, where a group of both kinds wants it. */
void hth_rec_quantize_second(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_input *in);
/* What a group wants of norm(x), and the floats themselves for others. */
void hth_rec_normed_input(hth_recorder *r, const hth_gpu_vector norm[2], hth_buffer_range x,
                          const hth_gpu_fused_matrix *group, bool store);
/* What a group wants of x. */
hth_gpu_input hth_rec_plain_input(hth_recorder *r, hth_buffer_range x, const hth_gpu_fused_matrix *group);

/* ---- the network (record_ffn.c) ---------------------------------------------------------------------- */

/* y, or onto y: what layer i's neurons give. */
void hth_rec_ffn(hth_recorder *r, uint32_t i_layer, hth_buffer_range y, bool accumulate);

#endif
