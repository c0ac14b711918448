/* Peaks of AVX-512: byte products with 32-bit sums (VNNI) at both widths, the fused multiply-add, and the bf16
 * product if the machine has it. */
#include "measure/machine/peaks_x86.h"

PEAK_LOOP(bytes_zmm, "zmm", TWELVE("vpdpbusd %%zmm14, %%zmm15, %%zmm", "\n\t"))
PEAK_LOOP(bytes_ymm, "ymm", TWELVE("vpdpbusd %%ymm14, %%ymm15, %%ymm", "\n\t"))
PEAK_LOOP(fma_zmm, "zmm", TWELVE("vfmadd231ps %%zmm14, %%zmm15, %%zmm", "\n\t"))
PEAK_LOOP(bf16_zmm, "zmm", TWELVE("vdpbf16ps %%zmm14, %%zmm15, %%zmm", "\n\t"))

const hth_peak hth_peaks_avx512[] = {
    {"vpdpbusd zmm", HTH_PEAK_INT8, 12, 12 * 64, bytes_zmm},
    {"vpdpbusd ymm", HTH_PEAK_INT8, 12, 12 * 32, bytes_ymm},
    {"vfmadd231ps zmm", HTH_PEAK_F32, 12, 12 * 16, fma_zmm},
    {"vdpbf16ps zmm", HTH_PEAK_BF16, 12, 12 * 32, bf16_zmm},
    {0},
};
