/* What came of a request to a scheduler of a tiny model (tiny_model.h): tests compare two of them. */
#ifndef HEARTH_TESTS_SUPPORT_TINY_REQUESTS_H
#define HEARTH_TESTS_SUPPORT_TINY_REQUESTS_H

#include <hearth/hearth.h>

enum { REQUEST_OUTCOME_TOKENS = 256 };

typedef struct request_outcome {
    int32_t tokens[REQUEST_OUTCOME_TOKENS];
    size_t n, stop_at; /* stop_at 0: never; else so many tokens stop the request */
    uint64_t hash;     /* of the logits of which the tokens were sampled */
    hearth_request_state last;
    uint32_t n_last, n_cached; /* n_last: last events, of which there must be one */
    hearth_draft_stats draft;
    hearth_error error; /* FAILED */
} request_outcome;

/* The hash of logits[TINY_VOCAB] behind others. */
uint64_t request_hash(uint64_t hash, const float *logits);
/* The function of a request whose user is a request_outcome. */
bool request_note(void *user, const hearth_request_event *e);
/* Equal tokens, logits and ends. */
void request_expect_same(const request_outcome *a, const request_outcome *b, size_t n);

#endif
