/* The end of each file of a type and a level: puts into the table what the file has (isa.h declares it). cmake/library.cmake
 * gives HTH_LEVEL, the file KERNEL_NAME and KERNEL_TYPE; the templates that it includes say what there is. */
#include "kernels/isa.h"

void HTH_KERNELS_OF(KERNEL_NAME, HTH_LEVEL)(hth_kernels *k)
{
#ifdef HAS_ROWS
    k->rows[KERNEL_TYPE] = rows;
#endif
#ifdef HAS_AXPY
    k->axpy[KERNEL_TYPE] = down;
#endif
#ifdef HAS_PANELS
    k->panels[KERNEL_TYPE] = panels;
#ifndef ROWS_FOR_ONE_TOKEN
    k->layout[KERNEL_TYPE] = HTH_LAYOUT_PANELS;
#endif
#endif
#ifdef HAS_UNPACK
    k->unpack[KERNEL_TYPE] = unpack;
#endif
}
