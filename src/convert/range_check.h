/* Range of the values that a type can hold. quantize, pack and predictors check a row before they pack it. */
#ifndef HTH_CONVERT_RANGE_CHECK_H
#define HTH_CONVERT_RANGE_CHECK_H

#include "file/types.h"

/* Every type but F32 and BF16 has scales or weights in F16. A value that rounds to infinity cannot be packed.
 * NaN compares as false, so it is an error too. */
static inline bool hth_type_in_range(const float *x, size_t n, hth_type type)
{
    float limit = type == HTH_TYPE_F32 || type == HTH_TYPE_BF16 ? 3e38f : 65504.0f;
    bool all = true;
    for (size_t i = 0; i < n; i++) all &= x[i] >= -limit && x[i] <= limit;
    return all;
}

#endif
