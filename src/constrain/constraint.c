/* Constraints of hearth.h: what is shared by copies, and the state of each text. A lock makes copies independent of one
 * another on different threads; it is held while a token is masked or accepted. */
#include "constrain/constraint.h"

#include "base/fp_state.h"
#include "base/ref.h"
#include "constrain/json_rules.h"
#include "constrain/mask.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* State that all copies of a constraint share. */
typedef struct shared {
    pthread_mutex_t lock;
    const hth_token_trie *trie;
    hth_grammar grammar;
    hth_automaton automaton;
    hth_masks masks;
    hearth_constraint *first; /* all copies */
    uint32_t n_copy;
    hth_arena names;
    hth_schema_notes notes;
    uint32_t *states; /* [capacity] states of all copies, while they are renumbered */
    uint32_t capacity;
    hth_constraint_context context;
} shared;

struct hearth_constraint {
    hth_ref ref; /* references of the caller and of requests */
    shared *shared;
    uint32_t state;
    bool has_ended; /* an end of generation was accepted */
    hearth_constraint *before, *after;
};

/* ---- compiling ----------------------------------------------------------------------------------- */

uint32_t hth_compile_choices(hth_grammar *g, const char *const *choices, size_t n)
{
    size_t left = HTH_CONSTRAINT_MAX_TEXT;
    uint32_t start = hth_grammar_rule(g, NULL);
    hth_grammar_fork f = hth_grammar_fork_begin(g, start);
    for (size_t i = 0; i < n && hth_grammar_ok(g); i++) {
        size_t length = strlen(choices[i]);
        if (length == 0) hth_grammar_fail(g, HEARTH_ERROR_ARGUMENT, "choice %zu is empty", i);
        if (length > left)
            hth_grammar_fail(g, HEARTH_ERROR_UNSUPPORTED, "they have more than %d KiB",
                             HTH_CONSTRAINT_MAX_TEXT >> 10);
        left -= length < left ? length : left;
        hth_grammar_end_branch(g, &f, hth_grammar_text(g, hth_grammar_branch(g, &f), choices[i], length));
    }
    hth_grammar_end_rule(g, hth_grammar_fork_end(g, &f));
    return start;
}

uint32_t hth_compile_json_object(hth_grammar *g)
{
    hth_json_rules rules;
    hth_json_rules_add(&rules, g);
    return rules.object;
}

/* Whether what the kind needs is there. */
static hearth_status check_given(const hearth_constraint_options *o, bool has_text, hearth_error *err)
{
    if (has_text && !o->text) return hth_fail_null(err, "hearth_constraint_options.text");
    if (o->kind != HEARTH_CONSTRAINT_CHOICES) return HEARTH_OK;
    if (o->n_choice == 0) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "hearth_constraint_options.n_choice is 0");
    if (!o->choices) return hth_fail_null(err, "hearth_constraint_options.choices");
    for (size_t i = 0; i < o->n_choice; i++)
        if (!o->choices[i])
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "hearth_constraint_options.choices[%zu] is NULL", i);
    return HEARTH_OK;
}

static hearth_status compile(shared *s, const hearth_constraint_options *o, hearth_error *err)
{
    static const char *const words[] = {[HEARTH_CONSTRAINT_JSON_OBJECT] = "JSON",
                                        [HEARTH_CONSTRAINT_JSON_SCHEMA] = "JSON schema",
                                        [HEARTH_CONSTRAINT_CHOICES] = "choices",
                                        [HEARTH_CONSTRAINT_GRAMMAR] = "grammar",
                                        [HEARTH_CONSTRAINT_CALLS] = "functions"};
    hth_grammar *g = &s->grammar;
    uint32_t calls = HTH_GRAMMAR_NOTHING, text = HTH_GRAMMAR_NOTHING;
    enum { N_KIND = sizeof words / sizeof *words };
    if ((unsigned)o->kind >= N_KIND)
        return hth_fail_enum(err, "hearth_constraint_options.kind", (int)o->kind, N_KIND);
    hth_grammar_init(g, words[o->kind]);
    const hth_constraint_context *x = &s->context;
    bool is_calls = o->kind == HEARTH_CONSTRAINT_CALLS;
    bool has_text =
        is_calls || o->kind == HEARTH_CONSTRAINT_JSON_SCHEMA || o->kind == HEARTH_CONSTRAINT_GRAMMAR;
    hearth_status st = check_given(o, has_text, err);
    if (st != HEARTH_OK) return st;
    size_t n = (has_text ? o->n : 0) + (is_calls && o->schema ? o->n_schema : 0);
    if (n > HTH_CONSTRAINT_MAX_TEXT)
        hth_grammar_fail(g, HEARTH_ERROR_UNSUPPORTED, "it has %zu bytes; %d are the limit", n, HTH_CONSTRAINT_MAX_TEXT);
    else if (o->kind == HEARTH_CONSTRAINT_JSON_SCHEMA)
        text = hth_compile_schema(g, &s->names, o->text, o->n, &s->notes);
    else if (o->kind == HEARTH_CONSTRAINT_GRAMMAR) text = hth_compile_gbnf(g, &s->names, o->text, o->n);
    else if (o->kind == HEARTH_CONSTRAINT_CHOICES) text = hth_compile_choices(g, o->choices, o->n_choice);
    else if (is_calls)
        calls = hth_compile_calls(g, &s->names, s->trie, x->calls ? x->calls : hth_call_format_plain(), o->one_call,
                                  o->text, o->n, &s->notes);
    else text = hth_compile_json_object(g);
    g->what = words[is_calls && o->schema && hth_grammar_ok(g) ? HEARTH_CONSTRAINT_JSON_SCHEMA : o->kind];
    if (is_calls && o->schema && hth_grammar_ok(g))
        text = hth_compile_schema(g, &s->names, o->schema, o->n_schema, &s->notes);
    uint32_t start = hth_compile_answer(g, s->trie, o->in_reasoning ? x->reasoning : NULL, x->calls, calls, text);
    return hth_grammar_finish(g, start, err);
}

/* ---- opening, copying ------------------------------------------------------------------------------- */

static void close_shared(shared *s)
{
    if (s->context.closed) s->context.closed(s->context.user);
    hth_masks_close(&s->masks);
    if (s->automaton.grammar) hth_automaton_close(&s->automaton);
    hth_grammar_free(&s->grammar);
    hth_arena_free(&s->names);
    hth_free(s->notes.text);
    hth_free(s->states);
    pthread_mutex_destroy(&s->lock);
    hth_free(s);
}

/* The states of all copies can be renamed without an allocation that could fail. Called with the lock. */
static bool reserve(shared *s)
{
    if (s->n_copy < s->capacity) return true;
    uint32_t capacity = s->capacity ? 2 * s->capacity : 4;
    uint32_t *bigger = hth_realloc(s->states, capacity, sizeof *bigger);
    if (!bigger) return false;
    s->states = bigger;
    s->capacity = capacity;
    return true;
}

static hearth_status attach(shared *s, uint32_t state, bool has_ended, hearth_constraint **out,
                            hearth_error *err)
{
    hearth_constraint *c = hth_alloc(1, sizeof *c);
    if (!c || !reserve(s)) {
        hth_free(c);
        return hth_fail_memory(err, sizeof *c, "a constraint");
    }
    *c = (hearth_constraint){.shared = s, .state = state, .has_ended = has_ended, .after = s->first};
    if (s->first) s->first->before = c;
    s->first = c;
    s->n_copy++;
    *out = c;
    return HEARTH_OK;
}

hearth_status hth_constraint_open(const hth_token_trie *trie, const hearth_constraint_options *options,
                                  const hth_constraint_context *context, hearth_constraint **out,
                                  hearth_error *err)
{
    *out = NULL;
    shared *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "a constraint");
    s->trie = trie;
    if (context) s->context = *context;
    pthread_mutex_init(&s->lock, NULL);
    hearth_status st = compile(s, options, err);
    if (st == HEARTH_OK) st = hth_automaton_open(&s->automaton, &s->grammar, err);
    if (st == HEARTH_OK) st = hth_masks_open(&s->masks, trie, err);
    if (st == HEARTH_OK) {
        uint32_t start = hth_automaton_start(&s->automaton);
        if (start == HTH_STATE_FAILED) st = s->automaton.error.status;
        if (start == HTH_STATE_FAILED && err) *err = s->automaton.error;
        else if (st == HEARTH_OK) st = attach(s, start, false, out, err);
    }
    if (st != HEARTH_OK) s->context.closed = NULL; /* the caller knows */
    if (st != HEARTH_OK) close_shared(s);
    return st;
}

hearth_status hearth_constraint_copy(const hearth_constraint *c, hearth_constraint **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!c) return hth_fail_null(err, "constraint");
    shared *s = c->shared;
    pthread_mutex_lock(&s->lock);
    hearth_status st = attach(s, c->state, c->has_ended, out, err);
    pthread_mutex_unlock(&s->lock);
    return st;
}

const hth_token_trie *hth_constraint_trie(const hearth_constraint *c) { return c ? c->shared->trie : NULL; }

hearth_constraint *hth_constraint_hold(hearth_constraint *c)
{
    if (c) hth_ref_take(&c->ref);
    return c;
}

void hearth_constraint_close(hearth_constraint *c)
{
    if (!c || !hth_ref_drop(&c->ref)) return;
    shared *s = c->shared;
    pthread_mutex_lock(&s->lock);
    if (c->before) c->before->after = c->after;
    else s->first = c->after;
    if (c->after) c->after->before = c->before;
    bool is_last = --s->n_copy == 0;
    pthread_mutex_unlock(&s->lock);
    hth_free(c);
    if (is_last) close_shared(s);
}

/* ---- one text ---------------------------------------------------------------------------------------- */

/* Before work on a token: forgets what was computed if it is much. */
static hearth_status prepare(shared *s, hearth_error *err)
{
    uint32_t n = 0;
    hth_automaton_allow_work(&s->automaton);
    if (hth_automaton_bytes(&s->automaton) < HTH_AUTOMATON_SOFT_BYTES) return HEARTH_OK;
    for (hearth_constraint *c = s->first; c; c = c->after) s->states[n++] = c->state;
    hearth_status st = hth_automaton_compact(&s->automaton, s->states, n, err);
    if (st != HEARTH_OK) return st;
    n = 0;
    for (hearth_constraint *c = s->first; c; c = c->after) c->state = s->states[n++];
    hth_masks_clear(&s->masks);
    return HEARTH_OK;
}

static void ban_all(float *logits, int32_t n)
{
    for (int32_t i = 0; i < n; i++) logits[i] = -INFINITY;
}

static void apply(const uint64_t *tokens, float *logits, int32_t n_vocab)
{
    for (int32_t from = 0; from < n_vocab; from += 64) {
        uint64_t word = tokens[from / 64];
        int32_t n = n_vocab - from < 64 ? n_vocab - from : 64;
        if (word == 0) ban_all(logits + from, n);
        else if (word != UINT64_MAX)
            for (int32_t i = 0; i < n; i++)
                if (!(word >> i & 1)) logits[from + i] = -INFINITY;
    }
}

hearth_status hearth_constraint_mask(hearth_constraint *c, float *logits, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!c) return hth_fail_null(err, "constraint");
    if (!logits) return hth_fail_null(err, "logits");
    shared *s = c->shared;
    const hth_mask *mask = NULL;
    pthread_mutex_lock(&s->lock);
    hearth_status st = prepare(s, err);
    if (st == HEARTH_OK && c->has_ended) {
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "the constrained text has ended");
    } else if (st == HEARTH_OK) {
        mask = hth_masks_get(&s->masks, &s->automaton, c->state);
        if (!mask) st = s->automaton.error.status;
        if (!mask && err) *err = s->automaton.error;
    }
    if (mask && mask->n == 0)
        st = hth_fail(
            err, HEARTH_ERROR_UNSUPPORTED,
            hth_automaton_may_go_on(&s->automaton, c->state)
                ? "the vocabulary has no token with which the constrained text can go on"
                : "the constrained text must end here, but the vocabulary has no token that ends a text");
    else if (mask) apply(mask->tokens, logits, s->trie->n_vocab);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* Called with the lock. DEAD: the bytes cannot follow. */
static uint32_t follow(shared *s, uint32_t state, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && state != HTH_STATE_DEAD && state != HTH_STATE_FAILED; i++)
        state = hth_automaton_next(&s->automaton, state, (uint8_t)bytes[i]);
    return state;
}

static hearth_status accept_token(hearth_constraint *c, int32_t id, hearth_error *err)
{
    shared *s = c->shared;
    const hth_token_trie *t = s->trie;
    bool is_token = id >= 0 && id < t->n_vocab;
    if (!is_token)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "token %d is not in the vocabulary of %d", (int)id,
                        (int)t->n_vocab);
    bool ends = hth_token_set_has(t->eog, id), has_text = t->piece[id].n > 0;
    if (!c->has_ended && ends && hth_automaton_may_end(&s->automaton, c->state)) {
        c->has_ended = true;
        return HEARTH_OK;
    }
    hearth_status st = prepare(s, err);
    if (st != HEARTH_OK) return st;
    uint32_t state = HTH_STATE_DEAD;
    if (!c->has_ended && has_text) state = follow(s, c->state, t->piece[id].bytes, t->piece[id].n);
    if (state == HTH_STATE_FAILED) {
        if (err) *err = s->automaton.error;
        return s->automaton.error.status;
    }
    if (state == HTH_STATE_DEAD)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "token %d cannot follow in the constrained text",
                        (int)id);
    c->state = state;
    return HEARTH_OK;
}

hearth_status hearth_constraint_accept(hearth_constraint *c, int32_t id, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!c) return hth_fail_null(err, "constraint");
    pthread_mutex_lock(&c->shared->lock);
    hearth_status st = accept_token(c, id, err);
    pthread_mutex_unlock(&c->shared->lock);
    return st;
}

bool hth_constraint_accept_bytes(hearth_constraint *c, const char *bytes, size_t n)
{
    shared *s = c->shared;
    pthread_mutex_lock(&s->lock);
    uint32_t state = prepare(s, NULL) == HEARTH_OK ? follow(s, c->state, bytes, n) : HTH_STATE_FAILED;
    bool ok = state != HTH_STATE_DEAD && state != HTH_STATE_FAILED;
    if (ok) c->state = state;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

hearth_constraint_end hearth_constraint_get_end(const hearth_constraint *c)
{
    if (!c) return HEARTH_CONSTRAINT_INCOMPLETE;
    shared *s = c->shared;
    pthread_mutex_lock(&s->lock);
    bool may_end = c->has_ended || hth_automaton_may_end(&s->automaton, c->state);
    bool may_go_on = !c->has_ended && hth_automaton_may_go_on(&s->automaton, c->state);
    pthread_mutex_unlock(&s->lock);
    return !may_end    ? HEARTH_CONSTRAINT_INCOMPLETE
           : may_go_on ? HEARTH_CONSTRAINT_ACCEPTING
                       : HEARTH_CONSTRAINT_COMPLETE;
}

const char *hearth_constraint_get_notes(const hearth_constraint *c)
{
    return c && c->shared->notes.text ? c->shared->notes.text : "";
}

uint64_t hth_constraint_n_mask(const hearth_constraint *c) { return c->shared->masks.n_computed; }
