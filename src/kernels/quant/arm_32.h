/* The kernels of a type in blocks of 32 at each AArch64 level: rows and neuron-major down at neon; rows and
 * panels at dotprod; panels at i8mm, which uses the rows of dotprod. The including file defines
 * the names that rows_tmpl.h and axpy/axpy_32_neon.h need. */
#ifndef HTH_LEVEL_I8MM
HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d_low = block_scales(p), .d_high = block_scales(p + 4 * BLOCK_SIZE)};
#if HAS_MINIMUM
    g.m_low = block_minima(p), g.m_high = block_minima(p + 4 * BLOCK_SIZE);
#endif
    for (int i = 0; i < 16; i++) g.w[i] = block_half(p + i / 2 * BLOCK_SIZE, i % 2);
    return g;
}

#include "kernels/quant/rows_tmpl.h"
#endif

#ifdef HTH_LEVEL_NEON
#include "kernels/axpy/axpy_32_neon.h"
#else
#include "kernels/panel/panel_ops_neon.h"
#include KERNEL_PANEL
#include "kernels/panel/panel_32_neon.h"
#endif

#include "kernels/quant/entry.h"
