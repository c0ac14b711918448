/* Edit distance between a misspelt word and a name. */
#ifndef HTH_BASE_DISTANCE_H
#define HTH_BASE_DISTANCE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of a name that are compared; the rest of a longer name is ignored. */
enum { HTH_DISTANCE_NAME = 512 };

/* Bytes to change, add, remove, or swap with a neighbour, to turn the word into the name (the optimal string
 * alignment distance). anywhere: to turn it into any part of the name. */
size_t hth_edit_distance(const char *word, const char *name, bool anywhere);

#endif
