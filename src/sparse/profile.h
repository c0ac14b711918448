/* What a text made of a model's neurons: how often each fired, how large it was, who fired
 * together. measure/profile.c collects it; packing, placement and studies read it. In a file it is
 * a GGUF without weights that carries the hash of its model (docs/profile.md). */
#ifndef HTH_SPARSE_PROFILE_H
#define HTH_SPARSE_PROFILE_H

#include "model/model.h"

enum {
    HTH_PROFILE_MAX_SAMPLE = 65536,
    /* Slots of the histogram of |hidden|: zero; below 2^-24; 8 to an octave, as wide as each other
     * within it, from there to 2^8; the rest. */
    HTH_PROFILE_N_BIN = 259,
    /* Arrays of d_ff entries have room for a multiple of this, so that loops need no ends. */
    HTH_PROFILE_BLOCK = 64,
};

typedef struct hth_profile_layer {
    uint32_t d_ff;
    uint32_t *n_fired;  /* [d_ff] tokens for which the neuron sent something else than zero */
    float *mean;        /* [d_ff] of |hidden| over all tokens */
    uint32_t *coact_bits; /* [d_ff][n_word] bit i % 32 of word i / 32: fired at sample i; NULL: no samples */
    float largest;      /* |hidden| */
    uint64_t gate_fired, up_fired;      /* values of the gate, of up, that were above zero; no gate: 0 */
    uint64_t bins[HTH_PROFILE_N_BIN]; /* how many of the n_tok * d_ff values of |hidden| were of a size */
    double *sum; /* [d_ff] of |hidden|, while it is collected; NULL in a finished profile that was read */
} hth_profile_layer;

typedef struct hth_profile {
    uint64_t model_hash; /* hth_model_hash */
    uint64_t text_hash;  /* of the ids of the text */
    uint64_t n_tok;      /* of the text, in whole windows; below 2^31 */
    uint64_t n_done;     /* of these; less than n_tok: an unfinished state */
    uint32_t n_ctx;      /* tokens of a window */
    uint32_t n_sample, n_word;
    char activation[32];
    char settings[64]; /* what else may change a bit: the type of the cache, approximations */
    bool coact_is_top_decile;   /* no value is zero: `together` marks the largest tenth of a layer's values */
    uint32_t n_layer;
    hth_profile_layer *layers;
    hth_arena arena;
} hth_profile;

/* All counts zero, for the layers of a model; what is known of model, text and settings is for the caller
 * to fill in. with_sums: room for `sum`. MEMORY, ARGUMENT. */
hearth_status hth_profile_new(const hth_model *model, uint32_t n_sample, bool with_sums, hth_profile **out,
                              hearth_error *err);
void hth_profile_close(hth_profile *p);
/* What was counted in `from` to a profile of the same shape. */
void hth_profile_copy(hth_profile *to, const hth_profile *from);

/* Reads a finished profile. With a model it must be of that one, in hash, shapes and activation; without
 * one it is held to itself. Every figure is checked. IO, FORMAT, UNSUPPORTED, ARGUMENT (of another model),
 * MEMORY. */
hearth_status hth_profile_open(const char *path, const hth_model *model, hth_profile **out,
                               hearth_error *err);
/* The same for an unfinished state, and for nothing else. */
hearth_status hth_profile_open_state(const char *path, const hth_model *model, hth_profile **out,
                                     hearth_error *err);
/* A profile, or a state where n_done is less than n_tok. Appears when it is complete and on the disk. */
hearth_status hth_profile_write(const hth_profile *p, const char *path, hearth_error *err);

/* What the i-th sample is of: a token of the text, one in each of n_sample equal stretches, anywhere
 * in it so that no place within a window is preferred. */
uint64_t hth_profile_sample_at(const hth_profile *p, uint32_t i);

/* ---- figures -------------------------------------------------------------------------------------- */

/* Share of the n_done * d_ff values that were not zero. */
double hth_profile_live(const hth_profile *p, uint32_t i_layer);
/* Of all firings of a layer, the share that belongs to the `share` of its neurons that fire most; where no
 * value is zero, of the sum of |hidden| to those that are largest in the mean. */
double hth_profile_cover(const hth_profile *p, uint32_t i_layer, double share);
/* Where slot i begins; slot 0 is zero itself. */
float hth_profile_bin_edge(size_t i);
/* The k-th largest of n words of 32 bits, 1 <= k <= n; all below 2^31. Floats from 0 on serve as words:
 * they are ordered like their bits. */
uint32_t hth_profile_kth(const void *x, size_t n, size_t k);

#endif
