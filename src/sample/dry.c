/* The history is a ring, looked at from the newest token on. How far the end of the text is repeated before each of its
 * tokens is the Z function of the history backwards, in one pass. */
#include "sample/dry.h"

#include "base/alloc.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { DEFAULT_ALLOWED = 2 };
static const float DEFAULT_BASE = 1.75f;

struct hth_dry {
    double multiplier, base;
    int32_t n_vocab, allowed;
    size_t capacity;
    int32_t *ring; /* [capacity] */
    size_t n, at;  /* at: of the next token */
    hth_dry_breaker *breakers;
    size_t n_breaker;
    int32_t *repeated; /* [capacity] */
    int32_t *longest;  /* [n_vocab] of the repetitions that a token lengthens; 0 between calls */
    hth_arena arena;
};

/* ---- opening ------------------------------------------------------------------------------------------- */

static void copy_breakers(hth_dry *d, const hth_dry_breaker *from, size_t n)
{
    d->breakers = hth_arena_alloc(&d->arena, n, sizeof *d->breakers, 16);
    for (size_t i = 0; i < n && !d->arena.failed; i++) {
        d->breakers[i] = from[i];
        d->breakers[i].tail = hth_arena_alloc(&d->arena, from[i].n_tail, sizeof *from[i].tail, 16);
        if (d->breakers[i].tail && from[i].n_tail > 0)
            memcpy(d->breakers[i].tail, from[i].tail, from[i].n_tail * sizeof *from[i].tail);
    }
    d->n_breaker = n;
}

static hearth_status open_dry(const hth_dry *like, hth_dry **out, hearth_error *err)
{
    hth_dry *d = *out = hth_alloc(1, sizeof *d);
    if (!d) return hth_fail_memory(err, sizeof *d, "the sampler");
    *d = (hth_dry){.multiplier = like->multiplier,
                   .base = like->base,
                   .n_vocab = like->n_vocab,
                   .allowed = like->allowed,
                   .capacity = like->capacity};
    d->ring = hth_arena_alloc(&d->arena, d->capacity, sizeof *d->ring, 64);
    d->repeated = hth_arena_alloc(&d->arena, d->capacity, sizeof *d->repeated, 64);
    d->longest = hth_arena_alloc(&d->arena, (size_t)d->n_vocab, sizeof *d->longest, 64);
    copy_breakers(d, like->breakers, like->n_breaker);
    if (!d->arena.failed) return HEARTH_OK;
    hth_dry_close(d);
    *out = NULL;
    return hth_fail_memory(err, like->capacity * sizeof *like->ring, "the sampler");
}

hearth_status hth_dry_open(int32_t n_vocab, const hearth_sampler_options *o, size_t capacity,
                           const hth_dry_breaker *breakers, size_t n_breaker, hth_dry **out, hearth_error *err)
{
    const hth_dry like = {.multiplier = (double)o->dry_multiplier,
                          .base = (double)(o->dry_base > 0.0f ? o->dry_base : DEFAULT_BASE),
                          .n_vocab = n_vocab,
                          .allowed = o->dry_allowed_length > 0 ? o->dry_allowed_length : DEFAULT_ALLOWED,
                          .capacity = capacity,
                          .breakers = (hth_dry_breaker *)(uintptr_t)breakers,
                          .n_breaker = n_breaker};
    return open_dry(&like, out, err);
}

hearth_status hth_dry_copy(const hth_dry *from, hth_dry **out, hearth_error *err)
{
    *out = NULL;
    if (!from) return HEARTH_OK;
    hearth_status st = open_dry(from, out, err);
    if (st == HEARTH_OK) hth_dry_follow(*out, from);
    return st;
}

void hth_dry_close(hth_dry *d)
{
    if (!d) return;
    hth_arena_free(&d->arena);
    hth_free(d);
}

/* ---- history ------------------------------------------------------------------------------------------- */

void hth_dry_forget(hth_dry *d)
{
    if (d) d->n = d->at = 0;
}

void hth_dry_accept(hth_dry *d, int32_t id)
{
    if (!d || d->capacity == 0) return;
    d->ring[d->at] = id;
    d->at = (d->at + 1) % d->capacity;
    if (d->n < d->capacity) d->n++;
}

void hth_dry_follow(hth_dry *d, const hth_dry *from)
{
    if (!d || !from) return;
    memcpy(d->ring, from->ring, from->capacity * sizeof *d->ring);
    d->n = from->n, d->at = from->at;
}

/* The i-th token from the end of the text. */
static int32_t back(const hth_dry *d, size_t i) { return d->ring[(d->at + d->capacity - 1 - i) % d->capacity]; }

/* ---- penalties ----------------------------------------------------------------------------------------- */

/* The first breaker that begins with this token or a larger one. */
static size_t find_breaker(const hth_dry *d, int32_t token)
{
    size_t low = 0, high = d->n_breaker;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->breakers[middle].token < token) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool is_breaker(const hth_dry *d, int32_t token)
{
    for (size_t i = find_breaker(d, token); i < d->n_breaker && d->breakers[i].token == token; i++)
        if (d->breakers[i].n_tail == 0) return true;
    return false;
}

/* The longest breaker that begins at the i-th token from the end; SIZE_MAX: none. */
static size_t breaker_at(const hth_dry *d, size_t i)
{
    size_t longest = SIZE_MAX;
    const int32_t token = back(d, i);
    for (size_t low = find_breaker(d, token); low < d->n_breaker && d->breakers[low].token == token; low++) {
        const hth_dry_breaker *b = &d->breakers[low];
        bool is_there = b->n_tail <= i && (longest == SIZE_MAX || b->n_tail > longest);
        for (size_t k = 0; k < b->n_tail && is_there; k++) is_there = b->tail[k] == back(d, i - 1 - k);
        if (is_there) longest = b->n_tail;
    }
    return longest;
}

/* No repetition is longer: behind that lies a breaker. */
static size_t find_limit(const hth_dry *d)
{
    for (size_t i = 0; i < d->n; i++) {
        size_t n_tail = breaker_at(d, i);
        if (n_tail != SIZE_MAX) return i - n_tail;
    }
    return d->n;
}

/* repeated[i]: how many tokens before the i-th from the end, and with it, are the last ones of the text. */
static void count_repeats(hth_dry *d, size_t limit)
{
    const size_t n = d->n;
    for (size_t i = 1, left = 0, right = 0; i < n; i++) { /* [left, right) agrees with the beginning */
        size_t k = i < right && (size_t)d->repeated[i - left] < right - i ? (size_t)d->repeated[i - left]
                   : i < right                                            ? right - i
                                                                          : 0;
        while (i + k < n && k < n - 1 && back(d, i + k) == back(d, k)) k++;
        if (i + k > right) left = i, right = i + k;
        d->repeated[i] = (int32_t)k;
    }
    for (size_t i = 1; i < n; i++)
        if ((size_t)d->repeated[i] > limit) d->repeated[i] = (int32_t)limit;
}

/* base^n, without a number that is infinite. */
static double grow(double base, int32_t n)
{
    double x = 1.0;
    for (; n > 0 && x < (double)FLT_MAX; n--) x *= base;
    return x < (double)FLT_MAX ? x : (double)FLT_MAX;
}

void hth_dry_apply(hth_dry *d, float *logits)
{
    if (!d || d->n <= (size_t)d->allowed) return;
    const size_t limit = find_limit(d);
    if (limit < (size_t)d->allowed) return;
    count_repeats(d, limit);
    for (size_t i = 1; i < d->n; i++) { /* the token behind a repetition would lengthen it */
        int32_t n = d->repeated[i], *longest = &d->longest[back(d, i - 1)];
        if (n >= d->allowed && n > *longest) *longest = n;
    }
    for (size_t i = 1; i < d->n; i++) {
        const int32_t token = back(d, i - 1), n = d->longest[token];
        if (n == 0) continue;
        d->longest[token] = 0;
        if (is_breaker(d, token)) continue; /* it ends a repetition: a list may go on with its line ends */
        double x = (double)logits[token] - d->multiplier * grow(d->base, n - d->allowed);
        if (logits[token] != -INFINITY) logits[token] = (float)(x < -(double)FLT_MAX ? -(double)FLT_MAX : x);
    }
}
