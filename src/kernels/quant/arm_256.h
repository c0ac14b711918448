/* The kernels of a type in blocks of 256 at each AArch64 level: rows and neuron-major down at neon; rows and
 * panels at dotprod; panels at i8mm, which uses the rows of dotprod. The including file defines
 * the names that arm_wide.h and axpy/axpy_256_neon.h need. */
#ifndef HTH_LEVEL_I8MM
#include "kernels/quant/arm_wide.h"
#endif

#ifdef HTH_LEVEL_NEON
#include "kernels/axpy/axpy_256_neon.h"
#else
#include "kernels/panel/panel_ops_neon.h"
#include KERNEL_PANEL
#include "kernels/panel/panel_256_neon.h"
#endif

#include "kernels/quant/entry.h"
