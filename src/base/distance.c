/* The dynamic-programming table of edit distances, of which three rows are stored. Called to find the nearest
 * option, command or model. */
#include "base/distance.h"

#include <string.h>

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

size_t hth_edit_distance(const char *word, const char *name, bool anywhere)
{
    size_t n = strlen(word), m = min(strlen(name), HTH_DISTANCE_NAME), rows[3][HTH_DISTANCE_NAME + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++) above[j] = anywhere ? 0 : j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = above[j - 1] + (word[i - 1] != name[j - 1]);
            row[j] = min(change, min(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && word[i - 1] == name[j - 2] && word[i - 2] == name[j - 1])
                row[j] = min(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = above, above = row, row = oldest;
    }
    size_t found = above[m];
    for (size_t j = 0; anywhere && j < m; j++) found = min(found, above[j]);
    return found;
}
