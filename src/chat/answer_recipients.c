/* Answers whose parts each begin with a line that says to whom they go (Functionary 3.2): "all" is text, the name of a
 * function a call with JSON. The first line's mark stands in the prompt. */
#include "chat/answer_int.h"
#include "chat/functions.h"

#include <string.h>

hth_answer_step hth_answer_recipient(hth_answer *a)
{
    int has_mark = hth_answer_has(a, 0, a->o.calls->mark);
    if (has_mark > 0) hth_answer_set_aside(a, strlen(a->o.calls->mark));
    size_t to = 0;
    while (to < a->n && a->held[to] > ' ') to++;
    if ((has_mark < 0 || to == a->n) && !a->final) return HTH_STEP_WAIT;
    if (to == a->n || a->held[to] != '\n') return hth_answer_no_call(a);
    const hth_str name = {a->held, to};
    if (hth_str_eq(name, "all")) {
        a->n_opened = 0;
        hth_answer_take(a, to + 1);
        hth_answer_go(a, hth_answer_text);
        return HTH_STEP_DONE;
    }
    size_t from = to + hth_answer_space(a, to);
    if (from == a->n && !a->final) return HTH_STEP_WAIT;
    bool is_call = from < a->n && a->held[from] == '{' && hth_function_is_given(a->o.tools, name, &a->has_memory);
    if (!is_call || !hth_answer_begin_call(a, a->held, to)) return hth_answer_no_call(a);
    hth_answer_take(a, from);
    hth_answer_go(a, hth_answer_json_arguments);
    return HTH_STEP_DONE;
}
