/* Calls whose arguments are JSON: {"name": "f", "arguments": {...}} or {"f": {...}}, in an array too, and names before
 * arguments. The arguments are given as they come. */
#include "chat/answer_int.h"
#include "chat/functions.h"

#include "text/utf8.h"

#include <string.h>

static hth_answer_state named_head, text_arguments, rest, end;

/* Names of this form are taken for calls, whether the function is given or not. */
static bool is_plain(const char *name, size_t n)
{
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        char c = name[i];
        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
             c == '-' || c == '.' || c == ':' || c == '/';
    }
    return ok;
}

bool hth_answer_begin_call(hth_answer *a, const char *name, size_t n)
{
    while (n > 0 && (*name == ' ' || *name == '\n')) name++, n--;
    while (n > 0 && (name[n - 1] == ' ' || name[n - 1] == '\n')) n--;
    bool must_be_given = !is_plain(name, n) || (a->is_bare && a->o.tools);
    a->is_bare = false;
    if (n == 0 || n >= sizeof a->name) return false;
    if (must_be_given && !hth_function_is_given(a->o.tools, (hth_str){name, n}, &a->has_memory)) return false;
    memcpy(a->name, name, n);
    a->name[n] = '\0';
    a->n_opened = 0;
    a->n_call++;
    a->n_argument = 0;
    a->scan = (hth_json_scan){0};
    hth_answer_give(a, HEARTH_ANSWER_CALL, a->name, n);
    return true;
}

hth_answer_step hth_answer_no_call(hth_answer *a)
{
    hth_answer_give(a, HEARTH_ANSWER_TEXT, a->opened, a->n_opened);
    a->n_opened = 0;
    a->has_text = true;
    a->skip_space = a->is_bare = false;
    hth_answer_go(a, hth_answer_text);
    return HTH_STEP_DONE;
}

bool hth_json_scan_value(hth_json_scan *s, const char *text, size_t n, size_t *at)
{
    for (; *at < n; ++*at) {
        char c = text[*at];
        if (s->in_text) {
            if (s->escaped) s->escaped = false;
            else if (c == '\\') s->escaped = true;
            else if (c == '"') s->in_text = false;
            if (!s->in_text && s->depth == 0) return ++*at, true;
        } else if (c == '"') {
            s->in_text = s->started = true;
        } else if (c == '{' || c == '[') {
            s->depth++, s->started = true;
        } else if (c == '}' || c == ']') {
            if (s->depth == 0) return true; /* it closes what contains the number or word */
            if (--s->depth == 0) return ++*at, true;
        } else if (s->depth == 0 && s->started && (c == ',' || c == ' ' || c == '\n')) {
            return true;
        } else if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
            s->started = true;
        }
    }
    return false;
}

/* ---- {"name", "arguments"} ------------------------------------------------------------------------------- */

typedef struct json_head {
    enum { HEAD_WAIT, HEAD_BAD, HEAD_OPEN, HEAD_WHOLE } end;
    size_t name, n_name;           /* in the held text, without quotes */
    size_t arguments, n_arguments; /* OPEN: where they begin; else a whole value, or n_arguments 0 */
    size_t n;                      /* WHOLE: of all */
} json_head;

static size_t skip(const hth_answer *a, size_t at) { return at + hth_answer_space(a, at); }

/* An object with a name in it, or with the name as a key. */
static bool is_object(const hth_call_format *f) { return f->style != HTH_CALL_NAMED && f->style != HTH_CALL_RECIPIENT; }

static bool key_is(const hth_answer *a, size_t from, size_t to, const char *name)
{
    return to - from == strlen(name) + 2 && memcmp(a->held + from + 1, name, to - from - 2) == 0;
}

/* One member, from *at on; h->end changes if that ends the head. */
static bool read_member(const hth_answer *a, size_t *at, json_head *h)
{
    size_t key = skip(a, *at), behind = key;
    hth_json_scan s = {0};
    if (key == a->n) return false;
    if (a->held[key] != '"') return h->end = HEAD_BAD, false;
    if (!hth_json_scan_value(&s, a->held, a->n, &behind)) return false;
    size_t value = skip(a, behind);
    if (value == a->n) return false;
    if (a->held[value] != ':') return h->end = HEAD_BAD, false;
    value = skip(a, value + 1);
    if (value == a->n) return false;
    bool is_keyed = a->o.calls->style == HTH_CALL_KEYED, is_arguments = is_keyed;
    if (is_keyed) h->name = key + 1, h->n_name = behind - key - 2;
    is_arguments |= key_is(a, key, behind, "arguments") || key_is(a, key, behind, "parameters");
    if (is_arguments && h->n_name > 0) {
        h->arguments = value;
        return h->end = HEAD_OPEN, false;
    }
    *at = value;
    s = (hth_json_scan){0};
    if (!hth_json_scan_value(&s, a->held, a->n, at)) return false;
    if (is_arguments) h->arguments = value, h->n_arguments = *at - value;
    bool is_name = key_is(a, key, behind, "name") || key_is(a, key, behind, "tool_name");
    if (is_name && a->held[value] == '"' && *at - value > 2)
        h->name = value + 1, h->n_name = *at - value - 2;
    return true;
}

static json_head read_head(const hth_answer *a)
{
    json_head h = {.end = HEAD_WAIT};
    size_t at = skip(a, 0);
    if (at == a->n) return h;
    if (a->held[at++] != '{') return h.end = HEAD_BAD, h;
    while (read_member(a, &at, &h)) {
        at = skip(a, at);
        if (at == a->n) return h;
        if (a->held[at] == '}') {
            h.end = h.n_name > 0 ? HEAD_WHOLE : HEAD_BAD;
            h.n = at + 1;
            return h;
        }
        if (a->held[at++] != ',') return h.end = HEAD_BAD, h;
    }
    return h;
}

static void give_arguments(hth_answer *a, size_t from, size_t n)
{
    if (n == 0) hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, "{}", 2);
    else hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, a->held + from, n);
}

hth_answer_step hth_answer_head(hth_answer *a)
{
    json_head h = read_head(a);
    if (h.end == HEAD_WAIT && !a->final) return HTH_STEP_WAIT;
    bool is_call =
        (h.end == HEAD_OPEN || h.end == HEAD_WHOLE) && hth_answer_begin_call(a, a->held + h.name, h.n_name);
    if (!is_call) return hth_answer_no_call(a);
    if (h.end == HEAD_OPEN) {
        bool is_text = a->held[h.arguments] == '"';
        hth_answer_take(a, h.arguments);
        hth_answer_go(a, is_text ? text_arguments : hth_answer_json_arguments);
        return HTH_STEP_DONE;
    }
    give_arguments(a, h.arguments, h.n_arguments);
    hth_answer_take(a, h.n);
    hth_answer_go(a, end);
    return HTH_STEP_DONE;
}

hth_answer_step hth_answer_json_arguments(hth_answer *a)
{
    bool is_whole = hth_json_scan_value(&a->scan, a->held, a->n, &a->at);
    size_t n = a->at;
    hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, a->held, n);
    hth_answer_take(a, n);
    if (!is_whole) return HTH_STEP_WAIT;
    a->scan = (hth_json_scan){.depth = 1};
    hth_answer_go(a, is_object(a->o.calls) ? rest : end);
    return HTH_STEP_DONE;
}

/* The four hexadecimal digits behind the u of an escape. False: it has none. */
static bool read_code(const char *at, size_t left, uint32_t *code)
{
    *code = 0;
    if (left < 5 || *at != 'u') return false;
    for (int i = 1; i <= 4; i++) {
        char digit = at[i], letter = (char)(digit | 32);
        bool is_digit = digit >= '0' && digit <= '9';
        if (!is_digit && (letter < 'a' || letter > 'f')) return false;
        *code = *code << 4 | (uint32_t)(is_digit ? digit - '0' : letter - 'a' + 10);
    }
    return true;
}

size_t hth_answer_read_escape(const char *at, size_t left, char *out, size_t *n)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    uint32_t c, low = 0;
    if (!read_code(at, left, &c)) {
        const char *known = *at ? strchr(from, *at) : NULL;
        out[(*n)++] = known ? to[known - from] : *at;
        return 1;
    }
    bool is_surrogate = c >= 0xD800 && c < 0xE000, is_high = is_surrogate && c < 0xDC00;
    bool is_pair = is_high && left > 6 && at[5] == '\\' && read_code(at + 6, left - 6, &low) && low >= 0xDC00 && low < 0xE000;
    if (is_pair) c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    *n += hth_text_utf8_encode(is_surrogate && !is_pair ? 0xFFFD : c, out + *n);
    return is_pair ? 11 : 5;
}

/* Arguments that are a text with JSON in it. */
static hth_answer_step text_arguments(hth_answer *a)
{
    if (!hth_json_scan_value(&a->scan, a->held, a->n, &a->at) && !a->final) return HTH_STEP_WAIT;
    size_t n = 0, end_of = a->at > 1 && a->held[a->at - 1] == '"' ? a->at - 1 : a->at, taken = a->at;
    for (size_t i = 1; i < end_of;) {
        if (a->held[i] != '\\' || i + 1 == end_of) a->held[n++] = a->held[i++];
        else i += 1 + hth_answer_read_escape(a->held + i + 1, end_of - i - 1, a->held, &n);
    }
    hth_answer_give(a, HEARTH_ANSWER_ARGUMENTS, a->held, n);
    hth_answer_take(a, taken);
    a->scan = (hth_json_scan){.depth = 1};
    hth_answer_go(a, rest);
    return HTH_STEP_DONE;
}

/* The members behind the arguments. */
static hth_answer_step rest(hth_answer *a)
{
    bool is_whole = hth_json_scan_value(&a->scan, a->held, a->n, &a->at);
    hth_answer_take(a, a->at);
    if (!is_whole) return HTH_STEP_WAIT;
    hth_answer_go(a, end);
    return HTH_STEP_DONE;
}

/* Reads what follows a call: a separator and the next call, or text. */
static hth_answer_step end(hth_answer *a)
{
    const hth_call_format *f = a->o.calls;
    bool is_list = hth_call_format_is_list(f);
    size_t at = 0;
    while (at < a->n && strchr(f->is_bare ? " \n\t\r;" : " \n\t\r`", a->held[at])) at++;
    hth_answer_take(a, at);
    if (a->n == 0) return HTH_STEP_WAIT;
    char c = a->held[0];
    if (is_list && (c == ',' || c == ']')) hth_answer_take(a, 1);
    bool more = (is_list && c == ',') || (is_object(f) && c == '{');
    a->skip_space = true;
    hth_answer_go(a, more ? hth_answer_head : hth_answer_text);
    return HTH_STEP_DONE;
}

/* ---- names before arguments ------------------------------------------------------------------------------- */

/* The end of a name without the number of the call behind it, in formats that have one. */
static size_t without_number(const hth_answer *a, size_t from, size_t to)
{
    const char *number = strchr(a->o.calls->name_end, '#');
    size_t n = to;
    while (number && n > from && a->held[n - 1] >= '0' && a->held[n - 1] <= '9') n--;
    return number && n < to && n > from && a->held[n - 1] == number[-1] ? n - 1 : to;
}

/* All up to the first brace: the name, and marks around it. */
static hth_answer_step named_head(hth_answer *a)
{
    const hth_call_format *f = a->o.calls;
    const char *brace = memchr(a->held, '{', a->n);
    if (!brace && !a->final) return HTH_STEP_WAIT;
    size_t n = brace ? (size_t)(brace - a->held) : a->n, from = hth_answer_find(a, 0, f->name_mark);
    from = from < n ? from + strlen(f->name_mark) : hth_answer_space(a, 0);
    size_t to = from;
    while (to < n && !strchr("[<>\n`", a->held[to])) to++;
    to = without_number(a, from, to);
    if (!brace || !hth_answer_begin_call(a, a->held + from, to - from)) return hth_answer_no_call(a);
    hth_answer_take(a, n);
    hth_answer_go(a, hth_answer_json_arguments);
    return HTH_STEP_DONE;
}

/* ---- beginnings -------------------------------------------------------------------------------------------- */

/* White space, a fence of code and a bracket may stand between the mark and the first call. */
hth_answer_step hth_answer_call(hth_answer *a)
{
    static hth_answer_state *const states[] = {
        [HTH_CALL_JSON] = hth_answer_head,         [HTH_CALL_KEYED] = hth_answer_head,
        [HTH_CALL_NAMED] = named_head,             [HTH_CALL_ELEMENTS] = hth_answer_elements,
        [HTH_CALL_LITERALS] = hth_answer_literals, [HTH_CALL_RECIPIENT] = hth_answer_recipient};
    static const char fence[] = "```json";
    const hth_call_format *f = a->o.calls;
    bool is_list = f->style != HTH_CALL_NAMED && f->style != HTH_CALL_ELEMENTS && f->style != HTH_CALL_RECIPIENT;
    if (f->style != HTH_CALL_RECIPIENT) hth_answer_set_aside(a, hth_answer_space(a, 0));
    if (a->n == 0 && !a->final) return HTH_STEP_WAIT;
    int has_fence = is_list ? hth_answer_has(a, 0, fence) : 0;
    if (has_fence < 0) return HTH_STEP_WAIT;
    if (has_fence > 0) {
        hth_answer_set_aside(a, sizeof fence - 1);
        return HTH_STEP_DONE;
    }
    if (is_list && a->n > 0 && a->held[0] == '[') hth_answer_set_aside(a, 1);
    hth_answer_go(a, states[f->style]);
    return HTH_STEP_DONE;
}

/* An object without marks around it is a call only with arguments, and by the name of a given function: an answer may be
 * JSON with a name, too. */
static bool may_be_call(hth_answer *a, const json_head *h)
{
    const hth_str name = {a->held + h->name, h->n_name};
    if (h->end == HEAD_BAD || (h->end == HEAD_WHOLE && h->n_arguments == 0)) return false;
    return h->n_name == 0 || !a->o.tools || hth_function_is_given(a->o.tools, name, &a->has_memory);
}

hth_answer_step hth_answer_bare_call(hth_answer *a)
{
    size_t space = hth_answer_space(a, 0);
    if (space == a->n && !a->final) return HTH_STEP_WAIT;
    if (space < a->n && a->held[space] == '{') {
        json_head h = read_head(a);
        bool is_possible = may_be_call(a, &h);
        if (h.end == HEAD_WAIT && is_possible && !a->final) return HTH_STEP_WAIT;
        if (h.end != HEAD_WAIT && is_possible) {
            hth_answer_go(a, hth_answer_head);
            return HTH_STEP_DONE;
        }
    }
    int mark = hth_answer_has(a, space, a->o.calls->mark);
    if (mark < 0) return HTH_STEP_WAIT;
    if (mark > 0) {
        hth_answer_set_aside(a, space + strlen(a->o.calls->mark));
        hth_answer_go(a, hth_answer_call);
        return HTH_STEP_DONE;
    }
    a->has_text = true; /* it is text from here on */
    hth_answer_go(a, hth_answer_text);
    return HTH_STEP_DONE;
}
