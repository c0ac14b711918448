/* Range of the values that a type can hold. quantize, pack and predictors check a row before they pack it. */
#ifndef HTH_CONVERT_RANGE_CHECK_H
#define HTH_CONVERT_RANGE_CHECK_H

#include "file/types.h"

#include <stdatomic.h>
#include <stdint.h>

/* Every type but F32, BF16 and MXFP4 has scales or weights in F16. A value that rounds to infinity cannot be packed;
 * MXFP4, whose scales are powers of two, has the limit of the others. NaN compares as false, so it is an error too. */
static inline bool hth_type_in_range(const float *x, size_t n, hth_type type)
{
    float limit = type == HTH_TYPE_F32 || type == HTH_TYPE_BF16 ? 3e38f : 65504.0f;
    bool all = true;
    for (size_t i = 0; i < n; i++) all &= x[i] >= -limit && x[i] <= limit;
    return all;
}

/* Notes a row that cannot be packed as 1 + its number, 0: none. Keeps the lowest, whichever thread finds it. */
static inline void hth_note_bad_row(_Atomic uint64_t *bad, uint64_t i_row)
{
    uint64_t seen = atomic_load(bad);
    while ((seen == 0 || i_row + 1 < seen) && !atomic_compare_exchange_weak(bad, &seen, i_row + 1)) continue;
}

#endif
