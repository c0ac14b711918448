/* Numbers that are written in decimal: exact, and in any locale. */
#ifndef HTH_BASE_DECIMAL_H
#define HTH_BASE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No double lies between two numbers that have the same first 770 digits, if both have more. */
enum { HTH_DECIMAL_MAX_DIGIT = 800 };

/* 0.DIGITS times 10^exponent; 0 has no digits. Digits behind the last that fits are one 1. */
typedef struct hth_decimal {
    bool minus;
    uint32_t n;
    int32_t exponent;
    char digits[HTH_DECIMAL_MAX_DIGIT]; /* neither the first nor the last is 0 */
} hth_decimal;

/* Reads n bytes, all of them, as [-] digits [. digits] [e [+-] digits], where digits may be missing on one side of the
 * point. False: it is something else. */
bool hth_decimal_read(const char *text, size_t n, hth_decimal *out);

/* Whether the number is whole and an int64_t, which is then *out. */
bool hth_decimal_integer(const hth_decimal *d, int64_t *out);

/* The nearest double, which is infinite beyond all of them. */
double hth_decimal_double(const hth_decimal *d);

#endif
