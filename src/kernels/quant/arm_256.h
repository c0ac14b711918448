/* What a type in blocks of 256 has at each level of AArch64: rows and neuron-major down at neon; rows and panels at
 * dotprod; panels at i8mm, where rows are those of dotprod. The including file gives KERNEL_NAME, KERNEL_TYPE, KERNEL_PANEL,
 * and what arm_wide.h and axpy/axpy_256_neon.h ask for. */
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
