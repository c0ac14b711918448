/* stub */
#include "kernels/levels.h"
void hth_kernels_float_avx512(hth_kernels *k) { (void)k; }
