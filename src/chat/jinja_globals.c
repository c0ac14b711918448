/* Functions of every template: namespace, dict, range, raise_exception, and strftime_now if the caller passes a
 * time. The clock is never read. */
#include "chat/jinja.h"

#include <stdio.h>
#include <string.h>

static JINJA_FUNCTION(global_namespace)
{
    if (!hth_jinja_new_dict(j, JINJA_NAMESPACE, out)) return false;
    const hth_jinja_dict *from[2] = {
        args->n == 1 && args->v[0].kind == JINJA_DICT ? args->v[0].as.dict : NULL, &args->named};
    if (args->n > 0 && !from[0])
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'namespace' takes a dict or names");
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; from[k] && i < from[k]->n; i++)
            if (!hth_jinja_put(j, out->as.dict, &from[k]->v[i].key, &from[k]->v[i].value)) return false;
    return true;
}

static JINJA_FUNCTION(global_dict)
{
    if (!global_namespace(j, self, args, out)) return false;
    out->kind = JINJA_DICT;
    return true;
}

/* Returns a list. The limits of memory and nodes bound a very long range. */
static JINJA_FUNCTION(global_range)
{
    int64_t start, stop, step;
    bool one = args->v[1].kind == JINJA_MISSING;
    if (!hth_jinja_int(j, &args->v[0], 0, &start) || !hth_jinja_int(j, &args->v[1], 0, &stop) ||
        !hth_jinja_int(j, &args->v[2], 1, &step))
        return false;
    if (one) {
        stop = start;
        start = 0;
    }
    if (step == 0) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "the step of a range is zero");
    if (!hth_jinja_new_list(j, JINJA_LIST, out)) return false;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        hth_jinja_value v = hth_jinja_integer(i);
        if (!hth_jinja_count_steps(j, 1) || !hth_jinja_push(j, out->as.list, &v)) return false;
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return true;
}

static JINJA_FUNCTION(global_raise)
{
    hth_jinja_value text;
    if (!hth_jinja_to_text(j, &args->v[0], &text)) return false;
    const char *p = hth_jinja_bytes(j, text.as.text);
    size_t n = text.as.text->n < 300 ? text.as.text->n : 300;
    return p && hth_jinja_fail(j, HEARTH_ERROR_ARGUMENT, "it refuses these messages: %.*s", (int)n, p);
}

/* ---- time -------------------------------------------------------------------------------------------- */

typedef struct date {
    int64_t year;
    int month, day, hour, minute, second; /* month 1..12 */
    int weekday, day_of_year;             /* Monday is 0; 1 January is 1 */
} date;

/* The proleptic Gregorian calendar, in eras of 400 years that start on 1 March. */
static date date_of(int64_t seconds)
{
    static const int days_before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t days = seconds / 86400 - (seconds % 86400 < 0), rest = (seconds % 86400 + 86400) % 86400;
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365,
            doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    date d = {.month = (int)(mp < 10 ? mp + 3 : mp - 9), .day = (int)(doy - (153 * mp + 2) / 5 + 1)};
    d.year = yoe + era * 400 + (d.month <= 2);
    bool leap = (d.year % 4 == 0 && d.year % 100 != 0) || d.year % 400 == 0;
    d.day_of_year = days_before[d.month - 1] + d.day + (leap && d.month > 2);
    d.weekday = (int)(((days + 3) % 7 + 7) % 7);
    d.hour = (int)(rest / 3600);
    d.minute = (int)(rest / 60 % 60);
    d.second = (int)(rest % 60);
    return d;
}

static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
static const char *const weekdays[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                       "Friday", "Saturday", "Sunday"};

/* Formats one directive. False if it is unknown. no_pad: %-d. */
static bool format_field(const date *d, char c, bool no_pad, char out[32])
{
    int hour = d->hour % 12 == 0 ? 12 : d->hour % 12;
    switch (c) {
    case 'Y': return snprintf(out, 32, "%lld", (long long)d->year) > 0;
    case 'y': return snprintf(out, 32, "%02d", (int)(((d->year % 100) + 100) % 100)) > 0;
    case 'B': return snprintf(out, 32, "%s", months[d->month - 1]) > 0;
    case 'b': return snprintf(out, 32, "%.3s", months[d->month - 1]) > 0;
    case 'A': return snprintf(out, 32, "%s", weekdays[d->weekday]) > 0;
    case 'a': return snprintf(out, 32, "%.3s", weekdays[d->weekday]) > 0;
    case 'p': return snprintf(out, 32, "%s", d->hour < 12 ? "AM" : "PM") > 0;
    case 'F': return snprintf(out, 32, "%04lld-%02d-%02d", (long long)d->year, d->month, d->day) > 0;
    case 'T': return snprintf(out, 32, "%02d:%02d:%02d", d->hour, d->minute, d->second) > 0;
    case 'e': return snprintf(out, 32, no_pad ? "%d" : "%2d", d->day) > 0;
    case 'j': return snprintf(out, 32, no_pad ? "%d" : "%03d", d->day_of_year) > 0;
    case '%': return snprintf(out, 32, "%%") > 0;
    default: break;
    }
    int v = c == 'm'   ? d->month
            : c == 'd' ? d->day
            : c == 'H' ? d->hour
            : c == 'I' ? hour
            : c == 'M' ? d->minute
                       : d->second;
    if (!c || !strchr("mdHIMS", c)) return false;
    return (no_pad ? snprintf(out, 32, "%d", v) : snprintf(out, 32, "%02d", v)) > 0;
}

static JINJA_FUNCTION(global_strftime)
{
    hth_jinja_text *format;
    hth_jinja_strbuf b = {0};
    if (!hth_jinja_text_argument(j, &args->v[0], &format)) return false;
    const char *p = format ? hth_jinja_bytes(j, format) : NULL;
    if (!p)
        return j->status == HEARTH_OK &&
               hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'strftime_now' wants a format");
    hth_jinja_cursor c = {0};
    date d = date_of(*j->in->seconds);
    for (size_t i = 0; i < format->n; i++) {
        char field[32];
        if (p[i] != '%') {
            bool is_template = hth_jinja_origin(format, &c, i);
            if (!hth_jinja_strbuf_bytes(j, &b, p + i, 1, is_template)) return false;
            continue;
        }
        bool no_pad = i + 1 < format->n && p[i + 1] == '-';
        i += 1 + no_pad;
        if (i >= format->n || !format_field(&d, p[i], no_pad, field))
            return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'strftime_now': '%%%.1s' is not known",
                                  i < format->n ? p + i : "");
        if (!hth_jinja_strbuf_bytes(j, &b, field, strlen(field), true)) return false;
    }
    return hth_jinja_strbuf_value(j, &b, out);
}

const hth_jinja_function hth_jinja_globals[] = {
    {"dict", global_dict, NULL, 0},
    {"namespace", global_namespace, NULL, 0},
    {"raise_exception", global_raise, "message", 1},
    {"range", global_range, "start stop step", 1},
    {"strftime_now", global_strftime, "format", 1},
    {NULL, NULL, NULL, 0},
};
