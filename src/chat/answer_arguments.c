/* Arguments that come one by one become members of a JSON object. A value is a text where the function's schema says so,
 * else JSON, else what Python's literals say (lists, words, quotes of both kinds), else a text. */
#include "chat/answer_int.h"
#include "chat/functions.h"

#include <string.h>

/* ---- giving ------------------------------------------------------------------------------------------------ */

static void give_word(hth_answer *a, const char *word)
{
    hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, word, strlen(word));
}

/* A byte as it stands in a JSON string. Returns its size there. */
static size_t escape(unsigned char c, char out[8])
{
    static const char digits[] = "0123456789abcdef", from[] = "\n\t\r\"\\", to[] = "ntr\"\\";
    const char *known = c ? strchr(from, c) : NULL;
    out[0] = (char)c;
    if (c >= 0x20 && !known) return 1;
    out[0] = '\\';
    out[1] = known ? to[known - from] : 'u';
    if (known) return 2;
    out[2] = out[3] = '0', out[4] = digits[c >> 4], out[5] = digits[c & 15];
    return 6;
}

static void give_quoted(hth_answer *a, const char *text, size_t n)
{
    size_t from = 0;
    char shown[8];
    give_word(a, "\"");
    for (size_t i = 0; i < n; i++) {
        size_t size = escape((unsigned char)text[i], shown);
        if (size == 1) continue;
        hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, text + from, i - from);
        hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, shown, size);
        from = i + 1;
    }
    hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, text + from, n - from);
    give_word(a, "\"");
}

/* ---- literals ------------------------------------------------------------------------------------------------ */

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* A NUL is in no set: models can write one. */
static bool is_one_of(char c, const char *set) { return c && strchr(set, c); }

static size_t skip_space(hth_str t, size_t at)
{
    while (at < t.n && is_space(t.bytes[at])) at++;
    return at;
}

/* Bytes of the quote that begins a string at `at`; 0: none does. A quote that is no single character holds a text as it
 * is; with it, apostrophes are letters. */
static size_t quote_size(hth_str t, size_t at, const char *quote)
{
    size_t n = strlen(quote);
    char c = t.bytes[at];
    if (n > 1 && t.n - at >= n && memcmp(t.bytes + at, quote, n) == 0) return n;
    if (c != '"' && (c != '\'' || n > 1)) return 0;
    return t.n - at >= 3 && t.bytes[at + 1] == c && t.bytes[at + 2] == c ? 3 : 1;
}

/* The end of what a string holds that begins behind its quote, at `at`; SIZE_MAX: it is not closed. A single quote ends a
 * string before a comma, a colon or a bracket: texts may have apostrophes. */
static size_t string_end(hth_str t, size_t at, const char *quote, size_t n)
{
    for (size_t i = at; i + n <= t.n; i++) {
        if (n < 4 && t.bytes[i] == '\\') {
            i++;
        } else if (memcmp(t.bytes + i, quote, n) == 0) {
            size_t behind = skip_space(t, i + n);
            if (n > 1 || (behind < t.n && is_one_of(t.bytes[behind], ",:)]}"))) return i;
        }
    }
    return SIZE_MAX;
}

/* Whether what is behind `at` may be the beginning of a quote. */
static bool may_be_quote(hth_str t, size_t at, const char *quote)
{
    size_t left = t.n - at, n = strlen(quote);
    char c = t.bytes[at];
    if (n > 1 && left < n && memcmp(t.bytes + at, quote, left) == 0) return true;
    return (c == '"' || c == '\'') && left < 3 && (left < 2 || t.bytes[at + 1] == c);
}

size_t hth_literal_end(const hth_answer *a, size_t at)
{
    const hth_str t = {a->held, a->n};
    const char *quote = a->o.calls->quote;
    for (uint32_t depth = 0; at < t.n;) {
        char c = t.bytes[at];
        if (!a->final && may_be_quote(t, at, quote)) return SIZE_MAX;
        size_t n = quote_size(t, at, quote);
        if (n > 0) {
            size_t end = string_end(t, at + n, t.bytes + at, n);
            if (end == SIZE_MAX) break;
            at = end + n;
            continue;
        }
        if ((c == ',' || c == ')' || c == ']' || c == '}') && depth == 0) return at;
        if (c == '(' || c == '[' || c == '{') depth++;
        if (c == ')' || c == ']' || c == '}') depth--;
        at++;
    }
    return a->final ? t.n : SIZE_MAX;
}

typedef struct json_text {
    char *bytes;
    size_t n;
} json_text;

/* Writes what is between quotes, whose escapes are those of JSON and Python. */
static void put_string(json_text *out, hth_str t, bool has_escapes)
{
    char one[8];
    out->bytes[out->n++] = '"';
    for (size_t i = 0; i < t.n;) {
        size_t n = 0;
        bool is_escape = has_escapes && t.bytes[i] == '\\' && i + 1 < t.n && is_one_of(t.bytes[i + 1], "\\'\"/bfnrtu");
        if (is_escape) i += 1 + hth_answer_read_escape(t.bytes + i + 1, t.n - i - 1, one, &n);
        else one[n++] = t.bytes[i++];
        for (size_t k = 0; k < n; k++) out->n += escape((unsigned char)one[k], out->bytes + out->n);
    }
    out->bytes[out->n++] = '"';
}

/* Python's words for what JSON has as well. */
static const char *python_word(hth_str t)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < 3; i++)
        if (hth_str_eq(t, words[i][0])) return words[i][1];
    return NULL;
}

/* A key without quotes, a number, a word. */
static void put_word(hth_answer *a, json_text *out, hth_str t, bool is_key)
{
    const char *word = is_key ? NULL : python_word(t);
    if (word) t = (hth_str){word, strlen(word)};
    if (is_key || !hth_is_json(t.bytes, t.n, &a->has_memory)) {
        put_string(out, t, false);
        return;
    }
    memcpy(out->bytes + out->n, t.bytes, t.n);
    out->n += t.n;
}

/* One token at `at`. Returns where the next one begins. */
static size_t put_token(hth_answer *a, json_text *out, hth_str t, size_t at, const char *quote)
{
    static const char from[] = "()[]{}:,", to[] = "[][]{}:,";
    const char *mark = is_one_of(t.bytes[at], from) ? strchr(from, t.bytes[at]) : NULL;
    size_t n = quote_size(t, at, quote), end = at;
    if (n > 0) {
        end = string_end(t, at + n, t.bytes + at, n);
        size_t next = end == SIZE_MAX ? t.n : end + n;
        if (end == SIZE_MAX) { /* the last one, whose quote has nothing behind it, or that was cut */
            end = t.n;
            if (end >= at + 2 * n && memcmp(t.bytes + end - n, t.bytes + at, n) == 0) end -= n;
        }
        put_string(out, (hth_str){t.bytes + at + n, end - at - n}, n < 4);
        return next;
    }
    if (mark) {
        size_t next = skip_space(t, at + 1);
        bool is_last = *mark == ',' && next < t.n && is_one_of(t.bytes[next], ")]}");
        if (!is_last) out->bytes[out->n++] = to[mark - from];
        return at + 1;
    }
    while (end < t.n && !is_one_of(t.bytes[end], from) && quote_size(t, end, quote) == 0) end++;
    size_t trimmed = end;
    while (trimmed > at && is_space(t.bytes[trimmed - 1])) trimmed--;
    put_word(a, out, (hth_str){t.bytes + at, trimmed - at}, end < t.n && t.bytes[end] == ':');
    return end;
}

/* False: it is no literal, and nothing was given. */
static bool give_literal(hth_answer *a, hth_str t)
{
    json_text out = {.bytes = hth_alloc(8 * t.n + 16, 1)};
    const char *quote = *a->o.calls->quote ? a->o.calls->quote : "'";
    if (!out.bytes) return a->has_memory = false;
    for (size_t at = skip_space(t, 0); at < t.n;) at = skip_space(t, put_token(a, &out, t, at, quote));
    bool is_json = hth_is_json(out.bytes, out.n, &a->has_memory);
    if (is_json) hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, out.bytes, out.n);
    hth_free(out.bytes);
    return is_json;
}

/* ---- arguments ----------------------------------------------------------------------------------------------- */

void hth_answer_give_argument(hth_answer *a, hth_str key, hth_str value, hth_value_form form)
{
    const hth_str function = {a->name, strlen(a->name)};
    const char *word = python_word(value);
    if (form == HTH_VALUE_ANY && hth_function_takes_text(a->o.tools, function, key, value, &a->has_memory)) form = HTH_VALUE_TEXT;
    give_word(a, a->n_argument++ ? ", " : "{");
    give_quoted(a, key.bytes, key.n);
    give_word(a, ": ");
    bool is_list = value.n > 0 && is_one_of(*value.bytes, "[{("), is_literal = form == HTH_VALUE_LITERAL;
    if (form == HTH_VALUE_TEXT) give_quoted(a, value.bytes, value.n);
    else if (!is_literal && word) give_word(a, word);
    else if (!is_literal && hth_is_json(value.bytes, value.n, &a->has_memory))
        hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, value.bytes, value.n);
    else if ((!is_literal && !is_list) || !give_literal(a, value)) give_quoted(a, value.bytes, value.n);
}

hth_answer_step hth_answer_end_arguments(hth_answer *a, hth_answer_state *next)
{
    give_word(a, a->n_argument ? "}" : "{}");
    hth_answer_go(a, next);
    return HTH_STEP_DONE;
}
