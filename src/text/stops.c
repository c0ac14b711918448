/* Finds stop texts in a text that grows by tokens. */
#define _GNU_SOURCE
#include "text/stops.h"

#include <string.h>

size_t hth_stops_find(const hth_stop *stops, size_t n_stop, const char *text, size_t n, size_t *which)
{
    size_t first = n;
    for (size_t i = 0; i < n_stop; i++) {
        const char *at = memmem(text, n, stops[i].text, stops[i].n);
        if (at && (size_t)(at - text) < first) first = (size_t)(at - text), *which = i;
    }
    return first;
}

size_t hth_stops_count_unsure(const hth_stop *stops, size_t n_stop, const char *text, size_t n)
{
    size_t longest = 0;
    for (size_t i = 0; i < n_stop; i++) {
        size_t k = stops[i].n - 1 < n ? stops[i].n - 1 : n;
        while (k > longest && memcmp(text + n - k, stops[i].text, k) != 0) k--;
        if (k > longest) longest = k;
    }
    return longest;
}
