/* Numbers of JSON within bounds, as parts of a grammar. */
#include "constrain/json_rules.h"

#include "base/decimal.h"

#include <stdio.h>
#include <string.h>

enum { MAX_EXPONENT_DIGITS = 2 };

/* ---- digits -------------------------------------------------------------------------------------------- */

/* One digit from first to last. */
static uint32_t between(hth_json_rules *r, uint32_t tail, unsigned first, unsigned last)
{
    hth_byte_set set = {{0}};
    hth_byte_set_add(&set, (uint8_t)('0' + first), (uint8_t)('0' + last));
    return hth_grammar_byte_set(r->g, tail, &set);
}

static uint32_t digits(hth_json_rules *r, uint32_t tail, uint32_t min, uint32_t max)
{
    return hth_grammar_repeat(r->g, tail, r->digit, min, max);
}

/* ---- whole numbers ------------------------------------------------------------------------------------- */

/* Numbers from min to max as runs whose texts have the same digits, but for one that is in a range and free ones behind
 * it: 17 to 342 is 17..19, 20..99, 100..299, 300..339, 340..342. */
static uint32_t naturals(hth_json_rules *r, uint32_t tail, uint64_t min, uint64_t max)
{
    hth_grammar *g = r->g;
    hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
    for (uint64_t from = min; from <= max;) {
        uint32_t n_free = 0;
        uint64_t size = 1; /* 10^n_free; all numbers with the same leading digits are in the range */
        while (from >= size * 10 && from % (size * 10) == 0 && size <= UINT64_MAX / 100 &&
               max - from >= size * 10 - 1)
            size *= 10, n_free++;
        uint64_t digit = from / size % 10, last = digit;
        while (last < 9 && max - from >= (last + 2 - digit) * size - 1) last++;
        char prefix[24] = "";
        if (from / size >= 10)
            snprintf(prefix, sizeof prefix, "%llu", (unsigned long long)(from / size / 10));
        uint32_t at = between(r, hth_grammar_words(g, hth_grammar_branch(g, &f), prefix), (unsigned)digit,
                              (unsigned)last);
        hth_grammar_end_branch(g, &f, n_free > 0 ? digits(r, at, n_free, n_free) : at);
        uint64_t run = (last + 1 - digit) * size;
        if (max - from < run) break;
        from += run;
    }
    return hth_grammar_fork_end(g, &f);
}

/* Adds 1; false: there is none. */
static bool next_natural(uint64_t *n) { return (*n)++ < UINT64_MAX; }

/* The smallest whole magnitude from a bound on, or the largest up to it. False: there is none. */
static bool round_up(const hth_json_bound *b, uint64_t *out)
{
    *out = b->whole;
    return b->n_digit == 0 && !b->is_open ? true : next_natural(out);
}

static bool round_down(const hth_json_bound *b, uint64_t *out)
{
    *out = b->whole;
    if (b->n_digit > 0 || !b->is_open) return true;
    return (*out)-- > 0;
}

/* ---- fractions ------------------------------------------------------------------------------------------- */

/* Up to n digits that are not all zero. */
static uint32_t nonzero(hth_json_rules *r, uint32_t tail, uint32_t n)
{
    uint32_t head = hth_grammar_point(r->g, tail);
    tail = hth_grammar_repeat_since(r->g, head, between(r, head, 0, 0), 0, n - 1);
    return digits(r, between(r, tail, 1, 9), 0, n - 1);
}

/* One digit from first to last, and any behind the i before it. */
static void branch_free(hth_json_rules *r, hth_grammar_fork *f, uint32_t i, unsigned first, unsigned last)
{
    if (first > last) return;
    uint32_t tail = between(r, hth_grammar_branch(r->g, f), first, last);
    hth_grammar_end_branch(r->g, f, digits(r, tail, 0, HTH_JSON_DIGITS - i - 1));
}

static unsigned digit_at(const hth_json_bound *b, uint32_t i)
{
    return i < b->n_digit ? (unsigned)(b->digits[i] - '0') : 0;
}

/* Behind a point and i digits, which are those of the bound: the rest of a fraction that is not below it. */
static uint32_t fraction_from(hth_json_rules *r, uint32_t tail, const hth_json_bound *b, uint32_t i)
{
    hth_grammar *g = r->g;
    uint32_t join = hth_grammar_rule(g, NULL), n_left = HTH_JSON_DIGITS - b->n_digit;
    for (; i < b->n_digit; i++) {
        hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
        branch_free(r, &f, i, digit_at(b, i) + 1, 9);
        tail = between(r, hth_grammar_branch(g, &f), digit_at(b, i), digit_at(b, i));
        hth_grammar_link(g, hth_grammar_fork_end(g, &f), join);
    }
    if (b->is_open && n_left > 0) hth_grammar_link(g, nonzero(r, tail, n_left), join);
    if (!b->is_open) hth_grammar_link(g, digits(r, tail, i == 0, n_left), join);
    return join;
}

/* Behind a point and i digits of the bound, the rest of a fraction that is not above it, and, if above_zero, has another
 * digit than zero from here on. */
static uint32_t fraction_to(hth_json_rules *r, uint32_t tail, const hth_json_bound *b, uint32_t i,
                            bool above_zero)
{
    hth_grammar *g = r->g;
    uint32_t join = hth_grammar_rule(g, NULL);
    for (; i < b->n_digit; i++) {
        unsigned digit = digit_at(b, i);
        hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
        if (digit > 0) branch_free(r, &f, i, above_zero, digit - 1);
        if (digit > 0 && above_zero && i + 1 < HTH_JSON_DIGITS)
            hth_grammar_end_branch(
                g, &f, nonzero(r, between(r, hth_grammar_branch(g, &f), 0, 0), HTH_JSON_DIGITS - i - 1));
        if (!above_zero && i > 0) hth_grammar_end_branch(g, &f, hth_grammar_branch(g, &f)); /* it ends here */
        above_zero = above_zero && digit == 0;
        tail = between(r, hth_grammar_branch(g, &f), digit, digit);
        hth_grammar_link(g, hth_grammar_fork_end(g, &f), join);
    }
    if (!b->is_open && !above_zero && i > 0) hth_grammar_link(g, tail, join);
    return join;
}

/* Behind a point: fractions between those of two bounds with the same whole part. */
static uint32_t fraction_between(hth_json_rules *r, uint32_t tail, const hth_json_bound *min,
                                 const hth_json_bound *max)
{
    hth_grammar *g = r->g;
    uint32_t i = 0;
    for (; i < min->n_digit && i < max->n_digit && min->digits[i] == max->digits[i]; i++)
        tail = between(r, tail, digit_at(min, i), digit_at(min, i));
    if (i == min->n_digit) return fraction_to(r, tail, max, i, min->is_open);
    unsigned low = digit_at(min, i), high = digit_at(max, i);
    if (low >= high) return HTH_GRAMMAR_NOTHING;
    hth_grammar_fork f = hth_grammar_fork_begin(g, tail);
    branch_free(r, &f, i, low + 1, high - 1);
    uint32_t at = between(r, hth_grammar_branch(g, &f), low, low);
    hth_grammar_end_branch(g, &f, fraction_from(r, at, min, i + 1));
    at = between(r, hth_grammar_branch(g, &f), high, high);
    hth_grammar_end_branch(g, &f, fraction_to(r, at, max, i + 1, false));
    return hth_grammar_fork_end(g, &f);
}

static uint32_t maybe_fraction(hth_json_rules *r, uint32_t tail)
{
    uint32_t head = hth_grammar_point(r->g, tail);
    return hth_grammar_repeat_since(r->g, head,
                                    digits(r, hth_grammar_words(r->g, head, "."), 1, HTH_JSON_DIGITS), 0, 1);
}

/* ---- numbers --------------------------------------------------------------------------------------------- */

/* A branch with a sign and whole numbers. */
static uint32_t signed_naturals(hth_json_rules *r, hth_grammar_fork *f, const char *sign, uint64_t min,
                                uint64_t max)
{
    return naturals(r, hth_grammar_words(r->g, hth_grammar_branch(r->g, f), sign), min, max);
}

/* Magnitudes of numbers. */
static void add_magnitudes(hth_json_rules *r, hth_grammar_fork *f, const char *sign,
                           const hth_json_bound *min, const hth_json_bound *max)
{
    hth_grammar *g = r->g;
    const uint64_t low = min->whole, high = max->whole;
    bool has_low = min->n_digit == 0 && !min->is_open, has_high = max->n_digit > 0 || !max->is_open;
    if (low > high) return;
    if (low == high) {
        if (has_low && has_high) hth_grammar_end_branch(g, f, signed_naturals(r, f, sign, low, low));
        uint32_t point = hth_grammar_words(g, signed_naturals(r, f, sign, low, low), ".");
        hth_grammar_end_branch(g, f, fraction_between(r, point, min, max));
        return;
    }
    const uint64_t first = has_low ? low : low + 1;
    if (first < high)
        hth_grammar_end_branch(g, f, maybe_fraction(r, signed_naturals(r, f, sign, first, high - 1)));
    if (!has_low) {
        uint32_t point = hth_grammar_words(g, signed_naturals(r, f, sign, low, low), ".");
        hth_grammar_end_branch(g, f, fraction_from(r, point, min, 0));
    }
    if (has_high) hth_grammar_end_branch(g, f, signed_naturals(r, f, sign, high, high));
    if (max->n_digit > 0) {
        uint32_t point = hth_grammar_words(g, signed_naturals(r, f, sign, high, high), ".");
        hth_grammar_end_branch(g, f, fraction_to(r, point, max, 0, false));
    }
}

/* Magnitudes of negative numbers, then of others: zero has no sign. */
static uint32_t add_range(hth_json_rules *r, uint32_t tail, const hth_json_range *range, bool is_whole)
{
    static const hth_json_bound zero = {.whole = 0}, above_zero = {.is_open = true};
    const struct {
        bool is_there;
        const char *sign;
        const hth_json_bound *min, *max;
    } signs[] = {{range->min.minus, "-", range->max.minus ? &range->max : &above_zero, &range->min},
                 {!range->max.minus, "", range->min.minus ? &zero : &range->min, &range->max}};
    hth_grammar_fork f = hth_grammar_fork_begin(r->g, tail);
    for (int i = 0; i < 2; i++) {
        uint64_t least, most;
        if (!signs[i].is_there) continue;
        if (!is_whole) add_magnitudes(r, &f, signs[i].sign, signs[i].min, signs[i].max);
        else if (round_up(signs[i].min, &least) && round_down(signs[i].max, &most) && least <= most)
            hth_grammar_end_branch(r->g, &f, signed_naturals(r, &f, signs[i].sign, least, most));
    }
    return hth_grammar_fork_end(r->g, &f);
}

uint32_t hth_json_integers(hth_json_rules *r, uint32_t tail, const hth_json_range *range)
{
    return add_range(r, tail, range, true);
}

uint32_t hth_json_numbers(hth_json_rules *r, uint32_t tail, const hth_json_range *range)
{
    return add_range(r, tail, range, false);
}

/* ---- bounds ---------------------------------------------------------------------------------------------- */

bool hth_json_bound_read(const hth_json *number, bool is_open, hth_json_bound *out)
{
    hth_decimal d;
    bool is_below = true; /* UINT64_MAX */
    *out = (hth_json_bound){.is_open = is_open};
    if (!hth_json_is_number(number) || !hth_decimal_read(number->text.bytes, number->text.n, &d))
        return false;
    out->minus = d.minus && d.n > 0;
    for (int32_t i = 0; i < d.exponent && is_below; i++) {
        uint64_t digit = (uint32_t)i < d.n ? (uint64_t)(d.digits[i] - '0') : 0;
        is_below = !__builtin_mul_overflow(out->whole, 10u, &out->whole) &&
                   !__builtin_add_overflow(out->whole, digit, &out->whole);
    }
    out->is_huge = !is_below;
    if (!is_below) {
        out->whole = UINT64_MAX;
        return true;
    }
    int64_t n = (int64_t)d.n - d.exponent;
    if (n > HTH_JSON_DIGITS) return false;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = d.exponent + i;
        out->digits[i] = at < 0 ? '0' : d.digits[at];
    }
    if (n > 0) out->n_digit = (uint32_t)n;
    return true;
}

int hth_json_bound_compare(const hth_json_bound *a, const hth_json_bound *b)
{
    int sign = a->minus ? -1 : 1;
    if (a->minus != b->minus) return sign;
    if (a->whole != b->whole) return a->whole < b->whole ? -sign : sign;
    return sign * strcmp(a->digits, b->digits);
}

/* ---- rules ----------------------------------------------------------------------------------------------- */

void hth_json_numbers_add(hth_json_rules *r)
{
    hth_grammar *g = r->g;
    static const hth_json_range integers = {{.minus = true, .whole = HTH_JSON_MAX_INTEGER},
                                            {.whole = HTH_JSON_MAX_INTEGER}};
    r->digit = hth_grammar_rule(g, NULL);
    hth_grammar_end_rule(g, between(r, r->digit, 0, 9));
    r->integer = hth_grammar_rule(g, NULL);
    hth_grammar_end_rule(g, hth_json_integers(r, r->integer, &integers));
    r->number = hth_grammar_rule(g, NULL);
    uint32_t head = hth_grammar_point(g, r->number);
    uint32_t tail = hth_grammar_repeat_since(g, head, hth_grammar_words(g, head, "-"), 0, 1);
    tail = maybe_fraction(r, naturals(r, tail, 0, HTH_JSON_MAX_WHOLE));
    head = hth_grammar_point(g, tail);
    uint32_t sign = hth_grammar_point(g, hth_grammar_one_of(g, head, "eE"));
    tail = hth_grammar_repeat_since(g, sign, hth_grammar_one_of(g, sign, "+-"), 0, 1);
    tail = hth_grammar_repeat_since(g, head, digits(r, tail, 1, MAX_EXPONENT_DIGITS), 0, 1);
    hth_grammar_end_rule(g, tail);
}
