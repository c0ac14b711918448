/* Formats byte counts. Uses integers only: a locale may have another decimal mark, and a size argument that is
 * rounded up must not fall below the byte count when it is parsed again. */
#include "base/format_bytes.h"

#include <stdio.h>

enum { LAST = 3 };
static const char letters[LAST + 1] = {'K', 'M', 'G', 'T'};

static uint64_t unit_of(int power) { return (uint64_t)1024 << (10 * power); }

static int power_of(uint64_t bytes)
{
    int power = 0;
    while (power < LAST && bytes >= unit_of(power + 1)) power++;
    return power;
}

/* Hundredths of the unit; `more` rounds the rest, which counts at most one. */
static uint64_t hundredths(uint64_t bytes, int power, uint64_t more)
{
    uint64_t unit = unit_of(power);
    return bytes / unit * 100 + (bytes % unit * 100 + more) / unit;
}

hth_byte_text hth_format_bytes(uint64_t bytes)
{
    hth_byte_text out;
    int power = power_of(bytes);
    uint64_t n = hundredths(bytes, power, unit_of(power) / 2);
    if (power < LAST && n >= 102400) power++, n = hundredths(bytes, power, unit_of(power) / 2);
    if (bytes == UINT64_MAX) snprintf(out.text, sizeof out.text, "no limit");
    else if (bytes < 1024)
        snprintf(out.text, sizeof out.text, "%u byte%s", (unsigned)bytes, bytes == 1 ? "" : "s");
    else
        snprintf(out.text, sizeof out.text, "%llu.%02u %ciB", (unsigned long long)(n / 100),
                 (unsigned)(n % 100), letters[power]);
    return out;
}

hth_byte_text hth_format_size_arg(uint64_t bytes)
{
    hth_byte_text out;
    int power = power_of(bytes);
    uint64_t n = hundredths(bytes, power, unit_of(power) - 1);
    if (bytes < 1024) snprintf(out.text, sizeof out.text, "%u", (unsigned)bytes);
    else if (n % 100 == 0)
        snprintf(out.text, sizeof out.text, "%llu%c", (unsigned long long)(n / 100), letters[power]);
    else
        snprintf(out.text, sizeof out.text, "%llu.%02u%c", (unsigned long long)(n / 100), (unsigned)(n % 100),
                 letters[power]);
    return out;
}
