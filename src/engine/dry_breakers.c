/* The texts at which DRY's repetitions end, as tokens: each token that has the text, or its beginning at its own end. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
#include "engine/engine.h"
#include "sample/dry.h"
#include "sample/sampler.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 40, MAX_TAIL = 20 }; /* bytes of a text that are compared; tokens after the first one */

typedef struct breakers {
    hth_arena arena;
    hth_dry_breaker *at;
    size_t n, capacity;
    hearth_status st;
    hearth_error *err;
} breakers;

static bool is_known(const breakers *b, int32_t token, const hth_ids *tail)
{
    for (size_t i = b->n; i-- > 0 && b->at[i].token == token;)
        if (b->at[i].n_tail == tail->n && memcmp(b->at[i].tail, tail->id, tail->n * sizeof *tail->id) == 0) return true;
    return false;
}

static void add(breakers *b, int32_t token, const hth_ids *tail)
{
    if (is_known(b, token, tail)) return;
    if (b->n == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 64;
        hth_dry_breaker *more = hth_realloc(b->at, capacity, sizeof *more);
        if (!more) {
            b->st = hth_fail_memory(b->err, capacity * sizeof *more, "the sampler");
            return;
        }
        b->at = more, b->capacity = capacity;
    }
    hth_dry_breaker *one = &b->at[b->n];
    *one = (hth_dry_breaker){.token = token, .n_tail = (uint32_t)tail->n};
    one->tail = hth_arena_alloc(&b->arena, tail->n, sizeof *one->tail, 16);
    if (!one->tail) {
        b->st = hth_fail_memory(b->err, tail->n * sizeof *one->tail, "the sampler");
        return;
    }
    if (tail->n > 0) memcpy(one->tail, tail->id, tail->n * sizeof *tail->id);
    b->n++;
}

/* A text, and the tokens of its ends, which are made once: tens of thousands of tokens end with a beginning of it. */
typedef struct breaker_text {
    const hth_tokenizer *tokenizer;
    hth_str text;
    hth_ids tails[MAX_TEXT]; /* behind the first i bytes */
    bool is_made[MAX_TEXT];
} breaker_text;

/* NULL: *b says why. */
static const hth_ids *tail_behind(breakers *b, breaker_text *t, size_t n)
{
    hth_ids *tail = &t->tails[n];
    if (t->is_made[n]) return tail;
    b->st = hth_tokenize(t->tokenizer, t->text.bytes + n, t->text.n - n, 0, tail, NULL, b->err);
    if (b->st != HEARTH_OK) return NULL;
    if (tail->n > MAX_TAIL) tail->n = MAX_TAIL;
    t->is_made[n] = true;
    return tail;
}

/* A token that has the whole text has it before its end, so that no end of it was added. */
static void add_token(breakers *b, breaker_text *t, int32_t token)
{
    hth_str word;
    word.bytes = hth_token_piece(t->tokenizer, token, true, &word.n);
    for (size_t at = 0; at < word.n && b->st == HEARTH_OK; at++) {
        const size_t n = word.n - at < t->text.n ? word.n - at : t->text.n;
        if (word.bytes[at] != *t->text.bytes || memcmp(word.bytes + at, t->text.bytes, n) != 0) continue;
        const hth_ids none = {0}, *tail = n == t->text.n ? &none : tail_behind(b, t, n);
        if (tail) add(b, token, tail);
        if (n == t->text.n) return;
    }
}

static void add_text(breakers *b, const hth_tokenizer *tokenizer, int32_t n_vocab, hth_str text)
{
    breaker_text t = {.tokenizer = tokenizer, .text = text};
    for (int32_t id = 0; id < n_vocab && b->st == HEARTH_OK; id++) add_token(b, &t, id);
    for (size_t i = 0; i < MAX_TEXT; i++) hth_ids_free(&t.tails[i]);
}

static int compare(const void *a, const void *b)
{
    const hth_dry_breaker *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

hearth_status hth_engine_use_dry(const hearth_model *m, const hearth_sampler_options *o, hearth_sampler *s,
                                 hearth_error *err)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    enum { USUAL_CONTEXT = 4096 };
    const char *const *texts = o->dry_breakers ? o->dry_breakers : usual;
    const size_t n_text = o->dry_breakers ? o->n_dry_breaker : sizeof usual / sizeof *usual;
    uint64_t capacity = o->dry_last_n > 0 ? (uint64_t)o->dry_last_n : hth_engine_hparams(m)->n_ctx_train;
    if (capacity == 0) capacity = USUAL_CONTEXT;
    if (capacity > HTH_SAMPLER_MAX_LAST_N) capacity = HTH_SAMPLER_MAX_LAST_N;
    breakers b = {.err = err};
    for (size_t i = 0; i < n_text && b.st == HEARTH_OK; i++) {
        hth_str text = {texts[i], strnlen(texts[i], MAX_TEXT)};
        if (text.n == 0) b.st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "dry_breakers[%zu] is empty", i);
        else add_text(&b, m->tokenizer, hth_sampler_n_vocab(s), text);
    }
    if (b.n > 1) qsort(b.at, b.n, sizeof *b.at, compare);
    if (b.st == HEARTH_OK) b.st = hth_sampler_use_dry(s, (size_t)capacity, b.at, b.n, err);
    hth_free(b.at);
    hth_arena_free(&b.arena);
    return b.st;
}
