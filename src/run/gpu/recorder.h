/* What tapes of a step are recorded with: the tape, and the order of what is on it; runs of programs,
 * products of rows, inputs in the forms that these want. record.c and record_ffn.c put the programs of a
 * token in their order. The first error stays in the recorder, and nothing is recorded after it. */
#ifndef HTH_RUN_GPU_RECORDER_H
#define HTH_RUN_GPU_RECORDER_H

#include "run/gpu/gpu_int.h"

enum { HTH_REC_LOCAL = 64, HTH_REC_MOST_WRITTEN = 16 };

typedef struct hth_recorder {
    hth_gpu *g;
    hth_gpu_tapes *tapes; /* the last is being recorded */
    hth_tape *tape;
    uint32_t n_letter, n_hand;      /* so far */
    uint32_t n_row;                 /* of the class */
    uint32_t by_want;               /* 1: tokens are those that want logits */
    bool marked;                    /* the layer's live neurons are, so far */
    const hth_gpu_passage *passage; /* the host's weights pass through; NULL: they do not. So far: */
    uint32_t n_piece, n_share;      /* pieces that were used; whose share of the host's was asked for */
    uint32_t layer_letter;          /* letters with which the host has the layer's inputs */
    uint32_t copied[2];             /* letters with which a staging is free */
    bool careful;                   /* the host says which power of two a token's sums are made with */
    hth_slice written[HTH_REC_MOST_WRITTEN]; /* since the last order */
    size_t n_written;
    hearth_status st;
    hearth_error *err;
} hth_recorder;

static inline uint32_t hth_rec_over(uint64_t n, uint64_t by) { return (uint32_t)((n + by - 1) / by); }

/* The first n_row rows, of `width` floats. */
static inline hth_slice hth_rec_first_rows(hth_slice s, uint64_t n_row, uint64_t width)
{
    return (hth_slice){s.of, s.at, n_row * width * sizeof(float)};
}

/* ---- tapes ------------------------------------------------------------------------------------------- */

void hth_rec_begin(hth_recorder *r);
void hth_rec_end(hth_recorder *r);
void hth_rec_cut(hth_recorder *r);
/* The host's next act, as soon as so many letters have come. What follows the next cut runs after it. */
void hth_rec_ask(hth_recorder *r, uint32_t what, uint32_t of, uint32_t n_letter);

/* ---- work (work.c) ------------------------------------------------------------------------------------- */

/* How products are made: four of bytes in one instruction, or one by one. */
typedef enum hth_rec_manner { HTH_REC_BY_BYTES = 1, HTH_REC_BY_WORDS = 4 } hth_rec_manner;

/* Of a row of n_col weights for n_tok tokens. */
uint64_t hth_rec_row_work(uint64_t n_col, uint32_t n_tok, hth_rec_manner how);
/* Of n rows, neurons or tokens of so much work each, those of one run: multiples of grain. */
uint32_t hth_rec_at_once(const hth_recorder *r, uint32_t n, uint64_t work, uint32_t grain);
/* The next run does so much: it begins a tape where the last one has no room for it. */
void hth_rec_take(hth_recorder *r, uint64_t work);

/* ---- runs --------------------------------------------------------------------------------------------- */

/* What was written since the last order is read by what follows that. */
void hth_rec_wrote(hth_recorder *r, hth_slice s);
void hth_rec_order(hth_recorder *r);
void hth_rec_run(hth_recorder *r, hth_program_id id, const uint32_t *consts, const hth_slice *bind,
                 const void *push, uint32_t gx, uint32_t gy);
void hth_rec_run_3(hth_recorder *r, hth_program_id id, const uint32_t *consts, const hth_slice *bind,
                   const void *push, uint32_t gx, uint32_t gy, uint32_t gz);
const hth_program *hth_rec_program(hth_recorder *r, hth_program_id id, const uint32_t *consts);
hth_slice hth_rec_vector(const hth_recorder *r, hth_gpu_vector v);

/* ---- rows --------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a part. live: of them those of live neurons; the first row's is `neuron`. */
typedef struct hth_rec_stretch {
    uint32_t first, n, neuron;
    bool live;
} hth_rec_stretch;

/* Rows [first, first + n) of a part by themselves; first: a multiple of HTH_REC_GRAIN. */
enum { HTH_REC_GRAIN = 64 };
hth_gpu_part hth_rec_rows_of(const hth_gpu_part *p, uint64_t n_col, uint32_t first, uint32_t n);
/* y, or onto y: some rows of a part times the input; group: of its results and inputs. Only live rows may
 * begin anywhere. */
void hth_rec_part(hth_recorder *r, const hth_gpu_group *group, const hth_gpu_part *p,
                  const hth_rec_stretch *s, const hth_gpu_input *in, hth_slice y, bool onto);
/* What a run of some rows of a part reads: its time goes by that. */
void hth_rec_reads(hth_recorder *r, const hth_gpu_part *p, const hth_rec_stretch *s);
/* y, or onto y: rows [from, end) of the group times the input; live: those of neurons 0 and on that are. */
void hth_rec_some_rows(hth_recorder *r, const hth_gpu_group *group, uint32_t from, uint32_t end, bool live,
                       const hth_gpu_input *in, hth_slice y, bool onto);
/* The same for all of them, and ordered. */
void hth_rec_rows(hth_recorder *r, const hth_gpu_group *group, const hth_gpu_input *in, hth_slice y,
                  bool onto);

/* ---- inputs ------------------------------------------------------------------------------------------ */

uint32_t hth_rec_norm_kind(const hth_recorder *r);
/* The block in which a group's input is rounded first; 0: in none. */
uint32_t hth_rec_first_block(const hth_gpu_group *group);
/* The second form of an input that stands in in->x, where a group of both kinds wants it. */
void hth_rec_round_again(hth_recorder *r, const hth_gpu_group *group, const hth_gpu_input *in);
/* What a group wants of norm(x), and the floats themselves for others. */
void hth_rec_normed_input(hth_recorder *r, const hth_gpu_vector norm[2], hth_slice x,
                          const hth_gpu_group *group, bool store);
/* What a group wants of x. */
hth_gpu_input hth_rec_plain_input(hth_recorder *r, hth_slice x, const hth_gpu_group *group);

/* ---- the network (record_ffn.c) ---------------------------------------------------------------------- */

/* y, or onto y: what layer i's neurons give. */
void hth_rec_ffn(hth_recorder *r, uint32_t i_layer, hth_slice y, bool onto);

#endif
