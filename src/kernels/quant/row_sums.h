/* The sums of a row kernel: the partial sums of rule R4, and a second set of them for types with minima
 * (HAS_MINIMUM 1). The including file defines partials, no_partials() and add_scaled(p, weight scales,
 * activation scales, integers). */
#ifndef HTH_KERNELS_QUANT_ROW_SUMS_H
#define HTH_KERNELS_QUANT_ROW_SUMS_H

#if HAS_MINIMUM
typedef struct row_sums {
    partials p, m;
} row_sums;

HTH_INLINE row_sums no_row_sums(void) { return (row_sums){no_partials(), no_partials()}; }
#else
typedef partials row_sums;

HTH_INLINE row_sums no_row_sums(void) { return no_partials(); }
#endif

#endif
