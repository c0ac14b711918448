/* Calls that look like those of a programming language: NAME(KEY='VALUE', ...) of LFM2, several in a list, and
 * call:NAME{KEY:VALUE,...} of Gemma 4. */
#include "chat/answer_int.h"

#include <string.h>

static hth_answer_state arguments, end;

/* The name ends where the arguments begin. Some models write calls as JSON between the same marks. */
hth_answer_step hth_answer_literals(hth_answer *a)
{
    const hth_call_format *f = a->o.calls;
    size_t from = hth_answer_space(a, 0);
    int has = hth_answer_has(a, from, f->name_mark);
    if ((from == a->n && !a->final) || has < 0) return HTH_STEP_WAIT;
    if (from < a->n && a->held[from] == '{') {
        hth_answer_go(a, hth_answer_head);
        return HTH_STEP_DONE;
    }
    if (has > 0) from += strlen(f->name_mark);
    size_t to = from;
    while (to < a->n && !strchr("({[<,\n", a->held[to])) to++;
    if (to == a->n && !a->final) return HTH_STEP_WAIT;
    if (to == a->n || a->held[to] != *f->name_end || !hth_answer_begin_call(a, a->held + from, to - from))
        return hth_answer_no_call(a);
    hth_answer_take(a, to + 1);
    hth_answer_go(a, arguments);
    return HTH_STEP_DONE;
}

/* Without quotes and white space around it. */
static hth_str key_of(const hth_answer *a, size_t from, size_t to)
{
    static const char around[] = " \n\t\"'<|>"; /* the quotes, byte by byte */
    while (to > from && strchr(around, a->held[to - 1])) to--;
    while (from < to && strchr(around, a->held[from])) from++;
    return (hth_str){a->held + from, to - from};
}

/* One argument, or the end of them. What has no key is left out. */
static hth_answer_step arguments(hth_answer *a)
{
    const hth_call_format *f = a->o.calls;
    size_t at = 0;
    while (at < a->n && strchr(" \n\t\r,", a->held[at])) at++;
    if (at == a->n && !a->final) return HTH_STEP_WAIT;
    if (at < a->n && a->held[at] == *f->close) {
        hth_answer_take(a, at + 1);
        return hth_answer_end_arguments(a, end);
    }
    size_t key = at, to = at;
    while (to < a->n && a->held[to] != *f->key_end && a->held[to] != ',' && a->held[to] != *f->close) to++;
    bool has_key = to < a->n && a->held[to] == *f->key_end;
    size_t value = has_key ? to + 1 : at, behind = to < a->n ? hth_literal_end(a, value) : SIZE_MAX;
    if (behind == SIZE_MAX && !a->final) return HTH_STEP_WAIT;
    if (behind == SIZE_MAX) {
        hth_answer_take(a, a->n);
        return hth_answer_end_arguments(a, end);
    }
    size_t n = behind;
    value += hth_answer_space(a, value);
    while (n > value && strchr(" \n\t\r", a->held[n - 1])) n--;
    if (has_key && n > value) {
        const hth_str literal = {a->held + value, n - value};
        bool is_quoted = *literal.bytes == '"' || *literal.bytes == *f->quote;
        hth_answer_give_argument(a, key_of(a, key, to), literal, is_quoted ? HTH_VALUE_LITERAL : HTH_VALUE_ANY);
    }
    /* A bracket that opened nothing is dropped. */
    hth_answer_take(a, behind == at ? behind + 1 : behind);
    return HTH_STEP_DONE;
}

/* Between two calls of a list, or behind the last one. */
static hth_answer_step end(hth_answer *a)
{
    bool is_list = hth_call_format_is_list(a->o.calls);
    size_t at = hth_answer_space(a, 0);
    if (at == a->n && !a->final) return HTH_STEP_WAIT;
    bool more = is_list && at < a->n && a->held[at] == ',', ends = is_list && at < a->n && a->held[at] == ']';
    hth_answer_take(a, at + (more || ends));
    a->skip_space = true;
    hth_answer_go(a, more ? hth_answer_literals : hth_answer_text);
    return HTH_STEP_DONE;
}
