/* The local time as chat templates get it: seconds since 1970, as if the clock on the wall showed UTC. */
#ifndef HEARTH_APPS_COMMON_LOCAL_TIME_H
#define HEARTH_APPS_COMMON_LOCAL_TIME_H

#include <stdint.h>
#include <time.h>

static inline int64_t local_seconds(void)
{
    time_t now = time(NULL);
    struct tm here;
    if (!localtime_r(&now, &here)) return (int64_t)now;
    return (int64_t)now + here.tm_gmtoff;
}

#endif
