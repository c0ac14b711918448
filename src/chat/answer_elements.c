/* Calls whose arguments are elements of their own: <parameter=KEY>VALUE</parameter>, and pairs of <arg_key> and
 * <arg_value>. They become a JSON object: a value is a text where the function says so, or where it is no JSON. */
#include "chat/answer_int.h"
#include "chat/functions.h"

#include <string.h>

static hth_answer_state elements, pairs;

static void give_word(hth_answer *a, const char *word)
{
    hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, word, strlen(word));
}

static void give_quoted(hth_answer *a, const char *text, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    size_t from = 0;
    give_word(a, "\"");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        char shown[8] = {'\\', (char)c};
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (c == '\n' || c == '\t' || c == '\r') {
            shown[1] = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
        } else if (c < 0x20) {
            memcpy(shown + 1, "u00", 3);
            shown[4] = digits[c >> 4], shown[5] = digits[c & 15];
        }
        hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, text + from, i - from);
        give_word(a, shown);
        from = i + 1;
    }
    hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, text + from, n - from);
    give_word(a, "\"");
}

/* Python's words for what JSON has as well. */
static const char *python_word(const char *text, size_t n)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < 3; i++)
        if (n == strlen(words[i][0]) && memcmp(text, words[i][0], n) == 0) return words[i][1];
    return NULL;
}

/* A key and its value, both in the held text. */
static void give_argument(hth_answer *a, size_t key, size_t n_key, size_t value, size_t n_value)
{
    const hth_str name = {a->name, strlen(a->name)}, k = {a->held + key, n_key};
    const char *text = a->held + value;
    bool is_text = hth_function_takes_text(a->o.tools, name, k, (hth_str){text, n_value}, &a->has_memory);
    const char *word = is_text ? NULL : python_word(text, n_value);
    give_word(a, a->n_argument++ ? ", " : "{");
    give_quoted(a, a->held + key, n_key);
    give_word(a, ": ");
    if (word) give_word(a, word);
    else if (!is_text && hth_is_json(text, n_value, &a->has_memory))
        hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, text, n_value);
    else give_quoted(a, text, n_value);
}

/* The call is over. */
static hth_answer_step finish(hth_answer *a)
{
    give_word(a, a->n_argument ? "}" : "{}");
    hth_answer_go(a, hth_answer_text);
    a->skip_space = true;
    return HTH_STEP_DONE;
}

/* Without the line breaks that stand around a value. */
static void strip(const hth_answer *a, size_t *from, size_t *to)
{
    if (*from < *to && a->held[*from] == '\n') ++*from;
    if (*from < *to && a->held[*to - 1] == '\n') --*to;
}

/* ---- <parameter=KEY> --------------------------------------------------------------------------------------- */

hth_answer_step hth_answer_elements(hth_answer *a)
{
    size_t from = hth_answer_space(a, 0);
    int has = hth_answer_has(a, from, "<function=");
    size_t to = has > 0 ? hth_answer_find(a, from, ">") : SIZE_MAX;
    if (has < 0 || (has > 0 && to == SIZE_MAX && !a->final)) return HTH_STEP_WAIT;
    from += strlen("<function=");
    if (to == SIZE_MAX || !hth_answer_begin_call(a, a->held + from, to - from)) return hth_answer_no_call(a);
    hth_answer_take(a, to + 1);
    hth_answer_go(a, elements);
    return HTH_STEP_DONE;
}

static hth_answer_step elements(hth_answer *a)
{
    static const char open[] = "<parameter=", close[] = "</parameter>", last[] = "</function>";
    size_t at = hth_answer_space(a, 0), key = at + strlen(open);
    if (at == a->n && !a->final) return HTH_STEP_WAIT;
    int has = hth_answer_has(a, at, open), ends = hth_answer_has(a, at, last);
    if (has == 0 && ends >= 0) {
        if (ends > 0) hth_answer_take(a, at + strlen(last));
        return finish(a);
    }
    size_t end_of_key = has > 0 ? hth_answer_find(a, key, ">") : SIZE_MAX;
    size_t value = end_of_key == SIZE_MAX ? a->n : end_of_key + 1, to = hth_answer_find(a, value, close);
    if (!a->final && (end_of_key == SIZE_MAX || to == SIZE_MAX)) return HTH_STEP_WAIT;
    if (end_of_key == SIZE_MAX) {
        hth_answer_take(a, a->n);
        return finish(a);
    }
    size_t taken = to == SIZE_MAX ? a->n : to + strlen(close);
    if (to == SIZE_MAX) to = a->n;
    strip(a, &value, &to);
    give_argument(a, key, end_of_key - key, value, to - value);
    hth_answer_take(a, taken);
    return HTH_STEP_DONE;
}

/* ---- <arg_key>, <arg_value> ------------------------------------------------------------------------------------ */

/* The name ends with its line, or where a mark begins. */
hth_answer_step hth_answer_pairs(hth_answer *a)
{
    size_t from = hth_answer_space(a, 0), to = from;
    while (to < a->n && a->held[to] != '\n' && a->held[to] != '<') to++;
    if (to == a->n && !a->final) return HTH_STEP_WAIT;
    if (!hth_answer_begin_call(a, a->held + from, to - from)) return hth_answer_no_call(a);
    hth_answer_take(a, to);
    hth_answer_go(a, pairs);
    return HTH_STEP_DONE;
}

static hth_answer_step pairs(hth_answer *a)
{
    static const char open[] = "<arg_key>", end_key[] = "</arg_key>", value_open[] = "<arg_value>",
                      value_close[] = "</arg_value>";
    size_t at = hth_answer_space(a, 0), key = at + strlen(open);
    if (at == a->n && !a->final) return HTH_STEP_WAIT;
    int has = hth_answer_has(a, at, open);
    if (has == 0) return finish(a); /* </tool_call>, which is dropped */
    size_t key_end = has > 0 ? hth_answer_find(a, key, end_key) : SIZE_MAX;
    size_t value = key_end == SIZE_MAX ? SIZE_MAX : hth_answer_find(a, key_end, value_open);
    size_t to = value == SIZE_MAX ? SIZE_MAX : hth_answer_find(a, value, value_close);
    if (to == SIZE_MAX && !a->final) return HTH_STEP_WAIT;
    if (value == SIZE_MAX) {
        hth_answer_take(a, a->n);
        return finish(a);
    }
    size_t taken = to == SIZE_MAX ? a->n : to + strlen(value_close);
    if (to == SIZE_MAX) to = a->n;
    value += strlen(value_open);
    if (value > to) value = to;
    strip(a, &value, &to);
    give_argument(a, key, key_end - key, value, to - value);
    hth_answer_take(a, taken);
    return HTH_STEP_DONE;
}
