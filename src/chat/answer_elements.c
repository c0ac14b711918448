/* Calls whose arguments are elements of their own: <parameter=KEY>VALUE</parameter>, pairs of <arg_key> and <arg_value>,
 * and the like, by the marks of hth_element_marks. */
#include "chat/answer_int.h"

#include <string.h>

static hth_answer_state function_name, arguments, next_call;

static const hth_element_marks *marks_of(const hth_answer *a) { return &a->o.calls->elements; }

hth_answer_step hth_answer_elements(hth_answer *a)
{
    const char *open = marks_of(a)->call_open;
    size_t at = hth_answer_space(a, 0);
    int has = *open ? hth_answer_has(a, at, open) : 1;
    if (has < 0) return HTH_STEP_WAIT;
    if (has == 0) return hth_answer_no_call(a);
    hth_answer_set_aside(a, at + strlen(open));
    hth_answer_go(a, function_name);
    return HTH_STEP_DONE;
}

hth_answer_step hth_answer_bare_elements(hth_answer *a)
{
    a->is_bare = true;
    hth_answer_go(a, function_name);
    return HTH_STEP_DONE;
}

/* Reads the name of a function. If the format has no mark that ends it, the end of the line or the next mark does. */
static hth_answer_step function_name(hth_answer *a)
{
    const char *close = marks_of(a)->name_close;
    size_t to = *close ? hth_answer_find(a, 0, close) : 0;
    while (!*close && to < a->n && a->held[to] != '\n' && a->held[to] != '<') to++;
    bool is_open = to >= a->n;
    if (is_open && !a->final) return HTH_STEP_WAIT;
    if ((is_open && *close) || !hth_answer_begin_call(a, a->held, to)) return hth_answer_no_call(a);
    hth_answer_take(a, to + strlen(close));
    hth_answer_go(a, arguments);
    return HTH_STEP_DONE;
}

/* Without the line breaks, or the marks, that stand around a value. */
static hth_str strip(const hth_answer *a, size_t from, size_t to)
{
    static const char open[] = "<![CDATA[", close[] = "]]>";
    const char *p = a->held + from;
    size_t n = to - from, n_open = sizeof open - 1, n_close = sizeof close - 1;
    if (marks_of(a)->in_lines && n > 0 && *p == '\n') p++, n--;
    if (marks_of(a)->in_lines && n > 0 && p[n - 1] == '\n') n--;
    bool is_inside = marks_of(a)->has_cdata && n >= n_open + n_close && memcmp(p, open, n_open) == 0 &&
                     memcmp(p + n - n_close, close, n_close) == 0;
    return is_inside ? (hth_str){p + n_open, n - n_open - n_close} : (hth_str){p, n};
}

static hth_value_form form_of(const hth_answer *a, size_t from, size_t to)
{
    const hth_str said = {a->held + from, to - from};
    if (!marks_of(a)->is_typed) return HTH_VALUE_ANY;
    return hth_str_contains(said, "string=\"true\"")    ? HTH_VALUE_TEXT
           : hth_str_contains(said, "string=\"false\"") ? HTH_VALUE_JSON
                                                        : HTH_VALUE_ANY;
}

static hth_answer_step arguments(hth_answer *a)
{
    const hth_element_marks *m = marks_of(a);
    size_t at = hth_answer_space(a, 0), key = at + strlen(m->key_open);
    if (at == a->n && !a->final) return HTH_STEP_WAIT;
    int has = hth_answer_has(a, at, m->key_open), ends = hth_answer_has(a, at, m->call_close);
    if (has == 0 && ends >= 0) {
        if (ends > 0) hth_answer_take(a, at + strlen(m->call_close));
        return hth_answer_end_arguments(a, next_call);
    }
    size_t key_end = has > 0 ? hth_answer_find(a, key, m->key_close) : SIZE_MAX;
    size_t value = key_end == SIZE_MAX ? SIZE_MAX : key_end + strlen(m->key_close);
    if (value != SIZE_MAX && *m->value_open) value = hth_answer_find(a, value, m->value_open);
    if (value != SIZE_MAX) value += strlen(m->value_open);
    size_t to = value == SIZE_MAX ? SIZE_MAX : hth_answer_find(a, value, m->value_close);
    if (to == SIZE_MAX && !a->final) return HTH_STEP_WAIT;
    if (value == SIZE_MAX) {
        hth_answer_take(a, a->n);
        return hth_answer_end_arguments(a, next_call);
    }
    size_t taken = to == SIZE_MAX ? a->n : to + strlen(m->value_close);
    hth_answer_give_argument(a, (hth_str){a->held + key, key_end - key}, strip(a, value, to == SIZE_MAX ? a->n : to),
                             form_of(a, key_end, value));
    hth_answer_take(a, taken);
    return HTH_STEP_DONE;
}

/* Another call may follow between the same marks. */
static hth_answer_step next_call(hth_answer *a)
{
    size_t at = hth_answer_space(a, 0);
    int has = hth_answer_has(a, at, marks_of(a)->call_open);
    if (has < 0 || (at == a->n && !a->final)) return HTH_STEP_WAIT;
    a->skip_space = true;
    if (has > 0) hth_answer_take(a, at);
    hth_answer_go(a, has > 0 ? hth_answer_elements : hth_answer_text);
    return HTH_STEP_DONE;
}
