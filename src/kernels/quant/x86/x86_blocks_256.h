/* The kernels of a type in blocks of 256 at an x86 level: rows, neuron-major down and panels. The including file
 * defines the names that x86_256_wide.h or x86_512_wide.h and axpy/axpy_256_LEVEL.h need, and ROWS_FOR_ONE_TOKEN if
 * rows are faster than panels there. */
#ifdef HTH_LEVEL_AVX2
#include "kernels/quant/x86/x86_256_wide.h"
#include "kernels/quant/rows_256_tmpl.h"
#include "kernels/axpy/axpy_256_avx2.h"
#include "kernels/panel/panel_ops_avx2.h"
#include KERNEL_PANEL
#include "kernels/panel/panel_256_avx2.h"
#else
#include "kernels/quant/x86/x86_512_wide.h"
#include "kernels/quant/rows_256_tmpl.h"
#include "kernels/axpy/axpy_256_avx512.h"
#include "kernels/panel/panel_ops_avx512.h"
#include KERNEL_PANEL
#include "kernels/panel/panel_256_avx512.h"
#endif

#include "kernels/quant/entry.h"
