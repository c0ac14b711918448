/* The batch, for batch.c and session.c. */
#ifndef HTH_ENGINE_BATCH_INT_H
#define HTH_ENGINE_BATCH_INT_H

#include "engine/session_int.h"

enum { HTH_MAX_BATCH = 1 << 16 }; /* tokens of a step */

struct hearth_batch {
    const hearth_model *model;
    hth_in_use in_use;
    volatile int cancel; /* hearth_batch_cancel */
    hth_kernels kernels; /* the model's, except for approximations */
    hth_pool *pool;
    hth_step *step;
    uint32_t n_thread; /* threads of pool as requested */
    bool no_pin;
    hearth_selector selector;
    uint64_t size;       /* counted in the limit of the model; 0: with its session */
    hth_gpu *gpu;        /* runs the first layers; NULL: the CPU runs all */
    uint32_t generation; /* placement generation of gpu */
    uint32_t n_new;      /* tokens since the last check of the device's budget */
    hth_speed_window window;
    uint32_t n_tok_max, n_tok, n_entry;
    hth_batch_token *tokens; /* [n_tok_max] */
    struct batch_entry {
        hearth_session *session;
        hth_in_use *use; /* marks the session as in use while hearth_batch_run runs */
        uint32_t n_token, n_draft; /* n_draft: how many of the last tokens are a draft */
        bool wants;                /* logits of the last token before a draft, and of the draft, are computed */
        float *rows;               /* destination of the draft's logits */
        uint8_t *states;           /* destination of the recurrent states before each draft token; NULL: none */
    } * entries;                   /* [n_tok_max] */
    uint64_t n_counted;            /* tokens whose active neurons were counted */
    uint64_t *n_active;            /* [n_layer] */
};

/* hearth_batch_open for a session with these options. Its size is counted with the session's. */
hearth_status hth_batch_open_own(const hearth_model *model, uint32_t n_tok, uint32_t n_thread, bool bf16_dot,
                                 hearth_selector requested, hearth_batch **out, hearth_error *err);
/* Threads, and a workspace for them, of a batch that has its kernels, selector and size. MEMORY. */
hearth_status hth_batch_open_step(hearth_batch *b, uint32_t n_thread, hth_pool **pool, hth_step **step,
                                  hearth_error *err);
/* Runs a step over the first n_tok tokens of the batch. */
hearth_status hth_batch_step(hearth_batch *b, uint32_t n_tok, hth_logits_fn *fn, void *user,
                             hearth_error *err);
/* Takes out a session that is being closed. */
void hth_batch_remove(hearth_batch *b, const hearth_session *s);

/* ARGUMENT: a token is not in the vocabulary; CONTEXT: they do not fit. */
hearth_status hth_session_check_tokens(const hearth_session *s, const int32_t *tokens, size_t n,
                                       hearth_error *err);
/* Whether it is cancelled, which ends with that. */
bool hth_batch_take_cancel(hearth_batch *b);
/* Keeps logits of a step until hth_session_take_logits makes them those of the session: until then its own ones stay. */
void hth_session_store_logits(hearth_session *s, const float *logits);
void hth_session_take_logits(hearth_session *s);

#endif
