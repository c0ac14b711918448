/* A low-rank network that predicts which neurons of a layer are active, trained on observed activity: score =
 * out relu(in x) + bias, by Adam (Kingma and Ba 2015) on the cross-entropy of each neuron's activity. Scores
 * are log-odds, so one threshold serves all neurons, rare ones too. The order of all sums is fixed
 * (docs/arithmetic.md 7), so the same inputs give the same network for any number of threads. */
#ifndef HTH_CONVERT_TRAIN_H
#define HTH_CONVERT_TRAIN_H

#include "base/pool.h"
#include "base/status.h"
#include "kernels/product.h"

/* Tokens of one layer: the inputs of the network, and a bit per neuron, set if it was active. */
typedef struct hth_train_data {
    const float *input;   /* [n_tok][d] */
    const uint8_t *fired; /* [n_tok][(d_ff + 7) / 8] */
    size_t n_tok, d, d_ff;
} hth_train_data;

enum { HTH_TRAIN_BLOCK = 64, HTH_TRAIN_BATCH = 256 };

/* If n_tok is more than eight blocks, every eighth block is held out of training. */
static inline bool hth_train_holds_out(size_t n_tok) { return n_tok > 8 * HTH_TRAIN_BLOCK; }
static inline bool hth_train_is_held(size_t i_tok, size_t n_tok)
{
    return hth_train_holds_out(n_tok) && i_tok / HTH_TRAIN_BLOCK % 8 == 7;
}

typedef struct hth_network {
    size_t rank, d, d_ff;
    float *in;   /* [rank][d] */
    float *out;  /* [d_ff][rank] */
    float *bias; /* [d_ff] */
} hth_network;

/* Workspace for networks of up to rank_max. */
typedef struct hth_trainer hth_trainer;
hearth_status hth_trainer_open(const hth_kernels *k, hth_pool *pool, size_t d, size_t d_ff, size_t rank_max,
                               hth_trainer **out, hearth_error *err);
void hth_trainer_close(hth_trainer *t);

/* Cost of a step in multiplications. The other work of a step takes as long as 64 hidden units. */
static inline uint64_t hth_train_work(size_t d, size_t d_ff, size_t rank)
{
    return (uint64_t)HTH_TRAIN_BATCH * (rank + 64) * (2 * d + 3 * d_ff);
}

/* Trains a network of that rank (a multiple of 32) for n_step steps. progress (may be NULL) is called with the
 * number of steps done; false: cancelled. The arrays of the network belong to the trainer and are valid until
 * the next call. */
typedef bool hth_train_progress_fn(void *user, size_t i_step);
bool hth_train(hth_trainer *t, const hth_train_data *data, size_t rank, size_t n_step, uint64_t seed,
               hth_train_progress_fn *progress, void *user, hth_network *out);

/* scores[n_tok][d_ff] of some tokens by a network whose matrices have any types. n_tok at most HTH_TRAIN_BATCH. */
typedef struct hth_network_form {
    hth_matrix in, out;
    const float *bias;
} hth_network_form;
void hth_network_scores(hth_trainer *t, const hth_network_form *f, const float *input, size_t n_tok,
                        float *scores);

#endif
