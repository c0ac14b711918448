/* base/format_bytes.h: bytes in words, and words that allow them when an option reads them again. */
#include "base/format_bytes.h"
#include "common/options/options.h"
#include "support/test.h"

static const struct {
    uint64_t bytes;
    const char *shown, *wanted;
} known[] = {
    {0, "0 bytes", "0"},
    {1, "1 byte", "1"},
    {1023, "1023 bytes", "1023"},
    {1024, "1.00 KiB", "1K"},
    {1025, "1.00 KiB", "1.01K"},
    {1048575, "1.00 MiB", "1024K"},
    {1048576, "1.00 MiB", "1M"},
    {6025984, "5.75 MiB", "5.75M"},
    {(uint64_t)6 << 30, "6.00 GiB", "6G"},
    {((uint64_t)15 << 29) + 1, "7.50 GiB", "7.51G"},
    {(uint64_t)8000 << 40, "8000.00 TiB", "8000T"},
    {UINT64_MAX, "no limit", "16777216T"},
};

TEST(bytes_are_shown_to_the_nearest_and_requests_rounded_up)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        CHECK_TEXT(hth_format_bytes(known[i].bytes).text, known[i].shown);
        CHECK_TEXT(hth_format_size_arg(known[i].bytes).text, known[i].wanted);
    }
}

/* Read again it allows them, and no hundredth of a unit more. */
static void check_wanted(uint64_t bytes)
{
    uint64_t again = 0, unit = 1;
    while (unit < (uint64_t)1 << 40 && bytes >= unit * 1024) unit *= 1024;
    hth_byte_text wanted = hth_format_size_arg(bytes);
    if (!parse_size(wanted.text, &again) || again < bytes || again - bytes > unit / 100 + 1)
        test_fail(__FILE__, __LINE__, "expected %llu as %s, read as %llu", (unsigned long long)bytes,
                  wanted.text, (unsigned long long)again);
}

TEST(printed_amounts_are_enough_when_read_back)
{
    test_random r = {1};
    for (int i = 0; i < 100000; i++) check_wanted(test_random_next(&r) >> (14 + test_random_below(&r, 50)));
    for (uint64_t unit = 1024; unit <= (uint64_t)1 << 40; unit *= 1024)
        for (uint64_t n = 1; n < 400; n++)
            for (uint64_t near = 0; near < 3; near++) check_wanted(unit / 100 * n + unit + near - 1);
}
