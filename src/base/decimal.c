/* Numbers in decimal, without the locale: digits and an exponent, which strtod gets without a point. */
#include "base/decimal.h"

#include <stdio.h>
#include <stdlib.h>

/* Exponents are cut there: with any number of digits that fits into memory, 10^MAX is infinite and 10^-MAX is 0. */
enum { MAX_EXPONENT = 1 << 30 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Reads the exponent behind the e. */
static bool read_exponent(const char *p, const char *end, int64_t *out)
{
    bool minus = p < end && *p == '-';
    int64_t e = 0;
    if (p < end && (*p == '-' || *p == '+')) p++;
    if (p == end) return false;
    for (; p < end && is_digit(*p); p++)
        if (e < MAX_EXPONENT) e = 10 * e + (*p - '0');
    *out = minus ? -e : e;
    return p == end;
}

static void add_digit(hth_decimal *d, char digit)
{
    if (d->n < HTH_DECIMAL_MAX_DIGIT) d->digits[d->n++] = digit;
    else if (digit != '0') d->digits[HTH_DECIMAL_MAX_DIGIT - 1] = '1';
}

bool hth_decimal_read(const char *text, size_t n, hth_decimal *out)
{
    const char *p = text, *end = text + n;
    int64_t exponent = 0, point = 0; /* the exponent after e; position of the point behind the first digit */
    bool has_digit = false, has_point = false;
    out->n = 0;
    out->minus = p < end && *p == '-';
    if (out->minus) p++;
    for (; p < end && (is_digit(*p) || (*p == '.' && !has_point)); p++) {
        if (*p == '.') {
            has_point = true;
            continue;
        }
        has_digit = true;
        if (*p != '0' || out->n > 0) {
            add_digit(out, *p);
            point += !has_point;
        } else {
            point -= has_point;
        }
    }
    if (!has_digit) return false;
    if (p < end && ((*p | 32) != 'e' || !read_exponent(p + 1, end, &exponent))) return false;
    while (out->n > 0 && out->digits[out->n - 1] == '0') out->n--;
    exponent += point;
    if (exponent > MAX_EXPONENT) exponent = MAX_EXPONENT;
    if (exponent < -MAX_EXPONENT) exponent = -MAX_EXPONENT;
    out->exponent = out->n > 0 ? (int32_t)exponent : 0;
    return true;
}

bool hth_decimal_integer(const hth_decimal *d, int64_t *out)
{
    enum { MAX_DIGIT = 19 };
    int64_t v = 0; /* negative: there is one more of those */
    if (d->exponent > MAX_DIGIT || (int64_t)d->n > d->exponent) return false;
    for (int32_t i = 0; i < d->exponent; i++) {
        int digit = (uint32_t)i < d->n ? d->digits[i] - '0' : 0;
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, digit, &v)) return false;
    }
    if (!d->minus && v == INT64_MIN) return false;
    *out = d->minus ? v : -v;
    return true;
}

/* strtod gets no point, because the one that it takes depends on the caller's locale. */
double hth_decimal_double(const hth_decimal *d)
{
    char text[HTH_DECIMAL_MAX_DIGIT + 20];
    if (d->n == 0) return d->minus ? -0.0 : 0.0;
    snprintf(text, sizeof text, "%s%.*se%lld", d->minus ? "-" : "", (int)d->n, d->digits,
             (long long)d->exponent - (long long)d->n);
    return strtod(text, NULL);
}
