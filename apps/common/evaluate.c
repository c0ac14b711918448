/* Evaluates prompts in chunks. */
#include "common/evaluate.h"

#include "base/clock.h"
#include "common/output.h"
#include "engine/engine.h"

#include <unistd.h>

enum { FIRST_CHUNK = 32 }; /* 32 tokens share reads of the weights nearly as well as 256 do */

/* Number of tokens that take about a second, from the time of the last chunk: a power of two. */
static size_t chunk_of_a_second(size_t chunk, uint64_t took_ns, size_t max)
{
    const uint64_t second = 1000000000u;
    while (chunk < max && took_ns < second / 2) chunk *= 2, took_ns *= 2;
    while (chunk > FIRST_CHUNK && took_ns > 2 * second) chunk /= 2, took_ns /= 2;
    return chunk < max ? chunk : max;
}

hearth_status evaluate_shown(hearth_session *session, const char *what, const int32_t *ids, size_t n, size_t *n_done,
                             hearth_error *err)
{
    progress p;
    hearth_status st = HEARTH_OK;
    if (n == 1) { /* a token of an answer: no progress, and no system call */
        st = hearth_session_eval(session, ids, 1, err);
        *n_done = st == HEARTH_OK;
        return st;
    }
    size_t max = hth_session_n_row(session);
    bool is_seen = isatty(STDERR_FILENO) == 1 && !is_quiet();
    size_t chunk = is_seen && max > FIRST_CHUNK ? FIRST_CHUNK : max;
    progress_init(&p, what, "tokens", 1);
    for (*n_done = 0; st == HEARTH_OK && *n_done < n;) {
        size_t k = n - *n_done < chunk ? n - *n_done : chunk;
        uint64_t start = hth_clock_ns();
        st = hearth_session_eval(session, ids + *n_done, k, err);
        if (st != HEARTH_OK) break;
        *n_done += k;
        progress_update(&p, *n_done, n);
        if (is_seen && k == chunk) chunk = chunk_of_a_second(chunk, hth_clock_ns() - start, max);
    }
    progress_end(&p); /* before a message, which needs its own line */
    return st;
}
