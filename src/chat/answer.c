/* Holds the text of an answer until it is decided, and finds the marks of reasoning and calls in it. */
#include "chat/answer_int.h"

#include "base/fp_state.h"
#include <string.h>

static hth_answer_state begin, reasoning;

/* ---- the held text ----------------------------------------------------------------------------------- */

void hth_answer_give(hth_answer *a, hearth_answer_kind kind, const char *text, size_t n)
{
    if (n == 0) return;
    if (kind == HEARTH_ANSWER_TEXT) a->has_text = true;
    HTH_FP_CALLBACK;
    a->o.fn(a->o.user, kind, text, n);
}

void hth_answer_take(hth_answer *a, size_t n)
{
    a->n -= n;
    if (n > 0) memmove(a->held, a->held + n, a->n);
    a->at = 0;
}

void hth_answer_set_aside(hth_answer *a, size_t n)
{
    if (n > a->opened_capacity - a->n_opened) {
        size_t capacity = 2 * (a->n_opened + n);
        char *bigger = hth_realloc(a->opened, capacity, 1);
        if (bigger) a->opened = bigger, a->opened_capacity = capacity;
        else a->has_memory = false;
    }
    if (a->has_memory && n > 0) {
        memcpy(a->opened + a->n_opened, a->held, n);
        a->n_opened += n;
    }
    hth_answer_take(a, n);
}

void hth_answer_go(hth_answer *a, hth_answer_state *state)
{
    a->state = state;
    a->at = 0;
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

size_t hth_answer_space(const hth_answer *a, size_t from)
{
    size_t i = from;
    while (i < a->n && is_space(a->held[i])) i++;
    return i - from;
}

/* Without the white space at the end of the first n held bytes. */
static size_t trimmed(const hth_answer *a, size_t n)
{
    while (n > 0 && is_space(a->held[n - 1])) n--;
    return n;
}

size_t hth_answer_find(const hth_answer *a, size_t from, const char *mark)
{
    size_t n = strlen(mark);
    if (n == 0) return SIZE_MAX;
    for (size_t i = from; i + n <= a->n; i++)
        if (a->held[i] == *mark && memcmp(a->held + i, mark, n) == 0) return i;
    return SIZE_MAX;
}

int hth_answer_has(const hth_answer *a, size_t at, const char *mark)
{
    size_t n = strlen(mark), left = a->n - at;
    if (left >= n) return n > 0 && memcmp(a->held + at, mark, n) == 0;
    return !a->final && memcmp(a->held + at, mark, left) == 0 ? -1 : 0;
}

size_t hth_answer_unsure(const hth_answer *a, const char *mark)
{
    size_t n = strlen(mark);
    if (n > 0) n--;
    if (n > a->n) n = a->n;
    while (n > 0 && memcmp(a->held + a->n - n, mark, n) != 0) n--;
    return n;
}

/* ---- text and reasoning -------------------------------------------------------------------------------- */

enum { CALL_OPEN, BARE_OPEN, CALL_CLOSE, OTHER_OPEN, OTHER_CLOSE, N_MARK };

/* The marks that count in the text that comes next; "": none. */
static void list_marks(const hth_answer *a, const char *marks[N_MARK])
{
    const hth_call_format *f = a->o.calls;
    for (int i = 0; i < N_MARK; i++) marks[i] = "";
    if (!f) return;
    marks[CALL_OPEN] = f->mark;
    marks[BARE_OPEN] = f->elements.call_open;
    if (a->n_call > 0) marks[CALL_CLOSE] = f->end_mark;
    marks[OTHER_OPEN] = f->other_mark[0];
    marks[OTHER_CLOSE] = f->other_mark[1];
}

static size_t first_mark(const hth_answer *a, const char *const marks[N_MARK], int *which)
{
    size_t first = SIZE_MAX;
    for (int i = 0; i < N_MARK; i++) {
        size_t at = hth_answer_find(a, 0, marks[i]);
        if (at < first) first = at, *which = i;
    }
    return first;
}

/* Bytes at the end that cannot be given yet: the beginning of a mark, and white space, which is dropped before one. */
static size_t count_unsure(const hth_answer *a, const char *const marks[N_MARK])
{
    size_t longest = 0;
    bool any = false;
    for (int i = 0; i < N_MARK; i++) {
        size_t n = hth_answer_unsure(a, marks[i]);
        if (n > longest) longest = n;
        any |= marks[i][0] != '\0';
    }
    return any ? a->n - trimmed(a, a->n - longest) : 0;
}

hth_answer_step hth_answer_text(hth_answer *a)
{
    const char *marks[N_MARK];
    int which = 0;
    const hth_call_format *f = a->o.calls;
    if (a->skip_space) hth_answer_take(a, hth_answer_space(a, 0));
    if (a->n == 0) return HTH_STEP_WAIT;
    a->skip_space = false;
    if (f && f->is_bare && !a->has_text) {
        hth_answer_go(a, hth_answer_bare_call);
        return HTH_STEP_DONE;
    }
    list_marks(a, marks);
    size_t at = first_mark(a, marks, &which);
    if (at == SIZE_MAX) {
        size_t n = a->n - (a->final ? 0 : count_unsure(a, marks));
        hth_answer_give(a, HEARTH_ANSWER_TEXT, a->held, n);
        hth_answer_take(a, n);
        return HTH_STEP_WAIT;
    }
    size_t n = trimmed(a, at), n_mark = at - n + strlen(marks[which]);
    hth_answer_give(a, HEARTH_ANSWER_TEXT, a->held, n);
    hth_answer_take(a, n);
    a->skip_space = true;
    if (which == CALL_OPEN || which == BARE_OPEN) {
        hth_answer_set_aside(a, n_mark);
        hth_answer_go(a, which == CALL_OPEN ? hth_answer_call : hth_answer_bare_elements);
    } else {
        hth_answer_take(a, n_mark);
    }
    return HTH_STEP_DONE;
}

/* Reasoning that the prompt has not begun is the first thing of an answer, or there is none. */
static hth_answer_step begin(hth_answer *a)
{
    size_t space = hth_answer_space(a, 0);
    int has = hth_answer_has(a, space, a->o.reasoning->open);
    if (has < 0) return HTH_STEP_WAIT;
    if (has > 0) hth_answer_take(a, space + strlen(a->o.reasoning->open));
    a->skip_space = has > 0;
    hth_answer_go(a, has > 0 ? reasoning : hth_answer_text);
    return HTH_STEP_DONE;
}

static hth_answer_step reasoning(hth_answer *a)
{
    const hth_reasoning_marks *m = a->o.reasoning;
    const char *call = m->ends_at_calls && a->o.calls ? a->o.calls->mark : "";
    if (a->skip_space) hth_answer_take(a, hth_answer_space(a, 0));
    if (a->n == 0) return HTH_STEP_WAIT;
    a->skip_space = false;
    size_t at = hth_answer_find(a, 0, m->close), at_call = hth_answer_find(a, 0, call);
    if (at == SIZE_MAX && at_call == SIZE_MAX) {
        size_t unsure = hth_answer_unsure(a, m->close), of_call = hth_answer_unsure(a, call);
        size_t n = a->final ? a->n : trimmed(a, a->n - (unsure > of_call ? unsure : of_call));
        hth_answer_give(a, HEARTH_ANSWER_REASONING, a->held, n);
        hth_answer_take(a, n);
        return HTH_STEP_WAIT;
    }
    bool is_call = at_call < at;
    hth_answer_give(a, HEARTH_ANSWER_REASONING, a->held, trimmed(a, is_call ? at_call : at));
    hth_answer_take(a, is_call ? at_call : at + strlen(m->close));
    a->skip_space = true;
    hth_answer_go(a, hth_answer_text);
    return HTH_STEP_DONE;
}

/* ---- an answer ------------------------------------------------------------------------------------------ */

hearth_status hth_answer_open(const hth_answer_options *o, hth_answer **out, hearth_error *err)
{
    hth_answer *a = *out = hth_alloc(1, sizeof *a);
    if (!a) return hth_fail_memory(err, sizeof *a, "an answer");
    bool harmony = o->calls && o->calls->style == HTH_CALL_HARMONY;
    bool recipients = o->calls && o->calls->style == HTH_CALL_RECIPIENT;
    *a = (hth_answer){.o = *o, .skip_space = o->in_reasoning && o->reasoning, .has_memory = true};
    a->state = harmony            ? hth_answer_harmony
               : recipients       ? hth_answer_recipient
               : !o->reasoning    ? hth_answer_text
               : !o->in_reasoning ? begin
                                  : reasoning;
    return HEARTH_OK;
}

void hth_answer_close(hth_answer *a)
{
    if (!a) return;
    hth_free(a->held);
    hth_free(a->opened);
    hth_free(a);
}

static hearth_status run(hth_answer *a, hearth_error *err)
{
    while (a->state(a) == HTH_STEP_DONE) {
    }
    return a->has_memory ? HEARTH_OK : hth_fail_memory(err, a->n, "an answer");
}

hearth_status hth_answer_push(hth_answer *a, const char *text, size_t n, hearth_error *err)
{
    if (n == 0) return HEARTH_OK;
    if (n > a->capacity - a->n) {
        size_t capacity = 2 * (a->n + n);
        char *bigger = hth_realloc(a->held, capacity, 1);
        if (!bigger) return hth_fail_memory(err, capacity, "an answer");
        a->held = bigger;
        a->capacity = capacity;
    }
    memcpy(a->held + a->n, text, n);
    a->n += n;
    return run(a, err);
}

hearth_status hth_answer_finish(hth_answer *a, hearth_error *err)
{
    a->final = true;
    return run(a, err);
}

bool hth_answer_is_mark(const hth_answer_options *o, hth_str token)
{
    static const char *const harmony[] = {"<|channel|>", "<|message|>", "<|start|>", "<|end|>",
                                          "<|constrain|>"};
    static const hth_call_format no_calls;
    static const hth_reasoning_marks no_reasoning = {"", "", false};
    const hth_call_format *f = o->calls ? o->calls : &no_calls;
    const hth_reasoning_marks *r = o->reasoning ? o->reasoning : &no_reasoning;
    const hth_element_marks *e = &f->elements;
    const char *const texts[] = {r->open,       r->close,         f->first,         f->open,         f->close,
                                 f->last,       f->name_end,      f->mark,          f->end_mark,     f->other_mark[0],
                                 f->quote,      f->other_mark[1], f->text_open,     f->text_close,   e->call_open,
                                 e->call_close, e->key_open,      e->key_close,     e->value_open,   e->value_close};
    char shown[72];
    for (size_t i = 0; f->style == HTH_CALL_HARMONY && i < sizeof harmony / sizeof *harmony; i++)
        if (hth_str_eq(token, harmony[i])) return true;
    if (token.n == 0 || token.n >= sizeof shown || memchr(token.bytes, '\0', token.n)) return false;
    memcpy(shown, token.bytes, token.n);
    shown[token.n] = '\0';
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strstr(texts[i], shown)) return true;
    return f->style == HTH_CALL_NAMED && strcmp(shown, "[CALL_ID]") == 0;
}
