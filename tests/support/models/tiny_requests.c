/* Notes the events of a request, and compares two. */
#include "support/models/tiny_requests.h"

#include "base/hash.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

uint64_t request_hash(uint64_t hash, const float *logits)
{
    return hth_hash_more(hash, logits, TINY_VOCAB * sizeof *logits);
}

bool request_note(void *user, const hearth_request_event *e)
{
    request_outcome *o = user;
    if (e->logits) o->hash = request_hash(o->hash, e->logits);
    if (e->state != HEARTH_REQUEST_TOKEN) o->last = e->state, o->n_last++;
    else if (o->n < REQUEST_OUTCOME_TOKENS) o->tokens[o->n++] = e->token;
    else CHECK(o->n < REQUEST_OUTCOME_TOKENS);
    if (e->error) o->error = *e->error;
    o->n_cached = e->n_cached, o->draft = e->draft;
    return o->n != o->stop_at;
}

void request_expect_same(const request_outcome *a, const request_outcome *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(b[i].n, a[i].n);
        CHECK_BYTES(b[i].tokens, a[i].tokens, a[i].n * sizeof *a[i].tokens);
        CHECK(b[i].hash == a[i].hash);
        CHECK_INT(b[i].last, a[i].last);
        CHECK_INT(b[i].n_last, 1);
    }
}
