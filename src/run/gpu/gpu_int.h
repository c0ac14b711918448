/* What the files of this folder share: a part of a model on a device, its matrices, buffers and tapes. */
#ifndef HTH_RUN_GPU_GPU_INT_H
#define HTH_RUN_GPU_GPU_INT_H

#include "run/gpu/calls.h"
#include "run/gpu/gpu.h"
#include "run/gpu/planes.h"
#include "run/gpu/selftest.h"

#include <pthread.h>

/* ---- vectors and matrices (weights.c) ------------------------------------------------------------- */

/* Floats among those of the model, which lie together: bytes from `at` on; n 0: absent. */
typedef struct hth_gpu_vector {
    uint64_t at;
    uint32_t n;
} hth_gpu_vector;

/* Rows of one type that lie together: some of a matrix, or of several with the same input. */
typedef struct hth_gpu_part {
    hth_type type;
    uint32_t n_row, first; /* first: where its results begin among those of the group */
    hth_planes planes;
    hth_buffer *weights;
    uint64_t at; /* bytes from there on the planes begin */
    hth_gpu_vector bias;
} hth_gpu_part;

/* Matrices with the same input, whose results stand side by side: q, k, v; gate, up. */
typedef struct hth_gpu_group {
    hth_gpu_part *parts;
    uint32_t n_part;
    uint32_t n_row, n_col;                  /* results, inputs of a token */
    bool wants_32, wants_256, wants_floats; /* forms of the input */
} hth_gpu_group;

typedef struct hth_gpu_layer {
    hth_gpu_group qkv, o, gate_up, down;
    hth_gpu_group predict_in, predict_out;
    hth_gpu_vector attn_norm[2], ffn_norm[2], attn_post[2], ffn_post[2]; /* weight, bias */
    hth_gpu_vector head_norms;                                           /* of queries, then of keys */
    hth_gpu_vector floors;
    hth_gpu_vector cold_bias[2]; /* of gate and up of the host's neurons, where weights pass through */
    hth_buffer *cache;
    hth_slice keys, values;
    uint32_t head_words; /* of a cache, from KV head to KV head */
    uint32_t n_hot;      /* neurons whose rows lie here: the first ones */
    bool by_neurons;     /* down's rows are neurons; then: */
    hth_gpu_vector down_bias;
    float scale_top;  /* the largest of its scales */
    hth_layer cold;   /* the other neurons, as a layer of the CPU's; d_ff 0: there are none */
    hth_layer agreed; /* the same with the H of a token that is done with care: threads that come late still
                         look at it */
} hth_gpu_layer;

/* ---- the values of a step (room.c) -------------------------------------------------------------------- */

/* Rows whose logits are computed at once. */
enum { HTH_GPU_HEAD_ROWS = 16 };

/* The input of a group in its forms. */
typedef struct hth_gpu_input {
    hth_slice x, q, d, sum, q_256, d_256, sum_256;
} hth_gpu_input;

/* For n_row tokens; widths are the largest over the layers. */
typedef struct hth_gpu_room {
    hth_buffer *from_host, *to_host, *memory;
    hth_slice step, embedded, table, grids; /* from_host; grids: three words for each layer, of four */
    hth_slice host_sums,
        given_top;    /* from_host: HTH_HOST_SUMS words, then [n_row][d_model] of 64 bits; of a token */
    hth_slice result; /* to_host: [n_row][d_model], or [HTH_GPU_HEAD_ROWS][n_vocab] */
    hth_slice mail, mail_scores; /* to_host: [n_row][d_model], [n_row][d_ff] for the layer under way */
    hth_slice tops;              /* to_host: {2^k, largest |h|} [n_layer][n_row] */
    hth_slice x, out, held;      /* [n_row][d_model] */
    hth_slice qkv, heads, rounded;
    hth_slice splits, split_parts; /* of one token */
    hth_slice gate_up, marks, scores;
    hth_slice live;      /* a bit for each neuron: whether its rows are wanted */
    hth_slice top, sums; /* of neuron-major down: of all tokens; of n_stage */
    uint32_t n_stage;
    hth_slice staging[2], slots[2]; /* of weights that pass through: from_host; there */
    hth_slice wide;                 /* HTH_HOST_SUMS words, then [n_row][d_model] of 64 bits */
    hth_slice logits;
    hth_gpu_input input;
    uint32_t sine_at, rounded_d_at, n_split; /* words; splits of the longest sequence */
} hth_gpu_room;

hearth_status hth_gpu_room_open(hth_gpu *g, hearth_error *err);
void hth_gpu_room_close(hth_gpu *g);
hearth_status hth_gpu_caches_open(hth_gpu *g, hearth_error *err);
void hth_gpu_caches_close(hth_gpu *g);

/* ---- tapes (record.c) --------------------------------------------------------------------------------- */

/* Steps of one row, of up to 8, and of up to n_row have tapes of their own. */
enum { HTH_GPU_ONE, HTH_GPU_FEW, HTH_GPU_MANY, HTH_GPU_N_CLASS, HTH_GPU_FEW_ROWS = 8 };

/* What the host does in the midst of a step, one after another, as soon as so many letters have come. What
 * comes from the device for it (a layer's inputs, or that a staging is free) is a letter. */
enum { HTH_GPU_ANSWER, HTH_GPU_AGREE, HTH_GPU_STAGE, HTH_GPU_SHARE, HTH_GPU_N_ACT };
typedef struct hth_gpu_act {
    uint32_t what, of; /* a hand: its neurons, or with care; a piece: to be staged, or its share */
    uint32_t n_letter;
} hth_gpu_act;

/* A step's tapes in the order in which they run. Each layer of which the host has a part (a hand) is cut
 * where its letter to the host is complete, and where the host's sums are wanted; besides, tapes are cut
 * where they would be too much work for a submission (work.c). */
typedef struct hth_gpu_cut {
    hth_tape *tape;
    uint32_t n_letter, n_act; /* letters that are written by its end; acts that must be done before it */
    uint64_t work;            /* as hth_gpu_place counts it */
} hth_gpu_cut;
typedef struct hth_gpu_tapes {
    hth_gpu_cut *cut; /* [n], with room for so many */
    uint32_t n, room;
    hth_gpu_act *acts; /* [n_act] */
    uint32_t n_act;
} hth_gpu_tapes;

/* ---- weights that pass through (stream.c) ------------------------------------------------------------ */

/* Rows of the host's neurons as they pass through: of one matrix, as many as a slot holds. Pieces are used in
 * their order, of each layer gate, up, then down; while one is used, the next is on its way to the other
 * slot. */
typedef struct hth_gpu_piece {
    const hth_matrix *rows; /* the host's */
    uint32_t first, n_row;  /* of them */
    uint32_t neuron;        /* number of the first in its layer */
    hth_planes planes;
    hth_gpu_vector bias;
    uint32_t i_hand;
    hth_layer here;         /* neurons of the hand that the host computes meanwhile; d_ff 0: none */
    uint32_t first_of_here; /* their first one's number among the hand's */
} hth_gpu_piece;

/* Steps of so many tokens (gpu.h), up to n_row. */
typedef struct hth_gpu_passage {
    hth_placement_stream is;
    uint32_t n_row;
    hth_gpu_piece *pieces; /* [n_piece] */
    uint32_t n_piece;
    hth_gpu_tapes tapes;
} hth_gpu_passage;

/* Bytes of a slot for this model; 0: its weights cannot pass through. */
uint64_t hth_gpu_slot_bytes(const hth_model *model);
/* The pieces of all hands, once the host has read its rows. */
hearth_status hth_gpu_passages_open(hth_gpu *g, hearth_error *err);
void hth_gpu_passages_close(hth_gpu *g);
/* Neurons of the host's in a layer that pass through, the first ones. */
uint32_t hth_gpu_n_passing(const hth_gpu_layer *l, const hth_gpu_passage *p);
/* Piece i into its staging. */
void hth_gpu_stage(const hth_gpu *g, hth_pool *pool, const hth_gpu_passage *p, uint32_t i);

struct hth_gpu {
    const hth_model *model;
    const hth_kernels *kernels;
    hth_device *device;
    hth_gpu_place place;
    char strict_note[HTH_GPU_NOTE]; /* why it does not give the CPU's bits; empty: it does */
    hth_gpu_layer *layers;          /* [place.n_layer] */
    uint32_t *hands;                /* [n_hand] layers of which the host has a part */
    uint32_t n_hand;
    hth_gpu_group head;
    hth_gpu_vector output_norm[2];
    hth_buffer *vectors;
    float *mirror; /* of the vectors, while they are gathered */
    size_t n_mirror, mirror_room;
    hth_gpu_room room;
    hth_gpu_tapes tapes[HTH_GPU_N_CLASS];
    hth_gpu_tapes careful; /* of one row */
    hth_gpu_passage passages[HTH_PLACEMENT_STREAMS + 1];
    uint32_t n_passage;
    uint32_t whole; /* among them, behind those of the place: nothing is shared, for any number of tokens; 0:
                       there is none, and no other shares */
    hth_gpu_tapes head_tapes[2]; /* of one row; of HTH_GPU_HEAD_ROWS */
    hth_turn *turns;             /* [of the longest tapes, and the head's] of the step under way, */
    hth_tick *ticks;
    uint32_t n_sent, n_done; /* of which so many were submitted, and were seen to be done */
    uint32_t *cold_tops;     /* [n_hand][n_row] bits of the host's largest |h| */
    int64_t *shared_sums;    /* [n_row][d_model] of the host's share of a layer, so far; NULL: it has none */
    uint32_t shared;         /* what is said of them: HTH_HOST_* */
    uint64_t n_twice;        /* steps with such a share that were not usual */
    bool spoilt;             /* sums of the host's in the step under way mean nothing, for whichever row */
    uint64_t gate;           /* the host's last signal */
    uint64_t patience_ns;    /* after which the device is lost */
    hth_matrices matrices;   /* of which rows of many tokens make use, where they can */
    hth_gpu_counts counts;
    pthread_mutex_t turn;
    bool left;      /* hth_gpu_leave */
    uint8_t *taken; /* [n_position / HTH_GPU_SLOT] */
    uint32_t n_slot;
};

/* Of a layer of the CPU's some neurons; first: a multiple of HTH_PANEL_ROW, and n too but for the last. */
hth_layer hth_gpu_some_neurons(const hth_layer *l, uint32_t first, uint32_t n);
/* charge.c: the host's neurons of a layer, of which so many fired over all tokens. */
void hth_gpu_charge_cold(hth_gpu *g, const hth_step *s, const hth_layer *cold, uint64_t n_fired);
/* The same of a piece of weights that pass through. */
void hth_gpu_charge_piece(hth_gpu *g, const hth_gpu_piece *piece);
static inline void *hth_gpu_mapped(hth_slice s) { return (uint8_t *)hth_buffer_map(s.of) + s.at; }

/* ---- a step under way -----------------------------------------------------------------------------------
 */

/* acts.c: what the host has to do for n rows; p: of a passage, or NULL. */
void hth_gpu_do(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, const hth_gpu_act *act, uint32_t n);
/* Whether all divided layers say what their usual values are. */
bool hth_gpu_has_usual(const hth_gpu *g);
/* Of n rows that were done so many, the first ones, whose sums fit together. */
uint32_t hth_gpu_n_usual(const hth_gpu *g, const hth_gpu_passage *p, uint32_t n);

/* play.c: a step's tapes. */
typedef struct hth_gpu_play {
    const hth_gpu_tapes *tapes;
    const hth_gpu_passage *passage; /* that they are of, or NULL */
    uint32_t n_row;
    hth_gpu_handoff handoff;
    const hth_gpu_tapes *behind; /* more, or NULL */
} hth_gpu_play;
hearth_status hth_gpu_play_step(hth_gpu *g, hth_step *s, const hth_gpu_play *p, hearth_error *err);
/* Waits for a step whose end was not seen: it may still read what the next one is told, and wait for signals.
 */
hearth_status hth_gpu_settle(hth_gpu *g, hearth_error *err);

/* The classes' numbers of rows. */
uint32_t hth_gpu_class_rows(const hth_gpu *g, int class);
/* All tapes, and room for a step of them. */
hearth_status hth_gpu_record(hth_gpu *g, hearth_error *err);
void hth_gpu_tapes_free(hth_gpu *g);
/* work.c: what stands for an n_work of 0. */
uint64_t hth_gpu_usual_submission(const hth_device_info *info);

/* ---- matrix units (tiles.c) -------------------------------------------------------------------------- */

/* LOCAL, COLS, ROWS and the shape for matrices of a form and steps of n_tok tokens, among the constants of
 * tile_q_cm2, of tile_q, or of neither, in this order and not above `most`: which of them is returned.
 * NONE: the device has no shape that fits, or too little that a workgroup shares. */
hth_matrices hth_gpu_tile_of(const hth_device_info *info, const hth_form *form, hth_matrices most,
                             uint32_t n_tok, uint32_t consts[HTH_TILE_N_CONST]);

/* ---- sources of weights (weights.c) ------------------------------------------------------------------- */

/* Matrices with the same input, in order: the first n_row of each; absent ones have none. */
enum { HTH_GPU_MOST_MATRICES = 3 };
typedef struct hth_gpu_source {
    const hth_matrix *matrix[HTH_GPU_MOST_MATRICES];
    const float *bias[HTH_GPU_MOST_MATRICES];
    uint64_t n_row[HTH_GPU_MOST_MATRICES];
    uint32_t n;
} hth_gpu_source;

/* The groups of a layer with n_hot of its neurons: q k v, o, gate and up, down, the predictor's two. */
enum { HTH_GPU_N_GROUP = 6 };
void hth_gpu_sources(const hth_model *model, uint32_t i_layer, uint32_t n_hot, hearth_selector selector,
                     hth_gpu_source out[HTH_GPU_N_GROUP]);
hth_gpu_source hth_gpu_head_source(const hth_model *model);
/* Bytes of a group whose bindings may have `most`. False: no program knows a type, or it overflows. */
bool hth_gpu_group_bytes(const hth_gpu_source *source, uint64_t most, uint64_t *bytes);
/* The first matrix of floats among those of the place; NULL: all are quantised. */
const hth_matrix *hth_gpu_first_floats(const hth_model *model, const hth_gpu_place *place);
/* All weights and vectors of the place. */
hearth_status hth_gpu_weights_open(hth_gpu *g, hth_gpu_read_fn *read, void *user, hearth_error *err);
void hth_gpu_weights_close(hth_gpu *g);

#endif
