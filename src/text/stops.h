/* Stop texts: texts before which a generated text ends. */
#ifndef HTH_TEXT_STOPS_H
#define HTH_TEXT_STOPS_H

#include <stddef.h>

typedef struct hth_stop {
    const char *text; /* n > 0 arbitrary bytes */
    size_t n;
} hth_stop;

/* The offset of the first stop text in text[n]; n: there is none. *which: its index; the lowest, if several begin
 * there. */
size_t hth_stops_find(const hth_stop *stops, size_t n_stop, const char *text, size_t n, size_t *which);
/* How many bytes at the end of text[n] a stop text may begin with: they are shown when more bytes say that none does. */
size_t hth_stops_count_unsure(const hth_stop *stops, size_t n_stop, const char *text, size_t n);

#endif
