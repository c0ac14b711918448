/* Included at the end of each file of a type and an ISA level: adds the kernels of the file to the table (isa.h
 * declares the function). cmake/library.cmake defines HTH_LEVEL, KERNEL_NAME and KERNEL_TYPE by the file's
 * path; the included templates define which kernels exist (HAS_ROWS, HAS_AXPY, HAS_PANELS). */
#include "kernels/isa.h"

void HTH_KERNELS_OF(KERNEL_NAME, HTH_LEVEL)(hth_kernels *k)
{
    (void)k;
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
