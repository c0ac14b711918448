/* The entry of a grid (grids.h) that is nearest to some weights by weighted squared error; pack_grid_ref.c uses it. The
 * search is exact. An entry has four quarters, of two weights each (IQ3: of one), whose digits are one number. Entries
 * with the same upper half lie side by side, and are passed over where that half and the least error of any lower half
 * are too much. Sums of floats are monotonic, so rounding hides no better entry. */
#ifndef HTH_KERNELS_QUANT_PACK_GRID_H
#define HTH_KERNELS_QUANT_PACK_GRID_H

#include "base/bits.h"
#include "kernels/isa.h"

#include <math.h>

/* A grid as the format describes it. */
typedef struct hth_pack_grid {
    const void *entries; /* ascending, the last weight first */
    int n_entry, width;  /* weights of an entry: 8, of three values each, or 4, of eight */
    int digit_shift;     /* byte >> digit_shift is the number of a value */
    int zero;            /* byte - zero is the value */
    float value[8];      /* value of each digit */
} hth_pack_grid;

/* A lower half is a number with the base HTH_LOWER, which leaves room for whole registers. */
enum { HTH_LOWER = 12, HTH_MAX_QUARTER = 9, HTH_MAX_ENTRY = 2048 };

typedef struct hth_grid_search {
    const hth_pack_grid *grid;
    uint16_t start[HTH_MAX_QUARTER * HTH_MAX_QUARTER + 1]; /* the first entry with each upper half */
    uint8_t lower[HTH_MAX_ENTRY];
} hth_grid_search;

static inline const uint8_t *hth_grid_entry(const hth_pack_grid *g, int i)
{
    return (const uint8_t *)g->entries + i * g->width;
}

static inline void hth_grid_search_init(const hth_pack_grid *g, hth_grid_search *s)
{
    int n_value = g->width == 8 ? 3 : 8, n = g->width == 8 ? 9 : 8, end = 0;
    s->grid = g;
    for (int e = 0; e < g->n_entry; e++) {
        const uint8_t *byte = hth_grid_entry(g, e);
        int quarter[4];
        for (int k = 0; k < 4; k++)
            quarter[k] = g->width == 4 ? byte[k] >> g->digit_shift
                                       : (byte[2 * k + 1] >> g->digit_shift) * n_value + (byte[2 * k] >> g->digit_shift);
        s->lower[e] = (uint8_t)(quarter[1] * HTH_LOWER + quarter[0]);
        for (int upper = quarter[3] * n + quarter[2]; end <= upper; end++) s->start[end] = (uint16_t)e;
    }
    for (; end <= n * n; end++) s->start[end] = (uint16_t)g->n_entry;
}

/* The errors of weights, by digit; of each the least, and its digit. */
typedef struct hth_grid_errors {
    float of[8][8]; /* [digit][weight]; not negative */
    float least[8];
    int32_t digit[8];
} hth_grid_errors;

/* The best entry for weights `first` and on, of `width`: *index. Returns its error; INFINITY if that is not below
 * `limit`. */
HTH_INLINE float hth_grid_nearest(const hth_grid_search *s, int width, const hth_grid_errors *w, int first, float limit,
                                  int *index)
{
    const int n_value = width == 8 ? 3 : 8, n = width == 8 ? 9 : 8, each = width / 4;
    float quarter[4][HTH_LOWER] = {{0}}, least[4], lower[HTH_MAX_QUARTER * HTH_LOWER], best = limit;
    int digit[4], found = -1;
    for (int k = 0; k < 4; k++) {
        int i = first + k * each, j = i + each - 1;
        for (int q = 0; q < n; q++)
            quarter[k][q] = width == 4 ? w->of[q][i] : w->of[q / n_value][j] + w->of[q % n_value][i];
        least[k] = width == 4 ? w->least[i] : w->least[j] + w->least[i];
        digit[k] = width == 4 ? w->digit[i] : w->digit[j] * n_value + w->digit[i];
    }
    for (int b = 0; b < n; b++)
        for (int a = 0; a < HTH_LOWER; a++) lower[b * HTH_LOWER + a] = quarter[1][b] + quarter[0][a];
    float least_lower = least[1] + least[0];
    /* The best upper half first, then all. */
    for (int b = -1; b < n; b++) {
        int third = b < 0 ? digit[3] : b, a = b < 0 ? digit[2] : 0, end = b < 0 ? a + 1 : n;
        if (!(quarter[3][third] + least[2] + least_lower < best)) continue;
        for (; a < end; a++) {
            float upper = quarter[3][third] + quarter[2][a];
            if (!(upper + least_lower < best)) continue;
            const int last = s->start[third * n + a + 1];
            for (int e = s->start[third * n + a]; e < last; e++) {
                float sum = upper + lower[s->lower[e]];
                if (sum < best) best = sum, found = e;
            }
        }
    }
    *index = found < 0 ? 0 : found;
    return found < 0 ? INFINITY : best;
}

#endif
