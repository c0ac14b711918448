/* The kernels of a type in blocks of 32 at an x86 level: rows, neuron-major down and panels. The including file
 * defines the names that rows_tmpl.h and axpy/axpy_32_LEVEL.h need, and ROWS_FOR_ONE_TOKEN if rows are faster than
 * panels there. */
#include "kernels/quant/rows_tmpl.h"

#ifdef HTH_LEVEL_AVX2
#include "kernels/axpy/axpy_32_avx2.h"
#include "kernels/panel/panel_ops_avx2.h"
#include KERNEL_PANEL
#include "kernels/panel/panel_32_avx2.h"
#else
#include "kernels/axpy/axpy_32_avx512.h"
#include "kernels/panel/panel_ops_avx512.h"
#include KERNEL_PANEL
#include "kernels/panel/panel_32_avx512.h"
#endif

#include "kernels/quant/entry.h"
