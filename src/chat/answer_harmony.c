/* Answers of gpt-oss: messages with a header each, "<|channel|>HEADER<|message|>TEXT", which a mark ends. The header
 * says what the text is: analysis is reasoning, "to=functions.NAME" a call, all else text. */
#include "chat/answer_int.h"

#include <string.h>

static hth_answer_state text, analysis, call;

static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
enum { N_END = sizeof ends / sizeof *ends };

/* "assistant<|channel|>commentary to=functions.f <|constrain|>json" */
static hth_answer_state *read_header(hth_answer *a, size_t n)
{
    static const char to[] = "to=functions.";
    size_t from = hth_answer_find(a, 0, to), end = from;
    if (from < n) {
        from += strlen(to), end = from;
        while (end < n && !strchr(" <\n", a->held[end])) end++;
        if (hth_answer_begin_call(a, a->held + from, end - from)) return call;
    }
    return hth_answer_find(a, 0, "analysis") < n ? analysis : text;
}

hth_answer_step hth_answer_harmony(hth_answer *a)
{
    static const char mark[] = "<|message|>";
    size_t n = hth_answer_find(a, 0, mark);
    if (n == SIZE_MAX && !a->final) return HTH_STEP_WAIT;
    if (n == SIZE_MAX) { /* a text without a header */
        bool is_header = a->n_message > 0 || hth_answer_has(a, 0, "<|channel|>") > 0;
        if (!is_header) hth_answer_give(a, HEARTH_ANSWER_TEXT, a->held, a->n);
        hth_answer_take(a, a->n);
        return HTH_STEP_WAIT;
    }
    hth_answer_state *body = read_header(a, n);
    a->n_message++;
    hth_answer_take(a, n + strlen(mark));
    hth_answer_go(a, body);
    return HTH_STEP_DONE;
}

static hth_answer_step give_body(hth_answer *a, hearth_answer_kind kind)
{
    size_t first = SIZE_MAX, unsure = 0, taken = 0;
    for (size_t i = 0; i < N_END; i++) {
        size_t at = hth_answer_find(a, 0, ends[i]), n = hth_answer_unsure(a, ends[i]);
        if (at < first) first = at, taken = strcmp(ends[i], "<|channel|>") == 0 ? 0 : strlen(ends[i]);
        if (n > unsure) unsure = n;
    }
    size_t n = first != SIZE_MAX ? first : a->n - (a->final ? 0 : unsure);
    hth_answer_give(a, kind, a->held, n);
    hth_answer_take(a, n);
    if (first == SIZE_MAX) return HTH_STEP_WAIT;
    hth_answer_take(a, taken);
    hth_answer_go(a, hth_answer_harmony);
    return a->n > 0 ? HTH_STEP_DONE : HTH_STEP_WAIT;
}

static hth_answer_step text(hth_answer *a) { return give_body(a, HEARTH_ANSWER_TEXT); }
static hth_answer_step analysis(hth_answer *a) { return give_body(a, HEARTH_ANSWER_REASONING); }
static hth_answer_step call(hth_answer *a) { return give_body(a, HEARTH_ANSWER_ARGUMENTS); }
