/* The activity of a model's neurons on a text: how often each was active, how large it was, which were active
 * together. measure/profile.c collects it; packing, placement and studies read it. The file is a GGUF without
 * weights that stores the hash of its model (docs/profile.md). */
#ifndef HTH_SPARSE_PROFILE_H
#define HTH_SPARSE_PROFILE_H

#include "model/model.h"

enum {
    HTH_PROFILE_MAX_SAMPLE = 65536,
    /* Bins of the histogram of |hidden|: zero; below 2^-24; 8 per octave, of equal width within it, from there to
     * 2^8; the rest. */
    HTH_PROFILE_N_BIN = 259,
    /* The capacity of arrays of d_ff entries is a multiple of this, so that loops need no remainder. */
    HTH_PROFILE_BLOCK = 64,
};

typedef struct hth_profile_layer {
    uint32_t d_ff;
    uint32_t *n_fired;  /* [d_ff] tokens for which the neuron was not zero */
    float *mean;        /* [d_ff] mean of |hidden| over all tokens */
    uint32_t *coact_bits; /* [d_ff][n_word] bit i % 32 of word i / 32: active at sample i; NULL: no samples */
    float largest;      /* largest |hidden| */
    uint64_t gate_fired, up_fired;      /* positive values of the gate, of up; no gate: 0 */
    uint64_t bins[HTH_PROFILE_N_BIN]; /* number of the n_done * d_ff values of |hidden| per bin */
    double *sum; /* [d_ff] sum of |hidden| while collecting; NULL in a finished profile that was read */
} hth_profile_layer;

typedef struct hth_profile {
    uint64_t model_hash; /* hth_model_hash */
    uint64_t text_hash;  /* hash of the text's token ids */
    uint64_t n_tok;      /* tokens of the text, in whole chunks; below 2^31 */
    uint64_t n_done;     /* tokens done; below n_tok: an unfinished state */
    uint32_t n_ctx;      /* tokens of a chunk */
    uint32_t n_sample, n_word;
    char activation[32];
    char settings[64]; /* other settings that may change a bit: KV cache type, approximations */
    bool coact_is_top_decile;   /* no value is zero: coact_bits mark the largest tenth of a layer's values */
    uint32_t n_layer;
    hth_profile_layer *layers;
    hth_arena arena;
} hth_profile;

/* A profile with all counts zero, for the layers of a model. The caller sets the fields of model, text and
 * settings. with_sums: allocates `sum`. MEMORY, ARGUMENT. */
hearth_status hth_profile_new(const hth_model *model, uint32_t n_sample, bool with_sums, hth_profile **out,
                              hearth_error *err);
void hth_profile_close(hth_profile *p);
/* Copies the counts of `from` to a profile of the same shape. */
void hth_profile_copy(hth_profile *to, const hth_profile *from);

/* Reads a finished profile. If model is given, the profile must match it in hash, shapes and activation; otherwise
 * it is checked for consistency only. Every value is checked. IO, FORMAT, UNSUPPORTED, ARGUMENT (of another
 * model), MEMORY. */
hearth_status hth_profile_open(const char *path, const hth_model *model, hth_profile **out,
                               hearth_error *err);
/* The same for an unfinished state only. */
hearth_status hth_profile_open_state(const char *path, const hth_model *model, hth_profile **out,
                                     hearth_error *err);
/* Writes a profile, or a state if n_done is less than n_tok. Atomic: the file appears when it is complete and on
 * the disk. */
hearth_status hth_profile_write(const hth_profile *p, const char *path, hearth_error *err);

/* The token of the i-th sample: one in each of n_sample equal ranges of the text, at a pseudo-random offset, so
 * that no position within a chunk is preferred. */
uint64_t hth_profile_sample_at(const hth_profile *p, uint32_t i);

/* ---- statistics ----------------------------------------------------------------------------------- */

/* Share of the n_done * d_ff values that are not zero. */
double hth_profile_live(const hth_profile *p, uint32_t i_layer);
/* The share of a layer's activations that the most active `share` of its neurons cover. If no value is zero: the
 * share of the sum of |hidden| that the neurons with the largest mean cover. */
double hth_profile_cover(const hth_profile *p, uint32_t i_layer, double share);
/* Lower edge of bin i; bin 0 is zero itself. */
float hth_profile_bin_edge(size_t i);
/* The k-th largest of n 32-bit words, 1 <= k <= n; all below 2^31. Non-negative floats are valid words: they are
 * ordered like their bits. */
uint32_t hth_profile_kth(const void *x, size_t n, size_t k);

#endif
