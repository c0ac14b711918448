/* base/decimal.c: against strtod of the C locale, and at the ends of int64_t. */
#include "base/decimal.h"

#include "support/test.h"

#include <math.h>

static bool read_text(const char *text, hth_decimal *d) { return hth_decimal_read(text, strlen(text), d); }

static void check_double(const char *text)
{
    hth_decimal d;
    if (!CHECK(read_text(text, &d))) return;
    double found = hth_decimal_double(&d), wanted = strtod(text, NULL);
    if (memcmp(&found, &wanted, sizeof found) != 0)
        test_fail(__FILE__, __LINE__, "%.60s is %a, not %a", text, wanted, found);
}

TEST(doubles_are_the_nearest)
{
    static const char *const texts[] = {"0",      "-0",     "0.0",     "1",        "0.1",    "1.50",    "-12.75e-3", "1e22",
                                        "1e23",   "4.9e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
                                        "1.7976931348623157e308", "1.7976931348623159e308", "1e400", "-1e400", "1e-400",
                                        "0e999999999999", "1e999999999999999999999", "1e-99999999999999999999", ".5", "5.",
                                        "9007199254740993", "18446744073709551615", "000123.4500"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_double(texts[i]);
    test_random r = {1};
    for (int i = 0; i < 20000; i++) {
        union {
            uint64_t bits;
            double value;
        } u = {(uint64_t)test_random_below(&r, UINT32_MAX) << 32 | test_random_below(&r, UINT32_MAX)};
        char text[64];
        if (!isfinite(u.value)) continue;
        snprintf(text, sizeof text, i % 2 ? "%.17g" : "%.3f", fabs(u.value) < 1e30 ? u.value : 1.5 * i);
        check_double(text);
    }
}

/* Exactly between two doubles, 1 + 2^-53, and the last of very many digits decides. */
TEST(digits_beyond_all_memory_of_them_still_decide)
{
    static const char half[] = "1.00000000000000011102230246251565404236316680908203125";
    char text[3000];
    hth_decimal d;
    for (int more = 0; more < 2; more++) {
        memset(text, '0', sizeof text);
        memcpy(text, half, strlen(half));
        if (more) text[sizeof text - 1] = '1';
        CHECK(hth_decimal_read(text, sizeof text, &d));
        CHECK(hth_decimal_double(&d) == (more ? 1.0 + 0x1p-52 : 1.0));
    }
}

static void check_integer(const char *text, bool is_one, int64_t wanted)
{
    hth_decimal d;
    int64_t found = 7;
    CHECK(read_text(text, &d));
    CHECK_INT(hth_decimal_integer(&d, &found), is_one);
    CHECK_INT(found, is_one ? wanted : 7);
}

TEST(integers_are_whole_numbers_however_they_are_written)
{
    check_integer("8.0", true, 8);
    check_integer("1e1", true, 10);
    check_integer("0.25e2", true, 25);
    check_integer("1200e-2", true, 12);
    check_integer("-0", true, 0);
    check_integer("0e400", true, 0);
    check_integer("9223372036854775807", true, INT64_MAX);
    check_integer("-9223372036854775808", true, INT64_MIN);
    check_integer("9223372036854775808", false, 0);
    check_integer("-9223372036854775809", false, 0);
    check_integer("18446744073709551615", false, 0);
    check_integer("1e19", false, 0);
    check_integer("1e18", true, 1000000000000000000);
    check_integer("0.5", false, 0);
    check_integer("1e-1", false, 0);
    check_integer("1e400", false, 0);
}

TEST(other_texts_are_no_decimals)
{
    static const char *const texts[] = {"", "-", ".", "e5", "1e", "1e+", "1.2.3", "1 ", " 1", "+1", "--1", "0x10", "1e5.0",
                                        "inf", "nan", "1,5"};
    hth_decimal d;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (read_text(texts[i], &d)) test_fail(__FILE__, __LINE__, "'%s' was read", texts[i]);
}
