/* Log probabilities of tokens as clients get them: of the model's distribution, before the sampler's filters, at
 * temperature 1. */
#ifndef HEARTH_APPS_SERVE_LOGPROBS_H
#define HEARTH_APPS_SERVE_LOGPROBS_H

#include "common/json.h"
#include "serve/api/fields.h"

enum { MAX_TOP = 20 };

typedef struct token_prob {
    int32_t id;
    float value;
} token_prob;

typedef struct logprobs {
    bool wanted;
    uint32_t n_top; /* likeliest tokens that each entry has */
    struct logprob_entry {
        token_prob token, top[MAX_TOP];
    } * at; /* [n] */
    size_t n, capacity;
    size_t n_written; /* a stream had them */
} logprobs;

/* The fields of chats (logprobs, top_logprobs), and of completions (logprobs, a number). */
void logprobs_read_chat(fields *f, logprobs *out);
void logprobs_read_completion(fields *f, logprobs *out);
/* False: out of memory. */
bool logprobs_add(logprobs *l, const float *logits, size_t n_vocab, int32_t id);

/* The first token of a text, whose probability nothing tells: null. */
bool logprobs_add_first(logprobs *l, int32_t id);

/* An array of those that were not written yet, as chats have them. */
void logprobs_write_list(json *j, const char *key, logprobs *l, const hearth_model *model);
/* The member "logprobs" of those that were not written yet; null if none are wanted. */
void logprobs_write_chat(json *j, logprobs *l, const hearth_model *model);
void logprobs_write_completion(json *j, logprobs *l, const hearth_model *model);

#endif
