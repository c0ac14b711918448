/* How far a misspelt word is from a name. */
#ifndef HTH_BASE_DISTANCE_H
#define HTH_BASE_DISTANCE_H

#include <stdbool.h>
#include <stddef.h>

/* Of longer names only the beginning counts. */
enum { HTH_DISTANCE_NAME = 512 };

/* Bytes to change, add, remove, or exchange with a neighbour, to make the name of the word (the optimal string
 * alignment distance); anywhere: to make any part of the name. */
size_t hth_edit_distance(const char *word, const char *name, bool anywhere);

#endif
