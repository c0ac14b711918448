/* Products of bytes for panel_32_avx512.h and panel_256_avx512.h. */
#include "kernels/panel/panel_sums.h"

/* Four bytes (inputs, or two sums of them) in every lane. */
HTH_INLINE __m512i four_bytes(const void *p) { return _mm512_set1_epi32((int)hth_load_u32(p)); }
