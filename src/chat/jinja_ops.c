/* Operators and slices, with Python's rules: integers stay integers and never wrap, // and % round down, texts and
 * lists can be repeated. Called by jinja_eval.c. */
#include "chat/jinja.h"

#include <string.h>

static bool too_large(hth_jinja *j)
{
    return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "a number is too large");
}

static bool no_operation(hth_jinja *j, const char *sign, const hth_jinja_value *a, const hth_jinja_value *b)
{
    const hth_jinja_value *u = a->kind == JINJA_UNDEFINED ? a : b;
    const char *name = u->kind == JINJA_UNDEFINED && u->as.text ? hth_jinja_bytes(j, u->as.text) : NULL;
    if (name)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'%.*s' is undefined, so '%s' cannot be computed",
                              (int)(u->as.text->n < 60 ? u->as.text->n : 60), name, sign);
    return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'%s' of %s and %s cannot be computed", sign,
                          hth_jinja_kind_name(a), hth_jinja_kind_name(b));
}

/* ---- numbers ------------------------------------------------------------------------------------- */

/* The largest integer that is not larger. */
static double round_down(double x)
{
    if (!(x > -9e15 && x < 9e15)) return x; /* has no fraction, or is NaN */
    int64_t i = (int64_t)x;
    return (double)(i - ((double)i > x));
}

static bool power(hth_jinja *j, int64_t a, int64_t n, hth_jinja_value *out)
{
    int64_t r = 1;
    for (; n > 0; n >>= 1) {
        if (n & 1 && __builtin_mul_overflow(r, a, &r)) return too_large(j);
        if (n > 1 && __builtin_mul_overflow(a, a, &a)) return too_large(j);
    }
    *out = hth_jinja_integer(r);
    return true;
}

static bool operate_integers(hth_jinja *j, hth_jinja_op op, int64_t a, int64_t b, hth_jinja_value *out)
{
    int64_t r = 0;
    bool wraps = false;
    switch (op) {
    case OP_ADD: wraps = __builtin_add_overflow(a, b, &r); break;
    case OP_SUB: wraps = __builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: wraps = __builtin_mul_overflow(a, b, &r); break;
    case OP_POW: return power(j, a, b, out);
    default:
        wraps = a == INT64_MIN && b == -1;
        if (wraps) break;
        r = op == OP_FLOOR ? a / b : a % b;
        if (a % b != 0 && (a < 0) != (b < 0)) r += op == OP_FLOOR ? -1 : b;
    }
    *out = hth_jinja_integer(r);
    return wraps ? too_large(j) : true;
}

static bool operate_floats(hth_jinja *j, hth_jinja_op op, double a, double b, hth_jinja_value *out)
{
    double r = 0.0;
    switch (op) {
    case OP_ADD: r = a + b; break;
    case OP_SUB: r = a - b; break;
    case OP_MUL: r = a * b; break;
    case OP_DIV: r = a / b; break;
    case OP_FLOOR: r = round_down(a / b); break;
    case OP_MOD: r = a - round_down(a / b) * b; break;
    default:
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'**' is known for whole numbers that stay whole");
    }
    *out = hth_jinja_float(r);
    return true;
}

static bool operate_numbers(hth_jinja *j, hth_jinja_op op, const hth_jinja_value *a, const hth_jinja_value *b,
                            hth_jinja_value *out)
{
    int64_t x = a->kind == JINJA_BOOL ? a->as.b : a->as.i, y = b->kind == JINJA_BOOL ? b->as.b : b->as.i;
    bool whole = (a->kind == JINJA_INT || a->kind == JINJA_BOOL) && (b->kind == JINJA_INT || b->kind == JINJA_BOOL);
    if ((op == OP_DIV || op == OP_FLOOR || op == OP_MOD) &&
        !(hth_jinja_number(b) < 0.0 || hth_jinja_number(b) > 0.0))
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "a division by zero");
    if (whole && op != OP_DIV && !(op == OP_POW && y < 0)) return operate_integers(j, op, x, y, out);
    return operate_floats(j, op, hth_jinja_number(a), hth_jinja_number(b), out);
}

/* ---- texts and lists --------------------------------------------------------------------------------- */

static bool repeat_text(hth_jinja *j, hth_jinja_text *t, int64_t n, hth_jinja_value *out)
{
    hth_jinja_strbuf b = {0};
    const char *p = hth_jinja_bytes(j, t);
    if (!p) return false;
    if (n > 0 && t->n > 0 && (uint64_t)n > HTH_TEMPLATE_MAX_OUTPUT / t->n)
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "a text of more than %d MiB",
                              HTH_TEMPLATE_MAX_OUTPUT >> 20);
    for (int64_t i = 0; i < n && t->n > 0; i++) {
        hth_jinja_cursor c = {0};
        for (size_t at = 0; at < t->n; at = c.until) {
            bool is_template = hth_jinja_origin(t, &c, at);
            if (!hth_jinja_strbuf_bytes(j, &b, p + at, c.until - at, is_template)) return false;
        }
    }
    return hth_jinja_strbuf_value(j, &b, out);
}

static bool repeat_list(hth_jinja *j, const hth_jinja_value *v, int64_t n, hth_jinja_value *out)
{
    if (!hth_jinja_new_list(j, v->kind, out)) return false;
    for (int64_t i = 0; i < n && v->as.list->n > 0; i++)
        for (size_t k = 0; k < v->as.list->n; k++)
            if (!hth_jinja_count_steps(j, 1) || !hth_jinja_push(j, out->as.list, &v->as.list->v[k])) return false;
    return true;
}

static bool join_lists(hth_jinja *j, const hth_jinja_value *a, const hth_jinja_value *b, hth_jinja_value *out)
{
    if (!hth_jinja_new_list(j, a->kind, out) || !hth_jinja_count_steps(j, (a->as.list->n + b->as.list->n) / 64))
        return false;
    for (size_t i = 0; i < a->as.list->n; i++)
        if (!hth_jinja_push(j, out->as.list, &a->as.list->v[i])) return false;
    for (size_t i = 0; i < b->as.list->n; i++)
        if (!hth_jinja_push(j, out->as.list, &b->as.list->v[i])) return false;
    return true;
}

static bool is_list(const hth_jinja_value *v) { return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE; }
static bool is_whole(const hth_jinja_value *v) { return v->kind == JINJA_INT || v->kind == JINJA_BOOL; }

static bool repeat(hth_jinja *j, const hth_jinja_value *v, const hth_jinja_value *times, hth_jinja_value *out)
{
    int64_t n = times->kind == JINJA_BOOL ? times->as.b : times->as.i;
    if (v->kind != JINJA_TEXT) return repeat_list(j, v, n, out);
    if (!repeat_text(j, v->as.text, n, out)) return false;
    out->as.text->markup = v->as.text->markup;
    return true;
}

/* a + b where one is markup: the other one is escaped. */
static bool concat_markup(hth_jinja *j, hth_jinja_text *a, hth_jinja_text *b, hth_jinja_value *out)
{
    hth_jinja_value other;
    if (!hth_jinja_escape(j, a->markup ? b : a, &other)) return false;
    if (a->markup && b->markup) other.as.text = b;
    if (!hth_jinja_concat(j, a->markup ? a : other.as.text, a->markup ? other.as.text : b, out)) return false;
    out->as.text->markup = true;
    return true;
}

static bool join_printed(hth_jinja *j, const hth_jinja_value *a, const hth_jinja_value *b,
                         hth_jinja_value *out)
{
    hth_jinja_strbuf build = {0};
    return hth_jinja_print(j, a, &build) && hth_jinja_print(j, b, &build) &&
           hth_jinja_strbuf_value(j, &build, out);
}

/* Arguments of a call are a text as well as an object. */
static bool is_printed(const hth_jinja_value *v) { return v->kind == JINJA_DICT && v->as.dict->source.n > 0; }

/* ---- comparisons ------------------------------------------------------------------------------------------ */

static bool compare(hth_jinja *j, hth_jinja_op op, const hth_jinja_value *a, const hth_jinja_value *b,
                    hth_jinja_value *out)
{
    bool is = false;
    int order = 0;
    if (op == OP_IN || op == OP_NOT_IN) {
        if (!hth_jinja_contains(j, a, b, &is)) return false;
        *out = hth_jinja_bool(is == (op == OP_IN));
    } else if (op == OP_EQ || op == OP_NE) {
        if (!hth_jinja_equal(j, a, b, &is)) return false;
        *out = hth_jinja_bool(is == (op == OP_EQ));
    } else {
        if (!hth_jinja_compare(j, a, b, false, &order)) return false;
        *out = hth_jinja_bool(op == OP_LT   ? order < 0
                              : op == OP_LE ? order <= 0
                              : op == OP_GT ? order > 0
                                            : order >= 0);
    }
    return true;
}

bool hth_jinja_operate(hth_jinja *j, hth_jinja_op op, const hth_jinja_value *a, const hth_jinja_value *b,
                       hth_jinja_value *out)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (op == OP_JOIN) return join_printed(j, a, b, out);
    if (op > OP_JOIN) return compare(j, op, a, b, out);
    if (hth_jinja_is_number(a) && hth_jinja_is_number(b)) return operate_numbers(j, op, a, b, out);
    if (op == OP_ADD && a->kind == JINJA_TEXT && b->kind == JINJA_TEXT)
        return a->as.text->markup || b->as.text->markup ? concat_markup(j, a->as.text, b->as.text, out)
                                                        : hth_jinja_concat(j, a->as.text, b->as.text, out);
    if (op == OP_ADD && (is_printed(a) || is_printed(b)) && (a->kind == JINJA_TEXT || b->kind == JINJA_TEXT))
        return join_printed(j, a, b, out);
    if (op == OP_ADD && is_list(a) && a->kind == b->kind) return join_lists(j, a, b, out);
    if (op == OP_MUL && (a->kind == JINJA_TEXT || is_list(a)) && is_whole(b)) return repeat(j, a, b, out);
    if (op == OP_MUL && (b->kind == JINJA_TEXT || is_list(b)) && is_whole(a)) return repeat(j, b, a, out);
    if (op == OP_MOD && a->kind == JINJA_TEXT) return hth_jinja_percent_format(j, a->as.text, b, out);
    return no_operation(j, signs[op], a, b);
}

/* ---- slices --------------------------------------------------------------------------------------------------- */

/* Python's slice.indices: first, one past the last, and step, for n items. */
typedef struct range {
    int64_t start, stop, step;
} range;

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0) i = i < -n ? -1 : i + n;
    return i < low ? low : i > high ? high : i;
}

static bool slice_range(hth_jinja *j, const hth_jinja_value *start, const hth_jinja_value *stop,
                        const hth_jinja_value *step, size_t size, range *r)
{
    int64_t n = (int64_t)size;
    if (!hth_jinja_int(j, step, 1, &r->step)) return false;
    if (r->step == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "the step of a slice is zero");
    if (r->step < -n - 1) r->step = -n - 1; /* selects the same items without overflow */
    if (r->step > n + 1) r->step = n + 1;
    int64_t low = r->step < 0 ? -1 : 0, high = r->step < 0 ? n - 1 : n;
    if (!hth_jinja_int(j, start, r->step < 0 ? INT64_MAX : 0, &r->start)) return false;
    r->start = clamp(r->start, n, low, high);
    bool open = stop->kind == JINJA_MISSING || stop->kind == JINJA_NONE;
    if (!hth_jinja_int(j, stop, 0, &r->stop)) return false;
    r->stop = open ? (r->step < 0 ? -1 : n) : clamp(r->stop, n, low, high);
    return true;
}

static bool slice_text(hth_jinja *j, hth_jinja_text *t, const hth_jinja_value *start,
                       const hth_jinja_value *stop, const hth_jinja_value *step, hth_jinja_value *out)
{
    range r;
    hth_jinja_strbuf b = {0};
    hth_jinja_list *chars;
    hth_jinja_value whole = {JINJA_TEXT, {.text = t}};
    const char *p = hth_jinja_bytes(j, t);
    if (!p || !hth_jinja_count_bytes(j, 2 * t->n) ||
        !slice_range(j, start, stop, step, hth_jinja_n_char(p, t->n), &r))
        return false;
    if (r.step == 1) {
        size_t from = hth_jinja_char_at(p, t->n, (size_t)r.start);
        size_t to = r.stop > r.start
                        ? from + hth_jinja_char_at(p + from, t->n - from, (size_t)(r.stop - r.start))
                        : from;
        return hth_jinja_cut(j, t, from, to, out);
    }
    if (!hth_jinja_items(j, &whole, &chars)) return false;
    for (int64_t i = r.start; r.step > 0 ? i < r.stop : i > r.stop; i += r.step)
        if (!hth_jinja_strbuf_text(j, &b, chars->v[i].as.text)) return false;
    return hth_jinja_strbuf_value(j, &b, out);
}

bool hth_jinja_slice(hth_jinja *j, const hth_jinja_value *v, const hth_jinja_value *start,
                     const hth_jinja_value *stop, const hth_jinja_value *step, hth_jinja_value *out)
{
    range r;
    if (v->kind == JINJA_TEXT) return slice_text(j, v->as.text, start, stop, step, out);
    if (v->kind == JINJA_UNDEFINED) return hth_jinja_undefined(j, NULL, 0, out);
    if (!is_list(v))
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s cannot be sliced", hth_jinja_kind_name(v));
    if (!slice_range(j, start, stop, step, v->as.list->n, &r) || !hth_jinja_new_list(j, v->kind, out))
        return false;
    for (int64_t i = r.start; r.step > 0 ? i < r.stop : i > r.stop; i += r.step)
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_push(j, out->as.list, &v->as.list->v[i])) return false;
    return true;
}
